"""Changing the shape of a trained model: what it sees, how long its texts are, its heads, layers and vocabulary."""
