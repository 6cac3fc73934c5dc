"""Models whose text is read by the native kernels in one go: encoders, and decoders that classify or score a text.

`use_native` gives a view of a model that is called as the model is; only its stack is another one. Its embedding and
the maps of its pooler and head are the kernels' too, in the numbers that they are stored in: torch's threads wait
busily after each large operation, beside those of the kernels. All else stays the model's own, so that every task and
every head works.
Letters: B batch, L length, D dim, T real tokens, R rows, P places, I inputs, O outputs.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from saucier import config as c
from saucier.config.questions import reads_padding
from saucier.errors import InputError
from saucier.generation.decoding import Native
from saucier.generation.native_model import (
    Converted,
    PartTables,
    as_array,
    check_lowered,
    convert_weights,
    kernel_threads,
)
from saucier.generation.packed_weights import MadeFromWeights, copy_modules
from saucier.model import Transformer
from saucier.native.encoding import embed_rows, encode, lower_stack, lower_tokens
from saucier.native.lowering import first_row, refuse
from saucier.native.matrices import Matrix, Panels, Weights, multiply_vectors
from saucier.native.plan import ACTIVATIONS as KERNEL_ACTIVATIONS
from saucier.native.plan import Plan, Step
from saucier.parts.context import Context
from saucier.parts.embedding import Embedding, default_segments, first_segments
from saucier.parts.heads import EmbeddingHead, Transform
from saucier.parts.inputs import Side
from saucier.parts.linear import ACTIVATIONS, Linear, identity
from saucier.parts.masks import refuse_split_documents
from saucier.parts.pooling import Pooler, Reading, pool_vectors

VIEWS: MadeFromWeights[Transformer] = MadeFromWeights()
"""Model -> its views, one for each number format."""
BEHIND = ("pooler.", "head.")
"""What is behind the stack."""
SMALL = 2**18
"""Numbers of a matrix outside the stack that is widened for good where it is in few bits: decoding it for every pass
takes longer than its product."""
FEWEST_PLACES, MOST_WAVES = 128, 2**15
"""Tables of positions are made for a power of two of places, from here on; of sines up to there."""


def use_native(model: Transformer, engine: Native) -> Transformer:
    """Return a view of a model in evaluation mode whose encoder runs by the native kernels, in the engine's format.

    Of a model without an encoder it is the decoder, which then reads whole texts without a cache (`generate` has its
    own way: `engine=`). The view is called as the model is and gives the same outputs, except that the vectors of
    padding are zeros; hidden states of single layers, attention weights and gradients it does not give. It shares all
    weights but the matrices of the stack, and of the maps behind it, which are copied once for each format, and made
    again when they change.

    Raises `InputError` for a model that the kernels do not run, naming the part that they lack.
    """
    check_lowered(model)
    if reads_padding(model.config):
        refuse("head that reads the vectors of padding")
    stack = getattr(model, name_side(model))

    def make() -> Transformer:
        made = convert_weights(model, engine)
        names = {id(module): name for name, module in model.named_modules()}
        taken = {id(stack): find_stack(model, made), id(model.embed): find_embedding(model, made),
                 id(model.embed.tokens): None}
        return copy_modules(model, lambda module: (
            taken[id(module)] if id(module) in taken else replace_map(module, names.get(id(module), ""), made.weights)))

    return VIEWS.get(model, engine.format, make)


def find_stack(model: Transformer, made: Converted) -> NativeStack:
    """Return the stack that reads whole rows, lowered once. Raises `InputError` for parts that the kernels lack."""
    if model.mix is not None:
        refuse("mixture of the vectors of all layers")
    if made.stack is None:
        made.stack = NativeStack(getattr(model, name_side(model)), model.config, made.weights)
    found: NativeStack = made.stack
    return found


def find_embedding(model: Transformer, made: Converted) -> Embedding:
    """Return the embedding that the kernels read, lowered once; the model's own where they lack a part of it."""
    if made.embedding is None:
        try:
            made.embedding = NativeEmbedding(copy_modules(model.embed), model.config, made.weights)
        except InputError:
            made.embedding = copy_modules(model.embed)
    found: Embedding = made.embedding
    return found


def list_look_ups(model: Transformer, made: Converted) -> tuple[Step, ...]:
    """Return the steps that give tokens the vectors that the stack reads; none where the model's own embedding does."""
    embedding = find_embedding(model, made)
    return embedding.find_plan(1).steps if isinstance(embedding, NativeEmbedding) else ()


