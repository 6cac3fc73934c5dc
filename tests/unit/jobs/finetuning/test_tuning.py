"""Fine-tuning a little: each kind learns, is saved as what it is, and answers again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from tests.unit.jobs.finetuning.conftest import labelled_rows
from tests.unit.jobs.finetuning.test_finetune import files, scores, settings  # noqa: F401  # a fixture

import saucier
from saucier.cli import main
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.predict import predict_answers
from saucier.jobs.finetuning.settings import read_finetuning_words

LITTLE = "training.epochs=1"
"""Beside a body with random weights, biases and bottlenecks learn nothing worth measuring."""
KINDS = {"lora": ["tuning.where=[linear]"], "qlora": [], "bias": [LITTLE], "adapter": ["tuning.width=8", LITTLE],
         "freeze": ["tuning.where=[]", "tuning.lower=1"], "prefix": ["tuning.length=4", "tuning.hidden=8", LITTLE],
         "prompt": ["tuning.length=4", LITTLE]}
FORMS = {"lora": "LORA", "qlora": "LORA", "prompt": "PROMPT_TUNING"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_learns_and_answers_again(kind: str, tiny_bert: Path, files: tuple[Path, Path],  # noqa: F811
                                            tmp_path: Path) -> None:
    words = [f"tuning.kind={kind}", *KINDS[kind], "training.optimizer.learning_rate=0.003"]
    folder = finetune(settings(tiny_bert, *files, *words), tmp_path / "run", quiet=True)
    assert LITTLE in KINDS[kind] or scores(folder)["accuracy"] > 0.75
    if kind == "freeze":
        assert (folder.model / "config.json").is_file()
    else:
        document = json.loads((folder.model / "adapter_config.json").read_text())
        assert document["peft_type"] == FORMS.get(kind, "SAUCIER")
        weights = folder.model / "adapter_model.safetensors"
        assert weights.stat().st_size < 0.5 * (tiny_bert / "model.safetensors").stat().st_size
    again = predict_answers(folder.path, [str(files[1])])
    told = [json.loads(line)["prediction"] for line in folder.predictions("held-out").read_text().splitlines()]
    same = sum(one.prediction == other for one, other in zip(again.answers, told, strict=True))
    assert same >= (70 if LITTLE in KINDS[kind] else 79)  # asked in bfloat16 where that is faster: near ties may turn


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lora", "adapter"])
def test_a_base_that_was_moved_is_named(kind: str, tiny_bert: Path, files: tuple[Path, Path],  # noqa: F811
                                        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The answers are those from before; the tokenizer is the base's, where none stands beside the adapter."""
    base, moved = tmp_path / "base", tmp_path / "moved"
    shutil.copytree(tiny_bert, base)
    folder = finetune(settings(base, *files, f"tuning.kind={kind}", *KINDS[kind], LITTLE), tmp_path / "run", quiet=True)
    rows = [str(files[1])]
    before = [one.prediction for one in predict_answers(folder.path, rows).answers]
    base.rename(moved)
    for path in folder.model.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(saucier.InputError, match=r"its base model is not there.*--base"):
        predict_answers(folder.path, rows)
    assert [one.prediction for one in predict_answers(folder.path, rows, base=str(moved)).answers] == before
    assert main(["predict", str(folder.path), "--text", "a fine film", "--base", str(moved)]) == 0
    assert main(["doctor", str(folder.path), "--text", rows[0], "--base", str(moved)]) == 0
    assert "no tokenizer" not in capsys.readouterr().out
    assert main(["predict", str(tiny_bert), "--text", "a fine film", "--base", str(moved)]) == 2
    assert "holds a whole model" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["merge", "convert"])
def test_a_merged_adapter_answers_as_before(verb: str, tiny_bert: Path, files: tuple[Path, Path],  # noqa: F811
                                            tmp_path: Path) -> None:
    """With its task and the names of its labels beside it."""
    folder = finetune(settings(tiny_bert, *files, "tuning.kind=lora", LITTLE), tmp_path / "run", quiet=True)
    assert main([verb, str(folder.path), *([] if verb == "convert" else ["--out"]), str(tmp_path / "merged")]) == 0
    assert json.loads((tmp_path / "merged/config.json").read_text())["id2label"] == {"0": "bad", "1": "good"}
    assert (tmp_path / "merged/task.json").read_text() == (folder.model / "task.json").read_text()
    texts = ["a fine film", "cold soup"]
    before, after = ([one.prediction for one in predict_answers(place, [], texts).answers]
                     for place in (folder.path, tmp_path / "merged"))
    assert set(after) <= {"good", "bad"} and after == before


@pytest.mark.slow
def test_peft_reads_a_tuned_classifier(tiny_bert: Path, files: tuple[Path, Path], tmp_path: Path) -> None:  # noqa: F811
    transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
    words = ["tuning.kind=lora", "tuning.rank=4", "training.epochs=1"]
    folder = finetune(settings(tiny_bert, *files, *words), tmp_path / "run", quiet=True)
    base = transformers.AutoModelForSequenceClassification.from_pretrained(tiny_bert, num_labels=2)
    adapted = peft.PeftModel.from_pretrained(base, str(folder.model)).eval()
    ours = saucier.load(folder.path, dtype="float32", device="cpu")
    ids = torch.tensor([[2, 9, 30, 41, 12, 3]])
    with torch.no_grad():
        torch.testing.assert_close(adapted(input_ids=ids).logits, ours(ids).logits, rtol=1e-5, atol=1e-5)


def test_rates_that_suit_what_is_added() -> None:
    named = {"train": ["train.tsv"]}

    def rate(*words: str) -> float:
        return read_finetuning_words("classification", words, "model", named)[0].training.optimizer.learning_rate

    assert (rate(), rate("tuning.kind=lora"), rate("tuning.kind=freeze")) == (5e-5, 1e-3, 5e-5)
    assert rate("tuning={kind: lora, rank: 2}") == 1e-3
    assert rate("tuning.kind=lora", "training.optimizer={kind: adamw, weight_decay: 0}") == 1e-3
    assert rate("tuning.kind=lora", "training.optimizer.learning_rate=0.2") == 0.2
    wanted = read_finetuning_words("classification", ["training.layer_rates.factor=0.8"], "model", named)[0]
    assert wanted.training.training(10, 8).layer_rates.factor == 0.8


@pytest.mark.slow
def test_a_stopped_tuning_goes_on(tiny_bert: Path, files: tuple[Path, Path], tmp_path: Path) -> None:  # noqa: F811
    """What was saved in the middle is refilled, and the rows of the data do not change."""
    assert labelled_rows(3, 1) == labelled_rows(3, 1)
    wanted = settings(tiny_bert, *files, "tuning.kind=lora", "training.epochs=1")
    folder = finetune(wanted, tmp_path / "run", quiet=True)
    with pytest.raises(saucier.InputError, match="another fine-tuning: tuning"):
        finetune(settings(tiny_bert, *files, "training.epochs=1"), folder.path)
