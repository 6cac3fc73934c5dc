"""Distilling step by step: answers and reasons are two tasks of one input, and only the answer is asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.tolerances import PART

import saucier
from saucier.objectives.base import IGNORED
from saucier.tasks.build import build_task
from saucier.tasks.examples import Place
from saucier.tasks.task import Encoding
from saucier.tasks.written.definitions import StepByStep
from saucier.tasks.written.text_to_text import RATIONALE_LABELS, WrittenText


def rows() -> list[WrittenText]:
    told = [("the soup is fine", ("good",), "fine soup is lovely"), ("my cat", ("bad",), "a cat is sour and cold")]
    return [WrittenText(Place("file", number), str(number), *one) for number, one in enumerate(told)]


def encoding_of(folder: Path) -> Encoding:
    return Encoding(saucier.load_tokenizer(folder), 100, saucier.load(folder, dtype="float32").config)


@pytest.mark.parametrize("folder", ["tiny_t5", "tiny_gpt2"])
def test_the_loss_is_the_answers_mean_and_lambda_times_that_of_the_reasons(
        folder: str, request: pytest.FixtureRequest) -> None:
    place: Path = request.getfixturevalue(folder)
    encoding, model = encoding_of(place), saucier.load(place, dtype="float32")
    task = build_task(StepByStep(weight=0.25))
    sheet = task.encode(rows(), encoding)
    assert sheet.example_numbers.tolist() == [0, 1, 0, 1]
    batch = sheet.batch(np.arange(4))
    loss = task.objective(model, batch)
    means = []
    for name in ("labels", RATIONALE_LABELS):
        labels = batch[name]
        given = {key: value for key, value in batch.items() if key not in ("labels", RATIONALE_LABELS)}
        logits = model(**given).logits.log_softmax(-1)
        kept = labels != IGNORED
        means.append(-logits[kept].gather(-1, labels[kept][:, None]).mean().item())
    assert loss.over(task.objective.count(batch)).item() == pytest.approx(means[0] + 0.25 * means[1], rel=PART)


def test_each_prefix_asks_for_its_own(tiny_t5: Path) -> None:
    encoding = encoding_of(tiny_t5)
    tokenizer, task = encoding.tokenizer, build_task(StepByStep())
    sheet = task.encode(rows(), encoding)
    assert sheet.sequences["input_ids"].row(0).tolist() == tokenizer.encode("[label] the soup is fine")
    assert sheet.sequences["input_ids"].row(2).tolist() == tokenizer.encode("[rationale] the soup is fine")
    assert sheet.sequences["labels"].row(0).tolist() == tokenizer.encode("good")
    assert set(sheet.sequences[RATIONALE_LABELS].row(0).tolist()) == {IGNORED}
    assert set(sheet.sequences["labels"].row(2).tolist()) == {IGNORED}
    assert sheet.sequences[RATIONALE_LABELS].row(2).tolist() == tokenizer.encode("fine soup is lovely")
    assert task.fit_lengths(sheet).config.writing.tokens == len(tokenizer.encode("good"))  # type: ignore[union-attr]


def test_without_weight_only_answers_are_learned(tiny_t5: Path, tmp_path: Path) -> None:
    from saucier.tasks.examples import Tally
    from saucier.text.reading.sources import find_sources

    path = tmp_path / "rows.tsv"
    path.write_text("input\ttarget\nsoup\tgood\n")
    source = find_sources([str(path)])[0]
    task = build_task(StepByStep(weight=0))
    found = list(task.read(source, Tally(), labelled=True))
    assert len(task.encode(found, encoding_of(tiny_t5))) == 1
    with pytest.raises(saucier.InputError, match="no column for the rationale"):
        list(build_task(StepByStep()).read(source, Tally(), labelled=True))
    path.write_text("input\tother\nsoup\tgood\n")
    with pytest.raises(saucier.InputError, match=r"the target and for the rationale; columns: input, other; "
                       r"say which with --column target=NAME --column rationale=NAME"):
        list(build_task(StepByStep()).read(find_sources([str(path)])[0], Tally(), labelled=True))


def test_a_batch_of_reasons_alone_is_a_batch(tiny_t5: Path) -> None:
    encoding, model = encoding_of(tiny_t5), saucier.load(tiny_t5, dtype="float32")
    task = build_task(StepByStep())
    batch = task.encode(rows(), encoding).batch(np.array([2, 3]))
    loss = task.objective(model, batch)
    assert loss.over(task.objective.count(batch)).item() > 0
