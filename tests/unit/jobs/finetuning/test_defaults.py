"""What a new fine-tuning takes over from its model and its rows: pooling, rate, split; and classes that count alike."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.unit.jobs.finetuning.conftest import labelled_rows

from saucier import config as c
from saucier.errors import InputError
from saucier.families.modernbert import modernbert
from saucier.folders.load import load
from saucier.jobs.finetuning.data import read_splits
from saucier.jobs.finetuning.defaults import choose_rate, published_pick
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.predict import predict_answers
from saucier.jobs.finetuning.settings import Finetuning, read_finetuning, read_finetuning_words
from saucier.model import build
from saucier.objectives.labels import ClassLabels
from saucier.tasks.build import build_task
from saucier.tasks.classification import TextTask
from saucier.tasks.definitions import Classification

Table = Callable[..., Path]
WORDS = ["training.epochs=1", "training.batch=16", "training.dtype=float32"]


@pytest.fixture
def sentence_bert(tiny_bert: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that makes a folder of sentence-transformers with a pooling."""
    def make(pooling: str) -> Path:
        folder = tmp_path / f"sentence-{pooling}"
        shutil.copytree(tiny_bert, folder)
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(
            {"word_embedding_dimension": 32, f"pooling_mode_{pooling}_tokens": True}
            if pooling != "cls" else {"word_embedding_dimension": 32, "pooling_mode_cls_token": True}))
        (folder / "modules.json").write_text(json.dumps(
            [{"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
             for place, (kind, path) in enumerate([("Transformer", ""), ("Pooling", "1_Pooling")])]))
        return folder

    return make


def settings(model: Path, train: Path, *words: str) -> Finetuning:
    return read_finetuning_words("classification", [*WORDS, *words], str(model), {"train": [str(train)]})[0]


def test_pooling_is_that_of_modules_json(sentence_bert: Callable[[str], Path], table: Table, tmp_path: Path,
                                         capsys: pytest.CaptureFixture[str]) -> None:
    train = table("train.tsv", "label,text", labelled_rows(60, 1))
    wanted = settings(sentence_bert("mean"), train)
    assert wanted.task.pick == c.PickVector(kind="mean")  # type: ignore[union-attr]
    folder = finetune(wanted, tmp_path / "run")
    assert "texts are read by the mean of their vectors, as modules.json says" in capsys.readouterr().out
    assert read_finetuning(tmp_path / "run" / "finetune.yaml") == wanted
    head = load(folder.path).config.head
    assert isinstance(head, c.ClassificationHead)
    assert head.pick == c.PickVector(kind="mean")
    assert settings(folder.path, train).task.pick is None  # type: ignore[union-attr]  # its own head says it
    for pooling, kind in (("cls", None), ("max", None)):
        assert settings(sentence_bert(pooling), train).task.pick is kind  # type: ignore[union-attr]
    chosen = settings(tmp_path / "sentence-mean", train, "task.pick=null")
    assert chosen.task.pick is None  # type: ignore[union-attr]


def test_what_an_older_version_began_keeps_its_meaning(sentence_bert: Callable[[str], Path], table: Table,
                                                       tmp_path: Path) -> None:
    """`pick: null` is the family's own, and a document without `split` holds rows out as it did."""
    train = table("train.tsv", "label,text", labelled_rows(60, 1))
    old = settings(sentence_bert("mean"), train, "task.pick=null", "data.split=null")
    document = old.as_dict()
    for section, names in (("data", ["split"]), ("task", ["class_weights"]), ("training", ["stop"])):
        for name in names:
            del document[section][name]
    for name in ("search", "range_test"):
        del document[name]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "finetune.yaml").write_text(json.dumps(document))
    read, folder = read_finetuning_words(str(tmp_path / "run"), [], None, {})
    assert folder == tmp_path / "run"
    assert read == old
    assert read.task.pick is None  # type: ignore[union-attr]
    assert read.data.split is None
    done = finetune(read, tmp_path / "run", quiet=True)
    assert json.loads((done.model / "config.json").read_text())["architectures"] == ["BertForSequenceClassification"]


