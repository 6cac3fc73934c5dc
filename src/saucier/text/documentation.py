"""Python's own documentation: English text that lies on every machine that can run this program.

The help topics of `pydoc_data.topics` and the docstrings of the standard library, taken from the source files through
`ast`: nothing is imported or run. Order and text depend only on the Python version.
"""

from __future__ import annotations

import ast
import functools
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from saucier.errors import InputError
from saucier.text.read import Counts, Document, split_parts

SKIPPED = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"}
"""Folders left out: what is not the standard library, and tests (which many distributions leave out, too)."""
SHORT = 40
"""Paragraphs of fewer characters are kept even when they were seen before."""
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def python_documentation(counts: Counts | None = None) -> Iterator[Document]:
    """Yield a document per help topic and per module: its docstrings in the order of the source, an empty line between.

    A paragraph that was seen before is skipped and counted, since topic pages quote each other at length: text that is
    held out must not stand in the training text as well. So is a module whose source this Python cannot parse.
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
    """Parsing takes seconds, the text is small (2 MB) and cannot change while a program runs: keep it."""
    counts, seen = Counts(), set[str]()
    documents: list[Document] = []
    for name, texts in _topics_and_modules(counts):
        counts.files += 1
        new = [paragraph for text in texts for paragraph in text.split("\n\n") if _first_time(paragraph, seen, counts)]
        text = "\n\n".join(new)
        if text not in seen:
            documents += split_parts(text, name, 1)
        seen.add(text)
    return tuple(documents), counts


def _first_time(paragraph: str, seen: set[str], counts: Counts) -> bool:
    """Remember a paragraph, whatever its white space; short ones ("Returns:") may come again and again."""
    key = " ".join(paragraph.split())
    if len(key) < SHORT:
        return True
    counts.duplicates += key in seen
    fresh = key not in seen
    seen.add(key)
    return fresh


def _topics_and_modules(counts: Counts) -> Iterator[tuple[str, list[str]]]:
    for name, text in sorted(topics().items()):
        yield f"topic {name}", [text.strip()]
    for name, path in modules():
        if path != topics_file():
            yield name, _docstrings(path, counts)


def topics() -> dict[str, str]:
    """Give the help topics of this Python, by name. Errors: `InputError` where it comes without them."""
    path = topics_file()
    if not path.is_file():
        raise InputError("this Python comes without its documentation", where=str(path),
                         remedy="give text with --data FILE")
    return _topics(path)


def topics_file() -> Path:
    """Return the file that holds the help topics."""
    return library() / "pydoc_data" / "topics.py"


def library() -> Path:
    """Return the folder of the standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def modules() -> Iterator[tuple[str, Path]]:
    """Yield the name and the source file of every module of the standard library, in order."""
    root = library()
    for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).parts):
        parts = path.relative_to(root).parts
        if not SKIPPED.intersection(parts):
            yield ".".join([*parts[:-1], path.stem]), path


def _topics(path: Path) -> dict[str, str]:
    """Read the literal dictionary `topics = {name: text}`."""
    for statement in ast.parse(path.read_bytes()).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict):
            topics: dict[str, str] = ast.literal_eval(statement.value)
            return topics
    return {}


def _docstrings(path: Path, counts: Counts) -> list[str]:
    tree = parsed(path, counts)
    found = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, DOCUMENTED))
    return [text.strip() for text in found if text and text.strip()]


def parsed(path: Path, counts: Counts) -> ast.Module:
    """Parse a module; one that this Python cannot parse is counted, and holds nothing."""
    try:
        return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        counts.unreadable += 1
        return ast.Module([], [])
