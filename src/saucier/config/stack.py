"""A stack of blocks as data: layout, residual streams, bottlenecks, memory of earlier segments, second stream.

Also which activations of a pass are kept for the backward pass.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.config.blocks import Block, Cycle, Funnel, Repeat, Share
from saucier.config.layers import Activation, SelfAttention, Sublayer
from saucier.config.norms import LayerNorm, Norm, Probability
from saucier.config.positions import Learned


class Streams(Config):
    """What the sublayers add to.

    - one: every sublayer reads and changes the one residual stream. Source: He et al. 2016, arXiv:1512.03385;
    - reversible: two streams that begin alike; each sublayer reads one and changes the other, in turn. What stood
      before a block follows from what stands behind it, so that nothing need be kept for learning; the streams side by
      side are the stack's output. Source: Gomez et al. 2017, arXiv:1707.04585; Kitaev et al. 2020, §3,
      arXiv:2001.04451 (S eq 103–105).
    """

    kind: Literal["one", "reversible"]


class Activations(Config):
    """What of a pass is kept for the backward pass.

    - keep: everything that it reads: the quickest. Reversible stacks keep none of it all the same;
    - recompute: only what each block reads; the rest is computed once more: a third more work, the same gradients.
      Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174.
    """

    kind: Literal["keep", "recompute"]


class MemoryStart(Config):
    """What the first segment of a text reads as its memory.

    - nothing: it has none. Source: Yang et al. 2019, code release;
    - zeros: a whole memory of zeros. Source: Dai et al. 2019, code release.
    """

    kind: Literal["nothing", "zeros"]


class SegmentMemory(Config):
    """The hidden vectors that every block read before, seen by its attention as further keys, without a gradient.

    A pass gives the memory for the next segment as `mems`; a pass that gets `mems` reads it.
    Source: Dai et al. 2019 (Transformer-XL), §3.2, arXiv:1901.02860.
    """

    length: int | None = Field(default=None, gt=0)
    """The most positions that are kept; None: all."""
    start: MemoryStart = MemoryStart(kind="nothing")
    """What the first segment reads."""
    reuse: int | None = Field(default=None, gt=0)
    """Only so many first positions of a segment are kept; None: all. Source: Yang et al. 2019, code release."""
    evaluation: bool = True
    """Whether a pass in evaluation gives a memory where the caller does not say (`use_mems`)."""
    training: bool = True
    """Likewise in training."""


class QueryVector(Config):
    """A second stream: rows that ask about the places in `target_mapping`, and begin as one trained vector.

    They read the first stream's keys and values, and nobody reads theirs.
    Source: Yang et al. 2019 (XLNet), §2.3 and §2.4, arXiv:1906.08237.
    """

    dropout: Probability = 0.0
    """Dropout on the vector."""


class Convolution(Config):
    """A convolution of a stack's input, beside its first block: `norm(block(x) + activation(dropout(conv(x))))`.

    Source: He et al. 2021, DeBERTa-v2's code release ("nGiE", n-gram induced input encoding).
    """

    size: int = Field(default=3, gt=0)
    """How many neighbouring tokens a value is made of; odd, the token itself in the middle."""
    groups: int = Field(default=1, gt=0)
    """Into how many parts the width is cut; each part is made of itself alone."""
    activation: Activation = "tanh"
    """What follows the convolution."""
    norm: Norm = LayerNorm()
    """The norm of the sum."""
    dropout: Probability = 0.0
    """Dropout on the convolution's values."""


Layers = Annotated[Repeat | Cycle | Share | Funnel, Field(discriminator="kind")]


class Stack(Config):
    """The blocks of an encoder or of a decoder, and the norm after the last one."""

    layers: Layers
    """How the blocks are laid out."""
    residual: Streams = Streams(kind="one")
    """What the sublayers add to."""
    layer_positions: Learned | None = None
    """Tables of positions, one for each block, added to what the block reads.

    Source: Al-Rfou et al. 2019, §3.4, arXiv:1808.04444."""
    convolution: Convolution | None = None
    """What stands beside the first block (DeBERTa-v2)."""
    final_norm: Norm | None = None
    """The norm after the last block (pre-norm stacks need one)."""
    narrow: int | None = Field(default=None, gt=0)
    """Width that a last map without bias takes the output to; None: there is no such map (OPT-350M has one)."""
    dropout: Probability = 0.0
    """Dropout on the stack's output (T5)."""
    memory: SegmentMemory | None = None
    """What is kept from one segment of a text to the next (Transformer-XL)."""
    queries: QueryVector | None = None
    """The second stream (XLNet)."""
    tied: bool = False
    """Use the encoder's maps and norms, not its tables of positions (the decoder only). Source: Raffel 2020, §3.2.2."""
    layer_drop: Probability | None = None
    """Each block is left out of a pass in training with this probability, and never in evaluation, so that layers can
    be taken out afterwards; None: none is. Source: Fan et al. 2020 (LayerDrop), §3.2, arXiv:1909.11556."""
    zero_padding: bool = False
    """Whether the vectors of padding are zero before the first block and after every one (XLM)."""

    def stream_width(self, dim: int) -> int:
        """Return the width of the vectors behind the last block."""
        return 2 * dim if self.residual.kind == "reversible" else dim

    def width(self, dim: int) -> int:
        """Return the width of the vectors that the stack gives."""
        return self.narrow or self.stream_width(dim)

    def blocks(self) -> list[Block]:
        """Return the blocks in the order they are applied, shared ones repeated."""
        return self.layers.applied()

    def sublayers(self) -> list[Sublayer]:
        """Return the sublayers in the order they are applied, without what is around them."""
        return [residual.inner for block in self.blocks() for residual in block.sublayers]

    def attentions(self) -> list[SelfAttention]:
        """Return the self-attentions in the order they are applied."""
        return [inner for block in self.blocks() for residual in block.sublayers
                if isinstance(inner := residual.inner, SelfAttention)]
