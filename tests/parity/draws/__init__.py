"""One module a family: `draw(rng)` returns a random legal config of the reference library and the classes that fit it.

A module may also have `inputs(config, name, rng)` where the common batch of `tests/parity/batches.py` does not fit.
"""
