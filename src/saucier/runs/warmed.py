"""An encoder-decoder from models of one stack: the recipe that follows from them, their tokenizer, their weights."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import processors

from saucier.adaptation.warm import Warmed, warm_start
from saucier.errors import InputError
from saucier.families.encoder_decoder import joined
from saucier.hub import folder_of
from saucier.inspection.subject import subject
from saucier.loading import load, model_folder_of
from saucier.model import Transformer
from saucier.recipes import Recipe
from saucier.recipes.catalogue import checked
from saucier.recipes.coherence import learned_length
from saucier.recipes.overrides import apply_overrides
from saucier.recipes.reading import Source
from saucier.recipes.recipe import WarmStart
from saucier.runs.continued import tokenizers as described
from saucier.text.tokenizer import Tokenizer, load_tokenizer

LENGTH = 128
"""Tokens of a side, where the model can take more."""
TRAINING: dict[str, Any] = {
    "steps": 1000, "batch": 32, "evaluate_every": 200,
    "optimizer": {"kind": "adamw", "learning_rate": 3e-4, "weight_decay": 0.01},
    "schedule": {"kind": "linear", "warmup": 100}}
"""A rate between those of warm and of random weights, since the cross-attention is new."""


def warm_recipe(encoder: Path | None, decoder: Path | None, *, shared: bool = False,
                overrides: Iterable[str] = ()) -> Recipe:
    """Return the recipe for learning from pairs with an encoder-decoder whose sides begin with two models' weights.

    A side without a model has the shape of the other one, and random weights; `warm_start.encoder=null` makes a side's
    weights random where a model gives the shape. Raises `InputError` for models that do not fit together.
    """
    given = [one for one in (encoder, decoder) if one is not None]
    if not given:
        raise InputError("neither side has a model to begin with", where="command line",
                         remedy="give --encoder or --decoder, or both")
    folders = [folder_of(one) for one in given]
    trees = [subject(str(model_folder_of(folder))).model for folder in folders]
    tokenizer = tokenizers_of(folders, shared=shared)
    model = joined(trees[0], trees[-1], shared=shared)
    length = min(LENGTH, learned_length(model) or LENGTH)
    warm = {"tokenizer": place(given[0]), "encoder": place(encoder), "decoder": place(decoder),
            "target_tokenizer": place(given[-1]) if tokenizer.has_own_target else None}
    values: dict[str, Any] = {
        "name": "warm-start", "about": f"Begins with {' and '.join(one.name for one in given)}",
        "model": model.model_dump(mode="json"), "warm_start": warm, "data": {"kind": "pairs"},
        **described(tokenizer), "objective": {"kind": "sequence_to_sequence"},
        "training": TRAINING | {"length": length}}
    source = Source("what follows from --encoder and --decoder", values)
    apply_overrides(source, overrides)
    return checked(source)


def place(folder: Path | None) -> str | None:
    """Return a path that means the same from everywhere, or a hub id as it is."""
    return None if folder is None else str(folder.absolute() if folder.exists() else folder)


def tokenizers_of(folders: list[Path], *, shared: bool) -> Tokenizer:
    """Return the tokenizer of both models, or those of both sides. Raises `InputError` for two where sides share."""
    first, last = (load_tokenizer(folder) for folder in (folders[0], folders[-1]))
    if first.backend.get_vocab() == last.backend.get_vocab():
        return for_pairs(first)
    if shared:
        raise InputError("the two models have different tokenizers", where=str(folders[1]),
                         remedy="leave --shared out: sides that share their weights have one vocabulary")
    return first.beside(for_pairs(last))


def warm_tokenizer(start: WarmStart) -> Tokenizer:
    """Load the tokenizer of a warm start, with that of targets beside it where it is another one."""
    first = load_tokenizer(start.tokenizer)
    return for_pairs(first) if start.target_tokenizer is None else \
        first.beside(for_pairs(load_tokenizer(start.target_tokenizer)))


def for_pairs(tokenizer: Tokenizer) -> Tokenizer:
    """Give a tokenizer what targets need: a token that begins one, and one that ends it.

    BERT's [CLS] and [SEP] are these; a frame that ends no text (GPT-2) gets the end token behind it. The end token
    stands at padding, too, where there is no token for it.
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


def begin_warm(model: Transformer, start: WarmStart) -> Warmed:
    """Give both sides of a model their weights. Raises `InputError` for weights that do not fit."""
    encoder, decoder = (None if folder is None else load(folder, dtype="float32", device="cpu")
                        for folder in (start.encoder, start.decoder))
    return warm_start(model, encoder=encoder, decoder=decoder)
