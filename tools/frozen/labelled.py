"""Part `tasks`: the batches of labelled rows of every kind of task, on bodies that read, write, and do both.

Everything goes through the stages of `saucier finetune`, from the file to the batch of each process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from saucier.jobs.comparison.experiment import Classification as Judge
from saucier.jobs.comparison.transfer import encode_labelled_texts, read_labelled
from saucier.jobs.finetuning.data import read_splits
from saucier.jobs.finetuning.job import choose_encoding
from saucier.jobs.finetuning.settings import Finetuning, make_finetuning, read_finetuning_words
from saucier.jobs.finetuning.start import open_start
from saucier.tasks.build import build_task
from saucier.tasks.encoded_examples import CollateExamples
from saucier.text.config import WordPiece
from saucier.text.rows.bucketed import BatchLimits, BucketedTexts, TextEnds
from saucier.text.tokenizer.training import train_tokenizer
from tools.frozen.items import Exact, Item, digest
from tools.frozen.rows import SEEDS, STEPS, VIEWS, arrays, tensors
from tools.frozen.text import numbers, prose, sentence, word, write_lines, write_table

ROWS = 60
BERT = ("bert-nano", "recipe.tokenizer.vocab=150")
GPT = ("gpt2-nano", "recipe.tokenizer.vocab=300")
T5 = ("t5-nano", "recipe.tokenizer.vocab=120")
ELMO = ("elmo-characters-nano", "recipe.tokenizer.vocab=150")
FORM, GPTS = "task.form.kind={}", (*GPT, "training.length=64")

CASES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "classification": ("classification", "one.tsv", BERT),
    "classification of pairs": ("classification", "two.tsv", BERT),
    "classification, in a decoder": ("classification", "two.tsv", GPT),
    "classification, GPT's form": ("classification", "two.tsv", (*GPT, FORM.format("gpt"))),
    "classification, characters of words": ("classification", "one.tsv", ELMO),
    "many labels": ("many_labels", "many.tsv", BERT),
    "regression": ("regression", "scores.tsv", BERT),
    "regression, both orders": ("regression", "scores.tsv", (*GPT, FORM.format("gpt_both_orders"))),
    "ranking": ("ranking", "ranking.tsv", BERT),
    "tagging": ("tagging", "tags.tsv", BERT),
    "tagging, bioes": ("tagging", "tags.tsv", (*BERT, "task.scheme.kind=bioes")),
    "question answering": ("question_answering", "answers.jsonl", (*BERT, "training.length=40", "task.stride=8")),
    "multiple choice": ("multiple_choice", "choices.jsonl", (*BERT, "data.share=0.4")),
    "multiple choice, GPT's form": ("multiple_choice", "choices.jsonl", (*GPT, "data.share=0.4", FORM.format("gpt"))),
    "embedding, in batch": ("embedding", "triplets.tsv", BERT),
    "embedding, cosine": ("embedding", "scores.tsv", (*BERT, "task.learns.kind=cosine")),
    "embedding, contrastive": ("embedding", "together.tsv", (*BERT, "task.learns.kind=contrastive")),
    "embedding, triplet": ("embedding", "triplets.tsv", (*BERT, "task.learns.kind=triplet")),
    "text to text": ("text_to_text", "written.tsv", (*T5, "task.prefix='turn: '")),
    "text to text, packed": ("text_to_text", "written.tsv", (*T5, "task.packing=true", "training.length=64")),
    "text to text, in a decoder": ("text_to_text", "written.tsv", GPT),
    "translation": ("translation", "translated.tsv", T5),
    "summarization": ("summarization", "summaries.tsv", T5),
    "label to text": ("label_to_text", "two.tsv", T5),
    "number to text": ("number_to_text", "scores.tsv", T5),
    "instruction, packed": ("instruction", "talks.jsonl", GPTS),
    "instruction, alone": ("instruction", "talks.jsonl", (*GPTS, "task.packing=false", "task.too_long=drop")),
    "instruction, in an encoder-decoder": ("instruction", "written.jsonl", T5),
    "step by step": ("step_by_step", "reasons.jsonl", T5),
    "mixture by a column": ("mixture", "named.tsv", (*T5, "task.by=name", "task.rates.kind=equal")),
}
"""Every kind of task: its name, the file, the recipe that begins, and what is changed."""
LABELS = ("left", "middle", "right")


def write_labelled(folder: Path) -> Path:
    """Write every labelled file, and return the folder."""
    draw = numbers(11)
    texts = [sentence(draw)[:-1] for _ in range(3 * ROWS)]
    first, second, third = (texts[part * ROWS:(part + 1) * ROWS] for part in range(3))
    classes = [LABELS[next(draw) % 3] for _ in range(ROWS)]
    marks = [str(next(draw) % 26 / 5) for _ in range(ROWS)]
    tables: dict[str, tuple[tuple[str, ...], ...]] = {
        "one": (("label", "text"), *zip(classes, first, strict=True)),
        "two": (("label", "sentence1", "sentence2"), *zip(classes, first, second, strict=True)),
        "many": (("labels", "text"), *((",".join(sorted({one, LABELS[number % 3]})), text)
                                       for number, (one, text) in enumerate(zip(classes, first, strict=True)))),
        "scores": (("score", "sentence1", "sentence2"), *zip(marks, first, second, strict=True)),
        "ranking": (("label", "query", "passage"), *((str(int(number % 4 == 0)), first[number // 4], second[number])
                                                     for number in range(ROWS))),
        "together": (("label", "sentence1", "sentence2"), *((str(number % 2), *both) for number, both in
                                                            enumerate(zip(first, second, strict=True)))),
        "triplets": (("anchor", "positive", "negative"), *zip(first, second, third, strict=True)),
        "written": (("input", "target"), *zip(first, second, strict=True)),
        "translated": (("en", "de"), *zip(first, second, strict=True)),
        "summaries": (("document", "summary"), *zip(prose(ROWS, seed=12), first, strict=True)),
        "named": (("name", "prompt", "completion"), *((("turn", "say")[number % 3 == 0], *both) for number, both in
                                                      enumerate(zip(first, second, strict=True))))}
    for name, (header, *rows) in tables.items():
        write_table(folder / f"{name}.tsv", header, rows)
    write_documents(folder, first, second, third)
    return folder


def write_documents(folder: Path, first: list[str], second: list[str], third: list[str]) -> None:
    """Write the files whose rows are no cells: tags, answers inside a text, choices, conversations, reasons."""
    tags = ("O", "O", "B-ONE", "I-ONE", "O", "B-TWO")
    (folder / "tags.tsv").write_text("\n\n".join("\n".join(f"{one}\t{tags[place % 6]}" for place, one in enumerate(
        text.split())) for text in first) + "\n", encoding="utf-8")
    answers = []
    for number, text in enumerate(prose(ROWS, seed=13)):
        words = text.split()
        answer = words[number % len(words)]
        found = {"text": answer, "answer_start": text.index(answer)}
        answers.append({"id": f"q{number}", "question": f"where is {word(number)}", "context": text,
                        "answers": [found] if number % 5 else []})
    write_lines(folder / "answers.jsonl", [{"title": "", "context": one["context"], "qas": [
        {key: one[key] for key in ("id", "question", "answers")}]} for one in answers])
    write_lines(folder / "choices.jsonl", [
        {"id": f"c{number}", "question": one, "choices": [two, three, one], "answer": "ABC"[number % 3]}
        for number, (one, two, three) in enumerate(zip(first, second, third, strict=True))])
    write_lines(folder / "talks.jsonl",
                [{"messages": [{"role": "system", "content": "Be short."}] * (number % 4 == 0)
                  + [{"role": "user", "content": one}, {"role": "assistant", "content": two}]
                  + [{"role": "user", "content": three}, {"role": "assistant", "content": one}] * (number % 3 == 0)}
                 for number, (one, two, three) in enumerate(zip(first, second, third, strict=True))])
    write_lines(folder / "written.jsonl", [{"prompt": one, "completion": two}
                                           for one, two in zip(first, second, strict=True)])
    write_lines(folder / "reasons.jsonl", [{"input": one, "target": two, "rationale": three}
                                           for one, two, three in zip(first, second, third, strict=True)])


def mixture(place: Path, seed: int) -> Finetuning:
    """Return the settings of a mixture of tasks that have files of their own."""
    tasks = {"two": {"task": {"kind": "label_to_text", "prefix": "class: "}},
             "scores": {"task": {"kind": "number_to_text", "prefix": "number: "}},
             "written": {"task": {"kind": "text_to_text", "prefix": "turn: "}}}
    return make_finetuning({"name": "mixture", "model": "t5-nano", "data": {
        "train": [str(place / f"{name}.tsv") for name in tasks]}, "task": {"kind": "mixture", "tasks": tasks}},
                           [T5[1], f"training.seed={seed}", "training.batch=5"])


def settings(case: str, place: Path, seed: int) -> Finetuning:
    """Return the settings of a case."""
    kind, file, (model, *words) = CASES[case]
    words = ["data.split=null", *words]  # as the first versions held rows out
    return read_finetuning_words(kind, [f"training.seed={seed}", "training.batch=5", *words], model,
                                 {"train": [str(place / file)]})[0]


def tasks(place: Path, cases: Sequence[str] = tuple(CASES), seeds: Sequence[int] = SEEDS) -> Iterator[tuple[str, Item]]:
    """Yield the hashes of all kinds of tasks. `place`: the folder of the labelled files."""
    for seed in seeds:
        for case in cases:
            yield from of_task(f"tasks/{case}/seed {seed}", settings(case, place, seed))
        if len(cases) == len(CASES):
            yield from of_task(f"tasks/mixture of files/seed {seed}", mixture(place, seed))
            yield from of_judge(f"tasks/judge of representations/seed {seed}", place, seed)


def of_task(name: str, settings: Finetuning) -> Iterator[tuple[str, Item]]:
    """Yield the hashes of one task: its labels, its batches for every process, its held-out rows."""
    start = open_start(settings)
    splits = read_splits(build_task(settings.task), settings.data, seed=settings.training.seed)
    known = start.tokenizer(splits)
    writes = splits.task.required_head.kind == "language"
    tokenizer = splits.task.extend_tokenizer(known if writes else known.source_side())
    encoding = choose_encoding(settings, start, tokenizer)
    sheet = splits.task.encode(splits.train, encoding)
    task = splits.task.fit_lengths(sheet)
    yield f"{name}/task", Exact(digest(task.config.model_dump(mode="json"), list(task.required_head.labels)))
    yield from of_batches(name, task.batches(sheet, settings.training.batch, seed=settings.training.seed))
    held_out = task.encode(splits.held_out, encoding)
    yield f"{name}/held out", Exact(digest(*tensors(held_out.batch(np.arange(len(held_out))))))


def of_batches(name: str, batches: Any, corruption: Any = None) -> Iterator[tuple[str, Item]]:
    """Yield the hashes of batches for every process."""
    corruption = corruption or CollateExamples()
    for rank, world in VIEWS:
        found: list[Any] = []
        for step in range(STEPS):
            rows = batches.rows(step, rank, world)
            found += [*arrays(rows), *(tensors(corruption(rows, seed=0, step=step)) if len(rows) else ())]
        yield f"{name}/rank {rank} of {world}", Exact(digest(*found))


def of_judge(name: str, place: Path, seed: int) -> Iterator[tuple[str, Item]]:
    """Yield the hashes of the texts that `saucier compare` judges representations by."""
    judge = Judge(train=str(place / "one.tsv"), dev=str(place / "one.tsv"))
    texts = read_labelled(judge.train)
    tokenizer = train_tokenizer(WordPiece(vocab=150), [document.text for document, _ in texts])
    store, labels = encode_labelled_texts(texts, sorted({label for _, label in texts}), place / f"judge-{seed}",
                                          tokenizer)
    limits = BatchLimits(batch=5, length=16, ends=TextEnds(tokenizer.sep_id, tokenizer.pad_id or 0))
    yield from of_batches(name, BucketedTexts(store, limits, seed=seed), labels)
