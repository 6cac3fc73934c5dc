"""Comparing recipes at an equal budget: what is compared, the runs, the scores, and what they allow to say.

Imports runs and inspection; only the command line imports this. Import from the submodules.
"""
