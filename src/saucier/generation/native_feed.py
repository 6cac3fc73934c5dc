"""The native kernels as a search sees them: a model lowered to a plan, and a feed that reads through it.

Prompt and new tokens go the same way, 32 at a time, so that a token's scores do not depend on who read it with it.
Letters: B prompts, R rows, L length, S sources' tokens, D dim, V vocab, P places, H heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saucier import config as c
from saucier.config.questions import fits_any_place
from saucier.errors import InputError
from saucier.generation.decoding import Native
from saucier.generation.feeds import Prompt
from saucier.generation.packed_weights import MadeFromWeights, inference_view, use_packed_weights
from saucier.generation.search import Step
from saucier.generation.vocabulary_map import VocabularyMap, load_vocabulary_map
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
    made = MADE.get(model, ("native", engine.format), lambda: Weights(
        {name: as_array(one) for name, one in model.state_dict().items()}, engine.format))
    return lower(model.config, made, PartTables(), places)


def check_lowered(model: Transformer) -> None:
    """Refuse a model elsewhere than on a CPU, in other numbers, or with a prefix. Raises `InputError`."""
    weights = list(model.parameters())
    if model.device.type != "cpu" or any(one.dtype not in (torch.float32, torch.bfloat16) for one in weights):
        raise InputError(f"the model is in {model.dtype} on {model.device.type}", where="engine",
                         remedy="load it in float32 or bfloat16 on the CPU; or use engine=None")
    if model.front is not None:
        raise InputError("the native kernels have no prefix or prompt before the text", where="engine",
                         remedy="use engine=None")


class NativeFeed:
    """Feeds a plan through its own cache, in which every row has its length; padding is not read at all."""

    def __init__(self, model: Transformer, prompt: Prompt, engine: Native, *, copies: int, capacity: int) -> None:
        """`copies` rows for each prompt, of up to `capacity` tokens. Raises `InputError` for what cannot be lowered."""
        self.prompt, self.copies, self.model = prompt, copies, model
        rows = prompt.ids.shape[0] * copies
        threads = min(torch.get_num_threads(), count_threads())
        plan = lower_model(model, engine, capacity)
        check_prompt(model.config, prompt)
        self.candidates = None if engine.vocabulary_map is None else Candidates.of_prompt(
            load_vocabulary_map(engine.vocabulary_map), prompt, model.config)
        self.session = Session(plan if self.candidates is None else plan.limit_scores(self.candidates.tokens), rows,
                               threads=threads)
        self.lengths = np.zeros(rows, np.int32)
        self.numbers = np.arange(rows, dtype=np.int32)
        self.begun = [0] * prompt.ids.shape[0]
        """How many first tokens of each prompt are in the cache already."""

    def __call__(self, step: Step | None) -> Tensor:
        """Read the prompt, or one more token a row. Shapes: -> [R, V], float32."""
        if step is None:
            return self.read_prompt()
        if step.rows is not None:
            self.follow(step.rows.numpy())
        tokens = step.tokens.numpy().astype(np.int32)
        scores = self.session.read(tokens, self.numbers, self.lengths, self.numbers)
        self.lengths = self.lengths + 1
        return self.spread(scores, self.session.sources)

    def read_ahead(self, tokens: Tensor, rows: Tensor, places: Tensor) -> Tensor:
        """Read tokens of some rows, each at its place, which is forgotten from the first of them on.

        Shapes: tokens, rows, places [T], in rising order -> scores of what follows each [T, V], float32.
        """
        read, row, place = (one.numpy().astype(np.int32) for one in (tokens, rows, places))
        return torch.from_numpy(self.session.read(read, row, place, np.arange(len(read), dtype=np.int32)))

    def read_prompt(self) -> Tensor:
        """Read every prompt into its first row, then give the other rows copies. Shapes: -> [R, V], float32."""
        ids, mask = self.prompt.ids, self.prompt.mask
        if self.prompt.source is not None:
            self.session.read_sources(*encode_sources(self.model, self.prompt), self.numbers // self.copies)
        real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
        lengths = real.sum(1).numpy().astype(np.int32)
        first = np.arange(len(ids), dtype=np.int32) * self.copies
        places = np.concatenate([np.arange(length, dtype=np.int32) for length in lengths])
        new = places >= np.repeat(self.begun, lengths)
        tokens, rows = ids[real].numpy().astype(np.int32)[new], np.repeat(first, lengths)[new]
        scores = self.session.read(tokens, rows, places[new],
                                   (lengths - np.array(self.begun)).cumsum().astype(np.int32) - 1)
        self.lengths[first] = lengths
        self.follow(np.repeat(first, self.copies))
        return self.spread(scores, np.arange(len(ids))).repeat_interleave(self.copies, 0)

    def spread(self, scores: NDArray[Any], sources: NDArray[Any]) -> Tensor:
        """Return the scores of all tokens, those of no candidate -∞. Shapes: [R, C], the source of each [R] -> [R, V].
        """
        found = torch.from_numpy(scores)
        return found if self.candidates is None else self.candidates.spread(found, torch.from_numpy(sources))

    def take_row(self, row: int, length: int) -> list[NDArray[Any]]:
        """Return copies of keys and values of a row's first `length` tokens."""
        return [view[row].copy() for view in self.session.list_blocks(length)]

    def put_row(self, row: int, kept: list[NDArray[Any]], length: int) -> None:
        """Fill the first `length` places of a row."""
        for view, one in zip(self.session.list_blocks(length), kept, strict=True):
            view[row] = one[:, :view.shape[2]]

    def follow(self, sources: NDArray[Any]) -> None:
        """Let each row continue another one. Shapes: [R]."""
        self.session.move(sources, self.lengths)
        self.lengths = self.lengths[sources]


