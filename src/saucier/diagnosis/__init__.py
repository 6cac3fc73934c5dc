"""Whether a model is right: the laws it must obey, its files, and what an operation changed."""
