"""Learning from pairs of texts: sequence to sequence (teacher forcing, scheduled sampling, a first stage in which only
some parameters learn) and conditional masked language modelling with target lengths.

Letters: B batch, S source, T target.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier.errors import InputError
from saucier.objectives import config as c
from saucier.objectives.base import (
    IGNORED,
    Batch,
    Loss,
    LossPart,
    Objective,
    ObjectiveInputs,
    RowCorruption,
    WrappedObjective,
    frozen,
    require_token,
    to_int_tensor,
)
from saucier.objectives.batch_layout import EncoderDecoderLayout, PackedPairLayout, PairLayout, choose_pair_layout
from saucier.objectives.prediction import AuxiliaryLoss, Prediction
from saucier.parts.heads import LengthHead
from saucier.parts.output import Output
from saucier.text.rows.batch import Ints, PairRows, make_generator, pad_ids


@dataclass(frozen=True, slots=True)
class PairCorruption(RowCorruption):
    """Nothing is changed: the target is written from its source."""

    layout: PairLayout

    def __call__(self, rows: PairRows, *, seed: int, step: int) -> Batch:
        """Lay them out."""
        return self.layout(rows)


def compute_truth_share(schedule: c.TruthSchedule, step: int) -> float:
    """Return how often a decoder reads the true token at a step (from 0).

    Source: Bengio et al. 2015, §2.4, arXiv:1506.03099.
    """
    match schedule:
        case c.LinearTruth(start=start, slope=slope, floor=floor):
            return max(floor, start - slope * step)
        case c.ExponentialTruth(base=base):
            return float(base**step)
        case c.InverseSigmoidTruth(speed=speed):
            return speed / (speed + math.exp(min(step / speed, 700.0)))


@dataclass(frozen=True, slots=True)
class ScheduledSampling(WrappedObjective):
    """Teacher forcing in which a true token is replaced, with a chance that grows, by what the model would have said.

    The predictions come from a first pass over the true target, without gradients; a recurrent decoder, for which the
    paper is written, makes them token by token. Held-out text is measured with true tokens.
    Source: Bengio et al. 2015, §2.4, arXiv:1506.03099; two passes: Mihaylova and Martins 2019, §3, arXiv:1906.07651.
    """

    inner: Prediction
    schedule: c.TruthSchedule
    share: float = 1.0
    """How often the true token is read."""

    def at(self, step: int) -> ScheduledSampling:
        """Return what is learned at a step."""
        return replace(self, share=compute_truth_share(self.schedule, step))

    def held_out(self) -> Objective:
        """Plain teacher forcing."""
        return self.inner

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the summed loss of the mixed inputs."""
        if self.share < 1:
            batch = batch | {"decoder_input_ids": self.mixed(model, batch)}
        return self.inner(model, batch)

    def mixed(self, model: nn.Module, batch: Batch) -> Tensor:
        """Put predictions in the place of some true tokens, never of the first. Shapes: -> [B, T]."""
        given = batch["decoder_input_ids"]
        with torch.no_grad():
            logits = model(**{name: value for name, value in batch.items() if name != "labels"}).logits
        said = torch.cat([given[:, :1], logits[:, :-1].argmax(-1)], dim=1)
        own = (torch.rand(given.shape, device=given.device) >= self.share) & (batch["labels"] != IGNORED)
        own[:, 0] = False
        return torch.where(own, said, given)


