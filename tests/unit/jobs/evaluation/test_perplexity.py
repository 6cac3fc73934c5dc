"""Likelihood of texts: the numbers of another library, each token counted once, and what is said of them."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tolerances import MODEL
from tests.unit.jobs.evaluation.conftest import Folder

from saucier.errors import InputError
from saucier.jobs.evaluation.evaluate import evaluate
from saucier.jobs.evaluation.likelihood import Text, cut_windows
from saucier.jobs.evaluation.measurement import EvaluationOptions
from saucier.opened import open_model

transformers: Any = pytest.importorskip("transformers")


def stride_recipe(folder: Path, ids: list[int], *, length: int, stride: int) -> float:
    """Return the perplexity as transformers' page on it computes it: windows, and labels where they are new."""
    model = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    nats, count, before = 0.0, 0, 0
    for begin in range(0, len(ids), stride):
        end = min(begin + length, len(ids))
        window, labels = torch.tensor([ids[begin:end]]), torch.tensor([ids[begin:end]])
        labels[:, :-(end - before)] = -100
        targets = int((labels[:, 1:] != -100).sum())
        with torch.no_grad():
            nats += float(model(window, labels=labels).loss) * targets
        count, before = count + targets, end
        if end == len(ids):
            return math.exp(nats / count)
    raise AssertionError("the last window ends with the text")


@pytest.mark.slow
@pytest.mark.parametrize(("length", "stride"), [(None, None), (20, 3), (20, 19)])
def test_perplexity_of_gpt2_is_that_of_the_reference(golden: Folder, box: Path, length: int | None,
                                                     stride: int | None) -> None:
    folder, text = golden("gpt2", "bpe"), box / "python.txt"
    found = evaluate(str(folder), [str(text)], EvaluationOptions(stride=stride, length=length, dtype="float32"))
    tokenizer = open_model(folder).tokenizer
    begin = tokenizer.bos_id if tokenizer.bos_id is not None else tokenizer.eos_id
    assert begin is not None
    ids = [begin, *tokenizer.encode(text.read_text(encoding="utf-8"), add_special_tokens=False)]
    expected = stride_recipe(folder, ids, length=length or 48, stride=stride or 24)
    assert found["perplexity"].value == pytest.approx(expected, rel=MODEL)
    assert found.amount == len(ids) - 1
    bits = found["loss"].value * found.amount / math.log(2) / len(text.read_bytes())
    assert found["bits per byte"].value == pytest.approx(bits, rel=1e-9)
    assert found["perplexity"].low < found["perplexity"].value < found["perplexity"].high


