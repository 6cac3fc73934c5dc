"""What BERT and its descendants have in common in published folders: config fields and the names of the body."""

from __future__ import annotations

from collections.abc import Callable

from saucier import config as c
from saucier.checkpoints.keys import ACTIVATIONS, Key, look_up, put
from saucier.checkpoints.rules import Concat, Rule, Rules

ATTENTION, FEED_FORWARD = "encoder.layers.block.sublayers.0", "encoder.layers.block.sublayers.1"
CROSS = "encoder.layers.block.sublayers.2"
"""Where a cross-attention stands until `settle` puts it before the feed-forward layer."""
SIZES = (
    Key("hidden_size", ("dim",)),
    Key("num_hidden_layers", ("encoder.layers.times",)),
    Key("num_attention_heads", (f"{ATTENTION}.inner.projection.heads", f"{CROSS}.inner.projection.heads")),
    Key("intermediate_size", (f"{FEED_FORWARD}.inner.hidden",)),
    Key("vocab_size", ("embed.vocab",)),
    Key("max_position_embeddings", ("embed.positions.length", f"{ATTENTION}.inner.positions.length")),
    Key("attention_probs_dropout_prob", (f"{ATTENTION}.inner.kernel.dropout", f"{CROSS}.inner.kernel.dropout"),
        default=0.1),
)
SEGMENTS = Key("type_vocab_size", ("embed.segments.count",), default=2)
DROPOUT = Key("hidden_dropout_prob", (
    "embed.dropout", f"{ATTENTION}.dropout", f"{FEED_FORWARD}.dropout", f"{CROSS}.dropout"), default=0.1)
HEAD_DROPOUTS = ("head.dropout", "head.transform.dropout")
HEAD_DROPOUT = Key("hidden_dropout_prob", HEAD_DROPOUTS, default=0.1)
"""For heads whose dropout is the body's."""
CLASSIFIER = Key("classifier_dropout", HEAD_DROPOUTS, default=lambda document: document.get("hidden_dropout_prob", 0.1))
"""For heads that drop before both of their maps."""
SEES_PAST_ONLY = Key("is_decoder", (f"{ATTENTION}.inner.visibility",), names={False: c.Full(), True: c.Causal()},
                     default=False)
"""Every class of a config that says `is_decoder` sees no later token."""


def crossed(tree: c.Transformer) -> bool:
    """Say whether the blocks of a stack read an encoder, too."""
    return any(isinstance(residual.inner, c.CrossAttention) for residual in (tree.encoder.blocks()[0].sublayers
                                                                             if tree.encoder else ()))


CROSSED = Key("add_cross_attention", (), argument="crossing", default=False, found=crossed)
"""Whether a decoder reads an encoder's output. Source: Rothe et al. 2020, §2, arXiv:1907.12461."""


def activation(*heads: str) -> Key:
    """The activation of the feed-forward layers and of these parts of the tree."""
    return Key("hidden_act", (f"{FEED_FORWARD}.inner.activation", *heads), names=ACTIVATIONS, default="gelu")


def norms(*heads: str) -> Key:
    """What is added to the variance in all norms, those of these parts of the tree included."""
    return Key("layer_norm_eps", ("embed.norm.eps", f"{ATTENTION}.norm.eps", f"{FEED_FORWARD}.norm.eps",
                                  f"{CROSS}.norm.eps", *heads), default=1e-12)


def position_kind(tree: c.Transformer) -> type[c.Config]:
    """Return what kind of positions an encoder has, in its embedding or in its attention."""
    assert tree.encoder is not None, "a family of encoders"
    attention = tree.encoder.blocks()[0].sublayers[0].inner
    assert isinstance(attention, c.SelfAttention), "as the families' functions say"
    return c.Learned if isinstance(attention.positions, c.NoPositions) else type(attention.positions)


POSITIONS = Key("position_embedding_type", (), argument="positions", default="absolute", found=position_kind, names={
    "absolute": c.Learned, "relative_key": c.RelativeKey, "relative_key_query": c.RelativeKeyQuery})
"""Where order enters; the reference library reads the two relative kinds up to its version 4."""


