"""Pretraining: a recipe cooked into a run folder that holds all that is needed to use and to repeat it."""
