"""GGUF's names of what a published config and its weights hold: one table for each family that both llama.cpp and we
know.

A file is read as the published folder that it was made from, and written as what that folder says. On the way out the
metadata are read again and must give the same model: what llama.cpp cannot hold is refused, never dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from saucier.checkpoints.gguf import F32, U32, GgufFile, Typed
from saucier.checkpoints.gguf_names import (
    HOLDS_OUTPUT,
    bert_names,
    bloom_names,
    gpt2_names,
    gpt_neox_names,
    llama_names,
    mixtral_names,
    t5_names,
)
from saucier.checkpoints.weight_names import Rule
from saucier.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

Document = dict[str, Any]
"""A published config."""
ARCHITECTURE = "general.architecture"
SPECIAL = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
"""Field of a published config that generation reads -> GGUF's word for the token."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a value of the metadata is called in a published config."""

    published: str
    default: Any = None
    """Where a file does not say it; None: it must. A string: the published field that says the same."""
    kind: int | None = U32
    """Kind of the number; None: a bool."""


Reduced = tuple[Document, Sequence[str]]
"""The config of what a file can hold of a model, and in words what the rest was."""


@dataclass(frozen=True)
class GgufFamily:
    """How llama.cpp stores a family."""

    architecture: str
    published: str
    """The published class that a file holds."""
    entries: Mapping[str, Entry]
    """Name in the metadata, after that of the architecture -> the field."""
    names: Callable[[Mapping[str, Any]], tuple[Rule, ...]]
    """GGUF's names of tensors and the published ones without the body's prefix, for a config."""
    more: Callable[[GgufFile, Document], Document] = lambda file, document: {}
    """Fields that are told by the tensors, or by several entries."""
    extra: Callable[[Document], Document] = lambda document: {}
    """The inverse: entries of the metadata that several fields give, by full name."""
    reduce: Callable[[Document], Reduced] = lambda document: (document, ())
    made: Callable[[Document], Mapping[str, Tensor]] = lambda document: {}
    """Tensors that follow from a config alone."""
    ignored: tuple[str, ...] = ()
    """Templates of names of tensors that hold nothing of ours."""
    dropped: Mapping[str, str] = field(default_factory=dict)
    """Template of a published name that a file has no place for -> what is lost with it, in words."""
    is_of: Callable[[GgufFile], bool] | None = lambda file: True
    """Whether a file of this architecture is of this family; None: such files are read as another family's."""

ROPE = "rope.scaling."
LENGTH = 2048
"""Tokens that a file says a text has at most, where a model without a table of positions says nothing."""
EPSILON, RMS_EPSILON = "attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"


def llama_more(file: GgufFile, document: Document) -> Document:
    """What LLaMA's tensors say: biases, and how rotations are stretched."""
    said = file.count("llama.attention.key_length")
    width = said or document["hidden_size"] // max(document["num_attention_heads"], 1)
    for name in ("rope.dimension_count", "attention.value_length"):
        if (other := file.count(f"llama.{name}", width)) != width:
            raise InputError(f"{name} is {other}, of {width} values of a head", where=str(file.path),
                             remedy="in this family they are the same; use the folder that the file was made from")
    found: Document = plain_width({**document, "head_dim": said})
    found["rope_parameters"] = read_scaling(file, document, width)
    found |= {name: True for name, tensor in (("attention_bias", "blk.0.attn_q.bias"),
                                              ("mlp_bias", "blk.0.ffn_up.bias")) if tensor in file.tensors}
    return found


