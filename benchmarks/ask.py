"""Questions answered from a whole corpus, next to the same reader that is given the right paragraph: SQuAD's 4,863
questions over 978 paragraphs; exact match and F1, with intervals over questions.

`python -m benchmarks ask`. The reader is MiniLM, which learns the 3,997 questions of the training paragraphs (minutes
on a GPU, an hour on a core); it reads `READ` chunks of the corpus for each question, as `saucier ask` finds them. What
is finished is kept in `runs/ask`. `python -m benchmarks.ask --questions 500` asks some of them, spread over all.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cooking import needed
from benchmarks.finetuning import weights
from benchmarks.section import Row, Section

RUNS = Path("runs/ask")
READ = 5
QUICK_QUESTIONS = 10
WORDS = ("training.seed=0", "training.batch=16", "training.length=256", "task.stride=128", "data.share=0.05")
EPOCHS = 2
Scores = dict[str, list[float]]


def measure(quick: bool) -> Section:
    """Train, index, ask, and compare."""
    from saucier.retrieval.collection import read_collection

    collection = read_collection(needed("qa", "squad_v1.1_dev_part.jsonl")).answerable
    if quick:
        questions = collection.questions[::len(collection.questions) // QUICK_QUESTIONS][:QUICK_QUESTIONS]
        own = {name for question in questions for name in question.relevant}
        collection = replace(collection, questions=questions,
                             passages=tuple(one for one in collection.passages if one.id in own))
    return compare(RUNS, collection, None, epochs=0.01 if quick else EPOCHS)


def compare(runs: Path, collection: Any, count: int | None, *, epochs: float) -> Section:
    """Lay out what is answered from the corpus, and from the right paragraph. `count`: of the questions; None: all."""
    from saucier.tasks.metrics.statistics import paired_difference

    numbers = np.arange(len(collection.questions)) if count is None else \
        np.unique(np.linspace(0, len(collection.questions) - 1, count).astype(int))
    found = answer(runs, collection, numbers.tolist(), epochs)
    rows = []
    for name in ("exact match", "F1"):
        ours, given = (np.array([found[f"{side}, {name}"]]) for side in ("corpus", "given"))
        gap = paired_difference(ours, given, np.ones(len(numbers)))
        rows.append(Row(f"{name}, {len(numbers):,} questions", f"from the whole corpus {ours.mean():.3f}",
                        f"given the right paragraph {given.mean():.3f}; difference {gap.value:+.3f} "
                        f"({gap.low:+.3f} … {gap.high:+.3f})"))
    rows.append(Row(f"the right paragraph is among the {READ} that are read", f"{np.mean(found['right']):.3f}"))
    about = (f"MiniLM learned the training questions for {epochs:g} epochs and reads the {READ} best of "
             f"{len(collection.passages):,} paragraphs, found by BM25 and by MiniLM as published (it has seen SQuAD); "
             "the best span of all is the answer. Intervals of paired differences over questions; one seed.")
    return Section("Answers from a corpus", about, rows, [f"`{RUNS}` holds the reader and every score."])


def answer(runs: Path, collection: Any, numbers: Sequence[int], epochs: float) -> Scores:
    """Return the scores of questions from the corpus and from their own paragraph; what was asked before is kept."""
    place = runs / "answers.jsonl"
    lines = [json.loads(line) for line in place.read_text(encoding="utf-8").splitlines()] if place.is_file() else []
    known = {one["number"]: one for one in lines}
    if missing := [number for number in numbers if number not in known]:
        index, reader = open_both(runs, collection, epochs)
        with place.open("a", encoding="utf-8") as file:
            for number in missing:
                known[number] = {"number": number, **ask(index, reader, collection, number)}
                file.write(json.dumps(known[number]) + "\n")
                file.flush()
    return {name: [known[number][name] for number in numbers] for name in known[numbers[0]] if name != "number"}


def open_both(runs: Path, collection: Any, epochs: float) -> tuple[Any, Any]:
    """Return the index of the paragraphs and the reader, made where they are not there yet."""
    import saucier
    from saucier.jobs.knowledge.open_index import open_index
    from saucier.jobs.knowledge.spans import open_spans

    saucier.finetune("question_answering", [f"training.epochs={epochs:g}", *WORDS], model=weights(),
                     data=needed("qa", "squad_v1.1_train_part.jsonl"), out=runs / "reader-0", quiet=True)
    rows = runs / "corpus.jsonl"
    rows.write_text("".join(json.dumps({"text": one.text}) + "\n" for one in collection.passages), encoding="utf-8")
    saucier.index(rows, out=runs / "index", model=weights())
    return open_index(runs / "index"), open_spans(str(runs / "reader-0"))


def ask(index: Any, reader: Any, collection: Any, number: int) -> dict[str, float]:
    """Return the scores of one question: answered from the corpus, and from its own paragraph alone."""
    from saucier.retrieval.hybrid import SearchOptions
    from saucier.tasks.metrics.texts import normalize_answer, word_f1

    question = collection.questions[number]
    own = collection.passages[collection.places[next(iter(question.relevant))]].text
    hits = index.search(question.text, SearchOptions(count=READ)).hits
    spans = reader.find_spans([question.text] * (len(hits) + 1), [*(hit.text for hit in hits), own])
    said = {"corpus": max(spans[:-1], key=lambda one: one[1], default=("", 0.0))[0], "given": spans[-1][0]}
    found = {"right": float(any(hit.text in own for hit in hits))}
    for side, text in said.items():
        ours, known = normalize_answer(text), [normalize_answer(one) for one in question.answers]
        found |= {f"{side}, exact match": float(ours in known),
                  f"{side}, F1": max(word_f1(ours.split(), one.split()) for one in known)}
    return found


def main() -> None:
    """Ask some questions, without the rest of the benchmarks."""
    from saucier.retrieval.collection import read_collection

    parser = argparse.ArgumentParser(prog="python -m benchmarks.ask")
    parser.add_argument("--questions", type=int, help="how many, spread over all; all of them without")
    parser.add_argument("--epochs", type=float, default=EPOCHS, help="of the reader's training")
    parser.add_argument("--out", type=Path, default=RUNS, help="where all is kept")
    given = parser.parse_args()
    collection = read_collection(needed("qa", "squad_v1.1_dev_part.jsonl")).answerable
    section = compare(given.out, collection, given.questions, epochs=given.epochs)
    for row in section.rows:
        print(f"{row.what}: {row.ours} | {row.theirs}")


if __name__ == "__main__":
    main()
