"""Replaced-token detection (ELECTRA): a generator fills hidden tokens in, and the model detects which were replaced.

No gradient of the model's loss reaches the generator through sampled tokens. Sampling uses random numbers that come
with the batch, so a run stays a function of (seed, step, row). Letters: B batch, L length, D dim, V vocab.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier.errors import InputError
from saucier.model import Transformer, build, retie_head
from saucier.objectives import config as c
from saucier.objectives.base import IGNORED, Batch, Loss, LossPart, Objective, ObjectiveInputs, RowCorruption
from saucier.objectives.config.replaced_tokens import derive_generator
from saucier.objectives.cross_entropy import count_chunk_rows
from saucier.objectives.masked import MaskedCorruption, build_masked
from saucier.objectives.prediction import Prediction, get_language_head, select_targets, sum_token_losses
from saucier.text.rows.batch import Rows, make_generator

Tables = dict[str, Tensor]
"""The weights of an embedding's tables, by name: tokens, positions, segments; those that it has."""
Sharing = c.OwnTables | c.SharedTables | c.SharedAll | c.Disentangled
NAMES = ("tokens", "positions", "segments")


def get_tables(model: Transformer) -> Tables:
    """Return the tables of an embedding. Shapes: [V, D] each."""
    found = {name: getattr(getattr(model.embed, name), "weight", None) for name in NAMES}
    return {name: table for name, table in found.items() if isinstance(table, nn.Parameter)}


def share_weights(sharing: Sharing, generator: Transformer, model: Transformer) -> None:
    """Give a generator what it has in common with the model. Raises `InputError` for tables of other sizes."""
    match sharing:
        case c.OwnTables():
            return
        case c.SharedTables():
            for name, _ in match_tables(generator, model):
                setattr(generator.embed, name, getattr(model.embed, name))
        case c.SharedAll():
            generator.embed, generator.encoder = model.embed, model.encoder
        case c.Disentangled():
            with torch.no_grad():
                for name, table in match_tables(generator, model):
                    table.copy_(get_tables(model)[name])
    retie_head(generator)


def match_tables(generator: Transformer, model: Transformer) -> list[tuple[str, Tensor]]:
    """Return the generator's tables. Raises `InputError` where the model's have other sizes."""
    theirs = get_tables(model)
    for name, table in (ours := get_tables(generator)).items():
        if table.shape != theirs[name].shape:
            raise InputError(f"the generator's table of {name} is {tuple(table.shape)}, the model's"
                             f" {tuple(theirs[name].shape)}", where="objective.generator.sharing",
                             remedy="use kind: none, or width: 1")
    return list(ours.items())


DRAWS = 6
"""Stream of random numbers."""
DETECTION, GENERATION = "replaced", "tokens"
"""The parts of the loss: the model's, and the generator's."""


@dataclass(frozen=True, slots=True)
class ReplacedCorruption(RowCorruption):
    """Hides tokens, and gives each place a random number, by which the generator's token is drawn there."""

    masked: MaskedCorruption

    def __call__(self, rows: Rows, *, seed: int, step: int) -> Batch:
        """Hide tokens. Shapes: rows [B, L] -> as of `MaskedCorruption`, and draws [B, L] in 0..1."""
        batch = self.masked(rows, seed=seed, step=step)
        draws = np.empty(batch["input_ids"].shape, dtype=np.float32)
        for row, number in zip(draws, rows.row, strict=True):
            make_generator(seed, DRAWS, step, int(number)).random(dtype=np.float32, out=row)
        return batch | {"draws": torch.from_numpy(draws)}


@dataclass(frozen=True, slots=True)
class FilledBatch:
    """A batch as the generator leaves it."""

    inputs: Mapping[str, Any]
    """What both models are called with, but for the ids."""
    ids: Tensor
    """[B, L], with the tokens that were drawn."""
    originals: Tensor
    """[B, L], as the text has it."""
    labels: Tensor
    """[B, L], the original at chosen places, elsewhere ignored."""

    @property
    def replaced(self) -> Tensor:
        """[B, L], True where another token is now; one that was drawn right is an original."""
        return self.ids != self.originals

    @property
    def real(self) -> Tensor:
        """[B, L], True at tokens that are no padding."""
        mask = self.inputs.get("attention_mask")
        return torch.ones_like(self.ids, dtype=torch.bool) if mask is None else mask.bool()


