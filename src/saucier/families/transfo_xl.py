"""Transformer-XL: a decoder with relative positions, a memory of earlier segments, and an adaptive softmax."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from saucier import config as c
from saucier.checkpoints.choices import LABELS, PADDING, bare, labelling, whole
from saucier.checkpoints.keys import Key, Layout, look_up, put
from saucier.checkpoints.rules import Concat, Rule, Rules
from saucier.config.adaptive import cluster_sizes
from saucier.families.xlnet import optional

CUTOFFS = (20000, 40000, 200000)


def transfo_xl(
    dim: int = 1024,
    layers: int = 18,
    *,
    heads: int = 16,
    vocab: int = 267735,
    hidden: int = 4096,
    memory: int | None = 1600,
    cutoffs: tuple[int, ...] = CUTOFFS,
    dropout: float = 0.1,
) -> c.Transformer:
    """Transformer-XL large, as for WikiText-103. Source: Dai et al. 2019, §4.1 and table 1, arXiv:1901.02860.

    `memory` None: one segment alone, as if there were no other. Clusters of the vocabulary have tables a quarter as
    wide as the one before, tied to the output.
    """
    attention = c.SelfAttention(
        projection=c.Projection(heads=heads, head_dim=dim // heads, bias=False, output_bias=False),
        positions=c.TransformerXL(clamp=1000, dropout=dropout),
        visibility=c.Causal() & c.Window(memory) if memory else c.Causal())
    feed_forward = c.FeedForward(hidden=hidden, activation="relu", dropout=dropout)
    block = c.Block(sublayers=tuple(c.PostNorm(inner=inner, dropout=dropout) for inner in (attention, feed_forward)))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, projection=c.ProjectClusters(width=dim, division=4, cutoffs=cutoffs),
                          scale=dim**0.5, dropout=dropout),
        decoder=c.Stack(
            layers=c.Repeat(block=block, times=layers), dropout=dropout,
            memory=c.SegmentMemory(length=memory, start=c.FromZeros()) if memory else None),
        head=c.AdaptiveHead(cutoffs=cutoffs, width=dim, division=4, tied_maps=(False, *(True for _ in cutoffs))),
    )


ATTENTION, FEED_FORWARD = "decoder.layers.block.sublayers.0", "decoder.layers.block.sublayers.1"
POSITIONS, VISIBILITY, MEMORY = (f"{ATTENTION}.inner.positions", f"{ATTENTION}.inner.visibility",
                                 "decoder.memory.length")


def from_fields(dim: int, *, width: int, division: int, cutoffs: list[int], memory: int, same_length: bool,
                pre_norm: bool) -> c.Transformer:
    """The family by the published fields that change the shape of its tree."""
    clusters = {"width": width, "cutoffs": tuple(cutoffs)}
    narrow = c.ProjectTokens(width=width, bias=False) if width != dim else None
    tree = transfo_xl(dim, heads=1, memory=memory or None, cutoffs=tuple(cutoffs))
    tree = put(tree, "embed.projection", c.ProjectClusters(division=division, **clusters) if division > 1 else narrow)
    tree = put(tree, "head", c.AdaptiveHead(division=division, **clusters))
    tree = put(tree, VISIBILITY, c.Causal() & c.Window(memory) if same_length else c.Causal())
    for path in (ATTENTION, FEED_FORWARD) if pre_norm else ():
        residual = look_up(tree, path)
        tree = put(tree, path, c.PreNorm(inner=residual.inner, norm=residual.norm, dropout=residual.dropout))
    return tree  # type: ignore[no-any-return]  # `put` gives what it is given


def first_of(*paths: str, otherwise: Any = None) -> Callable[[c.Transformer], Any]:
    """Return what finds the first place that a tree has."""
    def found(tree: c.Transformer) -> Any:
        return next((value for path in paths if (value := look_up(tree, path)) is not None), otherwise)

    return found


def listed(found: Callable[[c.Transformer], Any]) -> Callable[[c.Transformer], Any]:
    """The same as a list, as JSON has it."""
    return lambda tree: None if found(tree) is None else [*found(tree)]


KEYS = (
    Key("d_model", ("dim",), argument="dim"),
    Key("d_embed", (), argument="width", default=1024, found=lambda tree: tree.embed.widths(tree.dim)[0]),
    Key("div_val", (), argument="division", default=4,
        found=first_of("embed.projection.division", "head.division", otherwise=1)),
    Key("cutoffs", (), argument="cutoffs", default=[*CUTOFFS],
        found=listed(first_of("head.cutoffs", "embed.projection.cutoffs"))),
    Key("mem_len", (), argument="memory", default=1600, found=first_of(MEMORY, otherwise=0)),
    Key("same_length", (), argument="same_length", default=True,
        found=lambda tree: isinstance(look_up(tree, VISIBILITY), c.And)),
    Key("pre_lnorm", (), argument="pre_norm", default=False,
        found=lambda tree: isinstance(look_up(tree, ATTENTION), c.PreNorm)),
    Key("n_layer", ("decoder.layers.times",)),
    Key("n_head", (f"{ATTENTION}.inner.projection.heads",)),
    Key("d_head", (f"{ATTENTION}.inner.projection.head_dim",), default=64),
    Key("d_inner", (f"{FEED_FORWARD}.inner.hidden",)),
    Key("vocab_size", ("embed.vocab",)),
    optional("clamp_len", f"{POSITIONS}.clamp", default=1000, none=-1),
    Key("untie_r", (f"{POSITIONS}.shared_biases",), names={True: False, False: True}, default=True),
    Key("dropout", ("embed.dropout", "decoder.dropout", f"{ATTENTION}.dropout", f"{POSITIONS}.dropout",
                    f"{FEED_FORWARD}.dropout", f"{FEED_FORWARD}.inner.dropout"), default=0.1),
    Key("dropatt", (f"{ATTENTION}.inner.kernel.dropout",), default=0.0),
    Key("layer_norm_epsilon", (f"{ATTENTION}.norm.eps", f"{FEED_FORWARD}.norm.eps"), default=1e-5),
)
SPEAKING = (
    Key("tie_word_embeddings", ("head.tied",), default=True),
    Key("tie_projs", ("head.tied_maps",), default=[False, True, True, True], ours=tuple, theirs=list),
)


def weights(tree: c.Transformer) -> Rules:
    """The names of Transformer-XL: clusters are numbered, in a list of one where all are equally wide."""
    names = {"attention.inner.qkv": "dec_attn.qkv_net", "attention.inner.out": "dec_attn.o_net",
             "attention.inner.positions.map": "dec_attn.r_net", "attention.norm": "dec_attn.layer_norm",
             "feed_forward.inner.up": "pos_ff.CoreNet.0", "feed_forward.inner.down": "pos_ff.CoreNet.3",
             "feed_forward.norm": "pos_ff.layer_norm"}
    biases = {"content": "r_w_bias", "place": "r_r_bias"}
    block, theirs = "decoder.blocks.{i}.", "@layers.{i}."
    return Rules(
        [
            Rule("embed.tokens.weight", "@word_emb.emb_layers.0.weight"),
            Rule("embed.project.weight", "@word_emb.emb_projs.0"),
            Rule("embed.tokens.tables.{i}.weight", "@word_emb.emb_layers.{i}.weight"),
            Rule("embed.tokens.maps.{i}.weight", "@word_emb.emb_projs.{i}"),
            *(Rule(f"{block}{ours}.{{p}}", f"{theirs}{other}.{{p}}") for ours, other in names.items()),
            *(Rule(f"{block}attention.inner.positions.biases.{ours}", f"{theirs}dec_attn.{other}")
              for ours, other in biases.items()),
            *(Rule(f"decoder.biases.{ours}", f"@{other}") for ours, other in biases.items()),
            *head_rules(tree),
        ],
        ignored=["@pos_emb.inv_freq", "crit.cluster_weight", "crit.cluster_bias", "crit.out_projs.{i}",
                 "crit.out_layers.{i}.{p}"],
    )


def head_rules(tree: c.Transformer) -> list[Rule]:
    """The names of the adaptive head."""
    if not isinstance(tree.head, c.AdaptiveHead):
        return []
    sizes = cluster_sizes(tree.head.cutoffs, tree.embed.vocab) if tree.head.division > 1 else [tree.embed.vocab]
    return [
        Rule("head.cluster_weight", "crit.cluster_weight"),
        Rule("head.cluster_bias", "crit.cluster_bias"),
        Rule("head.bias", tuple(f"crit.out_layers.{number}.bias" for number in range(len(sizes))),
             Concat(tuple(sizes))),
        Rule("head.tables.{i}", "crit.out_layers.{i}.weight"),
        Rule("head.maps.{i}", "crit.out_projs.{i}"),
    ]


LABELLED = labelling(c.ClassificationHead(pick=c.LastToken(), bias=False), "score", keys=(LABELS, PADDING))
TRANSFO_XL_LAYOUT = Layout(
    "transfo-xl",
    from_fields,
    KEYS,
    weights,
    {
        "TransfoXLLMHeadModel": replace(whole, keys=SPEAKING),
        "TransfoXLModel": bare,
        "TransfoXLForSequenceClassification": LABELLED,
    },
    "transformer.",
    fixed={"attn_type": 0, "adaptive": True, "sample_softmax": -1},
    free=frozenset({"init", "init_range", "init_std", "proj_init_std", "proj_share_all_but_first", "tie_projs",
                    "tie_word_embeddings", "cutoffs"}),
)
