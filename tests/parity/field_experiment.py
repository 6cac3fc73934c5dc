"""One experiment: a field of a published config takes another value; what the reference makes of it, and what we do."""

from __future__ import annotations

import copy
import importlib
import json
import logging
import random
import shutil
import warnings
import zlib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import save_file
from tests.parity.batches import batch, fields, real, smallest_vocab
from tests.parity.field_values import ABSENT
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import saucier
from saucier.checkpoints.layout import published_tree
from saucier.errors import InputError
from saucier.families import LAYOUTS

transformers.utils.logging.set_verbosity(logging.CRITICAL)
ATOL = RTOL = 1e-4
NEW = 4
FAILS = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, NotImplementedError,
         RuntimeError, StrictDataclassError, TypeError, ValueError)
"""What the reference raises for illegal values, which it says in many ways."""
OBEYED, REFUSED, ILLEGAL, FAULT = "obeyed", "refused", "reference fails", "fault"


@dataclass(frozen=True)
class Base:
    """A drawn legal config of a family as a document, with a class, and what it is given."""

    family: str
    published: str
    document: dict[str, Any]
    given: dict[str, torch.Tensor]

    def changed(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Return the document with other values."""
        made = {**copy.deepcopy(self.document), **changes}
        return {name: value for name, value in made.items() if not (isinstance(value, str) and value == ABSENT)}


@cache
def drawn(family: str, seed: int) -> tuple[Any, list[str], Any]:
    """Return a drawn config, its classes, and what makes its batches."""
    module = importlib.import_module(f"tests.parity.draws.{family}")
    config, classes = module.draw(random.Random(f"fields-{family}-{seed}"))
    return config, classes, getattr(module, "inputs", batch)


@cache
def base(family: str, published: str, seed: int) -> Base:
    """Return a family's drawn config as a document for one of its classes."""
    config, _, make = drawn(family, seed)
    document = json.loads(json.dumps({**config.to_diff_dict(), "architectures": [published]}, default=str))
    return Base(family, published, document, make(config, published, random.Random(f"{family}-{published}-{seed}")))


def fill(model: Any) -> Any:
    """Give every parameter random values that only its name and shape choose."""
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
            centre = 1.0 if "norm" in key.lower() and key.endswith("weight") and parameter.dim() == 1 else 0.0
            parameter.copy_(centre + 0.2 * torch.randn(parameter.shape, generator=generator))
        model.tie_weights()
    return model.eval()


def reference(document: dict[str, Any], published: str) -> Any:
    """Return the reference model of a document."""
    config = CONFIG_MAPPING[document["model_type"]].from_dict(copy.deepcopy(document))  # it writes into nested ones
    config._attn_implementation = "eager"
    return fill(getattr(transformers, published)(config).float())


ROUTED = ("aux_loss", "router_logits")
"""What some models give beside their numbers, for a loss."""


def answers(model: Any, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return all outputs of a reference model by name."""
    with torch.no_grad():
        found = dict(fields(model(**given, output_hidden_states=True, output_attentions=True, return_dict=True)))
    return {name: value for name, value in found.items() if not name.startswith(ROUTED)}


def store(model: Any, document: dict[str, Any], folder: Path, generation: dict[str, Any] | None) -> None:
    """Write a folder with the very document, and the weights of the model under their published names."""
    shutil.rmtree(folder, ignore_errors=True)
    if document["model_type"] in RENAMED:
        model.save_pretrained(folder)
    else:
        folder.mkdir(parents=True)
        first = {tensor.data_ptr(): name for name, tensor in reversed([*model.state_dict().items()])}
        tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()
                   if first[tensor.data_ptr()] == name or not tensor.numel()}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(document), encoding="utf-8")
    (folder / "generation_config.json").unlink(missing_ok=True)
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")


RENAMED = {"mixtral", "camembert", "xlm-roberta"}
"""Families whose weights have other names in a file than in the reference's memory."""


def difference(found: Any, wanted: dict[str, torch.Tensor], start: Base) -> str:
    """Return the first output that is not the reference's; empty where all are."""
    length = start.given["input_ids"].shape[1]
    # the reference fills chunks up
    filled = start.family == "reformer" and wanted["hidden_states.0"].shape[1] != length
    for name, want in wanted.items():
        first, _, number = name.partition(".")
        got = getattr(found, first, None)
        got = got[int(number)] if number and got is not None and int(number) < len(got) else None if number else got
        if got is None:
            return f"{name} is missing"
        if number and filled:
            continue
        if got.shape != want.shape:
            return f"{name}: {tuple(got.shape)} instead of {tuple(want.shape)}"
        one, other = real(name, got, start.given), real(name, want, start.given)
        if not torch.allclose(one, other, atol=ATOL, rtol=RTOL, equal_nan=True):
            return f"{name}: {(one - other).abs().max().item():.3g} apart"
    return ""


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    """Say whether the reference gives the same numbers for two documents, but for the order of sums."""
    return first.keys() == second.keys() and all(
        value.shape == second[name].shape and torch.allclose(value, second[name], atol=1e-5, equal_nan=True)
        for name, value in first.items())


@dataclass(frozen=True)
class Outcome:
    """What came of a value."""

    kind: str
    told: str = ""
    acts: bool = False
    """Whether the reference gave other numbers than for the base."""


@cache
def of_base(family: str, published: str, seed: int) -> dict[str, torch.Tensor]:
    """Return the reference's answers to a base."""
    start = base(family, published, seed)
    return answers(reference(start.document, published), start.given)


def unchanged(start: Base, seed: int) -> dict[str, torch.Tensor]:
    """Return the reference's answers to a base, whose rows may be filled with another token."""
    if start.given is base(start.family, start.published, seed).given:
        return of_base(start.family, start.published, seed)
    return answers(reference(start.document, start.published), start.given)


KEEPS_ALL: dict[Any, Any] = {1: {"use_cache": False}}
"""A window of one token, of which the reference's cache keeps all tokens, against its `forward`."""
FROM_0 = {"roberta", "xlm-roberta", "camembert"}
"""The reference's `generate` counts their positions from 0, against its `forward`: see test_causal_encoders.py."""


def texts(model: Any, ours: Any, start: Base, document: dict[str, Any], beams: int) -> str:
    """Return how what is written differs; empty where it does not, or where the reference cannot write."""
    prompt, given = start.given["input_ids"], set(start.given) - {"input_ids", "attention_mask", "decoder_input_ids"}
    if not model.can_generate() or prompt.dim() != 2 or given:
        return ""
    pair = getattr(model.config, "is_encoder_decoder", False)
    if (model.config.decoder if pair and start.family == "encoder_decoder" else model.config).model_type in FROM_0:
        return ""
    rows = prompt[:2] if pair else prompt[:2, :4]
    mask = start.given["attention_mask"][:2, :rows.shape[1]] if pair else torch.ones_like(rows)
    options = {"attention_mask": mask, "max_new_tokens": NEW, "num_beams": beams, "do_sample": False}
    model.generation_config = transformers.GenerationConfig.from_model_config(  # as when it is opened
        copy.deepcopy(document))
    try:
        with torch.no_grad():
            want = model.generate(rows, **options, **KEEPS_ALL.get(document.get("sliding_window"), {}))
    except FAILS:  # what it cannot write is no measure
        return ""
    want = want if isinstance(want, torch.Tensor) else want.sequences  # output_attentions asks for more
    if ours.config.decoder is None:  # an encoder of two directions, which the reference lets write
        return ""
    got = saucier.generate(ours, rows, **options)
    return "" if torch.equal(got, want) else f"{beams} beams: {got.tolist()} instead of {want.tolist()}"


def padded_with(start: Base, number: Any) -> Base:
    """Return a base whose rows are filled with another padding token; where that is none, no row is filled.

    What stands at masked places has no value of its own, and heads that look for the last token must not read it.
    """
    ids, mask = start.given.get("input_ids"), start.given.get("attention_mask")
    if ids is None or mask is None:
        return start
    legal = isinstance(number, int) and 0 <= number < smallest_vocab(drawn(start.family, 0)[0])
    changed = {"input_ids": ids.masked_fill(mask == 0, number)} if legal else {"attention_mask": torch.ones_like(mask)}
    return replace(start, given={**start.given, **changed})


def attempt(start: Base, seed: int, changes: dict[str, Any], folder: Path) -> Outcome:
    """Return what comes of values: the experiment."""
    if "pad_token_id" in changes:
        start = padded_with(start, changes["pad_token_id"])
    document = start.changed(changes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            there = reference(document, start.published)
            wanted = answers(there, start.given)
        except FAILS as error:
            return Outcome(ILLEGAL, f"{type(error).__name__}: {str(error)[:80]}")
        if not all(tensor.numel() for tensor in wanted.values()):
            return Outcome(ILLEGAL, "the reference gives nothing")
        acts = not changes or not same(wanted, unchanged(start, seed))
        try:
            told = ours_differs(start, document, there, wanted, folder, acts=acts, changes=changes)
        except InputError as error:
            if any(name in str(error) for name in {**document, **changes, **start.given}) or "positions" in str(error):
                return Outcome(REFUSED, str(error), acts)
            return Outcome(FAULT, f"refused without its name: {error}", acts)
        except FAILS as error:
            return Outcome(FAULT, f"{type(error).__name__}: {str(error)[:120]}", acts)
    if told and not same(wanted, answers(reference(document, start.published), start.given)):
        return Outcome(ILLEGAL, "the reference gives other numbers each time", acts)
    return Outcome(FAULT, told, acts) if told else Outcome(OBEYED, "", acts)


def tree_of(document: dict[str, Any], published: str) -> Any:
    """Return our tree of a document."""
    layout = LAYOUTS[document["model_type"]]
    return published_tree(layout.choose_layout(layout, document), document, published, "config.json")


def ours_differs(start: Base, document: dict[str, Any], there: Any, wanted: dict[str, torch.Tensor], folder: Path, *,
                 acts: bool, changes: dict[str, Any]) -> str:
    """Return how our numbers or texts differ from the reference's; empty where they do not.

    Where the reference gives the numbers of the base and our tree is that of the base, nothing is left to try.
    """
    written = any(name.endswith("token_id") for name in changes)
    if not acts and not written and tree_of(document, start.published) == tree_of(start.document, start.published):
        return ""
    store(there, document, folder, None)
    ours = saucier.load(folder, head=start.published, dtype="float32", device="cpu")
    with torch.no_grad():
        found = ours(**start.given, output_hidden_states=True, output_attentions=True)
    beams = (1, 3)[zlib.crc32(json.dumps(changes, sort_keys=True).encode()) % 2]
    return difference(found, wanted, start) or texts(there, ours, start, document, beams)
