"""What the nano recipes of pretraining learn from Python's documentation, beside what simple methods know of it.

`python -m benchmarks nanos`. What is finished is kept in `runs/nanos`, and is not done again.
"""

from __future__ import annotations

from math import log
from pathlib import Path
from typing import Any

from benchmarks.cooking import kept
from benchmarks.section import Row, Section

RUNS = Path("runs/nanos")
RECIPES = ("bert-nano", "roberta-nano", "spanbert-nano", "albert-nano", "deberta-nano", "xlm-nano", "xlnet-nano",
           "electra-nano", "gpt-nano", "gpt1-nano", "gpt2-nano", "deep-char-nano", "t5-nano", "bart-nano", "mbart-nano",
           "prefix-lm-nano", "t5-lm-nano", "t5-shared-nano", "ul2-nano")
QUICK = ["training.steps=4", "training.evaluate_every=4", "sampling.tokens=4", "model.dim=32", "--no-calibrate"]
SHARE = "share of all tokens that are replaced"
"""What a report calls it."""


def measure(quick: bool) -> Section:
    """Cook every one as it is."""
    about = ("`saucier cook RECIPE`, all as it stands, seed 0. Held-out loss in nats a target; beside it, what each "
             "target would cost by its share among the training targets, for replaced tokens by the share of replaced "
             "ones; for language models bits per byte, beside the best of a 5-gram model, unigrams and `xz -9`.")
    return Section("Nano recipes", about, [row(name, quick=quick) for name in RECIPES[:2 if quick else None]],
                   [f"`{RUNS}` holds every run."])


def row(name: str, *, quick: bool) -> Row:
    """Cook one, unless that is done, and return its line."""
    run = RUNS / ("quick" * quick) / name
    found = kept(name, run, QUICK if quick else [])
    own, other, words = compared(found)
    beside = "; ".join(f"{score['name']} {score['value']:.2f}" for score in found["scores"])
    what = f"{name}, {found['steps']:,} steps, {found['cost']['phases']['train'] / 60:.1f} minutes"
    return Row(f"{what}{' (' * bool(beside)}{beside}{')' * bool(beside)}", f"{own:.3f}", f"{words} {other:.3f}",
               target="below", reached=own < other)


def compared(found: dict[str, Any]) -> tuple[float, float, str]:
    """Return a run's own figure, that of the simple method, and the method's name."""
    held_out, scores = found["held_out"], {score["name"]: score["value"] for score in found["scores"]}
    if held_out["bits_per_byte"] is not None:
        best = min(found["baselines"], key=lambda one: float(one["bits_per_byte"]))
        return held_out["bits_per_byte"], best["bits_per_byte"], best["name"]
    if SHARE in scores:
        share = scores[SHARE]
        return held_out["loss"], -share * log(share) - (1 - share) * log(1 - share), "the share alone"
    return held_out["loss"], held_out["by_frequency"], "frequencies"
