"""Masked language modelling: hidden tokens in running text and in parallel texts, and what is learned with them
(sentence relation, span boundaries).

One random generator per row, seeded by the row's number, so that micro-batches and processes do not change the
masks. Letters: B batch, L length, K chosen tokens, E width of the output matrix, P width of a position, S source, T
target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from saucier.errors import InputError
from saucier.objectives import config as c
from saucier.objectives.base import (
    IGNORED,
    Batch,
    Corruption,
    Loss,
    LossPart,
    ObjectiveInputs,
    RowCorruption,
    require_token,
    to_int_tensor,
)
from saucier.objectives.batch_layout import (
    MaskLayout,
    choose_mask_layout,
)
from saucier.objectives.cross_entropy import compute_cross_entropy
from saucier.objectives.masking_units import MaskableRow, SelectedTokens, TokenSelection, build_token_selection
from saucier.objectives.prediction import AuxiliaryLoss, Prediction, get_language_head
from saucier.parts.heads import PretrainingHead
from saucier.parts.linear import ACTIVATIONS, Linear
from saucier.parts.output import Output
from saucier.text.rows.batch import PADDING, Ints, PairRows, Rows, make_generator, stack_rows

MASKING, COPIES = 1, 10
"""Streams of random numbers, one for each purpose."""
STATIC_STEP = 2**32
"""Taken for the step where a mask is the same at every step; further masks of the same row follow it."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """What becomes of a chosen token. Source: Devlin et al. 2019, §3.1, arXiv:1810.04805."""

    mask: float
    random: float
    mask_id: int
    ordinary: Ints
    """The ids that a token may be replaced by; the paper's code may draw special ones, too."""

    def __call__(self, tokens: Ints, found: SelectedTokens, random: np.random.Generator) -> None:
        """Hide the chosen tokens of one row, in place. Shapes: tokens [L]."""
        count = len(found.places)
        fate = random.random(count)[found.fates]
        others = random.choice(self.ordinary, count)
        tokens[found.places[fate < self.mask]] = self.mask_id
        swapped = (fate >= self.mask) & (fate < self.mask + self.random)
        tokens[found.places[swapped]] = others[swapped]


@dataclass(frozen=True, slots=True)
class MaskedCorruption(RowCorruption):
    """Hides tokens for a model that sees both sides. Source: Devlin et al. 2019, §3.1 and appendix A.1,
    arXiv:1810.04805.

    As in the paper's code a row has a fixed budget of targets: `rate` times its ordinary tokens, rounded, at least one.
    """

    config: c.Masked
    special: Ints
    chooser: TokenSelection
    replacement: Replacement
    layout: MaskLayout

    def __call__(self, rows: Rows, *, seed: int, step: int) -> Batch:
        """Hide tokens. Shapes: rows [B, L] -> input_ids, labels [B, L].

        In addition: next_sentence [B], 1 = the second piece does not follow the first; span_left, span_right [B, L],
        the places around each target's span.
        """
        tokens, lines = rows.tokens.copy(), self.lines(rows)
        around = np.full((3, *tokens.shape), IGNORED)
        for number, line in enumerate(lines):
            random = make_generator(seed, MASKING, *self.place(rows, number, seed, step))
            if not (count := int(line.free.sum())):
                continue
            found = self.chooser(line, max(1, round(self.config.rate * count)), random)
            around[:, number, found.places] = line.tokens[found.places], found.before, found.after
            self.replacement(tokens[number], found, random)
        batch = self.layout(rows, tokens, around[0])
        return batch | self.add_auxiliary_labels(rows, around)

    def lines(self, rows: Rows) -> list[MaskableRow]:
        """Say of each row what may be hidden."""
        after_context = np.arange(rows.tokens.shape[1]) >= rows.context[:, None]
        free = rows.mask & ~np.isin(rows.tokens, self.special) & after_context
        borders = np.ones_like(free)
        borders[:, 1:] = rows.documents[:, 1:] != rows.documents[:, :-1]
        return [MaskableRow(*line) for line in zip(rows.tokens, free, borders, strict=True)]

    def place(self, rows: Rows, number: int, seed: int, step: int) -> tuple[int, int]:
        """Return the stream of a row's mask: by its place in training, or by that in the text where masks stay."""
        if self.config.dynamic:
            return step, int(rows.row[number])
        copies = self.config.duplicates
        copy = int(make_generator(seed, COPIES, step, int(rows.row[number])).integers(copies)) if copies > 1 else 0
        return STATIC_STEP + copy, int(rows.item[number])

    def add_auxiliary_labels(self, rows: Rows, around: Ints) -> Batch:
        """Return the labels of the auxiliary losses."""
        batch: Batch = {}
        if self.config.relation is not None:
            batch |= {"next_sentence": to_int_tensor(rows.sentence_label),
                      "token_type_ids": to_int_tensor(rows.segments)}
        if self.config.boundary is not None:
            batch |= {"span_left": to_int_tensor(around[1]), "span_right": to_int_tensor(around[2])}
        return batch


