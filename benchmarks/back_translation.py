"""A translator from few pairs, without and with pairs that a reverse model wrote for texts of the target language.

`python -m benchmarks back_translation`. What is finished is kept in `runs/back_translation`, and is not done again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cooking import kept, needed, saucier
from benchmarks.multi30k import NAME
from benchmarks.section import Row, Section
from benchmarks.tuned import named

RUNS = Path("runs/back_translation")
HEAD = "en\tde"
DROPOUT = 0.3
"""More than the recipe's: the pairs are few."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is learned from."""

    pairs: int
    texts: int
    """Of the target language, without a source."""
    steps: int
    held_out: int | None = None
    """Validation pairs that are looked at; all without it."""
    words: tuple[str, ...] = ()


FULL = Size(pairs=4000, texts=24000, steps=1200)
QUICK = Size(pairs=200, texts=20, steps=4, held_out=8,
             words=("model.dim=32", "tokenizer.vocab=300", "evaluation.limit=4", "training.batch=8", "--no-calibrate"))


def measure(quick: bool) -> Section:
    """Learn the reverse direction, write sources, and learn with and without them."""
    size, folder = (QUICK, RUNS / "quick") if quick else (FULL, RUNS)
    files = written(size, folder / "data")
    tested = [str(needed("translation", NAME.format("test_2016_flickr"))), *(["--limit", "4"] if quick else [])]
    reverse = folder / "reverse"
    back = named(learned(reverse, files["reversed"], files["reversed_val"], size)["scores"], "BLEU")["value"]
    if not (folder / "made.tsv").is_file():
        saucier("backtranslate", str(reverse), str(files["texts"]), "--out", str(folder / "made.tsv"), "--columns",
                "en,de", "--beams", "1")
    synthetic = ["--synthetic", str(folder / "made.tsv"), "data.synthetic.real=2"]
    learned(folder / "without", files["pairs"], files["val"], size)
    learned(folder / "with", files["pairs"], files["val"], size, synthetic)
    rows = [line("the pairs alone", tests(folder / "without", tested)),
            line("with synthetic pairs", tests(folder / "with", tested))]
    about = (f"Multi30k, English to German, `transformer-small`: {size.pairs:,} pairs, and {size.texts:,} German texts "
             f"of others, for which a model of the reverse direction from the same pairs wrote sources (greedy). "
             f"{size.steps:,} updates each, the checkpoint chosen by `val`, seed 0; test_2016_flickr, beam 4.")
    return Section("Back-translation", about, rows, [
        f"The reverse model has {back:.2f} BLEU on `val`.", f"`{RUNS}` holds every run."])


def learned(run: Path, train: Path, held_out: Path, size: Size, words: Sequence[str] = ()) -> dict[str, Any]:
    """Cook once, and return the results."""
    return kept("transformer-small", run, [
        "--data", str(train), "--held-out", str(held_out), f"training.steps={size.steps}",
        f"training.evaluate_every={max(2, size.steps // 12)}", f"model.dropout={DROPOUT}", *words, *size.words])


def written(size: Size, folder: Path) -> dict[str, Path]:
    """Write the pairs of both directions, and the texts."""
    train = needed("translation", NAME.format("train")).read_text(encoding="utf-8").splitlines()[1:]
    val = needed("translation", NAME.format("val")).read_text(encoding="utf-8").splitlines()[1:]
    val = val[:size.held_out]
    pairs, others = train[:size.pairs], train[size.pairs:size.pairs + size.texts]
    rows = {"pairs": [HEAD, *pairs], "val": [HEAD, *val], "reversed": turned(pairs), "reversed_val": turned(val)}
    files = {name: folder / f"{name}.tsv" for name in rows} | {"texts": folder / "texts.txt"}
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in (rows | {"texts": [pair.split("\t")[1] for pair in others]}).items():
        files[name].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return files


def turned(pairs: Sequence[str]) -> list[str]:
    """Return pairs, the other way round, with their header."""
    return ["de\ten", *("\t".join(reversed(pair.split("\t"))) for pair in pairs)]


def tests(run: Path, words: Sequence[str]) -> dict[str, Any]:
    """Evaluate on the test pairs once."""
    path = run / "tested.json"
    if not path.is_file():
        path.write_text(saucier("evaluate", str(run), *words, "--json"), encoding="utf-8")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def line(name: str, found: dict[str, Any]) -> Row:
    """Lay out one result."""
    bleu, chrf = (named(found["scores"], one)["value"] for one in ("BLEU", "chrF"))
    return Row(name, f"BLEU {bleu:.2f}, chrF {chrf:.2f}")
