"""XLNet: an encoder that predicts tokens in any order by a second stream, with a memory and relative positions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from saucier import config as c
from saucier.checkpoints import classes
from saucier.checkpoints.classes import BARE, LABELS, SPANS, SUMMARY_FIELDS, TIED, head_class, keep_all, repeat_block
from saucier.checkpoints.fields import Document, Key, first_attention, look_up, make_keys, positive_key
from saucier.checkpoints.layout import Layout, Published
from saucier.checkpoints.weight_names import NameTable, PerHead, Reshaped, Rule, Rules


def xlnet(dim: int = 1024, layers: int = 24, *, heads: int = 16, vocab: int = 32000, hidden: int | None = None,
          memory: int | None = 512, visibility: c.Visibility | None = None, dropout: float = 0.1) -> c.Transformer:
    """XLNet with its language head. Source: Yang et al. 2019, §2 and §A.4, arXiv:1906.08237.

    `visibility` None: all tokens see each other, unless the batch hides them.
    """
    norm = c.LayerNorm(eps=1e-12)
    attention = c.SelfAttention(
        projection=c.Projection(heads=heads, head_dim=dim // heads, bias=False, output_bias=False),
        positions=c.TransformerXL(segments=True, dropout=dropout), visibility=visibility or c.Permutation(),
        kernel=c.Softmax(dropout=dropout))
    feed_forward = c.FeedForward(hidden=hidden or 4 * dim, activation="gelu", dropout=dropout)
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, segments=c.TablelessSegments(kind="scores"), dropout=dropout),
        encoder=repeat_block(layers, attention, feed_forward, norm=norm, dropout=dropout, ends=dropout,
                             memory=c.SegmentMemory(length=memory, training=False),
                             queries=c.QueryVector(dropout=dropout)),
        head=c.LanguageHead(bias=True, predicts=c.UnmaskedPrediction(kind="query_stream")),
    )


def seen(one_way: bool, same_length: bool) -> c.Visibility:
    """Which keys a token sees: all, those before it, or as many before it as the memory is long."""
    before = c.Causal() & c.SameLength() if same_length else c.Causal()
    return before & c.Permutation() if one_way else c.Permutation()


def from_fields(dim: int, *, attn_type: str, same_length: bool) -> c.Transformer:
    """The family by the published fields."""
    return xlnet(dim, heads=1, visibility=seen(attn_type == "uni", same_length))


ATTENTION, FEED_FORWARD = "encoder.layers.block.sublayers.0", "encoder.layers.block.sublayers.1"
POSITIONS, MEMORY, SEEN = f"{ATTENTION}.inner.positions", "encoder.memory", f"{ATTENTION}.inner.visibility"


def weights(tree: c.Transformer) -> Rules:
    """The names of XLNet's body: every map of an attention is stored by heads."""
    projection = first_attention(tree).projection
    heads, (width, _, head) = projection.heads, projection.widths(tree.dim)
    ours, theirs = "encoder.blocks.{i}.attention.inner.", "@layer.{i}.rel_attn."
    return replace(NAMES, more=(
        Rule("encoder.queries.weight", "@mask_emb", Reshaped((-1,), (1, 1, -1))),
        Rule(ours + "qkv.weight", tuple(theirs + name for name in "qkv"), PerHead(heads, 3)),
        Rule(ours + "out.weight", theirs + "o", Reshaped((tree.dim, width), (tree.dim, heads, head))),
        Rule(ours + "positions.map.weight", theirs + "r", PerHead(heads)),
        *(Rule(f"{ours}positions.{one}", theirs + other) for one, other in BIASES.items()),
    ))(tree)


BIASES = {"biases.content": "r_w_bias", "biases.place": "r_r_bias", "segment_bias": "r_s_bias", "segments": "seg_embed"}
NAMES = NameTable(
    {"embed.tokens.weight": "@word_embedding.weight"}, "@layer.{i}.",
    {"attention.norm": "rel_attn.layer_norm", "feed_forward.inner.up": "ff.layer_1",
     "feed_forward.inner.down": "ff.layer_2", "feed_forward.norm": "ff.layer_norm"}, ignored=("lm_loss.weight",))


def normalize_fields(document: Document) -> Document:
    """Name a missing activation; where all tokens see each other, `same_length` changes nothing."""
    named = classes.name_null_activation(document)
    return {**named, "same_length": False} if document.get("attn_type", "bi") == "bi" else named


SUMMARIZED = partial(classes.summary_class, output="logits_proj", kind="last", activation="tanh")
XLNET_LAYOUT = Layout(
    "xlnet", from_fields,
    keys=(
        *make_keys("encoder", {
            "d_model": ("dim", None), "n_layer": ("layers", None), "n_head": ("heads", None),
            "vocab_size": ("vocab", None),
            "d_head": ("head_dim", lambda document: document["d_model"] // document["n_head"]),
            "d_inner": ("hidden", None),
            "ff_activation": ("activation", "gelu"), "layer_norm_eps": ("eps", 1e-12),
            "dropout": ("embed_dropout dropout attention_dropout", 0.1)},
                   arguments=("dim",),
                   also={"dropout": ("encoder.dropout", "encoder.queries.dropout", f"{POSITIONS}.dropout",
                                     f"{FEED_FORWARD}.inner.dropout")}),
        Key("attn_type", (SEEN,), names={"bi": "bi", "uni": "uni"}, default="bi", argument="attn_type",
            found=lambda tree: "uni" if c.is_causal(look_up(tree, SEEN)) else "bi"),
        Key("same_length", (SEEN,), default=False, argument="same_length",
            theirs=lambda seen_: seen_ == seen(True, True)),
        Key("bi_data", (f"{POSITIONS}.mirrored",), default=False),
        positive_key("clamp_len", f"{POSITIONS}.clamp", default=-1, none=-1),
        replace(positive_key("mem_len", f"{MEMORY}.length", default=512, none=0), ours=lambda value: value or None),
        positive_key("reuse_len", f"{MEMORY}.reuse", default=0, none=0),
        Key("use_mems_eval", (f"{MEMORY}.evaluation",), default=True),
        Key("use_mems_train", (f"{MEMORY}.training",), default=False),
    ),
    weights=weights,
    classes={
        "XLNetLMHeadModel": Published(keep_all, (Rule("head.{p}", "lm_loss.{p}"),), (TIED,)),
        "XLNetForSequenceClassification": SUMMARIZED(c.ClassificationHead(), keys=(LABELS,)),
        "XLNetForTokenClassification": head_class(c.TokenHead()),
        "XLNetForQuestionAnsweringSimple": SPANS,
        "XLNetForMultipleChoice": SUMMARIZED(c.ChoiceHead()),
        "XLNetModel": BARE,
    },
    base="transformer.", fixed={"untie_r": True},
    free=SUMMARY_FIELDS | {"start_n_top", "end_n_top", "init_std", "init", "init_range", "max_position_embeddings",
                           "tie_word_embeddings"},
    normalize=normalize_fields,
)
