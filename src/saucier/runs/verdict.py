"""What the measurements mean, in a few lines: the model beside what it has to beat."""

from __future__ import annotations

from collections.abc import Iterator

from saucier.inspection.results import Results
from saucier.tasks.metrics import perplexity


def verdict(results: Results) -> Iterator[str]:
    """Yield the lines that the cook prints after the evaluation."""
    held_out = results.held_out
    yield from likelihood(results)
    accuracy = "" if held_out.accuracy is None else f", {held_out.accuracy:.1%} of the tokens right"
    yield f"loss {held_out.loss:.4f} nats, perplexity {perplexity(held_out.loss, 1):,.2f}{accuracy} ({held_out.tokens:,} held-out tokens)"
    for score in results.scores:
        yield f"{score.name} {score.value:.2f}   ({score.note})"


def likelihood(results: Results) -> Iterator[str]:
    """Yield bits per byte beside the baselines."""
    own = results.held_out.bits_per_byte
    if own is None:
        return
    beaten = [baseline for baseline in results.baselines if own < baseline.bits_per_byte]
    others = ", ".join(f"{baseline.name} {baseline.bits_per_byte:.3f}" for baseline in results.baselines)
    yield f"{own:.3f} bits per byte" + (f"   ({others})" if others else "")
    if results.baselines:
        worse = [baseline.name for baseline in results.baselines if baseline not in beaten]
        yield "better than all of them" if not worse else f"not yet better than {' and '.join(worse)}"