@dataclass(frozen=True, slots=True)
class ReplacedTokens(Objective):
    """The generator's masked language model, and the model's detection. Source: Clark et al. 2020, §2 (C eq 107–110).

    Special tokens count as text for the detection, as in the paper's code.
    """

    config: c.Replaced
    given: ObjectiveInputs
    own: dict[str, nn.Module] = field(default_factory=dict, compare=False)
    """The generator, from `bind` on."""
    before: dict[str, Tables] = field(default_factory=dict, compare=False)
    """The generator's tables as they were before an update, where the model's must follow them."""

    parts: ClassVar[tuple[str, ...]] = (DETECTION, GENERATION)
    """The model's, then the generator's."""

    @property
    def figures(self) -> Mapping[str, str]:
        """How good both are."""
        more = {} if isinstance(self.config.learns, c.Originals) else {
            "replaced_found": "share of replaced tokens that are found",
            "flags_right": "share of flagged tokens that were replaced"}
        return {"generator_loss": "the generator's loss, nats",
                "generator_correct": "share of hidden tokens that the generator knows",
                "replaced_share": "share of all tokens that are replaced"} | more

    @property
    def loss_factor(self) -> float:
        """The factor λ."""
        return self.config.weight

    @property
    def has_moving_targets(self) -> bool:
        """The better the generator, the harder it is to tell its words from true ones."""
        return True

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """The generator."""
        return self.own

    @property
    def generator(self) -> Transformer:
        """The generator, which `bind` has built."""
        found = self.own["generator"]
        assert isinstance(found, Transformer), "bind() builds one"
        return found

    def bind(self, model: nn.Module) -> None:
        """Build the generator of a model, and share what both have in common."""
        assert isinstance(model, Transformer), "check_body refuses anything else"
        device = next(model.parameters()).device
        made = build(derive_generator(model.config, self.config), seed=self.given.seed + 1, device=device)
        share_weights(self.config.generator.sharing, made, model)
        self.own["generator"] = made

    def at(self, step: int) -> Objective:
        """Return the stage that a step is in."""
        if isinstance(self.config.stages, c.Together):
            return self
        return GeneratorStage(self) if step < self.first_steps else DetectionStage(self)

    @property
    def first_steps(self) -> int:
        """Steps that the generator learns alone; 0 where both learn together."""
        stages = self.config.stages
        return max(1, round(stages.first * self.given.steps)) if isinstance(stages, c.TwoStages) else 0

    def finish_update(self, model: nn.Module, step: int) -> None:
        """Let the model's tables follow the generator's, or begin the second stage with the generator's weights."""
        assert isinstance(model, Transformer), "as in bind()"
        with torch.no_grad():
            if old := self.before.pop("tables", None):
                now, theirs = get_tables(self.generator), get_tables(model)
                for name, table in theirs.items():
                    table += now[name] - old[name]
            if step + 1 == self.first_steps:
                took = {name: value for name, value in self.generator.state_dict().items()
                        if not name.startswith("head.")}
                model.load_state_dict(model.state_dict() | took)

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of decisions of the model, and of hidden tokens."""
        hidden = float((batch["labels"] != IGNORED).sum())
        mask = batch.get("attention_mask")
        every = float(batch["input_ids"].numel() if mask is None else mask.sum())
        judged = every if isinstance(self.config.learns, c.EveryToken) else hidden
        return {DETECTION: judged, GENERATION: hidden}

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return both losses."""
        filled, loss = self.fill(model, batch)
        found = self.detected(model, filled)
        loss.parts |= found.parts
        loss.figures |= found.figures
        return loss

    def fill(self, model: nn.Module, batch: Batch) -> tuple[FilledBatch, Loss]:
        """Let the generator fill the hidden tokens in; return what it learns from that."""
        self.generator.train(model.training)
        if torch.is_grad_enabled() and isinstance(self.config.generator.sharing, c.Disentangled):
            self.before.setdefault("tables", {name: one.detach().clone() for name, one in
                                              get_tables(self.generator).items()})
        labels = batch["labels"]
        inputs = {name: value for name, value in batch.items() if name not in ("labels", "draws", "input_ids")}
        hidden = self.generator(input_ids=batch["input_ids"], **inputs, compute_logits=False).last_hidden_state
        features, targets = select_targets(hidden, labels)
        sums = sum_token_losses(self.generator, features, targets, smoothing=0.0)
        chosen = labels != IGNORED
        originals = torch.where(chosen, labels, batch["input_ids"])
        with torch.no_grad():
            drawn = draw_tokens(self.generator, features.detach(), batch["draws"][chosen])
        filled = FilledBatch(inputs, originals.masked_scatter(chosen, drawn), originals, labels)
        count = float(len(targets))
        figures = {"generator_loss": LossPart(sums.nll, count),
                   "replaced_share": LossPart(filled.replaced.sum().float(), float(filled.real.sum()))}
        if not torch.is_grad_enabled():
            figures["generator_correct"] = LossPart(sums.correct, count)
        return filled, Loss({GENERATION: LossPart(sums.loss, count)}, figures)

    def detected(self, model: nn.Module, filled: FilledBatch) -> Loss:
        """Return what the model learns."""
        match self.config.learns:
            case c.EveryToken():
                return compute_detection_loss(model, filled, filled.real, self.config.weight)
            case c.ChosenTokens():
                return compute_detection_loss(model, filled, filled.labels != IGNORED, self.config.weight)
            case c.Originals():
                batch = {**filled.inputs, "input_ids": filled.ids, "labels": filled.labels}
                found = Prediction()(model, batch)
                part = found.parts["tokens"]
                return Loss({DETECTION: LossPart(part.total * self.config.weight, part.weight)}, found.figures)


