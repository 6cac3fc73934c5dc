"""Ctrl-C while a run trains: it is saved, the person is told, and the same command goes on. All without a terminal."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import TINY, Saucier

from saucier.checkpoints.steps import list_checkpoints
from saucier.jobs.run.passport import read_passport


@pytest.mark.slow
def test_interrupt_saves_and_the_run_goes_on(saucier: Saucier, text_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ["train", "shakespeare", "--data", str(text_file), "--out", str(out), "--no-calibrate", *TINY,
                 "training.steps=100000", "training.evaluate_every=100000", "training.log_every=5"]
    process = subprocess.Popen([sys.executable, "-m", "saucier", *arguments], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if line.startswith("step 5/"):
            process.send_signal(signal.SIGINT)
            break
    rest = process.stderr.read()
    assert process.wait(timeout=60) == 1, (seen, rest)
    assert "error: " in rest
    assert "interrupted after step" in rest
    saved = list_checkpoints(out)
    assert len(saved) == 1
    steps = int(saved[0].name.removeprefix("step-"))
    assert 5 <= steps < 100000
    assert (out / "metrics.jsonl").is_file()
    answer = saucier(*arguments, "training.steps=100000", "training.seed=1")
    assert (answer.code, "training.seed" in answer.error) == (2, True)
    assert read_passport(out).outcome is None
