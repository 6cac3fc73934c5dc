"""Runs that start with trained models: the recipe that follows from them, their tokenizer, their weights.

Either one model is trained further on other text, or an encoder-decoder is initialized from models of one stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import processors
from torch import nn

from saucier import config as c
from saucier.adaptation.starting_weights import initialize_from
from saucier.adaptation.surgery.operations import NewTokens
from saucier.adaptation.tuning import RATES, Freeze
from saucier.checkpoints.hub import locate_model, resolve_folder
from saucier.errors import InputError
from saucier.families.bart import with_source_encoder
from saucier.families.encoder_decoder import joined
from saucier.files import read_object
from saucier.folders.kinds import find_model_folder
from saucier.folders.load import load
from saucier.jobs.run.console import Console
from saucier.lens.subject import find_subject
from saucier.model import Transformer
from saucier.opened import RunFolder, room, run_folder_of
from saucier.parts.provenance import Origin
from saucier.recipes import Recipe
from saucier.recipes.catalogue import build_recipe
from saucier.recipes.source import Source, apply_overrides
from saucier.text.tokenizer.language_tokens import frames_with_language
from saucier.text.tokenizer.tokenizer import ROLES, Tokenizer, load_tokenizer
from saucier.text.tokenizer.vocabulary import spell_new_tokens
from saucier.training.resume import load_modules

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
    nothing to hide text with (M2M-100), learns pairs. With `source_layers` a new encoder of that number of blocks reads
    sources of another language before the model does, and pairs are learned in two stages; `tokenizer.kind=...` gives
    it a vocabulary of its own, learned from the sources.
    Raises `InputError` for a folder without a model or a tokenizer, and for a model that speaks no tokens.
    """
    folder = resolve_folder(start)
    tokenizer = load_tokenizer(folder)
    model = language_model_config(find_model_folder(folder))
    learned, data = (TWO_STAGES, {"kind": "pairs"}) if source_layers is not None \
        else choose_objective_and_data(model, tokenizer, folder)
    model = model if source_layers is None else with_source_encoder(model, source_layers, vocab=tokenizer.vocab_size)
    words = re.sub(r"[^a-z0-9._-]+", "-", start.absolute().name.lower()).strip("-._")
    optimizer = TRAINING["optimizer"]
    tuning = next((word.partition("=")[2] for word in overrides if word.startswith("tuning.kind=")), "")
    rate = {"learning_rate": RATES.get(tuning, optimizer["learning_rate"])}  # suits what of the model learns
    values: dict[str, Any] = {"name": f"{words or 'model'}-continued", "about": f"Goes on from {start.name}",
                              "model": model.model_dump(mode="json"), **tokenizer_settings(tokenizer), "data": data,
                              "objective": learned,
                              "training": TRAINING | {"length": room(model, LENGTH), "optimizer": optimizer | rate}}
    source = Source(f"what follows from {start}", deepcopy(values))  # settings would change the constants above
    apply_overrides(source, overrides)
    enlarge_vocabulary(source.values)
    if source_layers is not None and source.values["tokenizer"].get("kind") != "ready":
        source.values["target_tokenizer"] = ready_tokenizer_settings(tokenizer.target)
        embed = source.values["model"]["source"]["embed"]  # the new encoder has the vocabulary that the recipe says
        embed["vocab"] = source.values["tokenizer"].get("vocab", embed["vocab"])
    return build_recipe(source)


def language_model_config(folder: Path) -> c.Transformer:
    """Return the tree of a model with a head that gives tokens: its own, or its family's."""
    found = find_subject(str(folder)).model
    if found.gives_token_logits or isinstance(found.head, c.ReplacedTokenHead):
        return found
    from saucier.checkpoints.layout import class_of, published_tree
    from saucier.families import LAYOUTS

    document, where = read_object(folder / "config.json"), str(folder / "config.json")
    layout = LAYOUTS.get(str(document.get("model_type")))
    if layout is None:
        raise InputError("this model gives no tokens, so it cannot go on with text", where=where,
                         remedy="give a model with a language head")
    return published_tree(layout.choose_layout(layout, document), document,
                          class_of(layout, document, "language", where), where)


