"""Bad calls of the public functions, drawn by hypothesis: an `InputError` in one line, or a sound result.

What is drawn is in `tools/fuzzing/calls.py`: wrong types and ranges, missing files, unknown names, damaged values, for
every parameter of the signatures. A value that a parameter's type excludes must be refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import FunctionType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tools.fuzz import remove
from tools.fuzzing import calls, cases
from tools.fuzzing.signatures import required

import saucier
from saucier.text.tokenizer.tokenizer import Tokenizer

ROOMY: dict[str, Any] = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("calls")


def judge(drawn: Random, place: Path) -> None:
    """Make one bad call, in an empty working folder, and say what is wrong with what came of it."""
    stock, work = place / "whole", place / "case"
    remove(work)  # hypothesis may have ended the last one while it was drawn
    stock.mkdir(exist_ok=True)
    work.mkdir()
    with pytest.MonkeyPatch.context() as patch, open(os.devnull) as nothing:
        patch.chdir(work)
        patch.setattr("sys.stdin", nothing)  # what `-` reads
        verdict = cases.tried(calls.draw, drawn, 0, stock, work)
    faults = [one for one in verdict.faults if not one.startswith("memory: ")]  # libraries that are loaded late
    assert not faults, f"{verdict.told}: {'; '.join(faults)}"


@pytest.mark.slow
@settings(max_examples=200, **ROOMY)
@given(drawn=st.randoms(use_true_random=False))
def test_bad_calls(drawn: Random, place: Path) -> None:
    judge(drawn, place)


@pytest.mark.nightly
@settings(max_examples=2000, **ROOMY)
@given(drawn=st.randoms(use_true_random=False))
def test_2000_bad_calls(drawn: Random, place: Path) -> None:
    judge(drawn, place)


FUNCTIONS = [one for one in map(saucier.__getattr__, sorted(saucier.PUBLIC)) if isinstance(one, FunctionType)]


@pytest.mark.parametrize("function", [one for one in FUNCTIONS if one is not saucier.generate]
                         + [Tokenizer.encode, Tokenizer.decode])
def test_an_unknown_keyword_stays_a_type_error(function: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match="nothing_like_it"):
        function(**dict.fromkeys(required(function)), nothing_like_it=1)
