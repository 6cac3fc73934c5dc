"""Tagging: words aligned with pieces, windows, files of any kind, and the same tags as the reference library's."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from tests.unit.jobs.finetuning.conftest import WORDS

import saucier
from saucier.families.bert import bert
from saucier.jobs.finetuning.data import read_examples
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.predict import answer_examples, open_task, predict_answers
from saucier.jobs.finetuning.results import format_answer
from saucier.jobs.finetuning.settings import read_finetuning_words
from saucier.jobs.finetuning.task_folder import TaskFolder
from saucier.objectives.base import IGNORED
from saucier.tasks.definitions import AsWritten, Tagging
from saucier.tasks.examples import Tally
from saucier.tasks.tagging import NO_WORD, TaggingTask
from saucier.tasks.task import Encoding
from saucier.text.tokenizer.tokenizer import load_tokenizer

PHRASES = {"fine": "B-GOOD", "lovely rich": "B-GOOD I-GOOD", "burnt": "B-BAD", "sour": "B-BAD",
           "very cold": "B-BAD I-BAD"}


def sentence(draw: random.Random, size: int) -> list[tuple[str, str]]:
    phrases = [draw.choice((*WORDS[:8], *PHRASES)) for _ in range(size)]
    tags = [PHRASES.get(phrase, " ".join("O" for _ in phrase.split())) for phrase in phrases]
    return list(zip(" ".join(phrases).split(), " ".join(tags).split(), strict=True))


def column_file(path: Path, count: int, seed: int, *, longest: int = 8) -> Path:
    draw = random.Random(seed)
    sentences = [sentence(draw, draw.randint(3, longest)) for _ in range(count)]
    path.write_text("\n\n".join("\n".join("\t".join((word, "X", tag)) for word, tag in one) for one in sentences)
                    + "\n", encoding="utf-8")
    return path


def read(path: Path, task: Tagging | None = None, tally: Tally | None = None) -> list:
    return read_examples(TaggingTask(task or Tagging()), [str(path)], tally=tally)


@pytest.fixture(scope="module")
def tagger(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> TaskFolder:
    folder = tmp_path_factory.mktemp("tagging")
    files = column_file(folder / "train.tsv", 200, 1, longest=24), column_file(folder / "dev.tsv", 40, 2, longest=30)
    words = ["training.epochs=6", "training.batch=16", "training.optimizer.learning_rate=0.004",
             "training.dtype=float32", "training.length=24", "training.warmup=0.2"]
    wanted = read_finetuning_words("tagging", words, str(tiny_bert),
                                   {"train": [str(files[0])], "held_out": [str(files[1])]})[0]
    return finetune(wanted, folder / "run", quiet=True)


@pytest.mark.slow
def test_entities_are_learned_and_long_sentences_read_to_the_end(tagger: TaskFolder) -> None:
    found = json.loads(tagger.scores.read_text())["held-out"]
    scores = {one["name"]: one["value"] for one in found["scores"]}
    assert scores["entity F1"] > 0.95
    assert set(found["baselines"]) == {"commonest tag of the word"}
    lines = [json.loads(line) for line in tagger.predictions("held-out").read_text().splitlines()]
    assert all(len(line["prediction"]) == len(line["gold"]) == len(line["texts"][0].split()) for line in lines)
    assert max(len(line["gold"]) for line in lines) > 24


def test_the_reference_library_gives_the_same_tags(tagger: TaskFolder) -> None:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    model = transformers.AutoModelForTokenClassification.from_pretrained(tagger.model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tagger.model)
    lines = [json.loads(line) for line in tagger.predictions("held-out").read_text().splitlines()]
    short = [line for line in lines if len(line["gold"]) < 20][:8]
    assert short
    for line in short:
        words = line["texts"][0].split()
        batch = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            tags = model(**batch).logits[0].argmax(-1).tolist()
        first = {}
        for place, word in enumerate(batch.word_ids()):
            if word is not None:
                first.setdefault(word, model.config.id2label[tags[place]])
        assert line["prediction"] == [first[word] for word in range(len(words))]


def test_answers_do_not_depend_on_the_batch(tagger: TaskFolder, tmp_path: Path) -> None:
    path = column_file(tmp_path / "asked.conll", 20, 5, longest=40)
    whole = [one.prediction for one in predict_answers(tagger.path, [str(path)]).answers]
    opened = open_task(tagger.path)
    examples = read(path)
    assert whole == [answer_examples(opened, [one]).answers[0].prediction for one in examples]
    typed = predict_answers(tagger.path, [], ["the cook soup burnt"])
    assert typed.answers[0].prediction == ["O", "O", "O", "B-BAD"]
    assert format_answer(typed.task, typed.examples[0], typed.answers[0]).startswith("BAD: burnt (")


def test_each_word_has_one_label_whatever_the_windows(tiny_bert: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(tiny_bert)
    task = TaggingTask(Tagging()).fit_labels(examples := read(column_file(tmp_path / "a.tsv", 30, 3, longest=40)))
    sheet = task.encode(examples, Encoding(tokenizer, 16, bert()))
    assert len(sheet) > len(examples)
    told: dict[int, list[tuple[int, str]]] = {}
    for unit in range(len(sheet)):
        words, labels = sheet.position_data["words"].row(unit), sheet.sequences["labels"].row(unit)
        assert len(words) <= 16
        assert ((labels == IGNORED) == (words == NO_WORD)).all()
        for word, label in zip(words.tolist(), labels.tolist(), strict=True):
            if word != NO_WORD:
                told.setdefault(int(sheet.example_numbers[unit]), []).append((word, task.config.labels[label]))
    for number, one in enumerate(examples):
        assert sorted(told[number]) == list(enumerate(one.tags))


def test_a_byte_level_tokenizer_spells_every_word_behind_a_space() -> None:
    from tests.unit.tasks.test_framing import GOLDEN

    folder = GOLDEN / "tokenizer-byte-bpe"
    if not folder.is_dir():
        pytest.skip("no stored tokenizers")
    tokenizer = load_tokenizer(folder)
    pieces = tokenizer.word_encodings([["fine", "soup"]])[0]
    assert tokenizer.decode(pieces.ids) == " fine soup"
    assert pieces.ids == tokenizer.encode(" fine soup", add_special_tokens=False)


def test_a_word_without_a_token_is_read_as_unknown(tiny_bert: Path, tmp_path: Path) -> None:
    path = tmp_path / "silent.tsv"
    path.write_text("the\tO\n\u200b\tO\nsoup\tB-X\n", encoding="utf-8")
    task = TaggingTask(Tagging()).fit_labels(examples := read(path))
    tokenizer = load_tokenizer(tiny_bert)
    with pytest.warns(UserWarning, match="1 words give no token"):
        sheet = task.encode(examples, Encoding(tokenizer, 16, bert()))
    ids, words = sheet.sequences["input_ids"].row(0), sheet.position_data["words"].row(0)
    assert sorted(words[words != NO_WORD].tolist()) == [0, 1, 2]
    assert ids[words.tolist().index(1)] == tokenizer.unk_id


def test_files_of_any_kind_are_read_alike(tmp_path: Path) -> None:
    column = tmp_path / "a.conll"
    column.write_text("-DOCSTART- -X- O\n\nfine NN B-A\nsoup NN I-A\n\n\n-DOCSTART- -X- O\ncold NN O\n", "utf-8")
    tally = Tally()
    found = read(column, tally=tally)
    assert [(one.words, one.tags) for one in found] == [(("fine", "soup"), ("B-A", "I-A")), (("cold",), ("O",))]
    assert tally == {"-DOCSTART- lines skipped": 2}
    assert [one.place.line for one in found] == [3, 8]
    assert read(column, Tagging(column=2))[0].tags == ("NN", "NN")
    rows = tmp_path / "a.jsonl"
    rows.write_text('{"id": "x", "tokens": ["fine", "soup"], "tags": ["S-A", "O"]}\n', "utf-8")
    tally = Tally()
    assert read(rows, tally=tally)[0].tags == ("B-A", "O")
    assert tally == {"sentences are tagged in BIOES: rewritten in IOB2": 1}
    assert read(rows, Tagging(scheme=AsWritten()))[0].tags == ("S-A", "O")
    assert read(rows)[0].name == "x"


@pytest.mark.parametrize(("name", "text", "says"), [
    ("a.jsonl", '{"tokens": ["a", "b"], "tags": ["O"]}\n', "a.jsonl, line 1: 1 tags for 2 words"),
    ("a.jsonl", '{"tokens": [], "tags": []}\n', "line 1: has no words"),
    ("a.jsonl", '{"tokens": 3, "tags": []}\n', "line 1, column 'tokens': the words are no list of words"),
    ("a.jsonl", '{"letters": "a", "tags": []}\n', "no column for the words; columns: letters, tags"),
    ("a.tsv", "a\tO\nb\n", "a.tsv, line 2: 1 columns, but the first line has 2"),
    ("a.tsv", "a\nb\n", "a.tsv, line 1: has one column, and tags are needed"),
    ("a.tsv", "a\tO\nb\t\n", "a.tsv, line 1: the word 'b' has no tag"),
    ("a.tsv", "a\tO\n\tO\n", "a.tsv, line 2: the word is empty"),
])
def test_wrong_rows_are_named(name: str, text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    with pytest.raises(saucier.InputError) as caught:
        read(path)
    assert says in str(caught.value)


def test_a_tag_that_is_never_trained_is_named(tmp_path: Path) -> None:
    task = TaggingTask(Tagging()).fit_labels(read(column_file(tmp_path / "a.tsv", 5, 3)))
    other = tmp_path / "b.tsv"
    other.write_text("a\tO\nb\tB-ODD\n\nc\tB-ODD\n", "utf-8")
    with pytest.raises(saucier.InputError, match=r"2 rows cannot be used; .*\n.*b.tsv, line 1: label "
                       r"'B-ODD' is not among the 5"):
        task.check_labels(read(other))
