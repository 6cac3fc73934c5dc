"""Denoising: a text becomes a source and a target, by any `Noise`; here, those that take tokens away.

Letters: B batch, L length, N tokens of a text, S source, T target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError
from saucier.objectives import config as c
from saucier.objectives.base import Batch, Given, TokenIds
from saucier.objectives.config.noise import sentinels_needed
from saucier.objectives.forms import PairForm, pair_form
from saucier.objectives.noise import Ints, Noise, Random, Restored, Text, drawn, interleaved, joined, share, step
from saucier.text.rows import PairRows, Rows, generator

SPANS = 2
"""Stream of random numbers."""


@dataclass(frozen=True, slots=True)
class Denoising:
    """Each row becomes a source and a target. A row is one text here, also where it holds several documents."""

    noise: Noise
    form: PairForm
    ids: TokenIds
    languages: tuple[int, ...] = ()
    """The token of each language, which both sides end with and the decoder begins with; none: there is no such."""
    overlap: ClassVar[int] = 0

    def row_length(self, length: int) -> int:
        """The longest row of which the model sees `length` tokens at most."""
        low, high = 2, 2 * length
        while low < high:
            middle = (low + high + 1) // 2
            more = bool(self.languages)
            fits = all(self.form.length(source + more, target + more) <= length
                       for source, target in self.noise.sizes(middle))
            low, high = (middle, high) if fits else (low, middle - 1)
        return low

    def __call__(self, rows: Rows, *, seed: int, step: int) -> Batch:
        """Make noise. Shapes: rows [B, L] -> a batch of source and target."""
        pairs = [self.noise(text, generator(seed, SPANS, step, int(row)))
                 for text, row in zip(self.texts(rows), rows.row, strict=True)]
        start = None if not self.languages or rows.languages is None else np.array(self.languages)[rows.languages[:, 0]]
        if start is not None:
            pairs = [(joined(source, (token,)), joined(target, (token,)))
                     for (source, target), token in zip(pairs, start.tolist(), strict=True)]
        source, source_lengths = padded([source for source, _ in pairs], self.ids.filler)
        target, target_lengths = padded([target for _, target in pairs], self.ids.filler)
        return self.form(PairRows(source, target, source_lengths, target_lengths, rows.row, rows.item, start))

    def texts(self, rows: Rows) -> list[Text]:
        """Return the real tokens of each row, without an end token that stands there already."""
        starts = rows.sentence_starts
        sentences = np.zeros_like(rows.tokens) if starts is None else starts.cumsum(axis=1)
        found = [Text(*pair) for pair in zip(rows.tokens, sentences, strict=True)]
        texts = [text.at(real) for text, real in zip(found, rows.mask, strict=True)]
        return [text.at(np.arange(len(text) - 1)) if len(text) and text.tokens[-1] == self.ids.eos else text
                for text in texts]


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
        count = min(share(self.config.rate, length), max(0, length - 1))
        spans = min(max(1, round(count / self.config.mean_span)), count, length - count, len(self.sentinels) - 1)
        return (count, spans) if spans else (0, 0)

    def sizes(self, length: int) -> tuple[tuple[int, int], ...]:
        """The kept tokens, the spans' sentinels and eos; the dropped ones, a sentinel more and eos."""
        count, spans = self.counts(length)
        return ((length - count + spans + len(self.end), count + spans + 1 + len(self.end)),)

    def __call__(self, text: Text, random: Random) -> tuple[Ints, Ints]:
        """Split one text. Shapes: -> [S], [T]."""
        count, spans = self.counts(len(text))
        dropped = np.zeros(len(text), dtype=bool)
        if spans:
            kept, lost = pieces(len(text) - count, spans, random), pieces(count, spans, random)
            dropped = np.repeat(np.arange(2 * spans) % 2 == 1, interleaved(kept, lost))
        return named(text.tokens, dropped, self.sentinels, self.end)


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
        count = share(self.config.rate, length)
        return ((length + len(self.end), 2 * count + 1 + len(self.end)),)

    def __call__(self, text: Text, random: Random) -> tuple[Ints, Ints]:
        """Split one text. Shapes: -> [S], [T]."""
        return named(text.tokens, drawn(self.config.rate, len(text), random), self.sentinels, self.end)


@dataclass(frozen=True, slots=True)
class DroppedTokens:
    """Drops tokens one by one; the target lists them. Source: Raffel et al. 2020, §3.3.2.

    As with masks, a row's number of dropped tokens is fixed; in the paper's code each is dropped by chance.
    """

    config: c.DropTokens
    end: tuple[int, ...] = ()

    def sizes(self, length: int) -> tuple[tuple[int, int], ...]:
        """Always the same."""
        count = share(self.config.rate, length)
        return ((length - count + len(self.end), count + len(self.end)),)

    def __call__(self, text: Text, random: Random) -> tuple[Ints, Ints]:
        """Split one text. Shapes: -> [S], [T]."""
        dropped = drawn(self.config.rate, len(text), random)
        return joined(text.tokens[~dropped], self.end), joined(text.tokens[dropped], self.end)


