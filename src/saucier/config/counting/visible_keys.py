"""How many keys a query sees, counted from the visibility alone: what attention costs follows from it."""

from __future__ import annotations

from saucier.config.visibility import (
    Beyond,
    Blocks,
    BlockWindow,
    Causal,
    Columns,
    Combined,
    Dilated,
    Full,
    Global,
    GlobalBlocks,
    Permutation,
    Prefix,
    RandomBlocks,
    SameLength,
    Strided,
    Visibility,
    Window,
)


def visible_keys(visibility: Visibility, length: int) -> float:
    """Return how many keys a query sees on average in a sequence of `length` tokens (for counting FLOPs).

    A prefix is counted as causal, since its length is known only with the batch, and global tokens, few and known
    as late, as one; a conjunction by its narrowest term, with a causal window counted exactly.
    """
    match visibility:
        case Full() | Permutation():
            return float(length)
        case SameLength():
            return 1.0
        case Causal() | Prefix():
            return (length + 1) / 2
        case Global():
            return 1.0
        case Window(size=size):
            reach = min(size, length)
            return 2 * causal_window_keys(reach, length) - 1
        case Combined(kind="and", terms=terms):
            terms = flatten_terms(terms)
            past = any(isinstance(term, Causal) for term in terms)
            match [term for term in terms if not isinstance(term, Causal)]:
                case [Columns(stride=step, count=count)] if past:
                    firsts = range(step - min(count, step), step)
                    return sum(sum(range(length - first, 0, -step)) for first in firsts) / length
            narrow = min((visible_keys(term, length) for term in terms if not isinstance(term, Causal)),
                         default=float(length))
            if past and all(isinstance(term, Causal | SYMMETRIC) for term in terms):
                return (narrow + 1) / 2
            return min(narrow, (length + 1) / 2) if past else narrow
        case Combined(kind="or", terms=terms):
            return min(float(length), sum(visible_keys(term, length) for term in terms))
        case Combined(kind="plus", terms=terms):
            return sum(visible_keys(term, length) for term in terms)
        case Beyond(length=limit, inner=inner):
            return visible_keys(inner, length) if length > limit else float(length)
        case BlockWindow() | GlobalBlocks() | RandomBlocks():
            return block_keys(visibility, length)
        case Dilated(size=size, dilation=step):
            return 2 * sum(max(0, length - step * away) for away in range(size)) / length - 1
        case Strided(stride=step):
            return 2 * sum(range(length, 0, -step)) / length - 1
        case Columns(stride=step, count=count):
            whole, rest = divmod(length, step)
            return float(whole * min(count, step) + max(0, rest - max(0, step - count)))
        case Combined(terms=terms):  # by head
            return sum(visible_keys(term, length) for term in terms) / len(terms)


SYMMETRIC = Full | Window | Dilated | Strided | BlockWindow
"""Visibilities in which two positions see each other or not, and every one sees itself."""


def block_keys(visibility: Blocks, length: int) -> float:
    """Return the average number of keys that a pattern of blocks shows, its last block counted as a whole one."""
    size, blocks = visibility.size, max(1, -(-length // visibility.size))
    match visibility:
        case BlockWindow(reach=reach):
            shown = sum(min(block + reach, blocks - 1) - max(block - reach, 0) + 1 for block in range(blocks)) / blocks
        case GlobalBlocks():
            shown = min(2.0, blocks) * (2 - min(2, blocks) / blocks)
        case RandomBlocks(count=count):
            shown = count * max(blocks - 2, 0) / blocks
    return min(shown * size, max(1.0, shown) * length)


def flatten_terms(terms: tuple[Visibility, ...]) -> tuple[Visibility, ...]:
    """Return the terms of a conjunction with those of conjunctions inside it."""
    return tuple(inner for term in terms for inner in (flatten_terms(term.terms) if term.kind == "and" else (term,)))


def causal_window_keys(reach: int, length: int) -> float:
    """Average of min(position + 1, reach) over the positions of a sequence."""
    return (reach * (reach + 1) / 2 + (length - reach) * reach) / length
