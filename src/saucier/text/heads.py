"""Pairs that lie on every machine: the heads of Python's own functions, and what their documentation begins with.

The heads alone are a language of their own.

Nothing is imported or run; order and text depend only on the Python version.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from itertools import groupby

from saucier.errors import InputError
from saucier.text.documentation import library, modules, parsed
from saucier.text.read import Counts, Document, Pair, split_parts

Function = ast.FunctionDef | ast.AsyncFunctionDef
EXAMPLE = ">>>"
"""Begins a paragraph that is a session of the interpreter, and no sentence."""


def python_heads(counts: Counts | None = None) -> Iterator[Pair]:
    """Yield a pair per documented function: its head, such as `get(self, key)`, and the first paragraph on it.

    A head or a paragraph that was seen before is skipped and counted, so that what is held out is new.
    Errors: `InputError` where this Python has no source files.
    """
    counts = counts if counts is not None else Counts()
    pairs, skipped = _all_heads()
    if not pairs:
        raise InputError("this Python comes without its source files", where=str(library()),
                         remedy="give pairs with --data FILE.tsv")
    counts.files, counts.duplicates, counts.unreadable = skipped.files, skipped.duplicates, skipped.unreadable
    for pair in pairs:
        counts.add(pair.source, pair.target)
        yield pair


def python_code(counts: Counts | None = None) -> Iterator[Document]:
    """Yield a document per module: the heads of its documented functions, one in a line. Errors: as `python_heads`."""
    counts = counts if counts is not None else Counts()
    for name, pairs in groupby(python_heads(read := Counts()), key=lambda pair: pair.where.rpartition(", line ")[0]):
        for document in split_parts("\n".join(pair.source for pair in pairs), name, 1):
            counts.add(document.text, starts=document.part == 0)
            yield document
    counts.files, counts.duplicates, counts.unreadable = read.files, read.duplicates, read.unreadable


@functools.cache
def _all_heads() -> tuple[tuple[Pair, ...], Counts]:
    """Parsing takes seconds, the text is small and cannot change while a program runs: keep it."""
    counts, seen = Counts(), set[str]()
    pairs: list[Pair] = []
    for name, path in modules():
        counts.files += 1
        for node in ast.walk(parsed(path, counts)):
            if isinstance(node, Function) and (paragraph := first_paragraph(node)):
                pair = Pair(head(node), paragraph, f"{name}, line {node.lineno}")
                new = not seen.intersection((pair.source, pair.target))
                seen.update((pair.source, pair.target))
                counts.duplicates += not new
                pairs += [pair] if new else []
    return tuple(pairs), counts


def head(node: Function) -> str:
    """Return a function's name and the names of its parameters: `get(self, key)`."""
    return f"{node.name}({', '.join(argument.arg for argument in (*node.args.posonlyargs, *node.args.args))})"


def first_paragraph(node: Function) -> str:
    """Return what the documentation of a function begins with, in one line; nothing where that is an example."""
    text = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
    return "" if text.startswith(EXAMPLE) else text
