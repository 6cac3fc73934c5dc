"""Two processes under torchrun learn what one learns."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from saucier.training.processes import Processes, group_into_buckets, join_processes

PROGRAM = """
import sys
from pathlib import Path
import torch
from saucier.training.evaluation import Evaluator
from saucier.training.loop import train
from saucier.training.processes import join_processes
from tests.unit.training.toy import Counting, gpt, recipe, study
torch.set_num_threads(1)
with join_processes() as us:
    plain = study()
    rows = [Counting(seed=99)[step] for step in range(3)]
    held_out = Evaluator(rows, plain.corruption, plain.objective, processes=us)
    short = recipe(6, evaluate_every=3, average=2)
    train(gpt(dropout=0.0), plain, short, run_folder=Path(sys.argv[1]), evaluate=held_out, reporters=[])
"""


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def run(folder: Path, root: Path, world: int) -> list[dict[str, float]]:
    """Train with `world` processes, and return the metrics that were written."""
    program = folder.with_suffix(".py")
    program.write_text(PROGRAM)
    plain = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]), "OMP_NUM_THREADS": "1"}
    group = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()} if world > 1 else {}
    started = [subprocess.Popen([sys.executable, str(program), str(folder)], stderr=subprocess.PIPE, text=True,
                                env={**plain, **group, "RANK": str(rank)}) for rank in range(world)]
    for process in started:
        assert process.wait(timeout=120) == 0, process.communicate()[1]
        assert process.stderr is not None
        process.stderr.close()
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_two_processes_give_the_loss_of_one(tmp_path: Path, root: Path) -> None:
    one, two = run(tmp_path / "one", root, 1), run(tmp_path / "two", root, 2)
    assert len(one) == len(two) == 6 + 3
    for mine, other in zip(one, two, strict=True):
        figures = ("loss", "tokens", "gradient_norm") if "loss" in mine else ()
        assert [other[name] for name in figures] == pytest.approx([mine[name] for name in figures], rel=1e-5)
        if "evaluation" in mine:
            assert other["evaluation"] == pytest.approx(mine["evaluation"], rel=1e-5)


def test_alone_nothing_is_summed() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    Processes().sum_gradients([parameter])
    assert parameter.grad is None
    assert Processes().sums({"a": 1.5}) == {"a": 1.5}


def test_buckets_keep_every_tensor_in_order() -> None:
    tensors = [torch.empty(size, device="meta") for size in (10, 2**24, 5, 6, 2**25, 1)]
    made = list(group_into_buckets(tensors))
    assert [tensor.numel() for group in made for tensor in group] == [tensor.numel() for tensor in tensors]
    assert len(made) == 5


def test_processes_wait_for_one_that_packs_for_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch gives up after half an hour, and the first process packs or scores while the others wait."""
    told: dict[str, Any] = {}
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **options: told.update(options))
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: None)
    with join_processes() as processes:
        assert processes.world == 2
    assert told["timeout"] >= timedelta(days=7)


def test_alone_the_first_writes_and_goes_ahead() -> None:
    done: list[str] = []
    alone = Processes()
    alone.write_once(lambda: done.append("written"))
    with alone.first_goes_ahead():
        done.append("ahead")
    assert done == ["written", "ahead"]
    assert alone.mean(1.5) == 1.5
    assert alone.gather_state(lambda: {"a": torch.ones(1)}) == {"a": torch.ones(1)}


def test_another_process_writes_nothing_and_holds_back_no_tensor() -> None:
    second = Processes(rank=1)
    second.write_once(lambda: pytest.fail("only the first one writes"), wait=False)
    assert second.gather_state(lambda: pytest.fail("only the first one takes tensors out")) == {}


def test_rows_come_back_to_the_process_that_had_them() -> None:
    rows = {"state": torch.arange(10).reshape(5, 2)}
    found = [Processes(rank, 2).scatter_rows(rows) for rank in range(2)]
    assert torch.equal(torch.cat([part["state"] for part, _ in found]), rows["state"])
    assert [first for _, first in found] == [0, len(found[0][0]["state"])]


def test_gradients_are_scaled_to_the_limit_and_their_norm_is_told() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([3.0, 4.0])
    assert Processes().finish_gradients([parameter], 1.0) == pytest.approx(5.0)
    assert parameter.grad.norm() == pytest.approx(1.0)
