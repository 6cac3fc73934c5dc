"""A stack of blocks: an encoder, a decoder, or an encoder that feeds an encoder; and weights that two stacks share.

Letters: B batch, L length, D dim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.config.questions import draws_blocks, find_shared_biases, find_shared_positions, list_layerwise_kernels
from saucier.errors import InputError
from saucier.parts.block import Block, NarrowBlock
from saucier.parts.context import Context, Mixtures, RelativeBiases
from saucier.parts.embedding import Embedding
from saucier.parts.funnel import run_funnel
from saucier.parts.linear import Linear
from saucier.parts.mixing import Convolution
from saucier.parts.norms import Dropout, build_norm
from saucier.parts.positions import LearnedPositions, T5BiasTable
from saucier.parts.recomputation import is_reversible_pass, recompute_block, run_reversible, run_two_streams
from saucier.parts.relative_positions import DistanceTable
from saucier.parts.segment_memory import QueryVector
from saucier.parts.sparse.dispatch import is_worth_planning, takes_tiles


@dataclass(frozen=True, slots=True)
class LayerDraw:
    """Which blocks the passes of one update leave out: the same ones, however its rows are split."""

    rate: float | None
    seed: int


def build_shared_positions(config: c.Stack, dim: int) -> nn.Module | None:
    """Return the table that the positions of all layers share, if they have one."""
    match find_shared_positions(config):
        case c.T5Bias() as bias, heads:
            return T5BiasTable(bias, heads)
        case c.Disentangled() as disentangled, _:
            return DistanceTable(disentangled, dim)
        case _:
            return None


class Stack(nn.Module):
    """Blocks in a row, the positions they share, and the norm after the last."""

    def __init__(self, config: c.Stack, dim: int) -> None:
        """Build as many blocks as have weights of their own."""
        super().__init__()
        self.config, attentions = config, config.attentions()
        windows = [2 * reach for one in attentions if (reach := c.sliding_reach(one.visibility))]
        self.multiple = max(windows, default=1)
        """The most neighbours that a sliding window with global tokens spans; 1 without any."""
        self.segmented = config.memory is not None or config.queries is not None
        """Whether there is a memory or a second stream."""
        self.packs = (not self.segmented and not c.mixes_padding(config)
                      and not any(one.positions.reads_rows for one in attentions))
        """Whether rows may be packed without padding: nothing looks at a row's number or place in it."""
        self.shared = build_shared_positions(config, dim)
        """Positions that all layers share."""
        self.seen = frozenset((one.visibility, takes_tiles(one)) for one in attentions)
        """What the self-attentions see, and whether they can be computed by tiles."""
        layered = config.layer_positions
        self.positions = (nn.ModuleList(LearnedPositions(layered, dim) for _ in config.blocks())
                          if layered is not None else None)
        """Positions that each block adds to what it reads."""
        self.convolution = Convolution(config.convolution, dim) if config.convolution else None
        self.order = config.layers.order()
        self.blocks = nn.ModuleList((NarrowBlock if block.bottleneck else Block)(block, dim)
                                    for block in config.layers.stored())
        width = config.stream_width(dim)
        self.final_norm = build_norm(config.final_norm, width) if config.final_norm else None
        self.narrow = Linear(width, config.narrow, bias=False) if config.narrow else None
        self.dropout = Dropout(config.dropout)
        self.zero_padding = config.zero_padding
        found_biases = find_shared_biases(config)
        self.biases = None if found_biases is None else RelativeBiases(found_biases.heads, found_biases.widths(dim)[2])
        """Transformer-XL's biases, where all layers share them."""
        layerwise = list_layerwise_kernels(config)
        self.mixtures = Mixtures(layerwise[0], 1) if layerwise else None
        """The map along the text, where all layers share it."""
        self.queries = QueryVector(config.queries, dim) if config.queries else None
        """Where the second stream begins."""
        self.reversible = config.residual.kind == "reversible"
        self.repeatable = not any(isinstance(one.inner, c.Experts | c.Recurrent | c.CustomSublayer)
                                  for block in config.blocks() for one in block.sublayers)
        """Whether every sublayer gives nearly the same for nearly the same input: none sends tokens to experts, and
        none is from outside, where that is not known.

        The buckets of hashed attention jump too, and are kept. Recurrent layers hand on their states as well.
        """
        self.activations: c.Activations = c.Activations(kind="keep")
        """What is kept for the backward pass, as the training says."""
        self.layer_draw: LayerDraw | None = None
        """Which blocks are left out, as the training says; None: each pass draws, at the config's rate."""

    def forward(self, x: Tensor, context: Context, record: list[Tensor] | None = None) -> Tensor:
        """Apply all blocks; `record` receives the input, the output of each block, and the final output as its last.

        Of two streams it receives the second alone, without a final norm.

        Shapes: x [B, L, D] -> [B, L, D].
        """
        context.multiple = self.multiple
        if self.shared is not None:
            context.shared = self.shared(context)
        if isinstance(self.shared, T5BiasTable) and not all(
                tiled and context.plans and is_worth_planning(visibility, context,
                                                              self.training and draws_blocks(visibility))
                for visibility, tiled in self.seen):  # some self-attention reads all pairs
            context.bias = self.shared.of_pairs(context)
        context.biases, context.mixtures = self.biases, self.mixtures
        x = self.zeroed(x, context) if self.zero_padding else x
        if self.queries is not None and context.segment is not None and context.segment.query_count:
            x = self.queries(x, context.segment.query_count)
        x = (run_changes if self.reversible else LAYOUTS[type(self.config.layers)])(self, x, context, record)
        x = x if self.final_norm is None else self.final_norm(x)
        x = self.dropout(x if self.narrow is None else self.narrow(x))
        streams = [x] if context.segment is None else context.segment.streams(x)
        if record is not None and not self.reversible:
            record += streams
        return streams[-1]

    def apply_block(self, number: int, x: Tensor, context: Context) -> Tensor:
        """Apply a block, the first being number 0. Shapes: x [B, L, D] -> [B, L, D]."""
        again = self.activations.kind == "recompute" and torch.is_grad_enabled()
        block = self.blocks[self.order[number]]
        given: Tensor = recompute_block(block, x, context) if again else block(x, context)
        return given

    def draw_dropped(self) -> frozenset[int]:
        """Return the blocks that a pass leaves out: none outside training."""
        draw = self.layer_draw or LayerDraw(self.config.layer_drop, 0)
        if not (self.training and draw.rate):
            return frozenset()
        generator = None if self.layer_draw is None else torch.Generator().manual_seed(draw.seed)
        drawn = torch.rand(len(self.order), generator=generator)
        return frozenset(number for number, one in enumerate(drawn.tolist()) if one < draw.rate)

    def pass_over(self, number: int, context: Context) -> None:
        """Count the sublayers of a block that is left out, so that those behind it keep their places."""
        for sublayer in self.config.blocks()[number].sublayers:
            match sublayer.inner:
                case c.SelfAttention():
                    context.next_slot("self_attention")
                case c.CrossAttention():
                    context.next_slot("cross_attention")

    def zeroed(self, x: Tensor, context: Context) -> Tensor:
        """Put zeros at padding. Shapes: x [B, L, D] -> the same."""
        padding = context.span.padding
        return x if padding is None else x * padding[:, -x.shape[1]:, None]


