"""What an operation changed: a model before and after it, on real text. Letters: L length, D dim, V vocab."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import torch
import torch.nn.functional as F
from torch import Tensor

from saucier.config import longest_input
from saucier.diagnosis.scope import needs_global_mask
from saucier.errors import InputError
from saucier.generation.packed_weights import inference_view
from saucier.model import Transformer
from saucier.text.rows.batch import make_generator
from saucier.text.tokenizer.tokenizer import Tokenizer

USUAL_LENGTH = 512
"""Tokens of a piece where no table of positions says how many there may be."""
PIECES = 24
"""Pieces of text that are compared, at most."""
LEAST_TOKENS = 2
"""Tokens that a piece has more of, or it is all frame."""
HIDDEN = 0.15
"""Share of the tokens that are hidden for the loss of masked words. Source: Devlin et al. 2019, §3.1."""


@dataclass(frozen=True, slots=True)
class Equivalence:
    """What stayed the same, and what did not."""

    same: int
    """Tokens up to which the numbers should be what they were; 0: none."""
    difference: float | None
    """The largest difference of any number of the last layer, in pieces of up to `same` tokens."""
    length: int
    """Tokens of the longer pieces, at most."""
    cosine: float | None
    """Of each token's vector with what it was, the mean over longer pieces; None: all pieces are short ones."""
    loss: tuple[float, float] | None
    """Nats a token before and after, of hidden words or of the next token; None for a model that gives no words."""
    beyond: int
    """Tokens of the longest text, where the model had no room for it before."""
    respelled: int = 0
    """Pieces of text that hold a token which is left out, and are not compared."""

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
        if self.respelled:
            yield f"{self.respelled:,} pieces hold tokens that are left out, and are spelled otherwise now"


@dataclass(frozen=True, slots=True)
class RenumberedModel:
    """A model, and its ids of the tokens that a tokenizer knows by others."""

    model: Transformer
    new: Mapping[int, int] | None = None
    """None: they are the same."""

    def inputs(self, row: Sequence[int]) -> dict[str, Tensor]:
        """Give a row to the model; one with two stacks writes what it reads."""
        own = list(row) if self.new is None else [self.new[one] for one in row]
        ids = torch.tensor([own], device=self.model.device)
        pair = self.model.config.encoder is not None and self.model.config.decoder is not None
        given = {"input_ids": ids, **({"decoder_input_ids": ids} if pair else {})}
        if needs_global_mask(self.model.config):  # a piece of text has no question before its first separator
            given["global_attention_mask"] = (torch.arange(len(own), device=ids.device) == 0)[None].long()
        return given

    def hidden(self, row: Sequence[int]) -> Tensor:
        """Return the vectors of the last layer. Shapes: -> [L, D]."""
        found = self.model(**self.inputs(row), compute_logits=False).last_hidden_state
        return found[0].float()  # type: ignore[no-any-return]

    @property
    def room(self) -> int:
        """Tokens that there is room for; as many as usual where nothing says it."""
        return longest_input(self.model.config.embed.positions) or USUAL_LENGTH

    def spells(self, row: Sequence[int]) -> bool:
        """Say whether it knows all tokens of a row."""
        return self.new is None or all(one in self.new for one in row)


def compare_models(before: Transformer, after: Transformer, texts: Sequence[str], tokenizer: Tokenizer, *,
                   same: float, new: Mapping[int, int] | None = None) -> Equivalence:
    """Run both on pieces of the texts. `same`: up to how many tokens the numbers should stay.

    `tokenizer` is that of the model before; `new`: the new ids of its tokens, where they have others now. Raises
    `InputError` for a tokenizer that is not the model's.
    """
    if tokenizer.vocab_size > before.config.embed.vocab:
        raise InputError(f"the tokenizer has {tokenizer.vocab_size} tokens, and the model {before.config.embed.vocab}",
                         where="--text", remedy="give the model's own tokenizer beside it, or leave the text out")
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    one, other = RenumberedModel(inference_view(before)), RenumberedModel(inference_view(after), new)
    unchanged = int(min(same, one.room))
    with torch.inference_mode():
        frame = len(frame_piece([], tokenizer))
        cut = [[frame_piece(text[start:start + size], tokenizer) for text in ids for start in range(0, len(text), size)]
               for size in (max(1, length - frame) for length in (unchanged, one.room))]
        short = [row for row in cut[0] if other.spells(row)][:PIECES] if unchanged > LEAST_TOKENS else []
        long = [row for row in cut[1] if len(row) > unchanged and other.spells(row)][:PIECES]
        gaps = [float((one.hidden(row) - other.hidden(row)).abs().max()) for row in short]
        near = [float(F.cosine_similarity(one.hidden(row), other.hidden(row), dim=-1).mean()) for row in long]
        whole = max((frame_piece(text, tokenizer) for text in ids), key=len, default=[])[:other.room]
        read = read_at_once(other, whole) if other.room > one.room and len(whole) > one.room else 0
        losses = mean_losses((one, other), long or short, tokenizer)
        unknown = sum(not other.spells(row) for row in cut[1])
    return Equivalence(unchanged, max(gaps, default=None), one.room, mean(near) if near else None, losses,
                       read, unknown)


def frame_piece(ids: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """Put the classification token and the separator around a piece, where there are such."""
    first, last = tokenizer.cls_id, tokenizer.sep_id
    return [*([] if first is None else [first]), *ids, *([] if last is None else [last])]


def read_at_once(found: RenumberedModel, row: Sequence[int]) -> int:
    """Read a long text; return its tokens."""
    if not found.spells(row):
        return 0
    assert bool(found.hidden(row).isfinite().all()), "every text gives numbers"
    return len(row)


def mean_losses(models: tuple[RenumberedModel, RenumberedModel], rows: Sequence[Sequence[int]],
                tokenizer: Tokenizer) -> tuple[float, float] | None:
    """Return the loss of both on the same targets; None for models that give no words."""
    config = models[0].model.config
    if config.language_head is None or not rows or (config.decoder is None and tokenizer.mask_id is None):
        return None
    mask = tokenizer.mask_id if config.decoder is None else None
    found = [[row_loss(model, row, number, mask) for number, row in enumerate(rows)] for model in models]
    one, other = (mean(value for value in values if not math.isnan(value)) for values in found)
    return one, other


def row_loss(found: RenumberedModel, row: Sequence[int], number: int, mask: int | None) -> float:
    """Return the mean loss of a row: of the tokens that `mask` hides, or of each next token where there is none."""
    targets = found.inputs(row)["input_ids"][0]
    if mask is None:
        logits = found.model(**found.inputs(row)).logits[0].float()
        return float(F.cross_entropy(logits[:-1], targets[1:]))
    chosen = make_generator(0, number).random(len(row)) < HIDDEN
    logits = found.model(**found.inputs([mask if hide else one for one, hide in zip(row, chosen, strict=True)])).logits
    places = torch.from_numpy(chosen.nonzero()[0]).to(targets.device)
    return float(F.cross_entropy(logits[0, places].float(), targets[places]))
