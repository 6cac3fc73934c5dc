"""Freed memory is kept, but holes are given back when they grow too many."""

from __future__ import annotations

import platform

import pytest

from saucier.training.allocator import GROWTH, Holes, held, keep_memory

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps freed memory")


@glibc
def test_holes_are_given_back_when_memory_has_grown_by_half() -> None:
    holes = Holes()
    assert [holes.after_step(size) for size in (100, 120, int(100 * GROWTH), 151, 110, 165, 166)] == [
        False, False, False, True, False, False, True]
    assert holes.times == 2
    assert holes.step_size == 110


@glibc
def test_giving_back_makes_the_process_smaller() -> None:
    import torch

    assert keep_memory()
    holes = Holes()
    holes.after_step(1)
    kept = [torch.ones(250_000) for _ in range(200)]
    del kept[::2]
    before = held()
    assert holes.after_step(before)
    assert held() < before - 50_000_000
    assert len(kept) == 100
