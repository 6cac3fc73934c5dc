"""Text on its way to the model: read, tokenize, store, batch. Hands out numpy arrays.

Import from the submodules: this file stays empty so that `saucier --help` pays for none of them.
"""