def replace_map(module: nn.Module, name: str, weights: Weights) -> nn.Module | None:
    """Return what stands in the place of a map behind the stack, with its activation, or in few bits; None for others.
    """

    def lay_out(own: Linear, name: str, activation: str = "identity") -> NativeLinear:
        panels = weights.panels(name, own.in_features, weights.stored_format(name))
        return NativeLinear(own, panels, KERNEL_ACTIVATIONS[activation])

    if isinstance(module, EmbeddingHead):
        head = copy.copy(module)
        head.pool = pool_alone
        return head
    if not f"{name}.".startswith(BEHIND):
        return widen_small(module)
    if type(module) is Linear:
        return lay_out(module, name)
    if isinstance(module, Pooler | Transform) and type(module.dense) is Linear:
        known = [one for one in KERNEL_ACTIVATIONS if ACTIVATIONS.get(cast(Any, one)) is module.activation]
        twin = copy.copy(module)
        if known:
            twin.activation = identity
            twin._modules = twin._modules | {"dense": lay_out(module.dense, f"{name}.dense", known[0])}
        return twin
    return widen_small(module)


def pool_alone(pooling: c.Pooling, reading: Reading) -> Tensor:
    """Return one vector a text, as `pool_vectors` does; means by the thread that asks. Shapes: -> [B, D]."""
    hidden, mask = reading.hidden, reading.mask
    if pooling.kind != "mean" or hidden.dtype != torch.float32:
        return pool_vectors(pooling, reading)
    texts = as_array(hidden)
    real = np.ones(texts.shape[:2], bool) if mask is None else as_array(mask.bool())
    sums = np.stack([text[kept].sum(0) for text, kept in zip(texts, real, strict=True)])
    return torch.from_numpy(sums / real.sum(1, keepdims=True, dtype=np.float32).clip(1))


def widen_small(module: nn.Module) -> nn.Module | None:
    """Return an ordinary module in place of a small map or table in few bits; None for all others."""
    held = cast(Any, module)
    if getattr(held, "part", "output") == "output" or getattr(held, "activations", None) is not None:
        return None
    return held.as_ordinary() if math.prod(held.shape) <= SMALL else None


def name_side(model: Transformer) -> str:
    """Return which stack of a model is read by the kernels."""
    return "encoder" if model.encoder is not None else "decoder"


class NativeLinear(Linear):
    """A map in C and what follows it, with the matrix as it is stored, called in the place of `Linear`."""

    def __init__(self, own: Linear, panels: Panels, activation: int) -> None:
        """Share all weights with the map, whose matrix is also in panels."""
        nn.Module.__init__(self)
        self.__dict__.update(vars(own))
        self.panels, self.activation = panels, activation
        self.wide_bias = None if own.bias is None else as_array(own.bias.float())

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # the name in nn.Linear
        """Shapes: [..., I] -> [..., O]."""
        vectors = as_array(input.reshape(-1, self.panels.inputs).float())
        found = multiply_vectors(self.panels, vectors, self.wide_bias, activation=self.activation,
                                 threads=kernel_threads())
        return torch.from_numpy(found).view(*input.shape[:-1], -1).to(input.dtype)


class NativeEmbedding(Embedding):
    """Tokens to vectors in C, called in the place of `Embedding`, whose way is taken where a batch gives other things
    than ids, positions and segments.
    """

    def __init__(self, own: Embedding, config: c.Transformer, weights: Weights) -> None:
        """Share all parts with the embedding, and lower it. Raises `InputError` for parts that the kernels lack."""
        nn.Module.__init__(self)
        self.__dict__.update(vars(own))
        if config.embed.projection is not None:  # its map keeps its numbers
            weights = Weights(weights.arrays, weights.stored_format("embed.project"))
        self.lower = partial(lower_tokens, config, weights, PartTables())
        self.plans: dict[int, Plan] = {}
        self.find_plan(1)

    def find_plan(self, rows: int) -> Plan:
        """Return the plan whose table of positions, where it is computed, has so many rows, or more."""
        size, waves = 1, self.config.positions
        if isinstance(waves, c.Sinusoidal):  # the plan adds the rows before the first place to it
            size = min(count_places(rows), (waves.length or MOST_WAVES) - first_row(waves.places)[0])
        if size not in self.plans:
            self.plans[size] = self.lower(size)
        return self.plans[size]

    def forward(self, side: Side) -> Tensor:
        """Embed one side of the model, packed where its rows are. Shapes: -> [B, L, D], or [1, T, D] when packed."""
        ids, segments, inputs = side.packed(side.ids), side.segments, side.inputs
        if side.vectors is not None or inputs.get("characters") is not None or inputs.get("langs") is not None or (
                segments is not None and self.segments is None):
            return super().forward(side)
        positions, kind = self.config.positions, self.config.segments
        numbers = {"embed": ids}
        if not isinstance(positions, c.NoPositions):
            numbers["places"] = side.packed(side.rows(positions.places))
        if isinstance(kind, c.FirstSegment):
            numbers["segments"] = first_segments(side)
        elif isinstance(kind, c.SegmentTable):
            numbers["segments"] = default_segments(kind.otherwise, side) if segments is None else side.packed(segments)
        rows = {name: as_array(one.expand(ids.shape)).ravel() for name, one in numbers.items()}
        plan = self.find_plan(int(rows.get("places", rows["embed"][:0]).max(initial=0)) + 1)
        if not all(is_inside(rows[step.kind], step.matrix) for step in plan.steps if step.kind in rows):
            return super().forward(side)  # it says what is wrong
        found = embed_rows(plan, {name: one.astype(np.int32) for name, one in rows.items()}, threads=kernel_threads())
        return torch.from_numpy(found).view(*ids.shape, -1).to(self.like.dtype)


