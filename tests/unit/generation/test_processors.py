"""Each processor against its definition, written out token by token."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from saucier.errors import WorkError
from saucier.generation import processors as p
from saucier.generation.search import Sample, draw_by_torch, draw_exponential, matches_torch

VOCAB = 6
IDS = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=9)


def scores(seed: int = 0, rows: int = 1) -> Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 2


def forbidden(before: Tensor, after: Tensor) -> set[int]:
    """Return what became impossible in the first row, after checking that nothing else changed."""
    gone = {token for token in range(VOCAB) if after[0, token] == -math.inf}
    kept = [token for token in range(VOCAB) if token not in gone]
    assert torch.equal(before[0, kept], after[0, kept])
    return gone


@pytest.mark.slow
@given(IDS, st.sampled_from([0.5, 1.3, 2.0]))
def test_repetition_penalty(ids: list[int], penalty: float) -> None:
    before = scores(1)
    after = p.penalize_repetition(torch.tensor([ids]), before, penalty=penalty)
    for token, (old, new) in enumerate(zip(before[0].tolist(), after[0].tolist(), strict=True)):
        worse = old * penalty if old < 0 else old / penalty
        assert new == pytest.approx(worse if token in ids else old)


def test_repetition_penalty_does_not_count_padding() -> None:
    before = torch.ones(2, VOCAB)
    after = p.penalize_repetition(torch.tensor([[0, 0, 3], [0, 0, 3]]), before, penalty=2.0,
                                  padding=torch.tensor([2, 0]))
    assert after.tolist() == [[1, 1, 1, 0.5, 1, 1], [0.5, 1, 1, 0.5, 1, 1]]


@given(IDS, st.integers(1, 4))
def test_no_ngram_twice(ids: list[int], size: int) -> None:
    before = scores(2)
    gone = forbidden(before, p.forbid_repeated_ngrams(torch.tensor([ids]), before, size=size))
    seen = {tuple(ids[i : i + size]) for i in range(len(ids) - size + 1)}
    begin = ids[len(ids) - size + 1 :] if size <= len(ids) + 1 else None
    assert gone == {token for token in range(VOCAB) if begin is not None and (*begin, token) in seen}


@given(IDS, st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=3))
def test_bad_word(ids: list[int], word: list[int]) -> None:
    before = scores(3)
    gone = forbidden(before, p.forbid_bad_word(torch.tensor([ids]), before, word=word))
    *begin, last = word
    assert gone == ({last} if ids[len(ids) - len(begin) :] == begin and len(ids) >= len(begin) else set())


def test_tokens_at_lengths() -> None:
    before, four = scores(4), torch.zeros(1, 4, dtype=torch.long)
    assert forbidden(before, p.suppress(four, before, tokens=(1, 3))) == {1, 3}
    assert forbidden(before, p.suppress(four, before, tokens=(1, 3), lengths=range(4, 5))) == {1, 3}
    assert forbidden(before, p.suppress(four, before, tokens=(1, 3), lengths=range(5, 6))) == set()
    assert forbidden(before, p.suppress(four, before, tokens=(2,), lengths=range(5))) == {2}
    assert forbidden(before, p.suppress(four, before, tokens=(2,), lengths=range(4))) == set()
    assert p.force_at(four, before, tokens=(2, 5), length=4).tolist() == [
        [-math.inf, -math.inf, 0, -math.inf, -math.inf, 0]]
    assert p.force_at(four, before, tokens=(2, 5), length=3) is before


@given(st.integers(1, 2 * VOCAB), st.integers(0, 50))
def test_top_k(count: int, seed: int) -> None:
    before = scores(seed)
    gone = forbidden(before, p.keep_top_k(torch.zeros(1, 1, dtype=torch.long), before, count=count))
    best = sorted(range(VOCAB), key=lambda token: -before[0, token])[:count]
    assert gone == set(range(VOCAB)) - set(best)


@given(st.floats(0.01, 0.999), st.integers(0, 50))
def test_top_p_is_the_smallest_set_that_holds_the_share(share: float, seed: int) -> None:
    before = scores(seed)
    gone = forbidden(before, p.keep_top_p(torch.zeros(1, 1, dtype=torch.long), before, share=share))
    chances, kept, held = before[0].softmax(0).tolist(), [], 0.0
    for token in sorted(range(VOCAB), key=lambda token: -chances[token]):
        kept.append(token)
        held += chances[token]
        if held >= share:
            break
    assert abs(held - share) < 1e-6 or gone == set(range(VOCAB)) - set(kept)


@pytest.mark.parametrize("width", [40, 5000])
@pytest.mark.parametrize("least", [1, 3])
def test_top_p_is_what_sorting_all_gives(width: int, least: int) -> None:
    """Of rows with equal scores, with forbidden ones, with others far below, peaked and flat: as many and as likely as
    by sorting in 64 bits, whatever rows are beside a row.
    """
    generator = torch.Generator().manual_seed(width)
    before = torch.randn(7, width, generator=generator) * torch.tensor([[0.0, 1, 1, 3, 6, 9, 1]]).T
    before[2], before[3, 2:], before[6, 2:] = before[2].round(), -math.inf, before[6, 2:] - 3e38
    for share in (0.0531, 0.5031, 0.9031, 0.9931):
        together = p.keep_top_p(torch.zeros(7, 1), before, share=share, least=least)
        alone = [p.keep_top_p(torch.zeros(1, 1), row[None], share=share, least=least)[0] for row in before]
        for row, *after in zip(before, together, alone, strict=True):
            ordered = row.double().sort(descending=True).values
            earlier = ordered.softmax(0).cumsum(0) - ordered.softmax(0)
            kept = ordered[((earlier < share - 1e-9) | (torch.arange(width) < least)) & (ordered > -math.inf)]
            for found in after:
                assert torch.equal(found[found > -math.inf].double().sort(descending=True).values, kept)


def test_top_p_leaves_what_is_no_number_to_the_draw() -> None:
    before = torch.tensor([[1.0, math.nan, 2], [-math.inf] * 3])
    assert torch.equal(p.keep_top_p(torch.zeros(2, 1), before, share=0.5).nan_to_num(9), before.nan_to_num(9))


def test_temperature_sharpens() -> None:
    before = scores(5)
    after = p.apply_temperature(torch.zeros(1, 1, dtype=torch.long), before, temperature=0.5)
    torch.testing.assert_close(after.softmax(1), before.softmax(1) ** 2 / (before.softmax(1) ** 2).sum())


@given(st.integers(0, 20))
def test_inputs_are_left_alone(seed: int) -> None:
    ids, before = torch.tensor([[1, 2, 1, 2, 1]]), scores(seed)
    kept = before.clone()
    for processor in (
        partial(p.penalize_repetition, penalty=2.0),
        partial(p.forbid_repeated_ngrams, size=2),
        partial(p.forbid_bad_word, word=(1, 3)),
        partial(p.suppress, tokens=(0,)),
        partial(p.force_at, tokens=(1,), length=5),
        partial(p.apply_temperature, temperature=2.0),
        partial(p.keep_top_k, count=2),
        partial(p.keep_top_p, share=0.5),
    ):
        assert not torch.equal(processor(ids, before), before), processor
        assert torch.equal(before, kept), processor


def test_greedy_takes_the_best_and_the_first_of_equals() -> None:
    assert p.pick_likeliest(torch.tensor([[1.0, 3, 3, 2]]), 1).tolist() == [[1]]
    assert p.pick_likeliest(torch.tensor([[1.0, 3, 0, 2]]), 3).tolist() == [[1, 3, 0]]


@pytest.mark.parametrize("width", [40, 128 * 9, 128 * 40 + 1, 128 * 40 + 127])
def test_the_likeliest_are_those_of_all(width: int) -> None:
    generator = torch.Generator().manual_seed(width)
    for count in (2, 4, 12):
        scores = torch.randn(5, width, generator=generator)
        scores[1] = scores[1].sort().values  # the best are after the last whole block
        scores[2] = scores[2].sort(descending=True).values  # and all in the first one
        scores[3, torch.randperm(width, generator=generator)[count:]] = float("-inf")
        expected = scores.topk(count)
        found = p.pick_likeliest(scores, count)
        assert torch.equal(found, expected.indices)
        scores[4] = scores[4].round()
        assert torch.equal(scores.gather(1, p.pick_likeliest(scores, count)), scores.topk(count).values)


def test_draws_have_the_frequencies_of_the_distribution() -> None:
    """Chi-squared with 5 degrees of freedom is above 20.5 once in a thousand seeds; this seed is fixed."""
    wanted = scores(6).softmax(1)[0]
    drawn = Sample.seeded(0, torch.device("cpu"))(scores(6).expand(20000, -1), 1)[:, 0].bincount(minlength=VOCAB)
    assert float(((drawn - 20000 * wanted) ** 2 / (20000 * wanted)).sum()) < 20.5


def test_numbers_that_are_drawn_are_those_of_torch() -> None:
    """Wherever in its key the twister stands, and what torch draws next is the same too."""
    if not matches_torch():
        pytest.skip("torch asks a library for such numbers on this processor")
    ours, theirs = (torch.Generator().manual_seed(3) for _ in range(2))
    for shape in ((1, 1), (2, 155), (1, 1), (3, 1000), (1, 311), (8, 5000)):
        found, expected = draw_exponential(ours, shape), draw_by_torch(theirs, shape)
        np.testing.assert_allclose(found, expected, rtol=2e-7, atol=0)
        assert torch.equal(ours.get_state(), theirs.get_state())
        assert torch.equal(torch.randn(5, generator=ours), torch.randn(5, generator=theirs))


def test_a_seed_draws_what_torch_draws_with_it() -> None:
    many = torch.randn(40, 5000, generator=torch.Generator().manual_seed(4)) * 3
    many[:, 100:200] = -math.inf
    drawn, theirs = Sample.seeded(2, torch.device("cpu")), torch.Generator().manual_seed(2)
    for _ in range(20):
        assert torch.equal(drawn(many, 1), torch.multinomial(many.softmax(1), 1, generator=theirs))


def test_scores_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(WorkError, match="no numbers"):
        Sample.seeded(2, torch.device("cpu"))(torch.tensor([[0.0, math.nan]]), 1)
    with pytest.raises(WorkError, match="no numbers"):
        Sample.seeded(2, torch.device("cpu"))(torch.full((1, 3), -math.inf), 1)


@pytest.mark.parametrize("count", [1, 50, 9000])
def test_the_k_likeliest_of_many_are_kept_with_those_as_likely(count: int) -> None:
    many = torch.randn(3, 9000, generator=torch.Generator().manual_seed(3)).mul(8).round() / 8
    kept = p.keep_top_k(torch.zeros(3, 1), many, count=count)
    least = many.topk(count).values[:, -1:]
    assert torch.equal(kept, many.masked_fill(many < least, -math.inf))


def test_draws_are_without_replacement_and_avoid_the_impossible() -> None:
    possible = torch.tensor([[0.0, -math.inf, 1.0, -math.inf, 0.5, 0.1]]).expand(50, -1)
    drawn = Sample.seeded(1, torch.device("cpu"))(possible, 4)
    assert all(sorted(row) == [0, 2, 4, 5] for row in drawn.tolist())
