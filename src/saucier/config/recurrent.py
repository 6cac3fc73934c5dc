"""Recurrent layers as data: cell, direction, initial state, and attention to an encoder between the steps.

The memory that a stack keeps between segments of a text is in `stack` (`SegmentMemory`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.config.counting import Node, group_nodes, linear
from saucier.config.norms import Probability


class InnerProduct(Config):
    """The inner product of the decoder's and the encoder's vector. Source: Luong et al. 2015, §3.1, eq 8.

    - dot: as they are;
    - general: with a matrix between.
    """

    kind: Literal["dot", "general"]


class ConcatScore(Config):
    """A vector times the tanh of a map of both. Source: Luong et al. 2015, §3.1, eq 8; Bahdanau et al. 2015, A.1.2."""

    kind: Literal["concat"] = "concat"
    width: int | None = Field(default=None, gt=0)
    """Width behind the map; None: as wide as the model."""


Score = Annotated[InnerProduct | ConcatScore, Field(discriminator="kind")]
"""How well a place of the source suits the decoder."""


class GlobalReach(Config):
    """All words of the source. Source: Luong et al. 2015, §3.1."""

    kind: Literal["global"] = "global"


class LocalMonotonic(Config):
    """Words around the place in the source that the target word has in the target (local-m).

    Source: Luong et al. 2015, §3.2.
    """

    kind: Literal["local_monotonic"] = "local_monotonic"
    reach: int = Field(default=10, gt=0)
    """Words on either side, D in the paper."""


class LocalPredictive(Config):
    """Words around a place that the decoder predicts, weighted by a Gaussian of deviation `reach / 2` (local-p).

    Source: Luong et al. 2015, §3.2, eq 9–10.
    """

    kind: Literal["local_predictive"] = "local_predictive"
    reach: int = Field(default=10, gt=0)
    """Words on either side, D in the paper."""
    width: int | None = Field(default=None, gt=0)
    """Width of the layer that predicts the place; None: as wide as the model."""


Reach = Annotated[GlobalReach | LocalMonotonic | LocalPredictive, Field(discriminator="kind")]
"""Which words of the source take part."""


class Readout(Config):
    """What a layer with attention gives.

    - state: the cell's output as it is;
    - deep: a maxout, over pairs, of maps of its output, its input and the context. Source: Bahdanau et al. 2015,
      A.2.2, arXiv:1409.0473; with the state s_i as in its §3.1, where A.2.2 writes s_{i-1}.
    """

    kind: Literal["state", "deep"]


class Bahdanau(Config):
    """Attention by the state before the step; what it finds enters the cell beside the word (additive attention).

    Source: Bahdanau et al. 2015, §3.1 and A.1.2, arXiv:1409.0473.
    """

    kind: Literal["bahdanau"] = "bahdanau"
    score: ConcatScore = ConcatScore()
    """The alignment model."""
    readout: Readout = Readout(kind="state")
    """What the layer gives."""


class Luong(Config):
    """Attention by the state after the step; a map of state and context is what the layer gives.

    Source: Luong et al. 2015, §3, eq 5 and 7–10, arXiv:1508.04025.
    """

    kind: Literal["luong"] = "luong"
    score: Score = InnerProduct(kind="general")
    """How places are compared."""
    reach: Reach = GlobalReach()
    """Which places are."""
    input_feeding: bool = True
    """Whether the vector that a step gives enters the cell at the next step, beside the word. Source: §3.3."""


Alignment = Annotated[Bahdanau | Luong, Field(discriminator="kind")]
"""Attention inside a recurrence."""


class PlainCell(Config):
    """A cell whose only state is its output.

    - rnn: `h = tanh(W x + U h + b)`, the plain recurrent network. Source: Elman 1990, Cognitive Science 14;
    - gru: the gated recurrent unit. Source: Cho et al. 2014, §2.3, arXiv:1406.1078. The reset gate acts behind the
      recurrent map, as in cuDNN and `torch.nn.GRU`; in the paper it acts before.
    """

    kind: Literal["rnn", "gru"]
    bias: bool = True
    """Bias on the sum, and on both maps of a GRU."""


class LSTM(Config):
    """Long short-term memory with a forget gate. Source: Hochreiter and Schmidhuber 1997; Gers et al. 2000.

    One bias for each gate, where `torch.nn.LSTM` keeps two that are added.
    """

    kind: Literal["lstm"] = "lstm"
    bias: bool = True
    """Bias on the gates."""
    forget_bias: float = 0.0
    """Where the forget gate's bias begins. Source: Jozefowicz et al. 2015, §3.1, use 1."""
    cells: int | None = Field(default=None, gt=0)
    """Memory cells, projected to the layer's width. None: as many as the layer is wide, and no projection.

    Source: Sak et al. 2014, §2, arXiv:1402.1128."""
    clip: float | None = Field(default=None, gt=0)
    """Memory cells stay within ± this, and so does the projected output; None: no limit.

    Source: Sak et al. 2014, §4.1 (cells); Peters et al. 2018 (ELMo), published options.json, which has 3 for both."""


