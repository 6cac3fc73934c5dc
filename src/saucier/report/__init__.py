"""Reports: results as data, and the pages drawn from them."""
