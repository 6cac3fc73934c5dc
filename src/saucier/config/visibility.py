"""Which key a query may see: an immutable algebra, `Causal() & Window(512)`, made into a mask as late as possible.

Padding and packed documents are not here: they belong to a batch, and every attention obeys them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config


class Algebra(Config):
    """Gives every visibility the operators `&` (both must allow) and `|` (one must allow)."""

    def __and__(self, other: Visibility) -> Combined:
        """Allow what both allow."""

        return Combined(kind="and", terms=(self, other))

    def __or__(self, other: Visibility) -> Combined:
        """Allow what at least one allows."""

        return Combined(kind="or", terms=(self, other))

    def __add__(self, other: Visibility) -> Combined:
        """Allow what at least one allows, and count a key as often as they allow it together."""

        return Combined(kind="plus", terms=(self, other))


class Dilated(Algebra):
    """A window with gaps: distances 0, `dilation`, … (`size` - 1) · `dilation`, on both sides.

    `Combined(kind="by_head", terms=(Window(257), Dilated(size=257, dilation=2)))` dilates the second half of the heads.
    Source: Beltagy et al. 2020, §3.1, arXiv:2004.05150.
    """

    kind: Literal["dilated"] = "dilated"
    size: int = Field(gt=0)
    """Keys that are visible on each side, the query's own counted on both."""
    dilation: int = Field(gt=0)
    """Positions from one visible key to the next."""


class Strided(Algebra):
    """A query sees the keys that are a multiple of `stride` positions away.

    `Causal() & Strided(stride=l)` is the second strided pattern, `Causal() & Window(l + 1)` the first one.
    Source: Child et al. 2019, §4.3, arXiv:1904.10509.
    """

    kind: Literal["strided"] = "strided"
    stride: int = Field(gt=0)
    """Positions from one visible key to the next; near the square root of the length, cost grows as n·√n."""


class Columns(Algebra):
    """All see the last `count` positions of every block of `stride`, counted from the row's beginning.

    `Causal() & Columns(stride=l, count=c)` is the second fixed pattern, `Causal() & BlockWindow(size=l, reach=0)` the
    first one. A query before the first of them sees nothing, and gets zeros. Source: Child et al. 2019, §4.3.
    """

    kind: Literal["columns"] = "columns"
    stride: int = Field(gt=0)
    """Positions of a block."""
    count: int = Field(default=1, gt=0)
    """Positions at the end of each block that are seen."""


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


class AtMostFirst(Config):
    """The first token of a row, or none.

    - no_tokens: no token;
    - first_token: the first token of every row, whose vector a classifier reads. Source: Beltagy et al. 2020, §3.1.
    """

    kind: Literal["no_tokens", "first_token"]


class FirstTokens(Config):
    """The first tokens of every row, or of every document in it: ETC's global input.

    Source: Ainslie et al. 2020, §3.1, arXiv:2004.08483.
    """

    kind: Literal["first_tokens"] = "first_tokens"
    count: int = Field(gt=0)
    """How many."""


SEPARATORS = 3
"""How many separators a row of question and text has: `<s> question </s></s> text </s>`."""


class AtSeparator(Config):
    """The tokens on one side of a separator, in rows that have three: `<s> question </s></s> text </s>`.

    - before_separator: those before the first: a question before its text. Source: Beltagy et al. 2020, §3.1 and code
      release;
    - after_separator: those behind the second.
    """

    kind: Literal["before_separator", "after_separator"]
    token: int = Field(default=2, ge=0)
    """Id of the separator."""


GlobalTokens = Annotated[AtMostFirst | FirstTokens | AtSeparator, Field(discriminator="kind")]


class Global(Algebra):
    """The tokens that the batch names (`global_attention_mask`) see all tokens and are seen by all.

    `Window(257) | Global()` is Longformer. Source: Beltagy et al. 2020, §3.1, arXiv:2004.05150.
    """

    kind: Literal["global"] = "global"
    otherwise: GlobalTokens = AtMostFirst(kind="no_tokens")
    """The tokens that are global where the batch names none."""


