"""Texts that every machine has: Python's own documentation, and its functions' heads as pairs with their
docstrings.

Taken from the source files through `ast`: nothing is imported or run. Order and text depend only on the Python
version.
"""

from __future__ import annotations

import ast
import functools
import sysconfig
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from saucier.errors import InputError
from saucier.text.reading.documents import Counts, Document, Pair, split_parts

SKIPPED = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"}
"""Folders left out: what is not the standard library, and tests (which many distributions leave out, too)."""
SHORT = 40
"""Paragraphs of fewer characters are kept even when they were seen before."""
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def read_python_documentation(counts: Counts | None = None) -> Iterator[Document]:
    """Yield a document per help topic and per module: its docstrings in the order of the source, an empty line between.

    A paragraph that was seen before is skipped and counted, since topic pages quote each other at length: text that is
    held out must not be in the training text as well. So is a module whose source this Python cannot parse.
    Errors: `InputError` where this Python has no source files.
    """
    counts = counts if counts is not None else Counts()
    documents, skipped = _all_documents()
    counts.files, counts.duplicates, counts.unreadable = skipped.files, skipped.duplicates, skipped.unreadable
    for document in documents:
        counts.add(document.text, starts=document.part == 0)
        yield document


@functools.cache
def _all_documents() -> tuple[tuple[Document, ...], Counts]:
    """Parsing takes seconds, the text is small (2 MB) and cannot change while a program runs: cache it."""
    counts, seen = Counts(), set[str]()
    documents: list[Document] = []
    for name, texts in _topics_and_modules(counts):
        counts.files += 1
        new = [paragraph for text in texts for paragraph in text.split("\n\n") if _is_new(paragraph, seen, counts)]
        text = "\n\n".join(new)
        if text not in seen:
            documents += split_parts(text, name, 1)
        seen.add(text)
    return tuple(documents), counts


def _is_new(paragraph: str, seen: set[str], counts: Counts) -> bool:
    """Remember a paragraph, whatever its white space; short ones ("Returns:") may come again and again."""
    key = " ".join(paragraph.split())
    if len(key) < SHORT:
        return True
    counts.duplicates += key in seen
    fresh = key not in seen
    seen.add(key)
    return fresh


def _topics_and_modules(counts: Counts) -> Iterator[tuple[str, list[str]]]:
    for name, text in sorted(read_help_topics().items()):
        yield f"topic {name}", [text.strip()]
    for name, path in list_modules():
        if path != find_topics_file():
            nodes = [node for node in ast.walk(parse_module(path, counts)) if isinstance(node, DOCUMENTED)]
            found = map(ast.get_docstring, nodes)
            yield name, [text.strip() for text in found if text and text.strip()]


def read_help_topics() -> dict[str, str]:
    """Give the help topics of this Python, by name. Errors: `InputError` where it comes without them."""
    path = find_topics_file()
    if not path.is_file():
        raise InputError("this Python comes without its documentation", where=str(path),
                         remedy="give text with --data FILE")
    for statement in ast.parse(path.read_bytes()).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict):  # `topics = {name: text}`
            return dict(ast.literal_eval(statement.value))
    return {}


def find_topics_file() -> Path:
    """Return the file that holds the help topics."""
    return find_library() / "pydoc_data" / "topics.py"


def find_library() -> Path:
    """Return the folder of the standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def list_modules() -> Iterator[tuple[str, Path]]:
    """Yield the name and the source file of every module of the standard library, in order."""
    root = find_library()
    for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).parts):
        parts = path.relative_to(root).parts
        if not SKIPPED.intersection(parts):
            yield ".".join([*parts[:-1], path.stem]), path


def parse_module(path: Path, counts: Counts) -> ast.Module:
    """Parse a module; one that this Python cannot parse is counted, and holds nothing."""
    try:
        return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        counts.unreadable += 1
        return ast.Module([], [])


Function = ast.FunctionDef | ast.AsyncFunctionDef
EXAMPLE = ">>>"
"""Begins a paragraph that is a session of the interpreter, and no sentence."""


def read_python_heads(counts: Counts) -> Iterator[Pair]:
    """Yield a pair per documented function: its head, such as `get(self, key)`, and the first paragraph on it.

    A head or a paragraph that was seen before is skipped and counted, so that what is held out is new.
    Errors: `InputError` where this Python has no source files.
    """
    pairs, skipped = _all_heads()
    if not pairs:
        raise InputError("this Python comes without its source files", where=str(find_library()),
                         remedy="give pairs with --data FILE.tsv")
    counts.files, counts.duplicates, counts.unreadable = skipped.files, skipped.duplicates, skipped.unreadable
    for pair in pairs:
        counts.add(pair.source, pair.target)
        yield pair


def read_python_code(counts: Counts) -> Iterator[Document]:
    """Yield a document per module: the heads of its documented functions, one a line. Errors: `read_python_heads`."""
    read = Counts()
    for name, pairs in groupby(read_python_heads(read), key=lambda pair: pair.where.rpartition(", line ")[0]):
        for document in split_parts("\n".join(pair.source for pair in pairs), name, 1):
            counts.add(document.text, starts=document.part == 0)
            yield document
    counts.files, counts.duplicates, counts.unreadable = read.files, read.duplicates, read.unreadable


@functools.cache
def _all_heads() -> tuple[tuple[Pair, ...], Counts]:
    """Parsing takes seconds, the text is small and cannot change while a program runs: cache it."""
    counts, seen = Counts(), set[str]()
    pairs: list[Pair] = []
    for name, path in list_modules():
        counts.files += 1
        for node in ast.walk(parse_module(path, counts)):
            if not isinstance(node, Function):
                continue
            paragraph = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
            if paragraph and not paragraph.startswith(EXAMPLE):
                parameters = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
                pair = Pair(f"{node.name}({', '.join(parameters)})", paragraph, f"{name}, line {node.lineno}")
                new = not seen.intersection((pair.source, pair.target))
                seen.update((pair.source, pair.target))
                counts.duplicates += not new
                pairs += [pair] if new else []
    return tuple(pairs), counts
