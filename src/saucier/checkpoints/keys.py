"""Config fields of other libraries, as a table that works in both directions, and the layout of a family around it.

On the way in, fields become arguments of the family's function. On the way out, values are read from the tree and the
family's function must give that very tree again: what cannot be expressed is refused, never dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from saucier import config as c
from saucier.checkpoints.common_fields import COMMON, NEUTRAL, neutral, with_labels
from saucier.checkpoints.naming import by_field
from saucier.checkpoints.rules import Rule, Rules
from saucier.config.model import MAX_LAYERS
from saucier.errors import InputError

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
    "linear": "identity",
    "gelu_python": "gelu",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_10": "clipped_gelu",
    "quick_gelu": "quick_gelu",
    "relu2": "squared_relu",
    "relu6": "relu6",
    "leaky_relu": "leaky_relu",
    "mish": "mish",
    "hardswish": "hard_swish",
    "sigmoid": "sigmoid",
    "laplace": "laplace",
}
"""Published names of activations -> ours; of several for the same function the first is written."""
Document = Mapping[str, Any]


@dataclass(frozen=True)
class Key:
    """One field of a foreign config and the places of the tree that hold its value.

    `default` is what a missing or null field stands for, a value or a function of the document. With `argument` the
    value is given to the family's function instead, because it changes the shape of the tree.
    """

    foreign: str
    paths: tuple[str, ...]
    names: Mapping[Any, Any] = field(default_factory=dict)
    """Foreign value -> ours, where they are spelled differently."""
    default: Any = None
    argument: str | None = None
    ours: Callable[[Any], Any] | None = None
    """Makes our value of the foreign one, where a table of names is not enough."""
    theirs: Callable[[Any], Any] | None = None
    """The inverse of `ours`."""
    found: Callable[[c.Transformer], Any] | None = None
    """Finds our value in a tree, where it does not stand at the first path."""
    absent: Any = None
    """The foreign value of a tree that has none of the places."""
    kept: Callable[[c.Transformer, Any], Any] | None = None
    """Finds the foreign value in a tree, near what the config had said (a config inside a config)."""
    instead: tuple[str, ...] = ()
    """Other fields that say the same where this one is absent; the default reads them."""
    nullable: bool = False
    """Whether null is a value, None or what `ours` makes of it; a missing field is still `default`."""

    def read(self, document: Document, where: str) -> Any:
        """Return our value. Raises `InputError` for a missing or unknown one."""
        value = document.get(self.foreign)
        if value is None and not (self.nullable and self.foreign in document):
            value = self.default(document) if callable(self.default) else self.default
        if value is None and self.nullable:
            return None if self.ours is None else self.ours(None)
        if value is None:
            raise InputError(f"{self.foreign} is missing", where=where, remedy="the config is not whole; copy it again")
        if self.names:
            if not isinstance(value, Hashable) or value not in self.names:
                raise InputError(f"{self.foreign} {value!r} is not known", where=where,
                                 remedy=f"known: {', '.join(map(str, self.names))}")
            return self.names[value]
        return value if self.ours is None else self.converted(value, where)

    def spelled(self, document: Document) -> str:
        """Return the name by which a config says this field."""
        return next((name for name in (self.foreign, *self.instead) if name in document), self.foreign)

    def converted(self, value: Any, where: str) -> Any:
        """Return what `ours` makes of a value. Raises `InputError` for one that it cannot take."""
        assert self.ours is not None, "read() asks only then"
        try:
            return self.ours(value)
        except (TypeError, ValueError, KeyError, IndexError) as error:
            raise InputError(f"{self.foreign} {value!r} cannot be expressed", where=where,
                             remedy="copy the config again") from error

    def write(self, tree: c.Transformer, said: Any = None) -> Any:
        """Return the foreign value, from the first of the places that the tree has; `absent` where it has none.

        None too where a nullable key's value is null. Of several names for our value it is the one that was `said`.
        """
        if self.kept:
            return self.kept(tree, said)
        places = (look_up(tree, path) for path in self.paths)
        value = self.found(tree) if self.found else next((value for value in places if value is not None), None)
        if value is None:
            return self.absent
        if self.names:
            if isinstance(said, Hashable) and said in self.names and self.names[said] == value:
                return said
            return {ours: theirs for theirs, ours in reversed([*self.names.items()])}.get(value)
        return value if self.theirs is None else self.theirs(value)


def look_up(tree: Any, path: str) -> Any:
    """Follow a path of attribute names and indices; None where the tree ends early.

    `*` stands for every block of a stack's layers, however they are laid out: the first that has the place counts.
    """
    first, _, rest = path.partition(".")
    if first == "*":
        blocks = tree.blocks if isinstance(tree, c.Cycle) else (getattr(tree, "block", None),)
        return next((value for block in blocks if (value := look_up(block, rest)) is not None), None)
    if first.isdigit():
        found = next(iter(tree[int(first):]), None) if isinstance(tree, tuple) else None
    else:
        found = getattr(tree, first) if isinstance(tree, c.Config) and first in type(tree).model_fields else None
    return look_up(found, rest) if rest and found is not None else found


def put(tree: Any, path: str, value: Any) -> Any:
    """Return the tree with another value at a path; unchanged where the tree has no such place."""
    first, _, rest = path.partition(".")
    if first == "*":
        if isinstance(tree, c.Cycle):
            return tree.model_copy(update={"blocks": tuple(put(block, rest, value) for block in tree.blocks)})
        return put(tree, f"block.{rest}", value)
    if tree is None or (isinstance(tree, c.Config) and first not in type(tree).model_fields):
        return tree
    if first.isdigit():
        index = int(first)
        if index >= len(tree):
            return tree
        return (*tree[:index], put(tree[index], rest, value) if rest else value, *tree[index + 1:])
    return tree.model_copy(update={first: put(getattr(tree, first), rest, value) if rest else value})


def below(roots: tuple[str, ...], end: str) -> tuple[str, ...]:
    """The same place below several parts of a tree."""
    return tuple(f"{root}.{end}" for root in roots)


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
    restore: Callable[[c.Transformer], c.Transformer] = lambda tree: tree
    """Puts back what `keep` moved, so that keys find their places on the way out; what it dropped may stay away."""
    base: str | None = None
    """What it writes before the body's names; None: the layout's base. The bare body writes nothing."""
    unwritten: tuple[str, ...] = ()
    """Fixed tables of the body that its files leave out."""
    optional: tuple[str, ...] = ()
    """Slots of the tree that are left empty where a file holds no weights for them."""

    def named(self, tree: c.Transformer) -> tuple[Rule, ...]:
        """Return the names of the weights of its head."""
        return self.rules(tree) if callable(self.rules) else self.rules

    def emptied(self, made: c.Transformer, tree: c.Transformer) -> c.Transformer:
        """Return what was made of a config without the optional slots that `tree` has not."""
        return made.model_copy(update={slot: None for slot in self.optional if getattr(tree, slot) is None})


def unchanged(tree: c.Transformer) -> c.Transformer:
    """The tree itself."""
    return tree


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
    """Fields of this family that do not change what is computed, beside `COMMON`."""
    told: Mapping[str, str] = field(default_factory=dict)
    """Fields that are read without a key, by what stands below -> what of them is obeyed, in words."""
    normalize: Callable[[Document], Document] = dict
    """Brings newer or older spellings of a field to the one of the table."""
    older: Mapping[str, str] = field(default_factory=dict)
    """Older names -> the fields of the table that `normalize` makes of them."""
    spelled: Callable[[Layout, Document], Layout] = lambda layout, document: layout
    """The same layout with the weight names that a config asks for, where a field chooses between older and newer."""
    settle: Callable[[c.Transformer], c.Transformer] = unchanged
    """What every class makes of its tree in the end, such as a decoder of an encoder that sees only the past."""
    restore: Callable[[c.Transformer], c.Transformer] = unchanged
    """The inverse of `settle`, before fields are read from a tree."""

    @property
    def bases(self) -> tuple[str, ...]:
        """All that may stand before the body's names in a file, the usual first."""
        found = [self.base, *(published.base for published in self.classes.values() if published.base is not None), ""]
        return tuple(dict.fromkeys(found))

    def base_of(self, published: str) -> str:
        """Return what a class writes before the body's names."""
        base = self.classes[published].base
        return self.base if base is None else base

    def fields(self, published: str) -> set[str]:
        """Return the fields of a class's config that a key reads."""
        return {key.foreign for key in (*self.keys, *self.classes[published].keys)}

    def rules(self, tree: c.Transformer, published: str) -> Rules:
        """Return the names of all weights of a class."""
        return self.weights(tree).plus(self.classes[published].named(tree))

    def knows(self, name: str, tree: c.Transformer) -> bool:
        """Say whether a foreign name belongs to some class of the family; `@` stands for what precedes the body."""
        body = self.weights(tree)
        return body.knows(name) or any(Rules(published.named(tree)).knows(name) for published in self.classes.values())

    def tree(self, document: Document, published: str, where: str) -> c.Transformer:
        """Return the tree of a foreign config as one of its classes.

        Raises `InputError` for what cannot be expressed.
        """
        given, document = document, with_labels(self.normalize(document))
        known = {key.foreign for key in self.keys} | {*self.fixed, *self.told} | self.free | COMMON
        if unknown := sorted(set(document) - known - NEUTRAL.keys()):
            raise InputError(f"unknown field {', '.join(unknown)}", where=where,
                             remedy="it may change the numbers, so it is not ignored; remove it if it does not")
        for name, value in {**neutral(known), **self.fixed}.items():
            if document.get(name, value) not in (value, None):
                raise InputError(f"{name} {document[name]!r} cannot be expressed", where=where,
                                 remedy=f"only {value!r} can")
        refuse_too_many_layers(document, where)
        arguments = {key.argument: key.read(document, where) for key in self.keys if key.argument}
        try:
            made = built(self.family, arguments, where)
        except InputError as error:
            said = ", ".join(key.foreign for key in self.keys if key.argument)
            raise InputError(f"{error.what}: one of {said}", where=where, remedy=error.remedy) from error
        tree = placed(made, self.keys, document, where)
        chosen = self.classes[published]
        try:
            kept = placed(chosen.keep(tree, document), chosen.keys, document, where)
            return self.settle(validated(kept, where))  # checked first: what settles a tree counts its layers
        except (InputError, ValidationError) as error:
            told = error if isinstance(error, InputError) else no_model(error, where)
            raise self.named(told, given, published, where) from error

    def named(self, error: InputError, document: Document, published: str, where: str) -> InputError:
        """Return an error about a place of the tree with the fields of the config that say what is there."""
        keys = (*self.keys, *self.classes[published].keys)
        older = {newer: name for name, newer in self.older.items() if name in document}
        names = {key.foreign: older.get(key.foreign, key.spelled(document)) for key in keys}
        return by_field(error, keys, {key: (name, document.get(name)) for key, name in names.items()}, where)

    def document(self, tree: c.Transformer, said: Document | None = None) -> dict[str, Any]:
        """Return the foreign config of a tree. Raises `InputError` when the family cannot express the tree.

        `said` is what the config had said where the tree was read: fields that change nothing, and the spelling of
        those that do, are taken from it, and its class is tried first.
        """
        said, first = said or {}, None
        refused: InputError | None = None
        unread = {name: value for name, value in said.items() if name in self.free | COMMON | self.told.keys()}
        for name in self.likely(said):
            document = {"model_type": self.model_type, **unread, **self.fixed, "architectures": [name],
                        **self.written(tree, name, said)}
            try:
                again = self.classes[name].emptied(self.tree(document, name, self.model_type), tree)
            except InputError as error:  # a class for a head that the tree has not
                refused = refused or error
                continue
            if again.model_copy(update={"initialization": tree.initialization}) == tree:
                return document
            first = first or again
        if first is None and refused is not None:
            raise refused
        raise InputError(f"this model cannot be written as {self.model_type}: {different(tree, first)}", where="model",
                         remedy="save it in our own layout")

    def likely(self, said: Document) -> list[str]:
        """Return the published classes, those that the config had named first."""
        return sorted(self.classes, key=lambda name: name not in (said.get("architectures") or ()))

    def written(self, tree: c.Transformer, published: str, said: Document) -> dict[str, Any]:
        """Return the fields of a tree; of labels that agree in number, those that had names keep them."""
        chosen = self.classes[published]
        whole = self.restore(chosen.restore(tree))
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


