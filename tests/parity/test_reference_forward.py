"""The same weights give the same numbers as the reference library: one copy rule list a family.

The published-checkpoint loader replaces these copies; until then they prove the parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from saucier.families import FAMILIES
from saucier.model import Transformer, build

transformers = pytest.importorskip("transformers", reason="the reference library is in the test group")

State = dict[str, Tensor]


def norm(ours: str, theirs: str, source: State) -> State:
    return {f"{ours}.{part}": source[f"{theirs}.{part}"] for part in ("weight", "bias") if f"{theirs}.{part}" in source}


def gpt2_weights(source: State, layers: int) -> State:
    new = {"embed.tokens.weight": source["transformer.wte.weight"],
           "embed.positions.weight": source["transformer.wpe.weight"]}
    for i in range(layers):
        ours, theirs = f"decoder.blocks.{i}", f"transformer.h.{i}"
        new |= norm(f"{ours}.attention.norm", f"{theirs}.ln_1", source) | norm(f"{ours}.feed_forward.norm",
                                                                               f"{theirs}.ln_2", source)
        maps = {"attention.inner.qkv": "attn.c_attn", "attention.inner.out": "attn.c_proj",
                "feed_forward.inner.up": "mlp.c_fc", "feed_forward.inner.down": "mlp.c_proj"}
        for mine, other in maps.items():
            new[f"{ours}.{mine}.weight"], new[f"{ours}.{mine}.bias"] = (
                source[f"{theirs}.{other}.weight"].T,
                source[f"{theirs}.{other}.bias"],
            )
    return new | norm("decoder.final_norm", "transformer.ln_f", source)


def joined(source: State, names: list[str], part: str) -> Tensor:
    return torch.cat([source[f"{name}.{part}"] for name in names])


def llama_weights(source: State, layers: int) -> State:
    new = {"embed.tokens.weight": source["model.embed_tokens.weight"],
           "decoder.final_norm.weight": source["model.norm.weight"], "head.weight": source["lm_head.weight"]}
    for i in range(layers):
        ours, theirs = f"decoder.blocks.{i}", f"model.layers.{i}"
        new[f"{ours}.attention.norm.weight"] = source[f"{theirs}.input_layernorm.weight"]
        new[f"{ours}.feed_forward.norm.weight"] = source[f"{theirs}.post_attention_layernorm.weight"]
        new[f"{ours}.attention.inner.qkv.weight"] = joined(source, [f"{theirs}.self_attn.{x}_proj" for x in "qkv"],
                                                           "weight")
        new[f"{ours}.attention.inner.out.weight"] = source[f"{theirs}.self_attn.o_proj.weight"]
        new[f"{ours}.feed_forward.inner.up.weight"] = joined(source, [f"{theirs}.mlp.{x}_proj" for x in ("gate", "up")],
                                                             "weight")
        new[f"{ours}.feed_forward.inner.down.weight"] = source[f"{theirs}.mlp.down_proj.weight"]
    return new


def bert_weights(source: State, layers: int) -> State:
    embed = "bert.embeddings"
    new = {"embed.tokens.weight": source[f"{embed}.word_embeddings.weight"],
           "embed.positions.weight": source[f"{embed}.position_embeddings.weight"],
           "embed.segments.weight": source[f"{embed}.token_type_embeddings.weight"],
           "head.language.bias": source["cls.predictions.bias"]}
    new |= norm("embed.norm", f"{embed}.LayerNorm", source) | norm("pooler.dense", "bert.pooler.dense",
                                                                   source) | norm("head.sentence",
                                                                                  "cls.seq_relationship", source)
    new |= norm("head.language.transform.dense", "cls.predictions.transform.dense",
                source) | norm("head.language.transform.norm", "cls.predictions.transform.LayerNorm", source)
    for i in range(layers):
        ours, theirs = f"encoder.blocks.{i}", f"bert.encoder.layer.{i}"
        for part in ("weight", "bias"):
            new[f"{ours}.attention.inner.qkv.{part}"] = joined(source,
                                                               [f"{theirs}.attention.self.{x}"
                                                                for x in ("query", "key", "value")], part)
        new |= norm(f"{ours}.attention.inner.out", f"{theirs}.attention.output.dense",
                    source) | norm(f"{ours}.attention.norm", f"{theirs}.attention.output.LayerNorm", source)
        new |= norm(f"{ours}.feed_forward.inner.up", f"{theirs}.intermediate.dense",
                    source) | norm(f"{ours}.feed_forward.inner.down", f"{theirs}.output.dense", source)
        new |= norm(f"{ours}.feed_forward.norm", f"{theirs}.output.LayerNorm", source)
    return new


def t5_weights(source: State, layers: int) -> State:
    new = {"embed.tokens.weight": source["shared.weight"]}
    if source["lm_head.weight"].data_ptr() != source["shared.weight"].data_ptr():
        new["head.weight"] = source["lm_head.weight"]
    for stack in ("encoder", "decoder"):
        new[f"{stack}.final_norm.weight"] = source[f"{stack}.final_layer_norm.weight"]
        new[f"{stack}.bias.weight"] = source[f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
        for i in range(layers):
            ours, theirs, last = f"{stack}.blocks.{i}", f"{stack}.block.{i}.layer", 1 if stack == "encoder" else 2
            new[f"{ours}.attention.norm.weight"] = source[f"{theirs}.0.layer_norm.weight"]
            new[f"{ours}.attention.inner.qkv.weight"] = joined(source, [f"{theirs}.0.SelfAttention.{x}" for x in "qkv"],
                                                               "weight")
            new[f"{ours}.attention.inner.out.weight"] = source[f"{theirs}.0.SelfAttention.o.weight"]
            if stack == "decoder":
                new[f"{ours}.cross.norm.weight"] = source[f"{theirs}.1.layer_norm.weight"]
                new[f"{ours}.cross.inner.q.weight"] = source[f"{theirs}.1.EncDecAttention.q.weight"]
                new[f"{ours}.cross.inner.kv.weight"] = joined(source, [f"{theirs}.1.EncDecAttention.{x}" for x in "kv"],
                                                              "weight")
                new[f"{ours}.cross.inner.out.weight"] = source[f"{theirs}.1.EncDecAttention.o.weight"]
            dense = f"{theirs}.{last}.DenseReluDense"
            up = [f"{dense}.{x}" for x in ("wi_0", "wi_1", "wi") if f"{dense}.{x}.weight" in source]
            new[f"{ours}.feed_forward.norm.weight"] = source[f"{theirs}.{last}.layer_norm.weight"]
            new[f"{ours}.feed_forward.inner.up.weight"] = joined(source, up, "weight")
            new[f"{ours}.feed_forward.inner.down.weight"] = source[f"{dense}.wo.weight"]
    return new


def pair(family: str, reference: Any, weights: Callable[[State, int], State], **sizes: Any) -> Transformer:
    """Build ours and fill it with the reference's weights, every one of ours exactly once."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in reference.parameters():  # away from the defaults, so that a swapped gain or bias shows
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    ours = build(FAMILIES[family](**sizes)).eval()
    new = weights(reference.eval().state_dict(), sizes["layers"])
    assert set(new) == {name for name, _ in ours.named_parameters()}
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            parameter.copy_(new[name])
    return ours


