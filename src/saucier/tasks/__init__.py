"""Tasks: scores of text and of models, and the simple methods that a model has to beat. Import from the submodules."""