def read_scaling(file: GgufFile, document: Document, width: int) -> Document:
    """Return the published field of rotations: as the metadata say, or as a tensor of factors does."""
    kind, theta = file.metadata.get(f"llama.{ROPE}type", "none"), file.number("llama.rope.freq_base", 10000.0)
    base: Document = {"rope_theta": theta}
    factor = file.number(f"llama.{ROPE}factor") or file.number("llama.rope.scale_linear")
    if "rope_freqs.weight" in file.tensors:
        factors = file.read("rope_freqs.weight").double().tolist()
        return base | find_factors(factors, base, document["max_position_embeddings"], width)
    match kind:
        case "none" | "linear" if factor in (None, 0, 1):
            return base | {"rope_type": "default"}
        case "linear":
            return base | {"rope_type": "linear", "factor": float(factor or 1)}
        case "yarn":
            trained = file.number(f"llama.{ROPE}original_context_length", document["max_position_embeddings"])
            return base | {"rope_type": "yarn", "factor": float(factor or 1),
                           "original_max_position_embeddings": trained}
        case _:
            raise InputError(f"{ROPE}type is {str(kind)[:40]!r}", where=str(file.path),
                             remedy="known: none, linear, yarn; use the folder that the file was made from")


LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""What all releases of LLaMA 3 have. Source: their config.json."""
SAME_FACTORS = 1e-5


def find_factors(factors: Sequence[float], base: Document, length: int, width: int) -> Document:
    """Return LLaMA 3's stretching where it gives these factors, else factors that are said one by one."""
    known: Document = {"rope_type": "llama3", "factor": max(factors, default=1.0), **LLAMA3}
    said = make_factors(known | base, width)
    if len(said) == len(factors) and all(math.isclose(one, other, rel_tol=SAME_FACTORS)
                                         for one, other in zip(said, factors, strict=True)):
        return known | {"factor": round(known["factor"], 5)}
    return {"rope_type": "longrope", "short_factor": list(factors), "long_factor": list(factors),
            "original_max_position_embeddings": length, "attention_factor": 1.0}


def make_factors(said: Mapping[str, Any], width: int) -> list[float]:
    """Return by what LLaMA 3 divides the turns of a head. Source: Grattafiori et al. 2024, §3.2, and its code."""
    found = []
    for place in range(0, width, 2):
        wave = 2 * math.pi * said["rope_theta"] ** (place / width)
        trained, low, high = (said["original_max_position_embeddings"], said["low_freq_factor"],
                              said["high_freq_factor"])
        smooth = min(1.0, max(0.0, (trained / wave - low) / (high - low)))
        found.append(1 / ((1 - smooth) / said["factor"] + smooth))
    return found


def llama_extra(document: Document) -> Document:
    """The inverse of `llama_more`, as far as it is metadata."""
    rope = document["rope_parameters"]
    width = document.get("head_dim") or document["hidden_size"] // document["num_attention_heads"]
    found: Document = {"llama.rope.freq_base": Typed(rope.get("rope_theta", 10000.0), F32),
                       "llama.rope.dimension_count": Typed(width, U32),
                       "llama.attention.key_length": Typed(width, U32),
                       "llama.attention.value_length": Typed(width, U32),
                       "llama.vocab_size": Typed(document["vocab_size"], U32)}
    if rope["rope_type"] in ("linear", "yarn"):
        found |= {f"llama.{ROPE}type": rope["rope_type"], f"llama.{ROPE}factor": Typed(rope["factor"], F32)}
    if rope["rope_type"] == "yarn":
        found[f"llama.{ROPE}original_context_length"] = Typed(rope["original_max_position_embeddings"], U32)
    return found


def llama_made(document: Document) -> dict[str, Tensor]:
    """The factors of LLaMA 3, and others that are the same at all lengths."""
    import torch

    rope = document["rope_parameters"]
    width = document.get("head_dim") or document["hidden_size"] // document["num_attention_heads"]
    match rope["rope_type"]:
        case "llama3":
            return {"rope_freqs.weight": torch.tensor(make_factors(rope, width))}
        case "longrope" if rope["short_factor"] == rope["long_factor"]:
            return {"rope_freqs.weight": torch.tensor(rope["short_factor"])}
        case _:
            return {}


def plain_width(document: Document) -> Document:
    """LLaMA whose heads have the usual width, without saying it."""
    usual = document["hidden_size"] // max(document["num_attention_heads"], 1)
    return document | {"head_dim": None if document.get("head_dim") == usual else document.get("head_dim")}