def gpt2_pair() -> tuple[Transformer, Any]:
    reference = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=32, n_layer=3, n_head=4, vocab_size=60,
                                                                     n_positions=40))
    return pair("gpt2", reference, gpt2_weights, dim=32, layers=3, heads=4, vocab=60, length=40), reference


def llama_pair() -> tuple[Transformer, Any]:
    config = transformers.LlamaConfig(hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                                      vocab_size=60, intermediate_size=48)
    reference = transformers.LlamaForCausalLM(config)
    return pair("llama", reference, llama_weights, dim=32, layers=3, heads=4, kv_heads=2, vocab=60,
                hidden=48), reference


def bert_pair() -> tuple[Transformer, Any]:
    config = transformers.BertConfig(hidden_size=32, num_hidden_layers=3, num_attention_heads=4, vocab_size=60,
                                     intermediate_size=128, max_position_embeddings=40)
    return pair("bert", (reference := transformers.BertForPreTraining(config)), bert_weights, dim=32, layers=3, heads=4,
                vocab=60, length=40), reference


def t5_pair(gated: bool) -> tuple[Transformer, Any]:
    kind = {"feed_forward_proj": "gated-gelu"} if gated else {}
    config = transformers.T5Config(d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, vocab_size=60, **kind)
    config.tie_word_embeddings = config.scale_decoder_outputs = not gated  # its constructor overrides the arguments
    reference = transformers.T5ForConditionalGeneration(config)
    reference.encoder.embed_tokens = reference.decoder.embed_tokens = (
        reference.shared
    )  # without tied outputs it unties these too
    return pair("t5", reference, t5_weights, dim=32, layers=2, heads=4, head_dim=8, vocab=60, hidden=48,
                gated=gated), reference


