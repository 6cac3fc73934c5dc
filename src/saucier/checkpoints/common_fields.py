"""Fields that any published config may have, whatever its family: which of them change no number, and labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

GENERATION = ("max_length", "min_length", "do_sample", "num_beams", "length_penalty", "early_stopping", "temperature",
              "top_k", "top_p", "repetition_penalty", "no_repeat_ngram_size", "bad_words_ids", "num_return_sequences")
"""Fields of older configs that only generation reads, where no generation_config.json says more."""

COMMON = frozenset({
    "architectures", "model_type", "transformers_version", "dtype", "torch_dtype", "use_cache", "initializer_range",
    "initializer_factor", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id",
    "mask_token_id",
    "decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id", "name_or_path", "_name_or_path",
    "task_specific_params",
    "id2label", "label2id", "num_labels", "problem_type", "output_hidden_states", "output_attentions", "return_dict",
    "finetuning_task", "tokenizer_class", "prefix", "gradient_checkpointing", "classifier_dropout",
    "_attn_implementation_autoset",
    "_num_labels", "chunk_size_feed_forward", *GENERATION,
})
"""Fields that do not change what a model computes, in every family."""

SPECIAL_IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id",
               "forced_eos_token_id")
"""Fields that generation reads, where no generation_config.json says more."""

OLDER_GENERATION = frozenset({
    *GENERATION, "begin_suppress_tokens", "diversity_penalty", "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty", "num_beam_groups", "output_scores", "remove_invalid_values",
    "return_dict_in_generate", "suppress_tokens", "tf_legacy_loss", "typical_p"})
"""What older configs inside a config say of generation: those of a decoder stand where the pair says nothing."""

MOST_LABELS = 10_000_000
NEUTRAL: Mapping[str, Any] = {
    "is_decoder": False, "add_cross_attention": False, "cross_attention_hidden_size": None, "is_encoder_decoder": False,
    "tie_encoder_decoder": False, "torchscript": False, "use_bfloat16": False, "pruned_heads": {},
    "tf_legacy_loss": False,
    "begin_suppress_tokens": None, "suppress_tokens": None, "diversity_penalty": 0.0, "num_beam_groups": 1,
    "encoder_no_repeat_ngram_size": 0, "exponential_decay_length_penalty": None, "typical_p": 1.0,
    "remove_invalid_values": False, "output_scores": False, "return_dict_in_generate": False}
"""Field -> the only value that can be expressed, of a family whose own table does not know the field."""


def neutral(known: set[str]) -> dict[str, Any]:
    """Return the fields of which one value can be expressed, without those that a family knows itself."""
    return {name: value for name, value in NEUTRAL.items() if name not in known}


def renamed(document: Mapping[str, Any], older: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the config with newer names of fields, by older ones; what stands under an older name counts more."""
    newer = {older[name]: value for name, value in document.items() if name in older}
    return {**{name: value for name, value in document.items() if name not in older}, **newer}


def with_labels(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config with as many labels as `num_labels` says: it counts more than names of another number.

    So it is in the reference library, which then makes up the names.
    """
    count, names = document.get("num_labels"), document.get("id2label")
    if not is_count(count) or not isinstance(names, Mapping) or len(names) == count:
        return document
    return {**document, "id2label": range(count)}


def is_count(value: Any) -> TypeGuard[int]:
    """Say whether a value may be a number of labels: larger ones come from damaged files only."""
    return isinstance(value, int) and abs(value) <= MOST_LABELS
