"""Encoders used as decoders write what the reference's forward pass finds likeliest, one token after the other.

The reference's own `generate` gives RoBERTa and its relatives positions from 0, against its forward pass, which begins
after the padding id; we follow the forward pass.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import saucier

transformers = pytest.importorskip("transformers", reason="the reference library is in the test group")

SIZES = {
    "vocab_size": 61, "hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 40,
    "max_position_embeddings": 30, "is_decoder": True, "pad_token_id": 1, "bos_token_id": None, "eos_token_id": None,
}
CLASSES = {"BertLMHeadModel": "BertConfig", "RobertaForCausalLM": "RobertaConfig",
           "XLMRobertaForCausalLM": "XLMRobertaConfig", "CamembertForCausalLM": "CamembertConfig",
           "ElectraForCausalLM": "ElectraConfig"}
NEW = 6


def reference(name: str) -> Any:
    config = getattr(transformers, CLASSES[name])(**SIZES)
    torch.manual_seed(3)
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.3)
    return model


def likeliest(model: Any, row: Tensor) -> list[int]:
    """Continue one row by whole forward passes without a cache."""
    ids = row[None]
    with torch.no_grad():
        for _ in range(NEW):
            ids = torch.cat([ids, model(ids, use_cache=False).logits[:, -1:].argmax(-1)], dim=1)
    return ids[0, len(row):].tolist()


@pytest.mark.parametrize("name", CLASSES)
def test_greedy_decoding_follows_the_forward_pass(name: str, tmp_path: Path) -> None:
    """Alone, and padded at the left beside a longer row."""
    there = reference(name)
    there.save_pretrained(tmp_path)
    ours = saucier.load(tmp_path, dtype="float32", device="cpu")
    long, short = torch.tensor([7, 12, 30, 9, 44]), torch.tensor([25, 8])
    expected = [likeliest(there, row) for row in (long, short)]
    padded = torch.tensor([[7, 12, 30, 9, 44], [1, 1, 1, 25, 8]])
    mask = (padded != 1).long()
    found = saucier.generate(ours, padded, attention_mask=mask, max_new_tokens=NEW, do_sample=False)
    assert found[:, 5:].tolist() == expected
    assert saucier.generate(ours, short[None], max_new_tokens=NEW, do_sample=False)[0, 2:].tolist() == expected[1]


@pytest.mark.parametrize("name", ["RobertaModel", "RobertaForSequenceClassification", "ElectraForTokenClassification"])
def test_every_class_of_a_decoder_sees_the_past_only(name: str, tmp_path: Path) -> None:
    there = getattr(transformers, name)(getattr(transformers, f"{name.split('F')[0].removesuffix('Model')}Config")(
        **SIZES)).eval()
    there.save_pretrained(tmp_path)
    ours, ids = saucier.load(tmp_path, dtype="float32", device="cpu"), torch.tensor([[7, 12, 30, 9, 44]])
    with torch.no_grad():
        states = ours(ids, output_hidden_states=True).hidden_states[-1]
        wanted = there(ids, output_hidden_states=True).hidden_states[-1]
        torch.testing.assert_close(states, wanted, atol=1e-5, rtol=1e-5)
        assert torch.equal(ours(ids[:, :3]).last_hidden_state.argmax(-1), states[:, :3].argmax(-1))
    assert ours.config.decoder is not None


def test_a_body_may_be_saved_without_its_pooler(tmp_path: Path) -> None:
    """The file of a masked language model has no pooler; as a body it is read, and written, without one."""
    from safetensors.torch import load_file

    config = transformers.RobertaConfig(**{**SIZES, "is_decoder": False})
    transformers.RobertaModel(config, add_pooling_layer=False).save_pretrained(tmp_path / "there")
    ours = saucier.load(tmp_path / "there", dtype="float32", device="cpu")
    assert ours.config.pooler is None
    ours.save(tmp_path / "ours")
    assert load_file(tmp_path / "ours" / "model.safetensors").keys() == load_file(
        tmp_path / "there" / "model.safetensors").keys()
