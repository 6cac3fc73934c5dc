"""Searching for settings, and testing rates: budgets, rounds, resuming, and what becomes the fine-tuning."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.jobs.finetuning.conftest import labelled_rows

from saucier.errors import InputError
from saucier.jobs.finetuning import search
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.search import SearchState, Trial, draw_trials, plan_rounds
from saucier.jobs.finetuning.settings import Finetuning, read_finetuning_words

Table = Callable[..., Path]
WORDS = ["training.epochs=2", "training.batch=16", "training.optimizer.learning_rate=0.002", "training.dtype=float32"]


def settings(model: Path, table: Table, *words: str) -> Finetuning:
    files = {"train": [str(table("train.tsv", "label,text", labelled_rows(96, 1)))],
             "held_out": [str(table("dev.tsv", "label,text", labelled_rows(40, 2)))]}
    return read_finetuning_words("classification", [*WORDS, *words], str(model), files)[0]


def test_each_round_keeps_half_and_goes_twice_as_far() -> None:
    assert plan_rounds(12) == [(12, 0.125), (6, 0.25), (3, 0.5), (2, 1.0)]
    assert plan_rounds(2) == [(2, 1.0)]
    assert plan_rounds(3) == [(3, 0.5), (2, 1.0)]
    assert plan_rounds(100)[0] == (100, 0.125)
    assert plan_rounds(100)[-1] == (2, 1.0)


def test_the_settings_come_first_and_rates_are_spread(tiny_bert: Path, table: Table) -> None:
    base = settings(tiny_bert, table)
    first, *others = draw_trials(base, 8)
    assert (first.learning_rate, first.epochs, first.batch, first.pooling) == (0.002, 2.0, 16, "published")
    rates = sorted(one.learning_rate for one in others)
    assert rates[0] == pytest.approx(0.0005)
    assert rates[-1] == pytest.approx(0.008)
    assert len(set(rates)) == 7
    assert {one.pooling for one in others} <= {"mean", "published"}
    assert draw_trials(base, 8) == (first, *others)
    chosen = settings(tiny_bert, table, "task.pick.kind=mean")
    assert {one.pooling for one in draw_trials(chosen, 8)} == {""}


def test_a_round_is_ranked_by_its_own_scores() -> None:
    trials = tuple(Trial(learning_rate=1.0, epochs=1, batch=1, pooling="", scores=scores)
                   for scores in ((0.5, 0.9), (0.7,), (None,), (0.6, 0.1)))
    state = SearchState(metric="accuracy", higher=True, trials=trials)
    assert state.ranked([0, 1, 2, 3], 1) == [1, 3, 0, 2]
    assert state.ranked([0, 3], 2) == [0, 3]
    assert state.model_copy(update={"higher": False}).ranked([0, 1, 3], 1) == [0, 3, 1]


@pytest.mark.slow
def test_a_search_ends_as_a_fine_tuning_and_repeats_nothing(tiny_bert: Path, table: Table, tmp_path: Path,
                                                            monkeypatch: pytest.MonkeyPatch,
                                                            capsys: pytest.CaptureFixture[str]) -> None:
    wanted, out = settings(tiny_bert, table, "search.trials=4"), tmp_path / "run"
    calls: list[tuple[int, float]] = []
    work = search.run_trial

    def stopped(job: object, state: SearchState, number: int, share: float) -> float:
        if len(calls) == 5:
            raise KeyboardInterrupt
        calls.append((number, share))
        return work(job, state, number, share)  # type: ignore[arg-type]

    monkeypatch.setattr(search, "run_trial", stopped)
    with pytest.raises(KeyboardInterrupt):
        finetune(wanted, out, quiet=True)
    calls.append((-1, 0.0))  # so that it goes on
    folder = finetune(wanted, out)
    calls.remove((-1, 0.0))
    assert len(calls) == len(set(calls)) == 6  # four to a half, two to the end
    assert sorted(share for _, share in calls) == [0.5] * 4 + [1.0] * 2
    said = capsys.readouterr().out
    assert "4 combinations of rate, epochs, batch and pooling, in 2 rounds (4 to 0.5, 2 to 1 of their training)" in said
    assert "chosen" in said
    state = json.loads((out / "search.json").read_text())
    best = state["trials"][state["winner"]]
    scores = json.loads(folder.scores.read_text())["held-out"]["scores"]
    assert scores[0]["value"] == pytest.approx(best["scores"][-1])
    assert not (out / "checkpoints").exists()
    assert [path.name for path in (out / "search").glob("*/*")] == ["predictions"] * 4
    report = (out / "report.html").read_text()
    assert "<h2>Search</h2>" in report
    assert (out / "metrics.jsonl").is_file()
    finetune(wanted, out, quiet=True)  # finished: nothing is done
    assert len(calls) == 6


@pytest.mark.slow
def test_the_chosen_weights_are_those_of_its_settings_alone(tiny_bert: Path, table: Table, tmp_path: Path) -> None:
    wanted = settings(tiny_bert, table, "search.trials=2")
    finetune(wanted, tmp_path / "searched", quiet=True)
    state = SearchState.model_validate(json.loads((tmp_path / "searched" / "search.json").read_text()))
    assert state.winner is not None
    alone = search.trial_settings(wanted, state.trials[state.winner])
    finetune(alone, tmp_path / "alone", quiet=True)
    said = [(tmp_path / name / "predictions" / "held-out.jsonl").read_text() for name in ("searched", "alone")]
    assert said[0] == said[1]


def test_a_damaged_state_is_one_line(tiny_bert: Path, table: Table, tmp_path: Path) -> None:
    (tmp_path / "search.json").write_text('{"metric": 3}')
    with pytest.raises(InputError, match="is not the state of a search"):
        search.read_state(tmp_path)


@pytest.mark.slow
def test_a_range_test_chooses_the_rate_and_is_drawn(tiny_bert: Path, table: Table, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    wanted = settings(tiny_bert, table, "range_test.steps=40", "range_test.low=1e-5", "range_test.high=1")
    finetune(wanted, tmp_path / "run", quiet=True)
    found = json.loads((tmp_path / "run" / "range_test.json").read_text())
    assert found["rates"][0] == pytest.approx(1e-5)
    assert all(one < two for one, two in zip(found["rates"], found["rates"][1:], strict=False))
    lowest = found["rates"][found["losses"].index(min(found["losses"]))]
    assert found["chosen"] == pytest.approx(lowest / 10, rel=0.05)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert max(line["rate"] for line in lines if "rate" in line) == pytest.approx(found["chosen"], rel=0.01)
    assert "range test: the loss at rising rates" in (tmp_path / "run" / "report.html").read_text()
