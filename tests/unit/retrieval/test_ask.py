"""Answers stand in their documents, are told above a threshold alone, and come from a reader where there is one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from lxml import html
from tests.unit.retrieval.hashing import HashingEncoder, write_files

import saucier
from saucier.errors import InputError
from saucier.jobs.knowledge.ask import ask_index, open_reader, read_threshold, tune_index, write_answer
from saucier.jobs.knowledge.index import IndexOptions, index_documents
from saucier.jobs.knowledge.open_index import ONE_HOP, OpenIndex, open_index
from saucier.jobs.knowledge.spans import SpanReader, open_spans
from saucier.retrieval.answers import Piece, SentenceReader, is_right, rank_pieces, tune_threshold
from saucier.retrieval.fusion import Choice, Ranking
from saucier.retrieval.hops import QueryWriters
from saucier.retrieval.hybrid import Hit, SearchOptions
from saucier.retrieval.retriever import open_reranker


@pytest.fixture
def frozen_models(root: Path) -> Path:
    return root / "tests" / "frozen" / "box"


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> OpenIndex:
    folder = tmp_path_factory.mktemp("ask")
    write_files(folder / "docs", 30)
    (folder / "docs" / "bell.md").write_text(
        "# Who invented the telephone\n\nIt is a long story. Alexander Bell invented the telephone in 1876. Others "
        "came later.\n")
    index_documents([str(folder / "docs")], folder / "idx", None, IndexOptions(), encoder=HashingEncoder())
    return open_index(folder / "idx", encoder=HashingEncoder())


@pytest.mark.slow
def test_the_answer_is_a_sentence_with_its_place(opened: OpenIndex) -> None:
    found = ask_index(opened, open_reader(opened, None), "Who invented the telephone?", 5)
    assert found.answer == "Alexander Bell invented the telephone in 1876."  # the heading asks, and is no answer
    first = found.evidence[0]
    text = Path(first.hit.path).read_text()
    assert text[first.start:first.stop] == found.answer == first.sentence and first.before == ""
    assert first.hit.section == "Who invented the telephone"
    encoder = HashingEncoder()
    near = float(np.dot(*encoder.embed(["Who invented the telephone?", found.answer])))
    assert first.steps["sentence"] == pytest.approx(near)
    assert first.steps["shared words"] == pytest.approx(2 / 3)  # all but "who"
    assert first.score == pytest.approx((near + 2 / 3) / 2)
    assert len({(one.hit.path, one.start) for one in found.evidence}) == len(found.evidence) == 3
    assert "no threshold was tuned" in found.remarks()[0]
    assert "[Alexander Bell invented the telephone in 1876.]" in repr(found)


def test_what_is_not_there_is_not_told(opened: OpenIndex, tmp_path: Path) -> None:
    questions = [{"question": f"What is the code of number{n}?", "answers": [f"AX-{1000 + n}"]} for n in range(10)]
    questions += [{"question": f"Why do {word} sing?", "answers": []} for word in ("birds", "kings", "whales", "stars")]
    file = tmp_path / "questions.jsonl"
    file.write_text("\n".join(map(json.dumps, questions)))
    reader = open_reader(opened, None)
    tuned = tune_index(opened, reader, str(file), 5)
    assert tuned.threshold == read_threshold(opened.path, reader.name)
    assert (tuned.threshold.questions, tuned.threshold.unanswerable) == (14, 4)
    answers = [ask_index(opened, reader, one["question"], 5) for one in questions]
    dealt = [(is_right(found.answer, one["answers"]) if found.answer else False) if one["answers"]
             else found.answer is None for one, found in zip(questions, answers, strict=True)]
    assert tuned.threshold.accuracy == pytest.approx(sum(dealt) / 14) and tuned.threshold.accuracy > 4 / 14
    silent = answers[-1]
    assert silent.answer is None and silent.evidence and "not in these documents" in repr(silent)
    assert silent.remarks() == []
    (opened.path / "thresholds.json").unlink()


@dataclass(frozen=True)
class Boaster:
    """A reader that finds the first word of every chunk, and likes late chunks a little better."""

    name = "boaster"

    def read(self, question: str, hits: Sequence[Hit]) -> list[Piece]:
        return [Piece(hit, 0, len(hit.text.split()[0]), 0.01 * place) for place, hit in enumerate(hits)][::-1]


def test_the_search_has_a_say_where_that_is_better(opened: OpenIndex, tmp_path: Path) -> None:
    """The reader alone takes the last chunk; what is tuned takes the first, whose search score is added."""
    asked = [f"What is the code of number{number}?" for number in range(10)]
    found = [opened.search(one, SearchOptions(count=5)).hits for one in asked]
    firsts = [hits[0].text.split()[0] for hits in found]
    questions = [{"question": one, "answers": [first]} for one, first in zip(asked, firsts, strict=True)]
    file = tmp_path / "questions.jsonl"
    file.write_text("\n".join(map(json.dumps, [*questions, {"question": "Why do whales sing?", "answers": []}])))
    tuned = tune_index(opened, Boaster(), str(file), 5)
    weight = tuned.threshold.search_weight
    assert weight > 0 and tuned.right == 10 and f"the weight {weight:g}" in repr(tuned)
    answer = ask_index(opened, Boaster(), asked[0], 5)
    best = answer.evidence[0]
    assert best.hit.id == found[0][0].id and best.steps["search"] == pytest.approx(weight * best.hit.score)
    pieces = Boaster().read(asked[0], found[0])
    expected = sorted((0.01 * place + weight * hit.score for place, hit in enumerate(found[0])), reverse=True)
    assert [one.score for one in rank_pieces(pieces, weight)] == pytest.approx(expected)
    assert [one.score for one in rank_pieces(pieces, 0.0)] == pytest.approx([0.04, 0.03, 0.02, 0.01, 0.0])
    (opened.path / "thresholds.json").unlink()


def test_a_threshold_is_the_best_of_all() -> None:
    draw = np.random.default_rng(2)
    scores = draw.normal(size=60)
    answerable = draw.random(60) < 0.6
    right = answerable & (draw.random(60) < 0.8)

    def share(least: float) -> float:
        return float(np.where(answerable, right & (scores >= least), scores < least).mean())

    found = tune_threshold(scores.tolist(), right.tolist(), answerable.tolist())
    assert found.accuracy == pytest.approx(max(share(least) for least in [-9, *(scores + 1e-9), 9]))
    assert share(found.least) == pytest.approx(found.accuracy)
    for some, missing in ((True, "without"), (False, "with")):
        with pytest.raises(InputError, match=f"no questions {missing} an answer"):
            tune_threshold([1.0, 2.0], [True, True], [some, some])
    assert is_right("It was the Alexander Bell!", ["alexander bell"]) and not is_right("Isabella", ["Bell"])


def test_a_reader_takes_the_best_piece_of_all_hits(frozen_models: Path, tmp_path: Path) -> None:
    """Documents indexed and asked by models from folders, by the public functions; pieces as `predict` gives them."""
    docs = tmp_path / "docs"
    docs.mkdir()
    for number, text in enumerate(("the cook is fine and the soup is sour", "a guest is lovely", "soup soup soup")):
        (docs / f"{number}.txt").write_text(text)
    model, reader = frozen_models / "tasks/embedding/model", frozen_models / "tasks/question_answering"
    report = saucier.index(docs, out=tmp_path / "idx", model=model)
    assert report.facts.chunks == 3
    found = saucier.ask(tmp_path / "idx", "the cook is", reader=reader)
    app = saucier.open(reader)
    assert isinstance(open_reader(open_index(tmp_path / "idx"), str(reader)), SpanReader)
    told = {Path(one.hit.path): one for one in found.evidence}
    assert found.answer == found.evidence[0].answer and len(told) == 3
    for path, one in told.items():
        text = path.read_text()
        assert text[one.start:one.stop] == one.answer
        pieces = app("the cook is", text).scores
        assert one.answer == max((piece for piece in pieces if piece), key=lambda piece: pieces[piece])
        assert one.steps["reader"] == one.score
    assert [one.score for one in found.evidence] == sorted((one.score for one in found.evidence), reverse=True)
    again = saucier.index(docs, out=tmp_path / "idx")
    assert (again.read, again.unchanged) == (0, 3)
    hits = saucier.search(tmp_path / "idx", "sour soup", count=1).hits
    assert hits[0].path == str(docs / "0.txt")
    reading = {"sentences": True, "reranker": frozen_models / "tasks/multiple_choice/model"}
    read = saucier.search(tmp_path / "idx", "sour soup", **reading).hits
    before, logits, both = (np.array([[hit.steps[name] for hit in read]])
                            for name in ("by sentences", "reranker", "reranked"))
    places = np.arange(len(read))[None]
    np.testing.assert_allclose(both, (Ranking(before, places).comparable() + Choice(logits, places).comparable()) / 2)
    assert open_reranker(frozen_models / "tasks/classification/model").kind is Ranking, "it judges each text by itself"
    by_kernels = saucier.search(tmp_path / "idx", "sour soup", **reading, reranker_format="float32").hits
    np.testing.assert_allclose([hit.steps["reranker"] for hit in by_kernels], logits[0], atol=1e-4)
    steps = read[0].steps
    assert [*steps][-4:] == ["sentence", "by sentences", "reranker", "reranked"]
    assert [*saucier.ask(tmp_path / "idx", "sour soup", sentences=True).hits[0].steps][-2:] == [*steps][-4:-2]
    with pytest.raises(InputError, match="takes no answers from texts"):
        saucier.ask(tmp_path / "idx", "the cook is", reader=frozen_models / "tasks/classification")
    with pytest.raises(InputError, match="one of both is needed"):
        saucier.ask(tmp_path / "idx")
    with pytest.raises(InputError, match="has no embedding head"):
        saucier.index(docs, out=tmp_path / "new", model=frozen_models / "models/bert")
    assert not (tmp_path / "new").exists()


def test_an_encoder_with_other_weights_is_refused(frozen_models: Path, tmp_path: Path) -> None:
    import shutil

    from safetensors.torch import load_file, save_file

    docs = write_files(tmp_path / "docs", 2)[0].parent
    model = shutil.copytree(frozen_models / "tasks/embedding/model", tmp_path / "model")
    saucier.index(docs, out=tmp_path / "idx", model=model)
    moved = shutil.copytree(model, tmp_path / "moved")
    assert saucier.search(tmp_path / "idx", "river", model=moved).hits, "the same content in another place"
    weights = next(model.glob("**/model.safetensors"))
    values = load_file(weights)
    name = next(iter(values))
    save_file(values | {name: values[name] + 0.01}, weights, metadata={"format": "pt"})
    for call in (lambda: saucier.search(tmp_path / "idx", "river"), lambda: saucier.index(docs, out=tmp_path / "idx")):
        with pytest.raises(InputError, match="was made by another encoder") as fault:
            call()
        assert "\n" not in str(fault.value)


def test_sentences_are_without_their_heading(opened: OpenIndex) -> None:
    hit = opened.search("who invented the telephone", saucier_options()).hits[0]
    pieces = SentenceReader(opened.encoder).read("who invented the telephone", [hit])
    assert len(pieces) == 1 and pieces[0].text.startswith("Alexander")


def saucier_options():
    from saucier.retrieval.hybrid import SearchOptions

    return SearchOptions(count=1)


@pytest.fixture(scope="module")
def chained(tmp_path_factory: pytest.TempPathFactory) -> OpenIndex:
    """The answer stands in a document that shares no word with the question; the first one found names it."""
    folder = tmp_path_factory.mktemp("hops")
    write_files(folder / "docs", 30)
    (folder / "docs" / "band.txt").write_text("The song <Sensation> was recorded by Velvetine & Sons for the label.")
    (folder / "docs" / "label.txt").write_text("Velvetine signed a contract with Brightside in spring.")
    index_documents([str(folder / "docs")], folder / "idx", None, IndexOptions(), encoder=HashingEncoder())
    return replace(open_index(folder / "idx", encoder=HashingEncoder()), writers=QueryWriters.plain(2))


def test_a_second_hop_asks_for_the_names_that_the_first_found(chained: OpenIndex) -> None:
    question = "who recorded the song sensation"
    one = replace(chained, writers=ONE_HOP).search(question, SearchOptions(count=4))
    assert "label.txt" not in [Path(hit.path).name for hit in one.hits] and len(one.hops) == 1
    found = chained.search(question, SearchOptions(count=4))
    assert [hop.query for hop in found.hops] == [question, f"{question} Velvetine Sons"]
    assert [len(hop.found) for hop in found.hops] == [2, 2]
    assert [hit.id for hit in found.hits] == [name for hop in found.hops for name in hop.found]
    assert [hit.id for hit in found.hits[:2]] == [hit.id for hit in one.hits[:2]]
    assert Path(found.hits[2].path).name == "label.txt"
    again = replace(chained, writers=ONE_HOP).search(found.hops[1].query, SearchOptions(count=4))
    assert found.hits[2].steps == next(hit.steps for hit in again.hits if hit.id == found.hits[2].id)
    assert "hop 2: who recorded the song sensation Velvetine Sons" in repr(found)
    with pytest.raises(InputError, match="for 2 hops"):
        chained.search(question, SearchOptions(count=1))


def test_an_answer_is_a_page_that_needs_nothing_else(chained: OpenIndex, tmp_path: Path) -> None:
    found = ask_index(chained, open_reader(chained, None), "who recorded <Sensation>?", 6)
    assert found.hops and len(found.hits) == 6
    written = write_answer(found, tmp_path / "answer.html")
    assert written.file == tmp_path / "answer.html" and str(written.file) in repr(written)
    page = written.file.read_text()
    tree = html.document_fromstring(page)
    assert tree.findtext(".//h1") == "who recorded <Sensation>?"
    marks = [one.text_content() for one in tree.iter("mark")]
    assert marks == [one.answer for one in found.evidence] and marks[0].startswith("The song <Sensation>")
    whole = [one.text_content() for one in tree.iter("pre")]
    assert whole == [one.hit.text for one in found.evidence], "the chunk is shown as it is, around its mark"
    feet = " ".join(one.text_content() for one in tree.iter("footer"))
    assert "band.txt, characters 0–" in feet and "shared words" in feet and "fused" in feet and "hop 1" in feet
    assert len(tree.xpath("//tbody/tr")) == 6
    assert "default-src 'none'" in page and not tree.xpath("//script|//img|//link|//*[@src]|//*[@href]")


def test_hops_by_a_trained_writer_and_what_is_refused(frozen_models: Path, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for number, text in enumerate(("the cook is fine and the soup is sour", "a guest is lovely", "soup soup soup")):
        (docs / f"{number}.txt").write_text(text)
    model, writer = frozen_models / "tasks/embedding/model", frozen_models / "tasks/question_answering"
    saucier.index(docs, out=tmp_path / "idx", model=model)
    found = saucier.search(tmp_path / "idx", "the cook is", count=2, hops=2, query_writers=writer)
    assert len(found.hops) == 2 and [len(hop.found) for hop in found.hops] == [1, 1]
    piece = open_spans(str(writer)).write(["the cook is"], [f"the cook is\n{found.hits[0].text}"])[0]
    assert piece and [hop.query for hop in found.hops] == ["the cook is", f"the cook is {piece}"]
    index = tmp_path / "idx"
    for call, wrong in ((lambda: saucier.search(index, "soup", hops=3, count=2), "3 for 2 chunks"),
                        (lambda: saucier.search(index, "soup", hops=2, query_writers=[writer] * 2), "2 with --hops 2"),
                        (lambda: saucier.ask(index, "soup", out=tmp_path / "a.txt"), "no page of an answer"),
                        (lambda: saucier.search(index, "soup", reranker=model), "scores no pairs"),
                        (lambda: saucier.search(index, "soup", reread=5), "--reread: nothing reads again"),
                        (lambda: saucier.search(index, "soup", reranker_format="int8"), "--reranker-format: there is"),
                        (lambda: saucier.ask(index, "soup", sentences=True, reranker_weight=0.2), "no reranker"),
                        (lambda: saucier.search(index, "soup", hops=2, query_writers=model), "answers|task|texts")):
        with pytest.raises(InputError, match=wrong) as fault:
            call()
        assert "\n" not in str(fault.value)
