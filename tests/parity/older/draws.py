"""Random legal configs of transformers 4.35 that its version 5 does not have, or reads otherwise.

Run in the environment of `tools/older_reference.py` only.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import transformers
from tests.parity.batches import batch

Drawn = tuple[Any, list[str]]
TASKS = ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForMultipleChoice", "Model")


def bert_like(rng: random.Random) -> dict[str, Any]:
    """Return the settings of an encoder with positions in its attention."""
    heads = rng.choice([1, 2, 4])
    return {"vocab_size": 41, "hidden_size": heads * rng.choice([5, 8]), "num_attention_heads": heads,
            "num_hidden_layers": rng.choice([1, 2]), "intermediate_size": 17, "max_position_embeddings": 24,
            "type_vocab_size": 2, "position_embedding_type": rng.choice(["relative_key", "relative_key_query"]),
            "hidden_act": rng.choice(["gelu", "relu", "gelu_new"]), "num_labels": 3, "pad_token_id": 1}


def relative(name: str) -> Callable[[random.Random], Drawn]:
    """Return the draw of a relative of BERT whose scores know distances."""
    def draw(rng: random.Random) -> Drawn:
        settings, writes = bert_like(rng), name != "Albert" and rng.random() < 0.3
        if name == "Albert":
            settings |= {"embedding_size": 6, "num_hidden_groups": rng.choice([1, settings["num_hidden_layers"]])}
        if name == "Electra":
            settings |= {"embedding_size": rng.choice([6, settings["hidden_size"]]), "summary_activation": None,
                         "summary_type": rng.choice(["first", "mean"]), "summary_use_proj": rng.random() < 0.5}
        config = getattr(transformers, f"{name}Config")(**settings, is_decoder=writes)
        writer = "BertLMHeadModel" if name == "Bert" else f"{name}ForCausalLM"
        return config, [writer] if writes else [f"{name}{task}" for task in TASKS]

    return draw


def transfo_xl(rng: random.Random) -> Drawn:
    """Transformer-XL, which version 5 dropped."""
    heads, cutoffs = rng.choice([1, 2, 3]), rng.choice([[11], [5, 19]])
    dim = heads * rng.choice([4, 6])
    config = transformers.TransfoXLConfig(
        vocab_size=41, cutoffs=cutoffs, d_model=dim, d_embed=rng.choice([dim, 8]), n_head=heads,
        d_head=rng.choice([4, 5]), d_inner=17, div_val=rng.choice([1, 2]), pre_lnorm=rng.random() < 0.3,
        n_layer=rng.choice([1, 2, 3]), mem_len=rng.choice([0, 4, 20]), clamp_len=rng.choice([-1, 3, 1000]),
        same_length=rng.random() < 0.5, untie_r=rng.random() < 0.5, tie_word_embeddings=rng.random() < 0.7,
        proj_share_all_but_first=rng.random() < 0.6, pad_token_id=1, num_labels=3)
    labels = ["TransfoXLForSequenceClassification"] if config.d_embed == dim else []  # it wants the table's width
    return config, ["TransfoXLLMHeadModel", "TransfoXLModel", *labels]


def realm(rng: random.Random) -> Drawn:
    """REALM, which version 5 dropped too."""
    settings = bert_like(rng) | {"position_embedding_type": rng.choice(["absolute", "absolute", "relative_key"])}
    config = transformers.RealmConfig(**settings, retriever_proj_size=rng.choice([4, 7]), num_candidates=2,
                                      tie_word_embeddings=rng.random() < 0.7)
    return config, ["RealmEmbedder", "RealmScorer", "RealmKnowledgeAugEncoder"]


def rotary(rng: random.Random) -> dict[str, Any]:
    """Return the settings of a rotated decoder, with the older spelling of its scaling."""
    heads = rng.choice([2, 4])
    return {"vocab_size": 41, "hidden_size": heads * rng.choice([4, 8]), "num_attention_heads": heads,
            "num_hidden_layers": rng.choice([1, 2]), "intermediate_size": 17, "max_position_embeddings": 24,
            "tie_word_embeddings": rng.random() < 0.3, "pad_token_id": 1}


def scaling(rng: random.Random) -> dict[str, Any] | None:
    """Return how positions beyond the trained ones are made smaller."""
    return rng.choice([None, {"type": "linear", "factor": 2.0}, {"type": "dynamic", "factor": 4.0}])


def llama(rng: random.Random) -> Drawn:
    """Llama with `rope_theta` and `rope_scaling` beside each other."""
    config = transformers.LlamaConfig(**rotary(rng), rope_theta=rng.choice([100.0, 10000.0]), rope_scaling=scaling(rng),
                                      num_key_value_heads=rng.choice([1, 2]), attention_bias=rng.random() < 0.5)
    return config, ["LlamaForCausalLM", "LlamaModel", "LlamaForSequenceClassification"]


def mistral(rng: random.Random) -> Drawn:
    """Mistral with `rope_theta` beside the rest."""
    config = transformers.MistralConfig(**rotary(rng), rope_theta=rng.choice([100.0, 10000.0]), num_key_value_heads=2,
                                        sliding_window=rng.choice([3, 40, None]))
    return config, ["MistralForCausalLM", "MistralModel"]


def gpt_neox(rng: random.Random) -> Drawn:
    """GPT-NeoX with the rotated share and its base under their older names."""
    config = transformers.GPTNeoXConfig(
        **rotary(rng), rotary_pct=rng.choice([0.5, 1.0]), rotary_emb_base=rng.choice([100, 10000]),
        use_parallel_residual=rng.random() < 0.5, rope_scaling=scaling(rng))
    return config, ["GPTNeoXForCausalLM", "GPTNeoXModel"]


def t5(name: str) -> Callable[[random.Random], Drawn]:
    """Return the draw of a T5 whose output matrix is one of its own, which version 5 does not make."""
    def draw(rng: random.Random) -> Drawn:
        config = getattr(transformers, f"{name}Config")(
            vocab_size=41, d_model=16, d_kv=rng.choice([3, 8]), d_ff=17, num_layers=2, num_heads=rng.choice([1, 2]),
            tie_word_embeddings=False, feed_forward_proj=rng.choice(["relu", "gated-gelu", "gated-silu"]),
            relative_attention_num_buckets=rng.choice([8, 9]), relative_attention_max_distance=20,
            decoder_start_token_id=0)
        return config, [f"{name}ForConditionalGeneration", f"{name}EncoderModel"]

    return draw


def xlnet(rng: random.Random) -> Drawn:
    """XLNet whose summary says that it has no activation by null."""
    config = transformers.XLNetConfig(
        vocab_size=41, d_model=12, n_head=2, n_layer=2, d_inner=17, mem_len=rng.choice([None, 4]), num_labels=3,
        summary_type=rng.choice(["last", "first", "mean", "cls_index"]), summary_activation=None,
        summary_use_proj=rng.random() < 0.5, pad_token_id=1)
    return config, ["XLNetForSequenceClassification", "XLNetForMultipleChoice", "XLNetLMHeadModel"]


def gpt2(rng: random.Random) -> Drawn:
    """GPT-2 with the field that once said how far attention reaches, and that nothing reads."""
    config = transformers.GPT2Config(vocab_size=41, n_embd=16, n_head=2, n_layer=2, n_positions=24, n_ctx=7,
                                     summary_activation=rng.choice([None, "tanh", ""]), pad_token_id=1,
                                     bos_token_id=2, eos_token_id=3)
    return config, ["GPT2LMHeadModel", "GPT2DoubleHeadsModel", "GPT2ForSequenceClassification"]


DRAWS: dict[str, Callable[[random.Random], Drawn]] = {
    **{f"{name.lower()}_relative": relative(name)
       for name in ("Bert", "Albert", "Roberta", "XLMRoberta", "Camembert", "Electra")},
    "transfo_xl": transfo_xl, "realm": realm, "llama": llama, "mistral": mistral, "gpt_neox": gpt_neox,
    "t5_untied": t5("T5"), "mt5_untied": t5("MT5"), "xlnet_summary": xlnet, "gpt2_n_ctx": gpt2}
"""Name of a case -> its draw."""


def inputs(config: Any, name: str, rng: random.Random) -> dict[str, torch.Tensor]:
    """Return the common batch, with candidates for the classes of REALM that read them."""
    given: dict[str, torch.Tensor] = batch(config, name, rng)
    if "TransfoXL" in name:  # it knows no mask: every place is a token
        return {"input_ids": given["input_ids"].clamp(min=2)}
    if name == "RealmScorer":
        given |= {f"candidate_{key}": value for key, value in batch(config, "MultipleChoice", rng).items()}
    return batch(config, "MultipleChoice", rng) if name == "RealmKnowledgeAugEncoder" else given
