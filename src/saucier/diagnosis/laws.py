"""The laws of a model: each runs it in two ways that must give the same numbers, and returns the difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from saucier import config as c
from saucier.diagnosis.scope import (
    Reason,
    any_text_reason,
    batch_reason,
    cache_reason,
    content_text_reason,
    future_reason,
    left_cache_reason,
    left_reason,
    left_text_reason,
    memory_reason,
    needs_global_mask,
    packing_reason,
    padding_id,
    padding_reason,
    right_reason,
    right_text_reason,
)
from saucier.model import Transformer
from saucier.parts.output import Output

BY_PLACE = ("last_hidden_state", "logits", "start_logits", "end_logits")
"""What an output has for each place; logits only where they are as long as the row."""
MASKS = ("attention_mask", "decoder_attention_mask")
BY_TEXT = ("logits", "embeddings", "sentence_logits", "relevance_logits")


@dataclass(frozen=True, slots=True)
class TextRow:
    """The ids of one text, and for an encoder-decoder those of its target."""

    ids: tuple[int, ...]
    target: tuple[int, ...] | None = None

    @property
    def written(self) -> tuple[int, ...]:
        """The ids at whose places the model answers."""
        return self.ids if self.target is None else self.target

    def cut(self, length: int) -> TextRow:
        """Keep the first places of both sides."""
        return TextRow(self.ids[:length], None if self.target is None else self.target[:length])


@dataclass(frozen=True, slots=True)
class RowOutput:
    """The output for one row: by place [L, ...] and for the whole text [...]."""

    places: dict[str, Tensor]
    text: dict[str, Tensor]


def pad_rows(rows: Sequence[Sequence[int]], side: str, filler: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Make rows as long as the longest by padding on one side. Shapes: -> ids [B, L], mask [B, L]."""
    length = max(map(len, rows))
    ids, mask = torch.full((len(rows), length), filler), torch.zeros(len(rows), length, dtype=torch.long)
    for number, row in enumerate(rows):
        place = slice(length - len(row), None) if side == "left" else slice(0, len(row))
        ids[number, place], mask[number, place] = torch.tensor(row), 1
    return ids.to(device), mask.to(device)


def make_batch(model: Transformer, rows: Sequence[TextRow], side: str = "right", filler: int | None = None) \
        -> dict[str, Any]:
    """Return the inputs of a batch, the sources padded on a side; targets are always padded on the right."""
    device, filler = model.device, padding_id(model.config) if filler is None else filler
    ids, mask = pad_rows([row.ids for row in rows], side, filler, device)
    found: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
    if any_text_reason(model.config):
        found["compute_logits"] = False
    places = (mask.cumsum(1) - 1).clamp(min=0)
    if needs_global_mask(model.config):
        found["global_attention_mask"] = mask * (places == 0)
    if side == "left":
        found["places"] = places
    if rows[0].target is not None:
        found["decoder_input_ids"], found["decoder_attention_mask"] = pad_rows(
            [row.written for row in rows], "right", filler, device)
    return found | empty_prefix(model, len(rows))


def empty_prefix(model: Transformer, rows: int) -> dict[str, Tensor]:
    """Give a decoder with a prefix an empty one, so that every place sees its past alone."""
    if not c.sees_prefix(model.config.decoder):
        return {}
    return {"prefix_length": torch.zeros(rows, dtype=torch.long, device=model.device)}


def run_batch(model: Transformer, rows: Sequence[TextRow], batch: dict[str, Any],
              side: str = "right") -> list[RowOutput]:
    """Run a batch, and return the output for each row, without its padding."""
    output = model(**batch)
    side = "right" if rows[0].target is not None else side
    return [cut_row(output, number, len(row.written), side) for number, row in enumerate(rows)]


def cut_row(output: Output, number: int, length: int, side: str) -> RowOutput:
    """Cut one row out of an output."""
    assert output.last_hidden_state is not None, "every model gives it"
    whole = output.last_hidden_state.shape[1]
    place = slice(whole - length, whole) if side == "left" else slice(0, length)
    by_place = {name: value[number, place] for name in BY_PLACE
                if isinstance(value := getattr(output, name), Tensor) and value.shape[1:2] == (whole,)}
    text = {name: value[number] for name in BY_TEXT
            if isinstance(value := getattr(output, name), Tensor) and name not in by_place}
    return RowOutput(by_place, text)


def run_alone(model: Transformer, row: TextRow) -> RowOutput:
    """Run a row by itself, unpadded."""
    batch = {name: value for name, value in make_batch(model, [row]).items() if name not in MASKS}
    return run_batch(model, [row], batch)[0]


def relative_difference(found: Tensor, expected: Tensor) -> float:
    """Return the largest difference, divided by 1 + the expected size; infinite where a number is not finite."""
    if not found.numel():
        return 0.0
    both = found.double(), expected.double()
    gap = float(((both[0] - both[1]).abs() / (1 + both[1].abs())).max())
    return gap if bool(both[0].isfinite().all() and both[1].isfinite().all()) else float("inf")


