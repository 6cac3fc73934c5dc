"""A decoder whose prompt is a prefix that sees all of itself: cached = uncached = a plain loop."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.unit.generation.models import shaken

import saucier
from saucier import config as c
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.model import Transformer, build

SIZES = {"dim": 16, "layers": 2, "heads": 2, "vocab": 40, "dropout": 0.0}
FAMILY = {"gpt2": {"length": 32}, "llama": {"hidden": 24}, "t5_decoder": {"head_dim": 8, "hidden": 24}}
PROMPT = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12]])
NEW = {"max_new_tokens": 6, "eos_token_id": None}


@pytest.fixture(params=FAMILY)
def model(request: pytest.FixtureRequest) -> Transformer:
    return writer(request.param)


def writer(family: str, visibility: c.DecoderVisibility | None = None) -> Transformer:
    return shaken(build(FAMILIES[family](**SIZES, **FAMILY[family], visibility=visibility or c.Prefix())))  # type: ignore[no-any-return]


def plain(model: Transformer, row: list[int], prefix: int) -> list[int]:
    """Write greedily, reading everything at every step."""
    with torch.no_grad():
        for _ in range(NEW["max_new_tokens"]):
            logits = model.eval()(torch.tensor([row]), prefix_length=torch.tensor([prefix])).logits
            row = [*row, int(logits[0, -1].argmax())]
    return row


def test_the_prompt_is_the_prefix(model: Transformer) -> None:
    written = saucier.generate(model, PROMPT, **NEW)
    assert written.tolist() == [plain(model, row, 4) for row in PROMPT.tolist()]
    assert torch.equal(saucier.generate(model, PROMPT, use_cache=False, **NEW), written)


def test_a_padded_prompt_is_written_on_as_alone(model: Transformer) -> None:
    ids, mask = torch.tensor([[0, 0, 5, 6], [9, 10, 11, 12]]), torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    written = saucier.generate(model, ids, mask, **NEW)
    assert written[0, 2:].tolist() == plain(model, [5, 6], 2)
    assert written[1].tolist() == plain(model, [9, 10, 11, 12], 4)


def test_a_shorter_prefix_can_be_named(model: Transformer) -> None:
    written = saucier.generate(model, PROMPT, prefix_length=torch.tensor([2, 0]), **NEW)
    assert written.tolist() == [plain(model, PROMPT[0].tolist(), 2), plain(model, PROMPT[1].tolist(), 0)]
    ids, mask = torch.tensor([[0, 5, 6, 7]]), torch.tensor([[0, 1, 1, 1]])
    one = saucier.generate(model, ids, mask, prefix_length=torch.tensor([2]), **NEW)
    assert one[0, 1:].tolist() == plain(model, [5, 6, 7], 2)


def test_the_prefix_changes_what_is_written() -> None:
    model = writer("gpt2")
    texts = [saucier.generate(model, PROMPT, prefix_length=torch.tensor([length] * 2), **NEW) for length in (0, 4)]
    assert not torch.equal(*texts)


def test_without_a_prefix_it_is_the_causal_decoder() -> None:
    prefix = writer("gpt2")
    causal = build(FAMILIES["gpt2"](**SIZES, **FAMILY["gpt2"])).eval()
    causal.load_state_dict(prefix.state_dict())
    none = saucier.generate(prefix, PROMPT, prefix_length=torch.tensor([0, 0]), **NEW)
    assert torch.equal(saucier.generate(causal, PROMPT, **NEW), none)


def test_beams_and_samples_copy_the_prefix(model: Transformer) -> None:
    for options in ({"num_beams": 3}, {"do_sample": True, "num_return_sequences": 2, "seed": 1}):
        cached, again = (saucier.generate(model, PROMPT, use_cache=cache, **options, **NEW) for cache in (True, False))
        assert torch.equal(cached, again)


def test_a_prefix_for_a_model_without_one_is_refused() -> None:
    with pytest.raises(InputError, match="prefix_length: the model knows no prefix"):
        saucier.generate(writer("gpt2", c.Causal()), PROMPT, prefix_length=torch.tensor([1, 1]), **NEW)
    with pytest.raises(InputError, match=r"prefix_length: prefixes of shape \[1\] for 2 rows"):
        saucier.generate(writer("gpt2"), PROMPT, prefix_length=torch.tensor([1]), **NEW)


@pytest.mark.slow
def test_a_prefix_decoder_comes_back_from_disk(model: Transformer, tmp_path: Path) -> None:
    assert model.save(tmp_path / "model") == "saucier"
    again = saucier.load(tmp_path / "model", dtype="float32")
    assert torch.equal(saucier.generate(again, PROMPT, **NEW), saucier.generate(model, PROMPT, **NEW))
