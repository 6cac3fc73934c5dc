"""The laws themselves: each runs a model in two ways that must give the same numbers, and returns the difference.

Letters: B rows, L places, S source places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from saucier import config as c
from saucier.inspection.doctor_rows import (
    MASKS,
    Given,
    Row,
    alone,
    apart,
    batch_of,
    difference,
    given,
    no_prefix,
    table,
)
from saucier.inspection.doctor_scope import (
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
    packing_reason,
    padding_reason,
    right_reason,
    right_text_reason,
    wants_global,
)
from saucier.model import Output, Transformer

PIECES = (5, 3)
"""Sizes of the first pieces of a text that is decoded in pieces; the rest is one more."""


@dataclass(frozen=True, slots=True)
class Law:
    """One thing that must hold, of which models, and how far a model is from it."""

    name: str
    reason: Callable[[c.Transformer], Reason]
    gap: Callable[[Transformer, Sequence[Row]], float]
    """The largest difference on some rows."""
    text: Callable[[c.Transformer], Reason] = any_text_reason
    """Why the head's answer for a whole text is left out; None where it is compared too."""
    exact: bool = False
    """Whether the same bits are wanted."""


def in_batch(model: Transformer, rows: Sequence[Row]) -> float:
    """Rows of one length together are what they are alone."""
    shortest = min(min(len(row.ids), len(row.written)) for row in rows)
    cut = [row.cut(shortest) for row in rows]
    return worst(given(model, cut, batch_of(model, cut)), [alone(model, row) for row in cut])


def padded(side: str) -> Callable[[Transformer, Sequence[Row]], float]:
    """Rows of several lengths in one batch, padded on a side, are what they are alone."""
    def gap(model: Transformer, rows: Sequence[Row]) -> float:
        text = (left_text_reason if side == "left" else right_text_reason)(model.config) is None
        expected = [alone(model, row) for row in rows]
        few = [row.cut(len(rows[0].ids) - number) for number, row in enumerate([rows[0]] * 3)]
        lone = [alone(model, row) for row in few]  # so little padding is masked, not left out of the work
        return max(worst(given(model, group, batch_of(model, group, side), side), wanted, text=text)
                   for group, wanted in ((rows, expected), (few, lone)))

    return gap


def under_padding(model: Transformer, rows: Sequence[Row]) -> float:
    """Other ids under the padding move nothing."""
    other = min(model.config.input_embed.vocab, model.config.output_embed.vocab) - 1
    first, second = (given(model, rows, batch_of(model, rows, filler=filler)) for filler in (None, other))
    return worst(first, second, text=content_text_reason(model.config) is None)


def unseen_future(model: Transformer, rows: Sequence[Row]) -> float:
    """Another last token moves no earlier place."""
    found = []
    for row in rows:
        other = (*row.written[:-1], (row.written[-1] + 1) % model.config.output_embed.vocab)
        changed = replace(row, ids=other) if row.target is None else replace(row, target=other)
        found += [difference(value[:-1], alone(model, changed).places[name][:-1])
                  for name, value in alone(model, row).places.items()]
    return max(found)


def cached(sizes: Callable[[int], list[int]]) -> Callable[[Transformer, Sequence[Row]], float]:
    """A text that is read piece by piece beside a cache is what it is in one pass."""
    return lambda model, rows: max(apart(from_cache(model, row, sizes(len(row.written))), alone(model, row), text=False)
                                   for row in rows)


def one_by_one(length: int) -> list[int]:
    """Every token by itself."""
    return [1] * length


def in_pieces(length: int) -> list[int]:
    """A prompt, and larger pieces."""
    return [size for size in (*PIECES, length - sum(PIECES)) if size > 0] if length > sum(PIECES) else [length]


def from_cache(model: Transformer, row: Row, sizes: Sequence[int]) -> Given:
    """Read a row piece by piece."""
    ids, _ = table([row.written], "right", 0, model.embed.tokens.weight.device)
    cache, found = model.new_cache(1, len(row.written)), []
    states = encoded(model, row)
    head = {"compute_logits": any_text_reason(model.config) is None}
    with torch.no_grad():
        for end, piece in zip(accumulate(sizes), ids.split(list(sizes), dim=1), strict=False):
            if row.target is None:
                found.append(model(piece, cache=cache, **head, **no_prefix(model, 1)))
            else:
                found.append(model(None, decoder_input_ids=piece, cache=cache, **states, **head))
            assert cache.length == end
    return joined(found)


def encoded(model: Transformer, row: Row) -> dict[str, Any]:
    """Return what the encoder gives for a row's source, as the decoder takes it; nothing for a model of one stack."""
    if row.target is None:
        return {}
    batch = {name: value for name, value in batch_of(model, [row]).items() if name not in MASKS}
    with torch.no_grad():
        output = model(**batch)
    return {"encoder_output": output.encoder_last_hidden_state, "encoder_states": output.encoder_states}


