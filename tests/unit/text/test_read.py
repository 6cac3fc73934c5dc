"""Documents and pairs out of every kind of file, and one clear line for every kind of fault."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saucier.errors import InputError
from saucier.text.reading.documents import Counts, Pair, read_documents, read_pairs, split_parts
from saucier.text.reading.sources import BLOCK

Write = Callable[[str, str | bytes], str]
ROWS = [{"id": "1", "text": 'one, "quoted"\nwith a line'}, {"id": "2", "text": "zwei"}]


def table(tmp_path: Path, kind: str) -> str:
    """Write ROWS in one of the formats (TSV without the line end, which it cannot hold)."""
    path = tmp_path / f"rows.{kind}"
    if kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    elif kind == "jsonl":
        path.write_text("\n".join(json.dumps(row) for row in ROWS) + "\n\n")
    else:
        path.write_text('id,text\r\n1,"one, ""quoted""\nwith a line"\r\n2,zwei\r\n')
    return str(path)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_tables_give_the_text_column(tmp_path: Path, kind: str) -> None:
    counts = Counts()
    documents = list(read_documents([table(tmp_path, kind)], counts=counts))
    assert [document.text for document in documents] == [row["text"] for row in ROWS]
    assert [document.line for document in documents] == {"csv": [2, 4], "jsonl": [1, 2], "parquet": [1, 2]}[kind]
    assert (counts.documents, counts.files, counts.empty) == (2, 1, 0)


def test_tsv_has_no_quoting(write: Write) -> None:
    name = write("a.tsv", 'label\ttext\n1\t"half a quote\n0\ta ""b"" c\n')
    assert [document.text for document in read_documents([name])] == ['"half a quote', 'a ""b"" c']


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("file", ["one\ntwo\n\n\nthree\n \nfour"]),
        ("line", ["one", "two", "three", "four"]),
        ("paragraph", ["one\ntwo", "three", "four"]),
    ],
)
def test_units_of_plain_text(write: Write, unit: str, expected: list[str]) -> None:
    counts = Counts()
    documents = read_documents([write("a.txt", "one\ntwo\n\n\nthree\n \nfour")], unit=unit, counts=counts)  # type: ignore[arg-type]
    assert [document.text for document in documents] == expected
    assert counts.empty == (3 if unit == "line" else 0)


def test_a_long_document_comes_in_parts(write: Write) -> None:
    text = "some words to read\n" * 20_000
    for unit in ("file", "paragraph"):
        counts = Counts()
        documents = list(read_documents([write("a.txt", text)], unit=unit, counts=counts))  # type: ignore[arg-type]
        assert [document.part for document in documents] == list(range(len(documents)))
        assert len(documents) > 3
        assert counts.documents == 1
        assert "".join(document.text for document in documents).rstrip("\n") == text.rstrip("\n")


@given(st.text(alphabet="ab \n", min_size=1), st.integers(0, 3))
def test_parts_join_to_the_text(text: str, times: int) -> None:
    text = text * (1 + times * BLOCK // len(text))
    parts = list(split_parts(text, "x", 1))
    assert "".join(part.text for part in parts) == text
    assert all(0 < len(part.text) <= BLOCK for part in parts)


def test_lone_surrogates_are_repaired_and_counted(write: Write) -> None:
    counts = Counts()
    documents = list(read_documents([write("a.jsonl", '{"text": "a\\ud83d b"}\n')], counts=counts))
    assert (documents[0].text, counts.repaired) == ("a\ufffd b", 1)


def test_null_and_blank_cells_are_counted(write: Write) -> None:
    counts = Counts()
    name = write("a.jsonl", '{"text": null}\n{"text": " "}\n{"text": "x"}\n')
    assert [document.text for document in read_documents([name], counts=counts)] == ["x"]
    assert counts.empty == 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "x"}\n{"text": oops}\n', r"a\.jsonl, line 2: not JSON: Expecting value at column 10"),
        ("a.jsonl", '{"text": "x"}\n[1, 2]\n', "line 2: holds a JSON array, not an object"),
        ("a.jsonl", "[" * 100_000, "line 1: not readable JSON: nested too deeply"),
        ("a.jsonl", '{"text": ' + "9" * 6000 + "}", "line 1: not readable JSON: Exceeds the limit"),
        ("a.jsonl", '{"text": "x"}\n{"title": "y"}\n', "line 2: no column 'text'; columns: title"),
        ("a.jsonl", '{"text": 7}\n', "line 1: column 'text' holds int, not text"),
        ("a.jsonl", '{"title": "x", "body": "y"}\n', "which column holds the text. There are title, body; say which"),
        ("a.tsv", "a\ttext\n1\tx\n2\n", r"a\.tsv, line 3: 1 cells, but the header has 2"),
        ("a.csv", 'a,text\n1,x\n2,"open\n', r"a\.csv, line 3: not CSV"),
        ("a.csv", "text,text\n1,x\n", "line 1: two columns are named 'text'"),
        ("a.csv", "text\n", "holds no text|has no rows"),
        ("a.txt", " \n\n", "holds no text"),
        ("a.parquet", "no parquet", "is not a whole parquet file"),
    ],
)
def test_faults_name_the_place(write: Write, name: str, content: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        list(read_documents([write(name, content)]))
    assert "\n" not in str(caught.value)


def test_a_parquet_file_with_any_byte_changed_is_read_or_refused(tmp_path: Path) -> None:
    """The names of columns are read from it, too: bytes there may be no text."""
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    whole, said = path.read_bytes(), []
    for place in range(0, len(whole), 3):
        path.write_bytes(whole[:place] + b"\xdc" + whole[place + 1:])
        try:
            list(read_documents([str(path)], column="text"))
        except InputError as error:
            said.append(str(error))
    assert 20 < len(said) < len(whole) // 3 and all(one.startswith(f"{path}") for one in said)


def test_missing_column_lists_those_there_are(tmp_path: Path) -> None:
    for kind in ("csv", "jsonl", "parquet"):
        with pytest.raises(InputError, match=r"no column 'txet'; columns: id, text; did you mean 'text'\?"):
            list(read_documents([table(tmp_path, kind)], column="txet"))


def test_pairs_from_two_columns(write: Write) -> None:
    name = write("a.tsv", "en\tde\nHello\tHallo\n\tleer\nBye\tTschüss\n")
    counts = Counts()
    assert list(read_pairs([name], counts=counts)) == [
        Pair("Hello", "Hallo", f"{name}, line 2"),
        Pair("Bye", "Tschüss", f"{name}, line 4"),
    ]
    assert (counts.documents, counts.empty) == (2, 1)
    assert [pair.source for pair in read_pairs([name], source="de", target="en")] == ["Hallo", "Tschüss"]


def test_pairs_ask_which_columns(write: Write) -> None:
    name = write("a.tsv", "id\ten\tde\n1\tHello\tHallo\n")
    with pytest.raises(InputError, match=r"which columns are source and target\? There are id, en, de"):
        list(read_pairs([name]))
    with pytest.raises(InputError, match="no column 'fr'"):
        list(read_pairs([name], source="en", target="fr"))
    with pytest.raises(InputError, match="is plain text, but columns are needed"):
        list(read_pairs([write("a.txt", "x")]))


def test_real_files_are_read_whole(shared: Path) -> None:
    pairs = list(read_pairs([str(shared / "data/translation/multi30k.en-de.train.tsv")]))
    assert len(pairs) == 29_000
    assert pairs[0].target == "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche."
    counts = Counts()
    list(read_documents([str(shared / "data/lm/tiny_shakespeare.txt")], counts=counts))
    assert (counts.documents, counts.characters) == (1, 1_115_394)
    for name, rows in (("classification/ag_news/dev.tsv", 999), ("qa/squad_v1.1_dev_part.jsonl", 978)):
        column = "text" if name.endswith("tsv") else "context"
        assert len([d for d in read_documents([str(shared / "data" / name)], column=column) if not d.part]) == rows
