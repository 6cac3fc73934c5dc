"""Adapters in the layout of PEFT: LoRA matrices that are added to a base model's weights while these are read.

The sum is made under the published names, before the family's rules, so that it works for every family.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from saucier.checkpoints.hub import ADAPTER_CONFIG
from saucier.checkpoints.layout import Layout
from saucier.checkpoints.own_folder import summarize_faults
from saucier.checkpoints.weight_files import SafeShard, Weights, check_shape
from saucier.errors import InputError
from saucier.expressions import compile_expression
from saucier.files import parse_json, read_json

CONFIG, WEIGHTS, PICKLED_WEIGHTS = ADAPTER_CONFIG, "adapter_model.safetensors", "adapter_model.bin"
PREFIX = "base_model.model."
"""Precedes every name in an adapter's file."""
OWN = "SAUCIER"
"""`peft_type` of adapters in our own form, which PEFT has none for."""
LEARNED_INPUTS = ("PREFIX_TUNING", "PROMPT_TUNING")
"""Kinds of PEFT that put something before the text."""
KINDS = ("LORA", *LEARNED_INPUTS)
"""Kinds that can be read."""
SHOWN = 200
"""Letters of a base model's name that an error shows; a hostile file has names of any length."""
MARKS = "base_marks"
"""The note next to the tensors that tells the base's parameters from others."""
VECTORS = "prompt_embeddings"
"""The tensor of one that puts something before the text."""
DOWN, UP = ".lora_A.weight", ".lora_B.weight"
TABLE_DOWN, TABLE_UP = ".lora_embedding_A", ".lora_embedding_B"
BASE_LAYER = ".base_layer."
"""What PEFT writes into the name of a weight with a pair next to it."""
MATRIX = re.compile(r"(.+?)(\.lora_[AB]\.weight|\.lora_embedding_[AB])")
PLAIN = re.compile(r"[\w.-]+")
"""A regular expression that is a name, as far as its time goes."""
MOST_EXPRESSIONS = 100
"""Others in one adapter."""
FREE = frozenset({
    "peft_type", "base_model_name_or_path", "r", "lora_alpha", "use_rslora", "fan_in_fan_out", "rank_pattern",
    "alpha_pattern", "task_type", "target_modules", "exclude_modules", "modules_to_save", "lora_dropout", "bias",
    "inference_mode", "revision", "peft_version", "auto_mapping", "layers_to_transform", "layers_pattern",
    "init_lora_weights", "megatron_core", "ensure_weight_tying", "runtime_config", "eva_config", "qalora_group_size",
    "num_virtual_tokens", "token_dim", "num_attention_heads", "num_layers", "num_transformer_submodules",
    "prompt_tuning_init", "prompt_tuning_init_text", "tokenizer_name_or_path", "tokenizer_kwargs", "init_weights",
    "encoder_hidden_size", "prefix_projection",
})
"""Fields that are read, or that say how the adapter was trained."""
KNOWN_STARTS = (True, False, None, "gaussian", "eva", "orthogonal")
"""Ways to start LoRA that leave the base model as it is."""
TASKS = {"SEQ_CLS": "ForSequenceClassification", "TOKEN_CLS": "ForTokenClassification",
         "QUESTION_ANS": "ForQuestionAnswering", "FEATURE_EXTRACTION": "Model"}
