"""Training speed: GPT-2, 6 layers of 384, 12 rows of 256 tokens, against `transformers` in an equal loop.

Letters: B rows, L tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np

from benchmarks.race import TRIED, Contender, Turn, race
from benchmarks.section import Row, Section, at_least

SHAPE = {"dim": 384, "layers": 6, "heads": 6, "vocab": 8192, "batch": 12, "length": 256, "dropout": 0.0, "steps": 5}
QUICK = SHAPE | {"dim": 64, "layers": 2, "heads": 2, "vocab": 512, "batch": 2, "length": 32, "steps": 1}
WARM = 2


def tokens(settings: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return one more token than the model reads, for the last target. Shapes: [B, L+1]."""
    return np.random.default_rng(0).integers(settings["vocab"], size=(settings["batch"], settings["length"] + 1))


def timed(step: Callable[[], object], settings: dict[str, Any]) -> Turn:
    """Return a turn: so many steps, in tokens a second."""
    for _ in range(WARM):
        step()

    def turn() -> float:
        begin = time.perf_counter()
        for _ in range(settings["steps"]):
            step()
        return float(settings["steps"] * settings["batch"] * settings["length"] / (time.perf_counter() - begin))

    return turn


def saucier(settings: dict[str, Any]) -> Turn:
    """Our loop: its updater and optimizer, as `saucier cook` runs them."""
    import torch

    from saucier.cost.probe import FixedBatches
    from saucier.devices import choose_autocast_dtype, keep_freed_memory
    from saucier.families import FAMILIES
    from saucier.model import build
    from saucier.objectives.base import ObjectiveInputs, TokenIds
    from saucier.objectives.build import build_objective
    from saucier.objectives.config import Causal
    from saucier.text.rows.batch import Rows
    from saucier.training.hyperparameters import AdamW
    from saucier.training.optimizers import build_optimizer
    from saucier.training.processes import Processes
    from saucier.training.update import TrainingData, Updater

    keep_freed_memory()
    hyper = {key: settings[key] for key in ("dim", "layers", "heads", "vocab", "length", "dropout")}
    model = build(FAMILIES["gpt2"](**hyper)).train()
    ids = tokens(settings)
    places = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
    each = np.arange(len(ids))
    none, no_text = np.zeros_like(each), np.zeros_like(ids)
    rows = Rows(ids, no_text, places, no_text, none, none, each, each)
    corruption, objective = build_objective(Causal(), ObjectiveInputs(TokenIds(settings["vocab"])))
    dtype, _ = choose_autocast_dtype(settings["dtype"], torch.device("cpu"))
    study = TrainingData(FixedBatches((rows,), {}), corruption, objective)
    updater = Updater(model, study, Processes(), dtype, seed=0, micro_batch=None, clip=1.0, failures=Path(mkdtemp()))
    optimizer = build_optimizer(AdamW(), model)

    def step() -> None:
        updater.gradients(0)
        optimizer.step(1e-3)
        model.zero_grad(set_to_none=True)

    return timed(step, settings)


def transformers(settings: dict[str, Any]) -> Turn:
    """The same work with `transformers`: forward with labels, backward, clip, fused AdamW."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    if settings.get("keep_memory"):
        from saucier.devices import keep_freed_memory

        keep_freed_memory()
    rate = settings["dropout"]
    config = GPT2Config(
        n_embd=settings["dim"], n_layer=settings["layers"], n_head=settings["heads"], vocab_size=settings["vocab"],
        n_positions=settings["length"], resid_pdrop=rate, embd_pdrop=rate, attn_pdrop=rate, use_cache=False,
        bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    ids = torch.from_numpy(tokens(settings))
    inputs, labels = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=settings["dtype"] == "bfloat16"):
            loss = model(input_ids=inputs, labels=inputs, shift_labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()

    return timed(step, settings)


CONTENDERS: dict[str, Contender] = {"saucier": saucier, "transformers": transformers}


def measure(quick: bool) -> Section:
    """Compare at the same dtype, and at each side's default."""
    shape, rounds = (QUICK, TRIED) if quick else (SHAPE, 7)
    rows: list[Row] = []
    for dtype in ("float32", "bfloat16"):
        rows += compare(f"{dtype} on both sides", {"saucier": dtype, "transformers": dtype}, shape, rounds, 1.4)
    rows += compare("each side's default", {"saucier": "auto", "transformers": "float32"}, shape, rounds, 2.4)
    about = (f"GPT-2 with {shape['layers']} layers of {shape['dim']}, {shape['vocab']:,} tokens in the vocabulary, "
             f"{shape['batch']} rows of {shape['length']} tokens, no dropout. Both sides: AdamW (fused), the gradient "
             "clipped, the loss read every step; bfloat16 is autocast. Tokens a second.")
    return Section("Training", about, rows, [
        "Saucier's default number format is bfloat16 where the processor has instructions for it; `transformers`' is "
        "float32.",
        "Saucier tells the C library to keep freed memory (`devices.py`); the rows “same allocator” give "
        "`transformers` that too."])


def compare(what: str, dtypes: dict[str, str], shape: dict[str, Any], rounds: int, target: float) -> list[Row]:
    """Race the two, and the other one with our allocator setting besides."""
    theirs = shape | {"dtype": dtypes["transformers"]}
    found = race("benchmarks.training", {
        "saucier": shape | {"dtype": dtypes["saucier"]}, "transformers": theirs,
        "transformers: same allocator": theirs | {"keep_memory": True}}, rounds)
    ours = found["saucier"]
    return [at_least(what + remark, f"{ours:,.0f}", f"{found[key]:,.0f}", ours / found[key], goal)
            for key, remark, goal in (("transformers", "", target),
                                      ("transformers: same allocator", ", same allocator", None))]
