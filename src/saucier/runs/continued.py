"""The recipe of a run that goes on from a model that is there: its body, its tokenizer, an objective that fits it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from saucier import config as c
from saucier.adaptation.config import RATES
from saucier.errors import InputError
from saucier.families.bart import with_source_encoder
from saucier.files import read_object
from saucier.hub import folder_of
from saucier.inspection.subject import subject
from saucier.loading import model_folder_of
from saucier.recipes import Recipe
from saucier.recipes.catalogue import checked
from saucier.recipes.coherence import learned_length
from saucier.recipes.overrides import apply_overrides
from saucier.recipes.reading import Source
from saucier.runs.folder import RunFolder, run_of
from saucier.text.tokenizer import ROLES, Tokenizer, load_tokenizer
from saucier.text.told import tells_languages

LENGTH = 256
"""Tokens in a row, where the model can take more."""
TRAINING: dict[str, Any] = {
    "steps": 1000, "batch": 16, "evaluate_every": 200,
    "optimizer": {"kind": "adamw", "learning_rate": 5e-5, "weight_decay": 0.01},
    "schedule": {"kind": "linear", "warmup": 60}}
"""What is usual for going on from published weights: a low rate, a short warmup. Gururangan et al. 2020, table 13,
arXiv:2004.10964, takes 1e-4 at batches of 2048."""
PAIRS: dict[str, Any] = {"kind": "sequence_to_sequence"}
"""All that a model between two vocabularies can learn."""
TWO_STAGES: dict[str, Any] = {"kind": "sequence_to_sequence", "first_stage": {}}
"""How a model learns to read another language by a new encoder. Source: Lewis et al. 2020, §3.4, arXiv:1910.13461."""


def continued_recipe(start: Path, overrides: Sequence[str] = (), *, source_layers: int | None = None) -> Recipe:
    """Return the recipe for going on with a model on other text.

    What is learned follows from the body: hidden tokens for an encoder (replaced ones, where it has a head for them),
    the next token for a decoder, dropped spans for an encoder-decoder whose tokenizer has sentinels, BART's noises for
    another; `objective.kind=...` says otherwise. A model between two vocabularies, or of several languages that has
    nothing to hide text with (M2M-100), learns pairs. With `source_layers` a new encoder of so many blocks reads
    sources of another language before the model does, and pairs are learned in two stages; `tokenizer.kind=...` gives
    it a vocabulary of its own, learned from the sources.
    Raises `InputError` for a folder without a model or a tokenizer, and for a model that speaks no tokens.
    """
    folder = folder_of(start)
    tokenizer = load_tokenizer(folder)
    model = speaking(model_folder_of(folder))
    learned, data = (TWO_STAGES, {"kind": "pairs"}) if source_layers is not None else lesson(model, tokenizer, folder)
    model = model if source_layers is None else with_source_encoder(model, source_layers, vocab=tokenizer.vocab_size)
    length = min(LENGTH, learned_length(model) or LENGTH)
    values: dict[str, Any] = {
        "name": name_of(start), "about": f"Goes on from {start.name}", "model": model.model_dump(mode="json"),
        **tokenizers(tokenizer), "data": data, "objective": learned,
        "training": training(overrides) | {"length": length}}
    source = Source(f"what follows from {start}", values)
    apply_overrides(source, overrides)
    enlarge(source.values)
    if source_layers is not None and source.values["tokenizer"].get("kind") != "ready":
        own_vocabulary(source.values, tokenizer)
    return checked(source)


def training(overrides: Sequence[str]) -> dict[str, Any]:
    """Return how the model is trained, at a rate that suits what of it learns."""
    kind = next((word.partition("=")[2] for word in overrides if word.startswith("tuning.kind=")), "")
    optimizer = TRAINING["optimizer"]
    return TRAINING | {"optimizer": optimizer | {"learning_rate": RATES.get(kind, optimizer["learning_rate"])}}


def name_of(start: Path) -> str:
    """Name the run after the model."""
    words = re.sub(r"[^a-z0-9._-]+", "-", start.absolute().name.lower()).strip("-._")
    return f"{words or 'model'}-continued"


def speaking(folder: Path) -> c.Transformer:
    """Return the tree of a model with a head that gives tokens: its own, or its family's."""
    found = subject(str(folder)).model
    if found.language_head is not None or isinstance(found.head, c.AdaptiveHead | c.ReplacedTokenHead):
        return found
    from saucier.checkpoints.published import class_of, published_tree
    from saucier.families.layouts import LAYOUTS

    document, where = read_object(folder / "config.json"), str(folder / "config.json")
    layout = LAYOUTS.get(str(document.get("model_type")))
    if layout is None:
        raise InputError("this model gives no tokens, so it cannot go on with text", where=where,
                         remedy="give a model with a language head")
    spelled = layout.spelled(layout, document)
    return published_tree(spelled, document, class_of(layout, document, "language", where), where)


