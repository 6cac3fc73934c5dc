"""A tuned model's adapter in the layout of PEFT: adapter_config.json and tensors under published names.

Letters: N rows, R rank, P positions before the text, K key-value heads, E head width.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saucier.adaptation import tuning as a
from saucier.adaptation.lora import LowRank, LowRankPair, LowRankTable, list_named_pairs, list_pairs
from saucier.adaptation.peft_reading import PublishedMap, list_published_maps, no_place_error
from saucier.adaptation.prefix import writing_stack
from saucier.adaptation.rewrite import list_added, list_trainable
from saucier.adaptation.target_modules import group_targets
from saucier.checkpoints.adapter_folder import (
    CONFIG,
    DOWN,
    MARKS,
    PREFIX,
    TABLE_DOWN,
    TABLE_UP,
    TASKS,
    UP,
    VECTORS,
    WEIGHTS,
)
from saucier.checkpoints.published_names import BASE, PublishedNames
from saucier.checkpoints.weight_files import write_tensors
from saucier.errors import InputError
from saucier.model import Transformer
from saucier.parts.prefix import PrefixKeys, SoftPrompt, TargetPrompt


@dataclass(frozen=True, slots=True)
class PeftFiles:
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


LEARNED_INPUT_PREFIX = "base_model."
"""Precedes the names of what is trained in addition to a prefix or a prompt."""
HEADED = ("SEQ_CLS", "TOKEN_CLS", "QUESTION_ANS")
"""Tasks of which PEFT wants the head in the file, trained or not."""


@dataclass(frozen=True, slots=True)
class Product:
    """The two matrices of one published module, and the factor on their product."""

    down: Tensor
    """[R, I]."""
    up: Tensor
    """[N, R]."""
    scale: float
    ends: tuple[str, str] = (DOWN, UP)
    """What follows the module's name."""

    @property
    def alpha(self) -> float:
        """What PEFT divides by the rank."""
        number = self.scale * len(self.down)
        return int(number) if number == int(number) else number  # as JSON shows it best


def make_peft_files(model: Transformer, names: PublishedNames, base: str) -> PeftFiles:
    """Return the adapter of a model as PEFT's files. Raises `InputError` for what PEFT has no form for."""
    kinds = model.provenance.rewrite_kinds - {"freeze"}
    if not kinds or not (kinds <= {"lora", "qlora"} or kinds in ({"prefix"}, {"prompt"})):
        raise InputError(f"PEFT has no form for {' with '.join(sorted(kinds)) or 'a model without an adapter'}",
                         where="model", remedy="save the adapter in our own form (own)")
    document, tensors = make_prefix_parts(model, names) if model.front is not None else make_lora_parts(model, names)
    whole_tensors = list_whole_parameters(model, names)
    start = PREFIX if model.front is None else LEARNED_INPUT_PREFIX
    tensors |= {start + name: value for name, value in whole_tensors.items()}
    origin = model.provenance.origin
    whole = sorted({name.rsplit(".", 1)[0] for name in whole_tensors}) or None
    document |= {} if model.front is not None else {"modules_to_save": whole}
    common = {"base_model_name_or_path": base, "task_type": find_task_type(names.published), "inference_mode": True,
              "auto_mapping": {"base_model_class": names.published}}
    return PeftFiles({**common, **document},
                     {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()},
                     origin.marks if origin is not None else {})


Parts = tuple[dict[str, Any], dict[str, Tensor]]
"""Fields and tensors of an adapter."""


def make_prefix_parts(model: Transformer, names: PublishedNames) -> Parts:
    """Return what PEFT stores of a prefix or a prompt. Raises `InputError` where PEFT would not compute the same.

    The tensor is a prompt's vectors, or a prefix's keys and values layer by layer. Of an encoder-decoder's prefix every
    second layer is filler, which PEFT drops (see `select_peft_layers`).
    Shapes: [P, D] or [P, stored layers · 2 · K · E].
    """
    front, config = model.front, model.config
    task = find_task_type(names.published)
    paired = config.encoder is not None and config.decoder is not None
    fault = None
    if task not in HEADED and list_whole_parameters(model, names):
        fault = "PEFT has no form for a prefix or a prompt with other parameters trained beside"
    elif isinstance(front, TargetPrompt):
        fault = "PEFT gives a decoder beside an encoder no prompt"
    elif task is None:
        fault = "PEFT has no task for such a model, so it puts nothing before its text"
    elif isinstance(front, PrefixKeys) and config.decoder is None:
        fault = "the encoders that PEFT uses leave a prefix out"
    elif isinstance(front, PrefixKeys) and len(set(front.widths)) != 1:
        fault = "PEFT takes the heads of all layers for equally many and wide"
    if fault is not None:
        raise InputError(fault, where="model", remedy="save the adapter in our own form (own)")
    match front:
        case SoftPrompt(length=length, vectors=vectors):
            return {"num_virtual_tokens": length, "num_layers": len(writing_stack(config).blocks()),
                    "peft_type": "PROMPT_TUNING", "prompt_tuning_init": "RANDOM", "token_dim": vectors.shape[1],
                    "num_transformer_submodules": 1, "num_attention_heads": vectors.shape[1]}, {VECTORS: vectors}
        case PrefixKeys(length=length, made=made, widths=widths):
            heads, width = widths[0]
            stacks = 2 if paired else 1
            values: Tensor = made()
            if paired:
                layers = values.unflatten(1, (len(widths), -1))
                values = torch.stack([layers, torch.zeros_like(layers)], dim=2).flatten(1)
            return {"num_virtual_tokens": length, "num_layers": stacks * len(widths), "peft_type": "PREFIX_TUNING",
                    "token_dim": heads * width, "num_attention_heads": heads, "num_transformer_submodules": stacks,
                    "prefix_projection": False, "encoder_hidden_size": heads * width}, {VECTORS: values}
        case _:
            raise AssertionError("make_peft_files calls it only for these")