"""`task_type` -> end of the published class's name, where the base model's folder names another."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter: its settings and its weights."""

    folder: Path
    options: Mapping[str, Any]
    weights: Weights
    alphas: tuple[tuple[Callable[[str], bool], float], ...] = ()
    """Which modules have an alpha of their own."""

    @property
    def base(self) -> str:
        """Path or hub id of the base model."""
        return str(self.options["base_model_name_or_path"])

    def alpha(self, module: str) -> float:
        """Return the alpha of a module."""
        return float(next((value for meets, value in self.alphas if meets(module)), self.options.get("lora_alpha", 8)))

    def scale(self, module: str, rank: int) -> float:
        """Return the factor on a module's product of matrices. Source: Hu et al. 2021, §4.1, arXiv:2106.09685.

        With rslora it falls with the root of the rank only. Source: Kalajdzievski 2023, arXiv:2312.03732.
        """
        return self.alpha(module) / (rank**0.5 if self.options.get("use_rslora") else rank)

    @property
    def marks(self) -> dict[str, str]:
        """What tells each parameter of the base from others; nothing in a file that others wrote."""
        path = self.folder / WEIGHTS
        noted = (SafeShard(path).file.metadata() or {}).get(MARKS, "{}") if path.is_file() else "{}"
        try:
            return {str(name): str(mark) for name, mark in parse_json(noted).items()}
        except (ValueError, AttributeError) as error:
            raise InputError(f"the note {MARKS} is no JSON object", where=str(self.folder / WEIGHTS),
                             remedy="fetch the adapter again") from error

    def pair(self, module: str) -> tuple[Tensor, Tensor]:
        """Return the two matrices of a module, [R, I] and [O, R]. Raises `InputError` for what has no product."""
        ends = (TABLE_DOWN, TABLE_UP) if self.is_table(module) else (DOWN, UP)
        missing = [module + end for end in ends if module + end not in self.weights]
        if missing:
            raise InputError(f"{missing[0]} is missing", where=str(self.folder), remedy="fetch it again")
        down, up = (self.weights[module + end].float() for end in ends)
        if down.dim() != 2 or up.dim() != 2 or up.shape[1] != down.shape[0]:
            raise InputError(f"{module}: {list(up.shape)} and {list(down.shape)} have no product",
                             where=str(self.folder), remedy="fetch it again")
        return down, up

    def change_shape(self, module: str) -> list[int]:
        """Return the shape of what a module adds to its weight. Raises `InputError` for what has no product."""
        down, up = self.pair(module)
        shape = [up.shape[0], down.shape[1]]
        return shape[::-1] if self.is_turned(module) else shape

    def is_turned(self, module: str) -> bool:
        """Say whether a module's weight is stored as [inputs, outputs]."""
        return bool(self.options.get("fan_in_fan_out")) or self.is_table(module)

    def is_table(self, module: str) -> bool:
        """Say whether a module is a token table."""
        return module + DOWN not in self.weights and module + UP not in self.weights

    def published(self, layout: Layout) -> str | None:
        """Return the class that the adapter was made for; None: the one that the base model's folder names."""
        mapping = self.options.get("auto_mapping") or {}
        end = TASKS.get(str(self.options.get("task_type")))
        named = str(mapping.get("base_model_class")) if isinstance(mapping, dict) else None
        if named in layout.classes:
            return named
        return next((name for name in layout.classes if end and name.endswith(end)), None)


def is_adapter_folder(folder: Path) -> bool:
    """Say whether a folder holds an adapter and no model."""
    return (folder / CONFIG).is_file() and not (folder / "config.json").is_file()


def read_settings(folder: Path) -> dict[str, Any]:
    """Read what an adapter's folder says of it. Raises `InputError` for a folder without an adapter."""
    if not (folder / CONFIG).is_file():
        raise InputError("holds no adapter", where=str(folder), remedy=f"give a folder with {CONFIG}, or a tuned run")
    return read_json(folder / CONFIG)


def read_adapter(folder: Path) -> Adapter:
    """Read an adapter in PEFT's layout. Raises `InputError` for a kind, or a setting, that cannot be expressed."""
    path, options = folder / CONFIG, read_settings(folder)
    if options.get("peft_type") not in KINDS:
        raise InputError(f"peft_type {str(options.get('peft_type'))[:40]!r} cannot be read", where=str(path),
                         remedy=f"known: {', '.join(KINDS)}")
    if unknown := sorted(name for name, value in options.items() if name not in FREE and value):
        raise InputError(f"{', '.join(unknown)[:200]} cannot be expressed", where=str(path),
                         remedy="merge the adapter with peft, and load the result")
    start = options.get("init_lora_weights")
    if not isinstance(start, str | bool | None) or start not in KNOWN_STARTS:
        raise InputError(f"init_lora_weights {str(start)[:40]!r} changes the base model", where=str(path),
                         remedy="merge the adapter with peft, and load the result")
    check_numbers(options, str(path))
    return Adapter(folder, options, Weights(folder, stem=(WEIGHTS, PICKLED_WEIGHTS)),
                   read_alpha_pattern(options, str(path)))


