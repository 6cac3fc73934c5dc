"""A memory and a second stream are refused beside what they cannot stand beside, with a place and a remedy."""

from __future__ import annotations

import pytest
from tests.laws.zoo import SMALL

from saucier import InputError
from saucier import config as c
from saucier.families import FAMILIES

ATTENTION = c.SelfAttention(projection=c.Projection(heads=4), positions=c.TransformerXL(), visibility=c.Permutation())
FORWARD = c.FeedForward(hidden=8)


def encoder(*inner: c.SelfAttention | c.FeedForward, **stack: object) -> c.Transformer:
    """An encoder of one block of these sublayers."""
    block = c.Block(sublayers=tuple(c.PostNorm(inner=part) for part in inner))
    return c.Transformer(dim=24, embed=c.Embedding(vocab=9), encoder=c.Stack(
        layers=c.Repeat(block=block, times=1), **stack))


def other(**change: object) -> c.SelfAttention:
    """The attention with another part."""
    return ATTENTION.model_copy(update=change)


FAULTS = {
    "zeros needs a length": encoder(ATTENTION, memory=c.SegmentMemory(start=c.MemoryStart(kind="zeros"))),
    "begins with its only attention": encoder(FORWARD, ATTENTION, memory=c.SegmentMemory()),
    "its only attention": encoder(ATTENTION, ATTENTION, memory=c.SegmentMemory()),
    "rotated keys": encoder(other(positions=c.Rotary()), memory=c.SegmentMemory()),
    "begin anew in every segment": encoder(ATTENTION, memory=c.SegmentMemory()).model_copy(
        update={"embed": c.Embedding(vocab=9, positions=c.Sinusoidal())}),
    "where a row of the second stream asks": encoder(other(positions=c.Alibi()), queries=c.QueryVector()),
    "would see the tokens": encoder(other(visibility=c.Full()), queries=c.QueryVector()),
    "read by a second stream": encoder(ATTENTION).model_copy(
        update={"head": c.LanguageHead(predicts=c.UnmaskedPrediction(kind="query_stream"))}),
    "works in one stack": FAMILIES["t5"](**SMALL, head_dim=6).model_copy(
        update={"encoder": encoder(ATTENTION, memory=c.SegmentMemory()).encoder}),
    "share one pair of biases": encoder(
        other(positions=c.TransformerXL(shared_biases=True)),
        other(positions=c.TransformerXL(shared_biases=True), projection=c.Projection(heads=2))),
}


@pytest.mark.parametrize("word", FAULTS)
def test_refused_with_a_place_and_a_remedy(word: str) -> None:
    with pytest.raises(InputError, match=word) as caught:
        c.check(FAULTS[word])
    assert caught.value.where
    assert caught.value.remedy


def test_what_is_right_is_let_through() -> None:
    c.check(encoder(ATTENTION, FORWARD, memory=c.SegmentMemory(), queries=c.QueryVector()))
    c.check(encoder(other(positions=c.NoPositions()), FORWARD, queries=c.QueryVector()))
