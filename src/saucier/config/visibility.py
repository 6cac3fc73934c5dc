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


class NoTokens(Config):
    """No token."""

    kind: Literal["no_tokens"] = "no_tokens"


class FirstToken(Config):
    """The first token of every row, whose vector a classifier reads. Source: Beltagy et al. 2020, §3.1."""

    kind: Literal["first_token"] = "first_token"


class BeforeSeparator(Config):
    """The tokens before the first of a row's three separators: a question before its text.

    Source: Beltagy et al. 2020, §3.1 and code release; rows look like `<s> question </s></s> text </s>`.
    """

    kind: Literal["before_separator"] = "before_separator"
    token: int = Field(default=2, ge=0)
    """Id of the separator."""


class AfterSeparator(Config):
    """The tokens behind the second of a row's three separators, of rows as in `BeforeSeparator`."""

    kind: Literal["after_separator"] = "after_separator"
    token: int = Field(default=2, ge=0)
    """Id of the separator."""


GlobalTokens = Annotated[NoTokens | FirstToken | BeforeSeparator | AfterSeparator, Field(discriminator="kind")]


class Global(Algebra):
    """The tokens that the batch names (`global_attention_mask`) see all tokens and are seen by all.

    `Window(257) | Global()` is Longformer. Source: Beltagy et al. 2020, §3.1, arXiv:2004.05150.
    """

    kind: Literal["global"] = "global"
    otherwise: GlobalTokens = NoTokens()
    """The tokens that are global where the batch names none."""


class And(Algebra):
    """Visible when every term allows it."""

    kind: Literal["and"] = "and"
    terms: tuple[Visibility, ...] = Field(min_length=1)


class Or(Algebra):
    """Visible when at least one term allows it."""

    kind: Literal["or"] = "or"
    terms: tuple[Visibility, ...] = Field(min_length=1)


Visibility = Annotated[Full | Causal | Prefix | Window | Global | And | Or, Field(discriminator="kind")]

And.model_rebuild()
Or.model_rebuild()


def visible_keys(visibility: Visibility, length: int) -> float:
    """Return how many keys a query sees on average in a sequence of `length` tokens (for counting FLOPs).

    A prefix is counted as causal, since its length is known only with the batch, and global tokens, few and known
    as late, as one; a conjunction by its narrowest term, with a causal window counted exactly.
    """
    match visibility:
        case Full():
            return float(length)
        case Causal() | Prefix():
            return (length + 1) / 2
        case Global():
            return 1.0
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


def global_terms(visibility: Visibility) -> tuple[Global, ...]:
    """Return the terms of a visibility that speak of global tokens."""
    match visibility:
        case Global():
            return (visibility,)
        case And(terms=terms) | Or(terms=terms):
            return tuple(found for term in terms for found in global_terms(term))
        case _:
            return ()


def sliding(visibility: Visibility) -> int | None:
    """Return how far a sliding window with global tokens reaches to each side; None for another visibility."""
    match visibility:
        case Or(terms=(Window(size=size), Global())):
            return size - 1
        case _:
            return None
