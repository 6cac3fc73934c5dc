"""Search finds by words, by vectors and by exact codes, and shows the score of each step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.unit.retrieval.hashing import HashingEncoder, write_files

from saucier.errors import InputError
from saucier.jobs.knowledge.index import IndexOptions, index_documents
from saucier.jobs.knowledge.open_index import OpenIndex, open_index
from saucier.retrieval.fusion import Ranking, fuse_scores
from saucier.retrieval.hybrid import (
    BestSentence,
    Rereading,
    SearchOptions,
    choose_diverse,
    find_codes,
    merge_copies,
    share_of_codes,
)
from saucier.retrieval.store import MemoryStore

OPTIONS = SearchOptions(count=5)


@pytest.fixture(scope="module", params=["disk", "memory"])
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> OpenIndex:
    folder = tmp_path_factory.mktemp("search")
    write_files(folder / "docs", 40)
    copied = (folder / "docs" / "f0007.txt").read_text()
    (folder / "docs" / "copy.txt").write_text(copied.replace(".", " !").upper())
    (folder / "docs" / "table.csv").write_text("part,price\nAX-1017/b,3\nBX-1017,4\n")
    index_documents([str(folder / "docs")], folder / "idx", None, IndexOptions(), encoder=HashingEncoder())
    found = open_index(folder / "idx", encoder=HashingEncoder())
    if request.param == "disk":
        return found
    return OpenIndex(found.path, MemoryStore(found.store.read_rows()), found.encoder)  # type: ignore[attr-defined]


def names(result) -> list[str]:
    return [Path(hit.path).name for hit in result.hits]


def test_exact_codes_come_first(opened: OpenIndex) -> None:
    for number in (3, 18, 38):
        found = opened.search(f"What is running in ax-{1000 + number}?", OPTIONS)
        assert names(found)[0] == f"f{number:04}.txt" and found.hits[0].steps["codes"] == 1
        assert found.hits[1].steps["codes"] < 1
    assert names(opened.search("price of AX-1017/b", OPTIONS))[0] == "table.csv"
    assert opened.search('"code is AX-1021"', OPTIONS).hits[0].path.endswith("f0021.txt")


def test_copies_are_merged_and_other_numbers_are_no_copies(opened: OpenIndex) -> None:
    found = opened.search("number7 about the lamp AX-1007", SearchOptions(count=40))
    first = [names(found)[0], *(Path(one).name for one in found.hits[0].copies)]
    assert sorted(first) == ["copy.txt", "f0007.txt"]
    assert len(found.hits) == 40 and all(not hit.copies for hit in found.hits[1:])


def test_conditions_and_places(opened: OpenIndex) -> None:
    found = opened.search("part price", OPTIONS, 'kind = "table"')
    assert [(hit.line, hit.start, hit.stop, hit.text) for hit in sorted(found.hits, key=lambda hit: hit.start)] == [
        (2, 0, 24, "part: AX-1017/b\nprice: 3"), (3, 25, 47, "part: BX-1017\nprice: 4")]
    assert found.searched == 2
    assert opened.search("part price", OPTIONS, 'path ~ "no such"').hits == ()
    assert "nothing found in 0 chunks" in repr(opened.search("part price", OPTIONS, 'path ~ "no such"'))
    with pytest.raises(InputError, match="question: is empty"):
        opened.search("  ", OPTIONS)
    shown = repr(found)
    assert "table.csv, line 2, characters 0–24" in shown and "(vectors 0." in shown
    assert opened.search("word " * 100, OPTIONS).cut == 40


def test_steps_make_the_score(opened: OpenIndex) -> None:
    found = opened.search("running water in the river", SearchOptions(count=100))
    near, words = (np.array([hit.steps[name] for hit in found.hits]) for name in ("vectors", "words"))
    rows = {row["id"]: row["vector"] for row in opened.store.read_rows().to_pylist()} if hasattr(
        opened.store, "read_rows") else {row["id"]: row["vector"] for row in opened.store.rows.to_pylist()}
    question = HashingEncoder().embed(["running water in the river"])[0]
    assert np.allclose(near, [np.dot(rows[hit.id], question) for hit in found.hits], atol=1e-6)
    assert (np.diff([hit.score for hit in found.hits]) <= 1e-9).all()
    one, two = (Ranking(side[None], np.arange(len(near))[None]) for side in (near, words))
    order = fuse_scores(one, two, 0.5)
    apart = np.abs(np.array([hit.score for hit in found.hits]) - order.scores[0])
    assert apart.max() < 0.2  # the copy that was merged counted in the mean and the spread
    ranks = opened.search("running water in the river", SearchOptions(count=9, fusion="ranks"))
    assert 1 / 61 < ranks.hits[0].score <= 2 / 61


def test_feedback_asks_for_the_first_hits_too(opened: OpenIndex) -> None:
    """What it adds is what each chunk gains in a search for these hits' own texts, in the mean."""
    question, all_of_them = "running water in the river", SearchOptions(count=100)
    plain = opened.search(question, replace(all_of_them, count=2)).hits
    found = opened.search(question, replace(all_of_them, feedback=2)).hits
    again = [{hit.id: hit.steps["fused"] for hit in opened.search(one.text, all_of_them).hits} for one in plain]
    for hit in found:
        assert hit.score == pytest.approx(hit.steps["fused"] + 0.75 * hit.steps["feedback"])
    both = [(np.mean([side[hit.id] for side in again]), hit.steps["feedback"]) for hit in found
            if all(hit.id in side for side in again)]
    assert len(both) > 20
    assert np.abs(np.diff(both)).max() < 0.3  # candidates of all searches, and a merged copy, are in mean and spread
    assert np.corrcoef(np.array(both).T)[0, 1] > 0.99
    assert (np.diff([hit.score for hit in found]) <= 1e-9).all()


