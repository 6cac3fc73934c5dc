"""What is to be written: a new tokenizer learns from it, and a person hears where a tokenizer does not know it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.jobs.finetuning.data import Splits, describe_unknown_tokens, select_positions
from saucier.jobs.finetuning.results import format_answer
from saucier.jobs.finetuning.start import training_texts
from saucier.tasks.build import build_task
from saucier.tasks.encoded_examples import EncodedExamples, Ragged
from saucier.tasks.examples import Place
from saucier.tasks.labelled_texts import LabelledText
from saucier.tasks.task import Task
from saucier.tasks.written.definitions import LabelToText, Member, Mixture, NumberToText, StepByStep, Summarization
from saucier.tasks.written.task_mixture import MixtureExample
from saucier.tasks.written.text_to_text import WrittenText
from saucier.text.config import WordPiece
from saucier.text.tokenizer.training import train_tokenizer

PLACE = Place("file", 1)
CLASSES = LabelToText(words={"0": "bad", "1": "fine"}, labels=("0", "1"))
CLASS: LabelledText = LabelledText(PLACE, "one", "soup", None, "1")
MIXED = Mixture(tasks={"tone": Member(task=CLASSES), "score": Member(task=NumberToText())})


@pytest.mark.parametrize(("task", "example", "told"), [
    (build_task(CLASSES), CLASS, ["soup", "fine"]),
    (build_task(NumberToText()), LabelledText(PLACE, "one", "soup", None, 3.75), ["soup", "3.8"]),
    (build_task(Summarization()), WrittenText(PLACE, "one", "a long soup", ("soup", "stew")),
     ["a long soup", "soup", "stew"]),
    (build_task(StepByStep()), WrittenText(PLACE, "one", "soup", ("good",), "it is hot"),
     ["[label] ", "[rationale] ", "soup", "good", "it is hot"]),
    (build_task(MIXED), MixtureExample(PLACE, "one", "tone", CLASS), ["soup", "fine"]),
])
def test_a_new_tokenizer_learns_from_all_that_is_written(task: Task, example: Any, told: list[str]) -> None:
    body = FAMILIES["t5"](dim=16, layers=1, heads=2, hidden=16)
    assert list(training_texts(Splits(task, [example], [], []), body)) == told


def test_what_was_written_is_shown_where_it_is_no_class() -> None:
    task = build_task(CLASSES)
    said = [format_answer(task, CLASS, task.answer(text)) for text in ("fine", "stew", "")]  # type: ignore[attr-defined]
    assert said == ["1\tsoup", "stew (no class)\tsoup", "(no class)\tsoup"]


def test_words_that_a_tokenizer_does_not_know_are_told() -> None:
    """Two classes that are the same tokens are refused, alone and in a mixture; an unknown target is said."""
    tokenizer = train_tokenizer(WordPiece(vocab=21), ["soup sat"] * 20)
    alike = CLASSES.model_copy(update={"words": {"0": "çç", "1": "ßß"}})
    for task in (build_task(alike), build_task(Mixture(tasks={**MIXED.tasks, "tone": Member(task=alike)}))):
        with pytest.raises(InputError, match=r"task\.words: to the tokenizer the words of '0' and '1' are the same"):
            task.extend_tokenizer(tokenizer)
    apart = build_task(CLASSES.model_copy(update={"words": {"0": "soup", "1": "sat"}}))
    assert apart.extend_tokenizer(tokenizer) is tokenizer
    splits = Splits(build_task(CLASSES), [CLASS], [], [])
    sheet = EncodedExamples({"input_ids": Ragged.of([tokenizer.encode("soup sat"), tokenizer.encode("ß soup")], 0),
                             "labels": Ragged.of([tokenizer.encode("çç"), tokenizer.encode("soup")], -100)},
                            example_numbers=np.arange(2))
    assert list(describe_unknown_tokens(splits, sheet, tokenizer)) == [
        "  1 of 8 tokens that are read are unknown to the tokenizer",
        "  1 tokens to write are unknown to the tokenizer: [UNK] is learned there"]


@pytest.mark.parametrize(("length", "first", "places"), [
    (30, 20, [*range(30)]),
    (300, 47, [*range(48)]),
    (300, 200, [*range(24), *range(196, 220)]),
    (202, 200, [*range(24), *range(196, 202)]),
])
def test_of_a_long_row_the_place_is_shown_where_learning_begins(length: int, first: int, places: list[int]) -> None:
    assert [place for part in select_positions(length, first) for place in part] == places
