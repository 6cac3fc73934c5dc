"""MobileBERT: a deep and narrow BERT, every block inside a bottleneck, with several feed-forwards and plain norms."""

from __future__ import annotations

from typing import Any

from saucier import config as c
from saucier.checkpoints.classes import DROPOUT, LABELS, TIED, encoder_classes, head_class, keep_all
from saucier.checkpoints.fields import ACTIVATIONS, Key, kind_key, look_up, make_keys, put
from saucier.checkpoints.layout import Layout, Published
from saucier.checkpoints.weight_names import Concat, NameTable, Rule, Rules, SideBySide, Transpose
from saucier.families import bert_lineage


def mobilebert(dim: int = 512, layers: int = 24, *, heads: int = 4, vocab: int = 30522, length: int = 512,
               narrow: int = 128, forwards: int = 4, dropout: float = 0.0) -> c.Transformer:
    """MobileBERT with both pretraining heads. Source: Sun et al. 2020, §3 and table 1, arXiv:2004.02984.

    `narrow` is the width inside a block and of the token table, a quarter of the feed-forwards'; `forwards` their
    number in a block. Above `dim` the bottleneck is inverted, and the table a quarter of `dim` wide, with plain norms
    as the student has them; the teacher as published is `ib_bert`.
    """
    tree = from_fields(dim, embedding=narrow if narrow <= dim else dim // 4, width=narrow, heads=heads,
                       hidden=4 * narrow, forwards=forwards, dropout=dropout, **PUBLISHED)
    return put(tree, {"embed.vocab": vocab, "embed.positions.length": length, "encoder.layers.times": layers})


def ib_bert(dim: int = 512, layers: int = 24, *, heads: int = 4, vocab: int = 30522, length: int = 512,
            inside: int = 1024, dropout: float = 0.1) -> c.Transformer:
    """IB-BERT, MobileBERT's teacher: BERT-large whose blocks read and give maps of the student's width.

    It keeps BERT's layer norms and GELU, which §3.3 replaces in the student alone, one feed-forward in a block, and
    dropout; queries, keys and values are made of the wide map. `inside`: the width in a block.
    Source: Sun et al. 2020, §3.2 and table 1; google-research/mobilebert, config/uncased_L-24_H-1024_B-512_A-4.json.
    """
    fields = PUBLISHED | {"activation": "gelu", "norm": "layer_norm", "shared": False}
    tree = from_fields(dim, embedding=dim // 4, width=inside, heads=heads, hidden=4 * inside, forwards=1,
                       dropout=dropout, **fields)
    return put(tree, {"embed.vocab": vocab, "embed.positions.length": length, "encoder.layers.times": layers})


PUBLISHED = {"activation": "relu", "norm": "no_norm", "eps": 1e-12, "own": False, "shared": True, "inside": True,
             "trigram": True, "dense": True}
"""Fields that all released models have in common."""


def from_fields(dim: int, **fields: Any) -> c.Transformer:
    """The family by the published fields that change its shape."""
    norm = c.Unnormed(kind="no_norm") if fields["norm"] == "no_norm" else c.LayerNorm(eps=fields["eps"])
    edge = norm if norm.kind == "no_norm" else c.LayerNorm()  # their eps is the release's library's default
    narrow, dropout, kind = fields["embedding"], fields["dropout"], {"activation": fields["activation"]}
    reads = c.Reads(kind="narrow" if fields["own"] else "shared" if fields["shared"] else "wide")
    inside = c.Bottleneck(width=fields["width"], reads=reads, norm=norm, dropout=dropout) if fields["inside"] else None
    outside = 0.0 if inside else dropout  # where a block is not narrow, on its first and last residual
    attention = c.SelfAttention(projection=c.Projection(heads=fields["heads"]), kernel=c.Softmax(dropout=0.1))
    forward = c.FeedForward(hidden=fields["hidden"], **kind)
    block = c.Block(bottleneck=inside, sublayers=(
        c.PostNorm(inner=attention, norm=norm, dropout=outside),
        *(c.PostNorm(inner=forward, norm=norm) for _ in range(fields["forwards"] - 1)),
        c.PostNorm(inner=forward, norm=edge, dropout=outside)))
    wide = c.ProjectNarrow(kind="tokens", width=narrow) if narrow != dim else None
    projection = c.ProjectNarrow(kind="trigram", width=narrow) if fields["trigram"] else wide
    embed = c.Embedding(vocab=1, positions=c.Learned(length=1), segments=c.SegmentTable(), norm=edge,
                        dropout=dropout, projection=projection)
    transform = c.Transform(norm=c.LayerNorm(eps=fields["eps"]), **kind)
    return c.Transformer(
        dim=dim, embed=embed, encoder=c.Stack(layers=c.Repeat(block=block, times=1)),
        pooler=c.Pooler() if fields["dense"] else c.Pooler(dense=False, activation="identity"),
        head=c.PretrainingHead(language=c.LanguageHead(bias=True, columns=dim - narrow, transform=transform)))


BLOCK = "encoder.layers.block"
FIRST, SECOND, READS = f"{BLOCK}.sublayers.0", f"{BLOCK}.sublayers.1.inner", f"{BLOCK}.bottleneck.reads"


OUTSIDE = {**bert_lineage.EMBEDDINGS, **bert_lineage.POOLER,
           "embed.project.{p}": "@embeddings.embedding_transformation.{p}"}
BOTTLENECK = {
    "down": "bottleneck.input.dense", "down_norm": "bottleneck.input.LayerNorm",
    "attention": "bottleneck.attention.dense", "attention_norm": "bottleneck.attention.LayerNorm",
    "up": "output.bottleneck.dense", "norm": "output.bottleneck.LayerNorm",
}


