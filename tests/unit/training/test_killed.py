"""A real training process, killed at five random moments, ends with the weights of one that was left alone."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

TOY = Path(__file__).with_name("toy.py")
STEPS = 120


def begin(folder: Path, root: Path) -> subprocess.Popen[str]:
    """Start training in a process of its own."""
    paths = os.pathsep.join([str(root / "src"), str(root)])
    return subprocess.Popen([sys.executable, str(TOY), str(folder), str(STEPS)], stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "PYTHONPATH": paths})


def kill_after(process: subprocess.Popen[str], step: int, pause: float) -> None:
    """Kill the process `pause` seconds after it has told of a step."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("step ") and int(line.split()[1].split("/")[0]) >= step:
            break
    time.sleep(pause)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()


@pytest.mark.slow
def test_killed_five_times_it_ends_with_the_same_weights(tmp_path: Path, root: Path) -> None:
    alone, dice = begin(tmp_path / "alone", root), random.Random()
    moments = [(step + dice.randrange(15), dice.random() * 0.02) for step in range(5, STEPS - 15, 20)][:5]
    for step, pause in moments:
        process = begin(tmp_path / "killed", root)
        kill_after(process, step, pause)
        assert process.returncode == -signal.SIGKILL, f"it ended before it was killed at {step}"
    last = begin(tmp_path / "killed", root)
    said = [process.communicate(timeout=120)[1] for process in (alone, last)]
    assert "resumed from" in said[1], said[1]
    one, two = (load_file(tmp_path / name / f"checkpoints/step-{STEPS}/model.safetensors")
                for name in ("alone", "killed"))
    assert one.keys() == two.keys()
    different = [name for name, value in one.items() if value.numpy().tobytes() != two[name].numpy().tobytes()]
    assert not different, f"killed at {moments}"
