"""Every task on every kind of body: one step of learning and an answer, or a refusal before a model is built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from tools.book import list_bodies

from saucier.errors import InputError
from saucier.jobs.finetuning.data import read_examples
from saucier.jobs.finetuning.start import build_task_model
from saucier.model import Transformer, build
from saucier.objectives.base import IGNORED
from saucier.objectives.labels import run_model
from saucier.tasks.build import TASKS, build_task
from saucier.tasks.definitions import CustomTask, TaskConfig
from saucier.tasks.encoded_examples import EncodedRows
from saucier.tasks.examples import Place
from saucier.tasks.tagging import Sentence
from saucier.tasks.task import Encoding, Predictor
from saucier.text.config import SpecialTokens, WordPiece
from saucier.text.tokenizer.tokenizer import Tokenizer
from saucier.text.tokenizer.training import train_tokenizer

TEXTS = ("the soup is fine", "the cat is sour", "a cook waits here", "my soup was cold")
ROWS: dict[str, list[dict[str, Any]]] = {
    "classification": [{"text": text, "label": "ab"[place % 2]} for place, text in enumerate(TEXTS)],
    "many_labels": [{"text": text, "labels": [["a"], ["a", "b"]][place % 2]} for place, text in enumerate(TEXTS)],
    "regression": [{"sentence1": text, "sentence2": TEXTS[0], "score": place / 2} for place, text in enumerate(TEXTS)],
    "ranking": [{"query": TEXTS[0], "passage": text, "label": place % 2} for place, text in enumerate(TEXTS)],
    "tagging": [{"tokens": text.split(), "tags": ["N", "V", "D", "A"]} for text in TEXTS],
    "question_answering": [{"question": "what is fine", "context": text, "answers": {
        "text": [text.split()[1]], "answer_start": [text.index(text.split()[1])]}} for text in TEXTS],
    "multiple_choice": [{"question": text, "choices": ["fine", "cold"], "answer": place % 2}
                        for place, text in enumerate(TEXTS)],
    "embedding": [{"anchor": text, "positive": text[2:]} for text in TEXTS],
    "inverse_cloze": [{"text": f"{text}. {text[2:]}. fine."} for text in TEXTS],
    "translation": [{"source": text, "target": text[::-1]} for text in TEXTS],
    "summarization": [{"document": text, "summary": text[:8]} for text in TEXTS],
    "text_to_text": [{"input": text, "target": text[:8]} for text in TEXTS],
    "label_to_text": [{"text": text, "label": ("cold", "fine")[place % 2]} for place, text in enumerate(TEXTS)],
    "number_to_text": [{"text": text, "score": place / 2} for place, text in enumerate(TEXTS)],
    "instruction": [{"instruction": text, "output": text[:8]} for text in TEXTS],
    "step_by_step": [{"input": text, "target": text[:4], "rationale": text[4:]} for text in TEXTS],
}
WRITTEN = ("translation", "summarization", "text_to_text", "label_to_text", "number_to_text", "instruction",
           "step_by_step")
BODIES = list_bodies()
WHOLE = "encoder and decoder, whole texts"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    special = SpecialTokens(pad="<pad>", unk="<unk>", bos="<s>", eos="</s>", cls="<cls>", sep="<sep>",
                            mask="<mask>")
    letters = " ".join("abcdefghijklmnopqrstuvwxyz0123456789.:[]")
    made = train_tokenizer(WordPiece(vocab=72, special=special), [*TEXTS, letters, letters] * 3)
    assert made.vocab_size <= 200
    return made


def task_of(kind: str) -> Any:
    return build_task(TypeAdapter[TaskConfig](TaskConfig).validate_python({"kind": kind}))


def learn_and_answer(kind: str, body: str, path: Path, tokenizer: Tokenizer) -> None:
    """What a fine-tuning does, once: read, encode, build the model, take a gradient, answer."""
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS[kind]))
    task = task_of(kind)
    examples = read_examples(task, [str(path)])
    task = task.fit_labels(examples)
    config = BODIES[body]
    encoding = Encoding(tokenizer, 32, config, 1)
    sheet = task.encode(examples, encoding)
    model: Transformer = build_task_model(build(config, seed=1), task.required_head, tokenizer)[0]
    batch = EncodedRows(sheet, np.arange(len(sheet)), np.arange(len(sheet))).encoded.batch(np.arange(len(sheet)))
    task.objective.bind(model)
    loss = task.objective(model, batch)
    loss.total.backward()
    assert torch.isfinite(loss.total)
    assert sum(one.grad is not None and bool(one.grad.any()) for one in model.parameters()) > 5
    model.generation = {**model.generation, "max_new_tokens": 4, "pad_token_id": 0, "decoder_start_token_id": 1,
                        "eos_token_id": 2}
    unlabelled = task.encode(read_examples(task, [str(path)], labelled=False), encoding)
    answers = task.predict(Predictor(model, encoding, 4), examples, unlabelled)
    assert len(answers) == len(examples)


@pytest.mark.sampled
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("kind", ROWS)
def test_a_task_learns_or_is_refused(kind: str, body: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    """What tells something of a text stands on every body; what writes needs a decoder."""
    if kind in WRITTEN and BODIES[body].decoder is None:
        with pytest.raises(InputError, match="an encoder alone writes no text"):
            learn_and_answer(kind, body, tmp_path / "rows.jsonl", tokenizer)
    else:
        learn_and_answer(kind, body, tmp_path / "rows.jsonl", tokenizer)


def test_every_kind_of_settings_has_its_row() -> None:
    """A task that can be written down can be built, and nothing else is in the table."""
    assert {*TASKS} == {*get_args(get_args(TaskConfig)[0])} - {CustomTask}


def test_a_head_that_fits_is_kept_as_it_is(tokenizer: Tokenizer) -> None:
    """Nothing of such a model is new, left out, wider, or of new tokens."""
    task = task_of("tagging").fit_labels([Sentence(Place("f", 1), "f:1", tuple("abc"), ("N", "V", "N"))])
    begun, adopted = build_task_model(build(BODIES["encoder"], seed=1), task.required_head, tokenizer)
    kept, nothing = build_task_model(begun, task.required_head, tokenizer)
    assert adopted.new and kept is begun
    assert (nothing.new, nothing.left, nothing.wider, nothing.tokens) == ((), (), (), 0)


@pytest.mark.parametrize("start", [-1, -(10**9), 10**12, "<s>", True, 1.0, [1]])
def test_a_start_that_is_no_token_is_refused(start: Any, tmp_path: Path, tokenizer: Tokenizer) -> None:
    """It stands in a model's generation_config.json, which anyone may have written."""
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS["text_to_text"]))
    body = next(one for one in BODIES.values() if one.encoder is not None and one.decoder is not None
                and one.default_target is None)
    task = task_of("text_to_text")
    with pytest.raises(InputError, match=r"decoder_start_token_id: .* is no token of a vocabulary of .*; write one"):
        task.encode(read_examples(task, [str(path)]), Encoding(tokenizer, 32, body, start))


