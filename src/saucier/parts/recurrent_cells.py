"""What recurrent layers are made of: cells, layers of cells, and attention scores over a source.

Plain steps instead of torch's kernels: a state must rest at padding and start again with each text of a row, and an
attention may look between two steps.

Letters: B batch, L length, S source length, Q queries, I inputs, W width of a cell's output, N its units, G gates,
D dim, A width of the alignment.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier import config as c
from saucier.parts.kernels import masked_softmax
from saucier.parts.linear import Linear
from saucier.parts.masks import document_starts
from saucier.parts.norms import Dropout

State = tuple[Tensor, ...]
"""What a cell keeps: its output [B, W], and an LSTM's memory [B, N] after it."""


class Cell(nn.Module):
    """One cell: maps from its input and from its own output to the sums of its gates."""

    def __init__(self, config: c.Recurrent, dim: int, *, inputs: int, fed: int = 0) -> None:
        """`inputs`: width of what it reads; `fed`: that of the vector next to it, 0 where there is none."""
        super().__init__()
        self.config, self.widths = config.cell, config.states(dim)
        gates = config.gates(dim)
        self.input = Linear(inputs, gates, bias=config.cell.bias)
        self.hidden = Linear(config.width(dim), gates, bias=config.cell.bias and config.cell.kind == "gru")
        self.feed = Linear(fed, gates, bias=False) if fed else None
        self.project = Linear(config.cells(dim), config.width(dim), bias=False) if config.projected else None

    def begin(self) -> None:
        """Set the starting value that the config names for the forget gate."""
        if isinstance(self.config, c.LSTM) and self.input.bias is not None:
            units = self.widths[1]
            self.input.bias[units:2 * units] = self.config.forget_bias

    def step(self, sums: Tensor, state: State) -> State:
        """Take one token in. Shapes: sums [B, G], what the input gives -> the next state."""
        own = self.hidden(state[0])
        match self.config.kind:
            case "rnn":
                return (torch.tanh(sums + own),)
            case "lstm":
                return self.step_lstm(sums + own, state[1])
            case "gru":
                return (step_gru(sums, own, state[0]),)

    def step_lstm(self, sums: Tensor, memory: Tensor) -> State:
        """An LSTM's step. Source: Gers et al. 2000, Neural Computation 12. Gates: input, forget, candidate, output."""
        enter, keep, candidate, leave = sums.chunk(4, dim=-1)
        memory = torch.sigmoid(keep) * memory + torch.sigmoid(enter) * torch.tanh(candidate)
        memory = self.clipped(memory)
        output = torch.sigmoid(leave) * torch.tanh(memory)
        return (output if self.project is None else self.clipped(self.project(output))), memory

    def clipped(self, values: Tensor) -> Tensor:
        """Keep values within the config's limit; beyond it nothing is learned. Shapes: any -> the same."""
        limit = self.config.clip if isinstance(self.config, c.LSTM) else None
        return values if limit is None else values.clamp(-limit, limit)


def step_gru(sums: Tensor, own: Tensor, output: Tensor) -> Tensor:
    """A GRU's step. Gates: reset, update, candidate. Source: Cho et al. 2014, §2.3, eq 5–8, arXiv:1406.1078."""
    (reset, update, candidate), (own_reset, own_update, own_candidate) = sums.chunk(3, dim=-1), own.chunk(3, dim=-1)
    update = torch.sigmoid(update + own_update)
    candidate = torch.tanh(candidate + torch.sigmoid(reset + own_reset) * own_candidate)
    return update * output + (1 - update) * candidate


@dataclass(slots=True)
class Steps:
    """Where in each row a state rests, and where it begins again."""

    real: Tensor | None = None
    """[B, L], True where a token is real; None: everywhere."""
    begins: Tensor | None = None
    """[B, L], True at the first token of each text but a row's first; None: one text a row."""
    ends: Tensor | None = None
    """[B, L], True at the last token of each text, likewise."""

    def before(self, place: int, state: State, *, back: bool = False) -> State:
        """Return the state that a step begins from."""
        restarts = self.ends if back else self.begins
        if restarts is None:
            return state
        keep = ~restarts[:, place, None]
        return tuple(part * keep for part in state)

    def after(self, place: int, old: State, new: State) -> State:
        """Return the state after a step: the old one at padding."""
        if self.real is None:
            return new
        real = self.real[:, place, None]
        return tuple(torch.where(real, after, before) for after, before in zip(new, old, strict=True))


def find_steps(real: Tensor | None, documents: Tensor | None) -> Steps:
    """Return the steps of a batch. Shapes: real [B, L], documents [B, L]."""
    if documents is None:
        return Steps(real)
    change = document_starts(documents)[:, 1:]
    return Steps(real, F.pad(change, (1, 0)), F.pad(change, (0, 1)))


