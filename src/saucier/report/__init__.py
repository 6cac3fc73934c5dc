"""Reports: results as data, the pages drawn from them, and the pages of the documentation that are drawn from code."""
