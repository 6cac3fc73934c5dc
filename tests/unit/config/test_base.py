"""What holds of every config."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import Field, ValidationError

import saucier
from saucier import config as c
from saucier.adaptation.rewrite import rewrite
from saucier.adaptation.tuning import Lora
from saucier.config.base import LARGEST_NUMBER, Config
from saucier.families import gpt2

TINY = gpt2(dim=32, layers=1, heads=2, vocab=80, length=16)


class Some(Config):
    number: int = Field(default=1, gt=-(10**500))
    several: tuple[int, ...] = ()
    other: float | int | str = 0


@pytest.mark.parametrize("value", [LARGEST_NUMBER + 1, -LARGEST_NUMBER - 1, 10**400])
def test_whole_numbers_have_64_bits(value: int) -> None:
    """Beyond them neither tensors nor floats take a number: it would be an `OverflowError` somewhere later."""
    for given in ({"number": value}, {"several": (1, value)}):
        with pytest.raises(ValidationError, match="should be a whole number of at most 64 bits"):
            Some.model_validate(given)
    assert Some(number=LARGEST_NUMBER, several=(-LARGEST_NUMBER, LARGEST_NUMBER), other="x").number == LARGEST_NUMBER


@pytest.mark.parametrize(("made", "said"), [
    (lambda: c.Rotary(bse=3), "Rotary.bse: unknown key; did you mean 'base'?"),  # type: ignore[call-arg]
    (lambda: c.Rotary(base="x"), "Rotary.base: should be a valid number, unable to parse string as a number, not 'x'"),
    (lambda: c.Pooling(kind="men"), "Pooling.kind: there is no 'men'; did you mean 'mean'?"),  # type: ignore[arg-type]
    (lambda: c.Transformer(dm=3), "Transformer.dm: unknown key; did you mean 'dim'?"),  # type: ignore[call-arg]
    (lambda: c.Embedding(), "Embedding.vocab: is missing; add it"),  # type: ignore[call-arg]
    (lambda: c.Transformer(dim=8, embed={"vocb": 3}), "Transformer.embed.vocb: unknown key; did you mean 'vocab'?"),
    (lambda: c.ClassificationHead(pick={"kind": "poold"}),
     "ClassificationHead.pick: there is no 'poold'; did you mean 'pooled'?"),
    (lambda: gpt2(dim=0), "FeedForward.hidden: should be greater than 0, not 0"),
    (lambda: c.Rotary().model_copy(update={"bse": 3.0}), "Rotary.bse: unknown key; did you mean 'base'?"),
    (lambda: setattr(c.Rotary(), "base", 3.0), "Rotary.base: a config cannot be changed; config.model_copy(update="
                                               "{'base': ...}) gives one with another value"),
    (lambda: saucier.build(TINY.model_copy(update={"dim": "x"})),
     "Transformer.dim: should be a valid integer, unable to parse string as an integer, not 'x'"),
    (lambda: saucier.build(TINY.model_copy(update={"embed": None})),
     "Transformer.embed: should be a valid dictionary or instance of Embedding, not None"),
])
def test_what_python_says_wrong_is_one_line_with_the_nearest_name(made: Callable[[], object], said: str) -> None:
    with pytest.raises(saucier.InputError) as error:
        made()
    assert str(error.value) == said


def test_faults_of_a_document_keep_their_whole_path() -> None:
    """What reads documents reports every fault: it gets them from Pydantic."""
    with pytest.raises(ValidationError) as error:
        c.Transformer.model_validate({"dim": 0, "embed": {"vocb": 3}})
    assert [fault["loc"] for fault in error.value.errors()] == [("dim",), ("embed", "vocab"), ("embed", "vocb")]


def test_a_part_prints_what_is_not_the_default() -> None:
    assert repr(c.Rotary()) == str(c.Rotary()) == "Rotary()"
    assert repr(c.Rotary(base=500_000.0)) == "Rotary(base=500000.0)"
    assert repr(c.Pooling(kind="mean")) == "Pooling(kind='mean')"
    attention = TINY.decoder.attentions()[0] if TINY.decoder else None
    assert repr(attention) == ("SelfAttention(projection=Projection(heads=2), visibility=Causal(), "
                               "kernel=Softmax(dropout=0.1))")


def test_a_model_prints_as_the_tree_of_its_parts() -> None:
    model = saucier.build(TINY)
    assert str(model).splitlines()[0] == "saucier.Transformer, float32 on cpu, 15,840 parameters"
    assert str(TINY).splitlines()[0] == "saucier.config.Transformer, 15,840 parameters"
    assert str(model).splitlines()[1:] == str(TINY).splitlines()[1:]
    assert "│  ├─ tokens            80 × 32        2,560  embedding\n│  └─ positions         16 × 32" in str(TINY)
    assert "softmax, 8.5 keys a query, causal" in str(TINY)
    for one in (model, TINY):
        assert "embedding" in one._repr_html_() and one._repr_html_().startswith("<pre")
    assert repr(TINY.model_copy(update={"embed": None})).startswith("Transformer(dim=32, embed=None, decoder=Stack(")
    assert "with Lora(rank=2" in repr(rewrite(model, by=Lora(rank=2)))
