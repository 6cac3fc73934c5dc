"""Recurrent layers as data: the cell, the direction, how the state begins, and attention inside the recurrence.

What a stack keeps between segments of a text is elsewhere (`recurrence`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.alignment import Alignment, ConcatScore
from saucier.config.base import Config
from saucier.config.norms import Probability


class Elman(Config):
    """`h = tanh(W x + U h + b)`, the plain recurrent network. Source: Elman 1990, Cognitive Science 14."""

    kind: Literal["rnn"] = "rnn"
    bias: bool = True
    """Bias on the sum."""


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


class GRU(Config):
    """Gated recurrent unit. Source: Cho et al. 2014, §2.3, arXiv:1406.1078.

    The reset gate acts behind the recurrent map, as in cuDNN and `torch.nn.GRU`; in the paper it acts before.
    """

    kind: Literal["gru"] = "gru"
    bias: bool = True
    """Bias on both maps."""


Cell = Annotated[Elman | LSTM | GRU, Field(discriminator="kind")]
"""What is done at each token."""


class Ahead(Config):
    """From the first token to the last."""

    kind: Literal["ahead"] = "ahead"


class Back(Config):
    """From the last token to the first (an encoder only)."""

    kind: Literal["back"] = "back"


class BothWays(Config):
    """One cell each way, half of the width each; every layer reads both halves. Source: Schuster and Paliwal 1997."""

    kind: Literal["both"] = "both"


class Apart(Config):
    """One cell each way, half of the width each, and each reads its own half alone, so that neither sees what the other
    saw. Source: Peters et al. 2018 (ELMo), §3.1, arXiv:1802.05365.
    """

    kind: Literal["apart"] = "apart"


Direction = Annotated[Ahead | Back | BothWays | Apart, Field(discriminator="kind")]
"""Which way a layer reads."""


class FromZero(Config):
    """States begin at zero."""

    kind: Literal["zeros"] = "zeros"


class FromFinalStates(Config):
    """States begin as those in which the encoder's layers ended, layer by layer, both directions side by side.

    Source: Sutskever et al. 2014, §2, arXiv:1409.3215; Luong et al. 2015, §4.1.
    """

    kind: Literal["final"] = "final"


class FromLastLayer(Config):
    """Each state begins as tanh of a map of the output in which the encoder's last recurrent layer ended.

    Source: Cho et al. 2014, A.1.2, arXiv:1406.1078; Bahdanau et al. 2015, A.2.2, who read the backward half alone.
    """

    kind: Literal["last_layer"] = "last_layer"


class FromMean(Config):
    """Each state begins as tanh of a map of the mean of the encoder's vectors, of whatever kind its layers are.

    Source: Sennrich et al. 2017 (Nematus), §2, arXiv:1703.04357.
    """

    kind: Literal["mean"] = "mean"


Start = Annotated[FromZero | FromFinalStates | FromLastLayer | FromMean, Field(discriminator="kind")]
"""How states begin."""


class Recurrent(Config):
    """Recurrent layers, one above the other, as wide as the stream. Each text begins anew, padding is stepped over."""

    kind: Literal["recurrent"] = "recurrent"
    cell: Cell
    """What every layer does at each token."""
    layers: int = Field(default=1, gt=0, le=1000)
    """Layers of one sublayer: what attention and input feeding act around."""
    direction: Direction = Ahead()
    """Which way they read."""
    dropout: Probability = 0.0
    """Dropout between the layers."""
    start: Start = FromZero()
    """How states begin (a decoder beside an encoder)."""
    attention: Alignment | None = None
    """How the layers look at the encoder; None: only by their start."""

    @property
    def ways(self) -> tuple[Literal["ahead", "back"], ...]:
        """The directions that have a cell in each layer."""
        match self.direction:
            case Ahead():
                return ("ahead",)
            case Back():
                return ("back",)
            case BothWays() | Apart():
                return ("ahead", "back")

    def width(self, dim: int) -> int:
        """Return what one cell gives, in a stream of `dim`."""
        return dim // len(self.ways)

    def inputs(self, dim: int) -> int:
        """Return what one cell reads of the layer below, in a stream of `dim`."""
        return self.width(dim) if isinstance(self.direction, Apart) else dim

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
        return self.attention is not None or not isinstance(self.start, FromZero)

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
