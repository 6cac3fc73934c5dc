"""What a person and the files hear of a run."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
import torch
from tests.unit.training.toy import recipe

from saucier.devices import choose_autocast_dtype
from saucier.training.loop import Interrupt
from saucier.training.processes import join_processes
from saucier.training.progress import Bar, Lines, MetricsFile, Progress, build_reporters, choose_screen


def at(step: int) -> Progress:
    """Return the progress after a step of ten."""
    return Progress(step, 10, 2.5, 1e-3, 0.7, 100 * step, 120 * step, 50.0, 2.0 * step)


def test_lines_come_every_few_steps_and_at_both_ends() -> None:
    stream = io.StringIO()
    lines = Lines(4, stream)
    for step in range(1, 11):
        lines.progress(at(step))
    lines.evaluation(10, {"loss": 1.25})
    said = stream.getvalue().splitlines()
    assert [line.split(":")[0] for line in said] == ["step 1/10", "step 4/10", "step 8/10", "step 10/10", "step 10"]
    assert "loss 2.5000, rate 1.00e-03, 50 tokens/s, 12 s left" in said[1]
    assert said[-1] == "step 10: held-out loss 1.25"


def test_without_a_terminal_there_are_lines_and_with_one_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    assert isinstance(choose_screen(10, 2), Lines)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    bar = choose_screen(10, 2)
    assert isinstance(bar, Bar)
    bar.progress(at(3))
    assert bar.bar.tasks[0].completed == 3
    assert "loss 2.5000" in bar.bar.tasks[0].fields["facts"]
    bar.close()


def test_a_metrics_file_keeps_what_is_whole_and_not_later(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 2, "loss": 1.0}\n{"step": 4, "loss": 0.5}\n{"step"')
    MetricsFile(path, 1, 2).progress(at(3))
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [2, 3]


def test_a_process_that_does_not_write_leaves_no_file(tmp_path: Path) -> None:
    assert build_reporters(recipe(3), tmp_path, 0, None, writes=False).members == ()
    assert list(tmp_path.iterdir()) == []


def test_the_second_interrupt_is_let_through() -> None:
    interrupt = Interrupt()
    interrupt.receive(2, None)
    assert interrupt.received
    with pytest.raises(KeyboardInterrupt):
        interrupt.receive(2, None)


def test_the_number_format_is_explained() -> None:
    device = torch.device("cpu")
    assert choose_autocast_dtype("float32", device) == ("float32", "float32 as asked")
    dtype, why = choose_autocast_dtype("auto", device)
    assert why.startswith(dtype)


def test_without_torchrun_there_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with join_processes() as processes:
        assert (processes.rank, processes.world, processes.first) == (0, 1, True)
        assert processes.any(True)
        assert not processes.agree(False)
