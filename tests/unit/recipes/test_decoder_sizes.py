"""Decoders at their published sizes: as many parameters as the reference library's models have, without a weight."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from saucier import config as c
from saucier.families.bloom import bloom
from saucier.families.ctrl import ctrl
from saucier.families.gpt_neo import gpt_neo
from saucier.families.gpt_neox import gpt_neox, gptj
from saucier.families.llama import llama
from saucier.families.mistral import mistral
from saucier.families.opt import opt

SIZES: dict[str, tuple[c.Transformer, str, dict[str, Any]]] = {
    "gpt-neo-1.3b": (gpt_neo(), "GPTNeo", {}),
    "gpt-j-6b": (gptj(), "GPTJ", {}),
    "gpt-neox-20b": (gpt_neox(), "GPTNeoX", {}),
    "ctrl": (ctrl(), "CTRL", {}),
    "opt-125m": (opt(), "OPT", {}),
    "opt-350m": (opt(1024, 24, heads=16, narrow=512, pre_norm=False), "OPT",
                 {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "ffn_dim": 4096,
                  "word_embed_proj_dim": 512, "do_layer_norm_before": False}),
    "bloom-560m": (bloom(1024, 24, heads=16), "Bloom", {"hidden_size": 1024, "n_layer": 24, "n_head": 16}),
    "llama-7b": (llama(hidden=11008), "Llama", {}),
    "mistral-7b": (mistral(), "Mistral", {}),
}
KNOWN = {"gpt-neox-20b": 20_554_567_680, "gpt-j-6b": 6_050_882_784, "opt-125m": 125_239_296, "opt-350m": 331_196_416,
         "bloom-560m": 559_214_592, "llama-7b": 6_738_415_616, "mistral-7b": 7_241_732_096}
"""Sizes of the published checkpoints."""


@pytest.mark.parametrize("name", KNOWN)
def test_as_many_parameters_as_published(name: str) -> None:
    assert c.parameters(SIZES[name][0]) == KNOWN[name]


@pytest.mark.nightly
@pytest.mark.parametrize("name", SIZES)
def test_as_many_parameters_as_the_reference(name: str) -> None:
    transformers = pytest.importorskip("transformers", reason="the reference library is in the test group")
    ours, family, fields = SIZES[name]
    writer = "LMHeadModel" if family == "CTRL" else "ForCausalLM"
    with torch.device("meta"):
        there = getattr(transformers, family + writer)(getattr(transformers, f"{family}Config")(**fields))
    assert c.parameters(ours) == there.num_parameters()