def built(family: Callable[..., c.Transformer], arguments: Document, where: str) -> c.Transformer:
    """Call a family's function. Raises `InputError` for arguments that make no model."""
    try:
        return family(**arguments)
    except ValidationError as error:
        raise no_model(error, where) from error
    except InputError as error:
        raise InputError(f"these values make no model ({error.where}: {error.what})", where=where,
                         remedy=error.remedy) from error
    except (TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
        raise InputError(f"these values make no model ({error})", where=where,
                         remedy="copy the config again") from error


def placed(tree: c.Transformer, keys: tuple[Key, ...], document: Document, where: str) -> c.Transformer:
    """Return the tree with the values of a config at the places of its keys."""
    for key in keys:
        value = None if key.argument else key.read(document, where)
        for path in () if key.argument else key.paths:
            tree = put(tree, path, value)
    return tree


def different(first: Any, second: Any, path: str = "") -> str:
    """Return the path of the first difference of two trees, with both values."""
    if type(first) is type(second) and isinstance(first, c.Config):
        for name in type(first).model_fields:
            if name != "initialization" and getattr(first, name) != getattr(second, name):
                return different(getattr(first, name), getattr(second, name), f"{path}.{name}" if path else name)
    if isinstance(first, tuple) and isinstance(second, tuple) and len(first) == len(second):
        for index, (one, other) in enumerate(zip(first, second, strict=True)):
            if one != other:
                return different(one, other, f"{path}.{index}")
    return f"{path} is {first!r}, and it would come back as {second!r}"


def validated(tree: c.Transformer, where: str) -> c.Transformer:
    """Check the values that were put into a tree. Raises `InputError` with the path of the first wrong one."""
    try:
        return c.Transformer.model_validate(tree.model_dump(mode="python", warnings=False))
    except ValidationError as error:
        raise no_model(error, where) from error


def no_model(error: ValidationError, where: str) -> InputError:
    """Return the error of values that make no model, with the path of the first."""
    first = error.errors()[0]
    return InputError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", where=where,
                      remedy="this value makes no model")
