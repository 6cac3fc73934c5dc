"""What measurements mean, in a few lines: the model beside what it has to beat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from saucier.inspection.results import Baseline, HeldOut, Score
from saucier.tasks.metrics import perplexity


def lines(held_out: HeldOut, baselines: Sequence[Baseline] = (), scores: Sequence[Score] = ()) -> Iterator[str]:
    """Yield what was measured."""
    if held_out.bits_per_byte is not None:
        yield from likelihood(held_out.bits_per_byte, baselines)
    accuracy = "" if held_out.accuracy is None else f", {held_out.accuracy:.1%} of the tokens right"
    perplexed = perplexity(held_out.loss, 1)
    yield f"loss {held_out.loss:.4f} nats, perplexity {perplexed:,.2f}{accuracy} ({held_out.tokens:,} tokens)"
    if held_out.by_frequency is not None:
        yield beside_frequencies(held_out.loss, held_out.by_frequency)
    for score in scores:
        yield f"{score.name} {score.value:.2f}" + (f"   ({score.note})" if score.note else "")


def beside_frequencies(own: float, frequent: float) -> str:
    """Say what the model knows beyond the frequencies of its targets."""
    known = f"{frequent - own:.4f} better" if own < frequent else "not better yet"
    return f"each target by its frequency alone: {frequent:.4f} nats; the model is {known}"


def likelihood(own: float, baselines: Sequence[Baseline]) -> Iterator[str]:
    """Yield bits per byte beside simpler methods."""
    others = ", ".join(f"{baseline.name} {baseline.bits_per_byte:.3f}" for baseline in baselines)
    yield f"{own:.3f} bits per byte" + (f"   ({others})" if others else "")
    if baselines:
        better = [baseline.name for baseline in baselines if baseline.bits_per_byte <= own]
        yield f"not yet better than {' and '.join(better)}" if better else "better than all of them"
