"""The published layout of a family: its fields, weight names and classes, and the config of a folder as a tree.

On the way in, fields become arguments of the family's function. On the way out, values are read from the tree and
the family's function must give that tree again: what cannot be expressed is refused, never dropped. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from saucier import config as c
from saucier.checkpoints.fields import (
    COMMON,
    NEUTRAL,
    Document,
    Key,
    apply_num_labels,
    name_fields_in_error,
    put,
)
from saucier.checkpoints.weight_names import Rule, Rules
from saucier.config.base import ConfigError
from saucier.config.blocks import MAX_LAYERS
from saucier.errors import InputError, suggest_name

MODEL_TYPE = "saucier"
"""Of our own layout."""

QUANTIZATION = "quantization_config"
"""Key of a published config that says which matrices are in few bits, and how; it changes no shape."""

Keep = Callable[[c.Transformer, Document], c.Transformer]
"""What a published class makes of a family's tree, given its config."""


@dataclass(frozen=True)
class Published:
    """One published class: what it makes of the family's tree, and the names of what it adds to the body."""

    keep: Keep
    rules: tuple[Rule, ...] | Callable[[c.Transformer], tuple[Rule, ...]] = ()
    """Names of the weights of its head, or what gives them for a tree."""
    keys: tuple[Key, ...] = ()
    """Fields that are read after `keep`, for the head."""
    undo: Callable[[c.Transformer], c.Transformer] = lambda tree: tree
    """Puts back what `keep` moved, so that keys find their places on the way out; what it dropped may stay away."""
    base: str | None = None
    """What it writes before the body's names; None: the layout's base. The bare body writes nothing."""
    unwritten: tuple[str, ...] = ()
    """Fixed tables of the body that its files leave out."""
    optional: tuple[str, ...] = ()
    """Slots of the tree that are left empty where a file holds no weights for them."""

    def head_rules(self, tree: c.Transformer) -> tuple[Rule, ...]:
        """Return the names of the weights of its head."""
        return self.rules(tree) if callable(self.rules) else self.rules


