"""Counted parameters of published sizes are those of the reference library's models, on the meta device."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from saucier import config as c
from saucier.families import FAMILIES

transformers = pytest.importorskip("transformers", reason="the reference library is in the test group")

BASE = {"d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 12,
        "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072}
MARIAN = {"d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 8,
          "decoder_attention_heads": 8, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048}
SIZES = [
    ("bart", {"dim": 768, "layers": 6, "heads": 12}, "BartForConditionalGeneration", BASE, 139_420_416),
    ("bart", {}, "BartForConditionalGeneration", {}, 406_291_456),
    ("mbart", {}, "MBartForConditionalGeneration", {"vocab_size": 250027}, 610_851_840),
    ("pegasus", {}, "PegasusForConditionalGeneration", {"vocab_size": 96103, "encoder_layers": 16,
                                                        "decoder_layers": 16}, 568_699_904),
    ("marian", {}, "MarianMTModel", MARIAN, 73_886_208),
    ("m2m_100", {}, "M2M100ForConditionalGeneration", {}, 483_905_536),
    ("switch_transformers", {}, "SwitchTransformersForConditionalGeneration",
     {"d_ff": 3072, "num_sparse_encoder_layers": 6, "num_sparse_decoder_layers": 6}, 619_339_008),
    ("mixtral", {}, "MixtralForCausalLM", {}, 46_702_792_704),
]


def trained(name: str, settings: dict[str, Any]) -> tuple[int, int]:
    """Return the trained parameters of a reference model, and the values of its output bias, which is a buffer."""
    kind = getattr(transformers, name)
    with torch.device("meta"):
        model = kind(kind.config_class(**settings))
    buffer = dict(model.named_buffers()).get("final_logits_bias")
    found = {id(parameter): parameter.numel() for parameter in model.parameters() if parameter.requires_grad}
    return sum(found.values()), 0 if buffer is None else buffer.numel()


@pytest.mark.parametrize(("family", "options", "name", "settings", "published"), SIZES,
                         ids=[f"{row[0]}-{row[4]}" for row in SIZES])
def test_counts(family: str, options: dict[str, Any], name: str, settings: dict[str, Any], published: int) -> None:
    parameters, bias = trained(name, settings)
    assert parameters == published
    assert c.parameters(FAMILIES[family](**options)) == parameters + bias


def test_mt5_small_has_an_output_layer_of_its_own() -> None:
    """The reference library ties it until it reads a file; the published file holds 300,176,768 values."""
    parameters, _ = trained("MT5ForConditionalGeneration", {})
    assert c.parameters(FAMILIES["mt5"]()) == parameters + 250112 * 512 == 300_176_768
