"""Search in two hops (GoldEn Retriever) against one: the 350 questions of HotpotQA over their pooled paragraphs.

`python -m benchmarks hops`. Five folds by question, three seeds: query generators and a reader learn from four folds,
and the fifth is asked. All begin with MiniLM as it learned to answer SQuAD's questions. What is finished is kept in
`runs/hops`, and is not done again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compression import DRAWS, SEEDS
from benchmarks.cooking import needed
from benchmarks.finetuning import weights
from benchmarks.section import Row, Section
from benchmarks.tuned import finetuned

RUNS = Path("runs/hops")
FOLDS, HOPS, LOOKED_AT = 5, 2, 100
"""Folds, hops, and passages of a query in which an oracle looks."""
COUNTS, ANSWERED_FROM = (2, 4, 10, 20), 10
PROMISED = {10: 0.80}
"""Passages in all -> the share of the questions that have both."""
LENGTH = ("training.length=384", "task.stride=192")
EPOCHS = {"reader": 3, "generator": 6}
QUICK_QUESTIONS = 20
Found = list[list[int]]


def measure(quick: bool) -> Section:
    """Learn, ask, and compare."""
    from saucier.tasks.metrics.statistics import paired_difference

    seeds = SEEDS[:1] if quick else SEEDS
    collection, find = open_collection(quick)
    golds = [[collection.places[name] for name in question.relevant] for question in collection.questions]
    for seed in seeds:
        for fold in range(FOLDS):
            work(seed, fold, quick)
    rows = []
    plain = find([question.text for question in collection.questions], max(COUNTS)).tolist()
    for count in COUNTS:
        one = np.array([both(places[:count], gold) for places, gold in zip(plain, golds, strict=True)])
        two = np.array([[both(places, gold) for places, gold in zip(read(seed, quick, count), golds, strict=True)]
                        for seed in seeds])
        gap = paired_difference(two, np.broadcast_to(one, two.shape), np.ones(two.shape[1]), draws=DRAWS)
        promised = PROMISED.get(count)
        rows.append(Row(f"both paragraphs among {count} found, {len(one)} questions", f"two hops {two.mean():.3f}",
                        f"one {one.mean():.3f}; difference {gap.value:+.3f} ({gap.low:+.3f} … {gap.high:+.3f})",
                        target="better" if promised is None else f"≥ {promised:.2f}, better",
                        reached=bool(gap.low > 0 and two.mean() >= (promised or 0))))
        rows.append(compare_names(collection, find, one, golds, count))
    rows += [compare_answers(seeds, quick, how) for how in ("two hops", "two hops by names")]
    about = (f"BM25 over {len(collection.passages):,} paragraphs with their titles. The second query is the question "
             "with a span of its first passage, from MiniLM, which learned spans of names from derived oracles (after "
             "Qi et al. 2019). Mean of the seeds; in brackets "
             "the 95 % interval of a paired bootstrap over seeds and questions. Names: the second query is the "
             "question with the words of its first paragraph that begin with a capital; nothing is learned, and this "
             "rule was chosen among thirteen or so on these questions.")
    return Section("Search in hops", about, rows, [f"`{RUNS}` holds every run with its settings."])


def compare_names(collection: Any, find: Callable[[Sequence[str], int], Any], one: Any, golds: Found,
                  count: int) -> Row:
    """Lay out what two hops find whose second query takes the names that the first one found."""
    from saucier.retrieval.hops import add_names, search_in_hops
    from saucier.tasks.metrics.statistics import paired_difference

    found = search_in_hops([question.text for question in collection.questions], collection.passages,
                           [add_names] * HOPS, find, count=count, context=1)
    two = np.array([[both(places, gold) for places, gold in zip(found, golds, strict=True)]])
    gap = paired_difference(two, one[None], np.ones(len(one)), draws=DRAWS)
    promised = PROMISED.get(count, 0.0)
    return Row(f"both paragraphs among {count} found, by names", f"two hops {two.mean():.3f}",
               f"one {one.mean():.3f}; difference {gap.value:+.3f} ({gap.low:+.3f} … {gap.high:+.3f})",
               target=f"≥ {promised:.2f}, better" if promised else "better",
               reached=bool(gap.low > 0 and two.mean() >= promised))


def open_collection(quick: bool) -> tuple[Any, Callable[[Sequence[str], int], Any]]:
    """Return the questions with all paragraphs, and the search by words."""
    from dataclasses import replace

    from saucier.retrieval.collection import read_collection
    from saucier.retrieval.lexical import build_lexical_index

    found = read_collection(needed("retrieval", "hotpotqa", "dev_part.jsonl"))
    index = build_lexical_index([passage.whole for passage in found.passages])
    questions = found.questions[:QUICK_QUESTIONS] if quick else found.questions
    return replace(found, questions=questions), lambda queries, count: index.find(queries, count)[1]


def both(found: Sequence[int], gold: Sequence[int]) -> float:
    """Return 1 where all is found."""
    return float({*gold} <= {*found})


def place_of(seed: int, quick: bool) -> Path:
    """Return the folder of a seed."""
    return RUNS / ("quick-" * quick + str(seed))


def read(seed: int, quick: bool, count: int) -> Found:
    """Return what two hops found for all questions, in their order."""
    return [one["found"][str(count)] for one in read_folds(seed, quick)]


def read_folds(seed: int, quick: bool) -> list[dict[str, Any]]:
    """Return what the folds answered, in the order of the questions."""
    lines = [json.loads(line) for fold in range(FOLDS)
             for line in (place_of(seed, quick) / f"{fold}.jsonl").read_text(encoding="utf-8").splitlines()]
    return sorted(lines, key=lambda one: int(one["number"]))


def compare_answers(seeds: Sequence[int], quick: bool, how: str) -> Row:
    """Lay out how well a reader answers from what was found in two hops, and in one."""
    from saucier.tasks.metrics.statistics import paired_difference

    sides = [np.array([[one[f"f1 of {name}"] for one in read_folds(seed, quick)] for seed in seeds])
             for name in (how, "one")]
    gap = paired_difference(sides[0], sides[1], np.ones(sides[0].shape[1]), draws=DRAWS)
    return Row(f"F1 of the answer read from the best {ANSWERED_FROM} found", f"{how} {sides[0].mean():.3f}",
               f"one {sides[1].mean():.3f}; difference {gap.value:+.3f} ({gap.low:+.3f} … {gap.high:+.3f})")


def work(seed: int, fold: int, quick: bool) -> None:
    """Learn from all folds but one, and search and answer the questions of that one, unless that is done."""
    from saucier.retrieval.hops import READ, QueryWriters, derive_queries, search_in_hops

    target = place_of(seed, quick) / f"{fold}.jsonl"
    if target.is_file():
        return
    collection, find = open_collection(quick)
    start, place = make_reader(seed, quick), place_of(seed, quick) / str(fold)
    own = [number for number in range(len(collection.questions)) if number % FOLDS == fold]
    kept = [question for number, question in enumerate(collection.questions) if number % FOLDS != fold]
    derived = [*derive_queries(type(collection)(collection.name, collection.passages, tuple(kept)), find,
                               count=LOOKED_AT, context=READ)]
    generators = []
    for hop in range(HOPS - 1):
        rows = [rows[hop].as_paragraph() for rows in derived if len(rows) > hop]
        generators.append(ask(learn(place / f"hop-{hop + 2}", start, rows, seed, quick)))
    reader = learn(place / "reader", start, answer_rows(collection, kept), seed, quick)
    asked = [collection.questions[number].text for number in own]
    found = {count: search_in_hops(asked, collection.passages, QueryWriters.learned(generators).write, find,
                                   count=count, context=READ) for count in COUNTS}
    named = search_in_hops(asked, collection.passages, QueryWriters.plain(HOPS).write, find, count=ANSWERED_FROM,
                           context=READ)
    scores = {name: read_answers(reader, collection, own, places) for name, places in (
        ("f1 of two hops", found[ANSWERED_FROM]), ("f1 of two hops by names", named),
        ("f1 of one", find(asked, ANSWERED_FROM).tolist()))}
    lines = [json.dumps({"number": number, "found": {count: rows[at] for count, rows in found.items()},
                         **{name: values[at] for name, values in scores.items()}}) for at, number in enumerate(own)]
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")


def make_reader(seed: int, quick: bool) -> Path:
    """Let MiniLM learn to answer SQuAD's questions, unless that is done."""
    place, files = RUNS / f"{'quick-' * quick}reader-{seed}", [needed("qa", f"squad_v1.1_{part}_part.jsonl")
                                                               for part in ("train", "dev")]
    if quick:
        return Path(weights())
    words = [f"training.seed={seed}", f"training.epochs={EPOCHS['reader']}", *LENGTH]
    return finetuned(place, "question_answering", weights(), (files[0], files[1]), words)


