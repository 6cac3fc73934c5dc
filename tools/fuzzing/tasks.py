"""Finished fine-tunings, and labelled rows: their folder damaged, or what they are asked about and learn from."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow
import pyarrow.parquet

import saucier
from saucier.checkpoints.hub import TUNED
from saucier.families import FAMILIES
from saucier.folders.save import save
from saucier.jobs.finetuning.data import read_splits
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.labelled_files import LabelledFiles
from saucier.jobs.finetuning.predict import open_task, predict_answers
from saucier.jobs.finetuning.results import prediction_row
from saucier.jobs.finetuning.settings import read_finetuning, read_finetuning_words
from saucier.tasks.build import build_task
from saucier.tasks.prediction_files import as_line
from saucier.tasks.task import Encoding
from saucier.text.config import ByteBPE, WordPiece
from saucier.text.tokenizer.training import train_tokenizer
from tools.fuzzing.cases import Case, UnsoundError, size_of
from tools.fuzzing.damage import changed, copied, cut, damaged_file, damaged_folder, flip, text_lines

PAIRS = [("the cook stirs", "the sauce"), ("a guest tastes", "some soup"), ("the cat spills", "milk"),
         ("the cook tastes", "milk"), ("a guest stirs", "the sauce"), ("the cat tastes", "some soup")] * 2
CONTEXT = "the cook stirs the sauce and a guest tastes some soup"
ROWS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "classification": ("bert", [{"label": ("good", "bad")[place % 2], "text": one, "pair": other}
                                for place, (one, other) in enumerate(PAIRS)]),
    "many_labels": ("bert", [{"label": ("warm,cold", "warm", "")[place % 3] or "cold", "text": one}
                             for place, (one, _) in enumerate(PAIRS)]),
    "regression": ("bert", [{"score": place / 2, "text": one, "pair": other} for place,
                            (one, other) in enumerate(PAIRS)]),
    "ranking": ("bert", [{"query": one, "passage": other, "label": place % 2} for place,
                         (one, other) in enumerate(PAIRS)]),
    "embedding": ("bert", [{"anchor": one, "positive": other} for one, other in PAIRS]),
    "tagging": ("bert", [{"words": f"{one} {other}".split(),
                          "tags": ["B-X", *["O"] * (len(f"{one} {other}".split()) - 1)]}
                         for one, other in PAIRS]),
    "question_answering": ("bert", [{"question": one, "context": CONTEXT,
                                     "answers": {"text": ["some soup"], "answer_start": [CONTEXT.index("some soup")]}}
                                    for one, _ in PAIRS]),
    "multiple_choice": ("bert", [{"question": one, "choices": [other, "a plate", "milk"], "label": place % 2}
                                 for place, (one, other) in enumerate(PAIRS)]),
    "label_to_text": ("t5", [{"label": ("good", "bad")[place % 2], "text": one} for place,
                             (one, _) in enumerate(PAIRS)]),
    "text_to_text": ("t5", [{"source": one, "target": other} for one, other in PAIRS]),
    "instruction": ("gpt2", [{"prompt": one, "response": other} for one, other in PAIRS]),
}
"""Kind of task -> family of its model, and rows."""
BASES = {"gpt2": {"layers": 1, "dim": 16, "heads": 2, "length": 160},
         "bert": {"layers": 1, "dim": 16, "heads": 2, "length": 48},
         "t5": {"layers": 1, "dim": 16, "heads": 2, "head_dim": 8, "hidden": 20}}
WORDS = ("training.epochs=1", "training.batch=6", "training.dtype=float32")
LIKELY = ("task.json", "config.json", "scores.json", "finetune.yaml", "tokenizer.json", "tokenizer_config.json")
LISTED = ("tagging", "question_answering", "multiple_choice")
"""Kinds whose rows hold more than texts, so that plain tables cannot say them."""


def base(family: str, stock: Path) -> Path:
    """Return a model to begin with, made when it is first asked for."""
    folder = stock / family
    if not folder.is_dir():
        texts = [f"{one} {other} good bad warm cold {CONTEXT}" for one, other in PAIRS] * 3
        tokenizer = train_tokenizer(WordPiece(vocab=80) if family == "bert" else ByteBPE(vocab=280), texts)
        save(saucier.build(FAMILIES[family](**BASES[family], vocab=tokenizer.vocab_size), seed=1), folder)
        tokenizer.save(folder)
    return folder


def whole(kind: str, stock: Path) -> Path:
    """Return a finished fine-tuning with its rows beside it, made when it is first asked for."""
    target = stock / kind
    if not target.is_dir():
        family, rows = ROWS[kind]
        path = stock / f"{kind}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        wanted, _ = read_finetuning_words(kind, WORDS, str(base(family, stock)),
                                          {"train": [str(path)], "held_out": [str(path)]})
        finetune(wanted, stock / "begun", quiet=True)
        (stock / "begun").rename(target)
    return target


def draw(drawn: Random, stock: Path, place: Path) -> Case:
    """Damage a fine-tuning's folder, or the rows that it is asked about and would learn from."""
    kind = drawn.choice(list(ROWS))
    source, rows = whole(kind, stock), stock / f"{kind}.jsonl"
    if drawn.random() < 0.4:
        folder = copied(source, place / "task")
        words = damaged_folder(folder, drawn, LIKELY)
        return Case(f"{kind}: {words}", (partial(answered, folder, rows), partial(again, folder)), size_of(source),
                    many_lines=True)
    path, words = written(ROWS[kind][1], kind, place, drawn)
    words += f"; {damaged_rows(path, drawn)}" if words == path.suffix or drawn.random() < 0.5 else ""
    size = path.stat().st_size if path.is_file() else 0
    return Case(f"{kind}: {words}", (partial(answered, source, path), partial(learned, source, path, rows)), size,
                many_lines=True)