@pytest.mark.slow
def test_a_published_mean_is_written_where_the_family_has_one(tmp_path: Path, tiny_bert: Path, table: Table) -> None:
    model = build(modernbert(dim=32, layers=2, heads=2, hidden=48, vocab=110), seed=0)
    model.save(tmp_path / "modern")
    for path in tiny_bert.glob("*token*"):
        shutil.copy(path, tmp_path / "modern")
    train = table("train.tsv", "label,text", labelled_rows(60, 1))
    done = finetune(settings(tmp_path / "modern", train, "task.pick.kind=mean"), tmp_path / "run", quiet=True)
    document = json.loads((done.model / "config.json").read_text())
    assert document["architectures"] == ["ModernBertForSequenceClassification"]
    assert document["classifier_pooling"] == "mean"


def test_the_rate_falls_with_the_width(tmp_path: Path) -> None:
    for width, rate in ((384, 1e-4), (768, 5e-5), (1024, 3.8e-5), (32, 2e-4), (8192, 1e-5)):
        (tmp_path / "config.json").write_text(json.dumps({"hidden_size": width}))
        assert choose_rate(tmp_path, 5e-5) == pytest.approx(rate)
    (tmp_path / "config.json").write_text("{}")
    assert choose_rate(tmp_path, 5e-5) == 5e-5
    assert published_pick(str(tmp_path)) is None


def test_each_class_gives_the_same_share(tiny_bert: Path, table: Table) -> None:
    rows = [("rare" if number % 20 == 0 else "good" if number % 2 else "bad", f"{text} {number // 2}")
            for number, (_, text) in enumerate(labelled_rows(400, 1))]
    rows += [("single", "only once"), *rows[:4]]  # equal texts stay together
    wanted = settings(tiny_bert, table("train.tsv", "label,text", rows))
    splits = read_splits(build_task(wanted.task), wanted.data)
    sides = [Counter(one.label for one in side) for side in (splits.train, splits.held_out)]
    for label in ("rare", "good", "bad"):
        share = sides[1][label] / (sides[0][label] + sides[1][label])
        assert share == pytest.approx(0.1, abs=0.03)
    assert sides[1]["single"] == 0
    assert not {one.text for one in splits.train} & {one.text for one in splits.held_out}
    notes = list(splits.task.training_notes(splits.task.encode(splits.train, encoding(tiny_bert))))
    assert notes == ["warning: only one row of single: nothing general can be learned of a class from one row; "
                     "add rows, or join it with another"]


def encoding(folder: Path) -> object:
    from saucier.lens.subject import find_subject
    from saucier.tasks.task import Encoding
    from saucier.text.tokenizer.tokenizer import load_tokenizer

    return Encoding(load_tokenizer(folder), 48, find_subject(str(folder)).model)


def test_balanced_classes_count_alike(table: Table) -> None:
    rows = [*(("a", f"text {number}") for number in range(30)), ("b", "x"), ("b", "y")]
    train = table("train.tsv", "label,text", rows)
    wanted = read_finetuning_words("classification", ["task.class_weights=balanced"], "bert-nano",
                                   {"train": [str(train)], "held_out": [str(train)]})[0]
    task = read_splits(build_task(wanted.task), wanted.data).task
    assert task.config.class_weights == {"a": pytest.approx(32 / 60), "b": pytest.approx(8.0)}
    assert task.objective == ClassLabels((pytest.approx(32 / 60), pytest.approx(8.0)))  # type: ignore[arg-type]
    given = TextTask(Classification(labels=("a", "b"), class_weights={"b": 3.0}))
    assert given.objective == ClassLabels((1.0, 3.0))


def test_weights_are_those_of_torch() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(7, 3), torch.tensor([0, 1, 2, 2, 1, 0, 2])
    weights = (0.5, 2.0, 1.0)
    objective = ClassLabels(weights)
    part = objective.of(logits, {"labels": labels}).parts["labels"]
    expected = torch.nn.functional.cross_entropy(logits, labels, weight=torch.tensor(weights))
    assert part.total / part.weight == pytest.approx(float(expected))
    assert objective.count({"labels": labels})["labels"] == pytest.approx(part.weight) == pytest.approx(8.0)


