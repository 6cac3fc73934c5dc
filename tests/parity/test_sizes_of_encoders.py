"""Published sizes of the encoders beyond BERT: the reference's config, built on the meta device, has our count."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from saucier import config as c
from saucier.families import LAYOUTS
from saucier.families.mobilebert import ib_bert

transformers = pytest.importorskip("transformers", reason="the reference library is in the test group")

RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False}
LATER = {**RELATIVE, "position_buckets": 256, "share_att_key": True, "norm_rel_ebd": "layer_norm"}
V3_BASE = {**LATER, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
SIZES = {
    "deberta-base": ("DebertaForMaskedLM", "DebertaConfig", RELATIVE),
    "deberta-v2-xlarge": ("DebertaV2Model", "DebertaV2Config", {**LATER, "conv_kernel_size": 3, "conv_act": "gelu"}),
    "deberta-v3-base": ("DebertaV2Model", "DebertaV2Config", V3_BASE),
    "deberta-v3-small": ("DebertaV2Model", "DebertaV2Config", {**V3_BASE, "num_hidden_layers": 6}),
    "roformer-base": ("RoFormerForMaskedLM", "RoFormerConfig", {}),
    "mobilebert": ("MobileBertForPreTraining", "MobileBertConfig", {}),
    "modernbert-base": ("ModernBertForMaskedLM", "ModernBertConfig", {}),
    "fnet-base": ("FNetForPreTraining", "FNetConfig", {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_the_published_size_is_counted(name: str) -> None:
    published, settings, fields = SIZES[name]
    config: Any = getattr(transformers, settings)(**fields)
    with torch.device("meta"):
        reference = getattr(transformers, published)(config)
    trained = sum(one.numel() for one in reference.parameters() if one.requires_grad)
    document = {**json.loads(config.to_json_string()), "architectures": [published]}
    assert c.parameters(LAYOUTS[config.model_type].tree(document, published, "config.json")) == trained


IB_BERT = {"hidden_size": 512, "embedding_size": 128, "intra_bottleneck_size": 1024, "intermediate_size": 4096,
           "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "normalization_type": "layer_norm",
           "num_feedforward_networks": 1, "key_query_shared_bottleneck": False, "classifier_activation": True}
"""The release's config of MobileBERT's teacher, its defaults written out (google-research/mobilebert)."""


def test_the_inverted_teacher_is_that_of_the_release() -> None:
    """Counted from the release's code: the reference library gives queries and keys maps of the inner width, which it
    then cannot apply to the wide vectors."""
    config = transformers.MobileBertConfig(**IB_BERT)
    document = {**json.loads(config.to_json_string()), "architectures": ["MobileBertForPreTraining"]}
    theirs = LAYOUTS["mobilebert"].tree(document, "MobileBertForPreTraining", "config.json")
    assert theirs == ib_bert()
    wide, inner, table = 512, 1024, 128
    matrices = 5 * wide * inner + 9 * inner * inner
    block = matrices + (10 * inner + wide) + 2 * (3 * inner + wide)  # and biases, and three norms inside, one outside
    embedding = 30522 * table + (512 + 2 + 2 + 1) * wide + 3 * table * wide
    body = theirs.model_copy(update={"head": None, "pooler": None})
    assert c.parameters(body) == embedding + 24 * block == 294_205_184