def test_every_token_but_the_first_is_a_target_once() -> None:
    ids = list(range(100, 171))
    for length in (2, 7, 71, 100):
        for stride in {1, length // 2 or 1, length - 1}:
            rows = list(cut_windows(Text(ids, 0), 0, length=length, stride=stride))
            assert Counter(one for row in rows for one in row.targets) == Counter(ids[1:])
            for row in rows:  # what predicts a target is right before it, after enough others
                assert [row.ids[place + 1] for place in row.places] == list(row.targets)
                assert row is rows[0] or min(row.places) + 1 >= length - stride


def test_documents_are_measured_apart_and_drawn_again(box: Path, tmp_path: Path) -> None:
    texts = [line for line in (box / "kitchen.txt").read_text(encoding="utf-8").splitlines() if line][:6]
    rows = tmp_path / "texts.jsonl"
    rows.write_text("".join(json.dumps({"said": text, "id": number}) + "\n" for number, text in enumerate(texts)))
    model = str(box / "models" / "gpt2")
    whole = evaluate(model, [str(rows)], EvaluationOptions(["data.column=said"]))
    alone = []
    for text in texts:
        (tmp_path / "one.txt").write_text(text)
        alone.append(evaluate(model, [str(tmp_path / "one.txt")]))
    nats = sum(one["loss"].value * one.amount for one in alone)
    assert whole["loss"].value == pytest.approx(nats / sum(one.amount for one in alone), rel=1e-5)
    assert (whole["loss"].unit, whole["loss"].count) == ("documents", 6)
    first = evaluate(model, [str(rows)], EvaluationOptions(["data.column=said"], limit=1))
    assert first["loss"].value == pytest.approx(alone[0]["loss"].value, rel=1e-6)
    with pytest.raises(InputError, match=r"which column holds the text.*said, id.*data.column"):
        evaluate(model, [str(rows)])


def test_layouts_of_one_model_give_one_number(box: Path) -> None:
    text = [str(box / "kitchen.txt")]
    published, own = (evaluate(str(box / "models" / name), text) for name in ("gpt2", "own"))
    assert [one.value for one in published.scores] == pytest.approx([one.value for one in own.scores], rel=1e-6)


def test_an_adapter_is_measured_on_its_base(in_box: Path) -> None:
    found = [evaluate(name, ["kitchen.txt"])["perplexity"].value for name in ("adapters/own-lora", "models/gpt2")]
    assert found[0] < found[1]
    for name in ("prefix", "prompt"):  # their vectors take places that the windows leave free
        assert evaluate(f"adapters/{name}", ["kitchen.txt"]).kind == "language model"


def test_pseudo_perplexity_is_that_of_the_reference(golden: Folder, box: Path, tmp_path: Path) -> None:
    folder, text = golden("bert-masked-lm", "wordpiece"), "the cook was quite rich"
    (tmp_path / "one.txt").write_text(text)
    found = evaluate(str(folder), [str(tmp_path / "one.txt")], EvaluationOptions(stride=40, dtype="float32"))
    tokenizer = open_model(folder).tokenizer
    ids, model = tokenizer.encode(text), transformers.BertForMaskedLM.from_pretrained(folder).eval()
    nats = []
    for place in range(1, len(ids) - 1):
        hidden = torch.tensor([[*ids[:place], tokenizer.mask_id, *ids[place + 1:]]])
        with torch.no_grad():
            nats.append(-float(model(hidden).logits[0, place].log_softmax(-1)[ids[place]]))
    assert found["pseudo-perplexity"].value == pytest.approx(math.exp(np.mean(nats)), rel=MODEL)
    assert found.amount == len(ids) - 2


@pytest.mark.slow
def test_every_token_is_hidden_once_however_many_are_hidden_together(box: Path) -> None:
    text = [str(box / "kitchen.txt")]
    found = [evaluate(str(box / "models" / "bert"), text, EvaluationOptions(stride=every)) for every in (2, 7, 62)]
    assert len({one.amount for one in found}) == 1
    assert "bits per byte" not in {one.name for one in found[0].scores}


@pytest.mark.slow
def test_a_memory_goes_on_from_piece_to_piece(golden: Folder, box: Path) -> None:
    folder = golden("transfo-xl", "bpe")
    found = {memory: evaluate(str(folder), [str(box / "stories.txt")], EvaluationOptions(
        memory=memory, length=8, limit=1, dtype="float32")) for memory in (1, 64)}
    assert found[1].amount == found[64].amount
    assert found[1]["loss"].value != found[64]["loss"].value
    with pytest.raises(InputError, match="--stride: a language model with a memory does not read it"):
        evaluate(str(folder), [str(box / "stories.txt")], EvaluationOptions(stride=4))


@pytest.mark.parametrize(("options", "words"), [
    (EvaluationOptions(stride=160), "--stride: windows of 160 tokens that begin 160 apart.*choose 159 or less"),
    (EvaluationOptions(length=161), "length: 161 tokens, and this model reads 160 at most"),
    (EvaluationOptions(memory=4), "--memory: a language model without a memory does not read it"),
    (EvaluationOptions(beams=4), "--beams: a language model without a memory does not read it"),
    (EvaluationOptions(["data.colum=x"]), "data.colum"),
    (EvaluationOptions(["task.label=x"]), "task")])
def test_what_a_language_model_does_not_read_is_refused(box: Path, options: EvaluationOptions, words: str) -> None:
    with pytest.raises(InputError, match=words) as error:
        evaluate(str(box / "models" / "gpt2"), [str(box / "kitchen.txt")], options)
    assert "\n" not in str(error.value)


def test_xz_needs_no_training_text(box: Path) -> None:
    found = evaluate(str(box / "models" / "gpt2"), [str(box / "kitchen.txt")], EvaluationOptions(baselines=True))
    name, (score,) = found.baselines[0]
    assert (name, score.name) == ("xz -9", "bits per byte")
    assert 0.5 < score.value < found["bits per byte"].value