@dataclass(frozen=True)
class Layout:
    """How a family is published: config fields, weight names, and what each published class is."""

    model_type: str
    family: Callable[..., c.Transformer]
    keys: tuple[Key, ...]
    weights: Callable[[c.Transformer], Rules]
    """The names of the body, for a tree."""
    classes: Mapping[str, Published]
    """The first is the one that a folder without `architectures` holds."""
    base: str
    """What classes with a head write before the body's names (`bert.`)."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Fields that change what is computed, and of which only this value can be expressed."""
    free: frozenset[str] = frozenset()
    """Fields of this family that do not change what is computed, in addition to `COMMON`."""
    obeyed: Mapping[str, str] = field(default_factory=dict)
    """Fields that are read without a key, by the functions below -> what of them is obeyed, in words."""
    normalize: Callable[[Document], Document] = dict
    """Brings newer or older spellings of a field to the one of the table."""
    older: Mapping[str, str] = field(default_factory=dict)
    """Older names -> the fields of the table that `normalize` makes of them."""
    choose_layout: Callable[[Layout, Document], Layout] = lambda layout, document: layout
    """The same layout with the weight names that a config requires, where a field chooses between older and newer."""
    finish: Callable[[c.Transformer], c.Transformer] = lambda tree: tree
    """What every class makes of its tree in the end, such as a decoder of an encoder that sees only the past."""
    undo: Callable[[c.Transformer], c.Transformer] = lambda tree: tree
    """The inverse of `finish`, before fields are read from a tree."""

    @property
    def bases(self) -> tuple[str, ...]:
        """All prefixes that the body's names may have in a file, the usual first."""
        found = [self.base, *(published.base for published in self.classes.values() if published.base is not None), ""]
        return tuple(dict.fromkeys(found))

    def base_of(self, published: str) -> str:
        """Return what a class writes before the body's names."""
        base = self.classes[published].base
        return self.base if base is None else base

    @property
    def known_fields(self) -> set[str]:
        """The fields of configs of the family that its own table rules, and those that change nothing in any."""
        return {key.foreign for key in self.keys} | {*self.fixed, *self.obeyed} | self.free | COMMON

    def fields(self, published: str) -> set[str]:
        """Return the fields of a class's config that a key reads."""
        return {key.foreign for key in (*self.keys, *self.classes[published].keys)}

    def rules(self, tree: c.Transformer, published: str) -> Rules:
        """Return the names of all weights of a class."""
        return self.weights(tree).plus(self.classes[published].head_rules(tree))

    def knows(self, name: str, tree: c.Transformer) -> bool:
        """Say whether a foreign name belongs to some class of the family; `@` is the prefix of the body."""
        return self.weights(tree).knows(name) or any(Rules(published.head_rules(tree)).knows(name)
                                                     for published in self.classes.values())

    def tree(self, document: Document, published: str, where: str) -> c.Transformer:
        """Return the tree of a foreign config as one of its classes.

        Raises `InputError` for what cannot be expressed.
        """
        given, document = document, apply_num_labels(self.normalize(document))
        if unknown := sorted(set(document) - self.known_fields - NEUTRAL.keys()):
            raise InputError(f"unknown field {', '.join(unknown)}", where=where,
                             remedy="it may change the numbers, so it is not ignored; remove it if it does not")
        neutral = {name: value for name, value in NEUTRAL.items() if name not in self.known_fields}
        for name, value in {**neutral, **self.fixed}.items():
            if document.get(name, value) not in (value, None):
                raise InputError(f"{name} {document[name]!r} cannot be expressed", where=where,
                                 remedy=f"only {value!r} can")
        refuse_too_many_layers(document, where)
        arguments = {key.argument: key.read(document, where) for key in self.keys if key.argument}
        try:
            made = call_family(self.family, arguments, where)
        except InputError as error:
            said = ", ".join(key.foreign for key in self.keys if key.argument)
            raise InputError(f"{error.what}: one of {said}", where=where, remedy=error.remedy) from error
        tree = fill_tree(made, self.keys, document, where)
        chosen = self.classes[published]
        try:
            kept = fill_tree(chosen.keep(tree, document), chosen.keys, document, where)
            # checked first: what finishes a tree counts its layers
            return self.finish(c.Transformer.model_validate(kept.model_dump(mode="python", warnings=False)))
        except (InputError, ValidationError) as error:
            fault = error if isinstance(error, InputError) else model_error(error, where)
            raise self.explain(fault, given, published, where) from error

    def explain(self, error: InputError, document: Document, published: str, where: str) -> InputError:
        """Return an error about a place of the tree with the fields of the config that say what is there."""
        keys = (*self.keys, *self.classes[published].keys)
        older = {newer: name for name, newer in self.older.items() if name in document}
        names = {key.foreign: older.get(key.foreign, key.name_in(document)) for key in keys}
        return name_fields_in_error(error, keys, {key: (name, document.get(name)) for key, name in names.items()},
                                    where)

    def document(self, tree: c.Transformer, said: Document | None = None) -> dict[str, Any]:
        """Return the foreign config of a tree. Raises `InputError` when the family cannot express the tree.

        `said` is what the config had said where the tree was read: fields that change nothing, and the spelling of
        those that do, are taken from it, and its class is tried first.
        """
        said, first = said or {}, None
        refused: InputError | None = None
        unread = {name: value for name, value in said.items() if name in self.free | COMMON | self.obeyed.keys()}
        for name in sorted(self.classes, key=lambda name: name not in (said.get("architectures") or ())):
            try:
                document = {"model_type": self.model_type, **unread, **self.fixed, "architectures": [name],
                            **self.make_fields(tree, name, said)}
                again = put(self.tree(document, name, self.model_type),
                            {slot: None for slot in self.classes[name].optional if getattr(tree, slot) is None})
            except InputError as error:  # a class for a head that the tree has not
                refused = refused or error
                continue
            if again.model_copy(update={"initialization": tree.initialization}) == tree:
                return document
            first = first or again
        why = refused.what if first is None and refused is not None else describe_difference(tree, first)
        raise InputError(f"this model cannot be written as {self.model_type}: {why}", where="model",
                         remedy="save it in our own layout") from refused

    def make_fields(self, tree: c.Transformer, published: str, said: Document) -> dict[str, Any]:
        """Return the fields of a tree; of labels that agree in number, those that had names keep them."""
        chosen = self.classes[published]
        whole = self.undo(chosen.undo(tree))
        fields = {key.foreign: key.write(whole, said.get(key.foreign)) for key in self.keys}
        fields |= {key.foreign: key.write(tree, said.get(key.foreign)) for key in chosen.keys}
        null = {key.foreign for key in (*self.keys, *chosen.keys) if key.nullable}
        known = {name: value for name, value in fields.items() if value is not None or name in null}
        labels, had = known.get("id2label"), said.get("id2label")
        return {**known, "id2label": had} if labels and had and len(labels) == len(had) else known


def refuse_too_many_layers(document: Document, where: str) -> None:
    """Raise `InputError` for more layers than any model has, before a family's function writes every one out."""
    for name, count in document.items():
        if "layer" in name and isinstance(count, int) and count > MAX_LAYERS:
            raise InputError(f"{name} is {str(count)[:40]}", where=where,
                             remedy=f"at most {MAX_LAYERS:,} layers can be built")