def output_difference(found: RowOutput, expected: RowOutput, *, text: bool = True) -> float:
    """Return the largest difference of all that both have; of places alone where `text` is false."""
    pairs = [(found.places[name], expected.places[name]) for name in expected.places if name in found.places]
    pairs += [(found.text[name], expected.text[name]) for name in expected.text if text and name in found.text]
    return max(relative_difference(*pair) for pair in pairs)


PIECES = (5, 3)
"""Sizes of the first pieces of a text that is decoded in pieces; the rest is one more."""


@dataclass(frozen=True, slots=True)
class Law:
    """One thing that must hold, of which models, and how far a model is from it."""

    name: str
    reason: Callable[[c.Transformer], Reason]
    gap: Callable[[Transformer, Sequence[TextRow]], float]
    """The largest difference on some rows; to be called without gradients."""
    text: Callable[[c.Transformer], Reason] = any_text_reason
    """Why the head's answer for a whole text is left out; None where it is compared too."""
    exact: bool = False
    """Whether the same bits are required."""


def batched_gap(model: Transformer, rows: Sequence[TextRow]) -> float:
    """Rows of one length together are what they are alone."""
    shortest = min(min(len(row.ids), len(row.written)) for row in rows)
    cut = [row.cut(shortest) for row in rows]
    return worst_difference(run_batch(model, cut, make_batch(model, cut)), [run_alone(model, row) for row in cut])


def padded_gap(side: str) -> Callable[[Transformer, Sequence[TextRow]], float]:
    """Rows of several lengths in one batch, padded on a side, are what they are alone."""
    def gap(model: Transformer, rows: Sequence[TextRow]) -> float:
        text = (left_text_reason if side == "left" else right_text_reason)(model.config) is None
        # Padding as short as that of the second group is masked, not left out of the work.
        groups = (rows, [rows[0].cut(len(rows[0].ids) - shorter) for shorter in range(3)])
        return max(worst_difference(run_batch(model, group, make_batch(model, group, side), side),
                                    [run_alone(model, row) for row in group], text=text) for group in groups)

    return gap


def padding_ids_gap(model: Transformer, rows: Sequence[TextRow]) -> float:
    """Other ids under the padding move nothing."""
    other = min(model.config.input_embed.vocab, model.config.output_embed.vocab) - 1
    first, second = (run_batch(model, rows, make_batch(model, rows, filler=filler)) for filler in (None, other))
    return worst_difference(first, second, text=content_text_reason(model.config) is None)


def future_gap(model: Transformer, rows: Sequence[TextRow]) -> float:
    """Another last token moves no earlier place."""
    found = []
    for row in rows:
        other = (*row.written[:-1], (row.written[-1] + 1) % model.config.output_embed.vocab)
        changed = replace(row, ids=other) if row.target is None else replace(row, target=other)
        found += [relative_difference(value[:-1], run_alone(model, changed).places[name][:-1])
                  for name, value in run_alone(model, row).places.items()]
    return max(found)


def cache_gap(sizes: Callable[[int], list[int]]) -> Callable[[Transformer, Sequence[TextRow]], float]:
    """A text that is read piece by piece with a cache is what it is in one pass."""
    return lambda model, rows: max(output_difference(read_with_cache(model, row, sizes(len(row.written))),
                                                     run_alone(model, row), text=False) for row in rows)


def split_in_pieces(length: int) -> list[int]:
    """A prompt, and larger pieces."""
    return [size for size in (*PIECES, length - sum(PIECES)) if size > 0] if length > sum(PIECES) else [length]


def read_with_cache(model: Transformer, row: TextRow, sizes: Sequence[int]) -> RowOutput:
    """Read a row piece by piece."""
    ids, _ = pad_rows([row.written], "right", 0, model.device)
    cache, found = model.new_cache(1, len(row.written)), []
    states = encode_source(model, row)
    head = {"compute_logits": any_text_reason(model.config) is None}
    for end, piece in zip(accumulate(sizes), ids.split(list(sizes), dim=1), strict=False):
        if row.target is None:
            found.append(model(piece, cache=cache, **head, **empty_prefix(model, 1)))
        else:
            found.append(model(None, decoder_input_ids=piece, cache=cache, **states, **head))
        assert cache.length == end
    names = [name for name in ("last_hidden_state", "logits") if isinstance(value := getattr(found[0], name), Tensor)
             and value.dim() == 3]
    return RowOutput({name: torch.cat([getattr(one, name)[0] for one in found], dim=0) for name in names}, {})


