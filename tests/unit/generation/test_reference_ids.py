"""The ids are those of the reference library's `generate`, for every option that both have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.generation.models import left_mask, pair, prompt

import saucier
from saucier.model import Transformer

pytest.importorskip("transformers", reason="the reference library is in the test group")

FAMILIES = ("gpt2", "llama", "t5")
GREEDY: dict[str, dict[str, Any]] = {
    "plain": {},
    "repetition": {"repetition_penalty": 1.4},
    "ngram-1": {"no_repeat_ngram_size": 1},
    "ngram-2": {"no_repeat_ngram_size": 2},
    "ngram-3": {"no_repeat_ngram_size": 3},
    "ends": {"eos_token_id": [3, 9, 17, 25, 33]},
    "least": {"eos_token_id": list(range(1, 30)), "min_new_tokens": 5},
    "least-length": {"eos_token_id": list(range(1, 30)), "min_length": 9},
    "forced-end": {"forced_eos_token_id": 7},
    "forced-begin": {"forced_bos_token_id": 7},
    "bad": {"bad_words_ids": [[5], [6], [7, 8], [11, 12, 13]]},
    "suppressed": {"suppress_tokens": [1, 2, 3, 30, 31]},
    "suppressed-first": {"begin_suppress_tokens": list(range(1, 20))},
    "all": {
        "repetition_penalty": 0.8,
        "no_repeat_ngram_size": 2,
        "min_new_tokens": 3,
        "eos_token_id": [4, 5, 6],
        "suppress_tokens": [8],
    },
}
SCORING: dict[str, dict[str, Any]] = {
    f"penalty {penalty}, stopping {early}, {name}": {
        "length_penalty": penalty,
        "early_stopping": early,
        "eos_token_id": ends,
    }
    for penalty in (0.0, 1.0, 2.5, -1.0)
    for early in (False, True, "never")
    for name, ends in {"one end": 9, "many ends": [2, 5, 9, 14, 21, 30]}.items()
}
BEAMS: dict[str, dict[str, Any]] = {
    "plain": {"num_beams": 4},
    "several": {"num_beams": 5, "num_return_sequences": 3, "eos_token_id": 9},
    "two": {"num_beams": 2},
    "constraints": {
        "num_beams": 3,
        "repetition_penalty": 1.3,
        "no_repeat_ngram_size": 2,
        "min_new_tokens": 4,
        "eos_token_id": [9, 5],
    },
    "filled": {"num_beams": 3, "eos_token_id": [9, 5, 14], "pad_token_id": 39},
    "short": {"num_beams": 4, "max_new_tokens": 1, "eos_token_id": 9},
}


@pytest.fixture(scope="module", params=FAMILIES)
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Transformer, Any]:
    folder: Path = tmp_path_factory.mktemp(request.param)
    return pair(request.param, folder)


def check(models: tuple[Transformer, Any], *, padded: bool, options: dict[str, Any]) -> None:
    """Compare the ids of both. Options that transformers takes as lists are tuples for us too."""
    ours, other = models
    ids, mask = prompt(), left_mask() if padded else torch.ones(3, 7, dtype=torch.long)
    ids = ids.masked_fill(mask == 0, 0)
    options = {"max_new_tokens": 14, "pad_token_id": 0} | options
    if ours.config.encoder is not None:
        options["decoder_start_token_id"] = 0
    want = other.generate(ids, attention_mask=mask, do_sample=False, **options)
    got = saucier.generate(ours, ids, mask, **options)
    assert got.dtype == torch.int64
    assert got.tolist() == want.tolist()


@pytest.mark.sampled
@pytest.mark.parametrize("padded", [False, True], ids=["", "padded"])
@pytest.mark.parametrize("options", GREEDY.values(), ids=GREEDY)
def test_greedy(models: tuple[Transformer, Any], options: dict[str, Any], padded: bool) -> None:
    check(models, padded=padded, options=options)


@pytest.mark.sampled
@pytest.mark.parametrize("padded", [False, True], ids=["", "padded"])
@pytest.mark.parametrize("options", BEAMS.values(), ids=BEAMS)
def test_beams(models: tuple[Transformer, Any], options: dict[str, Any], padded: bool) -> None:
    check(models, padded=padded, options=options)


@pytest.mark.sampled
@pytest.mark.parametrize("options", SCORING.values(), ids=SCORING)
def test_scores_and_ends_of_beams(models: tuple[Transformer, Any], options: dict[str, Any]) -> None:
    check(models, padded=False, options={"num_beams": 4, "num_return_sequences": 2} | options)


def test_the_end_tokens_of_these_tests_appear(models: tuple[Transformer, Any]) -> None:
    """Otherwise the tests above would not show what they say."""
    ours, _ = models
    extra = {"decoder_start_token_id": 0} if ours.config.encoder is not None else {}
    begin = 1 if extra else 7
    greedy = saucier.generate(ours, prompt(), max_new_tokens=14, pad_token_id=0, **GREEDY["ends"], **extra)[:, begin:]
    assert bool((greedy == 0).any())
    beams = saucier.generate(
        ours,
        prompt(),
        torch.ones(3, 7),
        max_new_tokens=14,
        num_beams=4,
        eos_token_id=[2, 5, 9, 14, 21, 30],
        pad_token_id=39,
        **extra,
    )
    assert bool((beams == 39).any())


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"top_k": 5}, {"top_p": 0.7, "top_k": 0}, {"temperature": 0.6, "top_k": 12, "top_p": 0.9}],
    ids=["k", "p", "all"],
)
def test_what_is_sampled_from(models: tuple[Transformer, Any], options: dict[str, Any]) -> None:
    """The draws differ, as the generators do; where one token is left there is only one draw."""
    ours, other = models
    extra = {"decoder_start_token_id": 0} if ours.config.encoder is not None else {}
    options = options | {"temperature": 1e-4, "max_new_tokens": 9, "pad_token_id": 0, "do_sample": True} | extra
    want = other.generate(prompt(), attention_mask=torch.ones(3, 7, dtype=torch.long), **options)
    assert saucier.generate(ours, prompt(), **options).tolist() == want.tolist()