def ready(tokenizer: Tokenizer) -> dict[str, Any]:
    """Describe a tokenizer that is there, with the special tokens that it has."""
    named = {role: tokenizer.names[role] for role in ROLES if role in tokenizer.names}
    return {"kind": "ready", "vocab": tokenizer.vocab_size,
            "special": named | {"sentinels": len(tokenizer.sentinel_ids)}}


def tokenizers(tokenizer: Tokenizer) -> dict[str, Any]:
    """Describe the tokenizer of a model that is there, or those of both sides."""
    return {"tokenizer": ready(tokenizer),
            "target_tokenizer": ready(tokenizer.target) if tokenizer.has_own_target else None}


def lesson(model: c.Transformer, tokenizer: Tokenizer, start: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Choose what is learned, and of which data. Raises `InputError` where the tokenizer has no token for it."""
    if tokenizer.has_own_target:
        return PAIRS, {"kind": "pairs"}
    hides = tokenizer.mask_id is not None or tokenizer.sentinel_ids
    if model.encoder is not None and model.decoder is not None and not hides and tells_languages(tokenizer):
        return as_learned(PAIRS, start), {"kind": "pairs", "languages": {}}
    return as_learned(objective(model, tokenizer), start), {"kind": "text"}


def objective(model: c.Transformer, tokenizer: Tokenizer) -> dict[str, Any]:
    """Choose what is learned. Raises `InputError` where the tokenizer has no token for it."""
    if model.encoder is None:
        return {"kind": "causal"}
    if model.decoder is not None and len(tokenizer.sentinel_ids) > 1:
        return {"kind": "span_corruption"}
    if tokenizer.mask_id is None:
        raise InputError("the tokenizer has neither a mask token nor sentinels to hide text with", where="tokenizer",
                         remedy="use a model whose tokenizer has one")
    if isinstance(model.head, c.ReplacedTokenHead):
        return {"kind": "replaced"}
    return {"kind": "masked" if model.decoder is None else "denoising"}


def as_learned(chosen: dict[str, Any], start: Path) -> dict[str, Any]:
    """Return the objective with the settings that the model's own run has for it, where it stands in a run."""
    own = learned_before(start)
    return own if own is not None and own["kind"] == chosen["kind"] else chosen


def learned_before(start: Path) -> dict[str, Any] | None:
    """Return the objective of the run that a model stands in; None: it stands in none."""
    run = RunFolder(run_of(start))
    return run.recipe().objective.model_dump(mode="json") if run.is_run else None


def own_vocabulary(values: dict[str, Any], tokenizer: Tokenizer) -> None:
    """Give the new encoder the vocabulary that the recipe says, and the targets that of the model."""
    values["target_tokenizer"] = ready(tokenizer.target)
    embed = values["model"]["source"]["embed"]
    embed["vocab"] = values["tokenizer"].get("vocab", embed["vocab"])


def enlarge(values: dict[str, Any]) -> None:
    """Make room for the tokens that are added, in the tokenizer and in the model."""
    tokenizer, model = values["tokenizer"], values["model"]
    extend = tokenizer.get("extend", 0)
    if isinstance(extend, int) and extend > 0 and tokenizer.get("kind") == "ready" and "embed" in model:
        tokenizer["vocab"] += extend
        for embed in (model["embed"], model.get("decoder_embed")):
            if embed:
                embed["vocab"] = max(embed["vocab"], tokenizer["vocab"])