Cell = Annotated[PlainCell | LSTM, Field(discriminator="kind")]
"""What is done at each token."""


class Direction(Config):
    """Which way a layer reads.

    - ahead: from the first token to the last;
    - back: from the last token to the first (an encoder only);
    - both: one cell each way, half of the width each; every layer reads both halves. Source: Schuster and Paliwal 1997;
    - apart: one cell each way, half of the width each, and each reads its own half alone, so that neither sees what the
      other saw. Source: Peters et al. 2018 (ELMo), §3.1, arXiv:1802.05365.
    """

    kind: Literal["ahead", "back", "both", "apart"]


class InitialState(Config):
    """How states begin.

    - zeros: at zero;
    - final: as those in which the encoder's layers ended, layer by layer, both directions side by side. Source:
      Sutskever et al. 2014, §2, arXiv:1409.3215; Luong et al. 2015, §4.1;
    - last_layer: each as tanh of a map of the output in which the encoder's last recurrent layer ended. Source: Cho et
      al. 2014, A.1.2, arXiv:1406.1078; Bahdanau et al. 2015, A.2.2, who read the backward half alone;
    - mean: each as tanh of a map of the mean of the encoder's vectors, of whatever kind its layers are. Source:
      Sennrich et al. 2017 (Nematus), §2, arXiv:1703.04357.
    """

    kind: Literal["zeros", "final", "last_layer", "mean"]


