"""Finding texts by what they mean: so far, the vectors to compare them by."""
