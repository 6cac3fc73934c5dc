"""How a text is written: flat options say it as transformers does, and one sum type says it inside."""

from __future__ import annotations

from typing import Any

import pytest

from saucier.generation.decoding import (
    Beams,
    Decoding,
    Gibbs,
    Greedy,
    LeftToRight,
    MarkovChains,
    MaskPredict,
    MetropolisHastings,
    Sampling,
    as_options,
)
from saucier.generation.options import resolve_options

DRAWN = Sampling(temperature=0.7, top_k=5, top_p=0.9, seed=3, texts=2)
DECODINGS: list[Decoding] = [
    Greedy(), Sampling(), DRAWN, Beams(3), Beams(4, 0.5, "never", 2), Beams(2, 1.0, True, 2, DRAWN),
    MarkovChains(Gibbs(mask=4, burn_in=2), DRAWN), MarkovChains(MetropolisHastings(mask=4, steps=7), Sampling()),
    MaskPredict(iterations=3)]
DEFAULTS: dict[str, Any] = {"do_sample": True, "num_beams": 5, "temperature": 3.0, "top_k": 50, "length_penalty": 2.0}


@pytest.mark.parametrize("decoding", DECODINGS, ids=repr)
def test_options_say_what_the_type_says(decoding: Decoding) -> None:
    """There and back, and the rows that are written at a time are those of the type."""
    assert resolve_options(as_options(decoding), {}).decoding == decoding


@pytest.mark.parametrize(("decoding", "rows"),
                         [(Greedy(), 1), (Sampling(), 1), (DRAWN, 2), (Beams(4, 0.5, texts=2), 4)], ids=str)
def test_a_way_of_writing_goes_before_the_defaults_of_a_model(decoding: LeftToRight, rows: int) -> None:
    assert resolve_options(as_options(decoding), DEFAULTS).decoding == decoding
    assert decoding.rows == rows
