"""A trained mix of all layers under a tagger: over a frozen ELMo, and over a BERT that is published without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.laws.zoo import family, scrambled
from tests.unit.jobs.finetuning.conftest import labelled_rows
from tests.unit.jobs.finetuning.test_tagging import column_file

import saucier
from saucier import config as c
from saucier.errors import InputError
from saucier.families.unpublished import elmo
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.predict import predict_answers
from saucier.jobs.finetuning.settings import read_finetuning_words
from saucier.jobs.finetuning.start import build_task_model
from saucier.jobs.finetuning.task_folder import TaskFolder
from saucier.model import build
from saucier.tasks.task import RequiredHead
from saucier.text.config import WordPiece
from saucier.text.tokenizer.training import train_tokenizer

FROZEN = ("tuning.kind=freeze", "tuning.where=[embeddings,encoder.*]")


@pytest.fixture(scope="module")
def tiny_elmo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "elmo"
    tokenizer = train_tokenizer(WordPiece(vocab=110), [text for _, text in labelled_rows(400, 0)])
    build(elmo(dim=32, cells=24, vocab=tokenizer.vocab_size, tied=True), seed=1).save(folder)
    tokenizer.save(folder)
    return folder


def tagged(start: Path, folder: Path, *words: str) -> TaskFolder:
    folder.mkdir()
    files = column_file(folder / "train.tsv", 60, 1), column_file(folder / "dev.tsv", 20, 2)
    usual = ("training.epochs=2", "training.batch=16", "training.optimizer.learning_rate=0.02",
             "training.dtype=float32")
    wanted = read_finetuning_words("tagging", [*usual, *words], str(start),
                                   {"train": [str(files[0])], "held_out": [str(files[1])]})[0]
    return finetune(wanted, folder / "run", quiet=True)


@pytest.mark.slow
def test_a_frozen_language_model_gives_features(tiny_elmo: Path, tmp_path: Path) -> None:
    """Only the mix and the head learn; the model that is left answers as it was scored."""
    folder = tagged(tiny_elmo, tmp_path / "frozen", "mix={}", *FROZEN)
    model, start = saucier.load(folder.model, dtype="float32"), saucier.load(tiny_elmo, dtype="float32")
    before = start.state_dict()
    for name, value in model.state_dict().items():
        if name.startswith(("embed.", "encoder.")):
            assert torch.equal(value, before[name]), name
    assert model.mix.weights.std() > 0
    assert model.mix.scale != 1
    told = [json.loads(line)["prediction"] for line in folder.predictions("held-out").read_text().splitlines()]
    again = predict_answers(folder.path, [str(tmp_path / "frozen" / "dev.tsv")])
    assert sum(one.prediction == other for one, other in zip(again.answers, told, strict=True)) >= len(told) - 1


@pytest.mark.slow
def test_a_published_body_is_mixed_in_our_layout(tiny_bert: Path, tmp_path: Path) -> None:
    """No family publishes a mix, so that what is saved is ours."""
    folder = tagged(tiny_bert, tmp_path / "bert", "mix.norm.kind=plain_layer_norm")
    model = saucier.load(folder.model, dtype="float32")
    assert model.config.mix is not None
    assert model.config.mix.norm is not None
    assert len(model.mix.weights) == 3


def test_a_head_behind_two_stacks_reads_no_mix() -> None:
    """The mix of an encoder-decoder is what its decoder reads, which a trained one would not understand."""
    body = scrambled(family("bart"))
    with pytest.raises(InputError) as caught:
        build_task_model(body, RequiredHead("token", c.TokenHead(classes=2), ("a", "b")), None, mix=c.LayerMix())
    assert caught.value.where == "mix"
    assert caught.value.remedy