def check_numbers(options: Mapping[str, Any], where: str) -> None:
    """Refuse settings of the wrong kind."""
    base, alphas = options.get("base_model_name_or_path"), options.get("alpha_pattern") or {}
    if not isinstance(base, str) or not base:
        raise InputError("base_model_name_or_path is missing", where=where, remedy="write the base model's folder")
    if type(options.get("num_transformer_submodules") or 1) is not int:
        raise InputError("num_transformer_submodules is no number", where=where, remedy="fetch the adapter again")
    numbers = [options.get("lora_alpha", 8), *(alphas.values() if isinstance(alphas, dict) else [None])]
    if not all(isinstance(number, int | float) and abs(number) < 1e9 for number in numbers):
        raise InputError("lora_alpha or alpha_pattern is no number", where=where, remedy="fetch the adapter again")


def read_alpha_pattern(options: Mapping[str, Any], where: str) -> tuple[tuple[Callable[[str], bool], float], ...]:
    """Read which modules have an alpha of their own: `alpha_pattern`, whose keys are regular expressions for the end of
    a name. PEFT itself writes whole names. Raises `InputError` for an expression that cannot be used.
    """
    found = options.get("alpha_pattern") or {}
    if sum(PLAIN.fullmatch(one) is None for one in found) > MOST_EXPRESSIONS:
        raise InputError(f"alpha_pattern has more than {MOST_EXPRESSIONS} regular expressions", where=where,
                         remedy="write the modules' whole names")
    return tuple((match_suffix(one) if PLAIN.fullmatch(one)
                  else compile_expression(rf"^(.*\.)?({one})$", f"{where}: alpha_pattern"), float(alpha))
                 for one, alpha in found.items())


def match_suffix(name: str) -> Callable[[str], bool]:
    """Return the test whether a module's name ends in these parts; a dot meets any character, as in an expression."""
    def met(module: str) -> bool:
        end = module[len(module) - len(name):] if len(name) <= len(module) else ""
        whole = len(end) == len(module) or module[:len(module) - len(end)].endswith(".")
        return bool(end) and whole and all(one in (".", other) for one, other in zip(name, end, strict=True))

    return met


def base_error(what: str, adapter: Path, made_for: str, given: str | Path) -> InputError:
    """Return the error for a base model that an adapter does not fit; `what` says how it is otherwise.

    `made_for`: the base that the adapter names; `given`: the one that was opened, a folder or a hub id.
    """
    named = made_for[:SHOWN]
    same = Path(given).absolute() in (Path(made_for).absolute(), (adapter / made_for).absolute())
    found = f"does not fit its base model {given}" if same else f"was made for {named}, and does not fit {given}"
    return InputError(f"the adapter {found}: {what}", where=str(adapter),
                      remedy=f"give {named} as it was, with --base")


