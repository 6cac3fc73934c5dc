"""The doctor finds every model of the zoo and every golden checkpoint sound, and every planted fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.laws.zoo import FAMILY_OPTIONS, SMALL, everything, steady
from torch import Tensor, nn

import saucier
from saucier.diagnosis.doctor import (
    check_finite_weights,
    check_saved_bits,
    check_ties,
    check_vocabulary,
    diagnose,
    draw_rows,
    examine_model,
)
from saucier.diagnosis.laws import LAWS, TextRow, relative_difference
from saucier.families import FAMILIES, LAYOUTS
from saucier.model import Transformer
from saucier.parts.output import Cache

MODELS = everything()
CHOSEN = [name for name in MODELS if not name.startswith("recipe-")]


def failing(model: Transformer) -> dict[str, float]:
    """Return the laws that fail, with their difference."""
    return {one.name: one.difference or 0.0 for one in examine_model(model, draw_rows(model)) if one.verdict == "fails"}


@pytest.mark.sampled
@pytest.mark.parametrize("name", [name if place % 8 == 0 else pytest.param(name, marks=pytest.mark.nightly)
                                  for place, name in enumerate(CHOSEN)])
def test_every_model_of_the_zoo_is_sound(name: str) -> None:
    """No false alarm for any part; where a law does not apply, it is said why."""
    model = steady(MODELS[name])
    found = list(examine_model(model, draw_rows(model)))
    assert [one for one in found if one.verdict == "fails"] == []
    assert len(found) == len(LAWS) and all(one.why for one in found if one.verdict == "does not apply")
    assert sum(one.verdict == "holds" for one in found) >= 1


GOLDEN = ("gpt2", "bert-masked-lm", "bart-sequence-classification", "transfo-xl", "xlnet",
          "big_bird-original_full-question-answering", "fnet", "m2m_100", "dpr-reader", "switch_transformers")


@pytest.mark.slow
@pytest.mark.parametrize("name", GOLDEN)
def test_golden_checkpoints_are_sound(shared: Path, name: str) -> None:
    folder = shared / "golden" / name
    assert json.loads((folder / "config.json").read_text())["model_type"] in LAYOUTS
    found = diagnose(str(folder))
    assert found.sound, [one for one in found.findings if one.verdict == "fails"]


def family(name: str) -> Transformer:
    return steady(FAMILIES[name](**SMALL, **FAMILY_OPTIONS[name]))


@pytest.mark.slow
def test_a_model_that_reads_padding_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mask is dropped on its way in."""
    monkeypatch.setattr("saucier.parts.inputs.as_boolean_mask", lambda mask: None)
    found = failing(family("bert"))
    assert {"right padding changes nothing", "left padding changes nothing",
            "what stands in the padding does not matter"} <= found.keys()
    assert min(found.values()) > 1e-3 and "a batch is its rows" not in found


@pytest.mark.slow
def test_a_model_that_sees_the_future_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row's last token is added to its first vector."""
    model = family("gpt2")
    model.embed.register_forward_hook(lambda _, given, x: x + 0.1 * x[:, -1:])
    found = failing(model)
    assert "no place sees what comes after it" in found and "one token at a time beside a cache" in found


@pytest.mark.slow
def test_a_cache_that_forgets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of a longer piece are written in reverse."""
    extend = Cache.extend

    def wrong(self: Cache, slot: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return extend(self, slot, key.flip(2), value)

    monkeypatch.setattr(Cache, "extend", wrong)
    found = failing(family("gpt2"))
    assert found.keys() == {"in pieces beside a cache", "left-padded beside a cache"}


def test_rows_that_meet_are_found() -> None:
    """Each row's vectors get a little of the first row's."""
    model = family("bert")
    model.embed.register_forward_hook(lambda _, given, x: x + 0.01 * x[:1])
    assert "a batch is its rows" in failing(model)


@pytest.mark.slow
def test_a_memory_that_is_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model = steady(FAMILIES["transfo_xl"](**SMALL, **{**FAMILY_OPTIONS["transfo_xl"], "memory": 5}))
    assert "in segments beside a memory" not in failing(model)
    monkeypatch.setattr("saucier.parts.segment_memory.recall_memory", lambda *given: None)
    assert "in segments beside a memory" in failing(model)


@pytest.mark.slow
def test_a_weight_that_is_no_number_is_found() -> None:
    model = family("bert")
    with torch.no_grad():
        next(iter(model.encoder.parameters()))[0] = float("nan")  # type: ignore[union-attr]
    assert check_finite_weights(model).verdict == "fails" and "not finite" in check_finite_weights(model).why
    assert all(gap == float("inf") for gap in failing(model).values()) and failing(model)
    assert check_saved_bits(model).verdict == "holds", "even NaN comes back"


def test_an_output_layer_that_came_loose_is_found() -> None:
    model = family("gpt2")
    assert check_ties(model).verdict == "holds"
    model.head.weight = nn.Parameter(model.head.weight.clone())  # type: ignore[union-attr]
    found = check_ties(model)
    assert found.verdict == "fails" and "is another tensor" in found.why


def test_a_tokenizer_that_is_too_large_is_found() -> None:
    class Tokens:
        vocab_size = 38

    found = check_vocabulary("the tokenizer fits", family("gpt2").config.input_embed, Tokens())  # type: ignore[arg-type]
    assert found.why == "38 ids, and the model has 37 rows for them"


def test_a_loss_on_the_way_to_the_disk_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model = family("gpt2")
    assert check_saved_bits(model).verdict == "holds"
    open_folder = saucier.folders.load.open_folder

    def rounded(*given: object, **named: object) -> Transformer:
        return open_folder(*given, **named).bfloat16().float()  # type: ignore[arg-type]

    monkeypatch.setattr("saucier.diagnosis.doctor.open_folder", rounded)
    assert "has other bits" in check_saved_bits(model).why


def test_differences_are_beside_the_numbers_size() -> None:
    assert relative_difference(torch.tensor([1e6 + 10]), torch.tensor([1e6])) == pytest.approx(1e-5)
    assert relative_difference(torch.tensor([0.5]), torch.tensor([0.0])) == 0.5
    assert relative_difference(torch.tensor([float("nan")]), torch.tensor([0.0])) == float("inf")
    assert TextRow((1, 2, 3), (4, 5)).cut(1) == TextRow((1,), (4,))