class BlockWindow(Algebra):
    """Positions in blocks of `size`: a query sees its own block and `reach` blocks on each side.

    Source: Zaheer et al. 2020, §2 and appendix D, arXiv:2007.14062.
    """

    kind: Literal["block_window"] = "block_window"
    size: int = Field(gt=0)
    """Positions in a block; the last block may be shorter."""
    reach: int = Field(default=1, ge=0)
    """Blocks that are visible on each side."""


class GlobalBlocks(Algebra):
    """The first and the last block of `size` positions see all, and all see them. Source: Zaheer et al. 2020, §2."""

    kind: Literal["global_blocks"] = "global_blocks"
    size: int = Field(gt=0)
    """Positions in a block."""


class RandomBlocks(Algebra):
    """Every block between the first and the last sees `count` blocks that are drawn, for each head and layer anew.

    They are drawn in training, always the same for a layer; outside training the first block stands for each of them,
    as in the published code. Source: Zaheer et al. 2020, §2 and appendix D.
    """

    kind: Literal["random_blocks"] = "random_blocks"
    size: int = Field(gt=0)
    """Positions in a block."""
    count: int = Field(default=3, gt=0)
    """Blocks that are drawn for each block."""
    length: int = Field(default=4096, gt=0)
    """The longest input; the published code draws for it also where the input has 1024 or 3072 positions."""


class Beyond(Algebra):
    """Inputs of more than `length` positions are seen as `inner` says; in shorter ones every query sees every key."""

    kind: Literal["beyond"] = "beyond"
    length: int = Field(ge=0)
    """Number of keys up to which all are visible."""
    inner: Visibility
    """What is visible in longer inputs."""


class Permutation(Algebra):
    """A query sees the keys that the batch does not hide from it (`perm_mask`), all of the memory, and itself.

    Rows of a second stream, which ask about a place, see what that place may, and not what stands there if it is
    hidden; one that sees nothing at all gets zeros, where the published code gives it the mean of all tokens.
    Source: Yang et al. 2019 (XLNet), §2.3, eq 5, arXiv:1906.08237.
    """

    kind: Literal["permutation"] = "permutation"


class SameLength(Algebra):
    """A query sees as many keys before itself as the memory is long. Source: Dai et al. 2019, code release."""

    kind: Literal["same_length"] = "same_length"


class Combined(Algebra):
    """Several visibilities together.

    - and (`&`): visible when every term allows it;
    - or (`|`): visible when at least one term allows it;
    - plus (`+`): likewise, and a key that several allow counts as often in the softmax;
    - by_head: heads that see differently; the first term is for the first heads, each for as many as the others. There
      are as many terms as heads, or a divisor of their number.
    """

    kind: Literal["and", "or", "plus", "by_head"]
    terms: tuple[Visibility, ...] = Field(min_length=1)

    def of_head(self, head: int, heads: int) -> Visibility:
        """Return what one of so many heads sees, where they see differently."""
        return self.terms[head * len(self.terms) // heads]


Blocks = BlockWindow | GlobalBlocks | RandomBlocks
Visibility = Annotated[
    Full | Causal | Prefix | Window | Global | Blocks | Permutation | SameLength | Dilated | Strided | Columns
    | Combined | Beyond,
    Field(discriminator="kind"),
]

DecoderVisibility = Annotated[Causal | Prefix, Field(discriminator="kind")]
"""What a decoder that writes from left to right may see: the past, or the whole of a prefix too."""

Combined.model_rebuild()
Beyond.model_rebuild()


def is_causal(visibility: Visibility) -> bool:
    """Say whether no query can see a later key, whatever the batch."""
    match visibility:
        case Causal():
            return True
        case Combined(kind="and", terms=terms):
            return any(is_causal(term) for term in terms)
        case Combined(terms=terms):
            return all(is_causal(term) for term in terms)
        case _:
            return False


def build_bigbird_visibility(size: int, drawn: int, length: int) -> Visibility:
    """Return what a BigBird of at most `length` positions sees; all, as long as the blocks could not leave gaps.

    Source: Zaheer et al. 2020, §2 and appendix D, arXiv:2007.14062; the limit is that of its code release.
    """
    pattern: Visibility = BlockWindow(size=size) | GlobalBlocks(size=size)
    if drawn:
        pattern = pattern + RandomBlocks(size=size, count=drawn, length=length)
    return Beyond(length=(5 + 2 * drawn) * size, inner=pattern)


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
