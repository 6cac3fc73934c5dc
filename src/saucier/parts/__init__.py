"""The parts that every model is made of, as torch modules.

Each reads one config type and knows nothing of the others.
"""