def joined(outputs: Sequence[Output]) -> Given:
    """Put the places of pieces behind each other."""
    names = [name for name in ("last_hidden_state", "logits") if getattr(outputs[0], name) is not None
             and getattr(outputs[0], name).dim() == 3]
    return Given({name: torch.cat([getattr(one, name)[0] for one in outputs]) for name in names}, {})


def left_cached(model: Transformer, rows: Sequence[Row]) -> float:
    """Left-padded rows that are decoded together, token by token, are what they are alone."""
    batch = batch_of(model, rows, "left")
    ids, mask, places = batch["input_ids"], batch["attention_mask"], batch["places"]
    cache, found, prompt = model.new_cache(*ids.shape), [], min(len(row.ids) for row in rows)
    sizes = [ids.shape[1] - prompt + 1, *[1] * (prompt - 1)]
    with torch.no_grad():
        for end, piece in zip(accumulate(sizes), ids.split(sizes, dim=1), strict=True):
            found.append(model(piece, mask[:, :end], places=places[:, end - piece.shape[1]:end], cache=cache,
                               **no_prefix(model, len(rows))).last_hidden_state)
    whole = torch.cat(found, dim=1)
    return max(difference(whole[number, -prompt:], alone(model, row).places["last_hidden_state"][-prompt:])
               for number, row in enumerate(rows))


def packed(model: Transformer, rows: Sequence[Row]) -> float:
    """Texts behind each other in one row, told apart by numbers, are what they are alone."""
    sources = [row.ids for row in rows]
    batch = {"input_ids": side_by_side(model, sources), "documents": numbered(model, sources),
             "places": counted(model, sources)}
    if wants_global(model.config):
        batch["global_attention_mask"] = (batch["places"] == 0).long()
    if rows[0].target is not None:
        targets = [row.written for row in rows]
        batch |= {"decoder_input_ids": side_by_side(model, targets), "decoder_documents": numbered(model, targets),
                  "decoder_position_ids": counted(model, targets) + model.config.output_embed.first_position}
    with torch.no_grad():
        output = model(**batch, compute_logits=False, **no_prefix(model, 1))
    ends = [0, *accumulate(len(row.written) for row in rows)]
    return max(difference(output.last_hidden_state[0, start:end], alone(model, row).places["last_hidden_state"])
               for (start, end), row in zip(pairwise(ends), rows, strict=True))


def side_by_side(model: Transformer, texts: Sequence[Sequence[int]]) -> Tensor:
    """Put texts behind each other. Shapes: -> [1, L]."""
    return torch.tensor([[number for text in texts for number in text]], device=model.embed.tokens.weight.device)


def numbered(model: Transformer, texts: Sequence[Sequence[int]]) -> Tensor:
    """Number the text of each token. Shapes: -> [1, L]."""
    return side_by_side(model, [[number] * len(text) for number, text in enumerate(texts)])


def counted(model: Transformer, texts: Sequence[Sequence[int]]) -> Tensor:
    """Count places from the beginning of each text. Shapes: -> [1, L]."""
    return side_by_side(model, [range(len(text)) for text in texts])


def remembered(model: Transformer, rows: Sequence[Row]) -> float:
    """A text in segments beside a memory is what it is in one pass."""
    room = min((stack.memory.length for stack in (model.config.encoder, model.config.decoder)
                if stack is not None and stack.memory is not None and stack.memory.length), default=None)
    return max(difference(in_segments(model, row.ids[:room], 3),
                          alone(model, row.cut(room or len(row.ids))).places["last_hidden_state"]) for row in rows)


def in_segments(model: Transformer, text: Sequence[int], size: int) -> Tensor:
    """Read a text a few tokens at a time. Shapes: -> [L, D]."""
    found, mems = [], None
    with torch.no_grad():
        for piece in side_by_side(model, [text]).split(size, dim=1):
            output = model(piece, mems=mems, use_mems=True)
            found.append(output.last_hidden_state[0])
            mems = output.mems
    return torch.cat(found)


def worst(found: Sequence[Given], expected: Sequence[Given], *, text: bool = True) -> float:
    """Return the largest difference of all rows."""
    return max(apart(*pair, text=text) for pair in zip(found, expected, strict=True))


LAWS = (
    Law("a batch is its rows", batch_reason, in_batch),
    Law("right padding changes nothing", right_reason, padded("right"), right_text_reason),
    Law("left padding changes nothing", left_reason, padded("left"), left_text_reason),
    Law("what stands in the padding does not matter", padding_reason, under_padding,
        content_text_reason, exact=True),
    Law("no place sees what comes after it", future_reason, unseen_future),
    Law("one token at a time beside a cache", cache_reason, cached(one_by_one)),
    Law("in pieces beside a cache", cache_reason, cached(in_pieces)),
    Law("left-padded beside a cache", left_cache_reason, left_cached),
    Law("packed in one row", packing_reason, packed),
    Law("in segments beside a memory", memory_reason, remembered))
