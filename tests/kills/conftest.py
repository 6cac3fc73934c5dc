"""What the tests that end processes share: the inputs, and what came of each verb that was left alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from tests.kills.driver import Ended, Kitchen, called
from tests.kills.jobs import JOBS, write_inputs

Alone = Callable[[str], tuple[Ended, dict[str, bytes]]]


@pytest.fixture(scope="session")
def kitchen(tmp_path_factory: pytest.TempPathFactory) -> Kitchen:
    """Return where verbs are run."""
    base = tmp_path_factory.mktemp("kills")
    inputs = base / "inputs"
    inputs.mkdir()
    made = called(write_inputs, (str(inputs),), inputs)
    assert made.code == 0, made.said
    return Kitchen(inputs, base / "place")


@pytest.fixture(scope="session")
def alone(kitchen: Kitchen) -> Alone:
    """Return a function that tells how a verb ends that is left alone, and what it leaves; each is run once."""
    @cache
    def run(name: str) -> tuple[Ended, dict[str, bytes]]:
        (ended,), found = kitchen.run(JOBS[name])
        assert ended.code == 0, ended.said
        return ended, found

    return run
