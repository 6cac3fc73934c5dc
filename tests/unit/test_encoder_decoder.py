"""Pairs of published encoders and decoders: what fits together, what is refused, and what is written of a new one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.laws import zoo

import saucier
from saucier import config as c
from saucier.errors import InputError
from saucier.families.encoder_decoder import ENCODER_DECODER_LAYOUT as PAIR

SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40, "vocab_size": 37,
         "max_position_embeddings": 20}
READS = {"model_type": "roberta", **SIZES, "pad_token_id": 1}
WRITES = {"model_type": "bert", **SIZES, "is_decoder": True, "add_cross_attention": True}


def pair(reads: dict[str, object], writes: dict[str, object]) -> c.Transformer:
    """Return the tree of a pair."""
    document = {"model_type": "encoder-decoder", "encoder": reads, "decoder": writes}
    return PAIR.tree(document, "EncoderDecoderModel", "config.json")


def test_any_encoder_goes_with_any_decoder() -> None:
    """A RoBERTa that reads for a BERT that writes: each side keeps its own embedding and positions."""
    tree = pair(READS, WRITES)
    assert tree.decoder_embed is not None and tree.pooler is not None
    assert tree.embed.positions.places == c.SkipPadding(padding=1)
    assert tree.decoder_embed.positions.places == c.CountedPlaces(kind="in_order")
    assert [residual.inner.kind for residual in tree.decoder.blocks()[0].sublayers] == ["attention", "cross_attention",
                                                                                        "feed_forward"]
    document = PAIR.document(tree)
    assert (document["encoder"]["model_type"], document["decoder"]["model_type"]) == ("roberta", "bert")


@pytest.mark.parametrize(("reads", "writes", "match"), [
    ({**READS, "is_decoder": True}, WRITES, "is_decoder"),
    (READS, {**WRITES, "is_decoder": False}, "is_decoder"),
    ({**READS, "model_type": "t5"}, WRITES, "encoder of model_type 't5'"),
    (READS, {**WRITES, "model_type": "big_bird"}, "decoder of model_type 'big_bird'"),
])
def test_parts_that_do_not_fit_are_refused(reads: dict[str, object], writes: dict[str, object], match: str) -> None:
    """By name, in one line."""
    with pytest.raises(InputError, match=match):
        pair(reads, writes)


def test_sides_of_unequal_widths_have_a_map_between_them() -> None:
    """Counted as it is built; the pooler reads the encoder's vectors."""
    tree = pair({**READS, "hidden_size": 48}, WRITES)
    c.check(tree)
    model = saucier.build(tree)
    assert (tree.encoder_dim, model.bridge.weight.shape) == (48, (24, 48))
    assert c.parameters(tree) == sum(parameter.numel() for parameter in model.parameters())
    document = PAIR.document(tree)
    assert (document["encoder"]["hidden_size"], document["decoder"]["hidden_size"]) == (48, 24)


def test_a_decoder_that_reads_nothing_is_refused() -> None:
    """A decoder without cross-attention would never look at the encoder."""
    with pytest.raises(InputError, match="never looks"):
        c.check(pair(READS, {**WRITES, "add_cross_attention": False}))


def test_a_new_pair_is_written_as_one_and_comes_back(tmp_path: Path) -> None:
    """Without a published config to copy from, the layouts of both parts write their own."""
    model = zoo.scrambled(zoo.family("bert2bert"))
    model.save(tmp_path / "model")
    document = json.loads((tmp_path / "model" / "config.json").read_text())
    assert document["model_type"] == "encoder-decoder"
    assert document["decoder"]["add_cross_attention"] and not document["encoder"]["add_cross_attention"]
    back = saucier.load(tmp_path / "model", dtype="float32", device="cpu")
    assert back.config == model.config
    assert all(torch.equal(value, back.state_dict()[name]) for name, value in model.state_dict().items())


def test_a_decoder_alone_reads_what_it_is_given() -> None:
    """The decoder of a pair, cut out, gives the same with the encoder's output as it gave inside."""
    model = zoo.scrambled(zoo.family("bert2bert"))
    tree = model.config.model_copy(update={"encoder": None, "embed": model.config.decoder_embed, "decoder_embed": None,
                                           "pooler": None})
    alone = zoo.scrambled(tree)
    names = {name.replace("decoder_embed", "embed"): value for name, value in model.state_dict().items()
             if not name.startswith(("embed.", "encoder.", "pooler."))}
    alone.load_state_dict(names)
    source, target = zoo.tokens(tree, 2, 9), zoo.tokens(tree, 2, 5, seed=1)
    mask = (torch.arange(9) < torch.tensor([[9], [6]])).long()
    wanted = model(source, mask, decoder_input_ids=target)
    found = alone(target, encoder_hidden_states=wanted.encoder_last_hidden_state, encoder_attention_mask=mask)
    torch.testing.assert_close(found.logits, wanted.logits, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(alone(target).logits, wanted.logits)


def test_what_older_configs_say_beside_is_read_only_where_it_changes_nothing() -> None:
    """Fields of generation, and neutral values of others; anything else is refused by name."""
    older = {"is_encoder_decoder": False, "num_beam_groups": 1, "pruned_heads": {}, "output_scores": False}
    assert pair({**READS, **older}, {**WRITES, **older}) == pair(READS, WRITES)
    with pytest.raises(InputError, match="pruned_heads"):
        pair(READS, {**WRITES, "pruned_heads": {"0": [1]}})
