"""Regular expressions from files: those of PEFT mean what they mean there, and none keeps anyone waiting."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from saucier.checkpoints.adapter_folder import MOST_EXPRESSIONS, read_alpha_pattern
from saucier.errors import InputError
from saucier.expressions import compile_expression

MODULES = ("h.0.attn.c_attn", "h.10.attn.c_attn", "h.1.mlp.c_fc", "c_fc", "model.layers.3.self_attn.q_proj", "xc_fc")


@pytest.mark.parametrize("pattern", [
    "c_fc", "h.0.attn.c_attn", r"h\.\d+\.attn\.c_attn", ".*attn", "h.[01].*", "^h.1.mlp.c_fc$", "(c_fc|q_proj)",
    "q_proj",
    "x", "attn", r"layers\.[0-4]\..*q_proj", "h.1", "",
])
def test_alphas_are_those_of_peft(pattern: str) -> None:
    """PEFT matches `(.*\\.)?(KEY)$` from the beginning of a module's name."""
    [(meets, alpha)] = read_alpha_pattern({"alpha_pattern": {pattern: 3}}, "here")
    expected = [name for name in MODULES if re.match(rf"(.*\.)?({pattern})$", name)]
    assert [name for name in MODULES if meets(name)] == expected and alpha == 3.0


@pytest.mark.parametrize("pattern", ["(a+)+$", "(.*.*)*x", "((a|a)*)*$", "(a|aa)+$"])
def test_no_expression_keeps_anyone_waiting(pattern: str) -> None:
    begin = time.process_time()
    compile_expression(pattern, "here")("a" * 5000 + "b")
    assert time.process_time() - begin < 1  # Python's own engine takes years


@pytest.mark.parametrize("pattern", ["(", "(?!x)a", r"(a)\1", "a{1001}", "\ud800", "x" * 1001])
def test_others_are_refused_by_name(pattern: str) -> None:
    with pytest.raises(InputError, match="cannot be used"):
        compile_expression(pattern, "here")


def test_too_many_are_refused(tmp_path: Path) -> None:
    many = {f"h.{number}.*": 1 for number in range(MOST_EXPRESSIONS + 1)}
    with pytest.raises(InputError, match="more than 100"):
        read_alpha_pattern({"alpha_pattern": many}, "here")
    assert len(read_alpha_pattern({"alpha_pattern": {f"h.{number}.c_fc": 1 for number in range(5000)}}, "here")) == 5000