def run_in_order(stack: Stack, x: Tensor, context: Context, record: list[Tensor] | None) -> Tensor:
    """Apply all blocks, but for those that are left out, one after the other. Shapes: x [B, L, D] -> [B, L, D]."""
    dropped = stack.draw_dropped()
    for number in range(len(stack.order)):
        if record is not None:
            record += [x] if context.segment is None else context.segment.streams(x)
        if context.segment is not None:
            context.segment.enter(number, x)
        if number in dropped:
            stack.pass_over(number, context)
            continue
        x = x if stack.positions is None else x + stack.positions[number](context.positions).to(x.dtype)
        given, x = x, stack.apply_block(number, x, context)
        if number == 0 and stack.convolution is not None:
            x = stack.convolution(given, x, context)
        x = stack.zeroed(x, context) if stack.zero_padding else x
    return x


def run_changes(stack: Stack, x: Tensor, context: Context, record: list[Tensor] | None) -> Tensor:
    """Let the sublayers change two streams in turn. Shapes: x [B, L, D] -> [B, L, 2D]."""
    blocks: list[nn.Module] = [stack.blocks[place] for place in stack.order]
    if stack.repeatable and is_reversible_pass(x, context, record):
        return run_reversible(x, blocks, context, [one for one in (stack.biases, stack.mixtures) if one is not None])
    return run_two_streams(x, blocks, context, record)


LAYOUTS: Mapping[type[c.Config], Callable[[Stack, Tensor, Context, list[Tensor] | None], Tensor]] = {
    c.Repeat: run_in_order, c.Cycle: run_in_order, c.Share: run_in_order, c.Funnel: run_funnel}
"""Layout of blocks -> what runs them; it hands `record` what every block reads."""


def choose_activations(models: Iterable[nn.Module], activations: c.Activations) -> None:
    """Say to all stacks what they keep for the backward pass."""
    for part in (part for model in models for part in model.modules()):
        if isinstance(part, Stack):
            part.activations = activations


@contextmanager
def draw_layers(models: Sequence[nn.Module], rate: float | None, seed: Sequence[int]) -> Iterator[None]:
    """Let all passes meanwhile leave out the same blocks: a function of `seed` alone.

    `rate`: of the first model, the one that learns; None: as its config says. The other models keep their own rates.
    Raises `InputError` for a model of which no block can be left out.
    """
    stacks = [(place, part) for place, model in enumerate(models) for part in model.modules()
              if isinstance(part, Stack)]
    for number, (place, stack) in enumerate(stacks):
        if rate and place == 0 and not c.drops_layers(stack.config):
            raise InputError("no layer can be left out of reversible or pooled ones", where="training.layer_drop",
                             remedy="leave it out")
        drawn = np.random.SeedSequence([*seed, number]).generate_state(1, np.uint64)[0] >> np.uint64(1)
        stack.layer_draw = LayerDraw(stack.config.layer_drop if rate is None or place else rate, int(drawn))
    try:
        yield
    finally:
        for _, stack in stacks:
            stack.layer_draw = None


OWN_POSITIONS = ".inner.positions"
"""Tables of positions stay each stack's own: they speak of what each may see."""


def tie_blocks(lender: Stack, borrower: Stack) -> None:
    """Let the sublayers of one stack use the weights of those of the same name in the other."""
    for path, module in lender.blocks.named_modules():
        if module._parameters and OWN_POSITIONS not in path:
            parent, _, name = path.rpartition(".")
            setattr(borrower.blocks.get_submodule(parent), name, module)


class SourceEncoder(nn.Module):
    """Its embedding and its stack. Source: Lewis et al. 2020, §3.4, arXiv:1910.13461."""

    def __init__(self, config: c.SourceEncoder, dim: int) -> None:
        """Build both for vectors of width `dim`."""
        super().__init__()
        self.embed, self.stack = Embedding(config.embed, dim), Stack(config.stack, dim)
