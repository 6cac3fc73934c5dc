"""A vocabulary map: what it counts, what it bars, and what it leaves as it is."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tolerances import PART, assert_close
from tests.unit.generation.test_native import draw, golden
from tests.unit.generation.test_native_pairs import OPTIONS, draw_sources

import saucier
from saucier.errors import InputError
from saucier.generation import Native, VocabularyMap, build_vocabulary_map, load_vocabulary_map
from saucier.generation.native_feed import make_native_feed
from saucier.generation.rules import Prompt

VOCAB = 120


def make_map(path: Path, *, each: int = 6, always: int = 9, target_vocab: int = VOCAB) -> Path:
    """A map of random lists."""
    random = np.random.default_rng(0)
    lists = [np.sort(random.choice(target_vocab, each, replace=False)) for _ in range(VOCAB)]
    VocabularyMap(target_vocab, np.sort(random.choice(target_vocab, always, replace=False)),
                  np.arange(VOCAB + 1) * each, np.concatenate(lists)).save(path)
    return path


def read_first(name: str, path: Path | None, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The scores of the first token [B, V]."""
    model = golden(name)
    engine = Native(vocabulary_map=None if path is None else str(path))
    with torch.inference_mode():
        prompt = Prompt(torch.zeros(len(ids), 1, dtype=torch.long), source=ids, source_mask=mask)
        return make_native_feed(model, prompt, engine, copies=1, capacity=4)(None)


def test_counts_are_the_definition() -> None:
    random = np.random.default_rng(1)
    pairs = [(random.integers(0, 12, random.integers(1, 6)).tolist(), random.integers(0, 15, 5).tolist())
             for _ in range(60)]
    found = build_vocabulary_map(iter(pairs), source_vocab=13, target_vocab=16, frequent=3, each=4, always=[15])
    sources = Counter(token for source, _ in pairs for token in set(source))
    targets = Counter(token for _, target in pairs for token in set(target))
    together = Counter((s, t) for source, target in pairs for s in set(source) for t in set(target))
    always = set(sorted(targets, key=lambda token: (-targets[token], token))[:3]) | {15}
    assert set(found.always) == always
    for token in range(13):
        closest = sorted((t for t in range(16) if together[token, t] and t not in always), key=lambda t: (
            -together[token, t] / math.sqrt(sources[token] * targets[t]), t))[:4]
        assert set(found.find_candidates(np.array([token]))) == always | set(closest)


def test_only_candidates_may_be_written_and_their_scores_stay(tmp_path: Path) -> None:
    path, (ids, mask) = make_map(tmp_path / "map.safetensors"), draw_sources()
    found = load_vocabulary_map(path)
    for name in ("bart", "t5"):  # with a bias on the scores, and without
        limited, whole = read_first(name, path, ids, mask), read_first(name, None, ids, mask)
        for row in range(3):
            candidates = found.find_candidates(ids[row][mask[row].bool()].numpy())
            assert set(torch.isfinite(limited[row]).nonzero().ravel().tolist()) == set(candidates)
            assert_close(limited[row, candidates], whole[row, candidates], PART)


def test_a_source_is_translated_in_company_as_alone(tmp_path: Path) -> None:
    model, (ids, mask) = golden("marian"), draw_sources()
    engine = Native(vocabulary_map=str(make_map(tmp_path / "map.safetensors")))
    for options in ({}, {"num_beams": 3}, {"do_sample": True, "seed": 1, "num_return_sequences": 2}):
        together = saucier.generate(model, ids, mask, engine=engine, **OPTIONS, **options)
        if "seed" not in options:
            alone = [saucier.generate(model, ids[row:row + 1, :length], engine=engine, **OPTIONS, **options)
                     for row, length in enumerate((9, 6, 2))]
            assert torch.equal(together, torch.cat(alone))
        for row, written in enumerate(together):
            source = row * 3 // len(together)
            may = load_vocabulary_map(engine.vocabulary_map).find_candidates(ids[source][mask[source].bool()].numpy())
            assert set(written[1:-1].tolist()) <= set(may)  # the last one is forced by the model's settings


def test_a_map_of_all_tokens_changes_nothing(tmp_path: Path) -> None:
    VocabularyMap(VOCAB, np.arange(VOCAB), np.zeros(VOCAB + 1, np.int64), np.zeros(0, np.int64)).save(tmp_path / "all")
    model, (ids, mask) = golden("t5"), draw_sources()
    for form in ("float32", "int8"):
        both = [saucier.generate(model, ids, mask, engine=engine, num_beams=4, **OPTIONS)
                for engine in (Native(format=form, vocabulary_map=str(tmp_path / "all")), Native(format=form))]
        assert torch.equal(*both)


def test_bad_maps_and_calls(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no map")
    other, (ids, mask) = make_map(tmp_path / "other", target_vocab=99), draw_sources()
    for path, what in (("missing", "no vocabulary map: No such file"), ("text", "no vocabulary map: "),
                       (other.name, "a map of 120 source and 99 target tokens, and the model has 120 and 120")):
        with pytest.raises(InputError, match=what):
            saucier.generate(golden("t5"), ids, mask, engine=Native(vocabulary_map=str(tmp_path / path)), **OPTIONS)
    with pytest.raises(InputError, match="for models that write from a source"):
        saucier.generate(golden("gpt2"), draw(1, 4), engine=Native(vocabulary_map=str(other)), **OPTIONS)
    for pairs, what in (([], "no pairs"), ([([1], [9])], "a target has token 9, and the vocabulary 5"),
                        ([([-1], [2])], "a source has token -1")):
        with pytest.raises(InputError, match=what):
            build_vocabulary_map(pairs, source_vocab=5, target_vocab=5)
    for starts in ([0, 1, 3], [1, 2], [0, 2, 1, 2], []):
        with pytest.raises(InputError, match="do not fit together"):
            VocabularyMap(9, np.array([1]), np.array(starts, np.int64), np.array([2, 3]))
    with pytest.raises(InputError, match="names token 12 of 9"):
        VocabularyMap(9, np.array([1]), np.array([0, 1]), np.array([12]))
