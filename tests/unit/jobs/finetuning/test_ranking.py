"""Ranking: rows of one query are read one by one, kept on one side, and scored together."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.unit.jobs.finetuning.conftest import labelled_rows

import saucier
from saucier.jobs.finetuning.data import read_splits
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.predict import predict_answers
from saucier.jobs.finetuning.settings import read_finetuning_words
from saucier.jobs.score import score_files
from saucier.tasks.build import build_task
from saucier.tasks.definitions import Ranking

Table = Callable[..., Path]
WORDS = ["training.epochs=6", "training.batch=16", "training.optimizer.learning_rate=0.003", "training.dtype=float32"]


def ranked_rows(queries: int, seed: int) -> list[tuple[str, ...]]:
    """Return (label, question, sentence) rows, four a question; good sentences are relevant."""
    rows = labelled_rows(4 * queries, seed)
    return [(str(int(tone == "good")), f"is the soup of table {place // 4} fine ?", text)
            for place, (tone, text) in enumerate(rows)]


def average_precision(relevant: list[float], scores: list[float]) -> float:
    """Average precision as its definition says: at each relevant rank, the share of relevant texts so far."""
    order = np.argsort(-np.array(scores))
    hits = [relevant[place] > 0 for place in order]
    return float(np.mean([sum(hits[:rank + 1]) / (rank + 1) for rank, hit in enumerate(hits) if hit]))


@pytest.mark.slow
def test_rankings_are_learned_and_scored_by_query(tiny_bert: Path, table: Table, tmp_path: Path) -> None:
    header = "label,question,sentence"
    train, dev = table("train.tsv", header, ranked_rows(80, 1)), table("dev.tsv", header, ranked_rows(25, 2))
    wanted = read_finetuning_words("ranking", WORDS, str(tiny_bert), {"train": [str(train)], "held_out": [str(dev)]})[0]
    folder = finetune(wanted, tmp_path / "run", quiet=True)
    found = json.loads(folder.scores.read_text())["held-out"]
    told = {one["name"]: one for one in found["scores"]}
    rows = [json.loads(line) for line in folder.predictions("held-out").read_text().splitlines()]
    queries: dict[str, list[dict[str, float]]] = {}
    for row in rows:
        queries.setdefault(row["query"], []).append(row)
    naive = [average_precision([row["gold"] for row in one], [row["prediction"] for row in one])
             for one in queries.values() if any(row["gold"] > 0 for row in one)]
    assert told["MAP"]["value"] == pytest.approx(np.mean(naive))
    assert told["MAP"]["count"] == len(naive) < len(queries) == 25
    assert told["MAP"]["value"] > 0.95
    [baseline] = found["baselines"]
    assert baseline == "words shared with the query"
    again = score_files((str(folder.predictions("held-out")),), group="query")
    assert {one.name: one.value for one in again.scores[0]} == pytest.approx(
        {name: one["value"] for name, one in told.items()})
    asked = "is the soup of table 3 fine ?"
    fine, sour = predict_answers(folder.path, [],
                                 [f"{asked} ||| my cat is {tone} here" for tone in ("lovely", "sour")]).answers
    assert isinstance(fine.prediction, float)
    assert isinstance(sour.prediction, float)
    assert fine.prediction > 0.5 > sour.prediction


def test_the_rows_of_a_query_stay_on_one_side(table: Table) -> None:
    path = table("all.tsv", "label,query,passage", ranked_rows(60, 3))
    wanted = read_finetuning_words("ranking", [], "model", {"train": [str(path)]})[0]
    splits = read_splits(build_task(Ranking()), wanted.data)
    assert splits.held_out
    assert not {one.text for one in splits.train} & {one.text for one in splits.held_out}


@pytest.mark.parametrize(("header", "rows", "says"), [
    ("label,query", [("1", "why ?")], "no column for the pair; columns: label, query"),
    ("label,query,passage", [("0", "why ?", "so"), ("0", "why ?", "thus")],
     "has no relevant text, or none that is not"),
    ("label,query,passage", [("yes", "why ?", "so")], "the label is 'yes', no number"),
])
def test_what_cannot_be_ranked_is_refused(tiny_bert: Path, table: Table, tmp_path: Path, header: str,
                                          rows: list[tuple[str, ...]], says: str) -> None:
    path = table("train.tsv", header, rows)
    wanted = read_finetuning_words("ranking", [], str(tiny_bert), {"train": [str(path)], "held_out": [str(path)]})[0]
    with pytest.raises(saucier.InputError, match=says):
        finetune(wanted, tmp_path / "run", quiet=True)