def test_codes_of_questions() -> None:
    assert find_codes('What does error E-1042 say in "Main Road" on page 7 (v1.2.3)?') == [
        "e-1042", "main road", "v1.2.3"]
    assert share_of_codes(["e-1042", "77"], "see E-1042; 177") == 0.5
    assert merge_copies(["a b c d e f g h i j", "j i h g f e d c b a", "a b c d e f g h i 1"])[1] == {0: [1], 2: []}


def test_diversity_is_that_of_the_definition() -> None:
    draw = np.random.default_rng(0)
    vectors, scores = draw.standard_normal((12, 4)), np.sort(draw.random(12))[::-1]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    worth = (scores - scores.min()) / np.ptp(scores)
    chosen: list[int] = []
    for _ in range(6):
        def gain(place: int) -> float:
            return 0.6 * worth[place] - 0.4 * max([0.0, *(float(unit[place] @ unit[one]) for one in chosen)])

        chosen.append(max((place for place in range(12) if place not in chosen), key=gain))
    assert choose_diverse(scores, vectors, SearchOptions(count=6, diversity=0.4)) == chosen
    assert choose_diverse(scores, vectors, SearchOptions(count=6)) == list(range(6))


def test_another_encoder_and_no_index_are_refused(opened: OpenIndex, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="made by another encoder"):
        open_index(opened.path, encoder=HashingEncoder(seed=3))
    with pytest.raises(InputError, match="is no index"):
        open_index(tmp_path)


def test_the_first_are_read_again_and_both_scores_count(opened: OpenIndex) -> None:
    """Against the definition: standardised scores of the search and of reading, over the chunks that are read."""
    question = "stone and river"
    plain = opened.search(question, SearchOptions(count=12)).hits
    pairs = list[tuple[str, str]]()

    def score(questions: list[str], texts: list[str]) -> np.ndarray:
        pairs.extend(zip(questions, texts, strict=True))
        return np.array([float(text.count("7")) + len(text) / 1000 for text in texts])

    for weight in (0.0, 0.3, 1.0):
        pairs.clear()
        reading = replace(opened, rereadings=(Rereading(score, 12, weight),))
        found = reading.search(question, SearchOptions(count=5)).hits
        assert pairs == [(question, hit.text) for hit in plain]
        first, again = (np.array(values) for values in ([hit.steps["fused"] for hit in plain],
                                                        score([question] * 12, [hit.text for hit in plain])))
        both = (1 - weight) * (first - first.mean()) / first.std() + weight * (again - again.mean()) / again.std()
        order = np.argsort(-both, kind="stable")[:5]
        assert [hit.id for hit in found] == [plain[place].id for place in order]
        np.testing.assert_allclose([hit.score for hit in found], both[order], rtol=1e-6)
        np.testing.assert_allclose([hit.steps["reranker"] for hit in found], again[order], rtol=1e-6)
    coded = replace(opened, rereadings=(Rereading(score, 12, 1.0),)).search("ax-1003", OPTIONS).hits
    assert coded[0].path.endswith("f0003.txt"), "a code that stands there comes first still"


def test_the_best_sentence_of_a_text_is_that_of_its_question() -> None:
    encoder = HashingEncoder()
    texts = ["The lamp is new. A stone fell.", "no end of a sentence", "", "Cloud! Stone, lamp? Paper."]
    questions = ["stone lamp", "end", "lamp", "stone lamp"]
    cut = [["The lamp is new.", "A stone fell."], texts[1:2], [""], ["Cloud!", "Stone, lamp?", "Paper."]]
    expected = [max(float(encoder.embed([question])[0] @ one) for one in encoder.embed(some))
                for question, some in zip(questions, cut, strict=True)]
    np.testing.assert_allclose(BestSentence(encoder).score(questions, texts), expected, rtol=1e-6)
    assert BestSentence(encoder).score([], []).shape == (0,)


def test_readings_come_one_after_the_other(opened: OpenIndex) -> None:
    """The second one adds to what the first one made of the search, over the same chunks."""
    def by_length(_: list[str], texts: list[str]) -> np.ndarray:
        return np.array([float(len(text)) for text in texts])

    question = "stone and river"
    first = Rereading.by_sentences(opened.encoder, 9)
    alone = replace(opened, rereadings=(first,)).search(question, SearchOptions(count=9)).hits
    found = replace(opened, rereadings=(first, Rereading(by_length, 9, 0.25))).search(
        question, SearchOptions(count=9)).hits
    assert [*found[0].steps][-4:] == ["sentence", "by sentences", "reranker", "reranked"]
    assert [hit.score for hit in alone] == [hit.steps["by sentences"] for hit in alone]
    scores, lengths = np.array([hit.score for hit in alone]), by_length([], [hit.text for hit in alone])
    both = 0.75 * (scores - scores.mean()) / scores.std() + 0.25 * (lengths - lengths.mean()) / lengths.std()
    order = np.argsort(-both, kind="stable")
    assert [hit.id for hit in found] == [alone[place].id for place in order]
    np.testing.assert_allclose([hit.score for hit in found], both[order], rtol=1e-6)


def test_fewer_kept_texts_are_the_first_of_all_and_have_the_same_copies() -> None:
    draw = np.random.default_rng(5)
    texts = [" ".join(draw.permutation([f"w{n}" for n in range(20)] + ["x", "y"])[:20]) for _ in range(30)]
    texts += [texts[3].replace("w1 ", "w1  ") for _ in range(3)] + ["a code 7", "a code 8", "a code 7!"]
    kept, copies = merge_copies(texts)
    for most in (1, 2, 5):
        assert merge_copies(texts, most) == (kept[:most], {one: copies[one] for one in kept[:most]})
