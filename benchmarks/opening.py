"""Opening a checkpoint of 500 MB: from a fresh process to the first logits, against `transformers`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.section import Row, Section, at_least

SHAPE = {"n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}
QUICK = SHAPE | {"n_embd": 64, "n_layer": 2, "n_head": 2, "vocab_size": 512}
OURS = """
import saucier, torch
model = saucier.load({folder!r}, dtype="float32", device="cpu")
with torch.inference_mode():
    logits = model(torch.arange(8)[None]).logits
"""
THEIRS = """
import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained({folder!r}, dtype=torch.float32).eval()
with torch.inference_mode():
    logits = model(torch.arange(8)[None]).logits
"""
TIMED = """import os, time
begin = time.perf_counter()
{body}
print(time.perf_counter() - begin, float(logits.double().abs().sum()))
"""


def checkpoint(folder: Path, shape: dict[str, int]) -> int:
    """Write a GPT-2 with random weights in the published layout; return its bytes."""
    from transformers import GPT2Config, GPT2LMHeadModel

    GPT2LMHeadModel(GPT2Config(**shape)).save_pretrained(folder)
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def seconds(body: str) -> tuple[float, float]:
    """Run in a fresh process; return the seconds from its first import to the logits, and a sum over these."""
    done = subprocess.run([sys.executable, "-c", TIMED.format(body=body)], capture_output=True, text=True, check=True)
    taken, total = done.stdout.strip().splitlines()[-1].split()
    return float(taken), float(total)


def measure(quick: bool) -> Section:
    """Take turns; the first turn only warms the disk's cache, and is all that a quick look takes."""
    warming, rounds = (0, 1) if quick else (1, 7)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        size = checkpoint(folder, QUICK if quick else SHAPE)
        programs = [body.format(folder=str(folder)) for body in (OURS, THEIRS)]
        turns = [[seconds(body) for body in programs] for _ in range(warming + rounds)][warming:]
    ours, theirs = (statistics.median(turn[side][0] for turn in turns) for side in (0, 1))
    apart = max(abs(turn[0][1] / turn[1][1] - 1) for turn in turns)
    about = (f"A GPT-2 of {size / 1e6:.0f} MB in float32, on a warm disk cache: seconds from a fresh process's first "
             "import to the first logits.")
    return Section("Opening a checkpoint", about, [
        at_least("import, open, first logits", f"{ours:.2f} s", f"{theirs:.2f} s", theirs / ours, 1.5),
        Row("sums over all logits differ by (relative)", f"{apart:.1e}")])
