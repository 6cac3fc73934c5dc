"""Many texts written in batches: those of about one length together, so that little is padded."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def in_batches(texts: Sequence[str], size: int, write: Callable[[list[str]], list[str]],
               told: Callable[[int], None] | None = None) -> list[str]:
    """Apply `write` to batches of texts; the results come back in the order of the texts. `told` hears how many are
    done.
    """
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    results = [""] * len(texts)
    for start in range(0, len(order), size):
        numbers = order[start:start + size]
        for number, text in zip(numbers, write([texts[number] for number in numbers]), strict=True):
            results[number] = text
        if told is not None:
            told(start + len(numbers))
    return results