@dataclass(frozen=True, slots=True)
class TwoStageObjective(WrappedObjective):
    """An objective whose gradients reach only some parameters until a step. Source: Lewis et al. 2020, §3.4.

    A parameter without a gradient is left alone by the optimizer, weight decay included.
    """

    stage: c.FirstStage
    until: int
    """The first stage's steps."""
    first: bool = True
    """Whether it is the first stage now."""

    def at(self, step: int) -> TwoStageObjective:
        """Return what is learned at a step."""
        return replace(self, inner=self.inner.at(step), first=step < self.until)

    def held_out(self) -> Objective:
        """What is measured has no stages."""
        return self.inner.held_out()

    def bind(self, model: nn.Module) -> None:
        """Look for the parameters. Raises `InputError` for a name that nothing begins with."""
        WrappedObjective.bind(self, model)
        names = [name for name, _ in model.named_parameters()]
        for module in self.stage.learns:
            if not any(is_inside(name, module) for name in names):
                raise InputError(f"no parameter is called {module}", where="objective.first_stage.learns",
                                 remedy=f"there are {', '.join(sorted({name.split('.')[0] for name in names}))}")

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the loss, whose gradient reaches what learns now."""
        if not self.first:
            return self.inner(model, batch)
        with frozen(parameter for name, parameter in model.named_parameters()
                    if not any(is_inside(name, module) for module in self.stage.learns)):
            return self.inner(model, batch)


def is_inside(name: str, module: str) -> bool:
    """Say whether a parameter has this name, or is inside the module of this name."""
    return name == module or name.startswith(f"{module}.")


HIDING = 11
"""The stream of random numbers that hides tokens."""


@dataclass(frozen=True, slots=True)
class ConditionalMaskedCorruption(RowCorruption):
    """Hides a number of a target's tokens that is drawn evenly, from one to all; only they are targets.

    The target is without its frame: it needs no end, since its length is known.
    Source: Ghazvininejad et al. 2019, §2.2, arXiv:1904.09324.
    """

    mask: int
    frame: Ints
    """The ids that begin and end a text; a target is without them."""
    filler: int

    def __call__(self, rows: PairRows, *, seed: int, step: int) -> Batch:
        """Hide tokens. Shapes: source [B, S], target [B, T] -> input_ids [B, S]; decoder_input_ids, labels [B, T'];
        target_lengths [B].
        """
        texts = [self.text(row, length) for row, length in zip(rows.target, rows.target_lengths.tolist(), strict=True)]
        given, lengths = pad_ids(texts, self.filler)
        labels = np.full_like(given, IGNORED)
        for number, text in enumerate(texts):
            hidden = self.hidden(len(text), make_generator(seed, HIDING, step, int(rows.row[number])))
            labels[number, hidden], given[number, hidden] = text[hidden], self.mask
        batch = {"input_ids": to_int_tensor(rows.source), "decoder_input_ids": to_int_tensor(given),
                 "labels": to_int_tensor(labels), "target_lengths": to_int_tensor(lengths)}
        real = np.arange(given.shape[1]) < np.maximum(lengths, 1)[:, None]
        return batch | {name: to_int_tensor(mask)
                        for name, mask in (("attention_mask", rows.source_mask), ("decoder_attention_mask", real))
                        if not mask.all()}

    def text(self, row: Ints, length: int) -> Ints:
        """Return a target without its frame. Shapes: [T] -> [up to T]."""
        return row[:length][~np.isin(row[:length], self.frame)]

    def hidden(self, length: int, random: np.random.Generator) -> Ints:
        """Draw the places that are hidden. Shapes: -> [1 to length]; none of an empty text."""
        count = int(random.integers(1, length + 1)) if length else 0
        return random.choice(length, count, replace=False).astype(np.int64) if count else np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class TargetLength(AuxiliaryLoss):
    """How long is the target? `target_lengths` [B]. Source: Ghazvininejad et al. 2019, §3.1."""

    part: ClassVar[str] = "lengths"
    """One part."""

    targets: ClassVar[tuple[str, ...]] = ("target_lengths",)
    """The lengths."""

    figures: ClassVar[Mapping[str, str]] = {"lengths_correct": "accuracy of the target's length"}
    """How often the likeliest length is the true one."""

    def count(self, batch: Batch) -> float:
        """Number of rows."""
        return float(len(batch["target_lengths"]))

    def __call__(self, model: nn.Module, output: Output, batch: Batch) -> Loss:
        """Return the summed cross-entropy, and how many lengths are right."""
        head = getattr(model, "head", None)
        if not isinstance(head, LengthHead):
            raise InputError("the model does not tell the length of its target", where="model.head",
                             remedy="use kind: length, as family: mask_predict has")
        logits, targets = head.lengths(output.pooler_output).float(), batch["target_lengths"]
        count = float(len(targets))
        return Loss({self.part: LossPart(F.cross_entropy(logits, targets, reduction="sum"), count)},
                    {"lengths_correct": LossPart((logits.argmax(-1) == targets).sum().float(), count)})


def build_conditional(config: c.ConditionalMasked,
                      given: ObjectiveInputs) -> tuple[ConditionalMaskedCorruption, Prediction]:
    """Build both halves. Raises `InputError` where the tokenizer has no mask token, or none for the length."""
    mask = require_token(given.ids.mask, "mask", "conditional_masked")
    frame = [one for one in (given.ids.bos, given.ids.eos) if one is not None]
    corruption = ConditionalMaskedCorruption(mask, np.array([*frame, given.ids.extra_id(config.length_token)]),
                                             given.ids.filler)
    return corruption, Prediction(config.label_smoothing, (TargetLength(),))


def build_sequence_to_sequence(config: c.SequenceToSequence,
                               given: ObjectiveInputs) -> tuple[PairCorruption, Objective]:
    """Build both halves: the layout of pairs, and teacher forcing with what is put around it."""
    layout = choose_pair_layout(given)
    if config.packing and isinstance(layout, EncoderDecoderLayout):
        layout = PackedPairLayout(layout, config.packing.length)
    plain = Prediction(config.label_smoothing)
    learned = ScheduledSampling(plain, config.truth) if config.truth else plain
    first = config.first_stage
    return PairCorruption(layout), learned if first is None else TwoStageObjective(
        learned, first, round(first.share * given.steps))