def run_cell(cell: Cell, x: Tensor, state: State, steps: Steps, *, back: bool = False) -> tuple[Tensor, State]:
    """Let a cell read a text. Shapes: x [B, L, I] -> outputs [B, L, W], and the last state."""
    sums = cell.input(x.transpose(0, 1)).unbind(0)  # time first, so that each step reads one piece of memory
    outputs: list[Tensor] = []
    for place in (range(len(sums) - 1, -1, -1) if back else range(len(sums))):
        old = steps.before(place, state, back=back)
        state = steps.after(place, old, cell.step(sums[place], old))
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if back else outputs, dim=1), state


class Layer(nn.Module):
    """The cells of one layer: one way or both."""

    def __init__(self, config: c.Recurrent, dim: int, *, fed: int = 0) -> None:
        """`fed`: width of what enters in addition to the token."""
        super().__init__()
        self.separate = config.direction.kind == "apart"
        cells = {way: Cell(config, dim, inputs=config.inputs(dim), fed=fed) for way in config.ways}
        self.ahead, self.back = cells.get("ahead"), cells.get("back")
        self.states = len(config.states(dim)) * len(cells)
        """How many tensors the layer keeps."""

    def forward(self, x: Tensor, states: State, steps: Steps) -> tuple[Tensor, State]:
        """Read a text. Shapes: x [B, L, D] -> the same, and the last states."""
        cells = [(cell, back) for cell, back in ((self.ahead, False), (self.back, True)) if cell is not None]
        parts = x.chunk(2, dim=-1) if self.separate else [x] * len(cells)
        each, outputs = self.states // len(cells), []
        ended: State = ()
        for number, (cell, back) in enumerate(cells):
            begin = states[number * each:(number + 1) * each]
            output, last = run_cell(cell, parts[number], begin, steps, back=back)
            outputs.append(output)
            ended = (*ended, *last)
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1), ended