def positioned(family: Callable[[], c.Transformer]) -> Callable[..., c.Transformer]:
    """Return the family by its published fields, of which one moves the positions into the attention."""
    def make(positions: type[c.Learned | c.RelativeKey | c.RelativeKeyQuery] = c.Learned, *,
             crossing: bool = False) -> c.Transformer:
        tree = with_cross(family()) if crossing else family()
        if issubclass(positions, c.Learned):
            return tree
        moved: c.Transformer = put(tree, "embed.positions", c.NoPositions())
        return put(moved, f"{ATTENTION}.inner.positions", positions(length=1))  # type: ignore[no-any-return]

    return make


def with_cross(tree: c.Transformer) -> c.Transformer:
    """Return a tree whose blocks end with a cross-attention, like their self-attention in all but positions."""
    attention = look_up(tree, ATTENTION)
    inner = c.CrossAttention(projection=attention.inner.projection, kernel=attention.inner.kernel)
    sublayers = (*look_up(tree, "encoder.layers.block.sublayers"), attention.model_copy(update={"inner": inner}))
    return put(tree, "encoder.layers.block.sublayers", sublayers)  # type: ignore[no-any-return]


def pooled(family: Callable[[], c.Transformer]) -> Callable[[], c.Transformer]:
    """Return the family with the pooler that some of its published classes have, though it is not pretrained."""
    return lambda: family().model_copy(update={"pooler": c.Pooler()})


def settle(tree: c.Transformer) -> c.Transformer:
    """Put an encoder that sees only the past into the decoder's place, where generation and its cache look for it."""
    stack = tree.encoder
    if stack is None or tree.decoder is not None or not sees_past_only(stack):
        return tree
    return turned(tree.model_copy(update={"encoder": None, "decoder": stack}), "decoder")


def restore(tree: c.Transformer) -> c.Transformer:
    """The inverse of `settle`."""
    if tree.encoder is not None:
        return tree
    return turned(tree.model_copy(update={"encoder": tree.decoder, "decoder": None}), "encoder")


def turned(tree: c.Transformer, stack: str) -> c.Transformer:
    """Exchange the second and third sublayer of each block, where there are three."""
    match look_up(tree, f"{stack}.layers.block.sublayers"):
        case (first, second, third):
            return put(tree, f"{stack}.layers.block.sublayers", (first, third, second))  # type: ignore[no-any-return]
        case _:
            return tree


def sees_past_only(stack: c.Stack) -> bool:
    """Say whether no self-attention of a stack sees a later token."""
    inner = [residual.inner for block in stack.blocks() for residual in block.sublayers]
    return all(c.is_causal(part.visibility) for part in inner if isinstance(part, c.SelfAttention))


EMBEDDINGS = {"tokens": "word_embeddings", "positions": "position_embeddings", "segments": "token_type_embeddings"}
BLOCK = {
    "attention.inner.out": "attention.output.dense",
    "attention.norm": "attention.output.LayerNorm",
    "cross.inner.q": "crossattention.self.query",
    "cross.inner.out": "crossattention.output.dense",
    "cross.norm": "crossattention.output.LayerNorm",
    "feed_forward.inner.up": "intermediate.dense",
    "feed_forward.inner.down": "output.dense",
    "feed_forward.norm": "output.LayerNorm",
}


def body(tree: c.Transformer, *, copies: tuple[str, ...] = ()) -> Rules:
    """The names of BERT's body. `copies`: names of a file that hold a tied table once more."""
    stack = "encoder" if tree.encoder else "decoder"
    block, theirs = f"{stack}.blocks.{{i}}.", "@encoder.layer.{i}."
    maps = tuple(f"{theirs}attention.self.{name}.{{p}}" for name in ("query", "key", "value"))
    return Rules([
        *(Rule(f"embed.{ours}.weight", f"@embeddings.{other}.weight") for ours, other in EMBEDDINGS.items()),
        Rule("embed.norm.{p}", "@embeddings.LayerNorm.{p}"),
        Rule("embed.project.{p}", "@embeddings_project.{p}"),
        Rule(block + "attention.inner.qkv.{p}", maps, Concat((tree.dim,) * 3)),
        Rule(block + "cross.inner.kv.{p}",
             tuple(f"{theirs}crossattention.self.{name}.{{p}}" for name in ("key", "value")), Concat((tree.dim,) * 2)),
        Rule(block + "attention.inner.positions.weight", theirs + "attention.self.distance_embedding.weight"),
        *(Rule(block + ours + ".{p}", theirs + other + ".{p}") for ours, other in BLOCK.items()),
        Rule("pooler.dense.{p}", "@pooler.dense.{p}"),
    ], ignored=["@embeddings.position_ids", "@embeddings.token_type_ids", *copies])