def learn(place: Path, start: Path, paragraphs: Sequence[dict[str, Any]], seed: int, quick: bool) -> Path:
    """Let a reader learn other answers, unless that is done; an eighth of the rows is held out to look at."""
    place.mkdir(parents=True, exist_ok=True)
    files = []
    for name, part in (("train", [row for number, row in enumerate(paragraphs) if number % 8]),
                       ("held-out", paragraphs[::8])):
        files.append(place / f"{name}.jsonl")
        files[-1].write_text("".join(json.dumps(row) + "\n" for row in part), encoding="utf-8")
    words = [f"training.seed={seed}", f"training.epochs={1 if quick else EPOCHS['generator']}", *LENGTH,
             "task.misplaced=drop"]
    return finetuned(place / "run", "question_answering", str(start), (files[0], files[1]), words)


def answer_rows(collection: Any, questions: Sequence[Any]) -> list[dict[str, Any]]:
    """Return rows of a reader: a question, the paragraphs that it needs, and its answer where it stands there."""
    from saucier.retrieval.hops import join_context

    rows = []
    for question in questions:
        context = join_context("", [collection.passages[collection.places[name]] for name in question.relevant])
        if (start := context.find(question.answers[0])) >= 0:
            answer = {"text": question.answers[0], "answer_start": start}
            rows.append({"context": context, "qas": [{"id": question.id, "question": question.text,
                                                      "answers": [answer]}]})
    return rows


def ask(run: Path) -> Callable[[Sequence[str], Sequence[str]], list[str]]:
    """Return a query generator: what a fine-tuned reader answers."""
    import saucier

    return lambda questions, contexts: saucier.predict(run, [
        {"question": question, "context": context}
        for question, context in zip(questions, contexts, strict=True)]).answers


def read_answers(reader: Path, collection: Any, numbers: Sequence[int], found: Found) -> list[float]:
    """Return the F1 of what a reader answers from the paragraphs found."""
    from saucier.retrieval.hops import join_context
    from saucier.tasks.metrics.texts import normalize_answer, word_f1

    questions = [collection.questions[number] for number in numbers]
    said = ask(reader)([question.text for question in questions],
                       [join_context("", [collection.passages[place] for place in places]) for places in found])
    return [max(word_f1(normalize_answer(one).split(), normalize_answer(gold).split()) for gold in question.answers)
            for question, one in zip(questions, said, strict=True)]
