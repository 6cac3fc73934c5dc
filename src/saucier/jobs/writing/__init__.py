"""Letting a trained model write: texts, translations, lines of files, and where it looks meanwhile."""
