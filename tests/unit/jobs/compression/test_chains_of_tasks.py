"""Chains on other kinds of task than classes: each step leaves a model that opens and answers as it was measured."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.jobs.compression.conftest import QUICK, learn
from tests.unit.jobs.finetuning.conftest import labelled_rows, tiny_bert, tiny_t5  # noqa: F401  # fixtures
from tests.unit.jobs.finetuning.test_question_answering import lines, paragraphs
from tests.unit.jobs.finetuning.test_tagging import column_file

import saucier
from saucier.config import parameters
from saucier.jobs.compression.outcome import Compressed

Write = Callable[..., Path]
Rows = Callable[[Path, int, int], Path]


def write_numbers(path: Path, count: int, seed: int) -> Path:
    """Write rows whose number is told by one word."""
    draw = random.Random(seed)
    rows = [f"{2.0 * (label == 'good') + draw.random():.2f}\t{text}" for label, text in labelled_rows(count, seed)]
    path.write_text("\n".join(["label\ttext", *rows]) + "\n")
    return path


def write_pairs(path: Path, count: int, seed: int) -> Path:
    """Write texts with what is to be written for them, long enough for BLEU."""
    said = {"good": "the cook is very rich", "bad": "the cook is very cold"}
    rows = [f"{text}\t{said[label]}" for label, text in labelled_rows(count, seed)]
    path.write_text("\n".join(["input\ttarget", *rows]) + "\n")
    return path


def write_spans(path: Path, count: int, seed: int) -> Path:
    """Write paragraphs with a question whose answer is a span."""
    return lines(path.with_suffix(".jsonl"), paragraphs(count, seed))


HEADS = "{kind: prune, by: {kind: heads, share: 0.5, scope: {kind: layer}}}"
NEURONS = "{kind: prune, by: {kind: neurons, share: 0.25, scope: {kind: layer}}}"
USED = "{kind: prune, by: {kind: task_vocabulary}}"
GATED = (f"{{kind: prune, by: {{kind: gates, units: [neurons], faster: 500, aim: {{kind: target, share: 0.3}}}}, "
         f"{learn(1)}}}")
RANKS = "{kind: prune, by: {kind: ranks, share: 0.4}}"
AWARE = f"{{kind: quantize, by: {{kind: quantization_aware}}, {learn(1)}}}"
GPTQ = "{kind: quantize, rows: 16, by: {format: {kind: integer, bits: 4, group: 16}, method: {kind: gptq}}}"
KINDS: dict[str, tuple[str, Rows, int, tuple[str, ...]]] = {
    "tagging": ("tiny_bert", column_file, 3, (f"{{kind: distil, layers: 1, {learn(2)}}}", HEADS, GATED, USED, GPTQ)),
    "regression": ("tiny_bert", write_numbers, 6, (f"{{kind: distil, layers: 1, {learn(3)}}}", GATED, AWARE)),
    "question_answering": ("tiny_bert", write_spans, 3, (f"{{kind: distil, layers: [1], {learn(1)}}}", USED, RANKS,
                                                         GPTQ)),
    "text_to_text": ("tiny_t5", write_pairs, 12, (NEURONS, GATED, AWARE)),
    "text_to_text, fewer layers": ("tiny_t5", write_pairs, 6, (
        f"{{kind: distil, layers: 1, decoder_layers: 1, {learn(1)}}}",)),
}
"""Kind of task -> the model, what writes its rows, epochs of the teacher, and steps."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_step_leaves_a_model_that_answers(kind: str, chain: Write, tmp_path: Path,
                                               request: pytest.FixtureRequest) -> None:
    body, write, epochs, steps = KINDS[kind]
    train, dev = write(tmp_path / "train.tsv", 96, 1), write(tmp_path / "dev.tsv", 24, 2)
    words = [f"training.epochs={epochs}", "training.dtype=float32", "training.batch=16",
             "training.optimizer.learning_rate=3e-3"]
    tuned = saucier.finetune(kind.partition(",")[0], words, model=request.getfixturevalue(body), data=train,
                             held_out=dev, out=tmp_path / "tuned", quiet=True)
    found = saucier.compress(chain(*steps, keep=1e-6), QUICK, model=tuned.folder, out=tmp_path / "out", quiet=True)
    assert isinstance(found, Compressed)
    before = found.teacher
    for one in found.steps:
        place = found.folder / "steps" / one.name
        written = [json.loads(line)["prediction"] for line in
                   (place / "predictions" / "held-out.jsonl").read_text().splitlines()]
        answers = saucier.predict(place / "model", [dev]).answers
        assert answers == written, one.name
        assert one.size.parameters == parameters(saucier.load(place / "model").config) <= before.size.parameters
        assert one.size.disk < before.size.disk, one.name
        before = one
    assert len(found.steps) == len(steps), found


@pytest.mark.slow
def test_heads_of_a_cooked_translator(chain: Write, tmp_path: Path) -> None:
    """A run that no fine-tuning has touched: BLEU before and after, and which attention lost how many heads."""
    train, dev = write_pairs(tmp_path / "train.tsv", 96, 1), write_pairs(tmp_path / "dev.tsv", 24, 2)
    cooked = saucier.cook("transformer-nano", ["model.dim=32", "model.layers=1", "model.heads=2", "model.hidden=32",
                                               "tokenizer.vocab=100", "training.steps=60", "training.batch=32",
                                               "training.dtype=float32", "training.evaluate_every=60",
                                               "training.schedule.warmup=5", "evaluation.limit=4"],
                          data=train, held_out=dev, out=tmp_path / "run", quiet=True)
    by = "heads, share: 0.5, score: {kind: confidence}, where: [decoder.blocks.*.cross]"
    gates = f"{{kind: gates, where: [encoder.*], aim: {{kind: target, share: 0.3}}}}, distillation: null, {learn(1)}"
    found = saucier.compress(chain(f"{{kind: prune, by: {{kind: {by}}}}}", f"{{kind: prune, by: {gates}}}", keep=1e-6),
                             QUICK, model=cooked.folder, data=train, held_out=dev, out=tmp_path / "out", quiet=True)
    assert isinstance(found, Compressed) and len(found.steps) == 2, found
    assert [one.splits["held-out"].metrics[0].name for one in (found.teacher, *found.steps)] == ["BLEU"] * 3
    assert "decoder.blocks.*.cross: 1 gone" in found.steps[0].notes
    kept = saucier.load(found.folder / "steps" / "1-prune" / "model").config.decoder.blocks()[0]
    assert {one.inner.kind: one.inner.projection.heads for one in kept.sublayers if hasattr(one.inner, "projection")} \
        == {"attention": 2, "cross_attention": 1}
