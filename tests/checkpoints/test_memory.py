"""Opening a checkpoint holds its weights once; the rest of the peak is less than a tenth."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import saucier
from saucier.families import bert, gpt2, llama

PROGRAM = """
import sys, saucier
from pathlib import Path
from saucier.families import gpt2
from saucier.folders.load import load

def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

saucier.build(gpt2(dim=32, layers=1, heads=2, vocab=50, length=16)).save(sys.argv[1] + "/small")
load(sys.argv[1] + "/small", dtype=sys.argv[2], device="cpu")
Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
before = status("VmRSS")
model = load(sys.argv[1] + "/model", dtype=sys.argv[2], device="cpu")
held = sum(parameter.nbytes for parameter in model.parameters())
print((status("VmHWM") - before) / held, held)
"""
TREES = {
    "gpt2": gpt2(dim=768, layers=10, heads=12, vocab=8000),
    "bert": bert(dim=768, layers=10, heads=12, vocab=8000),
    "llama": llama(dim=512, layers=4, heads=8, vocab=64000),
}
"""GPT-2's maps are turned while they are read, BERT's queries, keys and values put into one; nearly all of this LLaMA
are its table of tokens, read first, and its output map, read last."""


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the peak of a while")
@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_peak(kind: str, dtype: str, tmp_path: Path) -> None:
    with torch.device("cpu"):
        saucier.build(TREES[kind]).save(tmp_path / "model")
    assert (tmp_path / "model/model.safetensors").stat().st_size > 280e6
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path), dtype], capture_output=True, text=True,
                          check=True)
    peak, held = map(float, done.stdout.split())
    assert held > 140e6
    assert peak < 1.1, f"{peak:.2f} times the weights"