def encode_source(model: Transformer, row: TextRow) -> dict[str, Any]:
    """Return what the encoder gives for a row's source, as the decoder takes it; nothing for a model of one stack."""
    if row.target is None:
        return {}
    batch = {name: value for name, value in make_batch(model, [row]).items() if name not in MASKS}
    output = model(**batch)
    return {"encoder_output": output.encoder_last_hidden_state, "encoder_states": output.encoder_states}


def left_cache_gap(model: Transformer, rows: Sequence[TextRow]) -> float:
    """Left-padded rows that are decoded together, token by token, are what they are alone."""
    batch = make_batch(model, rows, "left")
    ids, mask, places = batch["input_ids"], batch["attention_mask"], batch["places"]
    cache, found, prompt = model.new_cache(*ids.shape), [], min(len(row.ids) for row in rows)
    sizes = [ids.shape[1] - prompt + 1, *[1] * (prompt - 1)]
    for end, piece in zip(accumulate(sizes), ids.split(sizes, dim=1), strict=True):
        found.append(model(piece, mask[:, :end], places=places[:, end - piece.shape[1]:end], cache=cache,
                           **empty_prefix(model, len(rows))).last_hidden_state)
    whole = torch.cat(found, dim=1)
    return max(relative_difference(whole[number, -prompt:], run_alone(model, row).places["last_hidden_state"][-prompt:])
               for number, row in enumerate(rows))


def packed_gap(model: Transformer, rows: Sequence[TextRow]) -> float:
    """Several texts in one row, numbered, are what they are alone."""
    sources = [row.ids for row in rows]
    batch = {"input_ids": join_rows(model, sources), "documents": number_texts(model, sources),
             "places": count_positions(model, sources)}
    if needs_global_mask(model.config):
        batch["global_attention_mask"] = (batch["places"] == 0).long()
    if rows[0].target is not None:
        targets = [row.written for row in rows]
        batch |= {"decoder_input_ids": join_rows(model, targets), "decoder_documents": number_texts(model, targets),
                  "decoder_position_ids": count_positions(model, targets) + model.config.output_embed.first_position}
    output = model(**batch, compute_logits=False, **empty_prefix(model, 1))
    ends = [0, *accumulate(len(row.written) for row in rows)]
    return max(relative_difference(output.last_hidden_state[0, start:end],
                                   run_alone(model, row).places["last_hidden_state"])
               for (start, end), row in zip(pairwise(ends), rows, strict=True))


def join_rows(model: Transformer, texts: Sequence[Sequence[int]]) -> Tensor:
    """Join texts to one row. Shapes: -> [1, L]."""
    return torch.tensor([[number for text in texts for number in text]], device=model.device)


def number_texts(model: Transformer, texts: Sequence[Sequence[int]]) -> Tensor:
    """Number the text of each token. Shapes: -> [1, L]."""
    return join_rows(model, [[number] * len(text) for number, text in enumerate(texts)])


def count_positions(model: Transformer, texts: Sequence[Sequence[int]]) -> Tensor:
    """Count places from the beginning of each text. Shapes: -> [1, L]."""
    return join_rows(model, [range(len(text)) for text in texts])


def memory_gap(model: Transformer, rows: Sequence[TextRow]) -> float:
    """A text in segments with a memory is what it is in one pass."""
    room = min((stack.memory.length for stack in model.config.stacks if stack.memory and stack.memory.length),
               default=None)
    return max(relative_difference(read_in_segments(model, row.ids[:room], 3),
                                   run_alone(model, row.cut(room or len(row.ids))).places["last_hidden_state"])
               for row in rows)


def read_in_segments(model: Transformer, text: Sequence[int], size: int) -> Tensor:
    """Read a text a few tokens at a time. Shapes: -> [L, D]."""
    found, mems = [], None
    for piece in join_rows(model, [text]).split(size, dim=1):
        output = model(piece, mems=mems, use_mems=True)
        found.append(output.last_hidden_state[0])
        mems = output.mems
    return torch.cat(found)


def worst_difference(found: Sequence[RowOutput], expected: Sequence[RowOutput], *, text: bool = True) -> float:
    """Return the largest difference of all rows."""
    return max(output_difference(*pair, text=text) for pair in zip(found, expected, strict=True))


LAWS = (
    Law("a batch is its rows", batch_reason, batched_gap),
    Law("right padding changes nothing", right_reason, padded_gap("right"), right_text_reason),
    Law("left padding changes nothing", left_reason, padded_gap("left"), left_text_reason),
    Law("what stands in the padding does not matter", padding_reason, padding_ids_gap,
        content_text_reason, exact=True),
    Law("no place sees what comes after it", future_reason, future_gap),
    Law("one token at a time beside a cache", cache_reason, cache_gap(lambda length: [1] * length)),
    Law("in pieces beside a cache", cache_reason, cache_gap(split_in_pieces)),
    Law("left-padded beside a cache", left_cache_reason, left_cache_gap),
    Law("packed in one row", packing_reason, packed_gap),
    Law("in segments beside a memory", memory_reason, memory_gap))
