"""Families at their default sizes have the parameters of the published models."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from saucier import config as c
from saucier.families import FAMILIES

transformers = pytest.importorskip("transformers", reason="the reference library is in the test group")

ROBERTA = {"max_position_embeddings": 514, "type_vocab_size": 1}
REFERENCES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "roberta": ("RobertaConfig", "RobertaForMaskedLM", {**ROBERTA, "vocab_size": 50265}),
    "xlm_roberta": ("XLMRobertaConfig", "XLMRobertaForMaskedLM", {**ROBERTA, "vocab_size": 250002}),
    "camembert": ("CamembertConfig", "CamembertForMaskedLM", {**ROBERTA, "vocab_size": 32005}),
    "distilbert": ("DistilBertConfig", "DistilBertForMaskedLM", {}),
    "albert": ("AlbertConfig", "AlbertForPreTraining",
               {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}),
    "electra": ("ElectraConfig", "ElectraForPreTraining", {}),
    "mpnet": ("MPNetConfig", "MPNetForMaskedLM", {"max_position_embeddings": 514}),
    "xlnet": ("XLNetConfig", "XLNetLMHeadModel", {}),
    "xlm": ("XLMConfig", "XLMWithLMHeadModel", {}),
}
PAPERS = {"roberta": 125e6, "distilbert": 66e6, "albert": 12e6, "electra": 14e6}
"""Liu et al. 2019, §3.1; Sanh et al. 2019, table 3; Lan et al. 2020, table 1; Clark et al. 2020, table 1."""


@pytest.mark.parametrize("family", REFERENCES)
def test_parameters_are_those_of_the_reference(family: str) -> None:
    config, name, settings = REFERENCES[family]
    with torch.device("meta"):
        reference = getattr(transformers, name)(getattr(transformers, config)(**settings))
        reference.tie_weights()
    assert c.parameters(FAMILIES[family]()) == sum(parameter.numel() for parameter in reference.parameters())


@pytest.mark.parametrize("family", PAPERS)
def test_parameters_are_those_of_the_paper(family: str) -> None:
    """Papers round to millions, and some leave the head out."""
    assert c.parameters(FAMILIES[family]()) == pytest.approx(PAPERS[family], rel=0.04)


def test_xlnet_base_has_the_size_of_its_release() -> None:
    """117 million: Yang et al. 2019, code release, whose base model has BERT's shape."""
    assert c.parameters(FAMILIES["xlnet"](768, 12, heads=12)) == pytest.approx(117e6, rel=0.01)


def test_transformer_xl_has_the_size_of_its_release() -> None:
    """285 million: the published checkpoint of WikiText-103; the paper's table 1 says 257 million."""
    config = FAMILIES["transfo_xl"]()
    assert c.parameters(config) == pytest.approx(285e6, rel=0.01)
    tables = 20000 * 1024 + 20000 * 256 + 160000 * 64 + 67735 * 16
    maps = 1024 * (1024 + 256 + 64 + 16)
    layer = 3 * 1024**2 + 1024**2 + 1024**2 + 2 * 1024 + 2 * 2 * 1024 + 2 * 1024 * 4096 + 4096 + 1024
    head = 267735 + 3 * 1024 + 3 + 1024 * 1024
    assert c.parameters(config) == tables + maps + 18 * layer + head

OTHER_WIDTHS = {"llama": 5120}
"""Two thirds of four times the width, and from there to the next 256 (Touvron et al. 2023, §2.2)."""


@pytest.mark.parametrize("family", [name for name, make in FAMILIES.items()
                                    if (known := inspect.signature(make).parameters.get("hidden")) is not None
                                    and known.default is None])
def test_a_feed_forward_is_four_times_as_wide_as_the_model(family: str) -> None:
    """Where a family is not told otherwise, and its heads divide its width."""
    tree = FAMILIES[family](dim=1920)
    stacks = [stack for stack in (tree.encoder, tree.decoder) if stack]
    found = {layer.inner.hidden for stack in stacks for block in stack.blocks() for layer in block.sublayers
             if isinstance(layer.inner, c.FeedForward | c.GatedFeedForward)}
    assert found == {OTHER_WIDTHS.get(family, 4 * 1920)}
