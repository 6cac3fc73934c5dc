"""The fields of published configs as keys that read and write places of a config tree.

Common fields and their usual places are here once, so that a family says only what they are called. Not here: a
family's layout and its classes (`layout`), and fields that one family has alone (in its own file).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard, TypeVar

from saucier import config as c
from saucier.errors import InputError

GENERATION = ("max_length", "min_length", "do_sample", "num_beams", "length_penalty", "early_stopping", "temperature",
              "top_k", "top_p", "repetition_penalty", "no_repeat_ngram_size", "bad_words_ids", "num_return_sequences")
"""Fields of older configs that only generation reads, where no generation_config.json says more."""

COMMON = frozenset({
    "architectures", "model_type", "transformers_version", "dtype", "torch_dtype", "use_cache", "initializer_range",
    "initializer_factor", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id",
    "mask_token_id",
    "decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id", "name_or_path", "_name_or_path",
    "task_specific_params",
    "id2label", "label2id", "num_labels", "problem_type", "output_hidden_states", "output_attentions", "return_dict",
    "finetuning_task", "tokenizer_class", "prefix", "gradient_checkpointing", "classifier_dropout",
    "_attn_implementation_autoset",
    "_num_labels", "chunk_size_feed_forward", *GENERATION,
})
"""Fields that do not change what a model computes, in every family."""

SPECIAL_IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id",
               "forced_eos_token_id")
"""Fields that generation reads, where no generation_config.json says more."""

OLDER_GENERATION = frozenset({
    *GENERATION, "begin_suppress_tokens", "diversity_penalty", "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty", "num_beam_groups", "output_scores", "remove_invalid_values",
    "return_dict_in_generate", "suppress_tokens", "tf_legacy_loss", "typical_p"})
"""What older configs inside a config say of generation: those of a decoder count where the pair says nothing."""

MOST_LABELS = 10_000_000
NEUTRAL: Mapping[str, Any] = {
    "is_decoder": False, "add_cross_attention": False, "cross_attention_hidden_size": None, "is_encoder_decoder": False,
    "tie_encoder_decoder": False, "torchscript": False, "use_bfloat16": False, "pruned_heads": {},
    "tf_legacy_loss": False,
    "begin_suppress_tokens": None, "suppress_tokens": None, "diversity_penalty": 0.0, "num_beam_groups": 1,
    "encoder_no_repeat_ngram_size": 0, "exponential_decay_length_penalty": None, "typical_p": 1.0,
    "remove_invalid_values": False, "output_scores": False, "return_dict_in_generate": False}
"""Field -> the only value that can be expressed, of a family whose own table does not know the field."""


def rename_fields(document: Mapping[str, Any], older: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the config with newer names of fields, by older ones; the value of an older name counts more."""
    newer = {older[name]: value for name, value in document.items() if name in older}
    return {**{name: value for name, value in document.items() if name not in older}, **newer}


