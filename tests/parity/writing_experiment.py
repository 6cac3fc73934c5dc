"""One experiment with what a published folder says of generation: the reference's `generate` and ours, with no options.

The fields stand in generation_config.json, or in config.json as older folders have them.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from tests.parity.batches import ids
from tests.parity.field_experiment import (
    FAILS,
    FAULT,
    ILLEGAL,
    OBEYED,
    REFUSED,
    Base,
    Outcome,
    base,
    drawn,
    reference,
    store,
)

import saucier
from saucier.errors import InputError

NEW = 8
WRITERS = {"gpt2": "GPT2LMHeadModel", "bart": "BartForConditionalGeneration", "t5": "T5ForConditionalGeneration",
           "m2m_100": "M2M100ForConditionalGeneration", "encoder_decoder": "EncoderDecoderModel",
           "llama": "LlamaForCausalLM"}
TWO = [[3, 4], [5]]
VALUES: dict[str, list[Any]] = {"max_length": [1, 5, 9, 0], "max_new_tokens": [1, 3, 0, None],
                                "min_length": [0, 6, 11, None], "min_new_tokens": [0, 3, None],
                                "early_stopping": [True, False, "never", None, "odd"], "max_time": [100.0, 0, None],
                                "stop_strings": [["x"], None], "do_sample": [False, None],
                                "num_beams": [1, 2, 4, 0, None], "use_cache": [True, False, None],
                                "cache_implementation": [None, "dynamic", "static", "offloaded", "offloaded_static",
                                                         "sliding_window", "hybrid", "hybrid_chunked",
                                                         "offloaded_hybrid", "offloaded_hybrid_chunked", "quantized",
                                                         "paged", "odd"], "temperature": [0.5, 1.0, 2.5, 0.0, None],
                                "top_k": [0, 1, 5, 50, None], "top_p": [0.5, 0.9, 1.0, 0.0, None],
                                "min_p": [0.1, 0.0, None], "top_h": [0.4, 1.0, 0.0, None],
                                "typical_p": [0.5, 1.0, 0.0, None], "epsilon_cutoff": [0.0, 0.1, 1.0, None],
                                "eta_cutoff": [0.0, 0.1, 1.0, None], "repetition_penalty": [1.0, 1.5, 0.6, None, 0.0],
                                "encoder_repetition_penalty": [1.0, 1.7, 0, None],
                                "length_penalty": [0.0, 1.0, 2.5, -1.5, None],
                                "no_repeat_ngram_size": [0, 1, 2, 3, None],
                                "encoder_no_repeat_ngram_size": [0, 1, 2, None],
                                "bad_words_ids": [[[7]], [[3], [8, 9]], None, [], [[]]],
                                "renormalize_logits": [True, False, None], "forced_bos_token_id": [0, 7, None],
                                "forced_eos_token_id": [5, [5, 6], None], "remove_invalid_values": [True, False, None],
                                "exponential_decay_length_penalty": [[2, 1.5], False, None],
                                "suppress_tokens": [[1, 7, 8, 9], [], None],
                                "begin_suppress_tokens": [[10, 11, 12], [], None],
                                "sequence_bias": [[[[7], 3.0]], [], None], "token_healing": [True, False, None],
                                "guidance_scale": [1.0, 1.5, 0, 0.0, False, True, None],
                                "num_return_sequences": [1, 2, 5, None], "pad_token_id": [0, 3, -1, None],
                                "bos_token_id": [4, None], "eos_token_id": [6, TWO[0], [], -1, None],
                                "decoder_start_token_id": [4, [4, 5], None], "num_beam_groups": [0, 1, 2, None],
                                "diversity_penalty": [0.0, 0.5, None], "penalty_alpha": [0.0, 0.6, None],
                                "num_assistant_tokens": [20, 5, None], "assistant_confidence_threshold": [0.4, None],
                                "prompt_lookup_num_tokens": [3, 0, False, None], "is_assistant": [False, True, None],
                                "dola_layers": ["low", False, None], "constraints": [None, [1], []],
                                "force_words_ids": [[[7]], [], None], "output_scores": [False, True, None],
                                "output_logits": [True, None], "output_attentions": [True, None],
                                "output_hidden_states": [True, None], "return_dict_in_generate": [False, True, None],
                                "watermarking_config": [None, {"greenlist_ratio": 0.25, "bias": 2.0}, {}],
                                "low_memory": [True, False, None], "disable_compile": [True, None],
                                "max_matching_ngram_size": [2, None],
                                "num_assistant_tokens_schedule": ["constant", None], "use_mtp": [False, True, None],
                                "odd_name": [1, None], "prefill_chunk_size": [2, None],
                                "cache_config": [{}, {"nbits": 4}, None], "max_cache_len": [40, None],
                                "compile_config": [None, {}], "continuous_batching_config": [None, {}],
                                "speculation_type": ["dflash", None], "assistant_early_exit": [1, 0, None],
                                "assistant_lookbehind": [10, 5, None], "target_lookbehind": [10, 5, None],
                                "assistant_ensemble_weight": [0.5, None], "transformers_version": ["4.30.0", None],
                                "_from_model_config": [True, False],}
"""What a folder may say of generation -> the values that are tried, each with and without beams."""
SAMPLED = ("temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff",
           "renormalize_logits", "remove_invalid_values", "repetition_penalty", "suppress_tokens",
           "num_return_sequences", "eos_token_id", "watermarking_config", "penalty_alpha")
"""What is tried where tokens are drawn, too: with the same seed the draws are the same."""
LENGTHS = ("max_length", "max_new_tokens")
FILES = ("generation_config.json", "config.json", "decoder of config.json")


def writer(family: str, seed: int) -> Base:
    """Return a family's base that writes."""
    return base(family, WRITERS[family], seed)


