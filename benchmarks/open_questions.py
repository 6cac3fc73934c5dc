"""Answers from passages that nobody named (ORQA): what the inverse cloze task does for a retriever, and retriever and
reader learned together, on the paragraphs of SQuAD.

`python -m benchmarks open_questions`. The task is learned from the 800 paragraphs of the training file without their
questions, and recall is measured on the 4,863 questions over 978 other paragraphs. What is finished is kept in
`runs/open_questions`, and is not done again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compression import DRAWS, SEEDS
from benchmarks.cooking import needed
from benchmarks.finetuning import weights
from benchmarks.section import Row, Section
from benchmarks.tuned import finetuned

RUNS = Path("runs/open_questions")
TRAINED, TESTED = "squad_paragraphs_train", "squad_paragraphs"
WIDTH, COUNTS = 128, (1, 5, 20)
HELD_OUT = 16
"""One passage in so many is held out of the inverse cloze task, to look at."""
CLOZE = ("training.epochs=2", "training.batch=64", "training.length=128")


def make_start(seed: int) -> Path:
    """Return the folder of MiniLM under a new map of its first token's vector, which is drawn from a seed."""
    import saucier
    from saucier.jobs.finetuning.start import build_task_model
    from saucier.tasks.build import build_task
    from saucier.tasks.definitions import InverseCloze

    place = RUNS / f"seed-{seed}" / "minilm-start"
    if place.is_dir():
        return place
    tokenizer = saucier.load_tokenizer(weights())
    body = saucier.load(weights(), dtype="float32")
    required = build_task(InverseCloze(width=WIDTH)).required_head
    model, _ = build_task_model(body, required, tokenizer, seed=seed, fresh_head=True)
    model.save(place)
    tokenizer.save(place)
    return place


def learn(seed: int, quick: bool) -> Path:
    """Let an encoder learn the inverse cloze task from the training paragraphs, unless that is done."""
    whole = (needed("retrieval", TRAINED) / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    rows, files = whole[:64] if quick else whole, []
    for name, part in (("train", [row for number, row in enumerate(rows) if number % HELD_OUT]),
                       ("held-out", rows[::HELD_OUT])):
        files.append(RUNS / f"paragraphs-{name}.jsonl")
        files[-1].parent.mkdir(parents=True, exist_ok=True)
        files[-1].write_text("".join(row + "\n" for row in part), encoding="utf-8")
    words = [*CLOZE, f"training.seed={seed}", *(["training.epochs=1"] if quick else [])]
    place, start = RUNS / f"seed-{seed}" / "minilm", str(make_start(seed))
    return finetuned(place, "inverse_cloze", start, (files[0], files[1]), words) / "model"


def find_ranks(folder: Path, quick: bool) -> Any:
    """Return the rank of the right passage of each test question, kept next to the model. Shapes: -> [Q]."""
    from saucier.retrieval.collection import read_collection
    from saucier.retrieval.retriever import open_retriever

    kept = folder.parent / f"{folder.name}-ranks.json"
    if not kept.is_file():
        collection = read_collection(needed("retrieval", TESTED)).answerable
        collection = replace(collection, questions=collection.questions[:50 if quick else None])
        right = np.array([collection.places[one.relevant[0]] for one in collection.questions])
        ranking = open_retriever(folder).rank(collection, len(collection.passages))
        ranks = (ranking.places == right[:, None]).argmax(1) + 1
        kept.write_text(json.dumps(ranks.tolist()), encoding="utf-8")
    return np.array(json.loads(kept.read_text(encoding="utf-8")))


def compare_cloze(seeds: Sequence[int], quick: bool) -> list[Row]:
    """Lay out the recall of an encoder with the task and without it, on the same questions."""
    from saucier.tasks.metrics.statistics import paired_difference

    rows, what = [], "MiniLM's weights (they have seen SQuAD) under a new map to 128"
    ranks = [np.stack([find_ranks(folder, quick) for folder in folders]) for folders in (
        [learn(seed, quick) for seed in seeds], [make_start(seed) for seed in seeds])]
    for count in COUNTS:
        with_task, without = ((one <= count).astype(float) for one in ranks)
        gap = paired_difference(with_task, without, np.ones(with_task.shape[1]), draws=DRAWS)
        rows.append(Row(f"{TESTED}: recall@{count}, {what}", f"inverse cloze {with_task.mean():.3f}",
                        f"without {without.mean():.3f}; difference {gap.value:+.3f} ({gap.low:+.3f} … {gap.high:+.3f})",
                        target="better", reached=bool(gap.low > 0)))
    return rows


LEARNED, ASKED = 600, 300
"""Questions that ORQA learns from, and that are asked: the first ones of every so many."""
READ, LENGTH = 3, 192


def measure(quick: bool) -> Section:
    """Learn, and compare."""
    seeds = SEEDS[:1] if quick else SEEDS
    rows = [*compare_cloze(seeds, quick), *compare_readers(seeds, quick)]
    about = ("The inverse cloze task is learned from the paragraphs of SQuAD's training file, without their questions; "
             "recall is that of 4,863 questions over 978 other paragraphs. ORQA begins with MiniLM twice: as retriever "
             f"as it was published, and as reader under a new head; it learns from {LEARNED} questions and answers, "
             f"{READ} passages read for each. It is compared with MiniLM that learned the same answers in the right "
             "paragraphs, and reads the first passage that BM25 finds. Mean of the seeds; in brackets the 95 % "
             "interval of a paired bootstrap over seeds and questions.")
    return Section("Answers from passages that nobody named", about, rows, [f"`{RUNS}` holds every run."])


def take_questions(name: str, part: str, count: int) -> Path:
    """Write some questions from all over a file of SQuAD, each with its paragraph, unless that is done."""
    place = RUNS / f"{name}-{count}.jsonl"
    if not place.is_file():
        source = needed("qa", f"squad_v1.1_{part}_part.jsonl")
        paragraphs = [json.loads(line) for line in source.open(encoding="utf-8")]
        every = [(paragraph, question) for paragraph in paragraphs for question in paragraph["qas"]]
        chosen = every[::len(every) // count][:count]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("".join(json.dumps({**paragraph, "qas": [question]}) + "\n"
                                 for paragraph, question in chosen), encoding="utf-8")
    return place


