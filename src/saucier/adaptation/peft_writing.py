"""A tuned model's adapter in the layout of PEFT: adapter_config.json and tensors under published names.

What PEFT has no form for is refused; `saucier.adaptation.own_form` writes it.
Letters: I inputs, N rows, R rank.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saucier.adaptation import config as a
from saucier.adaptation.foreign_names import ForeignMap, foreign_maps, no_place
from saucier.adaptation.low_rank import LowRank, LowRankTable, Pair, named_pairs, pairs_of
from saucier.adaptation.peft_fronts import front_document, front_tensor
from saucier.adaptation.places import group
from saucier.adaptation.rewrite import added, trainable
from saucier.checkpoints.adapters import CONFIG, DOWN, MARKS, PREFIX, TABLE_DOWN, TABLE_UP, TASKS, UP, VECTORS, WEIGHTS
from saucier.checkpoints.foreign import BASE, Names
from saucier.checkpoints.tensors import write_tensors
from saucier.errors import InputError
from saucier.model import Transformer


@dataclass(frozen=True, slots=True)
class Written:
    """The two files of an adapter."""

    document: dict[str, Any]
    tensors: dict[str, Tensor]
    base: Mapping[str, str]
    """Of each parameter of the base, what tells its values from others. PEFT does not read it."""

    def write(self, folder: Path) -> None:
        """Write them into a folder, for callers who make the folder atomic themselves."""
        folder.mkdir(parents=True)
        (folder / CONFIG).write_text(json.dumps(self.document, indent=2) + "\n", encoding="utf-8")
        write_tensors(self.tensors, folder / WEIGHTS, {MARKS: json.dumps(dict(self.base))} if self.base else {})


FRONT_PREFIX = "base_model."
"""Stands before the names of what is trained beside a prefix or a prompt."""
HEADED = ("SEQ_CLS", "TOKEN_CLS", "QUESTION_ANS")
"""Tasks of which PEFT wants the head in the file, trained or not."""
TABLE_ENDS = (TABLE_DOWN, TABLE_UP)


@dataclass(frozen=True, slots=True)
class Product:
    """The two matrices of one published module, and the factor on their product."""

    down: Tensor
    """[R, I]."""
    up: Tensor
    """[N, R]."""
    scale: float
    ends: tuple[str, str] = (DOWN, UP)
    """What stands behind the module's name."""

    @property
    def alpha(self) -> float:
        """What PEFT divides by the rank."""
        return tidy(self.scale * len(self.down))


def tidy(number: float) -> float:
    """Return a whole number as an int, as JSON shows it best."""
    return int(number) if number == int(number) else number


def as_peft(model: Transformer, names: Names, base: str) -> Written:
    """Return the adapter of a model as PEFT's files. Raises `InputError` for what PEFT has no form for."""
    kinds = {one.by.kind for one in model.rewrites} - {"freeze"}
    if not kinds or not (kinds <= {"lora", "qlora"} or kinds in ({"prefix"}, {"prompt"})):
        raise InputError(f"PEFT has no form for {' with '.join(sorted(kinds)) or 'a model without an adapter'}",
                         where="model", remedy="save the adapter in our own form (own)")
    document, tensors = front_parts(model, names) if model.front is not None else pair_parts(model, names)
    beside = whole_parameters(model, names)
    start = PREFIX if model.front is None else FRONT_PREFIX
    tensors |= {start + name: value for name, value in beside.items()}
    whole = sorted({name.rsplit(".", 1)[0] for name in beside}) or None
    document |= {} if model.front is not None else {"modules_to_save": whole}
    return Written({**common_document(names, base), **document},
                   {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()},
                   model.origin.marks if model.origin is not None else {})


Parts = tuple[dict[str, Any], dict[str, Tensor]]
"""Fields and tensors of an adapter."""


def front_parts(model: Transformer, names: Names) -> Parts:
    """Return what PEFT stores of a prefix or a prompt."""
    assert model.front is not None, "as_peft asks only then"
    task = task_of(names.published)
    if task not in HEADED and whole_parameters(model, names):
        raise InputError("PEFT has no form for a prefix or a prompt with other parameters trained beside",
                         where="model", remedy="save the adapter in our own form (own)")
    return front_document(model, task), {VECTORS: front_tensor(model)}


def pair_parts(model: Transformer, names: Names) -> Parts:
    """Return what PEFT stores of LoRA."""
    maps = foreign_maps(model, names)
    products: dict[str, Product] = {}
    for module, one in model.named_modules():
        if isinstance(one, LowRank):
            products |= products_of(one, [each for each in maps.values() if each.module == module])
    refuse_left(model, maps, names)
    return {**lora_document(products, maps), "lora_dropout": rate_of(model)}, pair_tensors(products)


