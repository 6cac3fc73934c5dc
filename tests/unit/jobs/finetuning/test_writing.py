"""Tasks whose answer is a text: what is learned of a row, how answers are written, and what the saved folder writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tolerances import PART
from tests.unit.jobs.finetuning.conftest import written_rows

import saucier
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.predict import predict_answers
from saucier.jobs.finetuning.settings import Finetuning, read_finetuning_words
from saucier.jobs.finetuning.task_folder import TaskFolder
from saucier.objectives.base import IGNORED
from saucier.tasks.build import build_task
from saucier.tasks.encoded_examples import EncodedExamples
from saucier.tasks.examples import Place
from saucier.tasks.task import Encoding
from saucier.tasks.written.definitions import TextToText, Translation, Writing
from saucier.tasks.written.prompts import Prompt, encode_prompts
from saucier.tasks.written.task import WritingTask
from saucier.tasks.written.text_to_text import WrittenText

Table = Callable[..., Path]
WORDS = ["training.epochs=1", "training.batch=16", "training.optimizer.learning_rate=0.003", "training.dtype=float32"]


def loss_of(model: saucier.Transformer, task: WritingTask, sheet: EncodedExamples) -> tuple[float, float]:
    """Return the loss of all rows of a sheet in one batch, and its targets."""
    with torch.no_grad():
        loss = task.objective(model, sheet.batch(np.arange(len(sheet))))
    return float(loss.total), loss.weight


def settings(model: Path, train: Path, held_out: Path, *words: str, task: str = "text_to_text") -> Finetuning:
    return read_finetuning_words(task, [*WORDS, *words], str(model),
                                 {"train": [str(train)], "held_out": [str(held_out)]})[0]


def encoding_of(folder: Path, length: int = 48) -> Encoding:
    model = saucier.load(folder, dtype="float32")
    return Encoding(saucier.load_tokenizer(folder), length, model.config,
                    model.generation.get("decoder_start_token_id"))


def example(text: str, *references: str) -> WrittenText:
    return WrittenText(Place("file", 1), "one", text, references)


def scores(folder: TaskFolder) -> dict[str, float]:
    return {one["name"]: one["value"] for one in json.loads(folder.scores.read_text())["held-out"]["scores"]}


@pytest.fixture
def files(table: Table) -> tuple[Path, Path]:
    return (table("train.tsv", "input,target", written_rows(240, 1)),
            table("dev.tsv", "input,target", written_rows(24, 2)))


def test_an_encoder_decoder_learns_the_target_behind_its_start_token(tiny_t5: Path) -> None:
    encoding = encoding_of(tiny_t5)
    tokenizer = encoding.tokenizer
    sheet = build_task(TextToText(prefix="turn: ")).encode([example("soup cat", "cat soup")], encoding)
    batch = sheet.batch(np.array([0]))
    target = tokenizer.encode("cat soup")
    assert batch["input_ids"][0].tolist() == tokenizer.encode("turn: soup cat")
    assert batch["labels"][0].tolist() == target
    assert target[-1] == tokenizer.eos_id
    assert batch["decoder_input_ids"][0].tolist() == [tokenizer.pad_id, *target[:-1]]


def test_a_decoder_learns_the_response_alone(tiny_gpt2: Path) -> None:
    encoding = encoding_of(tiny_gpt2)
    tokenizer = encoding.tokenizer
    sheet = build_task(TextToText(prefix="turn: ")).encode([example("soup cat", "cat soup")], encoding)
    prompt = [tokenizer.eos_id, *tokenizer.encode("turn: soup cat\n")]
    response = [*tokenizer.encode("cat soup"), tokenizer.eos_id]
    assert sheet.sequences["input_ids"].row(0).tolist() == [*prompt, *response[:-1]]
    assert sheet.sequences["labels"].row(0).tolist() == [IGNORED] * (len(prompt) - 1) + response


def test_pairs_in_one_row_have_the_losses_of_pairs_alone(tiny_t5: Path, tiny_gpt2: Path) -> None:
    encoding, model = encoding_of(tiny_t5, 200), saucier.load(tiny_t5, dtype="float32")
    rows = [example(text, target) for text, target in written_rows(40, 3)]
    alone, shared = build_task(TextToText()), build_task(TextToText(packing=True))
    sheets = alone.encode(rows, encoding), shared.encode(rows, encoding)
    assert len(sheets[1]) < len(sheets[0]) / 2
    assert sheets[1].lengths.max() <= encoding.length
    expected, found = loss_of(model, alone, sheets[0]), loss_of(model, shared, sheets[1])
    assert found[1] == expected[1] and found[0] == pytest.approx(expected[0], rel=1e-5)
    assert shared.fit_lengths(sheets[1]).config.writing == alone.fit_lengths(sheets[0]).config.writing
    with pytest.raises(saucier.InputError, match=r"task\.packing"):
        shared.encode(rows, encoding_of(tiny_gpt2))


@pytest.mark.slow
def test_packed_pairs_are_fine_tuned(tiny_t5: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    wanted = settings(tiny_t5, *files, "task.packing=true", "training.length=64")
    folder = finetune(wanted, tmp_path / "run", quiet=True)
    assert len(predict_answers(folder.path, [str(files[1])]).answers) == 24


@pytest.mark.parametrize("folder", ["tiny_t5", "tiny_gpt2"])
def test_the_loss_is_that_of_a_computation_by_hand(folder: str, request: pytest.FixtureRequest) -> None:
    place: Path = request.getfixturevalue(folder)
    encoding, model = encoding_of(place), saucier.load(place, dtype="float32")
    task = build_task(TextToText())
    rows = [example(text, target) for text, target in written_rows(5, 3)]
    sheet = task.encode(rows, encoding)
    loss = task.objective(model, sheet.batch(np.arange(5)))
    total, count = 0.0, 0
    for number in range(5):  # alone, without padding
        ids = {name: torch.from_numpy(sheet.sequences[name].row(number))[None] for name in sheet.sequences}
        labels = ids.pop("labels")[0]
        logits = model(**ids).logits[0].log_softmax(-1)
        for place_, label in enumerate(labels.tolist()):
            if label != IGNORED:
                total, count = total - logits[place_, label].item(), count + 1
    assert loss.weight == count
    assert loss.total.item() == pytest.approx(total, rel=PART)


def test_what_is_cut_is_the_text_and_both_sides_are_counted(tiny_t5: Path, tiny_gpt2: Path) -> None:
    long, short = " ".join(["soup"] * 60), "a cat a plate"
    task = build_task(TextToText(prefix="turn: ", writing=Writing(tokens=6)))
    encoding = encoding_of(tiny_t5, 12)
    size, target = (len(encoding.tokenizer.encode(text)) for text in (f"turn: {long}", short))
    sheet = task.encode([example(long, short), example("cat", "cat")], encoding)
    assert sheet.sequences["input_ids"].lengths.max() == 12
    assert sheet.sequences["labels"].row(0).tolist()[-1] == encoding.tokenizer.eos_id
    assert (sheet.truncation.rows, sheet.truncation.tokens, sheet.truncation.targets) == (1, size - 12, target - 6)
    decoder = encoding_of(tiny_gpt2, 24)
    rows, lost = encode_prompts([Prompt("turn: ", long, "\n")], decoder, 24)
    text = decoder.tokenizer.decode(rows[0])
    assert len(rows[0]) == 24
    assert int(lost[0]) == 1 + len(decoder.tokenizer.encode(f"turn: {long}\n")) - 24
    assert text.startswith("turn: soup soup")
    assert text.endswith("\n")


def test_several_references_are_all_learned_and_all_right(tiny_t5: Path) -> None:
    task = build_task(TextToText())
    rows = [example("cat", "soup", "bread"), example("cook", "plate")]
    sheet = task.encode(rows, encoding_of(tiny_t5))
    assert sheet.example_numbers.tolist() == [0, 0, 1]
    assert [task.gold(one) for one in rows] == [["soup", "bread"], "plate"]
    assert task.gold(example("cat")) is None


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "name"), [("tiny_t5", "T5ForConditionalGeneration"),
                                              ("tiny_gpt2", "GPT2LMHeadModel")])
def test_it_is_learned_and_the_reference_library_writes_the_same(
        folder: str, name: str, request: pytest.FixtureRequest, files: tuple[Path, Path], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    wanted = settings(request.getfixturevalue(folder), *files, "training.epochs=12")
    done = finetune(wanted, tmp_path / "run", quiet=True)
    found = scores(done)
    assert found["exact match"] > 0.9
    baselines = json.loads(done.scores.read_text())["held-out"]["baselines"]
    assert {one["name"]: one["value"] for one in baselines["copy"]}["exact match"] < found["exact match"]
    assert json.loads((done.model / "config.json").read_text())["architectures"] == [name]
    lines = [json.loads(line) for line in done.predictions("held-out").read_text().splitlines()]
    again = predict_answers(done.path, [str(files[1])])
    assert [one.prediction for one in again.answers] == [line["prediction"] for line in lines]

    model = getattr(transformers, name).from_pretrained(done.model).eval()
    tokenizer, encoding = saucier.load_tokenizer(done.model), encoding_of(done.model)
    task = build_task(TextToText(**json.loads((done.model / "task.json").read_text())["task"]))
    for line in lines[:6]:
        prompt = task.prompt(example(line["texts"][0]), encoding)
        ids = torch.tensor(encode_prompts([prompt], encoding, 48)[0])
        made = model.generate(ids, attention_mask=torch.ones_like(ids))  # as the folder's own generation_config says
        before = 1 if name.startswith("T5") else ids.shape[1]
        assert tokenizer.decode(made[0, before:].tolist()).strip() == line["prediction"]


@pytest.mark.slow
def test_beams_and_sampling_are_settings(tiny_t5: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    words = ["task.writing.search.kind=beams", "task.writing.search.beams=3"]
    done = finetune(settings(tiny_t5, *files, *words), tmp_path / "beams", quiet=True)
    assert json.loads((done.model / "generation_config.json").read_text())["num_beams"] == 3
    words = ["task.writing.search.kind=sampling", "task.writing.search.seed=3"]
    done = finetune(settings(tiny_t5, *files, *words), tmp_path / "drawn", quiet=True)
    lines = [json.loads(line)["prediction"] for line in done.predictions("held-out").read_text().splitlines()]
    assert [one.prediction for one in predict_answers(done.path, [str(files[1])]).answers] == lines


@pytest.mark.slow
def test_translation_takes_two_columns_in_order_and_summaries_are_scored_by_rouge(
        tiny_t5: Path, table: Table, tmp_path: Path) -> None:
    rows = written_rows(30, 5)
    both = table("both.tsv", "en,de", rows), table("held.tsv", "en,de", rows[:8])
    done = finetune(settings(tiny_t5, *both, task="translation"), tmp_path / "mt", quiet=True)
    assert list(scores(done))[:2] == ["BLEU", "chrF"]
    both = table("docs.tsv", "document,summary", rows), table("held2.tsv", "document,summary", rows[:8])
    done = finetune(settings(tiny_t5, *both, task="summarization"), tmp_path / "sum", quiet=True)
    assert next(iter(scores(done))) == "ROUGE-1"
    assert list(json.loads(done.scores.read_text())["held-out"]["baselines"]) == [
        "one summary for all", "lead-1", "lead-3"]


def test_an_encoder_alone_is_refused(tiny_bert: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(saucier.InputError, match="an encoder alone writes no text"):
        finetune(settings(tiny_bert, *files), tmp_path / "run", quiet=True)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["m2m_100", "mbart"])
def test_a_multilingual_model_is_told_both_languages(family: str, table: Table, tmp_path: Path) -> None:
    from tests.cli.test_languages import END, IDS, folder_of

    folder = folder_of(family, tmp_path)
    encoding = encoding_of(folder, 20)
    task = build_task(Translation(source_language="de", target_language="fr"))
    batch = task.encode([example("ein hund", "le chien")], encoding).batch(np.array([0]))
    source, target = ([encoding.tokenizer.token_to_id(word) for word in text.split()]
                      for text in ("ein hund", "le chien"))
    front = family == "m2m_100"
    assert batch["input_ids"][0].tolist() == ([IDS["de"], *source, END] if front else [*source, END, IDS["de"]])
    labels = [IDS["fr"], *target, END] if front else [*target, END, IDS["fr"]]
    assert batch["labels"][0].tolist() == labels
    assert batch["decoder_input_ids"][0].tolist() == [END if front else IDS["fr"], *labels[:-1]]
    rows = [("ein hund", "le chien"), ("ein", "le")]
    train = table("train.tsv", "source,target", rows)
    words = ["task.source_language=de", "task.target_language=fr"]
    done = finetune(settings(folder, train, train, *words, task="translation"), tmp_path / "run", quiet=True)
    told = json.loads((done.model / "generation_config.json").read_text())
    assert told["forced_bos_token_id" if front else "decoder_start_token_id"] == IDS["fr"]
    with pytest.raises(saucier.InputError, match="the model knows no language 'xx'"):
        build_task(Translation(target_language="xx")).encode([example("ein", "le")], encoding)
