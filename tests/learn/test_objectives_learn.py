"""Each objective's loss falls on a tiny problem, with each optimizer; bfloat16 ends where float32 does."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from tests.unit.training.toy import Counting, CountingOn, Doubling, recipe, small, study

from saucier.model import build
from saucier.objectives import config as o
from saucier.text.rows.batch import PairRows, Rows
from saucier.training import hyperparameters as t
from saucier.training.evaluation import Evaluator
from saucier.training.loop import train
from saucier.training.update import TrainingData

Scores = dict[str, float]


@dataclasses.dataclass(frozen=True)
class Sentences(Counting):
    """Rows that repeat one token; in the second half it stays, or another one is drawn."""

    padded: bool = False
    length: int = 12
    strides: tuple[int, int] = (0, 1)

    def rows(self, step: int, rank: int = 0, world: int = 1) -> Rows:
        made = super().rows(step, rank, world)
        other = Counting(self.length, self.batch, self.seed + 1, False, self.strides).rows(step, rank, world)
        is_random = (made.row + step) % 2
        half = self.length // 2
        made.tokens[:, half:] = np.where(is_random[:, None] == 1, other.tokens[:, :half], made.tokens[:, half:])
        made.tokens[:, 0] = 1
        made.segments[:, half:] = 1
        return dataclasses.replace(made, sentence_label=is_random)


DENOISERS = o.MixtureOfDenoisers(parts=(o.DenoiserPart(objective=o.SpanCorruption()),
                                        o.DenoiserPart(objective=o.PrefixLanguageModel(target=0.25))))
@dataclasses.dataclass(frozen=True)
class Echo(Doubling):
    """Pairs whose source repeats one token, and whose target the next one."""

    def rows(self, step: int, rank: int = 0, world: int = 1) -> PairRows:
        made = super().rows(step, rank, world)
        source = np.where(made.source_mask & (made.source != 2), made.source[:, :1], made.source)
        target = np.where(made.target_mask & (made.target != 2), source[:, :1] + 1, made.target)
        return dataclasses.replace(made, source=source, target=target)


CASES = {
    "permutation": ("xlnet", o.Permutation(every=3), Counting(length=14, strides=(0, 1)), 100),
    "permutation with a memory": ("xlnet", o.Permutation(every=3, rows=o.RunningText(memory=6)), Counting(
        length=14, padded=False, strides=(0, 1)), 100),
    "replaced tokens": ("electra", o.Replaced(generator=o.Generator(width=0.5)), Counting(strides=(0, 1)), 100),
    "replaced tokens, tables that follow": ("electra", o.Replaced(generator=o.Generator(
        width=0.5, sharing=o.Disentangled())), Counting(strides=(0, 1)), 100),
    "causal with a memory": ("transfo_xl", o.Causal(rows=o.ConsecutiveRows()), CountingOn(), 80),
    "permutation with a memory that goes on": ("xlnet", o.Permutation(every=3, rows=o.ConsecutiveRows()), CountingOn(
        length=14, strides=(0, 1)), 100),
    "deeper": ("deep_char", o.Causal(deeper=o.Deeper()), Counting(), 100),
    "scheduled sampling": ("transformer", o.SequenceToSequence(truth=o.LinearTruth(slope=0.005)), Doubling(), 100),
    "masked words told again": ("t5", o.Masked(rate=0.3), Counting(length=14, padded=False, strides=(0, 1)), 100),
    "spans on a decoder": ("gpt2", o.SpanCorruption(), Counting(length=14, padded=False), 120),
    "a damaged text": ("t5", o.Denoising(), Counting(length=14, padded=False), 100),
    "tokens dropped one by one": ("t5", o.ReplaceSpans(), Counting(length=14, padded=False), 80),
    "tokens dropped without a mark": ("t5", o.DropTokens(), Counting(length=14, padded=False), 80),
    "the rest of a text": ("t5", o.PrefixLanguageModel(), Counting(length=14, padded=False), 80),
    "spans with shared weights": ("t5_shared", o.SpanCorruption(), Counting(length=14, padded=False), 80),
    "the rest of a text behind a prefix": ("t5_decoder", o.PrefixLanguageModel(), Counting(length=14, padded=False),
                                           100),
    "several denoisers": ("t5", DENOISERS, Counting(length=14, padded=False), 120),
    "causal": ("gpt2", o.Causal(), Counting(), 60),
    "causal with rotary": ("llama", o.Causal(), Counting(), 60),
    "masked": ("bert", o.Masked(), Counting(strides=(0, 1)), 100),
    "static masks": ("bert", o.Masked(dynamic=False), Counting(strides=(0, 1)), 100),
    "whole words": ("bert", o.Masked(choice=o.WholeWordMasking()), Counting(strides=(0, 1)), 100),
    "runs of words": ("bert", o.Masked(choice=o.NGramMasking()), Counting(strides=(0, 1)), 100),
    "spans and what stands around them": ("bert", o.Masked(choice=o.SpanMasking(boundary=o.SpanBoundary())),
                                          Counting(strides=(0, 1)), 100),
    "masked and sentence order": ("bert", o.Masked(sentence_order=o.SentenceOrder()), Sentences(), 100),
    "masked and next sentence": ("bert", o.Masked(next_sentence=o.NextSentence()), Sentences(), 100),
    "spans": ("t5", o.SpanCorruption(), Counting(length=14, padded=False), 80),
    "translations": ("xlm", o.TranslationMasked(masking=o.Masked(rate=0.3)), Echo(), 100),
    "whole texts": ("mask_predict", o.ConditionalMasked(), Echo(), 100),
    "both directions": ("elmo", o.Bidirectional(), Counting(strides=(0, 1)), 80),
    "recurrent pairs": ("seq2seq", o.SequenceToSequence(), Echo(), 100),
    "recurrent pairs by scheduled sampling": ("seq2seq", o.SequenceToSequence(truth=o.LinearTruth(slope=0.005)), Echo(),
                                              100),
    "sequence to sequence": ("transformer", o.SequenceToSequence(), Doubling(), 80),
}


def learned(family: str, learning: TrainingData, training: t.Training, folder: Path) -> tuple[Scores, Scores]:
    """Return the held-out scores before and after training."""
    model = build(small(family, dropout=0.0), seed=1)
    held_out = dataclasses.replace(learning.batches, seed=77)
    scores = Evaluator([held_out[step] for step in range(4)], learning.corruption, learning.objective.held_out())
    learning.objective.bind(model)
    before = scores(model)
    train(model, learning, training, run_folder=folder, reporters=[])
    return before, scores(model)


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_the_loss_falls(name: str, tmp_path: Path) -> None:
    family, objective, batches, steps = CASES[name]
    training = recipe(steps, save_every=steps, batch=8, optimizer=t.AdamW(learning_rate=5e-3))
    before, after = learned(family, study(objective, batches, small(family), steps), training, tmp_path)
    assert after["loss"] < 0.8 * before["loss"], (before, after)


OPTIMIZERS = [t.AdamW(learning_rate=3e-3), t.Muon(learning_rate=1e-2, others=t.AdamW(learning_rate=5e-3)),
              t.Adafactor(learning_rate=0.2)]


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: optimizer.kind)
def test_every_optimizer_learns(optimizer: t.OptimizerConfig, tmp_path: Path) -> None:
    before, after = learned("gpt2", study(), recipe(60, save_every=60, optimizer=optimizer), tmp_path)
    assert after["loss"] < 0.5 * before["loss"], (before, after)
    assert after["accuracy"] > 2 * before["accuracy"] + 0.3


@pytest.mark.slow
def test_bfloat16_ends_within_one_percent_of_float32(tmp_path: Path) -> None:
    losses = []
    for dtype in ("float32", "bfloat16"):
        training = recipe(80, save_every=80, dtype=dtype, schedule=t.Cosine(warmup=5))
        losses.append(learned("gpt2", study(), training, tmp_path / dtype)[1]["loss"])
    assert losses[1] == pytest.approx(losses[0], rel=0.01)


@pytest.mark.nightly
def test_a_compiled_model_learns_the_same(tmp_path: Path) -> None:
    losses = [learned("gpt2", study(), recipe(8, save_every=8, compile=flag), tmp_path / str(flag))[1]["loss"]
              for flag in (False, True)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
