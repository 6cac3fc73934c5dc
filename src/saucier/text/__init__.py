"""Text on its way to the model: read -> tokenize -> store -> batch. Needs no torch; hands out numpy arrays.

Import from the submodules (`config`, `read`, `corpus`, `split`, `tokenizer`, `store`, `batches`): this file stays empty
so that `saucier --help` pays for none of them.
"""
