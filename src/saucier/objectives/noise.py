"""What noise works on, and the steps that damage a text whose whole is to be written (BART and its kin).

The noises that take tokens away are in `spans`. Numpy only. Letters: N tokens of a text, S source, T target.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from saucier.objectives import config as c
from saucier.objectives.base import TokenIds, required

Ints = NDArray[np.int64]
Random = np.random.Generator


@dataclass(frozen=True, slots=True)
class Text:
    """The tokens of a row."""

    tokens: Ints
    """[N]."""
    sentences: Ints
    """[N], the number of the sentence that each token belongs to; all 0 where sentences are not known."""

    def __len__(self) -> int:
        return len(self.tokens)

    def at(self, places: NDArray[np.generic]) -> Text:
        """Return the tokens at some places, or in another order. Shapes: places [M], or [N] of True and False."""
        return Text(self.tokens[places], self.sentences[places])


class Noise(Protocol):
    """What makes a source and a target of a text."""

    def __call__(self, text: Text, random: Random) -> tuple[Ints, Ints]:
        """Make them. Shapes: -> [S], [T]."""

    def sizes(self, length: int) -> tuple[tuple[int, int], ...]:
        """Return the longest (source, target) that a text of `length` tokens may become; they grow with it.

        There are several where one side is long when the other is short.
        """


Step = Callable[[Text, Random], Text]
"""One step of damage."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A text is damaged step by step, and written as it was.

    The source stands between `before` and `after`; the target ends with `after`, and the decoder's start token stands
    before it. Source: Lewis et al. 2020 (BART), §2.2, arXiv:1910.13461.
    """

    steps: tuple[Step, ...]
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    def __call__(self, text: Text, random: Random) -> tuple[Ints, Ints]:
        """Damage one text. Shapes: -> [S], [T]."""
        damaged = reduce(lambda one, step: step(one, random), self.steps, text)
        return joined(self.before, damaged.tokens, self.after), joined(text.tokens, self.after)

    def sizes(self, length: int) -> tuple[tuple[int, int], ...]:
        """No step makes a text longer."""
        return ((len(self.before) + length + len(self.after), length + len(self.after)),)


def joined(*pieces: Ints | tuple[int, ...]) -> Ints:
    """Put ids one behind the other."""
    return np.concatenate([np.asarray(piece, dtype=np.int64) for piece in pieces])


def share(rate: float, length: int) -> int:
    """Return how many tokens a rate is of a text: one at least, where there is any."""
    return min(length, max(1, round(rate * length)))


def drawn(rate: float, length: int, random: Random) -> NDArray[np.bool_]:
    """Draw a share of the places of a text, each set of places equally likely. Shapes: -> [N]."""
    chosen = np.zeros(length, dtype=bool)
    chosen[random.permutation(length)[:share(rate, length)]] = True
    return chosen


def mask_tokens(text: Text, random: Random, *, noise: c.TokenMasking, mask: int, ordinary: Ints) -> Text:
    """Hide tokens, or swap them for random ones."""
    chosen = drawn(noise.rate, len(text), random)
    others = random.choice(ordinary, len(text))
    swapped = chosen & (random.random(len(text)) < noise.random)
    return Text(np.where(swapped, others, np.where(chosen, mask, text.tokens)), text.sentences)


def delete_tokens(text: Text, random: Random, *, noise: c.TokenDeletion) -> Text:
    """Leave tokens out."""
    return text.at(~drawn(noise.rate, len(text), random))


def fill_spans(text: Text, random: Random, *, noise: c.TextInfilling, mask: int) -> Text:
    """Put one mask in the place of each span; spans do not overlap, and may stand side by side.

    A mask belongs to the sentence of the token before it. The published code lays spans on words and over each other.
    """
    if not len(text):
        return text
    lengths = span_lengths(share(noise.rate, len(text)), noise.mean_span, random)
    gaps = apart(len(text) - int(lengths.sum()), len(lengths) + 1, random)
    kept = np.repeat(np.arange(2 * len(lengths) + 1) % 2 == 0, interleaved(gaps, lengths))
    rest, places = text.at(kept), gaps[:-1].cumsum()
    sentences = rest.sentences if len(rest) else text.sentences[:1]
    return Text(np.insert(rest.tokens, places, mask),
                np.insert(rest.sentences, places, sentences[np.maximum(places - 1, 0)]))


def span_lengths(budget: int, mean: float, random: Random) -> Ints:
    """Draw lengths of spans until they cover `budget` tokens; the last one is cut to that.

    There are never more spans than tokens in them, so that no text grows. Source: Lewis et al. 2020, §2.2.
    """
    lengths = random.poisson(mean, budget)
    ends = np.minimum(lengths.cumsum(), budget)
    lengths = np.diff(ends, prepend=0)[:1 + int(np.searchsorted(ends, budget))]
    surplus = len(lengths) - int(lengths.sum())
    return lengths if surplus <= 0 else np.delete(lengths, (lengths == 0).nonzero()[0][:surplus])


def apart(total: int, count: int, random: Random) -> Ints:
    """Cut `total` into `count` lengths of 0 or more, all cuts equally likely. Shapes: -> [count]."""
    bars = np.sort(random.permutation(total + count - 1)[:count - 1])
    found: Ints = np.diff(np.concatenate([[-1], bars, [total + count - 1]])) - 1
    return found


def interleaved(outer: Ints, inner: Ints) -> Ints:
    """Put one list between the members of another. Shapes: outer [M + 1], inner [M] -> [2M + 1]."""
    found = np.empty(len(outer) + len(inner), dtype=np.int64)
    found[::2], found[1::2] = outer, inner
    return found


def permute_sentences(text: Text, random: Random, *, noise: c.SentencePermutation) -> Text:
    """Let some sentences change places; tokens of one sentence stay together."""
    numbers, sentences = np.unique(text.sentences, return_inverse=True)
    chosen = random.permutation(len(numbers))[:int(np.ceil(noise.share * len(numbers)))]
    rank = np.arange(len(numbers))
    rank[np.sort(chosen)] = chosen
    return text.at(np.argsort(rank[sentences], kind="stable"))


def rotate(text: Text, random: Random) -> Text:
    """Begin with a random token."""
    return text.at(np.roll(np.arange(len(text)), -int(random.integers(max(1, len(text))))))


def shuffle(text: Text, random: Random) -> Text:
    """Put the tokens into a random order."""
    return text.at(random.permutation(len(text)))


def step(noise: c.TextNoise, ids: TokenIds) -> Step:
    """Return what a step of damage does. Raises `InputError` where the tokenizer lacks a token that it needs."""
    match noise:
        case c.TokenMasking():
            return partial(mask_tokens, noise=noise, mask=required(ids.mask, "mask", noise.kind),
                           ordinary=ids.ordinary())
        case c.TokenDeletion():
            return partial(delete_tokens, noise=noise)
        case c.TextInfilling():
            return partial(fill_spans, noise=noise, mask=required(ids.mask, "mask", noise.kind))
        case c.SentencePermutation():
            return partial(permute_sentences, noise=noise)
        case c.DocumentRotation():
            return rotate
        case c.TokenShuffling():
            return shuffle
