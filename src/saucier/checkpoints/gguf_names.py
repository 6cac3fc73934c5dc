"""GGUF's names of tensors and the published ones, and the order of rows, for each family that llama.cpp knows too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saucier.checkpoints.weight_names import HeadByHead, Operation, Rule, Same, Transpose

if TYPE_CHECKING:
    from torch import Tensor

BLOCK, SAME = "blk.{i}.", Same()
HOLDS_OUTPUT = "output.weight"


@dataclass(frozen=True, slots=True)
class RotaryPermute(Operation):
    """Rows of queries or keys, of which each head has first the one half of the values that turn and then the other.

    GGUF has the two values that turn together next to each other. Source: convert_hf_to_gguf.py of llama.cpp.
    """

    heads: int

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Put the two halves of a head into turns. Raises `RuntimeError` where the rows do not divide."""
        return self.swap(tensors[0], 2)

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Put them after each other."""
        return [self.swap(tensor, -1)]

    def swap(self, tensor: Tensor, outer: int) -> Tensor:
        """Exchange two levels of the order of a head's rows."""
        shape = (self.heads, 2, -1) if outer == 2 else (self.heads, -1, 2)
        return tensor.reshape(*shape, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)


@dataclass(frozen=True, slots=True)
class Stacked(Operation):
    """The matrices of experts as one tensor."""

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Put them on each other."""
        import torch

        return torch.stack(list(tensors))

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Take them apart."""
        return list(tensor.unbind())


def modules(theirs: str, names: Mapping[str, str], operation: Operation = SAME) -> tuple[Rule, ...]:
    """Return the rules of modules of a block: GGUF's name -> the published one."""
    return tuple(Rule(f"{BLOCK}{one}.{{p}}", f"{theirs}{other}.{{p}}", operation) for one, other in names.items())


def gpt2_names(document: Mapping[str, Any]) -> tuple[Rule, ...]:
    """GPT-2 keeps its matrices turned."""
    return (Rule("token_embd.weight", "wte.weight"), Rule("position_embd.weight", "wpe.weight"),
            Rule("output_norm.{p}", "ln_f.{p}"), Rule(HOLDS_OUTPUT, "lm_head.weight"),
            *modules("h.{i}.", {"attn_norm": "ln_1", "ffn_norm": "ln_2"}),
            *modules("h.{i}.", {"attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_up": "mlp.c_fc",
                                "ffn_down": "mlp.c_proj"}, Transpose()))


def llama_names(document: Mapping[str, Any]) -> tuple[Rule, ...]:
    """LLaMA and Mistral: queries and keys in turns."""
    return (*attention_names(document), *modules("layers.{i}.mlp.", {
        "ffn_gate": "gate_proj", "ffn_up": "up_proj", "ffn_down": "down_proj"}))


