"""A model of torch that writes by the native kernels: its decoder lowered to a plan, what its encoder gives, and the
feed that reads through the plan (`plan_feed.py`).

Letters: B prompts, L length, D dim, V vocab, T real tokens.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saucier.errors import InputError
from saucier.generation.decoding import Native
from saucier.generation.native_encoder import find_embedding, find_stack
from saucier.generation.native_model import (
    Converted,
    PartTables,
    as_array,
    check_lowered,
    convert_weights,
    kernel_threads,
)
from saucier.generation.packed_weights import inference_view, use_packed_weights
from saucier.generation.plan_feed import Candidates, PlanFeed, Sources, check_prompt
from saucier.generation.rules import Prompt
from saucier.generation.vocabulary_map import load_vocabulary_map
from saucier.model import PassOptions, StackResult, Transformer
from saucier.native.decoders import lower
from saucier.native.plan import Plan
from saucier.native.session import Session
from saucier.parts.embedding import Embedding
from saucier.parts.inputs import Inputs, Side, build_first_side
from saucier.parts.masks import find_ragged, is_worth_packing


def lower_model(model: Transformer, engine: Native, places: int) -> Plan:
    """Return a model's plan for rows of up to `places` tokens; its weights are converted once for each format.

    Raises `InputError` for a model that the kernels do not run: elsewhere than on a CPU, or with parts they lack.
    """
    check_lowered(model)
    return lower(model.config, convert_weights(model, engine).weights, PartTables(), places)


def make_native_feed(model: Transformer, prompt: Prompt, engine: Native, *, copies: int, capacity: int) -> PlanFeed:
    """Return a feed of `copies` rows for each prompt, of up to `capacity` tokens.

    Raises `InputError` for what cannot be lowered.
    """
    check_lowered(model)
    made = convert_weights(model, engine)
    plan = lower(model.config, made.weights, PartTables(), capacity)
    check_prompt(model.config, prompt)
    candidates = None if engine.vocabulary_map is None else Candidates.of_prompt(
        load_vocabulary_map(engine.vocabulary_map), prompt, model.config)
    return PlanFeed(plan, prompt, copies=copies, threads=kernel_threads(),
                    candidates=candidates,
                    encode=None if prompt.source is None else partial(encode_sources, model, prompt, made))


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
                      threads=kernel_threads())
    check_prompt(model.config, Prompt(ids, mask))
    rows = np.repeat(np.arange(len(ids), dtype=np.int32), lengths)
    places = np.concatenate([np.arange(length, dtype=np.int32) for length in lengths])
    tokens = ids[real].numpy().astype(np.int32)
    found = session.read(tokens, rows, places, np.arange(len(tokens), dtype=np.int32))
    scores = torch.zeros(*ids.shape, found.shape[1])
    scores[real] = torch.from_numpy(found)
    return scores


def encode_sources(model: Transformer, prompt: Prompt, made: Converted) -> Sources:
    """Return what the encoder gives for the real tokens of each text's sources, and how many there are: [T, D], [B].

    The kernels read them. An encoder, or a batch, that they do not take is read by the model's own parts.
    """
    ids, mask = prompt.source, prompt.source_mask
    if mask is None and model.tables.read.padding is not None and ids is not None:
        mask = ids != model.tables.read.padding
    inputs: Inputs = {} if prompt.source_global is None else {"global_attention_mask": prompt.source_global}
    side = build_first_side(ids, mask, inputs, model.embed.first_position)
    assert side is not None and model.encoder is not None, "asked of encoder-decoders with a source alone"
    packs = model.packs and model.encoder.packs and side.mask is not None
    try:
        stack, embed = find_stack(model, made), find_embedding(model, made)
        found = run_encoder(inference_view(model), embed, stack, side, packed=packs)
    except InputError:
        reader = inference_view(use_packed_weights(model))
        packs = packs and side.mask is not None and is_worth_packing(side.mask)
        found = run_encoder(reader, reader.embed, reader.encoder, side, packed=packs)
    real = torch.ones_like(side.ids, dtype=torch.bool) if side.mask is None else side.mask
    hidden = as_array(found.hidden.float())
    lengths = real.sum(1).view(-1, prompt.sources).sum(1)  # those of one text are next to each other already
    return hidden[as_array(real)] if found.layout is None else hidden[0], lengths.numpy().astype(np.int32)


def run_encoder(reader: Transformer, embed: Embedding, stack: Any, side: Side, *, packed: bool) -> StackResult:
    """Embed sources and send them through a stack, without their padding where they are `packed` and it is behind them.
    """
    side.layout = find_ragged(side.mask) if packed and side.mask is not None else None
    return reader.run(stack, embed, reader.fed(side), PassOptions())
