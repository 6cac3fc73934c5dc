"""Retrieval inside masked language modelling (REALM) against the same model without: answers hidden after questions.

`python -m benchmarks realm`. The passages are the sentences of SQuAD's paragraphs, so the facts stand in the corpus; a
text is a question with its answer, which is hidden. Both models begin with MiniLM, whose new language head first
learned hidden tokens of the same passages, and learn equally long from questions about other paragraphs than those of
the measured questions; one finds passages, the other has the null document alone. What is finished is kept in
`runs/realm`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compression import DRAWS, SEEDS
from benchmarks.cooking import needed, saucier
from benchmarks.finetuning import weights
from benchmarks.section import Row, Section
from benchmarks.tuned import finetuned

RUNS = Path("runs/realm")
PARTS = ("train", "dev")
PARAGRAPHS, QUICK_PARAGRAPHS = {"train": 240, "dev": 100}, {"train": 6, "dev": 2}
STEPS, QUICK_STEPS, LONGEST_ANSWER = 1500, 4, 40
"""Updates of the new head's own training, and characters of the longest answer that is hidden."""
COUNT, EPOCHS, REFRESH = 4, 3, 50
"""Candidates with the null document, epochs, and updates between two indexes."""
WORDS = ("training.batch=16", "training.length=96", "task.question_length=40", "training.optimizer.learning_rate=2e-4")


def measure(quick: bool) -> Section:
    """Learn with and without retrieval, and compare the losses of the same hidden answers."""
    from saucier.tasks.metrics.statistics import paired_difference

    seeds = SEEDS[:1] if quick else SEEDS
    place = RUNS / ("quick" if quick else "full")
    write_files(place, quick)
    start = warm(place, quick)
    runs = {name: [learn(place / f"{name}-{seed}", place, start, seed, words) for seed in seeds] for name, words in (
        ("without", ["task.retrieval.count=1", "task.retrieval.refresh.kind=never"]),
        ("with", [f"task.retrieval.count={COUNT}", f"task.retrieval.refresh.every={REFRESH}"]))}
    found = {name: [read_predictions(run) for run in of] for name, of in runs.items()}
    losses = {name: np.array([[one["loss"] for one in rows] for rows in of]) for name, of in found.items()}
    tokens = np.array([float(one["tokens"]) for one in found["with"][0]])
    gap = paired_difference(losses["with"], losses["without"], tokens, draws=DRAWS)
    mean = {name: value.sum() / tokens.sum() / len(seeds) for name, value in losses.items()}
    right = {name: np.mean([[one["right"] for one in rows] for rows in of]) for name, of in found.items()}
    rows = [Row(f"loss of a hidden token, {len(tokens):,} answers", f"with retrieval {mean['with']:.3f}",
                f"without {mean['without']:.3f}; difference {gap.value:+.3f} ({gap.low:+.3f} … {gap.high:+.3f})",
                target="lower", reached=bool(gap.high < 0)),
            Row("answers filled in exactly", f"with retrieval {right['with']:.3f}", f"without {right['without']:.3f}")]
    about = (f"Texts about {PARAGRAPHS['train']} paragraphs to learn from, {EPOCHS} epochs, {COUNT} candidates of "
             "which one is the null document. Mean of the seeds; in brackets the 95 % interval of a paired bootstrap "
             "over texts and seeds. MiniLM has seen SQuAD.")
    return Section("Retrieval inside masked language modelling", about, rows, [f"`{RUNS}` holds every run."])


def write_files(place: Path, quick: bool) -> None:
    """Write the passages, the texts with hidden answers, and sentences with hidden words, unless they are there."""
    from saucier.text.rows.store import find_sentence_starts

    if (place / "warm.txt").is_file():
        return
    random, paragraphs = np.random.default_rng(0), dict[str, list[dict[str, Any]]]()
    for part in PARTS:
        known = read_lines(needed("qa", f"squad_v1.1_{part}_part.jsonl"))
        drawn = random.permutation(len(known))[:(QUICK_PARAGRAPHS if quick else PARAGRAPHS)[part]]
        paragraphs[part] = [known[number] for number in sorted(drawn.tolist())]
        write_lines(place / f"{part}.jsonl",
                    [{"text": f"{one['question']} {answer}", "spans": [answer]} for row in paragraphs[part]
                     for one in row["qas"] if len(answer := one["answers"][0]["text"]) <= LONGEST_ANSWER])
    sentences = dict.fromkeys(piece for rows in paragraphs.values() for row in rows
                              for piece in cut(row["context"], find_sentence_starts(row["context"])))
    write_lines(place / "corpus" / "corpus.jsonl", [{"_id": str(number), "title": "", "text": text}
                                                    for number, text in enumerate(sentences)])
    (place / "warm.txt").write_text("".join(f"{text}\n" for text in sentences), encoding="utf-8")


def cut(text: str, starts: Sequence[int]) -> list[str]:
    """Return the sentences of a text."""
    return [piece for start, end in pairwise([*starts, len(text)]) if (piece := text[start:end].strip())]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def warm(place: Path, quick: bool) -> Path:
    """Let MiniLM, with a new language head, learn hidden tokens of the passages, unless that is done."""
    run = place / "warm"
    if not (run / "evaluation.json").is_file():
        saucier("cook", "--from", weights(), "--data", str(place / "warm.txt"), "--out", str(run),
                f"training.steps={QUICK_STEPS if quick else STEPS}", "training.batch=32", "training.length=64",
                "training.optimizer.learning_rate=2e-4")
    return run


def learn(run: Path, place: Path, start: Path, seed: int, words: Sequence[str]) -> Path:
    """Learn from the texts, unless that is done."""
    return finetuned(run, "masked_retrieval", str(start), (place / "train.jsonl", place / "dev.jsonl"),
                     [*WORDS, f"training.epochs={EPOCHS}", f"training.seed={seed}",
                      f"task.retrieval.passages={place / 'corpus'}", f"task.retrieval.retriever={weights()}", *words])


def read_predictions(run: Path) -> list[dict[str, Any]]:
    """Return what a run filled in on the measured texts: the loss of each, its tokens, and whether it is right."""
    from saucier.tasks.metrics.texts import normalize_answer

    return [{"loss": one["loss"], "tokens": one["tokens"],
             "right": float(any(normalize_answer(one["prediction"]) == normalize_answer(gold) for gold in one["gold"]))}
            for one in read_lines(run / "predictions" / "held-out.jsonl")]