def apply_num_labels(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config with as many labels as `num_labels` says: it counts more than names of another number.

    So it is in the reference library, which then makes up the names.
    """
    count, names = document.get("num_labels"), document.get("id2label")
    if not is_count(count) or not isinstance(names, Mapping) or len(names) == count:
        return document
    return {**document, "id2label": range(count)}


def is_count(value: Any) -> TypeGuard[int]:
    """Say whether a value may be a number of labels: larger ones come from damaged files only."""
    return isinstance(value, int) and abs(value) <= MOST_LABELS


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
Node = TypeVar("Node", bound=c.Config)


@dataclass(frozen=True)
class Key:
    """One field of a foreign config and the places of the tree that hold its value.

    `default` is the value of a missing or null field, or a function from the document to it. With `argument` the
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
    """Finds our value in a tree, where it is not at the first path."""
    absent: Any = None
    """The foreign value of a tree that has none of the places."""
    write_nested: Callable[[c.Transformer, Any], Any] | None = None
    """Finds the foreign value in a tree, near what the config had said (a config inside a config)."""
    instead: tuple[str, ...] = ()
    """Other fields that say the same where this one is absent; the default reads them."""
    nullable: bool = False
    """Whether null is a value, None or what `ours` makes of it; a missing field is still `default`."""

    def read(self, document: Document, where: str) -> Any:
        """Return our value. Raises `InputError` for a missing or unknown one, and for one that `ours` cannot take."""
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
        try:
            return value if self.ours is None else self.ours(value)
        except (TypeError, ValueError, KeyError, IndexError) as error:
            raise InputError(f"{self.foreign} {value!r} cannot be expressed", where=where,
                             remedy="copy the config again") from error

    def name_in(self, document: Document) -> str:
        """Return the name by which a config says this field."""
        return next((name for name in (self.foreign, *self.instead) if name in document), self.foreign)

    def write(self, tree: c.Transformer, said: Any = None) -> Any:
        """Return the foreign value, from the first of the places that the tree has; `absent` where it has none.

        None too where a nullable key's value is null. Of several names for our value it is the one that was `said`.
        """
        if self.write_nested:
            return self.write_nested(tree, said)
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


def put(tree: Node, values: Mapping[str, Any]) -> Node:
    """Return the tree with other values at paths, one after the other; a path that it has not changes nothing."""
    for path, value in values.items():
        tree = put_at(tree, path, value)
    return tree


def put_at(tree: Any, path: str, value: Any) -> Any:
    """Return a part of a tree with another value at a path."""
    first, _, rest = path.partition(".")
    if first == "*":
        if isinstance(tree, c.Cycle):
            return tree.model_copy(update={"blocks": tuple(put_at(block, rest, value) for block in tree.blocks)})
        return put_at(tree, f"block.{rest}", value)
    if tree is None or (isinstance(tree, c.Config) and first not in type(tree).model_fields):
        return tree
    if first.isdigit():
        index = int(first)
        if index >= len(tree):
            return tree
        return (*tree[:index], put_at(tree[index], rest, value) if rest else value, *tree[index + 1:])
    return tree.model_copy(update={first: put_at(getattr(tree, first), rest, value) if rest else value})


def join_paths(roots: tuple[str, ...], end: str) -> tuple[str, ...]:
    """The same place below several parts of a tree."""
    return tuple(f"{root}.{end}" for root in roots)


def name_fields_in_error(error: InputError, keys: Sequence[Key], said: Mapping[str, tuple[str, Any]],
                         where: str) -> InputError:
    """Return an error about a place of the tree as one about fields of a config; as it is where no field says it.

    `said`: key -> the name that the config has for it, and its value. `where` is the config. The place is that
    of the error, or begins its message.
    """
    at = str(error.where)
    fault = error.what if at == where else f"{at}: {error.what}"
    found = dict(said[key.foreign] for key in find_keys(fault, keys))
    if not found:
        return error
    fields = " with ".join(f"{name} {value!r}" for name, value in found.items())
    return InputError(f"{fields} cannot be expressed ({fault})", where=where, remedy=error.remedy)


def find_keys(fault: str, keys: Sequence[Key]) -> list[Key]:
    """Return the keys nearest to the place that an error begins with, or else those of the values that it speaks of."""
    place = fault.partition(":")[0].split(".")
    near = [rate_key(key, place) for key in keys]
    nearest = max(near, default=0)
    if nearest:
        return [key for key, found in zip(keys, near, strict=True) if found == nearest]
    words = set(re.findall(r"\w+", fault.partition(":")[2]))
    inside = [key for key in keys if any(path.split(".")[-2:-1] == place[-1:] for path in key.paths)]
    alone = [key for key in keys if any("." not in path and path in words for path in key.paths)]
    return [*alone, *(key for key in inside if any(path.split(".")[-1] in words for path in key.paths))]


def rate_key(key: Key, place: Sequence[str]) -> int:
    """Say how well the paths of a key fit a place: by every word on the way 3, at both ends 2, at the last word 1."""
    best = 0
    for path in key.paths:
        way, rest = [word for word in path.split(".") if word != "*"], iter(place)
        if way[-1] == place[-1]:
            best = max(best, 1 + (way[0] == place[0]) + all(word in rest for word in way))
    return best


UsualFields = Mapping[str, tuple[str, Any]]
"""Published name -> its places by their words, with spaces between them, and its default (None: it must be said)."""


def usual_paths(stack: str) -> dict[str, tuple[str, ...]]:
    """Return the places that each word means in a tree with this stack.

    Blocks begin with self-attention and a feed-forward; a third sublayer is a cross-attention. Places that a tree has
    not are passed over, both in reading and in writing.
    """
    block = f"{stack}.layers.*.sublayers"
    attentions = (f"{block}.0", f"{block}.2")
    residuals = (f"{block}.0", f"{block}.1", f"{block}.2")
    return {
        "dim": ("dim",),
        "layers": (f"{stack}.layers.times",),
        "heads": join_paths(attentions, "inner.projection.heads"),
        "head_dim": join_paths(attentions, "inner.projection.head_dim"),
        "attention_bias": (f"{block}.0.inner.projection.bias", f"{block}.0.inner.projection.output_bias"),
        "hidden": (f"{block}.1.inner.hidden",),
        "activation": (f"{block}.1.inner.activation",),
        "vocab": ("embed.vocab",),
        "length": ("embed.positions.length", f"{block}.0.inner.positions.length"),
        "segments": ("embed.segments.count",),
        "eps": ("embed.norm.eps", *join_paths(residuals, "norm.eps"), f"{stack}.final_norm.eps"),
        "dropout": join_paths(residuals, "dropout"),
        "embed_dropout": ("embed.dropout",),
        "attention_dropout": join_paths(attentions, "inner.kernel.dropout"),
        "tied": ("head.tied",),
    }


def make_keys(stack: str, spelled: UsualFields, *, arguments: tuple[str, ...] = (),
              also: Mapping[str, tuple[str, ...]] | None = None) -> tuple[Key, ...]:
    """Return the keys of published names for common places.

    `arguments`: words of places that go to the family's function, because they change the shape of its tree. `also`:
    further places of a word, such as those of a head.
    """
    known = {word: (*paths, *(also or {}).get(word, ())) for word, paths in usual_paths(stack).items()}
    return tuple(Key(foreign, tuple(path for word in words.split() for path in known[word]), default=default,
                     argument=words if words in arguments else None, names=ACTIVATIONS if words == "activation" else {})
                 for foreign, (words, default) in spelled.items())


def replace_defaults(keys: tuple[Key, ...], **defaults: Any) -> tuple[Key, ...]:
    """Return keys of which some have other values where they are missing."""
    return tuple(replace(key, default=defaults[key.foreign]) if key.foreign in defaults else key for key in keys)


def list_attentions(tree: c.Transformer) -> list[c.SelfAttention]:
    """Return the self-attentions of the encoder, or of a decoder alone, in the order of their blocks."""
    stack = tree.encoder or tree.decoder
    return stack.attentions() if stack else []


def first_attention(tree: c.Transformer) -> c.SelfAttention:
    """Return the first of them. Raises `InputError` where there is none."""
    found = list_attentions(tree)
    if not found:
        raise InputError("it has no self-attention", where="model", remedy="save it in our own layout")
    return found[0]


def kind_key(foreign: str, path: str, kind: str, *, argument: str, default: bool) -> Key:
    """Return the key of a field that says whether there is a part of one kind at a place."""
    return Key(foreign, (path,), argument=argument, default=default, theirs=lambda part: part.kind == kind,
               absent=False)


def positive_key(foreign: str, path: str, *, default: int, none: int) -> Key:
    """Return the key of a number that is none where it is not positive: `none` is written then, and read for null."""
    *_, last = path.split(".")
    owner = path.removesuffix(f".{last}")

    def found(tree: c.Transformer) -> int | None:
        part = look_up(tree, owner)
        return None if part is None else getattr(part, last, None) or none

    return Key(foreign, (path,), default=lambda document: none if foreign in document else default,
               ours=lambda value: value if value > 0 else None, found=found)
