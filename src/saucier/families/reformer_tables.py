"""Reformer's published fields and weight names."""

from __future__ import annotations

from dataclasses import replace

from saucier import config as c
from saucier.checkpoints.classes import (
    BARE,
    LABELS,
    SPANS,
    WHOLE,
    fixed_key,
    head_class,
    move_to_decoder,
    move_to_encoder,
)
from saucier.checkpoints.fields import Document, Key, kind_key, list_attentions, make_keys
from saucier.checkpoints.layout import Layout, Published
from saucier.checkpoints.weight_names import Axis, Concat, Rule, Rules, module_rules
from saucier.errors import InputError
from saucier.families.bert_lineage import SEES_PAST_ONLY
from saucier.families.reformer import PAPER, factors_of, from_fields, kind_of, number_or_list

ATTENTION, FEED_FORWARD = "encoder.layers.*.sublayers.0.inner", "encoder.layers.*.sublayers.1.inner"
KERNEL = f"{ATTENTION}.kernel"
CHUNKS = tuple(
    Key(name.format(kind), (f"{ATTENTION}.kernel.{place}{field}",), argument=f"{kind}_{field}", default=default)
    for kind, place, dropout in (("local", "", 0.05), ("lsh", "chunks.", 0.0))
    for name, field, default in (("{}_attn_chunk_length", "length", 64), ("{}_num_chunks_before", "before", 1),
                                 ("{}_num_chunks_after", "after", 0),
                                 ("{}_attention_probs_dropout_prob", "dropout", dropout)))

INSIDE = {"attention.norm": "attention.layer_norm", "attention.inner.out": "attention.output.dense",
          "feed_forward.norm": "feed_forward.layer_norm", "feed_forward.inner.up": "feed_forward.dense.dense",
          "feed_forward.inner.down": "feed_forward.output.dense"}


def weights(tree: c.Transformer) -> Rules:
    """The names of Reformer's body; what a layer holds depends on its kind."""
    stack = "decoder" if tree.decoder else "encoder"
    rules = module_rules(f"{stack}.blocks.{{i}}.", "@encoder.layers.{i}.", INSIDE)
    for number, attention in enumerate(list_attentions(tree)):
        maps = ("query_key", "value") if kind_of(attention) == "lsh" else ("query", "key", "value")
        rules.append(Rule(f"{stack}.blocks.{number}.attention.inner.qkv.weight", tuple(
            f"@encoder.layers.{number}.attention.self_attention.{name}.weight" for name in maps),
                          Concat((attention.projection.widths(tree.dim)[0],) * len(maps))))
    places = "@embeddings.position_embeddings"
    return Rules([
        *rules, Rule(f"{stack}.final_norm.{{p}}", "@encoder.layer_norm.{p}"),
        Rule("embed.tokens.weight", "@embeddings.word_embeddings.weight"),
        Rule("embed.positions.weight", f"{places}.embedding.weight"),
        Rule("embed.positions.rows", f"{places}.weights.0", Axis(1)),
        Rule("embed.positions.columns", f"{places}.weights.1", Axis(0)),
    ], carried=["lm_head.bias"] if tree.language_head else [], ignored=[] if tree.language_head else ["lm_head.bias"])


def classifier(tree: c.Transformer, document: Document) -> c.ClassificationHead:
    """The head for labels: a dense layer from the two streams to one, and the labels."""
    return c.ClassificationHead(pick=c.PickVector(kind="first"),
                                transform=c.Transform(width=tree.dim, activation="tanh"))


DROPOUT = Key("classifier_dropout", ("head.dropout", "head.transform.dropout"),
              default=lambda document: document.get("hidden_dropout_prob", 0.05))
OUTPUT = (Rule("head.weight", "lm_head.decoder.weight"),)


def counted_once(document: Document) -> Document:
    """Return the config without the number of its layers, which their list has. Raises `InputError` for another."""
    layers, count = document.get("attn_layers") or PAPER, document.get("num_hidden_layers")
    if count is not None and isinstance(layers, list | tuple) and count != len(layers):
        raise InputError(f"num_hidden_layers {count!r} is not the number of attn_layers, {len(layers)}",
                         where="config.json", remedy="remove it, or give as many attn_layers")
    return {name: value for name, value in document.items() if name != "num_hidden_layers"}


REFORMER_LAYOUT = Layout(
    "reformer", from_fields,
    keys=(
        *make_keys("encoder", {
            "hidden_size": ("dim", 256), "num_attention_heads": ("heads", 12), "attention_head_size": ("head_dim", 64),
            "vocab_size": ("vocab", 320), "feed_forward_size": ("hidden", 512), "hidden_act": ("activation", "relu"),
            "hidden_dropout_prob": ("embed_dropout dropout", 0.05), "layer_norm_eps": ("eps", 1e-12)},
                   arguments=("dim",), also={"dropout": (f"{FEED_FORWARD}.dropout", "encoder.dropout")}),
        *CHUNKS, SEES_PAST_ONLY,
        Key("attn_layers", (), argument="layers", default=PAPER, ours=tuple,
            found=lambda tree: [kind_of(part) for part in list_attentions(tree)]),
        Key("num_hashes", (f"{KERNEL}.rounds",), argument="rounds", default=1),
        Key("hash_seed", (f"{KERNEL}.seed",), argument="seed", nullable=True),
        Key("num_buckets", (f"{KERNEL}.buckets.factors",), argument="buckets", nullable=True, ours=factors_of,
            theirs=number_or_list),
        kind_key("axial_pos_embds", "embed.positions", "axial", argument="axial", default=True),
        Key("axial_pos_shape", ("embed.positions.shape",), argument="shape", default=(64, 64), ours=tuple, theirs=list),
        Key("axial_pos_embds_dim", ("embed.positions.widths",), argument="widths", default=(64, 192), ours=tuple,
            theirs=list),
        Key("max_position_embeddings", (f"{KERNEL}.buckets.longest", "embed.positions.length"), argument="length",
            default=4096),
    ),
    weights=weights,
    classes={"ReformerModelWithLMHead": Published(WHOLE.keep, OUTPUT, (fixed_key("is_decoder", True),)),
             "ReformerForMaskedLM": Published(WHOLE.keep, OUTPUT, (fixed_key("is_decoder", False),)),
             "ReformerForSequenceClassification": head_class(classifier, "classifier.out_proj",
                                                             dense="classifier.dense",
                                                             keys=(LABELS, DROPOUT)),
             "ReformerForQuestionAnswering": SPANS, "ReformerModel": replace(BARE, optional=()),},
    base="reformer.",
    free=frozenset({"axial_norm_std", "chunk_size_lm_head", "tie_word_embeddings",
                    "max_position_embeddings", "axial_pos_shape",
                    "axial_pos_embds_dim", "num_buckets", "num_hashes", "hash_seed",
                    *(key.foreign for key in CHUNKS),}),
    finish=move_to_decoder, undo=move_to_encoder, normalize=counted_once, older={"num_hidden_layers": "attn_layers"},
)
"""A tied output is published too, and changes nothing: the reference has no table of that width to tie it to."""