def test_a_decoder_with_a_prefix_sees_all_of_a_text_that_it_only_reads(tokenizer: Tokenizer) -> None:
    """Another last word changes what is told of the first one; in a decoder without prefix it does not."""
    def first_logits(body: str, words: str) -> torch.Tensor:
        task = task_of("tagging").fit_labels([Sentence(Place("f", 1), "f:1", tuple("abc"), ("N", "V", "N"))])
        encoding = Encoding(tokenizer, 32, BODIES[body])
        sheet = task.encode([Sentence(Place("f", 1), "f:1", tuple(words.split()), None)], encoding)
        model = build_task_model(build(BODIES[body], seed=1), task.required_head, tokenizer)[0].eval()
        return run_model(model, sheet.batch(np.array([0]))).logits[0, 0]

    for body, sees in (("prefix decoder", True), ("decoder", False)):
        one, other = first_logits(body, "the soup cold"), first_logits(body, "the soup cat")
        assert torch.equal(one, other) is not sees


def test_the_first_question_of_a_conversation_is_the_prefix(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """The tokens before the first one that is learned see each other; no later one is seen early."""
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ROWS["instruction"][0]) + "\n")
    task = task_of("instruction")
    sheet = task.encode(read_examples(task, [str(path)]), Encoding(tokenizer, 64, BODIES["prefix decoder"]))
    batch = sheet.batch(np.array([0]))
    learned = (batch["labels"][0] != IGNORED).nonzero()[0, 0]
    assert batch["prefix_length"].tolist() == [int(learned) + 1]


def test_every_task_is_here() -> None:
    """But for mixtures, made of the others, tasks from outside, and RAG and REALM, which have passages of their own."""
    kinds = {one.model_fields["kind"].default for one in members(TaskConfig) if one is not CustomTask}
    assert kinds == {*ROWS, "mixture", "masked_retrieval", "retrieval_augmented", "open_question_answering"}


def members(union: Any) -> list[Any]:
    """The config types of a union of unions."""
    from typing import get_args

    return [found for one in get_args(union) for found in (members(one) if get_args(one) else [one])
            if hasattr(found, "model_fields")]


def test_a_model_that_was_learning_goes_on_when_a_reading_ends_early(tokenizer: Tokenizer) -> None:
    task = task_of("tagging").fit_labels([Sentence(Place("f", 1), "f:1", tuple("abc"), ("N", "V", "N"))])
    body = next(name for name, config in BODIES.items() if config.decoder is None)
    encoding = Encoding(tokenizer, 32, BODIES[body])
    sheet = task.encode([Sentence(Place("f", n), f"f:{n}", ("a", "b"), None) for n in range(4)], encoding)
    model = build_task_model(build(BODIES[body], seed=1), task.required_head, tokenizer)[0].train()
    read: list[bool] = []
    model.register_forward_pre_hook(lambda one, _: read.append(one.training))
    for _ in Predictor(model, encoding, 1).outputs(sheet):
        assert model.training and not torch.is_grad_enabled()
        break
    assert read == [False] and model.training and torch.is_grad_enabled()
    model.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(Predictor(model, encoding, 1).outputs(sheet))
    assert model.training