@dataclass(frozen=True)
class Candidates:
    """The tokens that may be written for some sources. C: those of all sources together."""

    tokens: NDArray[np.int64]
    """[C], rising."""
    barred: Tensor
    """[B, C], True where a token is a candidate of other sources alone."""
    vocab: int

    @classmethod
    def of_prompt(cls, found: VocabularyMap, prompt: Prompt, config: c.Transformer) -> Candidates:
        """Look the sources of a prompt up. Raises `InputError` for a map of other vocabularies, or without sources."""
        sizes, vocab = (config.input_embed.vocab, config.output_embed.vocab), config.output_embed.vocab
        if prompt.source is None:
            raise InputError("a vocabulary map is for models that write from a source", where="engine.vocabulary_map",
                             remedy="leave it out")
        if prompt.sources > 1:
            raise InputError("a vocabulary map is for texts of one source each", where="engine.vocabulary_map",
                             remedy="leave it out, or fusion")
        if (found.source_vocab, found.target_vocab) != sizes:
            raise InputError(f"a map of {found.source_vocab} source and {found.target_vocab} target tokens, and the "
                             f"model has {sizes[0]} and {sizes[1]}", where="engine.vocabulary_map",
                             remedy="build it with the model's own tokenizer")
        real = torch.ones_like(prompt.source).bool() if prompt.source_mask is None else prompt.source_mask.bool()
        lists = [found.find_candidates(row[kept].numpy()) for row, kept in zip(prompt.source, real, strict=True)]
        tokens = np.unique(np.concatenate(lists))
        return cls(tokens, torch.from_numpy(np.stack([~np.isin(tokens, one) for one in lists])), vocab)

    def spread(self, scores: Tensor, sources: Tensor) -> Tensor:
        """Put the scores of candidates among those of all tokens. Shapes: [R, C], [R] -> [R, V]."""
        kept = scores.masked_fill_(self.barred[sources], -torch.inf)
        full = torch.full((len(scores), self.vocab), -torch.inf)
        return full.index_copy_(1, torch.from_numpy(self.tokens), kept)


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


def encode_sources(model: Transformer, prompt: Prompt) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
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


def check_prompt(config: c.Transformer, prompt: Prompt) -> None:
    """Raise `InputError` for prompts that these parts of a model read otherwise in one piece than token by token."""
    assert config.decoder is not None, "lower() refuses others"
    full = [one.capacity for one in config.decoder.sublayers() if isinstance(one, c.Experts) and one.capacity]
    length, positions = prompt.ids.shape[1], config.output_embed.positions
    padded = prompt.mask is not None and not all(fits_any_place(one.visibility) for one in config.decoder.attentions())
    skipped = length > 1 and isinstance(positions, c.Learned | c.Sinusoidal) and isinstance(
        positions.places, c.SkipPadding) and bool(((prompt.ids == positions.places.padding) & (
            prompt.ids >= 0 if prompt.mask is None else prompt.mask.bool())).any())
    for found, what in ((full and length > min(full), f"experts that take {min(full, default=0)} of {length} tokens"),
                        (padded, "patterns of visibility that count padding"),
                        (skipped, "padding among real tokens")):
        if found:
            raise InputError(f"the native kernels have no {what}", where="engine", remedy="use engine=None")