def build_masked(config: c.Masked, given: ObjectiveInputs) -> MaskedCorruption:
    """Check the shares, the tokenizer and the body. Raises `InputError`."""
    total = config.mask + config.random
    if total > 1:
        raise InputError(f"mask + random is {total:g}, more than 1", where="objective", remedy="lower one of them")
    ids, mask = given.ids, require_token(given.ids.mask, "mask", "masked")
    replacement = Replacement(config.mask, config.random, mask, ids.ordinary())
    return MaskedCorruption(config, np.array(ids.special, dtype=np.int64), build_token_selection(config.choice, given),
                            replacement, choose_mask_layout(given))


DEVIATION = 0.02
"""Standard deviation of new weights, as in BERT."""


class BoundaryNetwork(nn.Module):
    """Two dense layers, each with GELU and a layer norm, over both outside tokens and the place in the span.

    Source: Joshi et al. 2020, §3.2, arXiv:1907.10529.
    """

    def __init__(self, dim: int, width: int, *, positions: int, position_width: int, seed: int) -> None:
        """Draw its weights; `width` is that of the output matrix that it shares, `positions` the longest span."""
        super().__init__()
        self.positions = nn.Embedding(positions, position_width)
        self.first = Linear(2 * dim + position_width, dim)
        self.first_norm = nn.LayerNorm(dim)
        self.second = Linear(dim, width)
        self.second_norm = nn.LayerNorm(width)
        self.activation = ACTIVATIONS["gelu"]
        random = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for layer in (self.positions, self.first, self.second):
                layer.weight.normal_(0.0, DEVIATION, generator=random)
            for dense in (self.first, self.second):
                dense.bias.zero_()

    def forward(self, left: Tensor, right: Tensor, place: Tensor) -> Tensor:
        """Shapes: left, right [N, D], place [N] from 0 -> [N, E]."""
        read = torch.cat([left, right, self.positions(place).to(left.dtype)], dim=-1)
        hidden = self.first_norm(self.activation(self.first(read)))
        found: Tensor = self.second_norm(self.activation(self.second(hidden)))
        return found


