"""`evaluate`: any model measured on any file, by what the model is."""
