"""Parts `parameters`, `starts`, `published`, `adapters`, `steps`: names, starting weights, layouts, and five updates.

The zoo of the tests has every family and every kind of part; the recipes have the sizes that people use.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter
from safetensors import safe_open
from tests.laws.zoo import decoders, encoders, family, pairs, scrambled
from torch import Tensor, nn

from saucier import config as c
from saucier.adaptation.rewrite import rewrite
from saucier.adaptation.tuning import Tuning
from saucier.jobs.pretraining.batching import build_run_objectives, make_training_data
from saucier.jobs.pretraining.data import prepare_data
from saucier.jobs.run.console import Console
from saucier.model import Transformer, build
from saucier.opened import RunFolder
from saucier.recipes import names, recipe
from saucier.training.loop import train
from saucier.training.progress import Progress, Reporter
from tools.frozen.items import Bits, Exact, Item, digest, figures, grouped, rounded, short
from tools.frozen.rows import LANGUAGES, MANY, PAIRS, PARAGRAPHS, TEXT

SEED = 1
UPDATES = 5
OWN = "saucier"
"""The layout of models that no other library knows."""
NARROW = {"dim": 32, "heads": 2, "kv_heads": 1, "head_dim": 16, "hidden": 64, "layers": 2}
"""Of a model whose updates would take too long."""
TUNINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "lora": ("gpt2", {"kind": "lora", "rank": 2}),
    "qlora": ("llama", {"kind": "qlora", "rank": 2}),
    "prefix": ("gpt2", {"kind": "prefix", "length": 3}),
    "prefix of a pair": ("t5", {"kind": "prefix", "length": 3}),
    "prompt": ("gpt2", {"kind": "prompt", "length": 3}),
    "prompt of noise": ("t5", {"kind": "prompt", "length": 3, "start": {"kind": "noise"}}),
    "bottleneck": ("bert", {"kind": "adapter", "width": 4}),
    "bottleneck, pfeiffer": ("bert", {"kind": "adapter", "width": 4, "placement": {"kind": "pfeiffer"}}),
    "bias": ("bert", {"kind": "bias"}),
}
"""Kinds of tuning: the family that is tuned, and the settings."""


def zoo() -> dict[str, c.Transformer]:
    """Return the small models, families first called by their names."""
    groups = {"decoder": decoders(), "encoder": encoders(), "pair": pairs()}
    return {f"{group} {name}": config for group, found in groups.items() for name, config in found.items()}


def nano() -> list[str]:
    """Return the recipes that are small enough to be cooked in minutes."""
    return [name for name in names() if name.endswith("-nano") or name == "shakespeare"]


def parameters(configs: Mapping[str, c.Transformer]) -> Iterator[tuple[str, Item]]:
    """Yield the names and shapes of models, a line for those that differ in the number of a layer only."""
    for model, config in configs.items():
        shapes = {name: list(one.shape) for name, one in build(config, device="meta").named_parameters()}
        for group, members in grouped(shapes).items():
            found = sorted({str(shapes[name]) for name in members})
            yield f"parameters/{model}/{group}", short(f"{len(members)} × {' or '.join(found)}")


def recipe_parameters(recipes: list[str]) -> Iterator[tuple[str, Item]]:
    """Yield a hash of the names and shapes of recipes, whatever their size."""
    for name in recipes:
        model = build(recipe(name).model, device="meta")
        yield f"parameters/recipe {name}", Exact(digest([(key, list(one.shape)) for key, one in
                                                         model.named_parameters()]))


def starts(configs: Mapping[str, c.Transformer]) -> Iterator[tuple[str, Item]]:
    """Yield the starting weights of models."""
    for name, config in configs.items():
        yield f"starts/{name}", weights(dict(build(config, seed=SEED).named_parameters()))


def weights(tensors: Mapping[str, Tensor]) -> Bits:
    """Keep tensors: a hash of all, and the figures of each group of names."""
    plain = {name: one.detach().cpu().float().numpy() for name, one in tensors.items()}
    found: list[float] = []
    for members in grouped(plain).values():
        found += figures(np.concatenate([plain[name].ravel() for name in members]))
    return Bits(digest(*(part for name in plain for part in (name, plain[name]))), tuple(found))


def published(folder: Path, configs: Mapping[str, c.Transformer]) -> Iterator[tuple[str, Item]]:
    """Yield what stands in the folders of saved models: files, names of tensors, and what the config says."""
    for number, (name, config) in enumerate(configs.items()):
        place = folder / str(number)
        layout = build(config, seed=SEED).save(place)
        yield f"published/{name}/files", short([layout, *sorted(path.name for path in place.iterdir())])
        with safe_open(place / "model.safetensors", "pt") as file:
            found = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118  # a file is no dictionary
        told = sorted((key, one.get_shape(), one.get_dtype()) for key, one in found.items())
        yield f"published/{name}/tensors", Exact(digest(told))
        for path in sorted(place.glob("*.json")):
            document = json.loads(path.read_text(encoding="utf-8"))
            yield f"published/{name}/{path.name}", Exact(digest(said(document) if layout == OWN else document))


def said(value: Any) -> Any:
    """Leave out what is null: in our own layout it says no more than a key that is not there."""
    if isinstance(value, dict):
        return {key: said(inner) for key, inner in value.items() if inner is not None}
    return [said(inner) for inner in value] if isinstance(value, list) else value


def adapters() -> Iterator[tuple[str, Item]]:
    """Yield what tuning adds to models: names, shapes and starting weights."""
    for name, (base, settings) in TUNINGS.items():
        model = scrambled(family(base))
        tuning: Any = TypeAdapter(Tuning).validate_python(settings)
        rewrite(model, by=tuning, seed=SEED)
        learned = {key: one for key, one in model.named_parameters() if one.requires_grad}
        for group, members in grouped(learned).items():
            yield f"adapters/{name}/{group}", short([len(members), *sorted({str(list(learned[key].shape))
                                                                            for key in members})])
        yield f"adapters/{name}", weights(learned)


class Enough(Exception):  # noqa: N818  # nothing is wrong
    """The updates that were wanted are done."""


@dataclass(slots=True)
class Told(Reporter):
    """Remembers how training goes, and ends it."""

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def progress(self, progress: Progress) -> None:
        """After every update."""
        self.losses.append(rounded(progress.loss))
        self.norms.append(rounded(progress.gradient_norm))
        self.rates.append(rounded(progress.rate))
        self.tokens += [progress.tokens, progress.tokens_read]
        if progress.step == UPDATES:
            raise Enough

    def evaluation(self, step: int, scores: Mapping[str, float]) -> None:
        """There is none."""

    def note(self, text: str) -> None:
        """Not kept: it says what machine this is."""

    def close(self) -> None:
        """Nothing is open."""


def small(name: str, place: Path) -> tuple[str, ...]:
    """Return what is changed in a recipe so that five updates are quick: text, vocabulary, and how much is read.

    Objective, optimizer and schedule stay the recipe's own; the model, too, but for Muon, whose products of matrices
    in bfloat16 take minutes on processors without it: there the model is narrow.
    """
    wanted = recipe(name)
    said = wanted.blueprint.model_dump()
    narrow = [f"model.{key}={size}" for key, size in NARROW.items() if key in said
              and wanted.training.optimizer.kind == "muon"]
    text = {"text": (TEXT, PARAGRAPHS), "pairs": (PAIRS,), "languages": (LANGUAGES, PARAGRAPHS)}[wanted.data.kind]
    vocab = {"bytes": (), "characters": (), "byte_bpe": ("tokenizer.vocab=340",)}.get(wanted.tokenizer.kind, (
        "tokenizer.vocab=250",))
    own = {"transformer-xl-nano": ("model.cutoffs=[100]",), "m2m-nano": (MANY,)}.get(name, ())
    length = min(64, wanted.training.length)
    return tuple(word.format(place=place) for word in (
        *text, *vocab, *own, *narrow, "training.batch=4", f"training.length={length}", f"training.seed={SEED}",
        "training.dtype=float32", "training.events=off"))


def steps(place: Path, recipes: list[str]) -> Iterator[tuple[str, Item]]:
    """Yield what five updates of recipes make: losses, norms of gradients, rates, tokens, and weights."""
    for name in recipes:
        wanted = recipe(name, small(name, place))
        folder = place / "steps" / name
        prepared_data = prepare_data(wanted, RunFolder(folder), Console(silent=True))
        lessons = build_run_objectives(wanted, prepared_data.tokenizer, prepared_data.collocations)
        study = make_training_data(wanted, prepared_data.tokenizer, prepared_data.train, lessons)
        model = build(wanted.model_for(prepared_data.tokenizer.vocab_size), seed=wanted.training.seed)
        spelled(model, prepared_data.tokenizer)
        study.objective.bind(model)
        told = Told()
        before = {key: one.detach().clone() for key, one in everything(model, study.objective.modules)}
        with contextlib.suppress(Enough):
            train(model, study, wanted.training, run_folder=folder, reporters=[told])
        after = dict(everything(model, study.objective.modules))
        moved = [rounded(float((one.detach() - before[key]).norm())) for key, one in after.items()]
        yield f"steps/{name}/rates", short(told.rates, most=200)
        yield f"steps/{name}/tokens", short(told.tokens)
        yield f"steps/{name}/losses", Bits(digest(told.losses), tuple(told.losses))
        yield f"steps/{name}/gradient norms", Bits(digest(told.norms), tuple(told.norms))
        yield f"steps/{name}/weights", Bits(weights(after).bits, tuple(moved))


def spelled(model: Transformer, tokenizer: Any) -> None:
    """Give a model that reads characters the spelling of its vocabulary."""
    from saucier.folders.load import set_token_spellings

    set_token_spellings(model, tokenizer)


def everything(model: nn.Module, modules: Mapping[str, nn.Module]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield all that is learned, and all that is kept beside it, of a model and of an objective's own modules."""
    yield from model.state_dict().items()
    for name, module in modules.items():
        yield from ((f"{name}.{key}", value) for key, value in module.state_dict().items())


def nano_models() -> dict[str, c.Transformer]:
    """Return the models of the nano recipes."""
    return {f"recipe {name}": recipe(name).model for name in nano()}
