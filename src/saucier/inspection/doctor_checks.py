"""What must be so of a model's weights, its ties, its tokenizer and its files, whatever it computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import torch

from saucier import config as c
from saucier.loading import open_model
from saucier.model import Transformer
from saucier.saving import save_bare
from saucier.text.tokenizer import Tokenizer

Verdict = Literal["holds", "fails", "does not apply"]
SHOWN = 3
"""Names that a finding lists."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one law or check."""

    name: str
    verdict: Verdict
    why: str = ""
    """What was found, or why it does not apply."""
    difference: float | None = None
    tolerance: float | None = None


def checks(model: Transformer, tokenizer: Tokenizer | None) -> Iterator[Finding]:
    """Look at everything that needs no text."""
    yield finite_weights(model)
    yield from ties(model)
    if tokenizer is None:
        yield Finding("the tokenizer fits", "does not apply", "the folder holds no tokenizer")
    else:
        yield vocabulary("the tokenizer fits", model.config.input_embed, tokenizer)
        if tokenizer.has_own_target:
            yield vocabulary("the tokenizer of targets fits", model.config.output_embed, tokenizer.target)
        yield special_tokens(model, tokenizer)
    yield saved_bits(model)


def finding(name: str, faults: list[str], fine: str = "") -> Finding:
    """Say that a check holds, or list its first faults."""
    more = f" and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    return Finding(name, "fails", "; ".join(faults[:SHOWN]) + more) if faults else Finding(name, "holds", fine)


def finite_weights(model: Transformer) -> Finding:
    """No weight is NaN or infinite."""
    faults, count = [], 0
    for name, weight in model.named_parameters():
        wrong = int((~weight.isfinite()).sum())
        count += weight.numel()
        faults += [f"{name} holds {wrong:,} that are not finite"] if wrong else []
    return finding("weights are finite", faults, f"{count:,} of them")


def ties(model: Transformer) -> Iterator[Finding]:
    """What the config calls tied is one tensor."""
    faults, found = [], []
    language, table = model.config.language_head, (model.decoder_embed or model.embed).tokens
    if language is not None and language.tied:
        found.append("the output layer is the token table")
        head = getattr(model.head, "language", model.head)
        if getattr(head, "weight", None) is not getattr(table, "weight", None):
            faults.append("the output layer is to be the token table, and is another tensor")
    embed = model.config.decoder_embed
    if embed is not None and embed.tied and model.decoder_embed is not None:
        found.append("both sides have one token table")
        if model.decoder_embed.tokens.weight is not model.embed.tokens.weight:
            faults.append("the sides are to have one token table, and have two")
    if found:
        yield finding("tied weights are tied", faults, "; ".join(found))
    else:
        yield Finding("tied weights are tied", "does not apply", "the config ties none")


def vocabulary(name: str, embed: c.Embedding, tokenizer: Tokenizer) -> Finding:
    """Every id of a tokenizer has a row in the model's table; rows beyond are told."""
    rows, ids = embed.vocab, tokenizer.vocab_size
    if ids > rows:
        return Finding(name, "fails", f"{ids:,} ids, and the model has {rows:,} rows for them")
    more = f", and {rows - ids:,} rows that no id leads to" if rows > ids else ""
    return Finding(name, "holds", f"{ids:,} ids{more}")


def special_tokens(model: Transformer, tokenizer: Tokenizer) -> Finding:
    """The tokens that the tokenizer and the model name are there, and are the same."""
    faults = [f"{name!r} ({role}) is not in the vocabulary" for one in dict.fromkeys((tokenizer, tokenizer.target))
              for role, name in one.names.items() if one.token_to_id(name) is None]
    head = model.config.language_head
    if head is not None and isinstance(head.predicts, c.InPlace) and tokenizer.mask_id is None \
            and model.config.decoder is None:
        faults.append("it predicts hidden tokens, and the tokenizer has no mask")
    embed = model.config.input_embed
    if embed.padding is not None and tokenizer.pad_id is not None and embed.padding != tokenizer.pad_id:
        faults.append(f"padding is {embed.padding} for the model, {tokenizer.pad_id} for the tokenizer")
    named = [(name, number) for name, value in model.generation.items() if name.endswith("_token_id")
             for number in (value if isinstance(value, list) else [value]) if isinstance(number, int)]
    faults += [f"{name} is {number}, outside the vocabulary" for name, number in named
               if number >= model.config.output_embed.vocab]
    roles = ", ".join(tokenizer.names) or "none"
    return finding("special tokens are there", faults, roles)


def saved_bits(model: Transformer) -> Finding:
    """A model that is saved and loaded has the same bits."""
    weight = model.embed.tokens.weight
    with TemporaryDirectory() as folder:
        layout = save_bare(model, Path(folder) / "model", layout="own")
        again = open_model(Path(folder) / "model", "auto", weight.dtype, weight.device)  # weights are all that counts
    before, after = dict(model.named_parameters()), dict(again.named_parameters())
    faults = [f"{name} is lost" for name in before.keys() - after.keys()]
    faults += [f"{name} has other bits" for name, value in before.items()
               if name in after and not torch.equal(value.nan_to_num(7.0), after[name].nan_to_num(7.0))]
    return finding("saved and loaded, the same bits", faults, f"layout {layout}")
