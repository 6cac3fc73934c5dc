"""What an operation changed: a model before and after it, on real text. Letters: L length, D dim, V vocab."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean

import torch
import torch.nn.functional as F
from torch import Tensor

from saucier.config import LanguageHead, longest_input
from saucier.errors import InputError
from saucier.generation.feed import evaluating
from saucier.model import Transformer
from saucier.text.rows import generator
from saucier.text.tokenizer import Tokenizer

USUAL = 512
"""Tokens of a piece where no table of positions says how many there may be."""
PIECES = 24
"""Pieces of text that are compared, at most."""
HIDDEN = 0.15
"""Share of the tokens that are hidden for the loss of masked words. Source: Devlin et al. 2019, §3.1."""


@dataclass(frozen=True, slots=True)
class Equivalence:
    """What stayed the same, and what did not."""

    same: int
    """Tokens up to which the numbers should be what they were; 0: none."""
    difference: float | None
    """The largest difference of any number of the last layer, in pieces of up to so many tokens."""
    length: int
    """Tokens of the longer pieces, at most."""
    cosine: float | None
    """Of each token's vector with what it was, the mean over longer pieces; None: all pieces are short ones."""
    loss: tuple[float, float] | None
    """Nats a token before and after, of hidden words or of the next token; None for a model that gives no words."""
    beyond: int
    """Tokens of the longest text, where the model had no room for it before."""

    def lines(self) -> Iterator[str]:
        """Say it."""
        if self.difference is not None:
            yield f"texts of up to {self.same:,} tokens: largest difference {self.difference:.2g}"
        if self.cosine is not None:
            yield f"texts of up to {self.length:,} tokens: cosine {self.cosine:.4f} with what each token's vector was"
        if self.loss is not None:
            yield f"loss {self.loss[0]:.4f} before, {self.loss[1]:.4f} after"
        if self.beyond:
            yield f"a text of {self.beyond:,} tokens, too long before, is read at once"


def compare(before: Transformer, after: Transformer, texts: Sequence[str], tokenizer: Tokenizer, *,
            same: float) -> Equivalence:
    """Run both on pieces of the texts. `same`: up to how many tokens the numbers should stay.

    Raises `InputError` for a tokenizer that is not the model's.
    """
    if tokenizer.vocab_size > before.config.embed.vocab:
        raise InputError(f"the tokenizer has {tokenizer.vocab_size} tokens, and the model {before.config.embed.vocab}",
                         where="--text", remedy="give the model's own tokenizer beside it, or leave the text out")
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    room = longest_input(before.config.embed.positions) or USUAL
    unchanged = int(min(same, room))
    with evaluating(before), evaluating(after):
        short = [row for text in ids for row in pieces(text, unchanged, tokenizer)][:PIECES] if unchanged > 2 else []
        long = [row for text in ids for row in pieces(text, room, tokenizer) if len(row) > unchanged][:PIECES]
        gaps = [float((hidden(before, row) - hidden(after, row)).abs().max()) for row in short]
        near = [float(F.cosine_similarity(hidden(before, row), hidden(after, row), dim=-1).mean()) for row in long]
        whole = max((framed(text, tokenizer) for text in ids), key=len, default=[])
        more = (longest_input(after.config.embed.positions) or room) > room
        read = read_at_once(after, whole) if more and len(whole) > room else 0
        told = losses(before, after, long or short, tokenizer)
    return Equivalence(unchanged, max(gaps, default=None), room, mean(near) if near else None, told, read)


def pieces(ids: Sequence[int], length: int, tokenizer: Tokenizer) -> Iterator[list[int]]:
    """Cut a text into framed pieces of up to so many tokens."""
    size = length - len(framed([], tokenizer))
    for start in range(0, len(ids), max(1, size)):
        yield framed(ids[start:start + size], tokenizer)


def framed(ids: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """Put the classification token and the separator around a piece, where there are such."""
    first, last = tokenizer.cls_id, tokenizer.sep_id
    return [*([] if first is None else [first]), *ids, *([] if last is None else [last])]


def inputs(model: Transformer, row: Sequence[int]) -> dict[str, Tensor]:
    """Give a row to a model; one with two stacks writes what it reads."""
    ids = torch.tensor([list(row)], device=model.embed.tokens.weight.device)
    pair = model.config.encoder is not None and model.config.decoder is not None
    return {"input_ids": ids, **({"decoder_input_ids": ids} if pair else {})}


def hidden(model: Transformer, row: Sequence[int]) -> Tensor:
    """Return the vectors of the last layer. Shapes: -> [L, D]."""
    found = model(**inputs(model, row), compute_logits=False).last_hidden_state
    return found[0].float()  # type: ignore[no-any-return]


def read_at_once(model: Transformer, row: Sequence[int]) -> int:
    """Read a long text, as far as there is room; return the tokens that were read."""
    row = row[:longest_input(model.config.embed.positions)]
    assert bool(hidden(model, row).isfinite().all()), "every text gives numbers"
    return len(row)


def losses(before: Transformer, after: Transformer, rows: Sequence[Sequence[int]],
           tokenizer: Tokenizer) -> tuple[float, float] | None:
    """Return the loss of both on the same targets; None for models that give no words."""
    head, masks = before.config.language_head, before.config.decoder is None
    if not isinstance(head, LanguageHead) or not rows or (masks and tokenizer.mask_id is None):
        return None
    found = [[loss(model, row, number, tokenizer.mask_id if masks else None) for number, row in enumerate(rows)]
             for model in (before, after)]
    one, other = (mean(value for value in values if not math.isnan(value)) for values in found)
    return one, other


def loss(model: Transformer, row: Sequence[int], number: int, mask: int | None) -> float:
    """Return the mean loss of a row: of the tokens that `mask` hides, or of each next token where there is none."""
    given = inputs(model, row)
    ids = given["input_ids"].clone()
    if mask is None:
        logits = model(**given).logits[0].float()
        return float(F.cross_entropy(logits[:-1], ids[0, 1:]))
    chosen = torch.from_numpy(generator(0, number).random(len(row)) < HIDDEN).to(ids.device)
    given["input_ids"] = ids.masked_fill(chosen, mask)
    logits = model(**given).logits[0].float()
    return float(F.cross_entropy(logits[chosen], ids[0, chosen]))
