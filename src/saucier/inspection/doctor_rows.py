"""The rows that laws are held on, and what a model gives for them, cut into places and texts.

Letters: B rows, L places, T target places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from saucier import config as c
from saucier.inspection.doctor_scope import any_text_reason, filler_of, wants_global
from saucier.model import Output, Transformer

BY_PLACE = ("last_hidden_state", "logits", "start_logits", "end_logits")
"""What an output has for each place; logits only where they are as long as the row."""
MASKS = ("attention_mask", "decoder_attention_mask")
BY_TEXT = ("logits", "embeddings", "sentence_logits", "relevance_logits")


@dataclass(frozen=True, slots=True)
class Row:
    """One text, and for an encoder-decoder the target beside it. Ids."""

    ids: tuple[int, ...]
    target: tuple[int, ...] | None = None

    @property
    def written(self) -> tuple[int, ...]:
        """The ids at whose places the model answers."""
        return self.ids if self.target is None else self.target

    def cut(self, length: int) -> Row:
        """Keep the first places of both sides."""
        return Row(self.ids[:length], None if self.target is None else self.target[:length])


@dataclass(frozen=True, slots=True)
class Given:
    """What a model says of one row: by place [L, ...] and for the whole text [...]."""

    places: dict[str, Tensor]
    text: dict[str, Tensor]


def table(rows: Sequence[Sequence[int]], side: str, filler: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Lay rows out beside padding on a side. Shapes: -> ids [B, L], mask [B, L]."""
    length = max(map(len, rows))
    ids, mask = torch.full((len(rows), length), filler), torch.zeros(len(rows), length, dtype=torch.long)
    for number, row in enumerate(rows):
        place = slice(length - len(row), None) if side == "left" else slice(0, len(row))
        ids[number, place], mask[number, place] = torch.tensor(row), 1
    return ids.to(device), mask.to(device)


def batch_of(model: Transformer, rows: Sequence[Row], side: str = "right", filler: int | None = None) \
        -> dict[str, Any]:
    """Return the inputs of a batch, the sources padded on a side; targets are always padded behind."""
    device, filler = model.embed.tokens.weight.device, filler_of(model.config) if filler is None else filler
    ids, mask = table([row.ids for row in rows], side, filler, device)
    found: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
    if any_text_reason(model.config):
        found["compute_logits"] = False
    places = (mask.cumsum(1) - 1).clamp(min=0)
    if wants_global(model.config):
        found["global_attention_mask"] = mask * (places == 0)
    if side == "left":
        found["places"] = places
    if rows[0].target is not None:
        found["decoder_input_ids"], found["decoder_attention_mask"] = table(
            [row.written for row in rows], "right", filler, device)
    return found | no_prefix(model, len(rows))


def no_prefix(model: Transformer, rows: int) -> dict[str, Tensor]:
    """Tell a decoder with a prefix that there is none, so that every place sees its past alone."""
    if not c.sees_prefix(model.config.decoder):
        return {}
    return {"prefix_length": torch.zeros(rows, dtype=torch.long, device=model.embed.tokens.weight.device)}


def given(model: Transformer, rows: Sequence[Row], batch: dict[str, Any], side: str = "right") -> list[Given]:
    """Run a batch, and return what the model says of each row, without its padding."""
    with torch.no_grad():
        output = model(**batch)
    side = "right" if rows[0].target is not None else side
    return [row_of(output, number, len(row.written), side) for number, row in enumerate(rows)]


def row_of(output: Output, number: int, length: int, side: str) -> Given:
    """Cut one row out of an output."""
    assert output.last_hidden_state is not None, "every model gives it"
    whole = output.last_hidden_state.shape[1]
    place = slice(whole - length, whole) if side == "left" else slice(0, length)
    by_place = {name: value[number, place] for name in BY_PLACE
                if isinstance(value := getattr(output, name), Tensor) and value.shape[1:2] == (whole,)}
    text = {name: value[number] for name in BY_TEXT
            if isinstance(value := getattr(output, name), Tensor) and name not in by_place}
    return Given(by_place, text)


def alone(model: Transformer, row: Row) -> Given:
    """Return what the model says of a row by itself, unpadded."""
    batch = {name: value for name, value in batch_of(model, [row]).items() if name not in MASKS}
    return given(model, [row], batch)[0]


def difference(found: Tensor, expected: Tensor) -> float:
    """Return the largest difference, beside 1 + the expected size; infinite where a number is not finite."""
    if not found.numel():
        return 0.0
    both = found.double(), expected.double()
    gap = float(((both[0] - both[1]).abs() / (1 + both[1].abs())).max())
    return gap if bool(both[0].isfinite().all() and both[1].isfinite().all()) else float("inf")


def apart(found: Given, expected: Given, *, text: bool = True) -> float:
    """Return the largest difference of all that both say; of places alone where `text` is not wanted."""
    pairs = [(found.places[name], expected.places[name]) for name in expected.places if name in found.places]
    pairs += [(found.text[name], expected.text[name]) for name in expected.text if text and name in found.text]
    return max(difference(*pair) for pair in pairs)
