"""Checks that `make check` runs over the source; they read the syntax tree and import nothing of it."""