class Recurrent(Config):
    """Recurrent layers, one above the other, as wide as the stream. Each text begins anew, padding is stepped over."""

    kind: Literal["recurrent"] = "recurrent"
    cell: Cell
    """What every layer does at each token."""
    layers: int = Field(default=1, gt=0, le=1000)
    """Layers of one sublayer: what attention and input feeding act around."""
    direction: Direction = Direction(kind="ahead")
    """Which way they read."""
    dropout: Probability = 0.0
    """Dropout between the layers."""
    start: InitialState = InitialState(kind="zeros")
    """How states begin (a decoder beside an encoder)."""
    attention: Alignment | None = None
    """How the layers look at the encoder; None: only by their start."""

    @property
    def ways(self) -> tuple[Literal["ahead", "back"], ...]:
        """The directions that have a cell in each layer."""
        match self.direction.kind:
            case "ahead":
                return ("ahead",)
            case "back":
                return ("back",)
            case "both" | "apart":
                return ("ahead", "back")

    def width(self, dim: int) -> int:
        """Return what one cell gives, in a stream of `dim`."""
        return dim // len(self.ways)

    def inputs(self, dim: int) -> int:
        """Return what one cell reads of the layer below, in a stream of `dim`."""
        return self.width(dim) if self.direction.kind == "apart" else dim

    def cells(self, dim: int) -> int:
        """Return the units inside one cell."""
        own = self.cell.cells if isinstance(self.cell, LSTM) else None
        return own or self.width(dim)

    def states(self, dim: int) -> tuple[int, ...]:
        """Return the widths of what one cell keeps: its output, and an LSTM's memory."""
        return (self.width(dim), self.cells(dim)) if isinstance(self.cell, LSTM) else (self.width(dim),)

    def gates(self, dim: int) -> int:
        """Return the width of the sums of one cell, all gates together."""
        return {"rnn": 1, "lstm": 4, "gru": 3}[self.cell.kind] * self.cells(dim)

    @property
    def projected(self) -> bool:
        """Whether a cell's units are mapped to its width."""
        return isinstance(self.cell, LSTM) and self.cell.cells is not None

    @property
    def reads_encoder(self) -> bool:
        """Whether the layers look at the encoder at all."""
        return self.attention is not None or self.start.kind != "zeros"

    @property
    def fed(self) -> bool:
        """Whether a vector enters the first cell beside the token's: a context, or what the step before gave."""
        return self.attention is not None and (self.attention.kind == "bahdanau" or self.attention.input_feeding)

    @property
    def feeds_back(self) -> bool:
        """Whether what a step gives is one of the states of the next."""
        return self.fed and self.attention is not None and self.attention.kind == "luong"

    def all_states(self, dim: int) -> tuple[int, ...]:
        """Return the widths of the states of all cells, layer by layer."""
        return self.states(dim) * (len(self.ways) * self.layers)

    def kept(self, dim: int) -> tuple[int, ...]:
        """Return the widths of all that is kept from one token to the next."""
        return self.all_states(dim) + ((dim,) if self.feeds_back else ())

    def keys(self, dim: int) -> int:
        """Return the width of what attention makes of each place of the source once; 0 where it makes nothing."""
        score = None if self.attention is None else self.attention.score
        return (score.width or dim) if isinstance(score, ConcatScore) else 0

    def nodes(self, dim: int, length: int) -> list[Node]:
        """Return the parts of a recurrent sublayer of width `dim` for a source of `length` tokens."""
        first = self.cell_node(dim, fed=dim if self.fed else 0)
        found = [group_nodes("layer 1", self.direction.kind, [first], times=len(self.ways))]
        if self.layers > 1:
            rest = group_nodes("layer", self.direction.kind, [self.cell_node(dim)], times=len(self.ways))
            found.append(group_nodes("layers above", self.direction.kind, [rest], times=self.layers - 1))
        if self.start.kind in ("last_layer", "mean"):
            begin = linear("begin", dim, sum(self.all_states(dim)), bias=True)
            found.append(replace(begin, flops=0.0, detail="once a sequence"))
        return found + (alignment_nodes(self.attention, dim, length) if self.attention else [])

    def cell_node(self, dim: int, fed: int = 0) -> Node:
        """Return one cell; `fed`: width of what enters in addition to the token."""
        width, gates, bias = self.width(dim), self.gates(dim), self.cell.bias
        maps = [linear("input", self.inputs(dim), gates, bias=bias),
                linear("hidden", width, gates, bias=bias and self.cell.kind == "gru")]
        maps += [linear("feed", fed, gates, bias=False)] if fed else []
        maps += [linear("project", self.cells(dim), width, bias=False)] if self.projected else []
        return group_nodes("cell", self.cell.kind, maps, detail=f"{self.cells(dim)} units")


def alignment_nodes(attention: Bahdanau | Luong, dim: int, length: int) -> list[Node]:
    """Return the attention of a recurrent sublayer; what is made of the source is counted for each of its tokens."""
    nodes: list[Node] = []
    match attention.score:
        case ConcatScore(width=width):
            wide = width or dim
            nodes += [linear("query", dim, wide, bias=False), linear("source", dim, wide, bias=False),
                      Node("weigh", "linear", f"{length} places a token", f"{wide} → 1", wide, 2.0 * length * wide)]
        case InnerProduct(kind=kind):
            nodes += [linear("query", dim, dim, bias=False)] if kind == "general" else []
            nodes.append(Node("scores", "dot", f"{length} places a token", flops=2.0 * length * dim))
    nodes.append(Node("mix", attention.kind, f"{length} places a token", flops=2.0 * length * dim))
    match attention:
        case Bahdanau(readout=readout):
            nodes += [linear("combine", 3 * dim, 2 * dim, bias=True)] if readout.kind == "deep" else []
        case Luong(reach=reach):
            nodes.append(linear("combine", 2 * dim, dim, bias=False))
            if isinstance(reach, LocalPredictive):
                wide = reach.width or dim
                nodes += [linear("centre up", dim, wide, bias=False), linear("centre down", wide, 1, bias=False)]
    return nodes