def without_window(document: Document) -> Reduced:
    """Mistral without its window, for texts that are no longer than it."""
    window, length = document.get("sliding_window"), document.get("max_position_embeddings")
    if window is None:
        return plain_width(document) | {"sliding_window": None}, ()
    short = min(window, length or window)
    return plain_width(document) | {"sliding_window": None, "max_position_embeddings": short}, (
        f"llama.cpp knows no window in this family: the file says that texts have at most {short:,} tokens",)


def gpt_neox_more(file: GgufFile, document: Document) -> Document:
    """GPT-NeoX turns a share of each head."""
    width = document["hidden_size"] // max(document["num_attention_heads"], 1)
    turned, base = file.count("gptneox.rope.dimension_count", width), file.number("gptneox.rope.freq_base", 10000.0)
    return {"rotary_pct": (turned or 0) / max(width, 1), "rotary_emb_base": base, "hidden_act": "gelu"}


def gpt_neox_extra(document: Document) -> Document:
    """The inverse."""
    width = document["hidden_size"] // document["num_attention_heads"]
    rope = document["rope_parameters"]
    return {"gptneox.rope.dimension_count": Typed(int(width * rope.get("partial_rotary_factor", 0.25)), U32),
            "gptneox.rope.freq_base": Typed(rope.get("rope_theta", 10000.0), F32)}


def t5_more(file: GgufFile, document: Document) -> Document:
    """T5's tensors say whether its feed-forwards have a gate, and whether the output is scaled.

    llama.cpp scales nothing. Without an output layer of its own a file is of the first T5, whose logits are scaled.
    """
    tied, gated = HOLDS_OUTPUT not in file.tensors, "enc.blk.0.ffn_gate.weight" in file.tensors
    start = file.count("t5.decoder_start_token_id", 0)
    return {"feed_forward_proj": "gated-gelu" if gated else "relu", "decoder_start_token_id": start,
            "tie_word_embeddings": tied, "scale_decoder_outputs": tied and not gated,
            "is_encoder_decoder": True}


def t5_extra(document: Document) -> Document:
    """The inverse, and what llama.cpp asks for."""
    start = document.get("decoder_start_token_id")
    return {"t5.context_length": Typed(document.get("n_positions") or 512, U32),
            "t5.attention.value_length": Typed(document["d_kv"], U32),
            "t5.attention.layer_norm_rms_epsilon": Typed(document["layer_norm_epsilon"], F32),
            "t5.decoder_start_token_id": Typed(0 if start is None else start, U32)}


def with_scaled_output(document: Document) -> Reduced:
    """T5 whose output layer is its own: llama.cpp does not scale what a tied one gives.

    Raises `InputError` for a decoder with more layers than the encoder, which llama.cpp does not open.
    """
    if (written := document.get("num_decoder_layers") or 0) > document["num_layers"]:
        raise InputError(f"the decoder has {written} layers, and the encoder {document['num_layers']}", where="model",
                         remedy="llama.cpp opens no such file; export it as ctranslate2 or onnx")
    if not document.get("tie_word_embeddings", True):
        return document | {"scale_decoder_outputs": False}, ()
    scaled = document.get("scale_decoder_outputs", document["model_type"] == "t5")
    return document | {"tie_word_embeddings": False, "scale_decoder_outputs": False}, (
        "the output layer, which the model shares with its table, is written once more"
        + (", scaled as the model scales it" if scaled else ""),)


def bert_more(file: GgufFile, document: Document) -> Document:
    """How many segments BERT has; it has no head."""
    segments = file.tensors.get("token_types.weight")
    return {"type_vocab_size": 0 if segments is None else segments.shape[0], "hidden_act": "gelu"}


def bert_extra(document: Document) -> Document:
    """What llama.cpp asks for."""
    return {"bert.attention.causal": False, "tokenizer.ggml.token_type_count": Typed(
        document.get("type_vocab_size", 2), U32)}


def has_experts(file: GgufFile) -> bool:
    """Say whether a file of LLaMA's architecture has experts."""
    return bool(file.count("llama.expert_count", 0))