def make_lora_parts(model: Transformer, names: PublishedNames) -> Parts:
    """Return what PEFT stores of LoRA. Raises `InputError` for a changed map that no published module is."""
    maps = list_published_maps(model, names)
    products: dict[str, Product] = {}
    for module, one in model.named_modules():
        if isinstance(one, LowRank):
            products |= list_products(one, [each for each in maps.values() if each.module == module])
    placed = {one.module for one in maps.values()}
    if lost := [module for module, _, _ in list_named_pairs(model).values() if module not in placed]:
        raise no_place_error(lost[0], names)
    dropout = next((one.by.dropout for one in model.provenance.rewrites if isinstance(one.by, a.Lora)), 0.0)
    return ({**make_lora_document(products, maps), "lora_dropout": dropout},
            {PREFIX + name + end: matrix for name, product in products.items()
             for end, matrix in zip(product.ends, (product.down, product.up), strict=True)})


def list_products(module: LowRank, here: Iterable[PublishedMap]) -> dict[str, Product]:
    """Return the products of the published modules that one of ours holds, as far as its pairs change them.

    Several pairs in one published module become one, with zeros in the rows that a pair does not change.
    """
    pairs, found = [pair for _, pair in list_pairs(module)], {}
    if isinstance(module, LowRankTable):
        (pair,), (one,) = pairs, here
        return {one.name: Product(pair.down.weight, pair.up.weight, pair.scale, (TABLE_DOWN, TABLE_UP))}
    for one in here:
        meeting = [pair for pair in pairs if pair.start < one.start + one.rows
                   and pair.start + pair.up.out_features > one.start]
        if meeting:
            scale = meeting[0].scale
            down = torch.cat([pair.down.weight.detach() for pair in meeting])
            up = torch.cat([place_rows(pair, one) * (pair.scale / scale) for pair in meeting], dim=1)
            found[one.name] = Product(down, one.theirs(up), scale)
    return found


def place_rows(pair: LowRankPair, one: PublishedMap) -> Tensor:
    """Return what a pair adds to a published module's rows, zero where it does not reach. Shapes: -> [N, R]."""
    up = pair.up.weight.detach()
    made = up.new_zeros(one.rows, up.shape[1])
    first, last = max(pair.start, one.start), min(pair.start + len(up), one.start + one.rows)
    made[first - one.start:last - one.start] = up[first - pair.start:last - pair.start]
    return made


def list_whole_parameters(model: Transformer, names: PublishedNames) -> dict[str, Tensor]:
    """Return the published tensors of what is trained whole, or is not in the base. Raises `InputError` for others."""
    chosen = (set(list_trainable(model)) | model.provenance.unlike) - list_added(model)
    if find_task_type(names.published) in HEADED:
        chosen |= group_targets(model, "head")
    found = {}
    for name, parameter in model.named_parameters():
        if name not in chosen:
            continue
        match = names.rules.match(name)
        if match is None or ".base." in name:
            raise no_place_error(name, names)
        for foreign, tensor in zip(match.foreign, match.operation.theirs(parameter.detach()), strict=True):
            found[foreign.replace(BASE, names.layout.base_of(names.published))] = tensor
    return found


def make_lora_document(products: Mapping[str, Product], maps: Mapping[str, PublishedMap]) -> dict[str, Any]:
    """Return the fields of a LoRA adapter; ranks and alphas that differ from the most common are in patterns.

    The modules are named by the last words of their names, where these mean no other module.
    """
    ranks = {name: len(product.down) for name, product in products.items()}
    alphas = {name: product.alpha for name, product in products.items()}
    rank, alpha = (max(set(found.values()), key=[*found.values()].count) for found in (ranks, alphas))
    words = {name.rsplit(".", 1)[-1] for name in products}
    meant = {name for name in maps if name.rsplit(".", 1)[-1] in words}
    return {
        "peft_type": "LORA", "r": rank, "lora_alpha": alpha, "bias": "none", "use_rslora": False,
        "rank_pattern": {re.escape(name): found for name, found in ranks.items() if found != rank},
        "alpha_pattern": {re.escape(name): found for name, found in alphas.items() if found != alpha},
        "target_modules": sorted(words) if meant == set(products) else sorted(products),
        "fan_in_fan_out": any(maps[name].turned for name in products), "init_lora_weights": True,
    }


def find_task_type(published: str) -> str | None:
    """Return PEFT's word for what a published class does; None where it has none."""
    ends = {"LMHeadModel": "CAUSAL_LM", "ForCausalLM": "CAUSAL_LM", "ForConditionalGeneration": "SEQ_2_SEQ_LM",
            **{end: task for task, end in TASKS.items()}}
    return next((task for end, task in ends.items() if published.endswith(end)), None)
