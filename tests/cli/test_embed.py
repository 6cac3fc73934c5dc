"""Vectors of files from the command line: in order, with all that the rows hold, and nothing half written."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet
from tests.cli.conftest import Saucier, rhymes

import saucier as library
from saucier import config as c
from saucier.families import bert
from saucier.jobs import vectors
from saucier.text.config import WordPiece
from saucier.text.tokenizer.training import train_tokenizer

WIDTH, LENGTH = 32, 12


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small model with an embedding head and a tokenizer."""
    place = tmp_path_factory.mktemp("vectors") / "model"
    tree = bert(dim=WIDTH, layers=1, heads=2, vocab=60, length=16).model_copy(update={
        "head": c.EmbeddingHead(pooling=(c.Pooling(kind="mean"),), normalize=True, length=LENGTH), "pooler": None})
    library.build(tree, seed=1).save(place)
    train_tokenizer(WordPiece(vocab=60), rhymes(60).splitlines()).save(place)
    return place


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Return a file of eight rows, of other lengths, with numbers beside their texts."""
    path = tmp_path / "rows.jsonl"
    texts = [" and ".join(rhymes(9).splitlines()[:1 + number % 3]) for number in (2, 0, 1, 2, 2, 0, 0, 1)]
    path.write_text("".join(json.dumps({"id": number, "body": text, "note": "x" if number % 2 else None}) + "\n"
                            for number, text in enumerate(texts)), encoding="utf-8")
    return path


def read_texts(path: Path) -> list[str]:
    return [json.loads(line)["body"] for line in path.read_text(encoding="utf-8").splitlines()]


def test_every_row_gets_its_vector_in_its_place(saucier: Saucier, model: Path, rows: Path, tmp_path: Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """Three blocks are written one after the other; the three forms hold the same numbers."""
    monkeypatch.setattr(vectors, "BLOCK", 3)
    expected = library.embed(model, read_texts(rows)).numpy()
    for ending in vectors.WRITERS:
        answer = saucier("embed", model, rows, "--column", "body", "--out", tmp_path / f"made{ending}")
        assert (answer.code, answer.out.split()[:5]) == (0, ["8", "vectors", "of", str(WIDTH), "numbers"]), answer.err
    array = np.load(tmp_path / "made.npy", allow_pickle=False)
    assert array.dtype == np.float32
    np.testing.assert_allclose(array, expected, atol=1e-6)
    lines = [json.loads(line) for line in (tmp_path / "made.jsonl").read_text(encoding="utf-8").splitlines()]
    assert np.array_equal(np.array([one.pop("vector") for one in lines], np.float32), array)
    assert lines == [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    table = parquet.read_table(tmp_path / "made.parquet")
    assert table.schema.field("vector").type == pyarrow.list_(pyarrow.float32(), WIDTH)
    assert np.array_equal(np.array(table["vector"].to_pylist(), np.float32), array)
    assert table["id"].to_pylist() == list(range(8))
    assert table["note"].to_pylist() == [None, "x"] * 4


def test_lines_and_texts_are_read_one_after_the_other(saucier: Saucier, model: Path, tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    file = tmp_path / "lines.txt"
    file.write_text("the cook stirs milk\n\n  a guest tastes soup  \n", encoding="utf-8")
    answer = saucier("embed", model, file, "--text", "the cat", "--json")
    assert answer.code == 0, answer.err
    assert "1 empty lines skipped" in answer.err
    found = [json.loads(line) for line in answer.out.splitlines()]
    assert [one["text"] for one in found] == ["the cook stirs milk", "a guest tastes soup", "the cat"]
    expected = library.embed(model, [one["text"] for one in found])
    np.testing.assert_allclose([one["vector"] for one in found], expected, atol=1e-6)


def test_a_person_sees_which_other_text_is_nearest(saucier: Saucier, model: Path) -> None:
    texts = ["the cook stirs milk", "a guest tastes soup", "the cook stirs the milk"]
    answer = saucier("embed", model, *(word for one in texts for word in ("--text", one)))
    found = library.embed(model, texts)
    for place, line in enumerate(answer.out.splitlines()[1:4]):
        cosines = found[place] @ found.T
        cosines[place] = -1
        assert f"…  {texts[int(cosines.argmax())]} " in line
        assert f"{float(cosines.max()):.3f}" in line
    alone = saucier("embed", model, "--text", "the cook").out
    assert "nearest" not in alone
    assert "1 text, 32 numbers each" in alone


def test_from_python_vectors_come_back(model: Path, rows: Path) -> None:
    found = library.embed_files(model, rows, column="body", texts="the cat")
    assert found.vectors is not None
    assert (found.count, found.width, found.vectors.shape, found.path) == (9, WIDTH, (9, WIDTH), None)
    assert [row.text for row in found.rows] == [*read_texts(rows), "the cat"]
    np.testing.assert_allclose(found.vectors, library.embed(model, [row.text for row in found.rows]), atol=1e-6)


def test_what_is_cut_is_counted(saucier: Saucier, model: Path) -> None:
    long = "the cook " * 20
    answer = saucier("embed", model, "--text", long, "--text", "the cat")
    lost = len(library.load_tokenizer(model).encode(long)) - LENGTH
    assert f"1 texts were too long and are cut; {lost} tokens were not read" in answer.err


def test_rows_without_a_text_are_refused_or_left_out(saucier: Saucier, model: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "rows.csv", tmp_path / "made.parquet"
    file.write_text("text,n\nthe cook,1\n,2\nthe cat,3\n", encoding="utf-8")
    answer = saucier("embed", model, file, "--out", out)
    assert answer.code == 2
    assert answer.error == f"{file}, line 3, column 'text': the text is empty; fill it in; or leave the row out with " \
        "--bad-rows drop"
    assert not out.exists()
    answer = saucier("embed", model, file, "--out", out, "--bad-rows", "drop")
    assert answer.code == 0
    assert "1 row cannot be used and is left out" in answer.err
    assert parquet.read_table(out)["n"].to_pylist() == ["1", "3"]


@pytest.mark.parametrize("row", ['{"text": "a \\ud800"}', '{"text": "a", "more": ["\\udfff"]}'])
def test_half_of_a_surrogate_pair_is_told_with_its_line(saucier: Saucier, model: Path, tmp_path: Path,
                                                        row: str) -> None:
    """In any cell: neither a tokenizer nor a file takes it."""
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "the cook"}\n' + row + "\n", encoding="utf-8")
    answer = saucier("embed", model, file, "--out", tmp_path / "made.jsonl")
    assert answer.code == 2
    assert answer.error.startswith(f"{file}, line 2: holds half of a surrogate pair")
    assert saucier("embed", model, file, "--bad-rows", "drop").code == 0


def test_a_later_row_of_another_kind_leaves_no_file(saucier: Saucier, model: Path, tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "BLOCK", 2)
    for last in ('{"text": "c", "n": "three"}', '{"text": "c", "n": 3, "more": 1}'):
        file = tmp_path / "rows.jsonl"
        file.write_text('{"text": "a", "n": 1}\n{"text": "b", "n": 2}\n' + last + "\n", encoding="utf-8")
        answer = saucier("embed", model, file, "--out", tmp_path / "made.parquet")
        assert (answer.code, answer.error.endswith("write JSON lines: --out NAME.jsonl")) == (2, True)
        assert sorted(one.name for one in tmp_path.iterdir()) == ["rows.jsonl"]
        assert saucier("embed", model, file, "--out", tmp_path / "made.jsonl").code == 0
        (tmp_path / "made.jsonl").unlink()


@pytest.mark.parametrize(("words", "told"), [
    ((), "there is no text; give a FILE, - for standard input, or --text TEXT"),
    (("--text", " "), "--text, number 1: is empty"),
    (("{two}",), "which column holds the text? There are a, b; say which, for example --column b"),
    (("{two}", "--column", "c"), "no column 'c'; columns: a, b"),
    (("{vector}", "--out", "made.jsonl"), "has a column 'vector' already; rename it, or write the vectors alone"),
    (("{vector}", "--out", "made.txt"), "vectors are not written as .txt; give a name that ends in .npy, .jsonl, "),
    (("{vector}", "--out", "{two}"), "is there already; give another name, or remove it")])
def test_what_is_wrong_is_said_before_the_model_is_opened(saucier: Saucier, tmp_path: Path, words: tuple[str, ...],
                                                          told: str) -> None:
    """The model is an empty folder: it would be refused too."""
    places = {"two": tmp_path / "two.csv", "vector": tmp_path / "vector.jsonl"}
    places["two"].write_text("a,b\n1,2\n", encoding="utf-8")
    places["vector"].write_text('{"text": "a", "vector": 1}\n', encoding="utf-8")
    (tmp_path / "model").mkdir()
    answer = saucier("embed", tmp_path / "model", *(word.format(**places) for word in words))
    assert answer.code == 2
    assert told in answer.error


def test_a_model_without_such_a_head_is_refused(saucier: Saucier, cooked: Path) -> None:
    answer = saucier("embed", cooked, "--text", "the cat")
    assert answer.code == 2
    assert "this model has no embedding head" in answer.error
