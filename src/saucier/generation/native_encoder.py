"""Models whose text is read by the native kernels in one go: encoders, and decoders that classify or score a text.

`use_native` gives a view of a model that is called as the model is; only its stack is another one. Embedding, pooler
and head stay the model's own, so that every task and every head works.
Letters: B batch, L length, D dim, T real tokens, R rows, P places.
"""

from __future__ import annotations

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
from saucier.generation.decoding import Native
from saucier.generation.native_model import Converted, PartTables, as_array, check_lowered, convert_weights
from saucier.generation.packed_weights import MadeFromWeights, copy_modules
from saucier.model import Transformer
from saucier.native.encoding import encode, lower_stack
from saucier.native.library import count_threads
from saucier.native.lowering import refuse
from saucier.native.matrices import Weights
from saucier.native.plan import Plan
from saucier.parts.context import Context
from saucier.parts.masks import refuse_split_documents

VIEWS: MadeFromWeights[Transformer] = MadeFromWeights()
"""Model -> its views, one for each number format."""
SMALL = 2**18
"""Numbers of a matrix outside the stack that is widened for good where it is in few bits: decoding it for every pass
takes longer than its product."""
FEWEST_PLACES = 128
"""Tables of positions are made for a power of two of places, from here on."""


def use_native(model: Transformer, engine: Native) -> Transformer:
    """Return a view of a model in evaluation mode whose encoder runs by the native kernels, in the engine's format.

    Of a model without an encoder it is the decoder, which then reads whole texts without a cache (`generate` has its
    own way: `engine=`). The view is called as the model is and gives the same outputs, except that the vectors of
    padding are zeros; hidden states of single layers, attention weights and gradients it does not give. It shares all
    weights but the matrices of the stack, which are copied once for each format, and made again when they change.

    Raises `InputError` for a model that the kernels do not run, naming the part that they lack.
    """
    check_lowered(model)
    if reads_padding(model.config):
        refuse("head that reads the vectors of padding")
    stack = getattr(model, name_side(model))

    def make() -> Transformer:
        native = find_stack(model, convert_weights(model, engine))
        return copy_modules(model, lambda module: (
            native if module is stack else None if module is model.embed.tokens else widen_small(module)))

    return VIEWS.get(model, engine.format, make)


def find_stack(model: Transformer, made: Converted) -> NativeStack:
    """Return the stack that reads whole rows, lowered once. Raises `InputError` for parts that the kernels lack."""
    if model.mix is not None:
        refuse("mixture of the vectors of all layers")
    if made.stack is None:
        made.stack = NativeStack(getattr(model, name_side(model)), model.config, made.weights)
    found: NativeStack = made.stack
    return found


def widen_small(module: nn.Module) -> nn.Module | None:
    """Return an ordinary module in place of a small map or table in few bits; None for all others."""
    held = cast(Any, module)
    if getattr(held, "part", "output") == "output" or getattr(held, "activations", None) is not None:
        return None
    return held.as_ordinary() if math.prod(held.shape) <= SMALL else None


def name_side(model: Transformer) -> str:
    """Return which stack of a model is read by the kernels."""
    return "encoder" if model.encoder is not None else "decoder"


@dataclass(frozen=True)
class RaggedRows:
    """Where the real tokens of a batch are, and which of them may see each other."""

    index: Tensor | None
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
        size = max(FEWEST_PLACES, 1 << (places - 1).bit_length())
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
        flat = x.detach().flatten(0, 1)
        vectors = (flat if rows.index is None else flat.index_select(0, rows.index)).float().contiguous()
        longest = max(np.diff(rows.starts).max(initial=0), rows.positions.max(initial=0) + 1)
        plan = self.find_plan(int(longest))
        threads = min(torch.get_num_threads(), count_threads())
        hidden = torch.from_numpy(encode(plan, vectors.numpy(), rows.starts, rows.positions, threads=threads))
        hidden = hidden.to(x.dtype)
        if rows.index is not None:
            hidden = hidden.new_zeros(len(flat), hidden.shape[1]).index_copy_(0, rows.index, hidden)
        return hidden.view(*x.shape[:2], -1)


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
    return RaggedRows(None if whole else torch.from_numpy(kept), starts, positions[kept].astype(np.int32))
