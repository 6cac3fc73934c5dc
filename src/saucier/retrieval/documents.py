"""Documents as blocks of text: txt, md, html, pdf, docx, and the rows of tables.

A reader streams blocks; the text of a document is all of them, one after the other. A block knows its page, its line or
its section. What cannot be read raises `InputError`, and whoever reads many files goes on with the next one.
"""

from __future__ import annotations

import logging
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from saucier.errors import InputError, report_missing
from saucier.files import is_folder
from saucier.text.reading.documents import SURROGATE
from saucier.text.reading.guessing import UTF_8, ReadOptions, check_encoding
from saucier.text.reading.sources import (
    AS_GUESSED,
    COMPRESSIONS,
    SourceFile,
    find_encoding,
    find_sources,
    open_bytes,
    read_blocks,
)
from saucier.text.reading.tables import TableRow, make_missing_column_error, read_rows

Kind = Literal["txt", "md", "html", "pdf", "docx", "table"]
KINDS: Mapping[str, Kind] = {
    ".txt": "txt", ".text": "txt", ".md": "md", ".markdown": "md", ".html": "html", ".htm": "html", ".xhtml": "html",
    ".pdf": "pdf", ".docx": "docx", **dict.fromkeys((".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".tab", ".parquet"),
                                                    "table")}
"""Ending of a name -> how the file is read. In folders files with other endings are skipped, and named."""
WHOLE_TEXT = 1 << 28
"""Bytes of a file of one of the kinds that are read whole, and of all that a .docx file unpacks to."""
INSTALL = "pip install 'saucier[knowledge]'"
BETWEEN_HEADINGS = " > "
"""Between a heading and the one that it is under."""
CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
DECLARATION = re.compile(r"^\s*<\?xml[^>]*\?>")
DAMAGED = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError, RecursionError, OSError,
           EOFError, NotImplementedError, zlib.error, struct.error, zipfile.BadZipFile)
"""What libraries raise that read a damaged file."""
TITLES = ("title", "name", "heading")
"""Columns of a table that say what the text of a row is about."""


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a document; the text of the document is that of all its blocks, one after the other."""

    text: str
    section: str | None = None
    """The headings that it is under."""
    page: int | None = None
    """From 1, of a PDF."""
    line: int | None = None
    """Where its row begins, of a table."""
    begins: bool = True
    """Whether it begins something new; else it goes on with the block before."""


@dataclass(slots=True)
class Headings:
    """The headings that a text is under, by their levels."""

    path: dict[int, str] = field(default_factory=dict)

    def enter(self, level: int, title: str) -> None:
        """Come to a heading; those of its level and below are left."""
        self.path = {one: name for one, name in self.path.items() if one < level} | {level: " ".join(title.split())}

    @property
    def section(self) -> str | None:
        """All of them, in their order."""
        return BETWEEN_HEADINGS.join(filter(None, self.path.values())) or None


@dataclass(slots=True)
class Faults:
    """What reading met that is no reason to stop: rows that cannot be used, and pages without text."""

    rows: list[InputError] = field(default_factory=list)
    pages: int = 0


def name_kind(path: str | Path) -> Kind | None:
    """Return how a file is read by its ending, that of compressed text included; None for an unknown one."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    packed = bool(suffixes) and suffixes[-1] in COMPRESSIONS
    kind = KINDS.get(suffixes[-2] if packed and len(suffixes) > 1 else suffixes[-1] if suffixes else "")
    return None if packed and kind in ("pdf", "docx") else kind


def find_documents(places: Sequence[str]) -> tuple[list[Path], dict[Path, str]]:
    """Return the files of names, globs and folders, each once and absolute, and those that are skipped, with why.

    Folders are read with all that is inside, without hidden names. Raises `InputError` for a place that is not there,
    and for nothing at all.
    """
    found, skipped = dict[Path, None](), dict[Path, str]()
    for place in places:
        if is_folder(place):
            for path in walk_folder(Path(place).absolute()):
                if name_kind(path) is None:
                    skipped[path] = f"{path.suffix.lower() or 'no'} ending is not read"
                else:
                    found[path] = None
        else:
            found |= dict.fromkeys(Path(name).absolute() for name in expand_pattern(place))
    if not found:
        raise InputError("holds no document" if places else "are none", where=", ".join(places) or "documents",
                         remedy=f"give files or folders with {' '.join(sorted(KINDS))}")
    return list(found), {path: why for path, why in skipped.items() if path not in found}


