"""Every noise has its published statistics, loses nothing, and fits the model: a text and what is made of it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from tests.unit.objectives.helpers import IDS, rows

from saucier.errors import InputError
from saucier.objectives import config as c
from saucier.objectives.base import IGNORED, ObjectiveInputs
from saucier.objectives.build import build_objective
from saucier.objectives.denoising import build_noise
from saucier.objectives.noise import NoisyText, build_noise_step, draw_gaps, draw_span_lengths

LENGTH = 200
WIDE = dataclasses.replace(IDS, vocab=1000, sentinels=tuple(range(999, 799, -1)), extra={"[R]": 4, "[S]": 5, "[X]": 6},
                           special=(0, 1, 2, 3, 4, 5, 6, *range(800, 1000)))
GIVEN = ObjectiveInputs(WIDE, length=LENGTH)
MASK, END = 3, 2
DENOISERS = [c.SpanCorruption(), c.SpanCorruption(rate=0.5, mean_span=8), c.ReplaceSpans(), c.DropTokens(rate=0.3),
             c.PrefixLanguageModel(), c.PrefixLanguageModel(target=0.25), c.Denoising(),
             c.Denoising(noises=(c.TokenShuffling(),)), c.Denoising(noises=(c.TokenDeletion(), c.DocumentRotation())),
             c.MixtureOfDenoisers()]


def text(length: int = LENGTH, sentences: int = 8) -> NoisyText:
    """A text without two equal tokens, and its sentences of unequal lengths."""
    return NoisyText(np.arange(10, 10 + length), np.arange(length) ** 2 * sentences // length**2)


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def made(config: c.Noisy, count: int = 50, length: int = LENGTH) -> list[tuple[list[int], list[int]]]:
    noise = build_noise(config, GIVEN)
    return [tuple(side.tolist() for side in noise(text(length), random(seed))) for seed in range(count)]


def damaged(noise: c.TextNoise, seed: int = 0, length: int = LENGTH) -> NoisyText:
    return build_noise_step(noise, WIDE)(text(length), random(seed))


def runs(places: list[int]) -> list[int]:
    """Lengths of the runs of neighbours."""
    breaks = [0, *(index + 1 for index, pair in enumerate(pairwise(places)) if pair[1] != pair[0] + 1), len(places)]
    return [last - first for first, last in pairwise(breaks)]


@pytest.mark.sampled
@pytest.mark.parametrize("config", DENOISERS, ids=lambda config: config.kind)
@pytest.mark.parametrize("length", [1, 2, 3, 10, LENGTH - 2])
def test_no_source_and_no_target_is_longer_than_said(config: c.Noisy, length: int) -> None:
    longest = np.array(build_noise(config, GIVEN).sizes(length))
    for source, target in made(config, length=length):
        assert len(source) <= longest[:, 0].max() and len(target) <= longest[:, 1].max()
        assert len(source) + len(target) <= longest.sum(axis=1).max()


@pytest.mark.parametrize("config", [c.ReplaceSpans(), c.ReplaceSpans(rate=0.5)])
def test_replaced_spans_can_be_put_back(config: c.ReplaceSpans) -> None:
    for source, target in made(config):
        spans: dict[int, list[int]] = {}
        for token in target[:-1]:
            if token >= 800:
                spans[token] = current = []
            else:
                current.append(token)
        assert [token for place in source[:-1] for token in spans.get(place, [place])] == text().tokens.tolist()
        lost = sorted(token for span in spans.values() for token in span)
        assert len(lost) == round(config.rate * LENGTH)
        assert runs(lost) == [len(span) for span in spans.values() if span]
        assert [token for token in source if token >= 800] == list(range(999, 999 - len(runs(lost)), -1))


def test_tokens_replaced_one_by_one_form_the_spans_that_chance_makes() -> None:
    lost = [sorted(token for token in target if 10 <= token < 800) for _, target in made(c.ReplaceSpans(rate=0.3), 200)]
    counted = Counter(length for one in lost for length in runs(one))
    shares = {length: counted[length] / sum(counted.values()) for length in counted}
    for length in (1, 2, 3):  # geometric: a run goes on with probability 0.3
        assert shares[length] == pytest.approx(0.3 ** (length - 1) * 0.7, abs=0.02)


def test_dropped_tokens_leave_no_mark() -> None:
    for source, target in made(c.DropTokens()):
        assert source[-1] == target[-1] == END
        assert sorted(source[:-1] + target[:-1]) == text().tokens.tolist()
        assert source[:-1] == sorted(source[:-1]) and target[:-1] == sorted(target[:-1])
        assert len(target) == round(0.15 * LENGTH) + 1


@pytest.mark.parametrize(("mean", "most"), [(0.5, LENGTH - 1), (0.25, LENGTH // 2)])
def test_a_prefix_is_cut_evenly(mean: float, most: int) -> None:
    pairs = made(c.PrefixLanguageModel(target=mean), 2000)
    assert all(source[:-1] + target == [*text().tokens.tolist(), END] for source, target in pairs)
    targets = np.array([len(target) - 1 for _, target in pairs])
    assert targets.min() >= 1 and targets.max() <= most
    assert targets.mean() == pytest.approx((1 + most) / 2, rel=0.04)
    assert np.histogram(targets, bins=4, range=(1, most))[0] == pytest.approx([500] * 4, rel=0.15)


def test_masked_tokens_are_told_again_in_the_whole_text() -> None:
    pairs = made(c.Denoising(noises=(c.TokenMasking(random=0.1),)), 200)
    assert all(target == [*text().tokens.tolist(), END] for _, target in pairs)
    changed = [token for source, _ in pairs for token, was in zip(source[1:-1], text().tokens, strict=True)
               if token != was]
    assert len(changed) / len(pairs) == pytest.approx(0.15 * LENGTH, rel=0.01)
    assert changed.count(MASK) / len(changed) == pytest.approx(0.9, abs=0.01)
    assert not set(changed) & (set(WIDE.special) - {MASK})


def test_deleted_tokens_leave_the_others_in_order() -> None:
    left = damaged(c.TokenDeletion(rate=0.2)).tokens.tolist()
    assert left == sorted(left) and len(left) == 0.8 * LENGTH


def test_infilling_drops_its_share_and_puts_one_mask_for_each_span() -> None:
    for seed in range(50):
        tokens = damaged(c.TextInfilling(), seed).tokens
        kept = tokens[tokens != MASK]
        assert len(kept) == 0.7 * LENGTH and (np.diff(kept) > 0).all()
        lost = len(runs(sorted(set(text().tokens.tolist()) - set(kept.tolist()))))
        assert (tokens == MASK).sum() >= lost, "a mask at least in every gap"


@pytest.mark.parametrize("mean", [3.0, 3.5])
def test_infilled_spans_are_of_poisson_lengths(mean: float) -> None:
    drawn = [draw_span_lengths(3000, mean, random(seed)) for seed in range(20)]
    assert all(lengths.sum() == 3000 for lengths in drawn)
    lengths = np.concatenate([one[:-1] for one in drawn])  # the last one is cut
    assert lengths.mean() == pytest.approx(mean, rel=0.02)
    assert lengths.var() == pytest.approx(mean, rel=0.04)
    assert (lengths == 0).mean() == pytest.approx(np.exp(-mean), rel=0.1)


def test_spans_of_no_tokens_insert_a_mask() -> None:
    class Zeros:
        def poisson(self, mean: float, size: int) -> np.ndarray:
            return np.array([0, 2, 0, 2, 9])[:size]

    assert draw_span_lengths(4, 3, Zeros()).tolist() == [0, 2, 0, 2]
    assert draw_span_lengths(5, 3, Zeros()).tolist() == [0, 2, 0, 2, 1]
    assert draw_span_lengths(2, 3, Zeros()).tolist() == [0, 2]
    assert draw_span_lengths(1, 3, Zeros()).tolist() == [], "a text never grows"


def test_gaps_between_spans_are_any_that_add_up() -> None:
    found = Counter(tuple(draw_gaps(3, 3, random(seed)).tolist()) for seed in range(5000))
    assert set(found) == {(a, b, 3 - a - b) for a in range(4) for b in range(4 - a)}
    assert min(found.values()) > 5000 / 10 * 0.8


def test_permuted_sentences_stay_whole_and_masks_go_with_them() -> None:
    before = text()
    after = damaged(c.SentencePermutation(), 3)
    whole = [before.tokens[before.sentences == number].tolist() for number in np.unique(before.sentences)]
    order = list(dict.fromkeys(after.sentences.tolist()))
    assert after.tokens.tolist() == [token for number in order for token in whole[number]]
    assert order != sorted(order)
    masked = build_noise_step(c.SentencePermutation(), WIDE)(damaged(c.TextInfilling()), random(1))
    assert [*dict.fromkeys(masked.sentences.tolist())] == [number for number, _ in _groups(masked.sentences)]


def _groups(numbers: np.ndarray) -> list[tuple[int, int]]:
    changes = [0, *((np.diff(numbers) != 0).nonzero()[0] + 1)]
    return [(int(numbers[place]), int(place)) for place in changes]


def test_every_order_of_sentences_is_equally_likely() -> None:
    three = NoisyText(np.arange(6), np.array([0, 0, 1, 1, 2, 2]))
    permute = build_noise_step(c.SentencePermutation(), WIDE)
    found = Counter(tuple(permute(three, random(seed)).sentences[::2].tolist()) for seed in range(3000))
    assert len(found) == 6 and min(found.values()) > 400
    pair = build_noise_step(c.SentencePermutation(share=0.5), WIDE)
    moved = [(pair(text(), random(seed)).sentences != text().sentences).any() for seed in range(100)]
    stays = [len(set(dict.fromkeys(pair(text(), random(seed)).sentences.tolist()))) for seed in range(10)]
    assert any(moved) and set(stays) == {len(np.unique(text().sentences))}


def test_a_rotated_text_starts_anywhere() -> None:
    starts = [int(damaged(c.DocumentRotation(), seed, 10).tokens[0]) for seed in range(400)]
    assert set(starts) == set(range(10, 20)) and max(Counter(starts).values()) < 65
    tokens = damaged(c.DocumentRotation(), 5, 10).tokens
    begin = int(tokens.argmin())
    assert np.concatenate([tokens[begin:], tokens[:begin]]).tolist() == list(range(10, 20))


def test_shuffled_tokens_are_the_same_tokens() -> None:
    tokens = damaged(c.TokenShuffling()).tokens
    assert sorted(tokens.tolist()) == text().tokens.tolist() and (np.diff(tokens) < 0).mean() > 0.4


def test_bart_permutes_all_sentences_and_hides_30_percent() -> None:
    for source, target in made(c.Denoising()):
        assert source[0] == 1 and source[-1] == END
        assert target == [*text().tokens.tolist(), END]
        assert len([token for token in source[1:-1] if token != MASK]) == 0.7 * LENGTH


def test_rows_of_ul2_are_drawn_by_weight_and_named() -> None:
    sources = [source for source, _ in made(c.MixtureOfDenoisers(), 1400)]
    counted = Counter(source[0] for source in sources)
    assert counted[4] == pytest.approx(400, rel=0.12) and counted[6] == pytest.approx(800, rel=0.08)
    assert counted[5] == pytest.approx(200, rel=0.2)
    assert set(counted) == {4, 5, 6}


def test_ul2_has_its_seven_settings() -> None:
    spans = Counter((part.token, part.objective.rate, part.objective.mean_span)
                    for part in c.MixtureOfDenoisers().parts if isinstance(part.objective, c.SpanCorruption))
    assert set(spans) == {("[R]", 0.15, 3), ("[R]", 0.15, 8), ("[X]", 0.5, 3), ("[X]", 0.5, 8), ("[X]", 0.15, 64),
                          ("[X]", 0.5, 64)}
    assert [part.objective for part in c.MixtureOfDenoisers().parts if part.token == "[S]"] \
        == [c.PrefixLanguageModel(target=0.25)]


@pytest.mark.parametrize("config", DENOISERS, ids=lambda config: config.kind)
def test_rows_fill_the_model_and_come_out_the_same_alone(config: c.Noisy) -> None:
    corrupt = build_objective(config, ObjectiveInputs(WIDE, length=64))[0]
    own = corrupt.row_length(64)
    starts = np.arange(own) % 7 == 0
    made_rows = dataclasses.replace(rows([list(range(10, 10 + own))] * 4),
                                    sentence_starts=np.broadcast_to(starts, (4, own)))
    whole, part = corrupt(made_rows, seed=1, step=2), corrupt(made_rows.select(slice(2, 4)), seed=1, step=2)
    assert max(whole["input_ids"].shape[1], whole["labels"].shape[1]) <= 64
    assert own >= 60
    real = [[token for token in row if token != IGNORED] for row in whole["labels"].tolist()]
    assert [[token for token in row if token != IGNORED] for row in part["labels"].tolist()] == real[2:]
    assert not (whole["input_ids"] == IGNORED).any()


@pytest.mark.parametrize(("config", "where"), [
    (c.Denoising(), "mask"), (c.Denoising(noises=(c.TokenMasking(),)), "mask"),
    (c.SpanCorruption(), "sentinels"), (c.ReplaceSpans(), "sentinels"),
    (c.MixtureOfDenoisers(parts=(c.DenoiserPart(token="[Q]", objective=c.DropTokens()),)), "extra")])
def test_a_missing_token_is_one_clear_error(config: c.Noisy, where: str) -> None:
    poor = dataclasses.replace(WIDE, mask=None, sentinels=())
    with pytest.raises(InputError, match=f"tokenizer.special.{where}"):
        build_objective(config, ObjectiveInputs(poor))


def test_tokens_dropped_one_by_one_need_a_sentinel_each() -> None:
    with pytest.raises(InputError, match="may need 101 sentinel tokens, and the tokenizer has 100"):
        build_objective(c.ReplaceSpans(rate=0.5),
                        ObjectiveInputs(dataclasses.replace(WIDE, sentinels=tuple(range(900, 1000))), length=200))


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1])
def test_a_rate_of_nothing_or_all_is_refused(rate: float) -> None:
    for kind in (c.SpanCorruption, c.ReplaceSpans, c.DropTokens, c.TokenMasking, c.TokenDeletion, c.TextInfilling):
        with pytest.raises(InputError, match="rate"):
            kind(rate=rate)