@dataclass(frozen=True, slots=True)
class GeneratorStage(Objective):
    """The first of two stages: the generator learns alone."""

    whole: ReplacedTokens

    parts: ClassVar[tuple[str, ...]] = (GENERATION,)
    """The generator's."""

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of hidden tokens."""
        return {GENERATION: self.whole.count(batch)[GENERATION]}

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the generator's loss."""
        return self.whole.fill(model, batch)[1]


@dataclass(frozen=True, slots=True)
class DetectionStage(Objective):
    """The second of two stages: the model learns from a generator that stays as it is."""

    whole: ReplacedTokens

    parts: ClassVar[tuple[str, ...]] = (DETECTION,)
    """The model's."""

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of decisions."""
        return {DETECTION: self.whole.count(batch)[DETECTION]}

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the model's loss."""
        with torch.no_grad():
            filled, _ = self.whole.fill(model, batch)
        return self.whole.detected(model, filled)


def draw_tokens(model: nn.Module, features: Tensor, draws: Tensor) -> Tensor:
    """Draw a token from a language head's distribution at each place, by the place where its number falls.

    Shapes: features [N, D], draws [N] in 0..1 -> ids [N].
    """
    head = get_language_head(model)
    rows = count_chunk_rows(len(head.weight), 4)
    found = []
    for part, number in zip(features.split(rows), draws.split(rows), strict=True):
        sums = head(part).float().softmax(-1).cumsum(-1)
        place = torch.searchsorted(sums, (number * sums[:, -1])[:, None], right=True)[:, 0]
        found.append(place.clamp(max=sums.shape[1] - 1))
    return torch.cat(found)


def compute_detection_loss(model: nn.Module, filled: FilledBatch, judged: Tensor, weight: float) -> Loss:
    """Summed binary cross-entropy of `replaced` at the places that are judged. Shapes: judged [B, L].

    Source: Clark et al. 2020, §2 (C eq 108).
    """
    logits = model(input_ids=filled.ids, **filled.inputs).logits.float()[judged]
    replaced = filled.replaced[judged]
    wrong = F.binary_cross_entropy_with_logits(logits, replaced.to(logits.dtype), reduction="sum")
    flagged, count = logits.detach() > 0, float(len(replaced))
    found = (flagged & replaced).sum().float()
    figures = {"nll": LossPart(wrong.detach(), count), "correct": LossPart((flagged == replaced).sum().float(), count),
               "replaced_found": LossPart(found, float(replaced.sum())),
               "flags_right": LossPart(found, float(flagged.sum()))}
    return Loss({DETECTION: LossPart(wrong * weight, count)}, figures)


def build_replaced(config: c.Replaced, given: ObjectiveInputs) -> tuple[ReplacedCorruption, ReplacedTokens]:
    """Build both halves. Raises `InputError` as `build_masked`."""
    return ReplacedCorruption(build_masked(config.masking, given)), ReplacedTokens(config, given)
