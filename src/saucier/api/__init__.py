"""The public functions: what each verb of the command line does, from Python. Signatures, help and defaults are here,
once; the command line reads its options from them. Importing these modules imports neither torch nor typer.
"""
