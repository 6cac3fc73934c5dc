"""Multi30k, English to German, from scratch: BLEU on test_2016_flickr after at most an hour on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.cooking import cooked, needed, plan_note, saucier
from benchmarks.section import Row, Section, at_most
from benchmarks.tuned import named

NAME = "multi30k.en-de.{}.tsv"
QUICK = ["training.steps=4", "training.evaluate_every=4", "evaluation.limit=8", "model.dim=32", "--no-calibrate"]
TARGET = 33.0
"""BLEU, beam 4."""


def measure(quick: bool) -> Section:
    """Train on `train`, choose the checkpoint by `val`, score `test_2016_flickr` once."""
    files = {part: needed("translation", NAME.format(part)) for part in ("train", "val", "test_2016_flickr")}
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        arguments = ["--data", str(files["train"]), "--held-out", str(files["val"])]
        seconds, results = cooked("transformer-small", run, [*(QUICK if quick else []), *arguments])
        few = ["--limit", "8"] if quick else []
        tested = json.loads(saucier("evaluate", str(run), str(files["test_2016_flickr"]), "--json", *few))
        note = plan_note(run, results) if not quick else "A quick look."
    bleu, chrf = named(tested["scores"], "BLEU"), named(tested["scores"], "chrF")
    rows = [Row("BLEU on test_2016_flickr, beam 4", f"{bleu['value']:.2f}", target=f"≥ {TARGET:g}",
                reached=bleu["value"] >= TARGET),
            Row("chrF", f"{chrf['value']:.2f}"),
            Row("BLEU on the validation set", f"{named(results['scores'], 'BLEU')['value']:.2f}"),
            at_most("training, evaluations included", results["cost"]["phases"]["train"] / 60, 60, "minutes"),
            Row("the whole job, tokenizer to report", f"{seconds / 60:.1f} minutes")]
    about = "`saucier cook transformer-small --data train.tsv --held-out val.tsv`, then `saucier evaluate`."
    return Section("Multi30k", about, rows, [note, f"sacrebleu: {bleu['note']}"])
