"""The n-gram model against its definition in plain Python; xz against the standard library."""

from __future__ import annotations

import lzma
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saucier.errors import InputError
from saucier.tasks import language_baselines as module
from saucier.tasks.language_baselines import (
    USUAL_DISCOUNT,
    NgramModel,
    count_ngrams,
    measure_baselines,
    ngram_baseline,
    xz_baseline,
)

VOCAB = 5
Texts = list[list[int]]
documents_of_ids = st.lists(st.lists(st.integers(0, VOCAB - 1), min_size=0, max_size=20), min_size=1, max_size=6)


@dataclass(frozen=True)
class Store:
    """Documents in memory, as a token store shows them."""

    documents: Texts
    bytes: int = 100

    @property
    def tokens(self) -> np.ndarray[Any, Any]:
        return np.array([token for document in self.documents for token in document], dtype=np.uint16)

    @property
    def offsets(self) -> np.ndarray[Any, Any]:
        return np.cumsum([0, *(len(document) for document in self.documents)])


def naive(train: Texts, order: int, context: tuple[int, ...], token: int) -> float:
    """The formula at the head of `ngram.py`, by counting afresh for every probability."""
    if order == 0:
        return 1 / VOCAB
    lower = naive(train, order - 1, context[1:] if len(context) >= order - 1 else context, token)
    if len(context) < order - 1:
        return lower
    grams = Counter(tuple(document[i:i + order]) for document in train for i in range(len(document) - order + 1))
    once, twice = (sum(count == times for count in grams.values()) for times in (1, 2))
    discount = once / (once + 2 * twice) if once and twice else USUAL_DISCOUNT
    behind = {gram[-1]: count for gram, count in grams.items() if gram[:-1] == context}
    total = sum(behind.values())
    return (max(behind.get(token, 0) - discount, 0) + discount * len(behind) * lower) / total if total else lower


@settings(max_examples=60, deadline=None)
@given(train=documents_of_ids.filter(any), held_out=documents_of_ids.filter(any), order=st.integers(1, 4))
def test_ngram_is_its_definition(train: Texts, held_out: Texts, order: int) -> None:
    model = count_ngrams(Store(train), order=order, vocab=VOCAB, most=10**6)
    want = sum(-math.log(naive(train, order, tuple(document[max(0, i - order + 1):i]), token))
               for document in held_out for i, token in enumerate(document))
    assert model.nats(Store(held_out)) == pytest.approx(want, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(train=documents_of_ids.filter(any), context=st.lists(st.integers(0, VOCAB - 1), max_size=6),
       order=st.integers(1, 5))
def test_probabilities_sum_to_one(train: Texts, context: list[int], order: int) -> None:
    model = count_ngrams(Store(train), order=order, vocab=VOCAB, most=10**6)
    places = np.arange(len(context) + 1)
    total = sum(model.probabilities(np.array([*context, token]), places)[-1] for token in range(VOCAB))
    assert total == pytest.approx(1, abs=1e-12)


def test_chunks_change_nothing() -> None:
    random = np.random.default_rng(0)
    train, held_out = ([list(random.integers(0, VOCAB, size)) for size in sizes]
                       for sizes in ((300, 200), (7, 1, 50, 3)))
    model = count_ngrams(Store(train), order=5, vocab=VOCAB, most=10**6)
    whole = model.nats(Store(held_out))
    assert model.nats(Store(held_out), chunk=4) == pytest.approx(whole, rel=1e-12)


def test_only_the_first_training_tokens_are_read_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    train = Store([[0, 1, 2], [3, 4, 3, 4]])
    first = count_ngrams(train, order=2, vocab=VOCAB, most=4)
    assert first.orders[0].keys.tolist() == [0, 1, 2, 3]
    assert first.orders[0].counts.tolist() == [1, 1, 1, 1]
    monkeypatch.setattr(module, "MOST_TOKENS", 4)
    assert "first 4 training tokens" in ngram_baseline("bigram", train, train, order=2, vocab=VOCAB).about


def test_unigram_is_near_the_entropy() -> None:
    random = np.random.default_rng(1)
    chances = [0.5, 0.25, 0.125, 0.0625, 0.0625]
    train, held_out = ([list(random.choice(VOCAB, 20_000, p=chances))] for _ in range(2))
    model: NgramModel = count_ngrams(Store(train), order=1, vocab=VOCAB, most=10**6)
    assert model.nats(Store(held_out)) / 20_000 / math.log(2) == pytest.approx(1.875, abs=0.02)


def test_xz_is_xz() -> None:
    texts = ["abc " * 500, "é" * 100]
    data = "".join(texts).encode()
    want = 8 * len(lzma.compress(data, preset=9)) / len(data)
    assert xz_baseline(texts).bits_per_byte == pytest.approx(want, abs=1e-12)


def test_the_three_baselines_weakest_first() -> None:
    random = np.random.default_rng(2)
    pattern = [0, 1, 2, 3, 4, 4, 3, 1]
    held_out = Store([pattern * 30], bytes=240)
    text = "".join("abcde"[token] for token in random.permutation(pattern * 30))
    found = measure_baselines(Store([pattern * 100]), held_out, [text], vocab=VOCAB)
    assert {baseline.name for baseline in found} == {"unigram", "5-gram", "xz -9"}
    assert [b.bits_per_byte for b in found] == sorted((b.bits_per_byte for b in found), reverse=True)
    assert found[-1].name == "5-gram"
    assert [b.name for b in measure_baselines(held_out, held_out, [text], vocab=VOCAB, kinds=["xz"])] == ["xz -9"]
    with pytest.raises(InputError, match="no held-out text"):
        measure_baselines(Store([pattern]), Store([pattern], bytes=0), [""], vocab=VOCAB)
