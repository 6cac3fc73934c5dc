"""ALBERT: an encoder whose layers share their weights, with narrow embeddings and a head for the order of sentences."""

from __future__ import annotations

from functools import partial

from saucier import config as c
from saucier.checkpoints.classes import LABELS, TIED, encoder_classes, head_class, keep_all, language_rules
from saucier.checkpoints.fields import Key, look_up
from saucier.checkpoints.layout import Layout, Published
from saucier.checkpoints.weight_names import Rule, Rules, fused_rule, module_rules
from saucier.families import bert_lineage


def albert(
    dim: int = 768,
    layers: int = 12,
    *,
    heads: int = 12,
    vocab: int = 30000,
    length: int = 512,
    width: int = 128,
    hidden: int | None = None,
    dropout: float = 0.0,
) -> c.Transformer:
    """ALBERT with both pretraining heads; `width` is that of the embedding tables.

    Source: Lan et al. 2020, §3.1 and table 1, arXiv:1909.11942. Large and smaller models have no dropout in version 2.
    """
    norm = c.LayerNorm(eps=1e-12)
    attention = c.SelfAttention(projection=c.Projection(heads=heads), kernel=c.Softmax(dropout=dropout))
    feed_forward = c.FeedForward(hidden=hidden or 4 * dim, activation="gelu_tanh")
    residuals = (c.PostNorm(inner=attention, norm=norm, dropout=dropout), c.PostNorm(inner=feed_forward, norm=norm))
    words = c.LanguageHead(bias=True, transform=c.Transform(width=width, activation="gelu_tanh", norm=norm))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, positions=c.Learned(length=length), segments=c.SegmentTable(), norm=norm,
                          dropout=dropout, projection=c.ProjectNarrow(kind="normed", width=width)),
        encoder=c.Stack(layers=c.Share(block=c.Block(sublayers=residuals), times=layers)),
        pooler=c.Pooler(),
        head=c.PretrainingHead(language=words, dropout=0.1),
    )


HEAD = "head.language.transform"
BLOCK = {
    "attention.inner.out": "attention.dense",
    "attention.norm": "attention.LayerNorm",
    "feed_forward.inner.up": "ffn",
    "feed_forward.inner.down": "ffn_output",
    "feed_forward.norm": "full_layer_layer_norm",
    "attention.inner.positions.weight": "attention.distance_embedding.weight",
}
OUTSIDE = {**bert_lineage.EMBEDDINGS, "embed.project.{p}": "@encoder.embedding_hidden_mapping_in.{p}",
           "pooler.dense.{p}": "@pooler.{p}"}


def weights(tree: c.Transformer) -> Rules:
    """The names of ALBERT's body: blocks by their group and their place in it."""
    layers = look_up(tree, "encoder.layers")
    rules = [Rule(ours, theirs) for ours, theirs in OUTSIDE.items()]
    for place in range(layers.groups * layers.inner):
        group, inner = divmod(place, layers.inner)
        ours, theirs = f"encoder.blocks.{place}.", f"@encoder.albert_layer_groups.{group}.albert_layers.{inner}."
        maps = tuple(f"{theirs}attention.{name}" for name in ("query", "key", "value"))
        rules += [*module_rules(ours, theirs, BLOCK), fused_rule(tree, f"{ours}attention.inner.qkv", maps)]
    return Rules(rules, ignored=["@embeddings.position_ids", "predictions.decoder.{p}"])


words = partial(language_rules, "predictions.dense", "predictions.LayerNorm", "predictions.decoder",
                bias="predictions.bias")
DROPPED = Key("classifier_dropout_prob", ("head.dropout",), default=0.1)
ALBERT_LAYOUT = Layout(
    "albert", bert_lineage.positioned(albert, scale=1.0),
    keys=bert_lineage.keys(
        bert_lineage.POSITIONS,
        Key("embedding_size", ("embed.projection.width", f"{HEAD}.width"), default=128),
        Key("num_hidden_groups", ("encoder.layers.groups",), default=1),
        Key("inner_group_num", ("encoder.layers.inner",), default=1),
        Key("hidden_dropout_prob", ("embed.dropout", f"{bert_lineage.ATTENTION}.dropout"), default=0.0),
        transform=HEAD, hidden_act=("activation", "gelu_new"), attention_probs_dropout_prob=("attention_dropout", 0.0)),
    weights=weights,
    classes={
        "AlbertForPreTraining": Published(keep_all, words(Rule("head.sentence.{p}", "sop_classifier.classifier.{p}")),
                                          (TIED, LABELS, DROPPED)),
        **encoder_classes("Albert", words(), head_class(c.ClassificationHead(), keys=(LABELS, DROPPED)),
                          dropout=DROPPED),
    },
    base="albert.", free=frozenset({"tie_word_embeddings", "classifier_dropout_prob"}),
)
"""Its published class divides the scores of contents by the root of the heads' width, but not those of distances."""
