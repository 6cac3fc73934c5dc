"""`App`: what a model answers follows from what it is, as `predict`, `write` and `embed` give it."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch

import saucier
from saucier.errors import InputError
from saucier.jobs.answer_forms import FilledText, FoundText, Label, Labels, Number, Tags
from saucier.jobs.app import App, listen
from saucier.jobs.finetuning.predict import predict_answers


@pytest.fixture(autouse=True)
def in_box(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in the box, whose adapters name their base by a short path."""
    monkeypatch.chdir(root / "tests" / "frozen" / "box")


def test_a_classifier_says_what_predict_says() -> None:
    app = saucier.open("tasks/classification")
    texts = ["the soup is fine", "a guest was cold tonight"]
    expected = predict_answers("tasks/classification", [], texts).answers
    found = app.batch(texts)
    assert [one.label for one in found] == [one.prediction for one in expected]
    assert [one.score for one in found] == pytest.approx([one.confidence for one in expected])
    assert sum(found[0].scores.values()) == pytest.approx(1.0, abs=1e-3)
    assert app(texts[0]) == found[0]
    assert str(found[0]) == found[0].label
    assert app.batch([{"sentence": texts[0], "id": 3}]) == found[:1]
    assert app.batch([]) == []


@pytest.mark.parametrize(("model", "texts", "kind"), [
    ("tasks/many_labels", ("the soup is fine",), Labels), ("tasks/regression", ("the cook", "a cook"), Number),
    ("tasks/tagging", ("the cook is a guest",), Tags), ("tasks/multiple_choice", ("a guest is", "fine", "sour"), Label),
    ("tasks/question_answering", ("who is it", "the cook is fine"), FoundText),
    ("models/bert", ("the [MASK] is [MASK]",), FilledText), ("models/gpt2", ("the cook",), str),
    ("tasks/translation", ("the cook",), str), ("runs/finished", ("the",), str), ("adapters/own-lora", ("the",), str)])
def test_each_kind_of_model_answers_in_its_form(model: str, texts: tuple[str, ...], kind: type) -> None:
    app = saucier.open(model)
    assert isinstance(app(*texts), kind)
    assert repr(app).startswith("App(")
    assert (app.dtype, app.device.type) == (torch.float32, "cpu")


@pytest.mark.filterwarnings("ignore:the matrices in")
def test_a_number_format_is_that_of_predict_and_write() -> None:
    texts, words = ["the soup is fine", "a guest was cold tonight"], "the cook"
    app, plain = saucier.open("tasks/classification", format="int4"), saucier.open("tasks/classification")
    answers = predict_answers("tasks/classification", [], texts, number_format="int4").answers
    expected = [one.confidence for one in answers]
    assert [one.score for one in app.batch(texts)] == pytest.approx(expected)
    assert [one.score for one in plain.batch(texts)] != pytest.approx(expected)
    assert saucier.open("models/gpt2", format="int8")(words, tokens=8, temperature=0) == saucier.write(
        "models/gpt2", words, tokens=8, temperature=0, format="int8").text
    with pytest.raises(InputError, match="int5"):
        saucier.open("models/gpt2", format="int5")  # type: ignore[arg-type]


def test_tags_come_with_the_pieces_that_they_mark() -> None:
    text = "the cook  is a guest"
    found = saucier.open("tasks/tagging")(text)
    assert len(found.tags) == 5
    assert all(text[one.start:one.end] == one.text for one in found.spans)


def test_vectors_are_those_of_embed() -> None:
    app = saucier.open("tasks/embedding")
    texts = ["the cook is fine", "soup"]
    expected = saucier.embed("tasks/embedding/model", texts).numpy()
    np.testing.assert_allclose(np.stack(app.batch(texts)), expected, atol=1e-6)
    assert app(texts[1]).shape == expected[1].shape


def test_masks_are_filled_with_the_likeliest_tokens() -> None:
    app = saucier.open("models/bert")
    text = "the [MASK] is [MASK]"
    found = app(text)
    ids = torch.tensor([app.tokenizer.encode(text)])
    with torch.inference_mode():
        chances = app.model(ids).logits[0, 2].softmax(-1)
    first, chance = next(iter(found.fills[0].items()))
    token = app.tokenizer.token_to_id(first)
    assert token is not None and token not in app.tokenizer.special_ids
    assert chance == pytest.approx(float(chances[token]))
    assert found.text.split()[1] == first
    assert len(found.fills) == 2
    with pytest.raises(InputError, match=r"there is no \[MASK\] in the text"):
        app("the cook")


@pytest.mark.slow
def test_what_is_streamed_is_what_is_written() -> None:
    app = saucier.open("models/gpt2")
    whole = app("the cook", tokens=20, seed=1)
    pieces = list(app.stream("the cook", tokens=20, seed=1))
    assert "".join(pieces) == whole
    assert len(pieces) > 3
    assert whole == saucier.write("models/gpt2", "the cook", tokens=20, seed=1).text
    greedy = app.batch(["the cook", "a guest"], tokens=8, temperature=0)
    assert greedy == [app(text, tokens=8, temperature=0) for text in ("the cook", "a guest")]
    translation = saucier.open("runs/translation")
    assert "".join(translation.stream("the cook")) == translation("the cook")


def test_who_stops_listening_stops_the_writer() -> None:
    before = threading.active_count()
    stream = saucier.open("models/gpt2").stream("the cook", tokens=10_000, seed=1)
    assert next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_what_a_writer_raises_is_raised_where_it_is_read() -> None:
    def write(speak: object) -> None:
        raise InputError("no", where="here")

    with pytest.raises(InputError, match="here: no"):
        list(listen(write))


def test_another_tokenizer_is_taken_if_it_fits() -> None:
    own, other = saucier.open("models/gpt2"), saucier.open("models/gpt2", tokenizer="tokenizers/byte_bpe")
    given = saucier.open("models/gpt2", tokenizer=saucier.load_tokenizer("models/gpt2"))
    assert given("the", tokens=4, temperature=0) == own("the", tokens=4, temperature=0)
    assert isinstance(other, App)
    with pytest.raises(InputError, match="the tokenizer does not fit the model"):
        saucier.open("models/bert", tokenizer="tokenizers/byte_bpe")


@pytest.mark.parametrize(("model", "call", "words"), [
    ("tasks/classification", lambda app: app(3), "text: is int 3"),
    ("tasks/classification", lambda app: app(), "there is no text"),
    ("tasks/classification", lambda app: app.batch("text"), "rows: is str"),
    ("tasks/classification", lambda app: app.batch([{"words": "a"}]), "a row names words"),
    ("tasks/classification", lambda app: app.stream("a"), "writes no text piece by piece"),
    ("tasks/question_answering", lambda app: app("who"), "a question and its text are needed"),
    ("models/gpt2", lambda app: app("a", "b"), "this model reads one text a row"),
    ("tasks/embedding", lambda app: app("a", "b"), "a vector is of one text")])
def test_what_is_no_text_of_its_kind_is_refused(model: str, call: object, words: str) -> None:
    app = saucier.open(model)
    with pytest.raises(InputError, match=words):
        call(app)  # type: ignore[operator]


def test_options_belong_to_models_that_write() -> None:
    with pytest.raises(TypeError, match="tokens"):
        saucier.open("tasks/classification")("the soup", tokens=3)
    with pytest.raises(TypeError, match="tokenz"):
        saucier.open("models/gpt2")("the soup", tokenz=3)
