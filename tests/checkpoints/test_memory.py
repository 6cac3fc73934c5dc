"""Opening a checkpoint holds its weights once; the rest of the peak is less than a tenth, and one stored tensor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import saucier
from saucier.families import bert, gpt2

PROGRAM = """
import resource, sys, torch, saucier
from saucier.families import gpt2
from saucier.loading import load
small = saucier.build(gpt2(dim=32, layers=1, heads=2, vocab=50, length=16))
small.save(sys.argv[1] + "/small")
load(sys.argv[1] + "/small", dtype=sys.argv[2], device="cpu")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model = load(sys.argv[1] + "/model", dtype=sys.argv[2], device="cpu")
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
held = sum(parameter.nbytes for parameter in model.parameters())
print((after - before) * 1024 / held, held)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "bert"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_peak(kind: str, dtype: str, tmp_path: Path) -> None:
    """GPT-2's maps are turned while they are read, BERT's queries, keys and values put into one."""
    tree = gpt2(dim=768, layers=10, heads=12, vocab=8000) if kind == "gpt2" else bert(dim=768, layers=10, heads=12,
                                                                                      vocab=8000)
    with torch.device("cpu"):
        saucier.build(tree).save(tmp_path / "model")
    assert (tmp_path / "model/model.safetensors").stat().st_size > 280e6
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path), dtype], capture_output=True, text=True,
                          check=True)
    peak, held = map(float, done.stdout.split())
    assert held > 140e6
    largest = 8000 * 768 * 4 / held  # pages of the file that stay mapped while this one is cast
    assert peak < (1.1 if dtype == "float32" else 1.1 + largest), f"{peak:.2f} times the weights"