def compare_readers(seeds: Sequence[int], quick: bool) -> list[Row]:
    """Lay out the exact match of ORQA, and of a reader of the right paragraphs that is given BM25's first."""
    from saucier.tasks.metrics.statistics import paired_difference

    sizes = (16, 8) if quick else (LEARNED, ASKED)
    trained, asked = take_questions("learned", "train", sizes[0]), take_questions("asked", "dev", sizes[1])
    own = np.stack([learn_jointly(seed, trained, asked, quick) for seed in seeds])
    other = np.stack([read_first(seed, trained, asked, quick) for seed in seeds])
    gap = paired_difference(own, other, np.ones(own.shape[1]), draws=DRAWS)
    gained = f"difference {gap.value:+.3f} ({gap.low:+.3f} … {gap.high:+.3f})"
    return [Row(f"exact match, {own.shape[1]} questions over all 978 paragraphs of their file",
                f"ORQA {own.mean():.3f}", f"the first passage of BM25 {other.mean():.3f}; {gained}")]


def list_words(seed: int, quick: bool) -> list[str]:
    """Return the settings that both readers learn with."""
    return [f"training.seed={seed}", f"training.epochs={1 if quick else 2}", "training.batch=8",
            f"training.length={LENGTH}"]


def learn_jointly(seed: int, trained: Path, asked: Path, quick: bool) -> Any:
    """Let ORQA learn over the training paragraphs, unless that is done, and ask it over the others. Shapes: -> [Q].

    The index of the asked questions' paragraphs is made by the encoder that made the first one.
    """
    import saucier
    from saucier.files import write_json
    from saucier.retrieval.encoder import open_encoder
    from saucier.retrieval.passages import PassageIndex, read_passages

    words = [*list_words(seed, quick), f"task.retrieval.count={READ}", "task.early=100",
             f"task.retrieval.retriever={weights()}", f"task.retrieval.passages={needed('retrieval', TRAINED)}"]
    kept = RUNS / f"seed-{seed}" / f"orqa-{asked.stem}.json"
    if not kept.is_file():
        run = finetuned(RUNS / f"seed-{seed}" / f"orqa-{trained.stem}", "open_question_answering", weights(),
                        (trained, trained), words)
        index = PassageIndex.build(read_passages(needed("retrieval", TESTED)), open_encoder(weights(), device="cpu"))
        index.write(run / "model" / "passages")
        write_json(kept, saucier.predict(run, str(asked)).answers)
    return score(json.loads(kept.read_text(encoding="utf-8")), asked)


def read_first(seed: int, trained: Path, asked: Path, quick: bool) -> Any:
    """Let MiniLM learn the same answers in the right paragraphs, unless that is done, and give it what BM25 has first.

    Shapes: -> [Q].
    """
    import saucier
    from saucier.files import write_json
    from saucier.retrieval.collection import Collection, Question, read_collection
    from saucier.retrieval.retriever import rank_by_words

    kept = RUNS / f"seed-{seed}" / f"reader-{asked.stem}.json"
    if not kept.is_file():
        run = finetuned(RUNS / f"seed-{seed}" / f"reader-{trained.stem}", "question_answering", weights(),
                        (trained, trained), [*list_words(seed, quick), "task.stride=64"])
        passages = read_collection(needed("retrieval", TESTED)).passages
        texts = [json.loads(line)["qas"][0]["question"] for line in asked.open(encoding="utf-8")]
        found = rank_by_words(Collection("", passages, tuple(Question(str(number), text)
                                                             for number, text in enumerate(texts))), 1).places[:, 0]
        write_json(kept, saucier.predict(run, [{"question": text, "context": passages[place].text}
                                               for text, place in zip(texts, found.tolist(), strict=True)]).answers)
    return score(json.loads(kept.read_text(encoding="utf-8")), asked)


def score(answers: Sequence[str], asked: Path) -> Any:
    """Return 1 for each answer that is right by exact match. Shapes: -> [Q]."""
    from saucier.tasks.metrics.texts import normalize_answer

    golds = [{normalize_answer(one["text"]) for one in json.loads(line)["qas"][0]["answers"]}
             for line in asked.open(encoding="utf-8")]
    return np.array([float(normalize_answer(one) in gold) for one, gold in zip(answers, golds, strict=True)])
