"""How a text is written: one sum type says it, as flat options that transformers has too."""

from __future__ import annotations

from typing import Any

import pytest

from saucier.generation.decoding import Beams, Decoding, Greedy, MaskPredict, Sampling
from saucier.generation.options import resolve_options

DEFAULTS: dict[str, Any] = {"do_sample": True, "num_beams": 5, "temperature": 3.0, "top_k": 50, "length_penalty": 2.0}
DECODINGS: list[tuple[Decoding, dict[str, Any]]] = [
    (Greedy(), {"do_sample": False, "num_beams": 1, "rows": 1}),
    (Sampling(), {"do_sample": True, "num_beams": 1, "temperature": 1, "top_k": 0, "top_p": 1, "seed": 0}),
    (Sampling(temperature=0.7, top_k=5, top_p=0.9, seed=3),
     {"do_sample": True, "num_beams": 1, "temperature": 0.7, "top_k": 5, "top_p": 0.9, "seed": 3}),
    (Beams(beams=3), {"do_sample": False, "num_beams": 3, "length_penalty": 1, "early_stopping": True, "rows": 3}),
    (Beams(beams=4, length_penalty=0.5), {"num_beams": 4, "length_penalty": 0.5, "rows": 4}),
    (MaskPredict(iterations=3), {"strategy": MaskPredict(iterations=3)})]


@pytest.mark.parametrize("defaults", [{}, DEFAULTS], ids=["alone", "over defaults"])
@pytest.mark.parametrize(("decoding", "wanted"), DECODINGS, ids=str)
def test_a_way_of_writing_goes_before_the_defaults_of_a_model(
        decoding: Decoding, wanted: dict[str, Any], defaults: dict[str, Any]) -> None:
    found = resolve_options(decoding.options(), defaults)
    assert {name: getattr(found, name) for name in wanted} == wanted


@pytest.mark.parametrize(("options", "rows"), [({}, 1), ({"do_sample": True, "num_return_sequences": 3}, 3),
                                               ({"num_beams": 4, "num_return_sequences": 2}, 4)])
def test_rows_that_are_written_at_a_time(options: dict[str, Any], rows: int) -> None:
    assert resolve_options(options, {}).rows == rows
