"""A model of torch for the native kernels: lowered to a plan, its positions as tables, what its encoder gives; and the
feed that reads through the plan (`plan_feed.py`).

Letters: B prompts, L length, D dim, V vocab, P places, H heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saucier import config as c
from saucier.errors import InputError
from saucier.generation.decoding import Native
from saucier.generation.packed_weights import MadeFromWeights, inference_view, use_packed_weights
from saucier.generation.plan_feed import Candidates, PlanFeed, Sources, check_prompt
from saucier.generation.rules import Prompt
from saucier.generation.vocabulary_map import load_vocabulary_map
from saucier.model import PassOptions, Transformer
from saucier.native.decoders import lower
from saucier.native.library import count_threads
from saucier.native.matrices import Weights
from saucier.native.plan import Plan
from saucier.native.session import Session
from saucier.parts.inputs import Inputs, build_first_side
from saucier.parts.masks import Span, find_ragged, is_worth_packing
from saucier.parts.positions import (
    SinusoidalPositions,
    compute_frequencies,
    find_t5_bucket,
    kept_slopes,
)
from saucier.parts.visibility import allowed_pairs

MADE: MadeFromWeights[Weights] = MadeFromWeights()
"""Model -> its weights in the formats that were asked for."""


class PartTables:
    """Positions as tables, computed by the parts of the model."""

    def turns(self, positions: c.Rotary, places: int, head: int) -> NDArray[Any]:
        """Return cosines, then sines. Shapes: -> [P, W]."""
        numbers = torch.arange(places)[None]
        frequencies, sharpness = compute_frequencies(positions, numbers, head)
        angles = numbers[0, :, None].float() * frequencies
        return as_array(torch.cat([angles.cos(), angles.sin()], dim=-1) * sharpness)

    def biases(self, positions: c.Alibi | c.T5Bias, heads: int, places: int,
               table: NDArray[Any] | None) -> NDArray[Any]:
        """Return what is added to a score, by the distance to the key. Shapes: -> [H, P]."""
        distances = torch.arange(places)
        if isinstance(positions, c.Alibi):
            return as_array(-torch.tensor(kept_slopes(positions, heads))[:, None] * distances)
        assert table is not None, "a stack with T5's positions has their table"
        found = torch.from_numpy(table)[find_t5_bucket(positions, -distances)].T
        kept = found if positions.kept is None else found[list(positions.kept.numbers)]
        return as_array(kept)

    def biases_of_both_sides(self, positions: c.Alibi | c.T5Bias, heads: int, places: int,
                             table: NDArray[Any] | None) -> NDArray[Any]:
        """Return the same by the place of the key less that of the query. Shapes: -> [H, 2P - 1]."""
        distances = torch.arange(1 - places, places)
        if isinstance(positions, c.Alibi):
            return as_array(-torch.tensor(kept_slopes(positions, heads))[:, None] * distances.abs())
        assert table is not None, "a stack with T5's positions has their table"
        found = torch.from_numpy(table)[find_t5_bucket(positions, distances)].T
        return as_array(found if positions.kept is None else found[list(positions.kept.numbers)])

    def waves(self, positions: c.Sinusoidal, places: int, dim: int) -> NDArray[Any]:
        """Return what is added to the token vectors. Shapes: -> [P, D]."""
        return as_array(SinusoidalPositions(positions, dim)(torch.arange(places)[None])[0])

    def visible(self, visibility: c.Visibility, places: int) -> NDArray[Any]:
        """Return which keys each place sees. Shapes: -> [P, P]."""
        numbers = torch.arange(places)
        found = allowed_pairs(visibility, numbers[:, None], numbers[None], Span(places, places, 0, numbers.device))
        return as_array(found.expand(1, 1, places, places)[0, 0].to(torch.uint8))


def as_array(tensor: Tensor) -> NDArray[Any]:
    """Return a weight's memory as numpy sees it; bfloat16 as its bits."""
    tensor = tensor.detach().contiguous()
    array: NDArray[Any] = (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array


def lower_model(model: Transformer, engine: Native, places: int) -> Plan:
    """Return a model's plan for rows of up to `places` tokens; its weights are converted once for each format.

    Raises `InputError` for a model that the kernels do not run: elsewhere than on a CPU, or with parts they lack.
    """
    check_lowered(model)
    return lower(model.config, convert_weights(model, engine), PartTables(), places)


def convert_weights(model: Transformer, engine: Native, kept: Mapping[str, Any] = MappingProxyType({})) -> Weights:
    """Return a model's weights in a format, converted once; `kept`: what is converted already."""
    return MADE.get(model, ("native", engine.format), lambda: Weights(
        {name: as_array(one) for name, one in model.state_dict().items()}, engine.format, dict(kept)))


def check_lowered(model: Transformer) -> None:
    """Refuse a model elsewhere than on a CPU, in other numbers, or with a prefix. Raises `InputError`."""
    weights = list(model.parameters())
    if model.device.type != "cpu" or any(one.dtype not in (torch.float32, torch.bfloat16) for one in weights):
        raise InputError(f"the model is in {model.dtype} on {model.device.type}", where="engine",
                         remedy="load it in float32 or bfloat16 on the CPU; or use engine=None")
    if model.front is not None:
        raise InputError("the native kernels have no prefix or prompt before the text", where="engine",
                         remedy="use engine=None")


def make_native_feed(model: Transformer, prompt: Prompt, engine: Native, *, copies: int, capacity: int) -> PlanFeed:
    """Return a feed of `copies` rows for each prompt, of up to `capacity` tokens.

    Raises `InputError` for what cannot be lowered.
    """
    plan = lower_model(model, engine, capacity)
    check_prompt(model.config, prompt)
    candidates = None if engine.vocabulary_map is None else Candidates.of_prompt(
        load_vocabulary_map(engine.vocabulary_map), prompt, model.config)
    return PlanFeed(plan, prompt, copies=copies, threads=min(torch.get_num_threads(), count_threads()),
                    candidates=candidates,
                    encode=None if prompt.source is None else partial(encode_sources, model, prompt))


def find_engine(model: Transformer) -> Native | None:
    """Return the engine of a model that was loaded in a format."""
    return None if model.format is None else Native.model_validate({"format": model.format})


def score_texts(model: Transformer, engine: Native, ids: Tensor, mask: Tensor) -> Tensor:
    """Return a decoder's scores after every token of some texts, as its plan gives them; zeros at padding.

    Shapes: ids, mask [B, L] -> [B, L, V], float32.
    """
    real = mask.bool()
    lengths = real.sum(1).numpy()
    session = Session(lower_model(model, engine, ids.shape[1]), len(ids),
                      threads=min(torch.get_num_threads(), count_threads()))
    check_prompt(model.config, Prompt(ids, mask))
    rows = np.repeat(np.arange(len(ids), dtype=np.int32), lengths)
    places = np.concatenate([np.arange(length, dtype=np.int32) for length in lengths])
    tokens = ids[real].numpy().astype(np.int32)
    found = session.read(tokens, rows, places, np.arange(len(tokens), dtype=np.int32))
    scores = torch.zeros(*ids.shape, found.shape[1])
    scores[real] = torch.from_numpy(found)
    return scores


def encode_sources(model: Transformer, prompt: Prompt) -> Sources:
    """Return what the encoder gives for the real tokens of each text's sources, and how many there are: [T, D], [B].
    """
    reader, ids, mask = inference_view(use_packed_weights(model)), prompt.source, prompt.source_mask
    if mask is None and reader.tables.read.padding is not None and ids is not None:
        mask = ids != reader.tables.read.padding
    inputs: Inputs = {} if prompt.source_global is None else {"global_attention_mask": prompt.source_global}
    side = build_first_side(ids, mask, inputs, reader.embed.first_position)
    assert side is not None and reader.encoder is not None, "asked of encoder-decoders with a source alone"
    if side.mask is not None and reader.packs and reader.encoder.packs and is_worth_packing(side.mask):
        side.layout = find_ragged(side.mask)
    hidden = reader.run(reader.encoder, reader.embed, reader.fed(side), PassOptions()).unpacked()
    real = torch.ones_like(side.ids, dtype=torch.bool) if side.mask is None else side.mask
    lengths = real.sum(1).view(-1, prompt.sources).sum(1)  # those of one text are next to each other already
    return as_array(hidden[real].float()), lengths.numpy().astype(np.int32)


