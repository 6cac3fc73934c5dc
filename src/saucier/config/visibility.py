"""Which key a query may see: an immutable algebra, `Causal() & Window(512)`, made into a mask as late as possible.

Padding and packed documents are not here: they belong to a batch, and every attention obeys them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config


class Algebra(Config):
    """Gives every visibility the operators `&` (both must allow) and `|` (one must allow)."""

    def __and__(self, other: Visibility) -> And:
        """Allow what both allow."""
        return And(terms=(self, other))

    def __or__(self, other: Visibility) -> Or:
        """Allow what at least one allows."""
        return Or(terms=(self, other))


class Full(Algebra):
    """Every query sees every key."""

    kind: Literal["full"] = "full"


class Causal(Algebra):
    """A query sees itself and what came before. Source: Vaswani et al. 2017, §3.2.3."""

    kind: Literal["causal"] = "causal"


class Prefix(Algebra):
    """Causal, but the first `prefix_length` tokens of a row (given with the batch) are seen by all.

    Source: Raffel et al. 2020, §3.2.1, arXiv:1910.10683.
    """

    kind: Literal["prefix"] = "prefix"


class Window(Algebra):
    """A query sees keys less than `size` positions away, on both sides.

    `Causal() & Window(4096)` is Mistral's window.
    """

    kind: Literal["window"] = "window"
    size: int = Field(gt=0)
    """Distances 0 … size-1 are visible. Longformer's `attention_window=512` is `size=257`."""

    def __init__(self, size: int, **rest: str) -> None:
        """Take the size as the only positional argument, as the algebra reads best."""
        super().__init__(**{"size": size, **rest})


class And(Algebra):
    """Visible when every term allows it."""

    kind: Literal["and"] = "and"
    terms: tuple[Visibility, ...] = Field(min_length=1)


class Or(Algebra):
    """Visible when at least one term allows it."""

    kind: Literal["or"] = "or"
    terms: tuple[Visibility, ...] = Field(min_length=1)


Visibility = Annotated[Full | Causal | Prefix | Window | And | Or, Field(discriminator="kind")]

And.model_rebuild()
Or.model_rebuild()


def visible_keys(visibility: Visibility, length: int) -> float:
    """Return how many keys a query sees on average in a sequence of `length` tokens (for counting FLOPs).

    A prefix is counted as causal, since its length is known only with the batch; a conjunction by its narrowest
    term, with a causal window counted exactly.
    """
    match visibility:
        case Full():
            return float(length)
        case Causal() | Prefix():
            return (length + 1) / 2
        case Window(size=size):
            reach = min(size, length)
            return 2 * causal_window_keys(reach, length) - 1
        case And(terms=terms):
            terms = flat(terms)
            windows = [term.size for term in terms if isinstance(term, Window)]
            if windows and any(isinstance(term, Causal) for term in terms):
                return causal_window_keys(min(*windows, length), length)
            return min(visible_keys(term, length) for term in terms)
        case Or(terms=terms):
            return min(float(length), sum(visible_keys(term, length) for term in terms))


def flat(terms: tuple[Visibility, ...]) -> tuple[Visibility, ...]:
    """Return the terms of a conjunction with those of conjunctions inside it."""
    return tuple(inner for term in terms for inner in (flat(term.terms) if isinstance(term, And) else (term,)))


def causal_window_keys(reach: int, length: int) -> float:
    """Average of min(position + 1, reach) over the positions of a sequence."""
    return (reach * (reach + 1) / 2 + (length - reach) * reach) / length


def is_causal(visibility: Visibility) -> bool:
    """Say whether no query can see a later key, whatever the batch."""
    match visibility:
        case Causal():
            return True
        case And(terms=terms):
            return any(is_causal(term) for term in terms)
        case Or(terms=terms):
            return all(is_causal(term) for term in terms)
        case _:
            return False
