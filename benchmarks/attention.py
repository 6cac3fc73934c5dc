"""Attention and dropout as training on a CPU uses them: step by step against the fused kernel, bits against floats.

Letters: B rows, H heads, L length, E head width.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.race import TRIED, Contender, Turn, race
from benchmarks.section import Row, Section, at_least

SHAPE = {"heads": 12, "width": 64, "positions": 4096, "passes": 4}
"""`positions` in a batch: the rows are as many as that makes of a length."""
QUICK = SHAPE | {"heads": 2, "positions": 128, "passes": 1}
LENGTHS = (32, 64, 128, 256, 512, 1024)
QUICK_LENGTHS = (16, 32)
VALUES = 2**22
"""Of the tensor that dropout acts on."""


def timed(once: Callable[[], object], passes: int) -> Turn:
    """Return a turn: so many passes, in passes a second."""
    once()

    def turn() -> float:
        begin = time.perf_counter()
        for _ in range(passes):
            once()
        return passes / (time.perf_counter() - begin)

    return turn


def learning(settings: dict[str, Any], attend: Callable[..., Any]) -> Turn:
    """Return a turn of forward and backward passes through causal attention. `attend`: query, key, value, scores."""
    import torch

    from saucier.parts.kernels import Scores
    from saucier.parts.masks import Mask

    rows = max(1, settings["positions"] // settings["length"])
    shape = (rows, settings["heads"], settings["length"], settings["width"])
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(shape, generator=generator).to(getattr(torch, settings["dtype"])).requires_grad_()
                         for _ in range(3))
    scores = Scores(Mask(causal=True, device=query.device), settings["width"]**-0.5, dropout=settings["rate"])

    def once() -> object:
        mixed = attend(query, key, value, scores)
        return torch.autograd.grad(mixed.float().square().sum(), (query, key, value))

    return timed(once, settings["passes"])


def steps(settings: dict[str, Any]) -> Turn:
    """Our attention step by step: products, softmax and dropout as operations of their own."""
    from saucier.parts.kernels import attend_stepwise

    return learning(settings, lambda *given: attend_stepwise(*given)[0])


def fused(settings: dict[str, Any]) -> Turn:
    """PyTorch's `scaled_dot_product_attention`."""
    from saucier.parts.kernels import attend_fused as kernel

    return learning(settings, kernel)


def bits(settings: dict[str, Any]) -> Turn:
    """Our dropout, of which four values share one draw."""
    from saucier.parts.norms import dropout

    return dropping(settings, dropout)


def floats(settings: dict[str, Any]) -> Turn:
    """PyTorch's dropout, with a draw for each value."""
    from torch.nn.functional import dropout

    return dropping(settings, dropout)


def dropping(settings: dict[str, Any], drop: Callable[..., Any]) -> Turn:
    """Return a turn of dropout and its backward pass over one tensor."""
    import torch

    x = torch.randn(settings["values"]).to(getattr(torch, settings["dtype"])).requires_grad_()

    def once() -> object:
        return torch.autograd.grad(drop(x, 0.1).float().sum(), x)

    return timed(once, settings["passes"])


CONTENDERS: dict[str, Contender] = {"steps": steps, "fused": fused, "bits": bits, "floats": floats}


def row(what: str, ours: str, theirs: str, settings: dict[str, Any], rounds: int) -> Row:
    """Return one comparison, in milliseconds a pass."""
    found = race("benchmarks.attention", dict.fromkeys((ours, theirs), settings), rounds)
    return at_least(what, f"{1000 / found[ours]:.3g} ms", f"{1000 / found[theirs]:.3g} ms", found[ours] / found[theirs])


def measure(quick: bool) -> Section:
    """Compare at every length, with dropout and without, in both number formats."""
    shape, rounds, lengths = (QUICK, TRIED, QUICK_LENGTHS) if quick else (SHAPE, 5, LENGTHS)
    rows = []
    for dtype in ("float32", "bfloat16"):
        for rate in (0.0, 0.1):
            for length in lengths:
                what = f"attention, {dtype}, {length} positions, {'dropout' if rate else 'no dropout'}"
                settings = shape | {"dtype": dtype, "rate": rate, "length": length}
                rows.append(row(what, "steps", "fused", settings, rounds))
        values = shape | {"dtype": dtype, "values": 2**10 if quick else VALUES}
        rows.append(row(f"dropout, {dtype}", "bits", "floats", values, rounds))
    about = (f"Forward and backward pass on a CPU: causal attention of {shape['heads']} heads of {shape['width']} over "
             f"{shape['positions']} positions in rows of a length, step by step (ours) against "
             "`scaled_dot_product_attention`; and dropout at 0.1, four values a draw (ours) against one. Milliseconds "
             "a pass; `saucier.parts.kernels` takes the steps where they are faster.")
    return Section("Attention and dropout in training", about, rows)
