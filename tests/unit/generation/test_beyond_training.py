"""Decoding past a window and past the trained length: the ids of the reference library, plain and compiled.

The texts begin shorter than window and trained length and end longer, so that what changes on the way is met.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.generation.models import VOCAB, left_mask, prompt, shaken

import saucier
from saucier.generation import compiled_step
from saucier.generation.packed_weights import MadeFromWeights
from saucier.model import Transformer

transformers = pytest.importorskip("transformers", reason="the reference library is in the test group")

TRAINED, WINDOW, NEW = 12, 9, 16
SIZES: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": VOCAB,
    "intermediate_size": 48, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
PARAMETERS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 2.0},
    "dynamic": {"factor": 3.0},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": TRAINED},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": TRAINED},
    "longrope": {"short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [4.0, 3.0, 2.0, 1.5],
                 "original_max_position_embeddings": TRAINED, "factor": 4.0},
}
KINDS = (*PARAMETERS, "window")
CALLS: dict[str, dict[str, Any]] = {
    "one row": {"input_ids": prompt(1)},
    "rows": {"input_ids": prompt()},
    "padded": {"input_ids": prompt().masked_fill(left_mask() == 0, 0), "attention_mask": left_mask()},
    "beams": {"input_ids": prompt(2), "num_beams": 3},
}


def reference(kind: str) -> Any:
    """A small Mistral with a window, or a small LLaMA with scaled rotary positions."""
    if kind == "window":
        config = transformers.MistralConfig(**SIZES, sliding_window=WINDOW)
        return shaken(transformers.MistralForCausalLM(config))
    nested = {"rope_type": kind, "rope_theta": 10000.0, **PARAMETERS[kind]}
    longest = TRAINED if kind == "dynamic" else 4 * TRAINED
    return shaken(transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**SIZES, max_position_embeddings=longest, rope_parameters=nested)))


@pytest.fixture(scope="module", params=KINDS)
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Transformer, Any]:
    folder: Path = tmp_path_factory.mktemp(request.param)
    other = reference(request.param)
    other.save_pretrained(folder)
    return saucier.load(folder, dtype="float32", device="cpu"), other


@pytest.mark.sampled
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_ids_are_the_references(models: tuple[Transformer, Any], call: dict[str, Any]) -> None:
    ours, other = models
    given = {"max_new_tokens": NEW, "pad_token_id": 0, **call}
    want = other.generate(**{"attention_mask": torch.ones_like(call["input_ids"])} | given, do_sample=False)
    assert saucier.generate(ours, **given).tolist() == want.tolist()


@pytest.mark.slow
def test_the_settings_of_these_tests_matter(models: tuple[Transformer, Any]) -> None:
    """Otherwise the test above would pass without them."""
    ours, _ = models
    plain = saucier.build(saucier.families.llama(dim=32, layers=2, heads=4, kv_heads=2, vocab=VOCAB, hidden=48))
    plain.load_state_dict(ours.state_dict())
    given: dict[str, Any] = {"max_new_tokens": NEW, "input_ids": prompt()}
    assert not torch.equal(saucier.generate(plain.eval(), **given), saucier.generate(ours, **given))


@pytest.mark.nightly
def test_compiled_steps_give_the_same_ids(models: tuple[Transformer, Any], tmp_path: Path,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAUCIER_CACHE", str(tmp_path))
    monkeypatch.setattr(compiled_step, "STEPS", MadeFromWeights())
    ours, _ = models
    for name in ("one row", "rows", "padded", "beams"):
        given = {"max_new_tokens": NEW, "pad_token_id": 0, **CALLS[name]}
        assert torch.equal(saucier.generate(ours, compile=True, **given), saucier.generate(ours, **given)), name


@pytest.mark.nightly
def test_a_model_under_the_compiler_of_torch_gives_the_same_logits(models: tuple[Transformer, Any]) -> None:
    ours, _ = models
    calls = [{"input_ids": prompt(3, length), "attention_mask": mask}
             for length in (7, 8, 20) for mask in (None, left_mask(3, length))]
    with torch.no_grad():
        wanted = [ours(**call).logits for call in calls]
        ours.compile()
        try:
            found = [ours(**call).logits for call in calls]
        finally:
            ours._compiled_call_impl = None  # the other tests share this model
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
