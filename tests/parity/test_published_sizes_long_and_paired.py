"""Published sizes have the reference's number of parameters, both on the meta device."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from saucier import config as c
from saucier.families import LAYOUTS

transformers = pytest.importorskip("transformers", reason="the reference library is in the test group")

LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
LONG = {"vocab_size": 50265, "max_position_embeddings": 4098, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
HALF = {"d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 12,
        "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072, "attention_window": 1024}


def pair() -> Any:
    """Return the config of BERT2BERT, base."""
    parts = (transformers.BertConfig(), transformers.BertConfig())
    return transformers.EncoderDecoderConfig.from_encoder_decoder_configs(*parts)


CASES = {
    "longformer-base-4096": (lambda: transformers.LongformerConfig(**LONG), "LongformerForMaskedLM"),
    "longformer-large-4096": (lambda: transformers.LongformerConfig(**LONG, **LARGE), "LongformerForMaskedLM"),
    "led-base-16384": (lambda: transformers.LEDConfig(**HALF), "LEDForConditionalGeneration"),
    "led-large-16384": (lambda: transformers.LEDConfig(attention_window=1024), "LEDForConditionalGeneration"),
    "dpr-single-nq-base": (lambda: transformers.DPRConfig(), "DPRQuestionEncoder"),
    "dpr-reader-single-nq-base": (lambda: transformers.DPRConfig(), "DPRReader"),
    "bert_for_seq_generation_L-24": (lambda: transformers.BertGenerationConfig(), "BertGenerationEncoder"),
    "bert2bert": (pair, "EncoderDecoderModel"),
}


@pytest.mark.parametrize("name", CASES)
def test_parameters_of_published_sizes(name: str) -> None:
    """Biases of the output that the reference keeps as buffers are parameters of ours."""
    make, published = CASES[name]
    config = make()
    with torch.device("meta"):
        there = getattr(transformers, published)(config)
    wanted = sum(parameter.numel() for parameter in there.parameters())
    wanted += sum(value.numel() for key, value in there.named_buffers() if "final_logits_bias" in key)
    tree = LAYOUTS[config.model_type].tree(json.loads(config.to_json_string()), published, "config.json")
    assert c.parameters(tree) == wanted
