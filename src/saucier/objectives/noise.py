"""Noise for denoising: steps that damage a text (BART), and noises that move tokens from the source to the target (T5,
UL2). Numpy only. Letters: N tokens of a text, S source, T target.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from saucier.objectives import config as c
from saucier.objectives.base import TokenIds, require_token

Ints = NDArray[np.int64]
Random = np.random.Generator


@dataclass(frozen=True, slots=True)
class NoisyText:
    """The tokens of a row."""

    tokens: Ints
    """[N]."""
    sentences: Ints
    """[N], the number of the sentence that each token belongs to; all 0 where sentences are not known."""

    def __len__(self) -> int:
        return len(self.tokens)

    def at(self, places: NDArray[np.generic]) -> NoisyText:
        """Return the tokens at some places, or in another order. Shapes: places [M], or [N] of True and False."""
        return NoisyText(self.tokens[places], self.sentences[places])


class Noise(Protocol):
    """What makes a source and a target of a text."""

    def __call__(self, text: NoisyText, random: Random) -> tuple[Ints, Ints]:
        """Make them. Shapes: -> [S], [T]."""

    def sizes(self, length: int) -> tuple[tuple[int, int], ...]:
        """Return the longest (source, target) that a text of `length` tokens may become; they grow with it.

        There are several where one side is long when the other is short.
        """


NoiseStep = Callable[[NoisyText, Random], NoisyText]
"""One step of damage."""


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """A text is damaged step by step, and written as it was.

    The source is between `before` and `after`; the target ends with `after`, and the decoder's start token comes
    before it. Source: Lewis et al. 2020 (BART), §2.2, arXiv:1910.13461.
    """

    steps: tuple[NoiseStep, ...]
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    def __call__(self, text: NoisyText, random: Random) -> tuple[Ints, Ints]:
        """Damage one text. Shapes: -> [S], [T]."""
        damaged = reduce(lambda one, step: step(one, random), self.steps, text)
        return join_ids(self.before, damaged.tokens, self.after), join_ids(text.tokens, self.after)

    def sizes(self, length: int) -> tuple[tuple[int, int], ...]:
        """No step makes a text longer."""
        return ((len(self.before) + length + len(self.after), length + len(self.after)),)


def join_ids(*pieces: Ints | tuple[int, ...]) -> Ints:
    """Put ids one after the other."""
    return np.concatenate([np.asarray(piece, dtype=np.int64) for piece in pieces])


def count_share(rate: float, length: int) -> int:
    """Return how many tokens a rate is of a text: one at least, where there is any."""
    return min(length, max(1, round(rate * length)))


def draw_places(rate: float, length: int, random: Random) -> NDArray[np.bool_]:
    """Draw a share of the places of a text, each set of places equally likely. Shapes: -> [N]."""
    chosen = np.zeros(length, dtype=bool)
    chosen[random.permutation(length)[:count_share(rate, length)]] = True
    return chosen


def mask_tokens(text: NoisyText, random: Random, *, noise: c.TokenMasking, mask: int, ordinary: Ints) -> NoisyText:
    """Hide tokens, or swap them for random ones."""
    chosen = draw_places(noise.rate, len(text), random)
    others = random.choice(ordinary, len(text))
    swapped = chosen & (random.random(len(text)) < noise.random)
    return NoisyText(np.where(swapped, others, np.where(chosen, mask, text.tokens)), text.sentences)


def delete_tokens(text: NoisyText, random: Random, *, noise: c.TokenDeletion) -> NoisyText:
    """Leave tokens out."""
    return text.at(~draw_places(noise.rate, len(text), random))


def fill_spans(text: NoisyText, random: Random, *, noise: c.TextInfilling, mask: int) -> NoisyText:
    """Put one mask in the place of each span; spans do not overlap, and may be side by side.

    A mask belongs to the sentence of the token before it. The published code lays spans on words and over each other.
    """
    if not len(text):
        return text
    lengths = draw_span_lengths(count_share(noise.rate, len(text)), noise.mean_span, random)
    gaps = draw_gaps(len(text) - int(lengths.sum()), len(lengths) + 1, random)
    kept = np.repeat(np.arange(2 * len(lengths) + 1) % 2 == 0, interleave(gaps, lengths))
    rest, places = text.at(kept), gaps[:-1].cumsum()
    sentences = rest.sentences if len(rest) else text.sentences[:1]
    return NoisyText(np.insert(rest.tokens, places, mask),
                     np.insert(rest.sentences, places, sentences[np.maximum(places - 1, 0)]))


def draw_span_lengths(budget: int, mean: float, random: Random) -> Ints:
    """Draw lengths of spans until they cover `budget` tokens; the last one is cut to that.

    There are never more spans than tokens in them, so that no text grows. Source: Lewis et al. 2020, §2.2.
    """
    lengths = random.poisson(mean, budget)
    ends = np.minimum(lengths.cumsum(), budget)
    lengths = np.diff(ends, prepend=0)[:1 + int(np.searchsorted(ends, budget))]
    surplus = len(lengths) - int(lengths.sum())
    return lengths if surplus <= 0 else np.delete(lengths, (lengths == 0).nonzero()[0][:surplus])


def draw_gaps(total: int, count: int, random: Random) -> Ints:
    """Cut `total` into `count` lengths of 0 or more, all cuts equally likely. Shapes: -> [count]."""
    bars = np.sort(random.permutation(total + count - 1)[:count - 1])
    found: Ints = np.diff(np.concatenate([[-1], bars, [total + count - 1]])) - 1
    return found


def interleave(outer: Ints, inner: Ints) -> Ints:
    """Put one list between the members of another. Shapes: outer [M + 1], inner [M] -> [2M + 1]."""
    found = np.empty(len(outer) + len(inner), dtype=np.int64)
    found[::2], found[1::2] = outer, inner
    return found


def permute_sentences(text: NoisyText, random: Random, *, noise: c.SentencePermutation) -> NoisyText:
    """Let some sentences change places; tokens of one sentence stay together."""
    numbers, sentences = np.unique(text.sentences, return_inverse=True)
    chosen = random.permutation(len(numbers))[:int(np.ceil(noise.share * len(numbers)))]
    rank = np.arange(len(numbers))
    rank[np.sort(chosen)] = chosen
    return text.at(np.argsort(rank[sentences], kind="stable"))


def rotate_text(text: NoisyText, random: Random) -> NoisyText:
    """Begin with a random token."""
    return text.at(np.roll(np.arange(len(text)), -int(random.integers(max(1, len(text))))))


def shuffle_tokens(text: NoisyText, random: Random) -> NoisyText:
    """Put the tokens into a random order."""
    return text.at(random.permutation(len(text)))


def build_noise_step(noise: c.TextNoise, ids: TokenIds) -> NoiseStep:
    """Return what a step of damage does. Raises `InputError` where the tokenizer lacks a token that it needs."""
    match noise:
        case c.TokenMasking():
            return partial(mask_tokens, noise=noise, mask=require_token(ids.mask, "mask", noise.kind),
                           ordinary=ids.ordinary())
        case c.TokenDeletion():
            return partial(delete_tokens, noise=noise)
        case c.TextInfilling():
            return partial(fill_spans, noise=noise, mask=require_token(ids.mask, "mask", noise.kind))
        case c.SentencePermutation():
            return partial(permute_sentences, noise=noise)
        case c.DocumentRotation():
            return rotate_text
        case c.TokenShuffling():
            return shuffle_tokens


@dataclass(frozen=True, slots=True)
class DroppedSpans:
    """Replaces spans by sentinels; the target lists each sentinel and its span.

    The source ends with eos, and so does the target, as in the paper's code; its closing sentinel is there too.
    Source: Raffel et al. 2020, §3.1.4 and fig. 2, arXiv:1910.10683.
    """

    config: c.SpanCorruption
    sentinels: Ints
    end: tuple[int, ...] = ()

    def counts(self, length: int) -> tuple[int, int]:
        """Return how many tokens of a text are dropped, and in how many spans; none where it is too short."""
        count = min(count_share(self.config.rate, length), max(0, length - 1))
        spans = min(max(1, round(count / self.config.mean_span)), count, length - count, len(self.sentinels) - 1)
        return (count, spans) if spans else (0, 0)

    def sizes(self, length: int) -> tuple[tuple[int, int], ...]:
        """The kept tokens, the spans' sentinels and eos; the dropped ones, a sentinel more and eos."""
        count, spans = self.counts(length)
        return ((length - count + spans + len(self.end), count + spans + 1 + len(self.end)),)

    def __call__(self, text: NoisyText, random: Random) -> tuple[Ints, Ints]:
        """Split one text. Shapes: -> [S], [T]."""
        count, spans = self.counts(len(text))
        dropped = np.zeros(len(text), dtype=bool)
        if spans:
            kept = draw_positive_lengths(len(text) - count, spans, random)
            lost = draw_positive_lengths(count, spans, random)
            dropped = np.repeat(np.arange(2 * spans) % 2 == 1, interleave(kept, lost))
        return replace_with_sentinels(text.tokens, dropped, self.sentinels, self.end)


