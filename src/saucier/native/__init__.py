"""Kernels in C, the numbers that they read, and models lowered to plans of kernel calls. No torch."""