GPT2 = GgufFamily(
    "gpt2", "GPT2LMHeadModel",
    {"context_length": Entry("n_positions"), "embedding_length": Entry("n_embd"), "block_count": Entry("n_layer"),
     "feed_forward_length": Entry("n_inner"), "attention.head_count": Entry("n_head"),
     EPSILON: Entry("layer_norm_epsilon", kind=F32)}, gpt2_names)
LLAMA = GgufFamily(
    "llama", "LlamaForCausalLM",
    {"context_length": Entry("max_position_embeddings", LENGTH), "embedding_length": Entry("hidden_size"),
     "block_count": Entry("num_hidden_layers"), "feed_forward_length": Entry("intermediate_size"),
     "attention.head_count": Entry("num_attention_heads"),
     "attention.head_count_kv": Entry("num_key_value_heads", "num_attention_heads"),
     RMS_EPSILON: Entry("rms_norm_eps", kind=F32)},
    llama_names, llama_more, llama_extra, lambda document: (plain_width(document), ()), llama_made,
    ignored=("rope_freqs.weight", "blk.{i}.attn_rot_embd.weight"),
    is_of=lambda file: not has_experts(file))
T5 = GgufFamily(
    "t5", "T5ForConditionalGeneration",
    {"embedding_length": Entry("d_model"), "block_count": Entry("num_layers"),
     "decoder_block_count": Entry("num_decoder_layers", "num_layers"), "feed_forward_length": Entry("d_ff"),
     "attention.head_count": Entry("num_heads"), "attention.key_length": Entry("d_kv", 64),
     "attention.relative_buckets_count": Entry("relative_attention_num_buckets"),
     EPSILON: Entry("layer_norm_epsilon", kind=F32)},
    t5_names, t5_more, t5_extra, with_scaled_output,
    ignored=("dec.blk.{i}.cross_attn_rel_b.weight",))
FAMILIES: Mapping[str, GgufFamily] = {
    "gpt2": GPT2,
    "llama": LLAMA,
    "mistral": replace(LLAMA, published="MistralForCausalLM", reduce=without_window, is_of=None),
    "mixtral": replace(LLAMA, published="MixtralForCausalLM", names=mixtral_names, reduce=without_window,
                       is_of=has_experts, entries={
                           **LLAMA.entries, "expert_count": Entry("num_local_experts"),
                           "expert_used_count": Entry("num_experts_per_tok")}),
    "gpt_neox": GgufFamily(
        "gptneox", "GPTNeoXForCausalLM",
        {"context_length": Entry("max_position_embeddings", LENGTH), "embedding_length": Entry("hidden_size"),
         "block_count": Entry("num_hidden_layers"), "feed_forward_length": Entry("intermediate_size"),
         "attention.head_count": Entry("num_attention_heads"), EPSILON: Entry("layer_norm_eps", kind=F32),
         "use_parallel_residual": Entry("use_parallel_residual", True, None)},
        gpt_neox_names, gpt_neox_more, gpt_neox_extra),
    "bloom": GgufFamily(
        "bloom", "BloomForCausalLM",
        {"context_length": Entry("seq_length", LENGTH), "embedding_length": Entry("hidden_size"),
         "block_count": Entry("n_layer"), "attention.head_count": Entry("n_head"),
         EPSILON: Entry("layer_norm_epsilon", kind=F32)}, bloom_names,
        extra=lambda document: {"bloom.feed_forward_length": Typed(4 * document["hidden_size"], U32),
                                "bloom.attention.head_count_kv": Typed(document["n_head"], U32)}),
    "t5": T5,
    "bert": GgufFamily(
        "bert", "BertModel",
        {"context_length": Entry("max_position_embeddings"), "embedding_length": Entry("hidden_size"),
         "block_count": Entry("num_hidden_layers"), "feed_forward_length": Entry("intermediate_size"),
         "attention.head_count": Entry("num_attention_heads"), EPSILON: Entry("layer_norm_eps", kind=F32)},
        bert_names, bert_more, bert_extra,
        dropped={"pooler.dense.{p}": "the map of the first token (pooler), which llama.cpp has not"}),
    "mt5": replace(T5, published="MT5ForConditionalGeneration", is_of=None),
}
"""`model_type` of the published layout -> how llama.cpp stores it."""