def expand_pattern(place: str) -> list[str]:
    """Return the files of a name or a glob. Raises `InputError` for none; an empty file is refused when it is read."""
    try:
        return [source.name for source in find_sources([place])]
    except InputError as fault:
        if fault.what != "is empty" or fault.where is None:
            raise
        import glob

        return [place] if Path(place).is_file() else sorted(filter(os.path.isfile, glob.glob(place, recursive=True)))


def walk_folder(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder and below, in order, without hidden ones; links to folders are not followed."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (path for name in sorted(names) if not name.startswith(".") and (path := Path(root, name)).is_file())


def read_document(path: Path, *, column: str | None = None, options: ReadOptions = AS_GUESSED,
                  faults: Faults | None = None) -> Iterator[Block]:
    """Yield the blocks of a file. `column`: that holds the text, of a table.

    `faults` takes what is wrong with single rows and pages; without it the first one is raised.
    Errors: `InputError` for a file that is damaged, encrypted, empty or binary, or needs a package that is not there.
    """
    source = find_sources([str(path)], options)[0]
    if faults is not None:
        source = replace(source, collect=faults.rows.append)
    noted, some = faults or Faults(), False
    kind = name_kind(path) or "txt"
    blocks = read_table(source, column) if kind == "table" else READERS[kind](source, noted)
    for block in blocks:
        some = some or bool(block.text.strip())
        text = SURROGATE.sub("\ufffd", block.text)
        yield block if text == block.text else replace(block, text=text)
    if not some:
        pages = f" in its {noted.pages:,} pages; they may be pictures" if noted.pages else ""
        raise InputError(f"holds no text{pages}", where=source.name, remedy="leave it out")


def read_text(source: SourceFile, faults: Faults) -> Iterator[Block]:
    """Yield the blocks of a plain text."""
    for number, text in enumerate(read_blocks(source)):
        yield Block(text, begins=number == 0)


def read_whole(source: SourceFile) -> str:
    """Return all text of a file. Raises `InputError` for a very large one."""
    pieces, size = list[str](), 0
    for block in read_blocks(source):
        pieces.append(block)
        size += len(block)
        if size > WHOLE_TEXT:
            raise InputError(f"has more than {WHOLE_TEXT >> 20} MiB", where=source.name,
                             remedy="split it, or call it .txt")
    return "".join(pieces)


def read_markdown(source: SourceFile, faults: Faults) -> Iterator[Block]:
    """Yield the sections of a Markdown text, as it is written."""
    with report_missing("reading Markdown needs markdown-it-py, which is not installed", where=source.name,
                        remedy=INSTALL):
        from markdown_it import MarkdownIt
    text = read_whole(source)
    lines, headings, begin = re.findall(r"[^\n]*\n|[^\n]+", text), Headings(), 0
    tokens = MarkdownIt("commonmark").disable(["inline"]).parse(text)
    for token, inside in pairwise(tokens):
        if token.type == "heading_open" and token.map and token.level == 0:
            if token.map[0] > begin:
                yield Block("".join(lines[begin:token.map[0]]), headings.section)
            headings.enter(int(token.tag[1:]), inside.content)
            begin = token.map[0]
    yield Block("".join(lines[begin:]), headings.section)


SKIPPED_TAGS = frozenset({"script", "style", "noscript", "template", "head", "svg", "math", "iframe", "object",
                          "select"})
HEADING_TAGS = {f"h{level}": level for level in range(1, 7)}
INLINE_TAGS = frozenset({"a", "abbr", "b", "bdi", "bdo", "cite", "code", "del", "dfn", "em", "font", "i", "ins", "kbd",
                         "label", "mark", "q", "s", "samp", "small", "span", "strong", "sub", "sup", "time", "u", "var",
                         "wbr", "tt", "big"})
"""All others begin a line."""
PARAGRAPHS = frozenset({"p", *HEADING_TAGS})
PARAGRAPH = "\n\n\n"
"""Is after them; two line ends are those of two elements that meet."""
BLANKS = re.compile(r"[^\S\n]+")
EMPTY_LINES = re.compile(r" ?\n[ \n]*")


def read_html(source: SourceFile, faults: Faults) -> Iterator[Block]:
    """Yield the sections of a page: what a reader sees of it."""
    with report_missing("reading HTML needs lxml, which is not installed", where=source.name, remedy=INSTALL):
        from lxml import etree, html
    text = DECLARATION.sub("", read_whole(declare_encoding(source)))
    with report_damage(source, "HTML", etree.LxmlError):
        root = html.document_fromstring(text or "<html/>", parser=html.HTMLParser(remove_comments=True,
                                                                                 remove_pis=True))
    headings, pieces, title = Headings(), list[str](), root.findtext(".//title")
    if title and title.strip():
        headings.enter(0, title)
    walk = etree.iterwalk(root, events=("start", "end"))
    for event, element in walk:
        tag = element.tag if isinstance(element.tag, str) else "br"
        if event == "start":
            if tag in SKIPPED_TAGS:
                walk.skip_subtree()
                continue
            if tag in HEADING_TAGS:
                yield from join_pieces(pieces, headings.section)
                headings.enter(HEADING_TAGS[tag], element.text_content())
            pieces.append(("" if tag in INLINE_TAGS else "\n") + flatten(element.text))
        else:
            end = "" if tag in INLINE_TAGS or tag in SKIPPED_TAGS else PARAGRAPH if tag in PARAGRAPHS else "\n"
            pieces.append(end + flatten(element.tail))
    yield from join_pieces(pieces, headings.section)


def flatten(text: str | None) -> str:
    """Return a text of HTML on one line, where line ends mean blanks."""
    return " ".join(text.split("\n")) if text else ""


def join_pieces(pieces: list[str], section: str | None) -> Iterator[Block]:
    """Yield the text so far as a block, and forget it; empty lines stay where paragraphs end."""
    def shorten(run: re.Match[str]) -> str:
        return "\n\n" if run[0].count("\n") >= len(PARAGRAPH) else "\n"

    text = EMPTY_LINES.sub(shorten, BLANKS.sub(" ", "".join(pieces))).strip()
    pieces.clear()
    if text:
        yield Block(f"{text}\n\n", section)


def declare_encoding(source: SourceFile) -> SourceFile:
    """Return a page with the encoding that it says itself, where a person says none and it is not UTF-8."""
    if source.encoding is not None or find_encoding(source).value in UTF_8:
        return source
    with open_bytes(source) as stream:
        said = CHARSET.search(stream.read(4096))
    try:
        return source if said is None else replace(source, encoding=check_encoding(said[1].decode("ascii")))
    except InputError:  # a name that nobody knows
        return source


def read_pdf(source: SourceFile, faults: Faults) -> Iterator[Block]:
    """Yield the pages of a PDF. Raises `InputError` for one that is damaged, or encrypted with a password."""
    with report_missing("reading PDF needs pypdf, which is not installed", where=source.name, remedy=INSTALL):
        import pypdf
        from pypdf.errors import PyPdfError
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # what it mends needs nobody's attention
    with report_damage(source, "PDF", PyPdfError):
        reader = pypdf.PdfReader(source.path)
        if reader.is_encrypted and not reader.decrypt(""):
            raise InputError("is encrypted", where=source.name, remedy="save it without a password")
        count = len(reader.pages)
    titles = read_outline(reader, PyPdfError)
    section: str | None = None
    for number in range(count):
        with report_damage(source, f"PDF on page {number + 1}", PyPdfError):
            text = reader.pages[number].extract_text()
        section = titles.get(number, section)
        if text.strip():
            yield Block(f"{text.rstrip()}\n\n", section, page=number + 1)
        else:
            faults.pages += 1


def read_outline(reader: Any, fault: type[Exception]) -> dict[int, str]:
    """Return the headings of a PDF by the pages, from 0, on which they begin; none of a damaged outline."""
    headings, found = Headings(), dict[int, str]()

    def walk(entries: Sequence[Any], level: int) -> None:
        for entry in entries:
            if isinstance(entry, list):
                walk(entry, level + 1)
            elif (page := reader.get_destination_page_number(entry)) is not None:
                headings.enter(level, str(entry.title))
                found[page] = headings.section or ""

    try:
        walk(reader.outline, 1)
    except (fault, *DAMAGED):
        return {}
    return found


def read_docx(source: SourceFile, faults: Faults) -> Iterator[Block]:
    """Yield the sections of a Word document: paragraphs, and the rows of tables."""
    with report_missing("reading .docx needs python-docx, which is not installed", where=source.name, remedy=INSTALL):
        import docx
        from docx.opc.exceptions import OpcError
        from docx.table import Table
        from lxml.etree import LxmlError
    headings, pieces = Headings(), list[str]()
    with report_damage(source, ".docx file", OpcError, LxmlError):
        refuse_unpacked(source)
        inside = list(docx.Document(str(source.path)).iter_inner_content())
    for part in inside:
        if isinstance(part, Table):
            pieces += [" | ".join(dict.fromkeys(cell.text.strip() for cell in row.cells)) + "\n" for row in part.rows]
            continue
        with report_damage(source, ".docx file", OpcError, LxmlError):
            text, style = part.text, (part.style.name or "" if part.style is not None else "")
        if text.strip() and (style == "Title" or style.startswith("Heading ")):
            if pieces:
                yield Block("".join(pieces), headings.section)
                pieces = []
            level = style.removeprefix("Heading ")
            headings.enter(int(level) if level.isdecimal() else 0, text)
        pieces.append(f"{text}\n\n" if text.strip() else "")
    yield Block("".join(pieces), headings.section)


def refuse_unpacked(source: SourceFile) -> None:
    """Raise `InputError` for an archive that unpacks to far more than a document is."""
    with zipfile.ZipFile(source.path) as archive:
        if sum(one.file_size for one in archive.infolist()) > WHOLE_TEXT:
            raise InputError(f"unpacks to more than {WHOLE_TEXT >> 20} MiB", where=source.name,
                             remedy="save it without pictures, or leave it out")


@contextmanager
def report_damage(source: SourceFile, what: str, *faults: type[Exception]) -> Iterator[None]:
    """Raise `InputError` for whatever a damaged file makes a library raise."""
    caught: tuple[type[Exception], ...] = (*faults, *DAMAGED)
    try:
        yield
    except InputError:
        raise
    except caught as error:
        reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
        raise InputError(f"is not a whole {what} ({reason})", where=source.name,
                         remedy="fetch or save it again") from error


def read_table(source: SourceFile, column: str | None) -> Iterator[Block]:
    """Yield the rows of a table, each a block: a column of text, or all cells with their names.

    That column is `column`, or `text` where there is one; its section is the cell of a column `title`.
    """
    for row in read_rows(source, None):
        if column is not None and column not in row.cells:
            raise make_missing_column_error(column, list(row.cells), f"{source.name}, line {row.line}")
        name = column or next((one for one in row.cells if one.lower() == "text"), None)
        text = describe_row(row) if name is None else str(row.cells[name] or "")
        title = next((str(row.cells[one]) for one in row.cells if one.lower() in TITLES and row.cells[one]), None)
        if text.strip():
            yield Block(f"{text}\n", title if name is not None else None, line=row.line)


def describe_row(row: TableRow) -> str:
    """Return the cells of a row with their names, a line each."""
    return "\n".join(f"{name}: {value}" for name, value in row.cells.items() if value not in (None, "", [], {}))


READERS: Mapping[Kind, Callable[[SourceFile, Faults], Iterator[Block]]] = {
    "txt": read_text, "md": read_markdown, "html": read_html, "pdf": read_pdf, "docx": read_docx}
"""How each kind of document is read; tables are read by `read_table`."""
