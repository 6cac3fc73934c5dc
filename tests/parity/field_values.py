"""Values for every field of a published config: what its type tells, and tables where types do not tell."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

import transformers
from transformers.activations import ACT2FN
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from saucier.checkpoints.fields import COMMON
from saucier.checkpoints.layout import Layout

ABSENT = "(absent)"
"""Stands for a field that the config has not."""
ACTIVATIONS = re.compile(r"(hidden_|pooler_hidden_|conv_)?act|activation(_function)?|afn|.*_activation|dense_act_fn")
INHERITED = ("add_cross_attention", "is_decoder", "is_encoder_decoder", "tie_word_embeddings", "tie_encoder_decoder",
             "chunk_size_feed_forward", "pruned_heads", "position_embedding_type", "torchscript", "use_bfloat16",
             "cross_attention_hidden_size", "num_labels", "tie_last_hidden_states", "per_layer_config",
             "output_attentions", "use_return_dict", "attn_implementation", "_attn_implementation")
"""What any published config may say, though its class has no such field."""
UNREADABLE = {"transformers_version", "architectures", "dtype", "label2id", "torch_dtype", "name_or_path", "model_type",
              "_name_or_path"}
"""Told of a file, and read by nothing that computes."""
TURNED: list[Any] = [
    {"rope_type": "default", "rope_theta": 50.0}, {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.5},
    {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 3.0},
    {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0},
    {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 8,
     "beta_fast": 4, "beta_slow": 2, "attention_factor": 1.3, "truncate": False},
    {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "mscale": 0.7, "mscale_all_dim": 0.3},
    {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "mscale": 0.7},
    {"rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 8},
    {"rope_type": "longrope", "rope_theta": 100.0, "short_factor": [1.5, 2.0], "long_factor": [2.5, 3.0],
     "original_max_position_embeddings": 8},
    {"rope_type": "longrope", "rope_theta": 100.0, "short_factor": [1.5, 2.0, 1.1], "long_factor": [2.5, 3.0, 1.2],
     "original_max_position_embeddings": 8, "factor": 2.0},
    {"rope_type": "proportional", "rope_theta": 100.0, "factor": 2.0},
    {"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.5}, {"rope_theta": 77.0},
    {"type": "linear", "factor": 2.0}, {"type": "default", "rope_type": "linear", "factor": 2.0},
    {"rope_type": "linear", "factor": 2.0, "unknown": 3}, {}]
SUMMARIES = ["last", "first", "mean", "cls_index", "attn", "odd"]
TEXTS: dict[str, list[Any]] = {
    "summary_type": SUMMARIES, "position_embedding_type": ["absolute", "relative_key", "relative_key_query", "odd"],
    "attention_type": ["original_full", "block_sparse", "odd"], "attn_type": ["bi", "uni", "odd"],
    "normalization_type": ["layer_norm", "no_norm", "odd"], "classifier_pooling": ["cls", "mean", "odd"],
    "feed_forward_proj": [name for act in ("relu", "gelu", "gelu_new", "silu") for name in (act, f"gated-{act}")],
    "pos_att_type": ["p2c", "c2p|p2c", ["c2p"], ["p2c", "c2p"], [], "odd", ["p2p"]],
    "rope_parameters": TURNED, "rope_scaling": TURNED, "rope_theta": [50.0, 0.5, 1], "rotary_emb_base": [50.0, 3],
    "partial_rotary_factor": [0.25, 0.5, 0.7, 1.0], "rotary_pct": [0.25, 0.5, 0.7, 1.0, 0.0],
    "attention_window": [2, 4, 8, [2], [2, 4], [4, 4], [6, 2, 4], 3, 0],
    "attention_layers": [["global"], ["local"], ["global", "local"], ["local", "global", "local"], []],
    "attention_types": [[[["global"], 2]], [[["local"], 2]], [[["global", "local"], 1]], [[["local", "global"], 2]]],
    "attn_layers": [["local"], ["lsh"], ["local", "lsh"], ["lsh", "lsh"], ["local", "odd"], []],
    "layer_types": [["full_attention"] * 2, ["sliding_attention"] * 2, ["full_attention"],
                    ["full_attention", "sliding_attention"], ["sliding_attention", "full_attention", "odd"],
                    ["full_attention", "full_attention", "sliding_attention"]],
    "id2label": [{"0": "yes"}, {"0": "a", "1": "b", "2": "c"}, {"0": "a", "2": "b"}, {"1": "a", "0": "b"}, {}],
    "pruned_heads": [{}, {"0": [0]}], "num_buckets": [2, 4, [2, 4], [4, 4], 3, 6],
    "axial_pos_shape": [[4, 12], [8, 8], [2, 2], [4]], "axial_pos_embds_dim": [[2, 4], [3, 3], [6], [12, 6]],
    "per_layer_config": [{}, {"0": {"hidden_act": "relu"}}], "router_dtype": ["float32", "float16", "bfloat16"],
    "problem_type": ["regression", "single_label_classification", "multi_label_classification"],
    "sparsify_mlp": [True, False], "conv_act": ["tanh", "gelu", "relu"], "moe_pattern": [None],
    "_attn_implementation": ["eager", "sdpa"], "attn_implementation": ["eager", "sdpa"],
    "summary_activation": [*ACT2FN], "hidden_activation": [*ACT2FN], "classifier_activation": [True, False, *ACT2FN],
    "lang2id": [{}, {"en": 0}], "id2lang": [{}, {"0": "en"}], "task_specific_params": [{"x": {"max_length": 3}}],
    "encoder": [], "decoder": [],
}
"""Fields of which the type does not tell the legal values."""


def fields(layout: Layout, family: str) -> list[str]:
    """Return all fields to be tried: of the class, of our tables, and what the reference's code reads."""
    kind = CONFIG_MAPPING[layout.model_type]
    declared = {field.name for field in dataclasses.fields(kind)}
    tables = {key.foreign for key in layout.keys} | set(layout.older) | set(layout.fixed) | layout.free | COMMON
    tables |= {key.foreign for published in layout.classes.values() for key in published.keys}
    found = declared | tables | set(kind.attribute_map) | read_by_code(layout) | set(INHERITED)
    if family == "encoder_decoder":
        found -= {"encoder", "decoder"}
    return sorted(found - UNREADABLE - GENERATION)