def refuse_left(model: nn.Module, maps: Mapping[str, ForeignMap], names: Names) -> None:
    """Raise `InputError` for a changed map that no published module is."""
    known = {one.module for one in maps.values()}
    for module, _, _ in named_pairs(model).values():
        if module not in known:
            raise no_place(module, names)


def products_of(module: LowRank, here: Iterable[ForeignMap]) -> dict[str, Product]:
    """Return the products of the published modules that one of ours holds, as far as its pairs change them.

    Several pairs in one published module become one, with zeros in the rows that a pair does not change.
    """
    pairs, found = [pair for _, pair in pairs_of(module)], {}
    if isinstance(module, LowRankTable):
        (pair,), (one,) = pairs, here
        return {one.name: Product(pair.down.weight, pair.up.weight, pair.scale, TABLE_ENDS)}
    for one in here:
        meeting = [pair for pair in pairs if pair.start < one.start + one.rows
                   and pair.start + pair.up.out_features > one.start]
        if meeting:
            scale = meeting[0].scale
            down = torch.cat([pair.down.weight.detach() for pair in meeting])
            up = torch.cat([rows_in(pair, one) * (pair.scale / scale) for pair in meeting], dim=1)
            found[one.name] = Product(down, one.theirs(up), scale)
    return found


def rows_in(pair: Pair, one: ForeignMap) -> Tensor:
    """Return what a pair adds to a published module's rows, zero where it does not reach. Shapes: -> [N, R]."""
    up = pair.up.weight.detach()
    made = up.new_zeros(one.rows, up.shape[1])
    first, last = max(pair.start, one.start), min(pair.start + len(up), one.start + one.rows)
    made[first - one.start:last - one.start] = up[first - pair.start:last - pair.start]
    return made


def pair_tensors(products: Mapping[str, Product]) -> dict[str, Tensor]:
    """Return the matrices under PEFT's names."""
    return {PREFIX + name + end: matrix for name, product in products.items()
            for end, matrix in zip(product.ends, (product.down, product.up), strict=True)}


def whole_parameters(model: Transformer, names: Names) -> dict[str, Tensor]:
    """Return the published tensors of what is trained whole, or is not in the base. Raises `InputError` for others."""
    unlike = model.origin.unlike if model.origin is not None else frozenset()
    chosen = (set(trainable(model)) | unlike) - added(model)
    if task_of(names.published) in HEADED:
        chosen |= group(model, "head")
    found = {}
    for name, parameter in model.named_parameters():
        if name not in chosen:
            continue
        match = names.rules.match(name)
        if match is None or ".base." in name:
            raise no_place(name, names)
        for foreign, tensor in zip(match.theirs, match.operation.theirs(parameter.detach()), strict=True):
            found[foreign.replace(BASE, names.layout.base_of(names.published))] = tensor
    return found


def lora_document(products: Mapping[str, Product], maps: Mapping[str, ForeignMap]) -> dict[str, Any]:
    """Return the fields of a LoRA adapter; ranks and alphas that differ from the most common stand in patterns."""
    ranks = {name: len(product.down) for name, product in products.items()}
    alphas = {name: product.alpha for name, product in products.items()}
    rank, alpha = (max(set(found.values()), key=[*found.values()].count) for found in (ranks, alphas))
    return {
        "peft_type": "LORA", "r": rank, "lora_alpha": alpha, "bias": "none", "use_rslora": False,
        "rank_pattern": {re.escape(name): found for name, found in ranks.items() if found != rank},
        "alpha_pattern": {re.escape(name): found for name, found in alphas.items() if found != alpha},
        "target_modules": targets(products, maps),
        "fan_in_fan_out": any(maps[name].turned for name in products), "init_lora_weights": True,
    }


def targets(products: Mapping[str, Product], maps: Mapping[str, ForeignMap]) -> list[str]:
    """Return the last words of the names, where these mean no other module; otherwise the whole names."""
    words = {name.rsplit(".", 1)[-1] for name in products}
    meant = {name for name in maps if name.rsplit(".", 1)[-1] in words}
    return sorted(words) if meant == set(products) else sorted(products)


def common_document(names: Names, base: str) -> dict[str, Any]:
    """Return the fields of every adapter."""
    return {"base_model_name_or_path": base, "task_type": task_of(names.published), "inference_mode": True,
            "auto_mapping": {"base_model_class": names.published}}


LANGUAGE = {"LMHeadModel": "CAUSAL_LM", "ForCausalLM": "CAUSAL_LM", "ForConditionalGeneration": "SEQ_2_SEQ_LM"}


def task_of(published: str) -> str | None:
    """Return PEFT's word for what a published class does; None where it has none."""
    ends = LANGUAGE | {end: task for task, end in TASKS.items()}
    return next((task for end, task in ends.items() if published.endswith(end)), None)


def rate_of(model: Transformer) -> float:
    """Return the dropout of the first LoRA."""
    return next((one.by.dropout for one in model.rewrites if isinstance(one.by, a.Lora)), 0.0)
