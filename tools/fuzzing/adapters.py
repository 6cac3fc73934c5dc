"""Adapters as folders, in PEFT's layout and in our own form: loaded, shown, written with."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from random import Random

import torch
from safetensors.torch import load_file

import saucier
from saucier.adaptation import tuning as a
from saucier.adaptation.rewrite import rewrite
from saucier.families import FAMILIES
from saucier.files import read_object
from saucier.folders.kinds import identify_folder, stored_dtype
from saucier.folders.load import open_adapter
from saucier.folders.save import save, save_adapter
from saucier.jobs.prompting.prompted_model import open_prompted_model
from saucier.lens import anatomy as inspection
from saucier.text.config import WordPiece
from saucier.text.tokenizer.training import train_tokenizer
from tools.fuzzing.cases import Case, size_of
from tools.fuzzing.damage import ANY, copied, damaged_file, damaged_folder, hostile, json_values, told
from tools.fuzzing.folders import TEXTS, ran

CONFIG, WEIGHTS, PICKLED = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
BASES = {"gpt2": {"layers": 1, "dim": 16, "heads": 2, "vocab": 60, "length": 24},
         "bert": {"layers": 1, "dim": 16, "heads": 2, "vocab": 60, "length": 24},
         "t5": {"layers": 1, "dim": 16, "heads": 2, "vocab": 60, "head_dim": 8, "hidden": 20}}
TUNINGS: dict[str, Callable[[], a.Tuning]] = {
    "lora": lambda: a.Lora(rank=2), "lora-all": lambda: a.Lora(rank=2, where=("linear",), scaling=a.ByRootOfRank()),
    "prefix": lambda: a.Prefix(length=2), "prompt": lambda: a.Prompt(length=2, start=a.FromNoise()),
    "qlora": lambda: a.Qlora(rank=2), "adapter": lambda: a.Adapter(width=4), "bias": lambda: a.Bias(),
    "freeze": lambda: a.Freeze(lower=1),
}
PATTERNS = ("(a+)+$", "(.*.*)*x", "((.*)*)*", ".*", "(", "a{1001}", "(?=a)", r"(a)\1", "\ud800", "", "^.*$",
            "((a|a)*)*$", "(" * 500, "c_attn", r"h\.0\..*", "x" * 2000, "[" * 100, "(?:" * 90 + ")" * 90, r"\p{L}+",
            "\x00")


@cache
def kinds() -> list[tuple[str, str, str]]:
    """List all (base, tuning, layout) of whole adapters."""
    return [(base, tuning, layout) for base in BASES for tuning in TUNINGS for layout in ("auto", "own", "bin")]


def whole(base: str, tuning: str, layout: str, stock: Path) -> Path:
    """Return a whole adapter's folder, made when it is first asked for; its base stands beside it."""
    target = stock / f"{base}-{tuning}-{layout}"
    if not (stock / base).is_dir():
        save(saucier.build(FAMILIES[base](**BASES[base]), seed=1), stock / base)
        train_tokenizer(WordPiece(vocab=60), TEXTS * 20).save(stock / base)
    if not target.is_dir():
        model = rewrite(saucier.load(stock / base, dtype="float32", device="cpu"), by=TUNINGS[tuning]())
        generator = torch.Generator().manual_seed(1)
        for _, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.data.add_(torch.randn(parameter.shape, generator=generator), alpha=0.05)
        if tuning == "freeze":  # it leaves an ordinary model, which `save_adapter` writes all the same where asked
            layout = "own"
        save_adapter(model, target, base=f"../{base}", layout="auto" if layout == "bin" else layout)
        if layout == "bin":
            torch.save(load_file(target / WEIGHTS), target / PICKLED)
            (target / WEIGHTS).unlink()
    return target


def draw(drawn: Random, stock: Path, place: Path) -> Case:
    """Damage an adapter, and open it in every way."""
    base, tuning, layout = drawn.choice(kinds())
    source = whole(base, tuning, layout, stock)
    folder = copied(source, place / "adapter")
    copied(stock / base, place / base)
    size = size_of(place)
    words = damaged(folder, drawn)
    steps = [partial(loaded, folder), partial(apart, folder), partial(shown, folder)]
    if drawn.random() < 0.3:
        steps.append(partial(prompted, folder))
    return Case(f"{source.name}: {words}", tuple(steps), size)


def damaged(folder: Path, drawn: Random) -> str:
    """Damage an adapter's folder; mostly its settings."""
    match drawn.randrange(10):
        case 0:
            return f"hostile alphas: {patterned(folder, drawn)}"
        case 1 | 2:
            return damaged_folder(folder, drawn, (CONFIG,))
        case 3:
            return f"{CONFIG}: {drawn.choice(ANY)(folder / CONFIG, drawn)}"
        case 4 | 5:
            weights = next(folder / name for name in (WEIGHTS, PICKLED) if (folder / name).is_file())
            return f"{weights.name}: {damaged_file(weights, drawn)}"
        case 6:
            return f"another base: {rebased(folder, drawn)}"
        case _:
            return f"{CONFIG}: {json_values(folder / CONFIG, drawn)}"


def patterned(folder: Path, drawn: Random) -> str:
    """Write hostile expressions where some may stand."""
    document = read_object(folder / CONFIG)
    pattern = drawn.choice(PATTERNS)
    key = drawn.choice(["alpha_pattern", "rank_pattern", "target_modules", "where"])
    if key == "where" and document.get("rewrites"):
        document["rewrites"][0]["where"] = [drawn.choice(["/{}/", "{}", "!{}", "*{}*"]).format(pattern)]
    else:
        document[key] = {pattern: drawn.choice([1, 8.0, -1, "a"]), "b" * drawn.randrange(1, 40): 2}
        if drawn.random() < 0.2:
            document[key] |= {f"{pattern}{number}": 1 for number in range(drawn.choice([99, 20_000]))}
    (folder / CONFIG).write_text(json.dumps(document))
    return f"{key} {told(pattern)}"


def rebased(folder: Path, drawn: Random) -> str:
    """Name another base."""
    document = read_object(folder / CONFIG)
    named = drawn.choice([".", "..", "../adapter", "", "x" * 300, "x" * 5000, "a\x00b", "owner/name", "/dev/zero",
                          "a/b/c",
                          "../" + drawn.choice(list(BASES)), hostile(drawn), "/", "~", "/proc/self",
                          "../gpt2/config.json"])
    document["base_model_name_or_path"] = named
    (folder / CONFIG).write_text(json.dumps(document))
    return told(named)


def loaded(folder: Path) -> None:
    """Load an adapter merged into its base, and run it."""
    ran(saucier.load(folder, dtype="float32", device="cpu"))
    stored_dtype(identify_folder(folder))


def apart(folder: Path) -> None:
    """Open an adapter on its base, and run it."""
    ran(open_adapter(folder, dtype="float32", device="cpu"))


def shown(folder: Path) -> None:
    """Show an adapter."""
    found = inspection.describe_adapter(folder)
    inspection.adapter_lines(found)
    found.to_dict()


def prompted(folder: Path) -> None:
    """Open an adapter to be prompted."""
    open_prompted_model(str(folder), "float32")
