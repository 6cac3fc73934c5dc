"""What every test may use: one thread, real text when it is there, and no network."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny models: threads that wait for each other cost more than they give

# The same examples on every run, and no time limit for one: the machine may be busy.
hypothesis.settings.register_profile("saucier", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("saucier")

ROOT = Path(__file__).resolve().parent.parent
SAMPLED = 10
"""Of so many cases of a test that is marked `sampled` one is ordinary; the others are slow."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what the ordinary run leaves out of tests with very many cases, before pytest chooses by marks."""
    seen = Counter[str]()
    for item in items:
        if item.get_closest_marker("sampled"):
            name = item.nodeid.partition("[")[0]
            if seen[name] % SAMPLED:
                item.add_marker(pytest.mark.slow)
            seen[name] += 1


@pytest.fixture(scope="session", autouse=True)
def processors_without_bfloat16() -> Iterator[None]:
    """`auto` is float32 on every processor, so that a test is the same on each; tests about it say what they assume."""
    from saucier import devices
    from saucier.training import optimizers

    asked = devices.multiplies_bfloat16
    with pytest.MonkeyPatch.context() as patch:
        for module in (devices, optimizers):
            patch.setattr(module, "multiplies_bfloat16", lambda device: device.type != "cpu" and asked(device))
        yield


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder with real data and golden values, which is beside the repository and never inside it."""
    folder = ROOT.parent / "shared"
    if not (folder / "data").is_dir():
        pytest.skip("../shared (real data and golden values) is not on this machine")
    return folder
