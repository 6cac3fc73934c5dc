"""Vectors of texts: every loss against its formula, and a tiny model that learns what belongs together."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.unit.jobs.finetuning.conftest import TONES, WORDS
from tests.unit.jobs.finetuning.test_finetune import scores

import saucier
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.predict import predict_answers
from saucier.jobs.finetuning.settings import read_finetuning_words
from saucier.objectives.contrastive import Contrastive, Cosine, InBatchNegatives, Triplets
from saucier.tasks.build import build_task
from saucier.tasks.definitions import Embedding
from saucier.tasks.examples import Tally
from saucier.tasks.text_embedding import rank_candidates
from saucier.text.reading.sources import find_sources

Table = Callable[..., Path]


def unit_vectors(groups: int, texts: int, seed: int = 0) -> torch.Tensor:
    drawn = torch.randn(groups, texts, 5, generator=torch.Generator().manual_seed(seed))
    return drawn / drawn.norm(dim=-1, keepdim=True)


def test_in_batch_negatives_are_a_softmax_over_all_candidates() -> None:
    vectors = unit_vectors(4, 3)
    ids = torch.arange(12).view(4, 3, 1)
    found = InBatchNegatives(7.0).losses(vectors, InBatchNegatives(7.0).keys({"input_ids": ids}))
    for row in range(4):
        candidates = [vectors[other, side] for side in (1, 2) for other in range(4)]
        chances = [math.exp(7.0 * float(vectors[row, 0] @ one)) for one in candidates]
        assert float(found[row]) == pytest.approx(-math.log(chances[row] / sum(chances)), rel=1e-5)


def test_a_pair_that_is_spelled_like_the_own_one_is_no_negative() -> None:
    vectors = unit_vectors(3, 2)
    ids = torch.tensor([[[1], [9]], [[2], [9]], [[3], [8]]])
    found = InBatchNegatives(1.0).losses(vectors, InBatchNegatives(1.0).keys({"input_ids": ids}))
    kept = torch.stack([vectors[0, 0] @ vectors[0, 1], vectors[0, 0] @ vectors[2, 1]])
    assert float(found[0]) == pytest.approx(float(-kept.log_softmax(0)[0]), rel=1e-5)


def test_pairs_and_triplets_follow_their_formulas() -> None:
    vectors = unit_vectors(5, 3, seed=2)
    near = (vectors[:, 0] * vectors[:, 1]).sum(-1)
    labels = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.25])
    torch.testing.assert_close(Cosine().losses(vectors, {"labels": labels}), (near - labels) ** 2)
    together = torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0])
    wanted = torch.where(together > 0, (1 - near) ** 2, (0.5 - (1 - near)).clamp_min(0) ** 2) / 2
    torch.testing.assert_close(Contrastive(0.5).losses(vectors, {"labels": together}), wanted)
    far = [(vectors[:, 0] - vectors[:, side]).norm(dim=-1) for side in (1, 2)]
    torch.testing.assert_close(Triplets(0.3).losses(vectors, {}), (far[0] - far[1] + 0.3).clamp_min(0))


def test_a_rank_counts_the_candidates_that_are_at_least_as_near() -> None:
    vectors = torch.nn.functional.normalize(torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [1.0, 0.5]]), dim=-1)
    groups = torch.tensor([[0, 1], [0, 3], [0, 2]])
    assert rank_candidates(vectors, groups).tolist() == [1, 2, 3]


def said(tone: str, draw: random.Random) -> str:
    words = [draw.choice(WORDS) for _ in range(3)]
    words.insert(draw.randrange(3), draw.choice(TONES[tone]))
    return " ".join(words)


def rows(count: int, seed: int, columns: Callable[[str, str, random.Random], tuple[str, ...]]) -> list[tuple[str, ...]]:
    draw = random.Random(seed)
    pairs = [(tone, "bad" if tone == "good" else "good") for tone in (draw.choice(list(TONES)) for _ in range(count))]
    return [columns(tone, other, draw) for tone, other in pairs]


CASES = {
    "cosine": ("score,sentence1,sentence2", lambda tone, other, draw: (lambda same: (
        "5" if same else "0", said(tone, draw), said(tone if same else other, draw)))(draw.random() < 0.5)),
    "contrastive": ("label,sentence1,sentence2", lambda tone, other, draw: (lambda same: (
        str(int(same)), said(tone, draw), said(tone if same else other, draw)))(draw.random() < 0.5)),
    "triplet": ("anchor,positive,negative", lambda tone, other, draw: (
        said(tone, draw), said(tone, draw), said(other, draw))),
}


@pytest.mark.slow
@pytest.mark.parametrize(("learns", "metric", "least"), [("cosine", "Pearson", 0.8), ("contrastive", "accuracy", 0.9)])
def test_what_belongs_together_is_learned(learns: str, metric: str, least: float, tiny_bert: Path, table: Table,
                                          tmp_path: Path) -> None:
    header, columns = CASES[learns]
    train, dev = table("train.tsv", header, rows(320, 1, columns)), table("dev.tsv", header, rows(60, 2, columns))
    words = [f"task.learns.kind={learns}", "training.epochs=12", "training.optimizer.learning_rate=0.002",
             "training.dtype=float32"]
    wanted = read_finetuning_words("embedding", words, str(tiny_bert),
                                   {"train": [str(train)], "held_out": [str(dev)]})[0]
    folder = finetune(wanted, tmp_path / "run", quiet=True)
    assert scores(folder)[metric] > least
    assert (folder.model / "modules.json").is_file()
    vectors = saucier.embed(folder.path, ["lovely soup", "a fine plate", "sour soup"])
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]


def test_labels_that_a_loss_does_not_read_are_counted(table: Table) -> None:
    source = find_sources([str(table("a.tsv", "anchor,positive,label", [("x", "y", "0")] * 4))])[0]
    counted = Tally()
    assert len([*build_task(Embedding()).read(source, counted, labelled=True)]) == 4
    assert [(count, what.split(" how near")[0]) for what, count in counted.items()] == [(4, "rows say in label")]
    quiet = Tally()
    assert len([*build_task(Embedding(pair="label")).read(source, quiet, labelled=True)]) == 4
    assert not quiet


@pytest.mark.slow
def test_triplets_and_pairs_are_ranked(tiny_bert: Path, table: Table, tmp_path: Path) -> None:
    header, columns = CASES["triplet"]
    train, dev = table("train.tsv", header, rows(64, 1, columns)), table("dev.tsv", header, rows(20, 2, columns))
    for learns in ("triplet", "in_batch"):
        wanted = read_finetuning_words("embedding", [f"task.learns.kind={learns}", "training.epochs=1"], str(tiny_bert),
                                       {"train": [str(train)], "held_out": [str(dev)]})[0]
        folder = finetune(wanted, tmp_path / learns, quiet=True)
        lines = [json.loads(line) for line in folder.predictions("held-out").read_text().splitlines()]
        assert scores(folder)["MRR"] == pytest.approx(sum(1 / line["prediction"] for line in lines) / 20)
        assert all(1 <= line["prediction"] <= 40 for line in lines)
    said = predict_answers(tmp_path / "triplet", [], ["lovely soup ||| a fine plate"])
    assert -1 <= said.answers[0].more["cosine"] <= 1


def test_rows_of_different_groups_are_named(tiny_bert: Path, table: Table, tmp_path: Path) -> None:
    pairs, triplets = table("a.tsv", "anchor,positive", [("x", "y")] * 4), \
        table("b.tsv", "anchor,positive,negative", [("x", "y", "z")] * 4)
    wanted = read_finetuning_words("embedding", [], str(tiny_bert),
                                   {"train": [str(pairs), str(triplets)], "held_out": [str(pairs)]})[0]
    with pytest.raises(saucier.InputError, match=r"b.tsv, line 2: has 3 texts, and others have 2"):
        finetune(wanted, tmp_path / "run", quiet=True)
