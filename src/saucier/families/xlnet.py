"""XLNet: an encoder that predicts tokens in any order by a second stream, with a memory and relative positions."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.choices import LABELS, bare, labelling
from saucier.checkpoints.keys import ACTIVATIONS, Document, Key, Layout, Published
from saucier.checkpoints.rules import PerHead, Reshaped, Rule, Rules


def xlnet(
    dim: int = 1024,
    layers: int = 24,
    *,
    heads: int = 16,
    vocab: int = 32000,
    hidden: int | None = None,
    memory: int | None = 512,
    visibility: c.Visibility | None = None,
    dropout: float = 0.1,
) -> c.Transformer:
    """XLNet with its language head. Source: Yang et al. 2019, §2 and §A.4, arXiv:1906.08237.

    `visibility` None: all tokens see each other, unless the batch hides them.
    """
    norm = c.LayerNorm(eps=1e-12)
    attention = c.SelfAttention(
        projection=c.Projection(heads=heads, head_dim=dim // heads, bias=False, output_bias=False),
        positions=c.TransformerXL(segments=True, dropout=dropout), visibility=visibility or c.Permutation(),
        kernel=c.Softmax(dropout=dropout))
    feed_forward = c.FeedForward(hidden=hidden or 4 * dim, activation="gelu", dropout=dropout)
    residuals = tuple(c.PostNorm(inner=inner, norm=norm, dropout=dropout) for inner in (attention, feed_forward))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, segments=c.SegmentScores(), dropout=dropout),
        encoder=c.Stack(layers=c.Repeat(block=c.Block(sublayers=residuals), times=layers), dropout=dropout,
                        memory=c.SegmentMemory(length=memory, training=False), queries=c.QueryVector(dropout=dropout)),
        head=c.LanguageHead(bias=True, predicts=c.QueryStream()),
    )


def seen(one_way: bool, same_length: bool) -> c.Visibility:
    """Which keys a token sees: all, those before it, or as many before it as the memory is long."""
    before = c.Causal() & c.SameLength() if same_length else c.Causal()
    return before & c.Permutation() if one_way else c.Permutation()


def from_fields(dim: int, *, attn_type: str, same_length: bool) -> c.Transformer:
    """The family by the published fields."""
    return xlnet(dim, heads=1, visibility=seen(attn_type == "uni", same_length))


def one_way(tree: c.Transformer) -> str:
    """The published name of what a token sees."""
    return "uni" if c.is_causal(visibility_of(tree)) else "bi"


def visibility_of(tree: c.Transformer) -> c.Visibility:
    """The visibility of the first attention."""
    attention = tree.encoder.blocks()[0].sublayers[0].inner if tree.encoder else None
    return attention.visibility if isinstance(attention, c.SelfAttention) else c.Full()


ATTENTION, FEED_FORWARD = "encoder.layers.block.sublayers.0", "encoder.layers.block.sublayers.1"
POSITIONS, MEMORY = f"{ATTENTION}.inner.positions", "encoder.memory"


def some(value: int) -> int | None:
    """A published number that means none where it is not positive."""
    return value if value > 0 else None


def optional(foreign: str, path: str, *, default: int, none: int) -> Key:
    """A number that may be absent: `none` is written then, and read where the field is null."""
    *parents, last = path.split(".")

    def found(tree: c.Transformer) -> int | None:
        owner: object = tree
        for part in parents:
            owner = owner[int(part)] if part.isdigit() else getattr(owner, part, None)  # type: ignore[index]
        return None if owner is None else getattr(owner, last) or none

    return Key(foreign, (path,), default=lambda document: none if foreign in document else default, ours=some,
               found=found)


KEYS = (
    Key("d_model", ("dim",), argument="dim"),
    Key("n_layer", ("encoder.layers.times",)),
    Key("n_head", (f"{ATTENTION}.inner.projection.heads",)),
    Key("d_head", (f"{ATTENTION}.inner.projection.head_dim",),
        default=lambda document: document["d_model"] // document["n_head"]),
    Key("d_inner", (f"{FEED_FORWARD}.inner.hidden",)),
    Key("vocab_size", ("embed.vocab",)),
    Key("ff_activation", (f"{FEED_FORWARD}.inner.activation",), names=ACTIVATIONS, default="gelu"),
    Key("attn_type", (), names={"bi": "bi", "uni": "uni"}, default="bi", argument="attn_type", found=one_way),
    Key("same_length", (), default=False, argument="same_length",
        found=lambda tree: visibility_of(tree) == seen(True, True)),
    Key("bi_data", (f"{POSITIONS}.mirrored",), default=False),
    optional("clamp_len", f"{POSITIONS}.clamp", default=-1, none=-1),
    optional("mem_len", f"{MEMORY}.length", default=512, none=0),
    optional("reuse_len", f"{MEMORY}.reuse", default=0, none=0),
    Key("use_mems_eval", (f"{MEMORY}.evaluation",), default=True),
    Key("use_mems_train", (f"{MEMORY}.training",), default=False),
    Key("layer_norm_eps", (f"{ATTENTION}.norm.eps", f"{FEED_FORWARD}.norm.eps"), default=1e-12),
    Key("dropout", ("embed.dropout", "encoder.dropout", "encoder.queries.dropout", f"{ATTENTION}.dropout",
                    f"{ATTENTION}.inner.kernel.dropout", f"{POSITIONS}.dropout", f"{FEED_FORWARD}.dropout",
                    f"{FEED_FORWARD}.inner.dropout"), default=0.1),
)


def weights(tree: c.Transformer) -> Rules:
    """The names of XLNet's body: every map of an attention is stored by heads."""
    assert tree.encoder is not None, "a family of encoders"
    attention = tree.encoder.blocks()[0].sublayers[0].inner
    assert isinstance(attention, c.SelfAttention), "as the family's function says"
    heads, (width, _, head) = attention.projection.heads, attention.projection.widths(tree.dim)
    block, theirs = "encoder.blocks.{i}.", "@layer.{i}."
    ours, rel = block + "attention.inner.", theirs + "rel_attn."
    return Rules([
        Rule("embed.tokens.weight", "@word_embedding.weight"),
        Rule("encoder.queries.weight", "@mask_emb", Reshaped((-1,), (1, 1, -1))),
        Rule(ours + "qkv.weight", tuple(rel + name for name in "qkv"), PerHead(heads, 3)),
        Rule(ours + "out.weight", rel + "o", Reshaped((tree.dim, width), (tree.dim, heads, head))),
        Rule(ours + "positions.map.weight", rel + "r", PerHead(heads)),
        Rule(ours + "positions.biases.content", rel + "r_w_bias"),
        Rule(ours + "positions.biases.place", rel + "r_r_bias"),
        Rule(ours + "positions.segment_bias", rel + "r_s_bias"),
        Rule(ours + "positions.segments", rel + "seg_embed"),
        Rule(block + "attention.norm.{p}", rel + "layer_norm.{p}"),
        Rule(block + "feed_forward.inner.up.{p}", theirs + "ff.layer_1.{p}"),
        Rule(block + "feed_forward.inner.down.{p}", theirs + "ff.layer_2.{p}"),
        Rule(block + "feed_forward.norm.{p}", theirs + "ff.layer_norm.{p}"),
    ], ignored=["lm_loss.weight"])


