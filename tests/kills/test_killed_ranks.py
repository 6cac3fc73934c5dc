"""Of two processes under torchrun one is killed: the other ends with an error, and does not wait for ever."""

from __future__ import annotations

import socket
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from tests.kills.driver import started
from tests.kills.jobs import be_rank

LONGEST = 120
"""Seconds, on a busy machine; mostly it takes less than one."""


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def until_there(path: Path, group: list[BaseProcess], text: str = "") -> None:
    """Wait until a file is there and holds a text."""
    end = time.monotonic() + LONGEST
    while not (path.is_file() and text in path.read_text(encoding="utf-8")):
        assert time.monotonic() < end and all(one.is_alive() for one in group), f"{path} is not written"
        time.sleep(0.02)


@pytest.mark.parametrize(("work", "dies"), [("train", 1), ("train", 0), ("pack", 0)])
def test_the_other_one_ends(work: str, dies: int, tmp_path: Path) -> None:
    """In the middle of training, and while one waits until the other has packed the text."""
    port, folders = free_port(), [tmp_path / str(rank) for rank in range(2)]
    for folder in folders:
        folder.mkdir()
    group = [started(be_rank, (rank, port, str(tmp_path), work), folder) for rank, folder in enumerate(folders)]
    try:
        if work == "train":
            until_there(tmp_path / "run/metrics.jsonl", group, '"step": 3,')
        else:
            for rank in range(2):
                until_there(tmp_path / f"rank-{rank}", group)
        group[dies].kill()
        group[1 - dies].join(LONGEST)
        assert group[1 - dies].exitcode not in (None, 0), "it still waits"
    finally:
        for one in group:
            one.kill()
            one.join()