def cases(family: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the file and what it says in every case of a family."""
    for file in FILES:
        if file.startswith("decoder") and family != "encoder_decoder":
            continue
        for field, values in VALUES.items():
            for value in values:
                for beams in (1,) if field == "num_beams" else (1, 3):
                    yield file, {field: value} if beams == 1 else {field: value, "num_beams": beams}
    for field in SAMPLED:
        for value in VALUES[field]:
            for beams in (1, 3):
                yield FILES[0], {"do_sample": True, "top_k": 0, "num_beams": beams, field: value}


def attempt_writing(start: Base, file: str, said: dict[str, Any], folder: Path) -> Outcome:
    """Return what comes of a folder that says this of generation."""
    document, own = dict(start.document), None
    if file == "generation_config.json":
        own = {**SAID, **said}
    elif file == "config.json":
        document |= said
    else:
        document["decoder"] = {**document["decoder"], **said}
    rows, mask = prompt(start)
    given = {} if any(said.get(name) is not None for name in LENGTHS) else {"max_new_tokens": NEW}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        store(weights(start), document, folder, own)
        try:
            there = getattr(transformers, start.published).from_pretrained(folder, attn_implementation="eager").eval()
            want = written(there, rows, mask, **given)
        except FAILS as error:
            return Outcome(ILLEGAL, f"{type(error).__name__}: {str(error)[:80]}")
        try:
            ours = saucier.load(folder, head=start.published, dtype="float32", device="cpu")
            got = saucier.generate(ours, rows, attention_mask=mask, seed=0, **given)
        except InputError as error:
            named = any(name in str(error) for name in said)
            return Outcome(REFUSED if named else FAULT, str(error) if named else f"refused without its name: {error}")
        except FAILS as error:
            return Outcome(FAULT, f"{type(error).__name__}: {str(error)[:120]}")
    if torch.equal(got, want):
        return Outcome(OBEYED)
    if torch.equal(got, written(there, rows, mask, **given, use_cache=False)):
        return Outcome(OBEYED, "a tie, which the reference decides otherwise without its cache")
    return Outcome(FAULT, f"{got.tolist()} instead of {want.tolist()}")


def written(there: Any, rows: torch.Tensor, mask: torch.Tensor, **given: Any) -> torch.Tensor:
    """Return what the reference writes, from the seed that our draws begin with."""
    torch.manual_seed(0)
    with torch.no_grad():
        found = there.generate(rows, attention_mask=mask, **given)
    return found if isinstance(found, torch.Tensor) else found.sequences


SAID = {"eos_token_id": 2, "pad_token_id": 0, "decoder_start_token_id": 3, "bos_token_id": 1}
"""What every generation_config.json here says beside."""
KEPT: dict[tuple[str, str], Any] = {}


def weights(start: Base) -> Any:
    """Return the reference model of a base, made once."""
    key = (start.family, start.published)
    if key not in KEPT:
        KEPT[key] = reference(start.document, start.published)
    return KEPT[key]


def prompt(start: Base) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two prompts with their mask: a source with padding, or a prompt without."""
    config, _, _ = drawn(start.family, 0)
    rng = random.Random(start.family)
    rows = ids(config, (2, 5), rng)
    mask = torch.ones_like(rows)
    if getattr(config, "is_encoder_decoder", False):
        mask[1, 3:] = 0
    return rows, mask
