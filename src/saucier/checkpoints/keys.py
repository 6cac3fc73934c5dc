"""Config fields of other libraries, as a table that works in both directions, and the layout of a family around it.

On the way in, fields become arguments of the family's function. On the way out, values are read from the tree and the
family's function must give that very tree again: what cannot be expressed is refused, never dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from saucier import config as c
from saucier.checkpoints.choices import bare
from saucier.checkpoints.rules import Rules
from saucier.errors import InputError

COMMON = frozenset({
    "architectures", "model_type", "transformers_version", "dtype", "torch_dtype", "use_cache", "initializer_range",
    "initializer_factor", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id",
    "mask_token_id",
    "decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id", "name_or_path", "_name_or_path",
    "task_specific_params",
    "id2label", "label2id", "num_labels", "problem_type", "output_hidden_states", "output_attentions", "return_dict",
    "finetuning_task", "tokenizer_class", "prefix", "gradient_checkpointing", "classifier_dropout",
    "_attn_implementation_autoset",
    "_num_labels", "chunk_size_feed_forward",
})
"""Fields that do not change what a model computes, in every family."""

SPECIAL_IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id",
               "forced_eos_token_id")
"""Fields that generation reads, where no generation_config.json says more."""


ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""Published names of activations -> ours."""
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

    def read(self, document: Document, where: str) -> Any:
        """Return our value. Raises `InputError` for a missing or unknown one."""
        value = document.get(self.foreign)
        if value is None:
            value = self.default(document) if callable(self.default) else self.default
        if value is None:
            raise InputError(f"{self.foreign} is missing", where=where, remedy="the config is not whole; copy it again")
        if self.names and value not in self.names:
            raise InputError(f"{self.foreign} {value!r} is not known", where=where,
                             remedy=f"known: {', '.join(map(str, self.names))}")
        return self.names[value] if self.names else value

    def write(self, tree: c.Transformer) -> Any:
        """Return the foreign value; None where the tree has no such place."""
        value = look_up(tree, self.paths[0])
        return {ours: theirs for theirs, ours in reversed([*self.names.items()])}.get(value) if self.names else value


def look_up(tree: Any, path: str) -> Any:
    """Follow a path of attribute names and indices; None where the tree ends early."""
    for part in path.split("."):
        if tree is None:
            return None
        tree = tree[int(part)] if part.isdigit() else getattr(tree, part, None)
    return tree


def put(tree: Any, path: str, value: Any) -> Any:
    """Return the tree with another value at a path; unchanged where the tree ends before it."""
    first, _, rest = path.partition(".")
    if tree is None:
        return None
    if first.isdigit():
        index = int(first)
        return (*tree[:index], put(tree[index], rest, value) if rest else value, *tree[index + 1:])
    return tree.model_copy(update={first: put(getattr(tree, first), rest, value) if rest else value})


Choice = Callable[[c.Transformer], c.Transformer]
"""What a published class keeps of a family's tree."""


@dataclass(frozen=True)
class Layout:
    """How a family is published: config fields, weight names, and what each published class is."""

    model_type: str
    family: Callable[..., c.Transformer]
    keys: tuple[Key, ...]
    weights: Callable[[c.Transformer], Rules]
    classes: Mapping[str, Choice]
    """Published class -> what it keeps of the family's tree.

    The first is the one that is written when nothing else fits.
    """
    base: str
    """What classes with a head write before the body's names (`bert.`), and the bare body does not."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Fields that change what is computed, and of which only this value can be expressed."""
    free: frozenset[str] = frozenset()
    """Fields of this family that do not change what is computed, beside `COMMON`."""
    normalize: Callable[[Document], Document] = dict
    """Brings newer or older spellings of a field to the one of the table."""

    @property
    def bare(self) -> str | None:
        """The class that is the body alone, whose weights are named without the base; None: there is no such class."""
        return next((name for name, choice in self.classes.items() if choice is bare), None)

    def tree(self, document: Document, published: str, where: str) -> c.Transformer:
        """Return the tree of a foreign config as one of its classes.

        Raises `InputError` for what cannot be expressed.
        """
        document = self.normalize(document)
        known = {key.foreign for key in self.keys} | set(self.fixed) | self.free | COMMON
        if unknown := sorted(set(document) - known):
            raise InputError(f"unknown field {', '.join(unknown)}", where=where,
                             remedy="it may change the numbers, so it is not ignored; remove it if it does not")
        for name, value in self.fixed.items():
            if document.get(name, value) != value:
                raise InputError(f"{name} {document[name]!r} cannot be expressed", where=where,
                                 remedy=f"only {value!r} can")
        tree = self.family(**{key.argument: key.read(document, where) for key in self.keys if key.argument})
        for key in self.keys:
            value = None if key.argument else key.read(document, where)
            for path in () if key.argument else key.paths:
                tree = put(tree, path, value)
        return self.classes[published](validated(tree, where))

    def document(self, tree: c.Transformer) -> dict[str, Any]:
        """Return the foreign config of a tree. Raises `InputError` when the family cannot express the tree."""
        document: dict[str, Any] = {"model_type": self.model_type, **self.fixed}
        for key in self.keys:
            if (value := key.write(tree)) is not None:
                document[key.foreign] = value
        for published in self.classes:
            again = self.tree(document, published, self.model_type)
            if again.model_copy(update={"initialization": tree.initialization}) == tree:
                return {"architectures": [published], **document}
        raise InputError(f"this model cannot be written as {self.model_type}: {different(tree, again)}", where="model",
                         remedy="save it in our own layout")


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
        first = error.errors()[0]
        raise InputError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", where=where,
                         remedy="this value makes no model") from error
