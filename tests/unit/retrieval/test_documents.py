"""Documents of every kind are read whole, cut at their places, and what cannot be read says why."""

from __future__ import annotations

import gzip
import io
import json
import time
import tracemalloc
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.unit.retrieval.documents import write_docx, write_pdf

from saucier.errors import InputError
from saucier.retrieval.chunks import Chunking, check_chunking, cut_chunks, split_sentences
from saucier.retrieval.documents import Block, Faults, find_documents, name_kind, read_document


def count_words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def chunks_of(path: Path, length: int = 20, overlap: int = 5) -> list:
    """The chunks of a file; each is what stands at its place in the text of the document."""
    blocks = list(read_document(path))
    whole = "".join(block.text for block in blocks)
    found = list(cut_chunks(blocks, Chunking(length=length, overlap=overlap), count_words))
    assert all(whole[one.start:one.stop] == one.text for one in found)
    assert all(len(one.text.split()) <= length for one in found)
    return found


def sections(path: Path) -> list[tuple[str | None, str]]:
    return [(block.section, block.text.strip()) for block in read_document(path)]


def test_markdown_is_cut_at_headings_that_are_headings(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("Before.\n\n# One\n\nText of one.\n\n```\n# no heading\n```\n\n## Two\nText *of* two.\n# Three\n"
                    "End.\n")
    assert sections(path) == [
        (None, "Before."), ("One", "# One\n\nText of one.\n\n```\n# no heading\n```"),
        ("One > Two", "## Two\nText *of* two."), ("Three", "# Three\nEnd.")]
    assert [one.section for one in chunks_of(path)] == [None, "One", "One > Two", "Three"]


def test_html_gives_what_a_reader_sees(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_text("<?xml version='1.0' encoding='utf-8'?><html><head><title>Cars</title><style>p {}</style></head>"
                    "<body><script>let a = 1</script><p>First\nline<b>bold</b>.<h2>Wheels</h2><p>Round <i>and</i> black"
                    "<!-- not this --></p><ul><li>one<li>two</ul><select><option>no</select>tail</body></html>")
    assert sections(path) == [("Cars", "First linebold."),
                              ("Cars > Wheels", "Wheels\n\nRound and black\n\none\ntwo\ntail")]


def test_a_page_in_the_encoding_that_it_says(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_bytes("<meta charset=windows-1251><p>Привет, мир</p>".encode("cp1251"))
    assert sections(path) == [(None, "Привет, мир")]
    path.write_bytes("<meta charset=nonsense><p>café</p>".encode("cp1252"))
    assert sections(path) == [(None, "café")]


def test_pages_and_outline_of_a_pdf(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["The first page.", "", "Code AX-77 stands here."],
                     outline={0: "Start", 2: "End"})
    faults = Faults()
    found = list(read_document(path, faults=faults))
    assert [(one.page, one.section, one.text.strip()) for one in found] == [
        (1, "Start", "The first page."), (3, "End", "Code AX-77 stands here.")]
    assert faults.pages == 1
    assert [(one.page, one.text) for one in chunks_of(path)] == [(1, "The first page."), (3, "Code AX-77 stands here.")]


def test_headings_and_tables_of_word(tmp_path: Path) -> None:
    path = write_docx(tmp_path / "a.docx")
    assert sections(path) == [("Manual", "Manual\n\nBefore."),
                              ("Manual > Wheels", "Wheels\n\nThey are round.\n\nname | size\nfront | 17")]


def test_rows_of_tables(tmp_path: Path) -> None:
    rows = tmp_path / "a.jsonl"
    rows.write_text("\n".join(json.dumps(one) for one in (
        {"title": "Rome", "text": "A city."}, {"title": "Empty", "text": ""},
        {"title": None, "text": "A \ud800 town."})))
    found = list(read_document(rows))
    assert [(one.section, one.text, one.line) for one in found] == [
        ("Rome", "A city.\n", 1), (None, "A \ufffd town.\n", 3)]
    table = tmp_path / "b.csv"
    table.write_text("part;price\nAX-12;3.50\nbroken\nBX-9;\n")
    faults = Faults()
    found = list(read_document(table, faults=faults))
    assert [(one.text, one.line) for one in found] == [("part: AX-12\nprice: 3.50\n", 2), ("part: BX-9\n", 4)]
    assert [fault.where for fault in faults.rows] == [f"{table}, line 3"]
    assert [one.text for one in read_document(table, column="part", faults=Faults())] == ["AX-12\n", "BX-9\n"]
    with pytest.raises(InputError, match="line 3: 1 cells, but the header has 2"):
        list(read_document(table))
    with pytest.raises(InputError, match=r"no column 'pice'.*did you mean 'price'"):
        list(read_document(table, column="pice"))


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    whole = write_pdf(tmp_path / "whole.pdf", ["A page."]).read_bytes()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("something", "else")
    files = {"half.pdf": (whole[:len(whole) // 3], "not a whole PDF"),
             "text.pdf": (b"no PDF at all", "not a whole PDF"),
             "half.docx": (write_docx(tmp_path / "w.docx").read_bytes()[:900], "not a whole .docx"),
             "other.docx": (archive.getvalue(), "not a whole .docx"), "binary.txt": (b"a\0b" * 50, "zero byte"),
             "empty.txt": (b"", "is empty"), "blank.md": (b" \n\n", "holds no text"),
             "tags.html": (b"<html><script>x</script></html>", "holds no text"),
             "array.json": (b"[1, 2", "not JSON")}
    for name, (content, reason) in files.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=reason) as fault:
            list(read_document(tmp_path / name))
        assert fault.value.where is not None and fault.value.where.startswith(str(tmp_path / name))
    locked = write_pdf(tmp_path / "locked.pdf", ["Secret."], password="x")
    with pytest.raises(InputError, match="is encrypted; save it without a password"):
        list(read_document(locked))
    pictures = write_pdf(tmp_path / "pictures.pdf", ["", ""])
    with pytest.raises(InputError, match="no text in its 2 pages"):
        list(read_document(pictures))


@pytest.mark.slow
def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.docx"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("word/document.xml", b"\0" * (300 << 20))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(InputError, match="unpacks to more than 256 MiB"):
        list(read_document(path))


def test_mixed_encodings(tmp_path: Path) -> None:
    for name, encoding in (("a", "utf-8"), ("b", "cp1252"), ("c", "utf-16"), ("d", "utf-8-sig")):
        (tmp_path / f"{name}.txt").write_bytes("Das Größte: café.\n".encode(encoding))
        assert sections(tmp_path / f"{name}.txt") == [(None, "Das Größte: café.")]
    (tmp_path / "e.txt.gz").write_bytes(gzip.compress(b"Packed."))
    assert sections(tmp_path / "e.txt.gz") == [(None, "Packed.")]


def test_folders_globs_and_what_is_in_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.md", "sub/b.txt", "sub/c.png", ".git/d.txt", "sub/.e.txt", "notes", "sub/f.pdf.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text")
    (tmp_path / "loop").symlink_to(tmp_path)
    found, skipped = find_documents([str(tmp_path), str(tmp_path / "sub" / "*.txt")])
    assert found == [tmp_path / "a.md", tmp_path / "sub" / "b.txt"]
    assert skipped == {tmp_path / "notes": "no ending is not read", tmp_path / "sub/c.png": ".png ending is not read",
                       tmp_path / "sub/f.pdf.gz": ".gz ending is not read"}
    assert find_documents([str(tmp_path / "notes")])[0] == [tmp_path / "notes"]
    monkeypatch.chdir(tmp_path / "sub")
    assert find_documents(["b.txt", "../sub/b.txt"])[0][0] == tmp_path / "sub" / "b.txt"
    for places, reason in (([], "are none"), ([str(tmp_path / ".git" / "x.txt")], "no such file"),
                           ([str(tmp_path / "*.rst")], "no file matches")):
        with pytest.raises(InputError, match=reason):
            find_documents(places)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InputError, match=r"nothing: holds no document; give files or folders with \.csv"):
        find_documents([str(tmp_path / "nothing")])
    assert (name_kind("A.PDF"), name_kind("a.csv.gz"), name_kind("a.docx.gz"), name_kind("Makefile")) == (
        "pdf", "table", None, None)


def test_sentences_are_the_whole_text() -> None:
    text = "One, e.g. this. Two!  \"Three?\" Four\n\nfive 3.14 six.Seven 。八。"
    spans = split_sentences(text)
    assert [text[start:stop] for start, stop in spans] == [
        "One, e.g. this. ", "Two!  ", "\"Three?\" ", "Four\n\n", "five 3.14 six.Seven 。", "八。"]


def test_a_heading_is_no_part_of_the_sentence_after_it() -> None:
    text = "# Boiler\n## Service\nIt was serviced.\n#1 is no heading. C# is none.\n"
    assert [text[start:stop] for start, stop in split_sentences(text)] == [
        "# Boiler\n", "## Service\n", "It was serviced.\n", "#1 is no heading. ", "C# is none.\n"]


def test_rows_of_tables_and_entries_of_lists_are_sentences() -> None:
    """A line that goes on is none, and a row holds whatever stands in its cells."""
    parts = ["It has parts:\n", "- a pump. With\n  a seal\n", "2) a valve -\n", "* nothing else\n\n",
             "| part | cost. In EUR |\n", "|---|--:|\n", "| pump | 12. Or 13 |\n\n", "Pump | 12\n", "|a|b|\n",
             "costs P(x|y) - and\nmore"]
    assert [("".join(parts))[start:stop] for start, stop in split_sentences("".join(parts))] == [
        *parts[:1], "- a pump. ", "With\n  a seal\n", *parts[2:]]


def test_overlap_repeats_whole_sentences() -> None:
    sentences = [f"S{number} has four words. " for number in range(9)]
    found = list(cut_chunks([Block("".join(sentences))], Chunking(length=10, overlap=5), count_words))
    assert [one.text for one in found] == [f"S{n} has four words. S{n + 1} has four words." for n in range(8)]
    apart = list(cut_chunks([Block("".join(sentences))], Chunking(length=10, overlap=0), count_words))
    assert len(apart) == 5 and " ".join(one.text for one in apart) == "".join(sentences).strip()
    assert len({one.identify("a") for one in found} | {one.identify("b") for one in found}) == 16
    with pytest.raises(InputError, match="let an overlap be less"):
        check_chunking(Chunking(length=5, overlap=5), None)
    with pytest.raises(InputError, match="the encoder reads 100; give 100 or less"):
        check_chunking(Chunking(length=200, overlap=5), 100)


def test_blocks_change_no_chunk() -> None:
    """A text that comes in small parts is cut as it is whole."""
    row = " | a\n"
    text = "".join(f"Sentence number {n} ends here{'.' * (n % 3)} And{row * (n % 2)}- " for n in range(300)) + "x" * 500
    rules = Chunking(length=30, overlap=8)
    whole = list(cut_chunks([Block(text)], rules, count_words))
    for size in (1, 7, 100):
        parts = [Block(text[at:at + size], begins=at == 0) for at in range(0, len(text), size)]
        assert [(one.start, one.stop) for one in cut_chunks(parts, rules, count_words)] == [
            (one.start, one.stop) for one in whole]


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["word ", "x", "\n\n", "Yes. "])
def test_one_line_of_many_megabytes_is_cut_in_bounded_memory(tmp_path: Path, unit: str) -> None:
    size = 1 << 20
    path = tmp_path / "line.txt"
    path.write_text((unit * size)[:size] + " The end.")
    start = time.process_time()
    tracemalloc.start()
    found, last = 0, 0
    for one in cut_chunks(read_document(path), Chunking(length=200, overlap=40),
                          lambda texts: [len(text) // 4 for text in texts]):
        assert one.start >= last and len(one.text) <= 1000
        found, last = found + 1, one.start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert one.text.endswith("The end.") and one.stop == size + 9
    assert peak < 5 << 20 and time.process_time() - start < 60
    assert found == 1 if unit == "\n\n" else found > size / 1000