def is_inside(rows: NDArray[Any], table: Matrix | Panels | None) -> bool:
    """Say whether a table has all of these rows."""
    return table is not None and bool(rows.min(initial=0) >= 0) and int(rows.max(initial=0)) < table.rows


def count_places(longest: int) -> int:
    """Return for how many places a table is made that so many are read of."""
    return max(FEWEST_PLACES, 1 << (longest - 1).bit_length())


@dataclass(frozen=True)
class RaggedRows:
    """Where the real tokens of a batch are, and which of them may see each other."""

    index: NDArray[np.intp] | None
    """[T], the place of each in the flattened batch; None: they are all, in order."""
    starts: NDArray[np.int32]
    """[R + 1], the first token of each row, or of each document of a row."""
    positions: NDArray[np.int32]
    """[T]."""


class NativeStack(nn.Module):
    """A stack of blocks in C, called in the place of `Stack`."""

    def __init__(self, stack: nn.Module, config: c.Transformer, weights: Weights) -> None:
        """Lower it. Raises `InputError` for parts that the kernels do not have."""
        super().__init__()
        self.config, self.segmented, self.packs = stack.config, stack.segmented, stack.packs
        self.lower = partial(lower_stack, config, weights, PartTables())
        self.pads_right = config.encoder is not None and (config.decoder is None or config.pooler is not None)
        """Whether pooler or head may read the first place, so that padding may not be there."""
        self.plans: dict[int, Plan] = {}
        """Places -> the plan for rows of up to as many tokens."""
        self.find_plan(1)

    def find_plan(self, places: int) -> Plan:
        """Return the plan for rows of so many places, or more."""
        size = count_places(places)
        if size not in self.plans:
            self.plans[size] = self.lower(size)
        return self.plans[size]

    def forward(self, x: Tensor, context: Context, record: list[Tensor] | None = None) -> Tensor:
        """Return the last hidden vectors, zeros at padding. Shapes: x [B, L, D], or [1, T, D] when packed -> the same.

        Raises `InputError` for what is asked of single layers, for a cache, and for padding before or between tokens.
        """
        for found, what in ((record is not None, "hidden states of single layers"),
                            (context.want_weights, "attention weights"), (context.cache is not None, "cache here"),
                            (context.span.visible is not None, "keys that the batch hides")):
            if found:
                refuse(what)
        rows = find_rows(context, x, pads_right=self.pads_right)
        flat = as_array(x.flatten(0, 1).float())
        vectors = flat if rows.index is None else flat[rows.index]
        longest = max(np.diff(rows.starts).max(initial=0), rows.positions.max(initial=0) + 1)
        hidden = encode(self.find_plan(int(longest)), vectors, rows.starts, rows.positions, threads=kernel_threads())
        if rows.index is not None:
            real, hidden = hidden, np.zeros((len(flat), hidden.shape[1]), np.float32)
            hidden[rows.index] = real
        return torch.from_numpy(hidden).to(x.dtype).view(*x.shape[:2], -1)


def find_rows(context: Context, x: Tensor, *, pads_right: bool) -> RaggedRows:
    """Return where the real tokens of a pass are. Raises `InputError` for padding where the kernels do not take it."""
    layout, real, documents = context.layout, context.span.padding, context.span.query_documents
    if layout is not None:
        starts = np.cumsum([0, *layout.lengths], dtype=np.int32)
        return RaggedRows(None, starts, as_array(context.positions[0].int()))
    rows, length = x.shape[:2]
    positions = as_array(context.positions.expand(rows, length)).ravel()
    seen = None if real is None else as_array(real)
    if seen is not None and pads_right and not seen[:, 0].all():
        refuse("way to leave out padding before the tokens of a row")
    whole = seen is None or bool(seen.all())
    if whole and documents is None:
        return RaggedRows(None, np.arange(rows + 1, dtype=np.int32) * length, positions.astype(np.int32))
    kept = np.arange(rows * length) if seen is None or whole else np.flatnonzero(seen)
    numbers = [kept // length]
    if documents is not None:
        refuse_split_documents(documents)
        numbers.append(as_array(documents).ravel()[kept])
    same = np.logical_and.reduce([one[1:] == one[:-1] for one in numbers])
    if (same & (np.diff(kept) != 1)).any():
        refuse("way to leave out padding between the tokens of a row")
    starts = np.concatenate([[0], np.flatnonzero(~same) + 1, [len(kept)]]).astype(np.int32)
    return RaggedRows(None if whole else kept, starts, positions[kept].astype(np.int32))
