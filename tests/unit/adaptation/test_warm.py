"""Encoder-decoders from models of one stack: whose weights stand where, and that a side gives what its model gave."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.tolerances import assert_close

from saucier import config as c
from saucier.adaptation.starting_weights import warm_start
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.families.encoder_decoder import joined
from saucier.model import Transformer, build

SIZES: dict[str, Any] = {"dim": 24, "layers": 2, "heads": 4, "vocab": 37, "length": 16}
IDS = torch.randint(0, 37, (2, 7), generator=torch.Generator().manual_seed(0))


def drawn(family: str, seed: int, **options: Any) -> Transformer:
    """Return a small model with every weight drawn anew."""
    model = build(FAMILIES[family](**SIZES | options), seed=seed).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


def silenced(model: Transformer) -> Transformer:
    """Let the cross-attention add nothing."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".cross.inner.out" in name:
                parameter.zero_()
    return model.eval()


def test_both_sides_of_bert2bert_are_bert() -> None:
    """The encoder gives BERT's vectors; the decoder those of BERT under a causal mask, while nothing crosses."""
    bert = drawn("bert", 1)
    model = build(joined(bert.config, bert.config), seed=5)
    done = warm_start(model, encoder=bert, decoder=bert)
    assert all(name.startswith("pooler") for name in done.new), done.new
    own, cross = (model.decoder.blocks[1][name] for name in ("attention", "cross"))
    assert torch.equal(own.inner.qkv.weight, torch.cat([cross.inner.q.weight, cross.inner.kv.weight]))
    assert torch.equal(own.inner.out.bias, cross.inner.out.bias)
    assert torch.equal(own.norm.weight, cross.norm.weight)
    output = model.eval()(IDS, decoder_input_ids=IDS)
    assert_close(output.encoder_last_hidden_state, bert(IDS).last_hidden_state)
    causal = c.Transformer.model_validate_json(
        bert.config.model_dump_json().replace('"visibility":{"kind":"full"}', '"visibility":{"kind":"causal"}'))
    masked = build(causal).eval()
    masked.load_state_dict(bert.state_dict())
    assert not torch.equal(masked(IDS).last_hidden_state, bert(IDS).last_hidden_state)


def test_a_decoder_without_a_voice_from_the_other_side_is_its_model() -> None:
    """rnd2gpt in pre-norm, where silence of the cross-attention changes nothing: GPT-2's own logits."""
    gpt = drawn("gpt2", 2)
    reads = FAMILIES["gpt2"](**SIZES)
    reads = reads.model_copy(update={"encoder": reads.decoder, "decoder": None})
    model = build(joined(reads, gpt.config), seed=5)
    done = warm_start(model, decoder=gpt)
    assert not any(name.startswith(("encoder.", "embed.")) for name in done.taken)
    assert_close(silenced(model)(IDS, decoder_input_ids=IDS).logits, gpt(IDS).logits)


def test_a_side_without_a_model_keeps_its_random_start() -> None:
    bert = drawn("bert", 1)
    fresh, model = (build(joined(bert.config, bert.config), seed=5) for _ in range(2))
    warm_start(model, encoder=bert)
    before, after = dict(fresh.named_parameters()), dict(model.named_parameters())
    assert all(torch.equal(before[name], after[name]) for name in before if name.startswith(("decoder", "head")))
    assert not torch.equal(before["encoder.blocks.0.attention.inner.qkv.weight"],
                           after["encoder.blocks.0.attention.inner.qkv.weight"])


def test_a_shared_model_holds_each_weight_once() -> None:
    """BERTShare: one table, one set of maps; only the cross-attention is more than BERT's own body."""
    bert = drawn("bert", 1)
    shared, apart = (build(joined(bert.config, bert.config, shared=flag)) for flag in (True, False))
    done = warm_start(shared, encoder=bert, decoder=bert)
    assert not any(name.startswith(("decoder_embed", "decoder.blocks.0.attention")) for name, _ in
                   shared.named_parameters())
    assert not done.new
    assert sum(one.numel() for one in shared.parameters()) < 0.65 * sum(one.numel() for one in apart.parameters())
    assert_close(shared.eval()(IDS, decoder_input_ids=IDS).encoder_last_hidden_state, bert(IDS).last_hidden_state)


def test_only_the_past_is_seen_by_what_writes() -> None:
    bert = drawn("bert", 1)
    model = build(joined(bert.config, bert.config))
    warm_start(model, encoder=bert, decoder=bert)
    other = IDS.clone()
    other[:, 4:] = (other[:, 4:] + 1) % 37
    one, two = (model.eval()(IDS, decoder_input_ids=ids).logits for ids in (IDS, other))
    assert_close(one[:, :4], two[:, :4])


def test_what_does_not_fit_is_refused() -> None:
    bert, gpt, t5 = drawn("bert", 1), drawn("gpt2", 2), FAMILIES["t5"](dim=24, layers=1, heads=4, head_dim=6, hidden=32,
                                                                       vocab=37)
    with pytest.raises(InputError, match="only an encoder reads"):
        joined(gpt.config, bert.config)
    with pytest.raises(InputError, match="whole already"):
        joined(bert.config, t5)
    with pytest.raises(InputError, match="an encoder of width 24 and a decoder of width 32"):
        joined(bert.config, FAMILIES["bert"](**SIZES | {"dim": 32}))
    model = build(joined(bert.config, bert.config))
    with pytest.raises(InputError, match="has another shape"):
        warm_start(model, encoder=drawn("bert", 1, dim=32))
