"""Quantization: the same model whose maps and tables hold numbers of few bits. Needs no torch itself."""
