"""What is hidden together: the published statistics of whole words, spans, n-grams and PMI masking."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest
import torch
from tests.unit.objectives.helpers import IDS, rows
from tests.unit.training.toy import small

from saucier.errors import InputError
from saucier.objectives import config as c
from saucier.objectives.base import IGNORED, Batch, ObjectiveInputs
from saucier.objectives.build import build_objective
from saucier.objectives.masked import build_masked
from saucier.objectives.masking_units import build_token_selection, compute_geometric_lengths, compute_harmonic_lengths
from saucier.text.collocations import Collocation, Collocations

MARKS = "1" * 70 + "0" * 30
"""Ids from 70 on go on with a word."""
WORDS = dataclasses.replace(IDS, word_marks=MARKS)
SPANS = c.SpanMasking()


def texts(count: int, length: int, inside: float = 0.3) -> list[list[int]]:
    """Make rows between two separators, some of whose tokens go on with a word."""
    random = np.random.default_rng(0)
    whole = random.integers(10, 70, (count, length))
    parts = random.integers(70, 95, (count, length))
    body = np.where(random.random((count, length)) < inside, parts, whole)
    return [[2, 10, *row[1:-1].tolist(), 2] for row in body]


def corrupted(choice: c.Choice, made: list[list[int]], step: int = 0, **options: object) -> Batch:
    """Hide tokens of rows."""
    given = ObjectiveInputs(WORDS, **options)  # type: ignore[arg-type]
    return build_objective(c.Masked(choice=choice), given)[0](rows(made), seed=3, step=step)


def word_numbers(row: list[int]) -> list[int]:
    """Number the words of a row, one after the other; special tokens are words, too."""
    return np.cumsum([token < 70 or token in IDS.special for token in row]).tolist()


def words_hidden(row: list[int], labels: list[int]) -> dict[int, set[bool]]:
    """Tell of each word which of its tokens are hidden."""
    found: dict[int, set[bool]] = {}
    for number, label in zip(word_numbers(row), labels, strict=True):
        found.setdefault(number, set()).add(label != IGNORED)
    return found


NGRAMS = [Collocation((10, 11), 2, 10, 1.0), Collocation((12, 75, 13, 14), 3, 10, 1.0)]
KNOWN = Collocations(tuple(NGRAMS))


@pytest.mark.parametrize("choice", [c.WholeWordMasking(), SPANS, c.NGramMasking(), c.PMIMasking()])
def test_words_are_hidden_whole_and_the_budget_is_kept(choice: c.Choice) -> None:
    made = texts(40, 128)
    batch = corrupted(choice, made, collocations=KNOWN)
    chosen = batch["labels"] != IGNORED
    for row, labels in zip(made, batch["labels"].tolist(), strict=True):
        assert all(len(fates) == 1 for fates in words_hidden(row, labels).values())
    budget = round(0.15 * 127)
    assert chosen.sum(1).max() <= budget
    assert chosen.sum() > 0.97 * budget * len(made)
    assert torch.equal(batch["labels"][chosen], torch.tensor(made)[chosen])
    assert not chosen[torch.tensor(made) == 2].any()


@pytest.mark.slow
@pytest.mark.parametrize("choice", [c.WholeWordMasking(), SPANS, c.NGramMasking()])
def test_of_the_hidden_80_percent_are_masks_and_10_random(choice: c.Choice) -> None:
    made = texts(800, 200)
    batch, tokens = corrupted(choice, made), torch.tensor(made)
    inputs, chosen = batch["input_ids"], batch["labels"] != IGNORED
    assert torch.equal(inputs[~chosen], tokens[~chosen])
    assert (inputs[chosen] == 3).float().mean() == pytest.approx(0.8, abs=0.02)
    assert (inputs[chosen] == tokens[chosen]).float().mean() == pytest.approx(0.1, abs=0.02)


def runs(row: list[int]) -> list[tuple[int, int]]:
    """Find the runs of targets in a row of labels: (first, behind the last)."""
    edges = np.flatnonzero(np.diff([0, *(label != IGNORED for label in row), 0]))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def test_spans_have_geometric_lengths_and_one_fate() -> None:
    """Joshi et al. 2020, §3.1: p = 0.2, at most ten words, 3.8 on average; all tokens of a span share one fate."""
    weights = [0.2 * 0.8 ** (length - 1) for length in range(1, 11)]
    assert sum(n * w for n, w in enumerate(weights, 1)) / sum(weights) == pytest.approx(3.8, abs=0.005)
    assert compute_geometric_lengths(0.2, 10) == pytest.approx(np.array(weights) / sum(weights))
    made = texts(50, 4000)
    batch = corrupted(SPANS, made)
    lengths: Counter[int] = Counter()
    for row, inputs, labels in zip(made, batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True):
        numbers = word_numbers(row)
        for first, last in runs(labels):
            lengths[numbers[last - 1] - numbers[first] + 1] += 1
            fates = {"mask" if new == 3 else "kept" if new == old else "random"
                     for new, old in zip(inputs[first:last], row[first:last], strict=True)}
            assert len(fates - {"kept"}) <= 1  # a random token may be the old one by chance
            assert fates != {"mask", "kept"}
    total = sum(lengths.values())
    assert max(lengths) == 10
    assert sum(n * count for n, count in lengths.items()) / total == pytest.approx(3.8, abs=0.1)
    assert [lengths[n] / total for n in range(1, 11)] == pytest.approx(compute_geometric_lengths(0.2, 10).tolist(),
                                                                       abs=0.015)


def test_a_span_has_a_visible_token_on_both_sides() -> None:
    made = [row[1:-1] for row in texts(30, 59)]  # no separators: the rows begin and end with text
    batch = corrupted(c.SpanMasking(boundary=c.SpanBoundary()), made, body=small("bert"))
    place = torch.arange(58).expand(30, 58)
    chosen = batch["labels"] != IGNORED
    left, right = batch["span_left"], batch["span_right"]
    assert not chosen.gather(1, left.clamp(min=0))[chosen].any()
    assert ((left < place) & (place < right))[chosen].all()
    assert (left[chosen].min(), right[chosen].max()) >= (0, 1)
    assert right[chosen].max() <= 57
    for row in range(30):
        ends = [(first - 1, last) for first, last in runs(batch["labels"][row].tolist()) for _ in range(first, last)]
        assert list(zip(left[row][chosen[row]].tolist(), right[row][chosen[row]].tolist(), strict=True)) == ends


def test_runs_of_n_words_are_as_likely_as_one_over_n() -> None:
    """Lan et al. 2020, §4.1: p(n) = (1/n) / sum of 1/k; of three lengths 6/11, 3/11, 2/11."""
    assert compute_harmonic_lengths(3) == pytest.approx([6 / 11, 3 / 11, 2 / 11])
    choose = build_token_selection(c.NGramMasking(), ObjectiveInputs(WORDS))
    corruption = build_masked(c.Masked(), ObjectiveInputs(WORDS))
    lengths: Counter[int] = Counter()
    made = texts(60, 2000)
    for number, line in enumerate(corruption.lines(rows(made))):
        found = choose(line, 300, np.random.default_rng(number))
        numbers = word_numbers(made[number])
        for first, last in set(zip(found.before.tolist(), found.after.tolist(), strict=True)):
            lengths[numbers[last - 1] - numbers[first + 1] + 1] += 1
    total = sum(lengths.values())
    assert [lengths[n] / total for n in (1, 2, 3)] == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.02)


def test_known_n_grams_are_hidden_whole() -> None:
    random = np.random.default_rng(1)
    pieces = [[10, 11], [12, 75, 13, 14], [20], [21, 80], [22]]
    made = [[2, *[token for _ in range(40) for token in pieces[random.integers(5)]][:40], 2] for _ in range(30)]
    hidden = alone = 0
    for step in range(5):
        labels = corrupted(c.PMIMasking(), made, step, collocations=KNOWN)["labels"].tolist()
        for row, found in zip(made, labels, strict=True):
            for ids in ([10, 11], [12, 75, 13, 14]):
                for place in range(len(row) - len(ids) + 1):
                    if row[place:place + len(ids)] == ids:
                        count = sum(label != IGNORED for label in found[place:place + len(ids)])
                        hidden, alone = hidden + (count == len(ids)), alone + (0 < count < len(ids))
    assert hidden > 50
    assert alone == 0


def test_static_masks_have_as_many_copies_as_asked() -> None:
    """BERT's data script wrote each text ten times, each with a mask of its own."""
    made = rows(texts(1, 64))
    corrupt = build_objective(c.Masked(dynamic=False, duplicates=4), ObjectiveInputs(IDS))[0]
    seen = Counter(tuple(corrupt(made, seed=0, step=step)["labels"][0].tolist()) for step in range(200))
    assert len(seen) == 4
    assert min(seen.values()) > 30


@pytest.mark.parametrize("choice", [c.WholeWordMasking(), SPANS, c.NGramMasking(), c.PMIMasking()])
def test_a_tokenizer_without_words_is_one_clear_error(choice: c.Choice) -> None:
    with pytest.raises(InputError, match=f"do not tell where words begin, which {choice.kind} needs"):
        build_objective(c.Masked(choice=choice), ObjectiveInputs(IDS))


@pytest.mark.parametrize("choice", [c.WholeWordMasking(), SPANS, c.NGramMasking(), c.PMIMasking()])
@pytest.mark.parametrize("row", [[2, 2], [2, 10, 2], [2, 80, 81, 82, 2], [10], [10, 11]])
def test_rows_of_almost_nothing(choice: c.Choice, row: list[int]) -> None:
    labels = corrupted(choice, [row])["labels"][0]
    assert all(token == label for token, label in zip(row, labels.tolist(), strict=True) if label != IGNORED)
