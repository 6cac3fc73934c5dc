"""Pruning: heads, neurons, layers, tokens and single weights that a trained model can do without."""