class Layers(nn.Module):
    """Layers one above the other. States stand in one flat tuple, the first layer's first."""

    def __init__(self, config: c.Recurrent, dim: int) -> None:
        """Build them; the first one takes what is fed in addition to the token."""
        super().__init__()
        self.stack = nn.ModuleList(Layer(config, dim, fed=dim if config.fed and not number else 0)
                                   for number in range(config.layers))
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, states: State, steps: Steps) -> tuple[Tensor, State]:
        """Read a text layer by layer. Shapes: x [B, L, D] -> the same, and the last states."""
        ended: State = ()
        for number, layer in enumerate(self.stack):
            begin = states[len(ended):len(ended) + layer.states]  # type: ignore[operator]  # an int of Layer
            x, last = layer(self.dropout(x) if number else x, begin, steps)
            ended = (*ended, *last)
        return x, ended

    def sums(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return what the first layer makes of the tokens, for each step. Shapes: x [B, L, D] -> L of [B, G]."""
        return self.cell(0).input(x.transpose(0, 1)).unbind(0)  # type: ignore[no-any-return]

    def cell(self, number: int) -> Cell:
        """Return the cell of a layer that reads ahead."""
        return self.stack[number].ahead  # type: ignore[return-value]  # only layers that read ahead take single steps

    def step(self, sums: Tensor, fed: Tensor, states: State) -> tuple[Tensor, State]:
        """Take one step of every layer. Shapes: sums [B, G], fed [B, D] -> the last output [B, D], and the states."""
        new: State = ()
        for number in range(len(self.stack)):
            cell = self.cell(number)
            each = len(cell.widths)
            sums = sums if number == 0 else cell.input(self.dropout(new[-each]))
            sums = sums if cell.feed is None else sums + cell.feed(fed)
            new = (*new, *cell.step(sums, states[len(new):len(new) + each]))
        return new[-each], new


@dataclass(slots=True)
class AlignedSource:
    """What a decoder looks at, and which of it each of its tokens may see."""

    vectors: Tensor
    """[B, S, D], the encoder's output."""
    keys: Tensor
    """[B, S, A], what the score makes of it once; the vectors themselves where it makes nothing."""
    visible: Tensor | None = None
    """[B, 1 or Q, S], True where a place may be seen; None: all of them."""

    def at(self, place: int) -> AlignedSource:
        """Return it as one token of the target sees it."""
        if self.visible is None or self.visible.shape[1] == 1:
            return self
        return replace(self, visible=self.visible[:, place, None])

    def places(self) -> tuple[Tensor, Tensor]:
        """Number the places of each text from 0, and count them. Shapes: -> [B, 1 or Q, S], [B, 1 or Q, 1]."""
        if self.visible is None:
            length = self.vectors.shape[1]
            places = torch.arange(length, device=self.vectors.device)[None, None].float()
            return places, torch.full_like(places[..., :1], length)
        return (self.visible.cumsum(-1) - 1).float(), self.visible.sum(-1, keepdim=True).float()


class ProductScore(nn.Module):
    """Inner products, with a matrix between or without. Source: Luong et al. 2015, §3.1, eq 8, arXiv:1508.04025."""

    def __init__(self, config: c.InnerProduct, dim: int) -> None:
        """Build the matrix, which turns the query."""
        super().__init__()
        self.query = Linear(dim, dim, bias=False) if config.kind == "general" else None

    def keys(self, vectors: Tensor) -> Tensor:
        """Return what is made of the source once: nothing. Shapes: [B, S, D] -> the same."""
        return vectors

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Shapes: [B, Q, D], [B, S, D] -> [B, Q, S]."""
        return (query if self.query is None else self.query(query)) @ keys.transpose(1, 2)


class AdditiveScore(nn.Module):
    """`v tanh(W h + U s)`. Source: Bahdanau et al. 2015, A.1.2, arXiv:1409.0473; Luong's `concat` is the same map."""

    def __init__(self, config: c.ConcatScore, dim: int) -> None:
        """Build the three maps."""
        super().__init__()
        width = config.width or dim
        self.query, self.source = Linear(dim, width, bias=False), Linear(dim, width, bias=False)
        self.weigh = nn.Parameter(torch.empty(1, width))

    def keys(self, vectors: Tensor) -> Tensor:
        """Return what is made of the source once. Shapes: [B, S, D] -> [B, S, A]."""
        return self.source(vectors)  # type: ignore[no-any-return]

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Shapes: [B, Q, D], [B, S, A] -> [B, Q, S]."""
        together = torch.tanh(self.query(query)[:, :, None] + keys[:, None])
        return F.linear(together, self.weigh).squeeze(-1)  # oneDNN takes ten times as long for one output


class Alignment(nn.Module):
    """Scores, a softmax over the words in reach, and their mean."""

    def __init__(self, config: c.Bahdanau | c.Luong, dim: int) -> None:
        """Build the score, and what predicts a place."""
        super().__init__()
        self.score: ProductScore | AdditiveScore = (
            AdditiveScore(config.score, dim) if isinstance(config.score, c.ConcatScore)
            else ProductScore(config.score, dim))
        self.reach: c.GlobalReach | c.LocalMonotonic | c.LocalPredictive = (
            config.reach if isinstance(config, c.Luong) else c.GlobalReach())
        self.centre = PredictedCentre(self.reach, dim) if isinstance(self.reach, c.LocalPredictive) else None

    def forward(self, query: Tensor, source: AlignedSource, places: Tensor) -> tuple[Tensor, Tensor]:
        """Mix the source for queries at these places of their text.

        Shapes: query [B, Q, D], places [B or 1, Q] -> context [B, Q, D], weights [B, Q, S].
        """
        scores = self.score(query, source.keys)
        visible, factor = source.visible, None
        if not isinstance(self.reach, c.GlobalReach):
            near, factor = self.near(query, source, places)
            visible = near if visible is None else near & visible
        weights = masked_softmax(scores, visible)
        weights = weights if factor is None else weights * factor.to(weights.dtype)
        return weights @ source.vectors, weights

    def near(self, query: Tensor, source: AlignedSource, places: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return which words are in reach, and the Gaussian that weights them. Shapes: -> [B, Q, S] twice."""
        order, count = source.places()
        if isinstance(self.reach, c.LocalMonotonic):
            return (order - places[:, :, None]).abs() <= self.reach.reach, None
        assert isinstance(self.reach, c.LocalPredictive) and self.centre is not None, "a global reach leaves none out"
        distance = order - count * self.centre(query).float()
        return distance.abs() <= self.reach.reach, torch.exp(-2 * (distance / self.reach.reach).square())


class PredictedCentre(nn.Module):
    """Where in the source to look, as a share of its length. Source: Luong et al. 2015, §3.2, eq 9."""

    def __init__(self, config: c.LocalPredictive, dim: int) -> None:
        """Build both maps."""
        super().__init__()
        self.up, self.down = Linear(dim, config.width or dim, bias=False), Linear(config.width or dim, 1, bias=False)

    def forward(self, query: Tensor) -> Tensor:
        """Shapes: [B, Q, D] -> [B, Q, 1], from 0 to 1."""
        return torch.sigmoid(self.down(torch.tanh(self.up(query))))
