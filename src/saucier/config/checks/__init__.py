"""Illegal combinations of a config tree, refused with their path; `model.check` looks at all of it. No torch."""