def weights(tree: c.Transformer) -> Rules:
    """The names of MobileBERT's body; the last feed-forward of a block has names of its own."""
    block: c.Block = look_up(tree, BLOCK)
    root, width, last = "inside." if block.bottleneck else "", block.width(tree.dim), len(block.sublayers) - 2
    names = {f"{root}attention.inner.out": "attention.output.dense",
             f"{root}attention.norm": "attention.output.LayerNorm",
             **{f"bottleneck.{ours}": theirs for ours, theirs in BOTTLENECK.items()}}
    for number in range(last + 1):
        ours = f"{root}feed_forward" + (f"_{number + 1}" if number else "")
        theirs = "" if number == last else f"ffn.{number}."
        names |= {f"{ours}.inner.up": f"{theirs}intermediate.dense", f"{ours}.inner.down": f"{theirs}output.dense",
                  f"{ours}.norm": f"{theirs}output.LayerNorm"}
    maps = tuple(f"@encoder.layer.{{i}}.attention.self.{name}.{{p}}" for name in ("query", "key", "value"))
    fused = f"encoder.blocks.{{i}}.{root}attention.inner.qkv"
    return NameTable(OUTSIDE, "@encoder.layer.{i}.", names, more=(
        Rule(f"{fused}.{{p}}", maps, Concat((width,) * 3)), Rule(f"{fused}.value.{{p}}", maps[2]),
        Rule(f"{fused}.query_key.{{p}}", maps[:2], Concat((width,) * 2)),
    ), ignored=("@embeddings.position_ids", "cls.predictions.decoder.{p}"))(tree)


def words(tree: c.Transformer) -> tuple[Rule, ...]:
    """The names of the language head: BERT's, and the columns next to the token table's or an output matrix's."""
    ours = "head.language" if isinstance(tree.head, c.PretrainingHead) else "head"
    table, columns = "cls.predictions.decoder.weight", "cls.predictions.dense.weight"
    *others, _ = bert_lineage.WORDS(tree)
    return (*others, Rule(f"{ours}.columns", columns, Transpose()),
            Rule(f"{ours}.weight", (table, columns), SideBySide(tree.embed.widths(tree.dim)[0])))


def finish_columns(tree: c.Transformer) -> c.Transformer:
    """An output matrix that is not the token table holds all columns itself."""
    return put(tree, {f"{place}.columns": 0 for place in ("head", "head.language")
                      if look_up(tree, f"{place}.tied") is False})


def both(tree: c.Transformer) -> tuple[Rule, ...]:
    """The names of the two pretraining heads."""
    return (*words(tree), Rule("head.sentence.{p}", f"{bert_lineage.SENTENCE}.{{p}}"))


MOBILEBERT_LAYOUT = Layout(
    "mobilebert", from_fields,
    keys=(
        Key("hidden_size", ("dim",), argument="dim"),
        Key("embedding_size", (), argument="embedding", default=128, found=lambda tree: tree.embed.widths(tree.dim)[0]),
        kind_key("trigram_input", "embed.projection", "trigram", argument="trigram", default=True),
        Key("use_bottleneck", (f"{BLOCK}.bottleneck",), argument="inside", default=True,
            theirs=lambda part: part is not None, absent=False),
        Key("intra_bottleneck_size", (f"{BLOCK}.bottleneck.width",), argument="width", default=128),
        kind_key("use_bottleneck_attention", READS, "narrow", argument="own", default=False),
        kind_key("key_query_shared_bottleneck", READS, "shared", argument="shared", default=True),
        Key("num_feedforward_networks", (f"{BLOCK}.sublayers",), argument="forwards", default=4,
            theirs=lambda sublayers: len(sublayers) - 1),
        Key("normalization_type", (f"{FIRST}.norm.kind",), argument="norm", default="no_norm",
            names={"no_norm": "no_norm", "layer_norm": "layer_norm"}),
        Key("layer_norm_eps", ("head.language.transform.norm.eps", "head.transform.norm.eps", f"{FIRST}.norm.eps"),
            argument="eps", default=1e-12),
        Key("classifier_activation", ("pooler.dense",), argument="dense", default=True),
        Key("num_attention_heads", (f"{FIRST}.inner.projection.heads",), argument="heads"),
        Key("intermediate_size", (f"{SECOND}.hidden",), argument="hidden"),
        Key("hidden_act", (f"{SECOND}.activation",), argument="activation", names=ACTIVATIONS, default="relu"),
        Key("hidden_dropout_prob", ("embed.dropout",), argument="dropout", default=0.0),
        *make_keys("encoder", {
            "num_hidden_layers": ("layers", None), "vocab_size": ("vocab", None), "type_vocab_size": ("segments", 2),
            "max_position_embeddings": ("length", None), "attention_probs_dropout_prob": ("attention_dropout", 0.1)}),
    ),
    weights=weights,
    classes={
        "MobileBertForPreTraining": Published(keep_all, both, (TIED,)),
        "MobileBertForNextSentencePrediction": head_class(c.ClassificationHead(), bert_lineage.SENTENCE, keys=()),
        **encoder_classes("MobileBert", words, head_class(c.ClassificationHead(), keys=(LABELS, DROPOUT)),
                          dropout=DROPOUT),
    },
    base="mobilebert.", finish=finish_columns,
    free=frozenset({"true_hidden_size", "intra_bottleneck_size", "key_query_shared_bottleneck", "layer_norm_eps",
                    "use_bottleneck_attention", "classifier_activation", "tie_word_embeddings"}),
)