@dataclass(frozen=True, slots=True)
class ReplacedSpans:
    """Drops tokens one by one; neighbours share a sentinel. Source: Raffel et al. 2020, §3.3.2.

    As with masks, a row's number of dropped tokens is fixed; in the paper's code each is dropped by chance.
    """

    config: c.ReplaceSpans
    sentinels: Ints
    end: tuple[int, ...] = ()

    def sizes(self, length: int) -> tuple[tuple[int, int], ...]:
        """The longest are those where no dropped tokens are neighbours."""
        count = count_share(self.config.rate, length)
        return ((length + len(self.end), 2 * count + 1 + len(self.end)),)

    def __call__(self, text: NoisyText, random: Random) -> tuple[Ints, Ints]:
        """Split one text. Shapes: -> [S], [T]."""
        return replace_with_sentinels(text.tokens, draw_places(self.config.rate, len(text), random), self.sentinels,
                                      self.end)


@dataclass(frozen=True, slots=True)
class DroppedTokens:
    """Drops tokens one by one; the target lists them. Source: Raffel et al. 2020, §3.3.2.

    As with masks, a row's number of dropped tokens is fixed; in the paper's code each is dropped by chance.
    """

    config: c.DropTokens
    end: tuple[int, ...] = ()

    def sizes(self, length: int) -> tuple[tuple[int, int], ...]:
        """Always the same."""
        count = count_share(self.config.rate, length)
        return ((length - count + len(self.end), count + len(self.end)),)

    def __call__(self, text: NoisyText, random: Random) -> tuple[Ints, Ints]:
        """Split one text. Shapes: -> [S], [T]."""
        dropped = draw_places(self.config.rate, len(text), random)
        return join_ids(text.tokens[~dropped], self.end), join_ids(text.tokens[dropped], self.end)


