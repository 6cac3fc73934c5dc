"""Runs: a recipe cooked into a folder that holds all that is needed to use and to repeat it.

`cook` is the whole job; the other files are its stages. Import from the submodules.
"""
