"""Simple methods that a model has to beat, on text as such and on tasks. Import from the submodules."""
