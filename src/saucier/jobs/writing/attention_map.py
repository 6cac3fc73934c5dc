"""The attention map of a sentence pair: where a model looks in the source while it writes each token of the target.

Letters: H heads, S source length, T target length.
"""

from __future__ import annotations

import torch
from torch import Tensor

from saucier.errors import InputError
from saucier.jobs.run.language_pairs import Direction
from saucier.jobs.writing.writer import Writer
from saucier.lens.heat_map import HeatMap, clean_labels
from saucier.opened import OpenModel

BEAMS, LONGEST_TARGET = 4, 128
"""How a target is written where none is given."""


def attention_map(opened: OpenModel, source: str, target: str | None = None, *, layer: int = -1,
                  head: int | None = None, way: Direction | None = None) -> HeatMap:
    """Return what an encoder-decoder looks at while it writes a target; without one, while it writes its own.

    `layer` counts the attentions to the encoder, from 0 or, if negative, from the end; `head` None: their mean. The row
    of a token is the step that predicts it. Source: Bahdanau et al. 2015, §5.2.1 and figure 3, arXiv:1409.0473.
    Raises `InputError` for a model without attention to an encoder, and for a layer or head that it has not.
    """
    longest = opened.trained_length(LONGEST_TARGET)
    writer = Writer(opened, longest, way)
    if not opened.is_encoder_decoder:
        raise InputError("a map of a pair shows a decoder that looks at an encoder", where=str(opened.path),
                         remedy="give an encoder-decoder")
    source_ids = writer.start(source)[:longest]
    text = writer.translate([source], {"num_beams": BEAMS})[0] if target is None else target
    written = opened.tokenizer.target.encode(text) if way is None else way.written(text, opened.tokenizer)
    target_ids = written[:longest]
    weights = select_attention_head(cross_attention_weights(writer, source_ids, target_ids), str(opened.path),
                                    layer=layer, head=head)
    pieces = [clean_labels([tokenizer.id_to_token(one) or str(one) for one in ids])
              for tokenizer, ids in ((opened.tokenizer.target, target_ids), (opened.tokenizer, source_ids))]
    return HeatMap(pieces[0], pieces[1], tuple(tuple(row) for row in weights.tolist()),
                   title="" if target is not None else text)


def cross_attention_weights(writer: Writer, source: list[int], target: list[int]) -> tuple[Tensor, ...]:
    """Return the weights of every attention to the encoder. Shapes: -> [H, T, S] each."""
    read = [(writer.special_tokens | writer.target_start)["decoder_start_token_id"], *target[:-1]]
    with torch.inference_mode():
        ids, written = (torch.tensor([one], device=writer.opened.device) for one in (source, read))
        output = writer.opened.model.eval()(ids, decoder_input_ids=written, output_attentions=True)
    return tuple(weights[0].float().cpu() for weights in output.cross_attentions or ())


def select_attention_head(weights: tuple[Tensor, ...], where: str, *, layer: int, head: int | None) -> Tensor:
    """Return one attention's weights, of a head or their mean. Shapes: [H, T, S] each -> [T, S]."""
    if not weights:
        raise InputError("this decoder has no attention to its encoder", where=where,
                         remedy="give a model with attention; a thought vector cannot be drawn")
    if not -len(weights) <= layer < len(weights):
        raise InputError(f"there is no attention {layer} to the encoder", where="--layer",
                         remedy=f"use 0 to {len(weights) - 1}")
    found = weights[layer]
    if head is not None and not 0 <= head < len(found):
        raise InputError(f"there is no head {head}", where="--head", remedy=f"use 0 to {len(found) - 1}")
    return found.mean(0) if head is None else found[head]
