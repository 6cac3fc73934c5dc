"""Softmax attention that computes only what a visibility shows: candidates, then a plan of tiles, then their mixing.

Numbers and gradients are those of the dense softmax under the same mask. `dispatch` says where it is used.
"""
