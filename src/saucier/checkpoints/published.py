"""The config of a published folder as a tree, without its weights and without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saucier import config as c
from saucier.checkpoints.keys import Layout
from saucier.errors import InputError, nearest

LARGEST_IN_LIST = 10_000_000
"""Largest number inside a list of a config."""


def published_tree(layout: Layout, document: Mapping[str, Any], published: str, where: str) -> c.Transformer:
    """Return the tree of a published config as one of its classes, checked.

    Raises `InputError` for a config that makes none. Other errors are faults of a family's tables: they keep their
    traceback.
    """
    check_lists(document, where)
    tree = layout.tree(document, published, where)
    try:
        c.check(tree)
    except InputError as error:
        raise layout.named(error, document, published, where) from error
    return tree


def check_lists(value: Any, where: str, *, inside: bool = False) -> None:
    """Refuse numbers in lists that are larger than any length or id: some configs have lists written out from them."""
    if isinstance(value, dict):
        for one in value.values():
            check_lists(one, where, inside=inside)
    elif isinstance(value, list):
        for one in value:
            check_lists(one, where, inside=True)
    elif inside and isinstance(value, int) and abs(value) > LARGEST_IN_LIST:
        raise InputError(f"a list holds {str(value)[:40]}", where=where, remedy="copy the config again")


def saved_class(document: Mapping[str, Any], layout: Layout, where: str) -> str:
    """Return the class that a folder says it holds; the family's first where it says nothing."""
    said = document.get("architectures") or [next(iter(layout.classes))]
    names = said if isinstance(said, list) else []
    known = [name for name in names if isinstance(name, str) and name in layout.classes]
    if not known:
        raise InputError(f"architectures {str(said)[:100]} is not known for {layout.model_type}", where=where,
                         remedy=f"say what to read it as: head=... ({', '.join(layout.classes)})")
    return known[0]


NO_HEAD = "none"
"""What asks for the body alone."""


def class_of(layout: Layout, document: Mapping[str, Any], head: str, where: str) -> str:
    """Return the class that `head` asks for: by its published name, or by the kind of our head that it has.

    Of several with such a head it is the one that was saved, or else the first. Raises `InputError` for an unknown one.
    """
    if head in layout.classes:
        return head
    found = classes_with(layout, document, head, where)
    if not found:
        kinds = {kind_of(layout, document, name, where) for name in layout.classes}
        known = [*layout.classes, *sorted(kind for kind in kinds if kind)]
        raise InputError(f"{layout.model_type} has no head {head!r}", where="head", remedy=nearest(head, known))
    return found[0]


def classes_with(layout: Layout, document: Mapping[str, Any], kind: str, where: str) -> list[str]:
    """Return the classes with a kind of head, the one that was saved first. Raises `InputError` for a wrong config."""
    kinds = {name: kind_of(layout, document, name, where) for name in layout.classes}
    if not any(kinds.values()):  # no class can be made of this config: say why
        published_tree(layout.spelled(layout, document), document, saved_class(document, layout, where), where)
    said = document.get("architectures") or ()
    return sorted((name for name, found in kinds.items() if found == kind), key=lambda name: name not in said)


def kind_of(layout: Layout, document: Mapping[str, Any], name: str, where: str) -> str | None:
    """Return the kind of head that a class has; None where this config makes no such class."""
    try:
        tree = published_tree(layout.spelled(layout, document), document, name, where)
    except InputError:
        return None
    return NO_HEAD if tree.head is None else tree.head.kind


def label_names(document: Mapping[str, Any], count: int, where: str) -> tuple[str, ...] | None:
    """Return the names of a head's outputs, in order; None where a published config names none, or more or fewer.

    Raises `InputError` for names that are not numbered.
    """
    named = document.get("id2label")
    if not isinstance(named, dict) or len(named) != count:
        return None
    if wrong := [key for key in named if not str(key).isdecimal()]:
        raise InputError(f"id2label has the key {str(wrong[0])[:40]!r}, which is no number", where=where,
                         remedy="number the labels of config.json from 0")
    return tuple(str(named[key]) for key in sorted(named, key=int))
