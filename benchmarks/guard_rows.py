"""The twelve rows of the guard: what must not become slower while the house is rebuilt, one for every engine.

Only public names and the command line occur here, and keys of files that a run writes: the same rows run against the
source of an earlier commit, whatever its modules are called. Letters: B rows, L length.
"""

from __future__ import annotations

import json
import random
import runpy
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from benchmarks.finetuning import weights
from benchmarks.race import Contender, Turn

WORDS = 400
"""Different words of the made-up text."""
PLACES: list[TemporaryDirectory[str]] = []
"""Folders that live as long as the process."""


def place() -> Path:
    """Return a new folder."""
    PLACES.append(TemporaryDirectory())
    return Path(PLACES[-1].name)


def text(words: int, seed: int = 0) -> list[str]:
    """Return made-up words; frequent ones are short."""
    draw = random.Random(seed)
    known = ["".join(draw.choices("etaoinshrdlu", k=2 + number // 60)) for number in range(WORDS)]
    return draw.choices(known, weights=[1 / (1 + number) for number in range(WORDS)], k=words)


def lines(words: int, each: int) -> list[str]:
    """Return lines of so many words."""
    found = text(words)
    return [" ".join(found[start:start + each]) for start in range(0, words, each)]


def write(lines: list[str], name: str) -> Path:
    """Write lines into a file of a new folder."""
    path = place() / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def command(*words: str) -> None:
    """Run the command line in this process, so that only the first turn imports it. Raises `RuntimeError` if it fails.

    What it says is kept from the screen.
    """
    said = StringIO()
    with mock.patch.object(sys, "argv", ["saucier", *words]), redirect_stdout(said), redirect_stderr(said):
        try:
            runpy.run_module("saucier", run_name="__main__")
        except SystemExit as ended:
            if ended.code:
                raise RuntimeError(f"{' '.join(words)}: {said.getvalue()[-500:]}") from ended


def speed(work: Callable[[], object], amount: float, times: int) -> Turn:
    """Return a turn that does some work so many times; its figure is the amount a second. One call goes before."""
    work()

    def turn() -> float:
        begin = time.perf_counter()
        for _ in range(times):
            work()
        return float(amount * times / (time.perf_counter() - begin))

    return turn


def train(settings: dict[str, Any], *, recipe: str, words: tuple[str, ...]) -> Turn:
    """`saucier train`: tokens a second from update to update, the first few left out, by the run's own log."""
    steps, folder, numbers = settings["steps"], place(), count()
    file = write(lines(6000, 40), "text.txt")

    def turn() -> float:
        run = folder / str(next(numbers))
        command("train", recipe, *words, f"training.steps={steps}", f"training.evaluate_every={steps}",
                "training.log_every=1", "training.dtype=float32", "evaluation.limit=1", "--data", str(file),
                "--out", str(run), "--no-calibrate")
        logged = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        first, last = [one for one in logged if "tokens_read" in one and "seconds" in one][2::steps - 3][:2]
        return float((last["tokens_read"] - first["tokens_read"]) / (last["seconds"] - first["seconds"]))

    return turn


def stages(run: Path) -> dict[str, float]:
    """Return the seconds of the stages of a run."""
    found: dict[str, float] = json.loads((run / "passport.json").read_text(encoding="utf-8"))["seconds"]
    return found


def data(settings: dict[str, Any]) -> Turn:
    """Reading a text, training a tokenizer, encoding and packing: words a second."""
    folder, numbers = place(), count()
    file = write(lines(settings["words"], 12), "text.txt")

    def turn() -> float:
        run = folder / str(next(numbers))
        command("train", "gpt-nano", "model.dim=16", "model.layers=1", "model.heads=1", "model.length=16",
                "training.length=16", "training.batch=2", "training.steps=1", "training.evaluate_every=1",
                "evaluation.limit=1", "tokenizer.vocab=600", "--data", str(file), "--out", str(run), "--no-calibrate")
        return float(settings["words"] / sum(seconds for stage, seconds in stages(run).items() if stage != "train"))

    return turn


def finetune(settings: dict[str, Any]) -> Turn:
    """`saucier finetune classification` from nothing, an epoch: rows a second, the evaluation at its end included."""
    folder, numbers, rows = place(), count(), settings["rows"]
    file = write(["label\ttext", *(f"{'ab'[number % 2]}\t{line}" for number, line in enumerate(lines(rows * 24, 24)))],
                 "rows.tsv")

    def turn() -> float:
        run = folder / str(next(numbers))
        command("finetune", "classification", "training.epochs=1", "training.batch=16", "training.length=64",
                "recipe.tokenizer.vocab=400", "--model", "bert-nano", "--data", str(file), "--out", str(run))
        return float(rows / stages(run)["train"])

    return turn


def built(recipe: str, *words: str) -> Any:
    """Return the model of a recipe with random weights."""
    import saucier

    return saucier.build(saucier.recipe(recipe, list(words)).model).eval()


def ids(rows: int, length: int) -> Any:
    """Return random ids [B, L]."""
    import torch

    return torch.randint(10, 200, (rows, length), generator=torch.Generator().manual_seed(0))


def decode(settings: dict[str, Any], *, recipe: str, rows: int, **options: Any) -> Turn:
    """`saucier.generate`: new tokens a second, all rows together."""
    import saucier

    model, given, new = built(recipe), ids(rows, 16), settings["new"]
    return speed(lambda: saucier.generate(model, given, max_new_tokens=new, min_new_tokens=new, **options),
                 rows * new, settings["times"])


def forward(settings: dict[str, Any], *, recipe: str, rows: int, length: int, words: tuple[str, ...]) -> Turn:
    """Run one forward pass: tokens a second."""
    import torch

    model, given = built(recipe, *words), ids(rows, length)

    def work() -> object:
        with torch.inference_mode():
            return model(given)

    return speed(work, rows * length, settings["times"])


def embed(settings: dict[str, Any]) -> Turn:
    """`saucier.embed` of texts of many lengths by the published MiniLM: texts a second."""
    import saucier

    folder, draw = weights(), random.Random(0)
    model, tokenizer = saucier.load(folder, dtype="float32", device="cpu"), saucier.load_tokenizer(folder)
    texts = [" ".join(text(draw.randrange(4, 40), number)) for number in range(settings["texts"])]
    return speed(lambda: saucier.embed(model, texts, tokenizer=tokenizer), len(texts), 1)


def load(settings: dict[str, Any]) -> Turn:
    """`saucier.load` of a published folder: openings a second, each with a forward pass."""
    import saucier

    folder, given = str(place() / "model"), ids(1, 8)
    built("gpt2-nano", "model.dim=256", "model.heads=4", "model.layers=6").save(folder)
    return speed(lambda: saucier.load(folder, dtype="float32", device="cpu")(given), 1, settings["times"])


def start(settings: dict[str, Any]) -> Turn:
    """`saucier --help`, a process of its own each time."""
    return speed(lambda: subprocess.run([sys.executable, "-m", "saucier", "--help"], stdout=subprocess.DEVNULL,
                                        check=True), 1, settings["times"])


SMALL = ("tokenizer.vocab=400", "training.batch=8", "data.document=line",
         "training.optimizer={kind: adamw, learning_rate: 1e-3}")
"""Not Muon, whose products are in bfloat16, which some processors only imitate: they would be all that is measured."""
ENCODER = (*SMALL, "objective.next_sentence=null")
ROWS: dict[str, tuple[str, Contender, dict[str, Any]]] = {
    "start": ("`saucier --help`", start, {"times": 2}),
    "load": ("opening a model of 5 M parameters, and its first logits", load, {"times": 5}),
    "data": ("tokenizer, encoding and packing", data, {"words": 100_000}),
    "train-gpt": ("training gpt-nano", partial(train, recipe="gpt-nano", words=SMALL), {"steps": 10}),
    "train-bert": ("training bert-nano", partial(train, recipe="bert-nano", words=ENCODER), {"steps": 10}),
    "finetune": ("fine-tuning bert-nano", finetune, {"rows": 160}),
    "decode-1": ("greedy, 1 row, gpt-nano", partial(decode, recipe="gpt-nano", rows=1), {"new": 64, "times": 2}),
    "decode-8": ("greedy, 8 rows, gpt-nano", partial(decode, recipe="gpt-nano", rows=8), {"new": 64, "times": 2}),
    "beams": ("4 beams, 4 rows, transformer-nano", partial(decode, recipe="transformer-nano", rows=4, num_beams=4,
                                                           bos_token_id=2), {"new": 24, "times": 2}),
    "forward": ("bert-nano, 8 × 128", partial(forward, recipe="bert-nano", rows=8, length=128, words=()),
                {"times": 8}),
    "long": ("longformer-nano, 1 × 4,096", partial(forward, recipe="longformer-nano", rows=1, length=4096,
                                                   words=("model.length=4200",)), {"times": 2}),
    "embed": ("`saucier.embed` by MiniLM", embed, {"texts": 16}),
}
"""Name -> what it is, the contender, and its sizes."""


def guarded(name: str) -> Contender:
    """Return the contender of a row, which makes sure that it measures the source it was told to."""
    def contender(settings: dict[str, Any]) -> Turn:
        import saucier

        found, wanted = Path(saucier.__file__).resolve(), Path(settings["source"]).resolve()
        if wanted not in found.parents:
            raise RuntimeError(f"saucier was imported from {found}, not from {wanted}")
        return ROWS[name][1](settings)

    return contender


CONTENDERS: dict[str, Contender] = {name: guarded(name) for name in ROWS}
