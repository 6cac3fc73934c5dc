"""An error at a place of the tree names the fields of the config that say what is there, in one form."""

from __future__ import annotations

from typing import Any

import pytest

from saucier.checkpoints.fields import Key, name_fields_in_error
from saucier.checkpoints.layout import published_tree
from saucier.errors import InputError
from saucier.families import LAYOUTS

KEYS = (Key("width", ("dim",)), Key("reads", ("encoder.layers.*.sublayers.0.inner.projection.heads",)),
        Key("writes", ("decoder.layers.*.sublayers.0.inner.projection.heads",)), Key("drop", ("embed.dropout",)))
SAID = {key.foreign: (key.foreign, number) for number, key in enumerate(KEYS)}


@pytest.mark.parametrize(("where", "what", "fields"), [
    ("config.json", "decoder.layers.sublayers.0.inner.projection.heads: too few", "writes 2"),
    ("encoder.heads", "too few", "reads 1"),
    ("heads", "too few", "reads 1 with writes 2"),
    ("decoder.blocks.0.projection", "dim 4 does not divide into 3 heads", "width 0 with reads 1 with writes 2"),
    ("embed.dropout", "is 1", "drop 3"),
])
def test_the_nearest_fields_are_named(where: str, what: str, fields: str) -> None:
    told = name_fields_in_error(InputError(what, where=where, remedy="less"), KEYS, SAID, "config.json")
    place = what if where == "config.json" else f"{where}: {what}"
    assert str(told) == f"config.json: {fields} cannot be expressed ({place}); less"


def test_an_error_that_no_field_says_stays_as_it_is() -> None:
    error = InputError("is wrong", where="pooler.norm")
    assert name_fields_in_error(error, KEYS, SAID, "config.json") is error


@pytest.mark.parametrize(("model_type", "published", "document", "message"), [
    ("bart", "BartModel", {"num_hidden_layers": -1}, "num_hidden_layers -1 cannot be expressed"),
    ("ctrl", "CTRLModel", {"n_embd": 9, "n_head": 2, "dff": 8, "n_layer": 1},
     "n_embd 9 with n_head 2 cannot be expressed"),
])
def test_the_config_s_own_names_are_said(model_type: str, published: str, document: dict[str, Any],
                                         message: str) -> None:
    sizes = {"d_model": 8, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 8,
             "decoder_ffn_dim": 8, "decoder_layers": 1} if model_type == "bart" else {}
    with pytest.raises(InputError, match="^config.json: " + message):
        published_tree(LAYOUTS[model_type], {"vocab_size": 20, **sizes, **document}, published, "config.json")
