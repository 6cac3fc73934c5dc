"""Denoising: each row becomes a source and a target by a `Noise`, which is built from its config.

Letters: B batch, L length, N tokens of a text, S source, T target.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from saucier.errors import InputError
from saucier.objectives import config as c
from saucier.objectives.base import Batch, ObjectiveInputs, RowCorruption, TokenIds
from saucier.objectives.batch_layout import PairLayout, choose_pair_layout
from saucier.objectives.noise import (
    DrawnNoise,
    DroppedSpans,
    DroppedTokens,
    Ints,
    Noise,
    NoisyText,
    PrefixContinuation,
    Reconstruction,
    ReplacedSpans,
    build_noise_step,
    join_ids,
)
from saucier.objectives.prediction import Prediction
from saucier.text.rows.batch import PairRows, Rows, make_generator, pad_ids

SPANS = 2
"""Stream of random numbers."""


@dataclass(frozen=True, slots=True)
class DenoisingCorruption(RowCorruption):
    """Each row becomes a source and a target. A row is one text here, also where it holds several documents."""

    noise: Noise
    layout: PairLayout
    ids: TokenIds
    languages: tuple[int, ...] = ()
    """The token of each language, which both sides end with and the decoder begins with; none: there is no such."""

    def row_length(self, length: int) -> int:
        """The longest row of which the model sees `length` tokens at most."""
        low, high = 2, 2 * length
        while low < high:
            middle = (low + high + 1) // 2
            more = bool(self.languages)
            fits = all(self.layout.length(source + more, target + more) <= length
                       for source, target in self.noise.sizes(middle))
            low, high = (middle, high) if fits else (low, middle - 1)
        return low

    def __call__(self, rows: Rows, *, seed: int, step: int) -> Batch:
        """Make noise. Shapes: rows [B, L] -> a batch of source and target."""
        pairs = [self.noise(text, make_generator(seed, SPANS, step, int(row)))
                 for text, row in zip(self.texts(rows), rows.row, strict=True)]
        start = None if not self.languages or rows.languages is None else np.array(self.languages)[rows.languages[:, 0]]
        if start is not None:
            pairs = [(join_ids(source, (token,)), join_ids(target, (token,)))
                     for (source, target), token in zip(pairs, start.tolist(), strict=True)]
        source, source_lengths = pad_ids([source for source, _ in pairs], self.ids.filler)
        target, target_lengths = pad_ids([target for _, target in pairs], self.ids.filler)
        return self.layout(PairRows(source, target, source_lengths, target_lengths, rows.row, rows.item, start))

    def texts(self, rows: Rows) -> list[NoisyText]:
        """Return the real tokens of each row, without an end token that is there already."""
        starts = rows.sentence_starts
        sentences = np.zeros_like(rows.tokens) if starts is None else starts.cumsum(axis=1)
        found = [NoisyText(*pair) for pair in zip(rows.tokens, sentences, strict=True)]
        texts = [text.at(real) for text, real in zip(found, rows.mask, strict=True)]
        return [text.at(np.arange(len(text) - 1)) if len(text) and text.tokens[-1] == self.ids.eos else text
                for text in texts]


def build_denoising(config: c.Noisy, given: ObjectiveInputs) -> tuple[DenoisingCorruption, Prediction]:
    """Build both halves. Raises `InputError` where tokenizer or body lack what the noise needs."""
    languages = config.tokens if isinstance(config, c.MultilingualDenoising) else ()
    corruption = DenoisingCorruption(build_noise(config, given), choose_pair_layout(given), given.ids,
                                     tuple(given.ids.extra_id(token) for token in languages))
    return corruption, Prediction()


def build_noise(config: c.Noisy, given: ObjectiveInputs) -> Noise:
    """Return what makes a source and a target. Raises `InputError` where the tokenizer lacks a token."""
    ids = given.ids
    end = () if ids.eos is None else (ids.eos,)
    match config:
        case c.SpanCorruption():
            return DroppedSpans(config, require_sentinels(config, given), end)
        case c.ReplaceSpans():
            return ReplacedSpans(config, require_sentinels(config, given), end)
        case c.DropTokens():
            return DroppedTokens(config, end)
        case c.PrefixLanguageModel():
            return PrefixContinuation(config, end)
        case c.Denoising():
            begin = () if ids.bos is None else (ids.bos,)
            return Reconstruction(tuple(build_noise_step(one, ids) for one in config.noises), begin, end)
        case c.MultilingualDenoising():
            return Reconstruction(tuple(build_noise_step(one, ids) for one in config.noises), (), end)
        case c.MixtureOfDenoisers(parts=parts):
            weights = np.array([part.weight for part in parts])
            modes = tuple(() if part.token is None else (ids.extra_id(part.token),) for part in parts)
            return DrawnNoise(np.cumsum(weights) / weights.sum(), modes,
                              tuple(build_noise(part.objective, given) for part in parts))


def require_sentinels(config: c.SpanCorruption | c.ReplaceSpans, given: ObjectiveInputs) -> Ints:
    """Return the sentinels. Raises `InputError` where there are too few."""
    needed, there = config.count_needed_sentinels(given.length), len(given.ids.sentinels)
    if there < needed:
        raise InputError(f"{config.kind} may need {needed} sentinel tokens, and the tokenizer has {there}",
                         where="tokenizer.special.sentinels", remedy=f"set it to {max(100, needed)}")
    return np.array(given.ids.sentinels, dtype=np.int64)
