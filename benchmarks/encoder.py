"""Encoding texts of different lengths: BERT-base on a padded batch, against `transformers`.

Letters: B texts, L length of the longest.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.race import Contender, Turn, race
from benchmarks.section import Section, at_least

SHAPE = {"dim": 768, "layers": 12, "heads": 12, "vocab": 30522, "texts": 32, "shortest": 16, "longest": 128,
         "passes": 2}
QUICK = SHAPE | {"dim": 64, "layers": 2, "heads": 2, "vocab": 512, "texts": 4, "passes": 1}


def padded(settings: dict[str, Any]) -> tuple[Any, Any, int]:
    """Return ids [B, L], mask [B, L] and the number of real tokens; lengths are drawn evenly, seed 0."""
    import torch

    random = np.random.default_rng(0)
    lengths = random.integers(settings["shortest"], settings["longest"], size=settings["texts"], endpoint=True)
    ids = torch.from_numpy(random.integers(1, settings["vocab"], size=(settings["texts"], int(lengths.max()))))
    mask = torch.arange(ids.shape[1]) < torch.from_numpy(lengths)[:, None]
    return ids, mask.long(), int(lengths.sum())


def timed(model: Any, settings: dict[str, Any]) -> Turn:
    """Return a turn: so many passes, in real tokens a second."""
    import torch

    ids, mask, real = padded(settings)
    model = model.to(getattr(torch, settings["dtype"])).eval()

    def once() -> object:
        with torch.inference_mode():
            return model(ids, mask).last_hidden_state

    once()

    def turn() -> float:
        begin = time.perf_counter()
        for _ in range(settings["passes"]):
            once()
        return float(settings["passes"] * real / (time.perf_counter() - begin))

    return turn


def saucier(settings: dict[str, Any]) -> Turn:
    """Our encoder, with its pooler and without a head, as the other one."""
    from saucier.families import FAMILIES
    from saucier.model import build

    config = FAMILIES["bert"](**{key: settings[key] for key in ("dim", "layers", "heads", "vocab")})
    return timed(build(config.model_copy(update={"head": None})), settings)


def transformers(settings: dict[str, Any]) -> Turn:
    """`BertModel`, which uses PyTorch's fused attention."""
    from transformers import BertConfig, BertModel

    return timed(BertModel(BertConfig(
        hidden_size=settings["dim"], num_hidden_layers=settings["layers"], num_attention_heads=settings["heads"],
        vocab_size=settings["vocab"], intermediate_size=4 * settings["dim"])), settings)


CONTENDERS: dict[str, Contender] = {"saucier": saucier, "transformers": transformers}


def measure(quick: bool) -> Section:
    """Compare at the same number format."""
    shape, rounds = (QUICK, 2) if quick else (SHAPE, 9)
    rows = []
    for dtype in ("float32", "bfloat16"):
        found = race("benchmarks.encoder", dict.fromkeys(CONTENDERS, shape | {"dtype": dtype}), rounds)
        ours, theirs = found["saucier"], found["transformers"]
        rows.append(at_least(f"{dtype} on both sides", f"{ours:,.0f}", f"{theirs:,.0f}", ours / theirs, 1.6))
    about = (f"BERT-base shape ({shape['layers']} layers of {shape['dim']}), one batch of {shape['texts']} texts with "
             f"lengths drawn evenly from {shape['shortest']} to {shape['longest']}, padded to the longest, forward "
             "only, weights in the number format. Real tokens a second.")
    return Section("Encoding a padded batch", about, rows)
