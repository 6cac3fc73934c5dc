"""What the checks of a model's inputs cost: their time next to that of a step of GPT-2 124M at batch 1.

`python -m benchmarks.input_checks` prints both medians, for a pass over 128 tokens and for a step of one token next to
a cache, with random weights.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

import saucier
from saucier.model import Transformer
from saucier.parts.input_checks import check_inputs

LENGTH = 128
SWITCHES = dict.fromkeys(("output_hidden_states", "output_attentions", "compute_logits", "last_only"), False)


def median_seconds(work: Callable[[], object], times: int) -> float:
    """Return the median seconds of a call, after one that does not count."""
    seconds = []
    for _ in range(times + 1):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[1:])


def measure(model: Transformer) -> list[tuple[str, float, float]]:
    """Return (name, seconds of the checks, seconds of the whole pass)."""
    ids = torch.arange(LENGTH)[None]
    mask, token = torch.ones_like(ids), ids[:, :1]
    cache = model.new_cache(1, LENGTH + 40)
    model(ids, cache=cache, last_only=True)
    held = cache.length

    def step() -> None:
        model(token, cache=cache)
        cache.length = held

    return [("a pass over 128 tokens, with a mask",
             median_seconds(lambda: check_inputs(model.tables, ids, mask, {}, switches=SWITCHES), 500),
             median_seconds(lambda: model(ids, mask), 15)),
            ("a step of one token next to a cache",
             median_seconds(lambda: check_inputs(model.tables, token, None, {}, switches=SWITCHES, cache=cache), 500),
             median_seconds(step, 30))]


def main() -> None:
    """Print the shares."""
    model = saucier.build(saucier.recipe("gpt2").model).eval()
    with torch.inference_mode():
        for name, checks, whole in measure(model):
            print(f"{name}: checks {1e6 * checks:.0f} µs of {1e3 * whole:.1f} ms, {checks / whole:.3%}")


if __name__ == "__main__":
    main()
