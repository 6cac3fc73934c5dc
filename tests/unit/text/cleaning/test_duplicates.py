"""What stands in a corpus twice: keys, clusters, spans, and the order after shuffling."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from saucier.text.cleaning import corpus as corpus_module
from saucier.text.cleaning import pieces as key_module
from saucier.text.cleaning.cleaner import Tally
from saucier.text.cleaning.config import (
    Cleaning,
    ExactDuplicates,
    FewSentences,
    NearDuplicates,
    RepeatedSpans,
    Rule,
    Shuffle,
    Unshuffled,
)
from saucier.text.cleaning.corpus import write_corpus
from saucier.text.cleaning.page import Page
from saucier.text.cleaning.pieces import (
    KeyPart,
    MinHash,
    Order,
    clean_piece,
    compute_jaccard,
    find_run_starts,
    find_shingles,
    read_sorted_buckets,
)
from saucier.text.reading.sources import find_sources

Cleaned = tuple[Tally, list[Path]]


def corpus(folder: Path, texts: list[list[str]], *given: Rule, order: Shuffle | Unshuffled | None = None) -> Cleaned:
    """Clean lists of documents, a file for each list."""
    cleaning = Cleaning(rules=given, order=order or Unshuffled())
    pieces = []
    for number, documents in enumerate(texts):
        path = folder / f"raw-{number}.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
        pieces.append(folder / f"piece-{number}")
        clean_piece(Order(find_sources([str(path)])[0], cleaning, pieces[-1]))
    return write_corpus(pieces, cleaning, folder / "final", keep_rejected=False)


def texts_of(found: Cleaned) -> list[str]:
    """Return the texts of a corpus in order."""
    return [json.loads(line)["text"] for shard in found[1] for line in shard.read_text().splitlines()]


def words(rng: np.random.Generator, count: int) -> list[str]:
    """Draw words."""
    return [f"w{number}" for number in rng.integers(0, 5000, count)]


def test_equal_documents_are_found_across_files_and_the_first_stays(tmp_path: Path) -> None:
    found = corpus(tmp_path, [["the sauce", "the bread"], ["The  Sauce\n", "the soup", "the bread"]], ExactDuplicates())
    assert texts_of(found) == ["the sauce", "the bread", "the soup"]
    assert found[0].rules["exact_duplicates"].documents == 2
    rejected = [json.loads(line) for line in (tmp_path / "final/rejected/documents.jsonl").read_text().splitlines()]
    assert [record["document"] for record in rejected] == [3, 5]
    assert rejected[1]["reason"] == f"repeats document 2, {tmp_path}/raw-0.jsonl, line 2"


def test_three_sentences_that_come_again_are_removed(tmp_path: Path) -> None:
    shared = "The pot is hot. The sauce is red. The bread is warm."
    found = corpus(tmp_path, [[f"One first. {shared} Two last."], [f"Three begins. {shared} Four ends. Five too.",
                                                                   "The pot is hot. The sauce is red. Six differs."]],
                   RepeatedSpans())
    assert texts_of(found) == [f"One first. {shared} Two last.", "Three begins. Four ends. Five too.",
                               "The pot is hot. The sauce is red. Six differs."]
    assert found[0].rules["repeated_spans"].sentences == 3


def test_too_few_sentences_left_drop_the_document(tmp_path: Path) -> None:
    shared = "The pot is hot. The sauce is red. The bread is warm."
    found = corpus(tmp_path, [[shared, f"{shared} One more. Another."]], FewSentences(), RepeatedSpans())
    assert texts_of(found) == [shared]
    assert found[0].rules["few_sentences"].documents == 1


def test_a_span_of_a_dropped_duplicate_does_not_count(tmp_path: Path) -> None:
    """A text goes where an equal one stays; sentences go only where the first of their kind stays."""
    shared = "The pot is hot. The sauce is red. The bread is warm."
    found = corpus(tmp_path, [[shared, shared]], ExactDuplicates(), RepeatedSpans())
    assert texts_of(found) == [shared]
    assert found[0].rules["repeated_spans"].taken == 0


def test_near_duplicates_are_the_pairs_above_the_similarity(tmp_path: Path) -> None:
    """Against all pairs of a small corpus, compared in plain loops."""
    rng = np.random.default_rng(0)
    texts = []
    for _ in range(30):
        base = words(rng, 120)
        texts.append(" ".join(base))
        for edits in (1, 12):
            other = list(base)
            for place in rng.choice(120, edits, replace=False):
                other[place] = "changed"
            texts.append(" ".join(other))
    rule = NearDuplicates(similarity=0.8, words=3)
    sets = [{tuple(text.split()[place:place + 3]) for place in range(118)} for text in texts]
    first = list(range(len(texts)))
    for left, right in combinations(range(len(texts)), 2):
        if len(sets[left] & sets[right]) >= 0.8 * len(sets[left] | sets[right]):
            first[right] = first[left]
    expected = [text for place, text in enumerate(texts) if first[place] == place]
    assert 30 < len(expected) < 90
    assert texts_of(corpus(tmp_path, [texts[:40], texts[40:]], rule)) == expected


def test_minhash_values_agree_as_often_as_the_jaccard_similarity_says() -> None:
    rng = np.random.default_rng(1)
    base = words(rng, 400)
    left, right = Page(" ".join(base)), Page(" ".join(base[:300] + words(rng, 100)))
    rule = NearDuplicates(words=1, bands=500, rows=4)
    minhash = MinHash(rule)
    agreeing = float((minhash.values(left) == minhash.values(right)).mean())
    similarity = compute_jaccard(find_shingles(left, 1), find_shingles(right, 1))
    assert agreeing == pytest.approx(similarity, abs=3 * (similarity * (1 - similarity) / 2000) ** 0.5)


def test_bands_agree_as_often_as_the_formula_says() -> None:
    rng = np.random.default_rng(2)
    rule = NearDuplicates(words=1, bands=1000, rows=3)
    base = words(rng, 300)
    left, right = Page(" ".join(base)), Page(" ".join(base[:240] + words(rng, 60)))
    similarity = compute_jaccard(find_shingles(left, 1), find_shingles(right, 1))
    minhash = MinHash(rule)
    share = float((minhash.bands(left) == minhash.bands(right)).mean())
    assert share == pytest.approx(similarity ** 3, abs=0.06)


def test_buckets_on_disk_give_the_groups_of_one_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    keys = np.zeros((300, 5), key_module.KEY)
    keys["document"], keys["place"] = np.arange(300)[:, None], np.arange(5)
    keys["key"] = keys["check"] = rng.integers(0, 40, (300, 5)).astype(np.uint64) << np.uint64(56)
    (tmp_path / "keys.bin").write_bytes(keys.tobytes())
    part, dropped = KeyPart(tmp_path / "keys.bin", 0), np.full(300, -1)

    def grouped() -> list[list[int]]:
        return [keys["document"][find_run_starts(keys) == start].tolist()
                for keys in read_sorted_buckets([part], dropped, tmp_path / "scratch")
                for start in np.unique(find_run_starts(keys))]

    whole = grouped()
    assert not (tmp_path / "scratch").exists(), "few keys are sorted in memory"
    monkeypatch.setattr(key_module, "BUCKET", 100)
    assert grouped() == whole
    assert sum(map(len, whole)) == 1500


def test_shuffling_depends_on_the_seed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"document {number}" for number in range(500)]
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    first = texts_of(corpus(folders[0], [texts], order=Shuffle(seed=1)))
    monkeypatch.setattr(corpus_module, "BUCKET", 1000)
    assert texts_of(corpus(folders[1], [texts[:123], texts[123:]], order=Shuffle(seed=1))) == first
    other = texts_of(corpus(folders[2], [texts], order=Shuffle(seed=2)))
    assert sorted(first) == sorted(other) == sorted(texts)
    assert len({tuple(first), tuple(other), tuple(texts)}) == 3
    moved = np.abs(np.argsort([texts.index(text) for text in first]) - np.arange(500)).mean()
    assert moved == pytest.approx(500 / 3, rel=0.15), "the mean way of a random order"