class MergedWeights:
    """A base model's weights with an adapter's added to them, or in place of them."""

    def __init__(self, base: Weights, adapter: Adapter, prefixes: tuple[str, ...]) -> None:
        """Find the weight that each of the adapter's belongs to. `prefixes` may precede a body's names.

        Raises `InputError` with all that have no place in the base model, or another shape there.
        """
        self.base, self.adapter, self.prefixes = base, adapter, prefixes
        self.changes: dict[str, str] = {}
        """Base weight -> module of the adapter."""
        self.instead: dict[str, str] = {}
        """Name -> the adapter's tensor that replaces it."""
        faults = []
        for name in (one for one in adapter.weights if one != VECTORS):
            module = name.removeprefix(PREFIX).removeprefix(PREFIX.split(".")[0] + ".")
            match = MATRIX.fullmatch(module)
            if BASE_LAYER in module:
                self.resized(name, module.replace(BASE_LAYER, "."))
            elif match is None:
                self.instead[self.stored(module) or module] = name
            elif (weight := self.stored(f"{match[1]}.weight")) is None:
                faults.append(f"{match[1]} is not in the base model")
            else:
                self.changes[weight] = PREFIX + match[1] if name.startswith(PREFIX) else match[1]
        if odd := [name for name in self.instead.values() if "lora_" in name or "modules_to_save" in name]:
            raise InputError(f"{odd[0]} is of a kind that cannot be expressed", where=str(adapter.folder),
                             remedy="merge the adapter with peft, and load the result")
        if faults := faults + self.find_misshapen():
            raise self.another_base(summarize_faults(faults))

    def another_base(self, what: str) -> InputError:
        """Return the error for a base model that the adapter does not fit."""
        return base_error(what, self.adapter.folder, self.adapter.base, self.base.folder)

    def find_misshapen(self) -> list[str]:
        """Return a fault for each module whose sum has another shape than its weight."""
        shapes = {module: (self.adapter.change_shape(module), list(self.base[weight].shape))
                  for weight, module in self.changes.items() if weight not in self.instead}
        return [f"{module} gives {made} instead of {expected}" for module, (made, expected) in shapes.items()
                if made != expected]

    def resized(self, name: str, weight: str) -> None:
        """Take a table that is in the adapter's file next to its pair, where it is not the base's own."""
        stored = self.stored(weight) or weight
        if stored not in self.base or not torch.equal(self.base[stored], self.adapter.weights[name]):
            self.instead[stored] = name

    def stored(self, name: str) -> str | None:
        """Return the name under which the base model's file has a weight, with a body's prefix or without."""
        short = [name.removeprefix(prefix) for prefix in self.prefixes if name.startswith(prefix)]
        names = [name, *short, *(prefix + one for one in short for prefix in self.prefixes)]
        return next((one for one in names if one in self.base), None)

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return self.base.size + self.adapter.weights.size

    def __contains__(self, name: object) -> bool:
        """Say whether there is a tensor of this name."""
        return name in self.base or name in self.instead

    def __iter__(self) -> Iterator[str]:
        """Name the tensors."""
        return iter(dict.fromkeys((*self.base, *self.instead)))

    def __getitem__(self, name: str) -> Tensor:
        """Return a tensor, changed by the adapter."""
        if name in self.instead:
            return self.adapter.weights[self.instead[name]]
        weight = self.base[name]
        if name not in self.changes:
            return weight
        return (weight.float() + self.change(self.changes[name])).to(weight.dtype)

    def write(self, name: str, target: Tensor) -> None:
        """Write a tensor into memory of its shape. Raises as `[]`, and `ValueError` for another shape."""
        if name in self.instead and (found := self[name]).shape != target.shape:
            raise self.another_base(f"{name} is {list(found.shape)} instead of {list(target.shape)}")
        if name in self.instead or name in self.changes:
            target.copy_(check_shape(self[name], target))
        else:
            self.base.write(name, target)

    def change(self, module: str) -> Tensor:
        """Return what a module's two matrices add to its weight."""
        down, up = self.adapter.pair(module)
        product = torch.mm(up, down) * self.adapter.scale(module.removeprefix(PREFIX), down.shape[0])
        return product.T if self.adapter.is_turned(module) else product

    def take_pairs(self) -> dict[str, str]:
        """Leave the base's weights as they are, and return which modules of the adapter belong to which of them."""
        taken, self.changes = self.changes, {}
        return taken

    def labels(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the config's labels as the adapter's own output map counts them, where it has one."""
        ends = ("classifier.weight", "score.weight", "classifier.out_proj.weight", "logits_proj.weight",
                "summary.weight")
        maps = [self.adapter.weights[stored] for name, stored in self.instead.items() if name.endswith(ends)]
        had = document.get("id2label")
        if not maps or (isinstance(had, dict) and len(had) == len(maps[0])):
            return {}
        return {"id2label": {str(number): f"LABEL_{number}" for number in range(len(maps[0]))}}


class Source(Protocol):
    """Tensors by their published names: those of files (`Weights`), or what something makes of them."""

    @property
    def size(self) -> int:
        """Bytes that the tensors take, at the least."""

    def __contains__(self, name: object) -> bool:
        """Say whether there is a tensor of this name."""

    def __iter__(self) -> Iterator[str]:
        """Name the tensors."""

    def __getitem__(self, name: str) -> Tensor:
        """Return a tensor. Raises `KeyError` for an unknown name."""

    def write(self, name: str, target: Tensor) -> None:
        """Write a tensor into memory of its shape. Raises as `[]`, and `ValueError` for another shape."""
