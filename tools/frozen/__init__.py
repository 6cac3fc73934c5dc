"""The parts of `tools/fingerprints.py`: each yields named items of what must not change.

They call the package from outside. Where a part must reach for a name inside it, that is one of a job's stages; when
these move, only the import here does.
"""