def ready_tokenizer_settings(tokenizer: Tokenizer) -> dict[str, Any]:
    """Describe a tokenizer that is there, with the special tokens that it has."""
    named = {role: tokenizer.names[role] for role in ROLES if role in tokenizer.names}
    return {"kind": "ready", "vocab": tokenizer.vocab_size,
            "special": named | {"sentinels": len(tokenizer.sentinel_ids)}}


def tokenizer_settings(tokenizer: Tokenizer) -> dict[str, Any]:
    """Describe the tokenizer of a model that is there, or those of both sides."""
    return {"tokenizer": ready_tokenizer_settings(tokenizer),
            "target_tokenizer": ready_tokenizer_settings(tokenizer.target) if tokenizer.has_own_target else None}


def choose_objective_and_data(model: c.Transformer, tokenizer: Tokenizer, start: Path) -> tuple[dict[str, Any],
                                                                                                dict[str, Any]]:
    """Choose what is learned, and of which data; with the settings that the model's own run has for it, if it has one.

    Raises `InputError` where the tokenizer has no token for it.
    """
    if tokenizer.has_own_target:
        return PAIRS, {"kind": "pairs"}
    hides = tokenizer.mask_id is not None or tokenizer.sentinel_ids
    translates = model.encoder is not None and model.decoder is not None and not hides \
        and frames_with_language(tokenizer)
    chosen = PAIRS if translates else choose_objective(model, tokenizer)
    own = read_learned_objective(start)
    return own if own is not None and own["kind"] == chosen["kind"] else chosen, \
        {"kind": "pairs", "languages": {}} if translates else {"kind": "text"}


def choose_objective(model: c.Transformer, tokenizer: Tokenizer) -> dict[str, Any]:
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


def read_learned_objective(start: Path) -> dict[str, Any] | None:
    """Return the objective of the run that a model is in; None: it is in none."""
    run = RunFolder(run_folder_of(start))
    return run.recipe().objective.model_dump(mode="json") if run.is_run else None


def enlarge_vocabulary(values: dict[str, Any]) -> None:
    """Make room for the tokens that are added, in the tokenizer and in the model."""
    tokenizer, model = values["tokenizer"], values["model"]
    extend = tokenizer.get("extend", 0)
    if isinstance(extend, int) and extend > 0 and tokenizer.get("kind") == "ready" and "embed" in model:
        tokenizer["vocab"] += extend
        for embed in (model["embed"], model.get("decoder_embed")):
            if embed:
                embed["vocab"] = max(embed["vocab"], tokenizer["vocab"])


WARM_START_LENGTH = 128
"""Tokens of a side, where the model can take more."""
WARM_START_TRAINING: dict[str, Any] = {
    "steps": 1000, "batch": 32, "evaluate_every": 200,
    "optimizer": {"kind": "adamw", "learning_rate": 3e-4, "weight_decay": 0.01},
    "schedule": {"kind": "linear", "warmup": 100}}
"""A rate between those of warm and of random weights, since nothing has read an encoder yet."""


def warm_start_recipe(encoder: Path | None, decoder: Path | None, *, shared: bool = False,
                      overrides: Iterable[str] = ()) -> Recipe:
    """Return the recipe for learning from pairs with an encoder-decoder whose sides begin with two models' weights.

    One of both is given. A side without a model has the shape of the other one, and random weights;
    `warm_start.encoder=null` makes a side's weights random where a model gives the shape.
    Raises `InputError` for models that do not fit together.
    """
    given = [one for one in (encoder, decoder) if one is not None]
    folders = [resolve_folder(one) for one in given]
    trees = [find_subject(str(find_model_folder(folder))).model for folder in folders]
    tokenizer = load_start_tokenizers(folders, shared=shared)
    model = joined(trees[0], trees[-1], shared=shared)
    warm = {"tokenizer": locate_model(given[0]), "encoder": encoder and locate_model(encoder),
            "decoder": decoder and locate_model(decoder),
            "target_tokenizer": locate_model(given[-1]) if tokenizer.has_own_target else None}
    values: dict[str, Any] = {
        "name": "warm-start", "about": f"Begins with {' and '.join(one.name for one in given)}",
        "model": model.model_dump(mode="json"), "warm_start": warm, "data": {"kind": "pairs"},
        **tokenizer_settings(tokenizer), "objective": {"kind": "sequence_to_sequence"},
        "training": WARM_START_TRAINING | {"length": room(model, WARM_START_LENGTH)}}
    source = Source("what follows from --encoder and --decoder", deepcopy(values))
    apply_overrides(source, overrides)
    return build_recipe(source)


