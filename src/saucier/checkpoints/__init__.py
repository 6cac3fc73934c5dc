"""Tables, files and weights of saved models: our own layout, published layouts, sentence-transformers, adapters.

Not here: which of them a folder is, and opening it; that is in `saucier.folders`.
"""
