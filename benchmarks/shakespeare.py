"""Tiny Shakespeare, characters: how low the loss gets in five minutes on this machine."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.cooking import cooked, needed, plan_note
from benchmarks.section import Row, Section, at_most

QUICK = ["training.steps=4", "training.evaluate_every=4", "sampling.tokens=4", "--no-calibrate"]
KNOWN = "1.874 nats after 125 s: the well-known small run on a CPU (4 × 128, 64 characters, 12 rows, 2,000 steps)"


def measure(quick: bool) -> Section:
    """Cook `shakespeare`; its last tenth is held out."""
    text = needed("lm", "tiny_shakespeare.txt")
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        seconds, results = cooked("shakespeare", run, [*(QUICK if quick else []), "--data", str(text)])
        note = plan_note(run, results) if not quick else "A quick look."
    held_out, cost = results["held_out"], results["cost"]
    rows = [at_most("loss on the last tenth, all of it", held_out["loss"], 1.65, "nats a character"),
            at_most("training, evaluations included", cost["phases"]["train"] / 60, 5, "minutes"),
            Row("the whole job, tokenizer to report", f"{seconds / 60:.1f} minutes"),
            Row("steps", f"{results['steps']:,}"), Row("known before", "", KNOWN)]
    about = "`saucier cook shakespeare --data tiny_shakespeare.txt`: 4 layers of 128."
    return Section("Tiny Shakespeare", about, rows, [note])