def attention_names(document: Mapping[str, Any]) -> tuple[Rule, ...]:
    """All of LLaMA but its feed-forwards."""
    heads, kv_heads = document["num_attention_heads"], document.get("num_key_value_heads")
    theirs = "layers.{i}."
    return (Rule("token_embd.weight", "embed_tokens.weight"), Rule("output_norm.weight", "norm.weight"),
            Rule(HOLDS_OUTPUT, "lm_head.weight"),
            *modules(theirs, {"attn_q": "self_attn.q_proj"}, RotaryPermute(heads)),
            *modules(theirs, {"attn_k": "self_attn.k_proj"}, RotaryPermute(kv_heads or heads)),
            *modules(theirs, {"attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
                              "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}))


def mixtral_names(document: Mapping[str, Any]) -> tuple[Rule, ...]:
    """Mixtral: the experts of a layer are one tensor, in older files one each."""
    theirs = "layers.{i}.block_sparse_moe."
    experts = {"ffn_gate": "w1", "ffn_down": "w2", "ffn_up": "w3"}
    return (*attention_names(document), Rule(f"{BLOCK}ffn_gate_inp.weight", f"{theirs}gate.weight"),
            *(Rule(f"{BLOCK}{one}_exps.weight", tuple(f"{theirs}experts.{number}.{other}.weight" for number
                                                      in range(document["num_local_experts"])), Stacked())
              for one, other in experts.items()),
            *(Rule(f"{BLOCK}{one}.{{j}}.weight", f"{theirs}experts.{{j}}.{other}.weight")
              for one, other in experts.items()))


def gpt_neox_names(document: Mapping[str, Any]) -> tuple[Rule, ...]:
    """GPT-NeoX keeps queries, keys and values head by head."""
    return (Rule("token_embd.weight", "embed_in.weight"), Rule("output_norm.{p}", "final_layer_norm.{p}"),
            Rule(HOLDS_OUTPUT, "embed_out.weight"),
            *modules("layers.{i}.", {"attn_qkv": "attention.query_key_value"},
                     HeadByHead(document["num_attention_heads"])),
            *modules("layers.{i}.", {"attn_output": "attention.dense", "attn_norm": "input_layernorm",
                                     "ffn_norm": "post_attention_layernorm", "ffn_up": "mlp.dense_h_to_4h",
                                     "ffn_down": "mlp.dense_4h_to_h"}))


def bloom_names(document: Mapping[str, Any]) -> tuple[Rule, ...]:
    """BLOOM does too."""
    return (Rule("token_embd.weight", "word_embeddings.weight"),
            Rule("token_embd_norm.{p}", "word_embeddings_layernorm.{p}"), Rule("output_norm.{p}", "ln_f.{p}"),
            Rule(HOLDS_OUTPUT, "lm_head.weight"),
            *modules("h.{i}.", {"attn_qkv": "self_attention.query_key_value"}, HeadByHead(document["n_head"])),
            *modules("h.{i}.", {"attn_output": "self_attention.dense", "attn_norm": "input_layernorm",
                                "ffn_norm": "post_attention_layernorm", "ffn_up": "mlp.dense_h_to_4h",
                                "ffn_down": "mlp.dense_4h_to_h"}))


def t5_names(document: Mapping[str, Any]) -> tuple[Rule, ...]:
    """T5: both stacks, and the tables of distances of their first layers."""
    rules = [Rule("token_embd.weight", "shared.weight"), Rule(HOLDS_OUTPUT, "lm_head.weight")]
    gated = str(document.get("feed_forward_proj")).startswith("gated-")
    maps = {"ffn_gate": "wi_0", "ffn_up": "wi_1"} if gated else {"ffn_up": "wi"}
    for ours, theirs, last in (("enc", "encoder", 1), ("dec", "decoder", 2)):
        block, layer = f"{ours}.blk.{{i}}.", f"{theirs}.block.{{i}}.layer."
        names = {"attn_norm": "0.layer_norm", "ffn_norm": f"{last}.layer_norm",
                 **{f"attn_{one}": f"0.SelfAttention.{one}" for one in "qkvo"},
                 **{one: f"{last}.DenseReluDense.{other}" for one, other in (maps | {"ffn_down": "wo"}).items()}}
        if ours == "dec":
            names |= {"cross_attn_norm": "1.layer_norm",
                      **{f"cross_attn_{one}": f"1.EncDecAttention.{one}" for one in "qkvo"}}
        rules += [Rule(f"{block}{one}.weight", f"{layer}{other}.weight") for one, other in names.items()]
        rules += [Rule(f"{ours}.output_norm.weight", f"{theirs}.final_layer_norm.weight"),
                  Rule(f"{ours}.blk.0.attn_rel_b.weight",
                       f"{theirs}.block.0.layer.0.SelfAttention.relative_attention_bias.weight")]
    return tuple(rules)


def bert_names(document: Mapping[str, Any]) -> tuple[Rule, ...]:
    """BERT without its heads."""
    theirs = "embeddings."
    return (Rule("token_embd.weight", f"{theirs}word_embeddings.weight"),
            Rule("position_embd.weight", f"{theirs}position_embeddings.weight"),
            Rule("token_types.weight", f"{theirs}token_type_embeddings.weight"),
            Rule("token_embd_norm.{p}", f"{theirs}LayerNorm.{{p}}"),
            *modules("encoder.layer.{i}.", {
                "attn_q": "attention.self.query", "attn_k": "attention.self.key", "attn_v": "attention.self.value",
                "attn_output": "attention.output.dense", "attn_output_norm": "attention.output.LayerNorm",
                "ffn_up": "intermediate.dense", "ffn_down": "output.dense", "layer_output_norm": "output.LayerNorm"}))