@pytest.mark.slow
def test_training_stops_by_a_metric_and_keeps_its_best(tiny_bert: Path, table: Table, tmp_path: Path) -> None:
    train = table("train.tsv", "label,text", labelled_rows(96, 1))
    wanted = settings(tiny_bert, train, "training.epochs=30", "training.optimizer.learning_rate=0.003",
                      "training.stop.metric=macro-f1", "training.stop.patience=3")
    folder = finetune(wanted, tmp_path / "run", quiet=True)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    measured = [line["evaluation"]["macro-f1"] for line in lines if "evaluation" in line]
    best = measured.index(max(measured))
    assert len(measured) == min(30, best + 1 + 3)
    kept = json.loads(folder.scores.read_text())["held-out"]["scores"]
    assert next(one["value"] for one in kept if one["name"] == "macro F1") == pytest.approx(max(measured))


@pytest.mark.slow
def test_the_mean_is_saved_as_modules_that_others_open(sentence_bert: Callable[[str], Path], table: Table,
                                                       tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The logits are what pooling and Dense make of the vectors of the body, which `transformers` opens."""
    train = table("train.tsv", "label,text", labelled_rows(60, 1))
    done = finetune(settings(sentence_bert("mean"), train), tmp_path / "run")
    assert "in the layout sentence-transformers" in capsys.readouterr().out
    kinds = [one["type"].rsplit(".", 1)[-1] for one in json.loads((done.model / "modules.json").read_text())]
    assert kinds == ["Transformer", "Pooling", "Dense"]
    document = json.loads((done.model / "config.json").read_text())
    assert document["architectures"] == ["BertModel"]
    assert document["id2label"] == {"0": "bad", "1": "good"}
    model = load(done.path, dtype="float32")
    assert isinstance(model.config.head, c.ClassificationHead)
    ids, mask = torch.tensor([[5, 6, 7, 8], [9, 10, 0, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    with torch.no_grad():
        logits = model(ids, mask).logits
    dense = load_file(done.model / "2_Dense" / "model.safetensors")
    transformers = pytest.importorskip("transformers")
    body = transformers.AutoModel.from_pretrained(done.model, add_pooling_layer=False).eval()
    with torch.no_grad():
        hidden = body(ids, attention_mask=mask).last_hidden_state
    mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    torch.testing.assert_close(logits, mean @ dense["linear.weight"].T + dense["linear.bias"], atol=1e-5, rtol=1e-4)
    said = [json.loads(line) for line in done.predictions("held-out").read_text().splitlines()]
    again = predict_answers(done.path, [], [one["texts"][0] for one in said])
    assert [one.prediction for one in again.answers] == [one["prediction"] for one in said]
    head = model.head.output.weight  # type: ignore[union-attr]
    more = finetune(settings(done.path, train, "training.optimizer.learning_rate=1e-12"), tmp_path / "more", quiet=True)
    torch.testing.assert_close(load(more.path, dtype="float32").head.output.weight, head)  # type: ignore[union-attr]
    model.save(tmp_path / "again")
    torch.testing.assert_close(load(tmp_path / "again", dtype="float32")(ids, mask).logits, logits)


def test_weights_of_classes_are_by_name(table: Table) -> None:
    """A command line reads 0 as a number, and the class is still called so."""
    train = table("train.tsv", "label,text", labelled_rows(20, 1))

    def weights(*words: str) -> object:
        found: object = read_finetuning_words("classification", words, "bert-nano", {"train": [str(train)]})[0].task
        return getattr(found, "class_weights")  # noqa: B009 - a task of any kind

    assert weights("task.class_weights.0=3") == {"0": 3.0}
    assert weights("task.class_weights=balanced") == "balanced"
    for word in ("even", "{a: -1}", "{a: yes}", "[1, 2]"):
        with pytest.raises(InputError, match=r"task\.class_weights") as error:
            weights(f"task.class_weights={word}")
        assert len(str(error.value).splitlines()) == 1
