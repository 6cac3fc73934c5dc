"""Transformer-XL: a decoder with relative positions, a memory of earlier segments, and an adaptive softmax."""

from __future__ import annotations

from dataclasses import replace

from saucier import config as c
from saucier.checkpoints.classes import BARE, LAST_TOKEN, WHOLE, repeat_block
from saucier.checkpoints.fields import Key, kind_key, look_up, make_keys, positive_key, put
from saucier.checkpoints.layout import Layout
from saucier.checkpoints.weight_names import Concat, NameTable, Rule
from saucier.config.embedding import cluster_sizes

CUTOFFS = (20000, 40000, 200000)


def transfo_xl(dim: int = 1024, layers: int = 18, *, heads: int = 16, vocab: int = 267735, hidden: int = 4096,
               memory: int | None = 1600, cutoffs: tuple[int, ...] = CUTOFFS, division: int = 4,
               shared_biases: bool = False, dropout: float = 0.1, attention_dropout: float = 0.0) -> c.Transformer:
    """Transformer-XL large, as for WikiText-103. Source: Dai et al. 2019, §4.1 and table 1, arXiv:1901.02860.

    `memory` None: one segment alone, as if there were no other. Each cluster of the vocabulary has a table narrower
    than the one before by `division` (1: all are equally wide), tied to the output.
    """
    attention = c.SelfAttention(
        projection=c.Projection(heads=heads, head_dim=dim // heads, bias=False, output_bias=False),
        positions=c.TransformerXL(clamp=1000, shared_biases=shared_biases, dropout=dropout),
        visibility=c.Causal() & c.Window(memory) if memory else c.Causal(),
        kernel=c.Softmax(dropout=attention_dropout))
    feed_forward = c.FeedForward(hidden=hidden, activation="relu", dropout=dropout)
    narrower = c.ProjectClusters(width=dim, division=division, cutoffs=cutoffs) if division > 1 else None
    return c.Transformer(
        dim=dim, embed=c.Embedding(vocab=vocab, projection=narrower, scale=dim**0.5, dropout=dropout),
        decoder=repeat_block(layers, attention, feed_forward, dropout=dropout, ends=dropout,
                             memory=c.SegmentMemory(length=memory, start=c.MemoryStart(kind="zeros"))
                             if memory else None),
        head=c.AdaptiveHead(cutoffs=cutoffs, width=dim, division=division,
                            tied_maps=(False, *(True for _ in cutoffs)) if division > 1 else ()))


ATTENTION, FEED_FORWARD = "decoder.layers.block.sublayers.0", "decoder.layers.block.sublayers.1"
POSITIONS, VISIBILITY = f"{ATTENTION}.inner.positions", f"{ATTENTION}.inner.visibility"


def from_fields(dim: int, *, width: int, division: int, cutoffs: list[int], memory: int, same_length: bool,
                pre_norm: bool) -> c.Transformer:
    """The family by the published fields that change the shape of its tree."""
    clusters = {"width": width, "cutoffs": tuple(cutoffs)}
    narrow = c.ProjectNarrow(kind="tokens", width=width, bias=False) if width != dim else None
    tree = transfo_xl(dim, heads=1, memory=memory or None, cutoffs=tuple(cutoffs))
    tree = put(tree, {
        "embed.projection": c.ProjectClusters(division=division, **clusters) if division > 1 else narrow,
        "head": c.AdaptiveHead(division=division, **clusters),
        VISIBILITY: c.Causal() & c.Window(memory) if same_length else c.Causal()})
    residuals = {path: look_up(tree, path) for path in (ATTENTION, FEED_FORWARD) if pre_norm}
    return put(tree, {path: c.PreNorm(inner=one.inner, norm=one.norm, dropout=one.dropout)
                      for path, one in residuals.items()})


NAMES = NameTable(
    {"embed.tokens.weight": "@word_emb.emb_layers.0.weight", "embed.project.weight": "@word_emb.emb_projs.0",
     "embed.tokens.tables.{i}.weight": "@word_emb.emb_layers.{i}.weight",
     "embed.tokens.maps.{i}.weight": "@word_emb.emb_projs.{i}",
     "decoder.biases.content": "@r_w_bias", "decoder.biases.place": "@r_r_bias"},
    "@layers.{i}.",
    {"attention.inner.qkv": "dec_attn.qkv_net", "attention.inner.out": "dec_attn.o_net",
     "attention.inner.positions.map": "dec_attn.r_net", "attention.norm": "dec_attn.layer_norm",
     "feed_forward.inner.up": "pos_ff.CoreNet.0", "feed_forward.inner.down": "pos_ff.CoreNet.3",
     "feed_forward.norm": "pos_ff.layer_norm"},
    more=tuple(Rule(f"decoder.blocks.{{i}}.attention.inner.positions.biases.{ours}", f"@layers.{{i}}.dec_attn.{theirs}")
               for ours, theirs in (("content", "r_w_bias"), ("place", "r_r_bias"))),
    ignored=("@pos_emb.inv_freq", "crit.cluster_weight", "crit.cluster_bias", "crit.out_projs.{i}",
             "crit.out_layers.{i}.{p}"),
)
"""Clusters are numbered, in a list of one where all are equally wide."""


def head_rules(tree: c.Transformer) -> list[Rule]:
    """The names of the adaptive head."""
    if not isinstance(tree.head, c.AdaptiveHead):
        return []
    sizes = cluster_sizes(tree.head.cutoffs, tree.embed.vocab) if tree.head.division > 1 else [tree.embed.vocab]
    biases = tuple(f"crit.out_layers.{number}.bias" for number in range(len(sizes)))
    rules = {"cluster_weight": "cluster_weight", "cluster_bias": "cluster_bias", "tables.{i}": "out_layers.{i}.weight",
             "maps.{i}": "out_projs.{i}"}
    return [Rule("head.bias", biases, Concat(tuple(sizes))),
            *(Rule(f"head.{ours}", f"crit.{theirs}") for ours, theirs in rules.items())]


TRANSFO_XL_LAYOUT = Layout(
    "transfo-xl", from_fields,
    keys=(
        *make_keys("decoder", {
            "d_model": ("dim", None), "n_layer": ("layers", None), "n_head": ("heads", None),
            "d_head": ("head_dim", 64),
            "d_inner": ("hidden", None), "vocab_size": ("vocab", None), "dropatt": ("attention_dropout", 0.0),
            "layer_norm_epsilon": ("eps", 1e-5), "dropout": ("embed_dropout dropout", 0.1)},
                   arguments=("dim",), also={"dropout": ("decoder.dropout", f"{POSITIONS}.dropout",
                                                         f"{FEED_FORWARD}.inner.dropout")}),
        Key("d_embed", (), argument="width", default=1024, found=lambda tree: tree.embed.widths(tree.dim)[0]),
        Key("div_val", ("embed.projection.division", "head.division"), argument="division", default=4, absent=1),
        Key("cutoffs", ("head.cutoffs", "embed.projection.cutoffs"), argument="cutoffs", default=[*CUTOFFS],
            theirs=list),
        Key("mem_len", ("decoder.memory.length",), argument="memory", default=1600, absent=0),
        kind_key("same_length", VISIBILITY, "and", argument="same_length", default=True),
        kind_key("pre_lnorm", ATTENTION, "pre", argument="pre_norm", default=False),
        positive_key("clamp_len", f"{POSITIONS}.clamp", default=1000, none=-1),
        Key("untie_r", (f"{POSITIONS}.shared_biases",), names={True: False, False: True}, default=True),
    ),
    weights=lambda tree: NAMES(tree).plus(head_rules(tree)),
    classes={
        "TransfoXLLMHeadModel": replace(WHOLE, keys=(
            Key("tie_word_embeddings", ("head.tied",), default=True),
            Key("tie_projs", ("head.tied_maps",), default=[False, True, True, True], ours=tuple, theirs=list),
        )),
        "TransfoXLModel": BARE,
        "TransfoXLForSequenceClassification": LAST_TOKEN,
    },
    base="transformer.", fixed={"attn_type": 0, "adaptive": True, "sample_softmax": -1},
    free=frozenset({"init", "init_range", "init_std", "proj_init_std", "proj_share_all_but_first", "tie_projs",
                    "tie_word_embeddings", "cutoffs"}),
)
