"""Greedy decoding: GPT-2 124M shape, random weights, against `transformers.generate`; and how near the memory's floor.

`python benchmarks/decoding.py` prints the table; `--json` prints the figures, `--quick` tries it with tiny sizes.
Letters: B rows.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.race import TRIED, Contender, Turn, race
from benchmarks.section import Section, at_least, markdown

SHAPE = {"dim": 768, "layers": 12, "heads": 12, "vocab": 50257, "length": 1024, "prompt": 16, "new": 48, "read": 2**28}
QUICK = SHAPE | {"dim": 64, "layers": 1, "heads": 2, "vocab": 512, "length": 128, "new": 8, "read": 2**22}
CONTESTS: dict[str, dict[str, Any]] = {
    "saucier: bfloat16": {"dtype": "bfloat16"}, "saucier: compiled": {"dtype": "bfloat16", "compile": True},
    "saucier: default": {"dtype": "auto"}, "transformers: bfloat16": {"dtype": "bfloat16"},
    "transformers: float32": {"dtype": "float32"}, "memory: read": {}}
"""Contender and remark -> what it is told beside the shape."""
PROMISED = {
    1: (("bfloat16, eager", "saucier: bfloat16", "transformers: bfloat16", 1.2),
        ("bfloat16, `compile=True` against eager", "saucier: compiled", "transformers: bfloat16", 2.0),
        ("each side's default", "saucier: default", "transformers: float32", 1.6)),
    8: (("bfloat16, eager", "saucier: bfloat16", "transformers: bfloat16", 1.4),
        ("bfloat16, `compile=True` against eager", "saucier: compiled", "transformers: bfloat16", 1.7),
        ("each side's default", "saucier: default", "transformers: float32", 2.8))}
"""Rows -> what is compared, and the ratio that was promised."""


def timed(write: Callable[[], Any], tokens: int) -> Turn:
    """Return a turn in new tokens a second, after a first call that prepares all."""
    def turn() -> float:
        begin = time.perf_counter()
        ids = write()
        seconds = time.perf_counter() - begin
        assert ids.shape[1] * len(ids) > tokens, "no row may end early"
        return tokens / seconds

    turn()
    return turn


def prompt(settings: dict[str, Any]) -> Any:
    """Return random ids [B, prompt]."""
    import torch

    generator = torch.Generator().manual_seed(0)
    return torch.randint(settings["vocab"], (settings["rows"], settings["prompt"]), generator=generator)


def saucier(settings: dict[str, Any]) -> Turn:
    """Our `generate`; `auto` is the number format that `saucier.load` chooses here."""
    import torch

    from saucier import build, generate
    from saucier.devices import choose_dtype
    from saucier.families import FAMILIES

    config = FAMILIES["gpt2"](**{key: settings[key] for key in ("dim", "layers", "heads", "vocab", "length")})
    model = build(config, dtype=choose_dtype(settings["dtype"], torch.device("cpu"))).eval()
    ids, new, compiled = prompt(settings), settings["new"], settings.get("compile", False)
    return timed(lambda: generate(model, ids, max_new_tokens=new, compile=compiled), len(ids) * new)


def transformers(settings: dict[str, Any]) -> Turn:
    """`GPT2LMHeadModel.generate` with its cache, greedy."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_embd=settings["dim"], n_layer=settings["layers"], n_head=settings["heads"],
                        vocab_size=settings["vocab"], n_positions=settings["length"],
                        bos_token_id=None, eos_token_id=None)
    model = GPT2LMHeadModel(config).to(getattr(torch, settings["dtype"])).eval()
    ids, new = prompt(settings), settings["new"]
    return timed(lambda: model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False,
                                        pad_token_id=0), len(ids) * new)


def memory(settings: dict[str, Any]) -> Turn:
    """How fast memory is read at all: the sum of a tensor that no cache holds, in bytes a second."""
    import torch

    held = torch.ones(settings["read"])

    def turn() -> float:
        begin = time.perf_counter()
        held.sum()
        return held.nbytes / (time.perf_counter() - begin)

    turn()
    return turn


CONTENDERS: dict[str, Contender] = {"saucier": saucier, "transformers": transformers, "memory": memory}


def weights(settings: dict[str, Any]) -> int:
    """Return the bytes that a token must read in bfloat16: every matrix once, not the tables it looks one row up in."""
    from saucier.config import parameters
    from saucier.families import FAMILIES

    config = FAMILIES["gpt2"](**{key: settings[key] for key in ("dim", "layers", "heads", "vocab", "length")})
    return 2 * (parameters(config) - int(settings["length"] * settings["dim"]))


def floor_note(found: dict[str, float], size: int) -> str:
    """Say how near each path comes to reading the weights once a token, at one row."""
    floor = found["memory: read"] / size
    near = ", ".join(f"{name.split(': ')[1]} {found[name] / floor:.0%}" for name in found if name.startswith("saucier"))
    return (f"The floor at batch 1 in bfloat16: {size / 1e6:.0f} MB of weights a token, read at "
            f"{found['memory: read'] / 1e9:.0f} GB/s, is {floor:.0f} tokens/s. Of it: {near}; transformers "
            f"{found['transformers: bfloat16'] / floor:.0%}.")


def measure(quick: bool) -> Section:
    """Compare at 1 and 8 rows."""
    shape, rounds = (QUICK, TRIED) if quick else (SHAPE, 5)
    rows, notes = [], []
    for batch, promised in PROMISED.items():
        contenders = {name: shape | {"rows": batch} | told for name, told in CONTESTS.items()}
        found = race("benchmarks.decoding", contenders, rounds)
        rows += [at_least(f"batch {batch}: {what}", f"{found[ours]:.0f}", f"{found[theirs]:.0f}",
                          found[ours] / found[theirs], ratio) for what, ours, theirs, ratio in promised]
        if batch == 1:
            notes.append(floor_note(found, weights(shape)))
    about = (f"GPT-2 124M shape ({shape['layers']} layers of {shape['dim']}, {shape['vocab']} tokens), random weights, "
             f"{shape['new']} new tokens after {shape['prompt']}, greedy, the prompt's pass included. New tokens a "
             "second, all rows together. `compile=True` is measured after it has compiled, once for this model and "
             "machine.")
    return Section("Greedy decoding", about, rows, notes)


def main() -> None:
    """Print the table, or its figures as JSON."""
    from benchmarks.run import stamp

    parser = argparse.ArgumentParser(description="Greedy decoding against transformers.generate, in one run.")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that all runs")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    section = measure(arguments.quick)
    print(json.dumps(section.as_dict(), indent=2, ensure_ascii=False) if arguments.json else markdown(section, stamp()))


if __name__ == "__main__":
    main()