@dataclass(frozen=True, slots=True)
class Continued:
    """Cuts a text in two; each side has one token at least. Source: Raffel et al. 2020, §3.2.3 and §3.3.1."""

    config: c.PrefixLanguageModel
    end: tuple[int, ...] = ()

    def most(self, length: int) -> int:
        """Return the longest target of a text."""
        return max(1, min(round(2 * self.config.target * length), length - 1))

    def sizes(self, length: int) -> tuple[tuple[int, int], ...]:
        """One side is long where the other is short."""
        return tuple((length - target + len(self.end), target + len(self.end)) for target in (1, self.most(length)))

    def __call__(self, text: Text, random: Random) -> tuple[Ints, Ints]:
        """Cut one text. Shapes: -> [S], [T]."""
        cut = len(text) - int(random.integers(1, self.most(len(text)), endpoint=True))
        return joined(text.tokens[:max(0, cut)], self.end), joined(text.tokens[max(0, cut):], self.end)


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

    def __call__(self, text: Text, random: Random) -> tuple[Ints, Ints]:
        """Draw a noise and make it. Shapes: -> [S], [T]."""
        number = int(np.searchsorted(self.shares, random.random(), side="right"))
        source, target = self.noises[number](text, random)
        return joined(self.modes[number], source), target


def named(tokens: Ints, dropped: NDArray[np.bool_], sentinels: Ints, end: tuple[int, ...]) -> tuple[Ints, Ints]:
    """Name each run of dropped tokens by a sentinel, in order. Shapes: tokens, dropped [N] -> [S], [T]."""
    starts = dropped & ~np.concatenate([[False], dropped[:-1]])[:len(dropped)]
    count = int(starts.sum())
    source = tokens.copy()
    source[starts] = sentinels[:count]
    lost = tokens[dropped]
    target = np.insert(lost, np.append(starts[dropped].nonzero()[0], len(lost)), sentinels[:count + 1])
    return joined(source[~dropped | starts], end), joined(target, end)


def pieces(total: int, count: int, random: Random) -> Ints:
    """Cut `total` into `count` positive lengths, all cuts equally likely."""
    cuts = np.sort(random.choice(total - 1, count - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [total]])).astype(np.int64)


def padded(rows: list[Ints], filler: int) -> tuple[Ints, Ints]:
    """Put rows of unequal length into one array. Shapes: -> [B, longest], [B] lengths."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    out = np.full((len(rows), int(lengths.max(initial=1))), filler, dtype=np.int64)
    for number, row in enumerate(rows):
        out[number, :len(row)] = row
    return out, lengths


def build_noisy(config: c.Noisy, given: Given) -> Denoising:
    """Check the tokenizer and the body. Raises `InputError` where they lack what the noise needs."""
    languages = config.tokens if isinstance(config, c.MultilingualDenoising) else ()
    return Denoising(build_noise(config, given), pair_form(given), given.ids,
                     tuple(given.ids.extra_id(token) for token in languages))


def build_noise(config: c.Noisy, given: Given) -> Noise:
    """Return what makes a source and a target. Raises `InputError` where the tokenizer lacks a token."""
    ids = given.ids
    end = () if ids.eos is None else (ids.eos,)
    match config:
        case c.SpanCorruption():
            return DroppedSpans(config, enough_sentinels(config, given), end)
        case c.ReplaceSpans():
            return ReplacedSpans(config, enough_sentinels(config, given), end)
        case c.DropTokens():
            return DroppedTokens(config, end)
        case c.PrefixLanguageModel():
            return Continued(config, end)
        case c.Denoising():
            begin = () if ids.bos is None else (ids.bos,)
            return Restored(tuple(step(one, ids) for one in config.noises), begin, end)
        case c.MultilingualDenoising():
            return Restored(tuple(step(one, ids) for one in config.noises), (), end)
        case c.MixtureOfDenoisers(parts=parts):
            weights = np.array([part.weight for part in parts])
            modes = tuple(() if part.token is None else (ids.extra_id(part.token),) for part in parts)
            return DrawnNoise(np.cumsum(weights) / weights.sum(), modes,
                              tuple(build_noise(part.objective, given) for part in parts))


def enough_sentinels(config: c.SpanCorruption | c.ReplaceSpans, given: Given) -> Ints:
    """Return the sentinels. Raises `InputError` where there are too few."""
    needed, there = sentinels_needed(config, given.length), len(given.ids.sentinels)
    if there < needed:
        raise InputError(f"{config.kind} may need {needed} sentinel tokens, and the tokenizer has {there}",
                         where="tokenizer.special.sentinels", remedy=f"set it to {max(100, needed)}")
    return np.array(given.ids.sentinels, dtype=np.int64)