@dataclass(frozen=True, slots=True)
class SpanBoundary(AuxiliaryLoss):
    """The cross-entropy of hidden tokens by the tokens around their spans; the model's output matrix is shared.

    Reads `span_left` and `span_right` [B, L], the places around the span of each target.
    Source: Joshi et al. 2020, §3.2, arXiv:1907.10529.
    """

    dim: int
    """Width of the model's vectors."""
    position_width: int
    positions: int
    """Tokens of the longest span; a row's length is always enough."""
    seed: int = 0
    own: dict[str, nn.Module] = field(default_factory=dict)

    part: ClassVar[str] = "boundary"
    """One part."""

    targets: ClassVar[tuple[str, ...]] = ("span_left", "span_right")
    """The places around each span."""

    figures: ClassVar[Mapping[str, str]] = {"boundary_correct": "span-boundary accuracy"}
    """How often the first choice is right."""

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """The two layers and the positions, once they are bound to a model."""
        return self.own

    def bind(self, model: nn.Module) -> None:
        """Make the network for the model's width and output matrix."""
        matrix = get_language_head(model).matrix
        made = BoundaryNetwork(self.dim, matrix.shape[1], positions=self.positions,
                               position_width=self.position_width, seed=self.seed)
        self.own["boundary"] = made.to(matrix.device)

    def count(self, batch: Batch) -> float:
        """Number of hidden tokens."""
        return float((batch["labels"] != IGNORED).sum())

    def __call__(self, model: nn.Module, output: Output, batch: Batch) -> Loss:
        """Return the summed cross-entropy, and how many first choices are right."""
        network, head = self.own["boundary"], get_language_head(model)
        row, place = (batch["labels"] != IGNORED).nonzero(as_tuple=True)
        left, right = (batch[name][row, place] for name in self.targets)
        assert output.last_hidden_state is not None, "every pass gives it"
        read = [output.last_hidden_state[row, one] for one in (left, right)]
        features = network(*read, place - left - 1)
        sums = compute_cross_entropy(features, head.matrix, head.bias, batch["labels"][row, place])
        count = float(len(row))
        return Loss({self.part: LossPart(sums.loss, count)}, {"boundary_correct": LossPart(sums.correct, count)})


@dataclass(frozen=True, slots=True)
class NextSentence(AuxiliaryLoss):
    """Does the second piece of a row follow the first? `next_sentence` [B], 1 = it does not.

    Source: Devlin et al. 2019, §3.1 task 2, arXiv:1810.04805. Where the pieces are swapped instead of drawn it is the
    order that is learned (Lan et al. 2020, §3.1, arXiv:1909.11942).
    """

    report_name: str = "next-sentence accuracy"
    """What a report calls it."""

    part: ClassVar[str] = "sentences"
    """One part."""

    targets: ClassVar[tuple[str, ...]] = ("next_sentence",)
    """The answers."""

    @property
    def figures(self) -> Mapping[str, str]:
        """How often the answer is right."""
        return {"sentences_correct": self.report_name}

    def count(self, batch: Batch) -> float:
        """Number of rows."""
        return float(len(batch["next_sentence"]))

    def __call__(self, model: nn.Module, output: Output, batch: Batch) -> Loss:
        """Return the summed cross-entropy, and how many answers are right.

        Raises `InputError` for a model without a next-sentence classifier.
        """
        head = getattr(model, "head", None)
        if not isinstance(head, PretrainingHead):
            raise InputError("the model has no classifier for next-sentence prediction", where="model.head",
                             remedy="use kind: pretraining")
        logits = head.sentence(head.dropout(output.pooler_output)).float()
        wrong = F.cross_entropy(logits, batch["next_sentence"], reduction="sum")
        right = (logits.argmax(dim=-1) == batch["next_sentence"]).sum().float()
        return Loss({self.part: LossPart(wrong, float(len(logits)))},
                    {"sentences_correct": LossPart(right, float(len(logits)))})


SIDES = 2


@dataclass(frozen=True, slots=True)
class ParallelCorruption(RowCorruption):
    """Makes rows of pairs and hides tokens in them."""

    layout: Callable[[PairRows], Rows]
    masking: Corruption[Rows]
    texts: int
    """How many texts share a row."""
    gives_languages: bool
    """Whether the model gets the language of each token: 0 on the source's side, 1 on the target's."""
    language: int | None = None
    """The only language that is learned; None: both."""

    def row_length(self, length: int) -> int:
        """The most tokens of one side, so that the model sees `length` of the whole row."""
        return length // self.texts

    def __call__(self, rows: PairRows, *, seed: int, step: int) -> Batch:
        """Hide tokens. Shapes: source [B, S], target [B, T] -> input_ids, labels [B or 2B, L]."""
        laid = self.layout(rows)
        batch = self.masking(laid if self.gives_languages else replace(laid, languages=None), seed=seed, step=step)
        if self.language is not None and laid.languages is not None:
            batch["labels"] = batch["labels"].masked_fill(to_int_tensor(laid.languages) != self.language, IGNORED)
        return batch