GENERATION = set(transformers.GenerationConfig().to_dict()) - {
    "bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "use_cache", "output_attentions",
    "output_hidden_states"}
"""Fields that only generation reads, with values of their own."""


def read_by_code(layout: Layout) -> set[str]:
    """Return the names after `config.` in the modelling code of a family's classes."""
    modules = {inspect.getmodule(getattr(transformers, name)) for name in layout.classes if hasattr(transformers, name)}
    source = "\n".join(inspect.getsource(module) for module in modules if module)
    names = re.findall(r"config\.([a-z]\w+)\b(?!\()", source) + re.findall(r'getattr\(\w*\.?config, "(\w+)"', source)
    return {name for name in names if not name.startswith(("get_", "to_", "from_", "is_composition"))} - HARMLESS


HARMLESS = {"pretrained_config", "keys_to_ignore_at_inference", "model", "base_model_tp_plan", "hf_device_map"}


def values(kind: type[Any], field: str, base: Any, vocab: int) -> list[Any]:
    """Return the values that are tried for a field: its absence, null, and what its name or its type tells."""
    hint = next((str(one.type) for one in dataclasses.fields(kind) if one.name == field), "")
    unique: list[Any] = []
    for value in (ABSENT, None, *named(field, hint or type(base).__name__, vocab, base)):
        if not any(value == one and type(value) is type(one) for one in unique):
            unique.append(value)
    return [value for value in unique if not (value == base and type(value) is type(base))]


def named(field: str, hint: str, vocab: int, base: Any) -> list[Any]:
    """Return what the name of a field tells, or else what its type, or its value in the base, tells."""
    if field in TEXTS:
        return TEXTS[field]
    if ACTIVATIONS.fullmatch(field):
        return [*ACT2FN, "odd"]
    if field.endswith(("token_id", "_index", "token_ids")):
        return [0, 1, 5, vocab - 1, vocab + 3, -1, [1, 2]]
    found: list[Any] = []
    if re.search(r"\b(bool|NoneType)\b", hint):
        found += [True, False]
    if re.search(r"\b(int|NoneType)\b", hint):
        found += numbers(base)
    if re.search(r"\bfloat\b", hint):
        found += [0.0, 0.3, 1.0, 2.5, -1.0, 1e-12, 1e-3]
    return found or [True, False, 1, 0.5, "odd"]


def numbers(base: Any) -> list[Any]:
    """Return whole numbers around the one of the base."""
    near = [base - 1, base + 1, 2 * base, base // 2] if isinstance(base, int) and not isinstance(base, bool) else []
    return [0, 1, 2, 3, 4, 6, -1, *near]