IDS = torch.randint(0, 60, (3, 11), generator=torch.Generator().manual_seed(0))
RIGHT = torch.tensor([[1] * 11, [1] * 4 + [0] * 7, [1] * 8 + [0] * 3])


@pytest.mark.parametrize("mask", [None, RIGHT, RIGHT.flip(1)], ids=["unpadded", "right", "left"])
@pytest.mark.parametrize("make", [gpt2_pair, llama_pair], ids=["gpt2", "llama"])
def test_decoders(make: Callable[[], tuple[Transformer, Any]], mask: Tensor | None) -> None:
    ours, reference = make()
    positions = None if mask is None else (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        got = ours(IDS, mask, position_ids=positions, output_hidden_states=True, output_attentions=True)
        want = reference(IDS, attention_mask=mask, position_ids=positions, output_hidden_states=True)
    real = torch.ones_like(IDS).bool() if mask is None else mask.bool()
    torch.testing.assert_close(got.logits[real], want.logits[real], atol=1e-4, rtol=1e-4)
    for mine, other in zip(got.hidden_states, want.hidden_states, strict=True):
        torch.testing.assert_close(mine[real], other[real], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("mask", [None, RIGHT, RIGHT.flip(1)], ids=["unpadded", "right", "left"])
def test_bert_with_both_heads(mask: Tensor | None) -> None:
    ours, reference = bert_pair()
    segments = (torch.arange(11) > 5).long().expand(3, 11)
    with torch.no_grad():
        got, want = ours(IDS, mask, token_type_ids=segments), reference(IDS, attention_mask=mask,
                                                                        token_type_ids=segments)
    real = torch.ones_like(IDS).bool() if mask is None else mask.bool()
    torch.testing.assert_close(got.logits[real], want.prediction_logits[real], atol=1e-4, rtol=1e-4)
    whole = real[:, 0]
    torch.testing.assert_close(got.sentence_logits[whole], want.seq_relationship_logits[whole], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("gated", [False, True], ids=["v1.0", "v1.1"])
def test_t5(gated: bool) -> None:
    ours, reference = t5_pair(gated)
    target = torch.randint(0, 60, (3, 9), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        got = ours(IDS, RIGHT, decoder_input_ids=target)
        want = reference(input_ids=IDS, attention_mask=RIGHT, decoder_input_ids=target)
    torch.testing.assert_close(got.logits, want.logits, atol=1e-4, rtol=1e-4)
    real = RIGHT.bool()
    torch.testing.assert_close(got.encoder_last_hidden_state[real], want.encoder_last_hidden_state[real], atol=1e-4,
                               rtol=1e-4)
