"""Questions answered from a whole corpus, next to the same reader that is given the right paragraph: SQuAD's 4,863
questions over 978 paragraphs; exact match and F1, with intervals over questions.

`python -m benchmarks ask`. The reader is MiniLM, which learns the 3,997 questions of the training paragraphs (minutes
on a GPU, an hour on a core); it reads `READ` chunks of the corpus for each question, as `saucier ask` finds them, and
as it does with `--sentences`. What is finished is kept in `runs/ask`. `python -m benchmarks.ask --questions 500` asks
some of them, spread over all.
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
FOLDS = 5
MEASURES = ("exact match", "F1")
WHOLE, SENTENCES = "", ", by sentences"
"""The two searches: by chunks, and by chunks and their best sentences."""
REREAD = 20
"""Chunks whose sentences are read."""
Answers = dict[str, Any]
"""What was read for a question: by the search, for each chunk that was found the scores of reader and search,
whether it is of the right paragraph, and both measures of its span; those of the right paragraph are `given`."""


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
    read = answer(runs, collection, numbers.tolist(), epochs)
    asked = [collection.questions[number] for number in numbers]
    folds = np.array([collection.places[next(iter(one.relevant))] for one in asked]) % FOLDS
    ways = {way: [one[way] for one in read] for way in (WHOLE, SENTENCES)}
    weights = {way: tune_weights(some, folds) for way, some in ways.items()}
    chosen = {f"{how}{way}": (way, used) for way in ways
              for how, used in (("reader alone", np.zeros(len(numbers))), ("with the search", weights[way]))}
    rows = []

    def gain(ours: Any, theirs: Any) -> str:
        gap = paired_difference(np.array([ours]), np.array([theirs]), np.ones(len(numbers)))
        return f"{gap.value:+.3f} ({gap.low:+.3f} … {gap.high:+.3f})"

    for name in MEASURES:
        given = np.array([one["given"][name] for one in read])
        found = {how: pick(ways[way], used, name) for how, (way, used) in chosen.items()}
        rows += [Row(f"{name}, {len(numbers):,} questions, {how}", f"from the whole corpus {ours.mean():.3f}",
                     f"given the right paragraph {given.mean():.3f}; difference {gain(ours, given)}")
                 for how, ours in found.items()]
        rows += [Row(f"{name} that the search adds{way}",
                     gain(found[f"with the search{way}"], found[f"reader alone{way}"]),
                     f"weights {', '.join(f'{one:g}' for one in np.unique(weights[way]))}") for way in ways]
        rows.append(Row(f"{name} that sentences add, with the search",
                        gain(found[f"with the search{SENTENCES}"], found["with the search"])))
    rows += [Row(f"the right paragraph is among the {READ} that are read{way}",
                 f"{np.mean([any(one['right']) for one in some]):.3f}") for way, some in ways.items()]
    about = (f"MiniLM learned the training questions for {epochs:g} epochs and reads the {READ} best of "
             f"{len(collection.passages):,} paragraphs, found by BM25 and by MiniLM as published (it has seen SQuAD); "
             "the best span of all is the answer, by the reader alone or with the paragraph's score by the search, "
             f"whose weight is tuned in {FOLDS} folds on questions about other paragraphs. By sentences: the first "
             f"{REREAD} paragraphs are read again by their best sentences (`--sentences`). Intervals of paired "
             "differences over questions; one seed.")
    return Section("Answers from a corpus", about, rows, [f"`{RUNS}` holds the reader and every score."])


def pick(read: Sequence[Answers], weights: Any, name: str) -> Any:
    """Return what each question's best span is worth, with its own weight of the search. Shapes: weights [Q] -> [Q]."""
    best = [int(np.argmax(np.array(one["reader"]) + weight * np.array(one["search"])))
            for one, weight in zip(read, weights, strict=True)]
    return np.array([one[name][place] for one, place in zip(read, best, strict=True)])


def tune_weights(read: Sequence[Answers], folds: Any) -> Any:
    """Return for each question the weight of the search that is best for the questions of other folds. Shapes: [Q]."""
    from saucier.jobs.knowledge.ask import SEARCH_WEIGHTS

    worth = np.stack([pick(read, np.full(len(read), weight), "F1") for weight in SEARCH_WEIGHTS])
    best = {fold: SEARCH_WEIGHTS[int(np.argmax(worth[:, folds != fold].mean(1)))] for fold in {*folds.tolist()}}
    return np.array([best[fold] for fold in folds.tolist()])


def answer(runs: Path, collection: Any, numbers: Sequence[int], epochs: float) -> list[Answers]:
    """Return what is read for questions in the corpus and in their own paragraph; what was asked before is kept."""
    place = runs / "read.jsonl"
    lines = [json.loads(line) for line in place.read_text(encoding="utf-8").splitlines()] if place.is_file() else []
    known = {one["number"]: one for one in lines}
    if missing := [number for number in numbers if number not in known]:
        index, reader = open_both(runs, collection, epochs)
        with place.open("a", encoding="utf-8") as file:
            for number in missing:
                known[number] = {"number": number, **ask(index, reader, collection, number)}
                file.write(json.dumps(known[number]) + "\n")
                file.flush()
    return [known[number] for number in numbers]


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


def ask(index: Any, reader: Any, collection: Any, number: int) -> Answers:
    """Return what is read in the chunks that are found for one question, and in its own paragraph."""
    from saucier.jobs.knowledge.ask import NOTHING
    from saucier.retrieval.hybrid import Rereading, SearchOptions

    question = collection.questions[number]
    own = collection.passages[collection.places[next(iter(question.relevant))]].text
    again = Rereading.by_sentences(index.encoder, REREAD)
    ways = {way: replace(index, rereadings=some).search(question.text, SearchOptions(count=READ)).hits
            for way, some in ((WHOLE, ()), (SENTENCES, (again,)))}
    texts = list(dict.fromkeys([own, *(hit.text for hits in ways.values() for hit in hits)]))
    spans = dict(zip(texts, reader.find_spans([question.text] * len(texts), texts), strict=True))
    worth = {text: score_answer(span.text, question.answers) for text, span in spans.items()}
    return {"given": worth[own], **{way: {
        "reader": [spans[hit.text].score if spans[hit.text].text else NOTHING for hit in hits],
        "search": [hit.score for hit in hits], "right": [hit.text in own for hit in hits],
        **{name: [worth[hit.text][name] for hit in hits] for name in MEASURES}} for way, hits in ways.items()}}


def score_answer(text: str, known: Sequence[str]) -> dict[str, float]:
    """Return exact match and F1 of an answer."""
    from saucier.tasks.metrics.texts import normalize_answer, word_f1

    ours, golds = normalize_answer(text), [normalize_answer(one) for one in known]
    found = (float(ours in golds), max(word_f1(ours.split(), one.split()) for one in golds))
    return dict(zip(MEASURES, found, strict=True))


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
