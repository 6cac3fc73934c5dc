"""Training with a carried memory: stopped, killed or shared among processes, it is the same run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file
from tests.unit.training.test_killed import TOY, kill_after
from tests.unit.training.test_loop import Listener, Presser, equal
from tests.unit.training.test_processes import free_port
from tests.unit.training.toy import BATCH, CountingOn, recipe, remembering, small

from saucier.errors import WorkError
from saucier.model import build
from saucier.training.evaluation import Evaluator
from saucier.training.loop import train
from saucier.training.processes import Processes

PROGRAM = """
import sys
from pathlib import Path
import torch
from saucier.model import build
from saucier.training.evaluation import Evaluator
from saucier.training.loop import train
from saucier.training.processes import join_processes
from tests.unit.training.toy import CountingOn, recipe, remembering, small
torch.set_num_threads(1)
with join_processes() as us:
    plain = remembering()
    rows = [CountingOn(seed=99)[step] for step in range(3)]
    held_out = Evaluator(rows, plain.corruption, plain.objective.held_out(), processes=us)
    train(build(small("transfo_xl", dropout=0.0)), plain, recipe(int(sys.argv[2]), evaluate_every=3),
          run_folder=Path(sys.argv[1]), evaluate=held_out, reporters=[])
"""


@pytest.mark.slow
def test_stopped_and_set_back_it_is_bit_equal(tmp_path: Path) -> None:
    """Stopped in the middle of an epoch, its last checkpoint lost: the memory is that of the one before."""
    whole, parts, again = (build(small("transfo_xl"), seed=seed) for seed in (0, 0, 3))
    train(whole, remembering(), recipe(12), run_folder=tmp_path / "whole", reporters=[])
    with pytest.raises(WorkError, match="interrupted after step 8 of 12"):
        train(parts, remembering(), recipe(12), run_folder=tmp_path / "parts", reporters=[Presser(8)])
    shutil.rmtree(tmp_path / "parts/checkpoints/step-8")
    carried = load_file(tmp_path / "parts/checkpoints/step-6/carried.safetensors")
    assert {tuple(value.shape) for value in carried.values()} == {(BATCH, 12, 32)}
    train(again, remembering(), recipe(12), run_folder=tmp_path / "parts", reporters=[])
    assert equal(whole, again)
    (tmp_path / "without").mkdir()
    shutil.copytree(tmp_path / "whole/checkpoints/step-9", tmp_path / "without/checkpoints/step-9")
    (tmp_path / "without/checkpoints/step-9/carried.safetensors").unlink()
    listener = Listener()
    train(parts, remembering(), recipe(12), run_folder=tmp_path / "without", reporters=[listener])
    assert "carried.safetensors has 0 of" in listener.notes[0]  # a checkpoint without its memory is no whole one


@pytest.mark.slow
def test_micro_batches_give_the_losses_of_the_whole_batch(tmp_path: Path) -> None:
    losses = []
    for size in (None, 3):
        listener = Listener()
        train(build(small("transfo_xl", dropout=0.0)), remembering(), recipe(7, micro_batch=size),
              run_folder=tmp_path / str(size), reporters=[listener])
        losses.append([progress.loss for progress in listener.heard])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


@pytest.mark.slow
def test_killed_it_ends_with_the_same_weights(tmp_path: Path, root: Path) -> None:
    def begin(folder: Path) -> subprocess.Popen[str]:
        paths = os.pathsep.join([str(root / "src"), str(root)])
        return subprocess.Popen([sys.executable, str(TOY), str(folder), "30", "memory"], stderr=subprocess.PIPE,
                                text=True, env={**os.environ, "PYTHONPATH": paths})

    alone, killed = begin(tmp_path / "alone"), begin(tmp_path / "killed")
    kill_after(killed, 11, 0.0)
    last = begin(tmp_path / "killed")
    said = [process.communicate(timeout=120)[1] for process in (alone, last)]
    assert "resumed from" in said[1], said[1]
    one, two = ((tmp_path / name / "checkpoints/step-30/model.safetensors").read_bytes()
                for name in ("alone", "killed"))
    assert one == two


@pytest.mark.slow
def test_two_processes_remember_what_one_does(tmp_path: Path, root: Path) -> None:
    """And what two have saved, one can go on with."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    plain = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]), "OMP_NUM_THREADS": "1",
             "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    both = [subprocess.Popen([sys.executable, str(program), str(tmp_path / "two"), "6"], stderr=subprocess.PIPE,
                             text=True, env={**plain, "RANK": str(rank)}) for rank in range(2)]
    for process in both:
        assert process.wait(timeout=120) == 0, process.communicate()[1]
        assert process.stderr is not None
        process.stderr.close()
    listener = Listener()
    one = remembering()
    rows = [CountingOn(seed=99)[step] for step in range(3)]
    held_out = Evaluator(rows, one.corruption, one.objective.held_out(), processes=Processes())
    train(build(small("transfo_xl", dropout=0.0)), one, recipe(6, evaluate_every=3), run_folder=tmp_path / "one",
          evaluate=held_out, reporters=[listener])
    mine, other = (load_file(tmp_path / name / "checkpoints/step-6/carried.safetensors") for name in ("one", "two"))
    assert [other[name].numpy() for name in sorted(other)] == [pytest.approx(mine[name].numpy(), abs=1e-4)
                                                               for name in sorted(mine)]
    last = json.loads((tmp_path / "two/metrics.jsonl").read_text().splitlines()[-1])
    assert last["evaluation"] == pytest.approx(dict(listener.scores[-1]), rel=1e-4)
