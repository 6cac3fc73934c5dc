"""GPT's input transformations: four forms, with and without the words, read by the reference library too."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.unit.jobs.finetuning.conftest import TONES, WORDS, labelled_rows

import saucier
from saucier.families.bert import bert
from saucier.families.gpt import gpt
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.predict import answer_examples, open_task, predict_answers
from saucier.jobs.finetuning.settings import read_finetuning_words
from saucier.jobs.finetuning.task_folder import TaskFolder
from saucier.model import build
from saucier.objectives.labels import ClassLabels
from saucier.objectives.prediction import AuxiliaryLanguageModelling
from saucier.tasks.definitions import Transformed
from saucier.tasks.labelled_texts import DELIMITER, EXTRACT, START, encode_transformed, extend_tokenizer
from saucier.tasks.task import Encoding
from saucier.text.config import ByteBPE
from saucier.text.tokenizer.tokenizer import Tokenizer, load_tokenizer
from saucier.text.tokenizer.training import train_tokenizer

Table = Callable[..., Path]


@pytest.fixture(scope="session")
def tiny_gpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "gpt"
    tokenizer = train_tokenizer(ByteBPE(vocab=340), [text for _, text in labelled_rows(400, 0)])
    config = gpt(vocab=tokenizer.vocab_size, dim=32, layers=2, heads=2, length=64, dropout=0.0)
    assert build(config, seed=1).save(folder) == "openai-gpt"
    tokenizer.save(folder)
    return folder


def short_rows(count: int, seed: int) -> list[tuple[str, str]]:
    draw = random.Random(seed)
    labels = [draw.choice(list(TONES)) for _ in range(count)]
    return [(label, f"{draw.choice(WORDS[:8])} {draw.choice(TONES[label])}") for label in labels]


def tuned(task: str, start: Path, files: tuple[Path, Path], out: Path, *words: str) -> TaskFolder:
    usual = ["training.epochs=6", "training.batch=16", "training.optimizer.learning_rate=0.003",
             "training.dtype=float32"]
    wanted = read_finetuning_words(task, [*usual, *words], str(start),
                                   {"train": [str(files[0])], "held_out": [str(files[1])]})[0]
    return finetune(wanted, out, quiet=True)


def score(folder: TaskFolder) -> float:
    return json.loads(folder.scores.read_text())["held-out"]["scores"][0]["value"]


def predictions(folder: TaskFolder) -> list[dict]:
    return [json.loads(line) for line in folder.predictions("held-out").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_a_text_is_classified_at_its_extract_token(weight: float, tiny_gpt: Path, table: Table, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    files = (table("train.tsv", "label,text", short_rows(240, 1)),
             table("dev.tsv", "label,text", short_rows(60, 2)))
    folder = tuned("classification", tiny_gpt, files, tmp_path / "run", "task.form.kind=gpt",
                   f"task.form.auxiliary={weight}")
    assert score(folder) > 0.9
    assert json.loads((folder.path / "model" / "task.json").read_text())["task"]["form"] == {
        "kind": "gpt", "auxiliary": weight}
    rows = predictions(folder)
    assert [one.prediction for one in predict_answers(folder.path, [str(files[1])]).answers] == [row["prediction"]
                                                                                                 for row in rows]
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder.model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder.model)
    for row in rows[:4]:
        ids = tokenizer(START + row["texts"][0] + EXTRACT, return_tensors="pt").input_ids
        assert ids[0, 0] == tokenizer.convert_tokens_to_ids(START)
        with torch.no_grad():
            chances = model(ids).logits.softmax(-1)[0]
        assert row["confidence"] == pytest.approx(float(chances.max()), abs=1e-3)


def test_a_premise_and_a_hypothesis_stand_around_a_delimiter(tiny_gpt: Path) -> None:
    tokenizer = extend_tokenizer(load_tokenizer(tiny_gpt), Transformed())
    body = gpt(vocab=tokenizer.vocab_size, dim=32, layers=1, heads=2)
    row = encode_transformed([("the soup", "is cold")], Encoding(tokenizer, 40, body))[0]["input_ids"].row(0).tolist()
    assert tokenizer.decode(row, skip_special_tokens=False).replace(" <", "<").replace("> ", ">") == \
        f"{START}the soup{DELIMITER}is cold{EXTRACT}"
    short, cut = encode_transformed([("the soup " * 9, "is cold")], Encoding(tokenizer, 16, body))
    assert len(short["input_ids"].row(0)) == 16
    assert (cut.rows, cut.tokens) == (1, len(tokenizer.encode("the soup " * 9, False)) +
                                      len(tokenizer.encode("is cold", False)) - 13)
    with pytest.raises(saucier.InputError, match="are read by a decoder"):
        encode_transformed([("the soup",)], Encoding(tokenizer, 40, bert()))


@pytest.mark.slow
def test_similarity_reads_both_orders_and_adds_their_vectors(tiny_gpt: Path, table: Table, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")

    def pairs(count: int, seed: int) -> list[tuple[str, str, str]]:
        draw, found = random.Random(seed), []
        for label, text in short_rows(count, seed):
            other = draw.choice(list(TONES))
            found.append((str(float((label == "good") + (other == "good"))), text, draw.choice(TONES[other])))
        return found

    files = (table("train.tsv", "score,sentence1,sentence2", pairs(240, 1)),
             table("dev.tsv", "score,sentence1,sentence2", pairs(60, 2)))
    folder = tuned("regression", tiny_gpt, files, tmp_path / "run", "task.form.kind=gpt_both_orders",
                   "training.epochs=16")
    assert score(folder) > 0.8
    turned = table("turned.tsv", "score,sentence1,sentence2", [(gold, second, first) for gold, first, second
                                                               in pairs(60, 2)])
    there, back = ([one.prediction for one in predict_answers(folder.path, [str(file)]).answers]
                   for file in (files[1], turned))
    assert there == pytest.approx(back, abs=1e-4)
    rows = predictions(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder.model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder.model)
    for row in rows[:4]:
        with torch.no_grad():
            both = sum(float(model(tokenizer(START + one + DELIMITER + two + EXTRACT, return_tensors="pt").input_ids)
                             .logits) for one, two in (row["texts"], row["texts"][::-1]))
        assert row["prediction"] == pytest.approx(both, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_choices_are_scored_by_the_double_head(weight: float, tiny_gpt: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")

    def written(name: str, count: int, seed: int) -> Path:
        draw, path = random.Random(seed), tmp_path / name
        rows = []
        for _ in range(count):
            right = draw.randrange(2)
            choices = [draw.choice(TONES["good" if place == right else "bad"]) for place in range(2)]
            rows.append({"question": f"{draw.choice(WORDS[:8])} is", "choices": choices, "answer": right})
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        return path

    folder = tuned("multiple_choice", tiny_gpt, (written("a.jsonl", 160, 1), written("b.jsonl", 40, 2)),
                   tmp_path / "run", "task.form.kind=gpt", f"task.form.auxiliary={weight}")
    assert score(folder) > 0.9
    assert json.loads((folder.model / "config.json").read_text())["architectures"] == ["OpenAIGPTDoubleHeadsModel"]
    model = transformers.OpenAIGPTDoubleHeadsModel.from_pretrained(folder.model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder.model)
    for row in predictions(folder)[:4]:
        question, *choices = row["texts"]
        batch = tokenizer([START + question + DELIMITER + choice + EXTRACT for choice in choices], padding=True,
                          padding_side="right", return_tensors="pt")
        with torch.no_grad():
            chances = model(batch.input_ids[None],  # it sees what stands before alone, and padding stands behind
                            mc_token_ids=batch.attention_mask.sum(-1)[None] - 1).mc_logits.softmax(-1)[0]
        assert list(row["probabilities"].values()) == pytest.approx(chances.tolist(), abs=1e-3)


def test_the_loss_is_the_tasks_and_a_share_of_the_words() -> None:
    config = gpt(vocab=30, dim=16, layers=1, heads=2, length=8, dropout=0.0)
    head = saucier.config.ClassificationHead(pick=saucier.config.LastToken(padding=0), classes=3)
    model = build(config.model_copy(update={"head": head}), seed=0)
    batch = {"input_ids": torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0]]), "labels": torch.tensor([2, 0]),
             "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])}
    loss = AuxiliaryLanguageModelling(ClassLabels(), 0.5)(model, batch)
    output = model(batch["input_ids"], batch["attention_mask"])
    scores = output.last_hidden_state @ model.embed.tokens.weight.T
    words = F.cross_entropy(torch.stack([scores[0, 0], scores[0, 1], scores[0, 2], scores[1, 0]]),
                            torch.tensor([4, 5, 6, 8]))
    task = F.cross_entropy(output.logits, batch["labels"])
    weights = AuxiliaryLanguageModelling(ClassLabels(), 0.5).count(batch)
    assert weights == {"labels": 2.0, "words": 4.0}
    assert loss.over(weights).item() == pytest.approx((task + 0.5 * words).item(), abs=1e-5)


def test_both_orders_need_a_pair(tiny_gpt: Path, table: Table, tmp_path: Path) -> None:
    files = (table("train.tsv", "label,text", labelled_rows(20, 1)),) * 2
    with pytest.raises(saucier.InputError, match="line 2: has no second text, and both orders of two are read"):
        tuned("classification", tiny_gpt, files, tmp_path / "run", "task.form.kind=gpt_both_orders",
              "training.epochs=16")


def test_rows_of_a_decoder_without_padding_do_not_depend_on_the_batch(table: Table, tmp_path: Path) -> None:
    full = train_tokenizer(ByteBPE(vocab=340), [text for _, text in labelled_rows(400, 0)])
    tokenizer = Tokenizer(full.backend, {role: name for role, name in full.names.items() if role != "pad"})
    assert (tokenizer.pad_id, tokenizer.eos_id is None) == (None, False)
    start = tmp_path / "start"
    build(gpt(vocab=tokenizer.vocab_size, dim=32, layers=1, heads=2, length=64, dropout=0.0), seed=1).save(start)
    tokenizer.save(start)
    files = (table("train.tsv", "label,text", labelled_rows(48, 1)),
             table("dev.tsv", "label,text", labelled_rows(16, 2)))
    folder = tuned("classification", start, files, tmp_path / "run", "training.epochs=1")
    opened = open_task(folder.path)
    together = predict_answers(folder.path, [str(files[1])])
    alone = [answer_examples(opened, [one]).answers[0] for one in together.examples]
    assert [one.confidence for one in together.answers] == pytest.approx([one.confidence for one in alone], abs=2e-2)
    assert [row["confidence"] for row in predictions(folder)] == pytest.approx([one.confidence for one in alone],
                                                                               abs=2e-2)