def damaged_rows(path: Path, drawn: Random) -> str:
    """Damage a file of rows as text, or as any file."""
    if path.suffix == ".parquet":
        return flip(path, drawn) if drawn.random() < 0.7 else cut(path, drawn)
    return text_lines(path, drawn) if drawn.random() < 0.7 else damaged_file(path, drawn)


def written(rows: list[dict[str, Any]], kind: str, place: Path, drawn: Random) -> tuple[Path, str]:
    """Write rows in some format, mostly with some values changed; return the file, and what was done."""
    rows, words = json.loads(json.dumps(rows)), list[str]()
    form = drawn.choice([".jsonl", ".jsonl", ".parquet", ".squad" if kind == "question_answering" else ".jsonl",
                         ".conll" if kind == "tagging" else ".csv", ".tsv"])
    form = ".jsonl" if kind in LISTED and form in (".csv", ".tsv") else form
    for _ in range(drawn.choice([0, 1, 1, 2])):
        rows, word = changed(rows, drawn)
        words.append(word)
    rows = rows if isinstance(rows, list) else [rows]
    return formatted(rows, form, place, drawn), "; ".join([form, *words])


def formatted(rows: list[Any], form: str, place: Path, drawn: Random) -> Path:
    """Write rows in a format; one that cannot hold them becomes JSON lines."""
    path = place / f"rows{form}"
    tables = [row for row in rows if isinstance(row, dict)]
    try:
        match form:
            case ".parquet":
                pyarrow.parquet.write_table(pyarrow.Table.from_pylist(tables), path)
            case ".csv" | ".tsv":
                sign = "," if form == ".csv" else "\t"
                names = list(dict.fromkeys(name for row in tables for name in row))
                lines = [sign.join(map(str, names)),
                         *(sign.join(str(row.get(one, "")) for one in names) for row in tables)]
                path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            case ".conll":
                path = path.with_suffix(drawn.choice([".tsv", ".txt", ".conll"]))
                path.write_text("\n\n".join("\n".join(f"{word}\tX\t{tag}" for word, tag in zip(
                    row["words"], row["tags"], strict=False)) for row in tables) + "\n", encoding="utf-8")
            case ".squad":
                path = path.with_suffix(".json")
                asked = [{"id": str(number), "question": row["question"], "answers": [{
                    "text": row["answers"]["text"][0], "answer_start": row["answers"]["answer_start"][0]}]}
                         for number, row in enumerate(tables)]
                document = {"version": "1.1",
                            "data": [{"title": "x", "paragraphs": [{"context": CONTEXT, "qas": asked}]}]}
                path.write_text(json.dumps(changed(document, drawn)[0]))
            case _:
                path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    except (pyarrow.ArrowException, TypeError, ValueError, KeyError, IndexError, OverflowError, AttributeError):
        path = place / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def answered(folder: Path, rows: Path) -> None:
    """Let a fine-tuned model answer for rows. Raises `UnsoundError` where rows and answers are not as many."""
    found = predict_answers(folder, [str(rows)])
    if len(found.examples) != len(found.answers) or not found.examples:
        raise UnsoundError(f"{len(found.answers)} answers for {len(found.examples)} rows")
    for example, answer in zip(found.examples, found.answers, strict=True):
        as_line(prediction_row(found.task, example, answer))


def again(folder: Path) -> None:
    """Open the folder as one who goes on with it, and as one who asks for a text."""
    settings = read_finetuning(folder / TUNED)
    if (folder / "scores.json").is_file():
        finetune(settings, folder, quiet=True)
    predict_answers(folder, (), ["the cook stirs ||| the sauce"])


def learned(folder: Path, rows: Path, good: Path) -> None:
    """Read rows as a fine-tuning does, to learn from and to measure with, and encode them."""
    opened = open_task(folder)
    assert opened.length is not None
    settings = read_finetuning(folder / "finetune.yaml")
    task = build_task(settings.task)
    for files in (LabelledFiles(train=(str(rows),), held_out=(str(good),)),
                  LabelledFiles(train=(str(rows),), share=0.3)):
        splits = read_splits(task, files)
        start = opened.model.config
        encoding = Encoding(opened.tokenizer, opened.length, start,
                            opened.model.generation.get("decoder_start_token_id"))
        for examples in splits.named().values():
            splits.task.encode(examples, encoding)
