"""Learning from what the model wrote at an earlier update: the buffer makes a stopped or shared run the same run."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.unit.training.test_loop import Presser, equal
from tests.unit.training.test_processes import free_port
from tests.unit.training.toy import BATCH, Counting, gpt, recipe

from saucier.errors import WorkError
from saucier.objectives.base import Batch, CarriedBuffer, Loss, LossPart, Objective, RowCorruption
from saucier.text.rows.batch import Rows, make_generator
from saucier.training.loop import train
from saucier.training.update import TrainingData

WRITTEN = 6
PROGRAM = """
import sys
from pathlib import Path
import torch
from saucier.training.loop import train
from tests.unit.training.test_carried_rollouts import writing
from tests.unit.training.toy import gpt, recipe
torch.set_num_threads(1)
train(gpt(dropout=0.0), writing(), recipe(3), run_folder=Path(sys.argv[1]), reporters=[])
"""


class Openings(RowCorruption):
    """The first token of each row, its number, and random numbers to write on with."""

    def __call__(self, rows: Rows, *, seed: int, step: int) -> Batch:
        draws = [make_generator(seed, 77, step, int(number)).random(WRITTEN) for number in rows.row]
        return {"input_ids": torch.from_numpy(rows.tokens[:, :1].copy()), "rows": torch.from_numpy(rows.row),
                "draws": torch.from_numpy(np.array(draws))}


@dataclass(frozen=True, slots=True)
class Rollouts(Objective):
    """At every second update the model writes texts; it learns from them then and once more (REINFORCE).

    The reward of a token is one half where it is even, and minus one half where it is odd.
    """

    carried: CarriedBuffer = field(default_factory=CarriedBuffer)
    writes: bool = True

    def at(self, step: int) -> Rollouts:
        return replace(self, writes=step % 2 == 0)

    def count(self, batch: Batch) -> dict[str, float]:
        return {"tokens": float(WRITTEN * len(batch["rows"]))}

    def __call__(self, model: Any, batch: Batch) -> Loss:
        rows = batch["rows"].tolist()
        if self.writes:
            self.carried.put(rows, {"ids": write(model, batch["input_ids"], batch["draws"])})
        ids = self.carried.get(rows)["ids"]
        chosen = model(input_ids=ids[:, :-1]).logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
        reward = (ids[:, 1:] % 2 == 0).to(chosen.dtype) - 0.5
        return Loss({"tokens": LossPart(-(reward * chosen).sum(), float(reward.numel()))})


@torch.no_grad()
def write(model: Any, ids: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """Write on, each token drawn by its number."""
    for number in range(WRITTEN):
        sums = model(input_ids=ids).logits[:, -1].double().softmax(-1).cumsum(-1)
        drawn = torch.searchsorted(sums, draws[:, number, None].contiguous())
        ids = torch.cat([ids, drawn.clamp(max=sums.shape[1] - 1)], dim=1)
    return ids


def writing() -> TrainingData:
    return TrainingData(Counting(padded=False), Openings(), Rollouts())


def test_stopped_between_writing_and_learning_it_is_bit_equal(tmp_path: Path) -> None:
    """Step 3 learns from what step 2 wrote, with weights that are gone; a run that resumes there finds it."""
    whole, parts, again = (gpt(seed) for seed in (0, 0, 4))
    train(whole, writing(), recipe(6), run_folder=tmp_path / "whole", reporters=[])
    with pytest.raises(WorkError, match="interrupted after step 3 of 6"):
        train(parts, writing(), recipe(6), run_folder=tmp_path / "parts", reporters=[Presser(3)])
    ids = load_file(tmp_path / "parts/checkpoints/step-3/carried.safetensors")["ids"]
    assert (ids.dtype, ids.shape) == (torch.int64, (BATCH, 1 + WRITTEN))
    train(again, writing(), recipe(6), run_folder=tmp_path / "parts", reporters=[])
    assert equal(whole, again)


@pytest.mark.slow
def test_it_learns_to_write_what_is_rewarded(tmp_path: Path) -> None:
    """In sixty updates nearly all tokens that it writes become even."""
    model, data = gpt(dropout=0.0), writing()
    batch = data.corruption(data.batches.rows(500), seed=0, step=500)

    def share() -> float:
        ids = write(model.eval(), batch["input_ids"], batch["draws"])
        return float((ids[:, 1:] % 2 == 0).double().mean())

    before = share()
    train(model, data, recipe(60), run_folder=tmp_path, reporters=[])
    assert before < 0.7 < 0.9 < share()


@pytest.mark.slow
def test_two_processes_write_what_one_does(tmp_path: Path, root: Path) -> None:
    """Whole numbers stay whole numbers when the rows of both are put together."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    plain = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]), "OMP_NUM_THREADS": "1"}
    shared = {**plain, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    runs = [("one", plain), *(("two", {**shared, "RANK": str(rank)}) for rank in range(2))]
    begun = [subprocess.Popen([sys.executable, str(program), str(tmp_path / name)], env=env, stderr=subprocess.PIPE,
                              text=True) for name, env in runs]
    for process in begun:
        assert process.wait(timeout=120) == 0, process.communicate()[1]
        assert process.stderr is not None
        process.stderr.close()
    one, two = (load_file(tmp_path / name / "checkpoints/step-3/carried.safetensors")["ids"] for name in ("one", "two"))
    assert torch.equal(one, two)