@dataclass(frozen=True, slots=True)
class PrefixContinuation:
    """Cuts a text in two; each side has one token at least. Source: Raffel et al. 2020, §3.2.3 and §3.3.1."""

    config: c.PrefixLanguageModel
    end: tuple[int, ...] = ()

    def most(self, length: int) -> int:
        """Return the longest target of a text."""
        return max(1, min(round(2 * self.config.target * length), length - 1))

    def sizes(self, length: int) -> tuple[tuple[int, int], ...]:
        """One side is long where the other is short."""
        return tuple((length - target + len(self.end), target + len(self.end)) for target in (1, self.most(length)))

    def __call__(self, text: NoisyText, random: Random) -> tuple[Ints, Ints]:
        """Cut one text. Shapes: -> [S], [T]."""
        cut = len(text) - int(random.integers(1, self.most(len(text)), endpoint=True))
        return join_ids(text.tokens[:max(0, cut)], self.end), join_ids(text.tokens[max(0, cut):], self.end)


@dataclass(frozen=True, slots=True)
class DrawnNoise:
    """Draws one of several noises for each text, and says which by the first token of the source, where it has one.

    Source: Tay et al. 2023 (UL2), §3.1.2 and §3.1.3, arXiv:2205.05131.
    """

    shares: NDArray[np.float64]
    """[M], how many of all texts the noises up to each are drawn for, growing to 1."""
    modes: tuple[tuple[int, ...], ...]
    noises: tuple[Noise, ...]

    def sizes(self, length: int) -> tuple[tuple[int, int], ...]:
        """Those of every noise."""
        return tuple((len(mode) + source, target) for mode, noise in zip(self.modes, self.noises, strict=True)
                     for source, target in noise.sizes(length))

    def __call__(self, text: NoisyText, random: Random) -> tuple[Ints, Ints]:
        """Draw a noise and make it. Shapes: -> [S], [T]."""
        number = int(np.searchsorted(self.shares, random.random(), side="right"))
        source, target = self.noises[number](text, random)
        return join_ids(self.modes[number], source), target


def replace_with_sentinels(tokens: Ints, dropped: NDArray[np.bool_], sentinels: Ints,
                           end: tuple[int, ...]) -> tuple[Ints, Ints]:
    """Name each run of dropped tokens by a sentinel, in order. Shapes: tokens, dropped [N] -> [S], [T]."""
    starts = dropped & ~np.concatenate([[False], dropped[:-1]])[:len(dropped)]
    count = int(starts.sum())
    source = tokens.copy()
    source[starts] = sentinels[:count]
    lost = tokens[dropped]
    target = np.insert(lost, np.append(starts[dropped].nonzero()[0], len(lost)), sentinels[:count + 1])
    return join_ids(source[~dropped | starts], end), join_ids(target, end)


def draw_positive_lengths(total: int, count: int, random: Random) -> Ints:
    """Cut `total` into `count` positive lengths, all cuts equally likely."""
    cuts = np.sort(random.choice(total - 1, count - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [total]])).astype(np.int64)
