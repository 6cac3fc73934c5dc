"""Delimiters are guessed, shown and settable; rows that cannot be read are reported one by one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saucier.errors import InputError
from saucier.text.reading.guessing import DELIMITERS, ReadOptions, guess_delimiter
from saucier.text.reading.sources import find_sources
from saucier.text.reading.tables import describe_form, find_delimiter, list_columns, read_rows

Write = Callable[[str, str | bytes], str]


def cells(name: str, options: ReadOptions | None = None) -> list[dict]:
    """Read a whole table."""
    [source] = find_sources([name], options or ReadOptions())
    return [dict(row.cells) for row in read_rows(source, None)]


@pytest.mark.parametrize("mark", [*DELIMITERS])
@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_every_delimiter_is_found(write: Write, mark: str, ending: str) -> None:
    rows = [("text", "label"), ("good really", "pos"), ("bad", "neg")]
    name = write(f"a.{ending}", "".join(mark.join(row) + "\n" for row in rows))
    assert cells(name) == [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
    usual = {"csv": ",", "tsv": "\t"}[ending]
    assert describe_form(find_sources([name])[0]) == ("" if mark == usual else f"a.{ending}: delimiter {mark!r}")


def test_commas_in_texts_do_not_hide_another_delimiter(write: Write) -> None:
    name = write("a.csv", 'text;label\n"one; two, three";pos\nno, not at all;neg\nplain;pos\n')
    assert cells(name)[0] == {"text": "one; two, three", "label": "pos"}


@pytest.mark.parametrize("content", [
    "text\nhello; world\nmore; of; it\n", "text\na;b\n", "text;more\nwithout\nwithout\n",
    "text,label\na;b,1\nc;d,2\n", "a\tb,c\n1\t2,3\n"])
def test_what_can_be_a_table_with_commas_is_one(write: Write, content: str) -> None:
    assert find_delimiter(find_sources([write("a.csv", content)])[0]).value == ","


def test_doubt_is_said(write: Write) -> None:
    both = find_sources([write("a.csv", "a;b,c\n1;2,3\n")])[0]
    assert describe_form(both) == "a.csv: delimiter ',' (guessed: ';' would fit as well)"
    some = find_sources([write("b.csv", "a;b\n1;2\n3;4;5\n")])[0]
    assert describe_form(some) == "b.csv: delimiter ';' (guessed: some rows have another number of cells)"
    odd = find_sources([write("c.csv", "näme;läbel\nx;y\n".encode("cp1252"))])[0]
    assert describe_form(odd) == ("c.csv: delimiter ';', encoding cp1252 "
                                  "(guessed: not UTF-8, read as 'näme;läbel')")


def test_a_delimiter_that_is_said_is_taken(write: Write) -> None:
    assert cells(write("a.txt", "a~b\n1~2\n"), ReadOptions(delimiter="~")) == [{"a": "1", "b": "2"}]
    assert cells(write("b.txt", 'a\tb\n"1\t2\n'), ReadOptions(delimiter="tab")) == [{"a": '"1', "b": "2"}]
    with pytest.raises(InputError, match=r"--delimiter .*'::' is no delimiter; give one letter"):
        ReadOptions(delimiter="::")
    with pytest.raises(InputError, match=r"is plain text, but columns are needed; .* --delimiter tab"):
        cells(write("c.txt", "a\tb\n"))


@given(st.lists(st.lists(st.text(alphabet="ab ,;|\"\n", max_size=5), min_size=2, max_size=2), min_size=1, max_size=9))
def test_a_quoted_table_with_commas_stays_one(rows: list[list[str]]) -> None:
    quoted = "".join(",".join(f'"{cell.replace(chr(34), 2 * chr(34))}"' for cell in row) + "\n"
                     for row in [["text", "label"], *rows])
    assert guess_delimiter(quoted.removesuffix("\n").split("\n"), ",", whole=True).value == ","


def test_json_arrays_are_rows(write: Write) -> None:
    rows = [{"text": "a", "label": 1}, {"text": "b", "label": 2}]
    assert cells(write("a.json", json.dumps(rows, indent=1))) == rows
    assert list_columns(find_sources([write("b.json", json.dumps(rows))])[0]) == ["text", "label"]
    with pytest.raises(InputError, match=r"c\.json, item 2: holds a JSON number"):
        cells(write("c.json", "[{}, 3]"))
    with pytest.raises(InputError, match=r"d\.json, line 2: not JSON"):
        cells(write("d.json", "[{},\n}]"))
    with pytest.raises(InputError, match=r"e\.jsonl, line 1: holds a JSON array"):
        cells(write("e.jsonl", "[{}]"))


def test_rows_that_cannot_be_read_are_collected(write: Write) -> None:
    files = {"a.csv": 'a,b\n1,2\n3\n4,"5"x\n6,7\n', "a.tsv": "a\tb\n1\t2\n3\n6\t7\n",
             "a.jsonl": '{"a": "1", "b": "2"}\n{"a"\n3\n{"a": "6", "b": "7"}\n'}
    for name, content in files.items():
        faults: list[InputError] = []
        [source] = find_sources([write(name, content)])
        found = [dict(row.cells) for row in read_rows(replace(source, collect=faults.append), None)]
        assert found == [{"a": "1", "b": "2"}, {"a": "6", "b": "7"}]
        assert [fault.where.rsplit(", ")[-1] for fault in faults if fault.where] == {
            "a.csv": ["line 3", "line 4"], "a.tsv": ["line 3"], "a.jsonl": ["line 2", "line 3"]}[name]
