"""Reading and writing models as folders: our own layout, and published ones by the tables of their families."""