def call_family(family: Callable[..., c.Transformer], arguments: Document, where: str) -> c.Transformer:
    """Call a family's function. Raises `InputError` for arguments that make no model."""
    try:
        return family(**arguments)
    except ConfigError as error:
        raise model_error(error.cause, where) from error
    except InputError as error:
        raise InputError(f"these values make no model ({error.where}: {error.what})", where=where,
                         remedy=error.remedy) from error
    except (TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
        raise InputError(f"these values make no model ({error})", where=where,
                         remedy="copy the config again") from error


def fill_tree(tree: c.Transformer, keys: tuple[Key, ...], document: Document, where: str) -> c.Transformer:
    """Return the tree with the values of a config at the places of its keys."""
    for key in keys:
        if not key.argument:
            tree = put(tree, dict.fromkeys(key.paths, key.read(document, where)))
    return tree


def describe_difference(first: Any, second: Any, path: str = "") -> str:
    """Return the path of the first difference of two trees, with both values."""
    if type(first) is type(second) and isinstance(first, c.Config):
        for name in type(first).model_fields:
            if name != "initialization" and getattr(first, name) != getattr(second, name):
                return describe_difference(getattr(first, name), getattr(second, name),
                                           f"{path}.{name}" if path else name)
    if isinstance(first, c.Cycle) and isinstance(second, c.Repeat):
        return f"{path} have shapes of their own, and a published config has one for all"
    if isinstance(first, tuple) and isinstance(second, tuple) and len(first) == len(second):
        for index, (one, other) in enumerate(zip(first, second, strict=True)):
            if one != other:
                return describe_difference(one, other, f"{path}.{index}")
    return f"{path} is {describe_value(first)}, and it would come back as {describe_value(second)}"


def describe_value(value: Any) -> str:
    """Write a value as a recipe would: a part by its kind and its plain settings, the parts inside by their kinds."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(describe_value, value[:3]))}{', ...' if len(value) > 3 else ''}]"
    if not isinstance(value, c.Config):
        return repr(value)
    plain = [f"{name}: {getattr(one, 'kind', one)}" for name, one in value
             if name != "kind" and value.__class__.model_fields[name].default != one and not isinstance(one, tuple)]
    kind = getattr(value, "kind", None)
    return f"{kind or 'a part'}{f' ({chr(44).join(plain)})' if plain else ''}".replace(",", ", ")


def model_error(error: ValidationError, where: str, remedy: str = "this value makes no model") -> InputError:
    """Return the error of values that make no model, with the path of the first."""
    first = error.errors()[0]
    return InputError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", where=where, remedy=remedy)


LARGEST_IN_LIST = 10_000_000
"""Largest number inside a list of a config."""


def published_tree(layout: Layout, document: Mapping[str, Any], published: str, where: str) -> c.Transformer:
    """Return the tree of a published config as one of its classes, checked.

    Raises `InputError` for a config that makes none. Other errors are faults of a family's tables: they keep their
    traceback.
    """
    document = {name: value for name, value in document.items() if name != QUANTIZATION}
    check_lists(document, where)
    tree = layout.tree(document, published, where)
    try:
        c.check(tree)
    except InputError as error:
        raise layout.explain(error, document, published, where) from error
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
    known = [name for name in (said if isinstance(said, list) else ())
             if isinstance(name, str) and name in layout.classes]
    if not known:
        raise InputError(f"architectures {str(said)[:100]} is not known for {layout.model_type}", where=where,
                         remedy=f"say what to read it as: head=... ({', '.join(layout.classes)})")
    return known[0]


NO_HEAD = "none"
"""The head that means the body alone."""


def class_of(layout: Layout, document: Mapping[str, Any], head: str, where: str) -> str:
    """Return the class that `head` means: by its published name, or by the kind of our head that it has.

    Of several with such a head it is the one that was saved, or else the first. Raises `InputError` for an unknown one.
    """
    if head in layout.classes:
        return head
    kinds = find_head_kinds(layout, document, where)
    if head not in kinds.values():
        known = [*layout.classes, *sorted({*kinds.values()})]
        raise InputError(f"{layout.model_type} has no head {head!r}", where="head", remedy=suggest_name(head, known))
    return next(name for name, kind in kinds.items() if kind == head)


def find_head_kinds(layout: Layout, document: Mapping[str, Any], where: str) -> dict[str, str]:
    """Return the kind of head of each class that a config makes, the one that was saved first.

    Raises `InputError` for a config that makes none.
    """
    chosen, said = layout.choose_layout(layout, document), document.get("architectures")
    kinds: dict[str, str] = {}
    for name in sorted(layout.classes, key=lambda name: not isinstance(said, list) or name not in said):
        with suppress(InputError):
            head = published_tree(chosen, document, name, where).head
            kinds[name] = NO_HEAD if head is None else head.kind
    if not kinds:  # say why
        published_tree(chosen, document, saved_class(document, layout, where), where)
    return kinds


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