def join_sides(rows: PairRows) -> Rows:
    """Put each target after its source, its places counted from 0 again. Shapes: -> [B, longest].

    Both sides see each other. Source: Lample and Conneau 2019, §3.4, arXiv:1901.07291.
    """
    first, second = rows.source_lengths[:, None], rows.target_lengths[:, None]
    place = np.arange(int((first + second).max(initial=1)))
    offset = np.broadcast_to(place - first, (len(rows), len(place)))
    own, other = offset < 0, (offset >= 0) & (offset < second)
    tokens = np.where(other, take_tokens(rows.target, offset),
                      take_tokens(rows.source, np.broadcast_to(place, offset.shape)))
    return make_single_text_rows(np.where(own | other, tokens, 0), own | other, np.where(other, offset, place),
                                 other * 1, (rows.row, rows.item))


def separate_sides(rows: PairRows) -> Rows:
    """Make two rows of each pair, all sources first. Shapes: -> [2B, longest]."""
    sides = ((rows.source, rows.source_mask), (rows.target, rows.target_mask))
    return stack_rows([make_single_text_rows(tokens, mask, np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape),
                                             np.full_like(tokens, side),
                                             (SIDES * rows.row + side, SIDES * rows.item + side))
                       for side, (tokens, mask) in enumerate(sides)])


def take_tokens(tokens: Ints, places: Ints) -> Ints:
    """Read tokens at places of each row; anything where a place is outside. Shapes: [B, S], [B, L] -> [B, L]."""
    found: Ints = np.take_along_axis(tokens, places.clip(0, tokens.shape[1] - 1), axis=1)
    return found


def make_single_text_rows(tokens: Ints, real: NDArray[np.bool_], places: Ints, languages: Ints,
                          names: tuple[Ints, Ints]) -> Rows:
    """Make rows of one text each. Shapes: all [B, L], but `names` (numbers of rows and of items) [B]."""
    none = np.zeros(len(tokens), dtype=np.int64)
    row, item = names
    return Rows(tokens=tokens, documents=np.where(real, 0, PADDING), positions=np.where(real, places, 0),
                segments=np.zeros_like(tokens), context=none, sentence_label=none, row=row, item=item,
                languages=languages.astype(np.int64))


def build_masked_prediction(config: c.Masked, given: ObjectiveInputs) -> tuple[MaskedCorruption, Prediction]:
    """Build both halves. Raises `InputError` as `build_masked`."""
    auxiliary: list[AuxiliaryLoss] = []
    if config.relation is not None:
        auxiliary.append(NextSentence() if config.next_sentence else NextSentence("sentence-order accuracy"))
    if config.boundary is not None:
        assert given.body is not None, "an auxiliary loss with modules is made for a body"
        auxiliary.append(SpanBoundary(given.body.width, config.boundary.position_width, given.length, given.seed))
    return build_masked(config, given), Prediction(auxiliary=tuple(auxiliary))


def build_parallel(config: c.Parallel, given: ObjectiveInputs) -> tuple[ParallelCorruption, Prediction]:
    """Build both halves: the masking's, on rows of pairs."""
    masking, objective = build_masked_prediction(config.masking, given)
    knows = given.body is not None and config.needs_language_ids(given.body)
    if isinstance(config, c.TranslationMasked):
        return ParallelCorruption(join_sides, masking, SIDES, knows), objective
    return ParallelCorruption(separate_sides, masking, 1, knows), objective