def check_tuning(recipe: Recipe) -> None:
    """Raise `InputError` for a way of tuning that a model which begins with this run cannot have."""
    if recipe.tuning is not None and recipe.warm_start is None:
        raise InputError("tuning: a model without learned weights has nothing to keep", where="command line",
                         remedy="begin with a model, --from FOLDER, or leave tuning out")
    if not isinstance(recipe.tuning, Freeze | None):
        raise InputError(f"tuning: {recipe.tuning.kind} belongs to a model that is there, and this one is new",
                         where="command line", remedy="use tuning.kind=freeze, or learn first, and begin --from that")


def load_start_tokenizers(folders: list[Path], *, shared: bool) -> Tokenizer:
    """Return the tokenizer of both models, or those of both sides. Raises `InputError` for two where sides share."""
    first, last = (load_tokenizer(folder) for folder in (folders[0], folders[-1]))
    if first.backend.get_vocab() == last.backend.get_vocab():
        return add_target_tokens(first)
    if shared:
        raise InputError("the two models have different tokenizers", where=str(folders[1]),
                         remedy="leave --shared out: sides that share their weights have one vocabulary")
    return first.with_target(add_target_tokens(last))


def add_target_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """Give a tokenizer what targets need: a token that begins one, and one that ends it.

    BERT's [CLS] and [SEP] are these; a frame that ends no text (GPT-2) gets the end token after it. The end token
    is that of padding, too, where there is no token for it.
    """
    for role, instead in (("bos", "cls"), ("eos", "sep"), ("pad", "eos")):
        if role not in tokenizer.names and instead in tokenizer.names:
            tokenizer.names[role] = tokenizer.names[instead]
    end = tokenizer.eos_id
    if end is None:
        raise InputError("the tokenizer has no token that ends a text", where="tokenizer",
                         remedy="use a model whose tokenizer has one")
    if tokenizer.encode("a")[-1] != end:
        name = tokenizer.names["eos"]
        tokenizer.backend.post_processor = processors.TemplateProcessing(
            single=["$A", name], pair=["$A", name, "$B:1", f"{name}:1"], special_tokens=[(name, end)])
    return tokenizer


def load_start_weights(model: Transformer, start: Path, tokenizer: Tokenizer, console: Console) -> None:
    """Give the model the weights of another one, and say what is new in it. Raises `InputError` for another body."""
    known, needed = (one if model.config.source is None else one.target  # whose tokens have the shared table
                     for one in (load_tokenizer(start), tokenizer))
    pieces = spell_new_tokens(known, needed)
    found = initialize_from(model, load(start, dtype="float32", device="cpu"),
                            NewTokens(first=known.next_id, pieces=pieces) if pieces else None)
    model.provenance = replace(model.provenance, origin=Origin.of(start, model, (*found.new, *found.wider)))
    for what, names in (("begins anew", found.new), ("is left behind", found.left)):
        if names:
            console.say(f"{', '.join(names[:3])}{', ...' if len(names) > 3 else ''} {what}")


def load_start_modules(modules: Mapping[str, nn.Module], start: Path, recipe: Recipe, tokenizer: Tokenizer,
                       console: Console) -> None:
    """Give the objective's own modules, such as a generator, the weights of the run to start from, and say which not.
    """
    folder = find_model_folder(start)
    fits = read_learned_objective(start) == recipe.objective.model_dump(mode="json") \
        and load_tokenizer(start).vocab_size == tokenizer.vocab_size
    for name, module in modules.items():
        weights = (folder / f"{name}.safetensors", folder / name / "model.safetensors")
        if fits and any(path.is_file() for path in weights):
            load_modules({name: module}, folder)
        else:
            console.say(f"{name} begins anew")