def told_once(document: Document) -> Document:
    """Where all tokens see each other, `same_length` changes nothing."""
    return {**document, "same_length": False} if document.get("attn_type", "bi") == "bi" else dict(document)


PICK = Key("summary_type", ("head.pick",), names={"last": c.Last(), "first": c.First(), "cls_index": c.Chosen()},
           default="last")
SUMMARY = (
    PICK,
    Key("summary_use_proj", (), names={True: True}, default=True, found=lambda tree: True),
    Key("summary_activation", ("head.transform.activation",), default="tanh",
        names={"tanh": "tanh", "linear": "identity", **ACTIVATIONS}),
    Key("summary_last_dropout", ("head.dropout",), default=0.1),
)
DENSE = c.Transform(activation="tanh")
CLASSES = {
    "XLNetLMHeadModel": Published(lambda tree, document: tree, (Rule("head.bias", "lm_loss.bias"),)),
    "XLNetForSequenceClassification": labelling(c.ClassificationHead(transform=DENSE), "logits_proj",
                                                dense="sequence_summary.summary", keys=(LABELS, *SUMMARY)),
    "XLNetForTokenClassification": labelling(c.TokenHead()),
    "XLNetForQuestionAnsweringSimple": labelling(c.SpanHead(), "qa_outputs", keys=()),
    "XLNetForMultipleChoice": labelling(c.ChoiceHead(transform=DENSE), "logits_proj", dense="sequence_summary.summary",
                                        keys=SUMMARY),
    "XLNetModel": bare,
}
XLNET_LAYOUT = Layout(
    "xlnet",
    from_fields,
    KEYS,
    weights,
    CLASSES,
    "transformer.",
    fixed={"tie_word_embeddings": True, "untie_r": True},
    free=frozenset({"start_n_top", "end_n_top", "summary_type", "summary_use_proj", "summary_activation",
                    "summary_last_dropout", "init_std", "init", "init_range", "max_position_embeddings"}),
    normalize=told_once,
)
