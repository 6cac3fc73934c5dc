"""T5: an encoder-decoder with pre-norm RMSNorm, relative biases shared by the layers, and unscaled scores."""

from __future__ import annotations

from saucier.checkpoints.choices import bare, encoder_alone, whole
from saucier.checkpoints.keys import Key, Layout
from saucier.checkpoints.rules import Concat, Rule, Rules
from saucier.config import (
    Block,
    Causal,
    CrossAttention,
    Embedding,
    FanInInit,
    FeedForward,
    GatedFeedForward,
    LanguageHead,
    PreNorm,
    Projection,
    Repeat,
    RMSNorm,
    SelfAttention,
    Softmax,
    Stack,
    T5Bias,
    Transformer,
)


def t5(dim: int = 768, layers: int = 12, *, heads: int = 12, head_dim: int = 64, vocab: int = 32128, hidden: int = 3072,
       dropout: float = 0.1, gated: bool = False) -> Transformer:
    """T5. Source: Raffel et al. 2020, §2.1, arXiv:1910.10683; `gated` is version 1.1 (gated GELU, untied output).

    The published scores are not divided by the root of the head's width: the factor is folded into the start values.
    """
    norm, kernel = RMSNorm(eps=1e-6), Softmax(dropout=dropout)
    projection = Projection(heads=heads, head_dim=head_dim, bias=False, output_bias=False, scale=1.0)
    feed_forward: FeedForward | GatedFeedForward = (
        GatedFeedForward(hidden=hidden, activation="gelu_tanh", dropout=dropout) if gated
        else FeedForward(hidden=hidden, activation="relu", bias=False, dropout=dropout))
    reader = SelfAttention(projection=projection, positions=T5Bias(), kernel=kernel)
    writer = SelfAttention(
        projection=projection, positions=T5Bias(bidirectional=False), visibility=Causal(), kernel=kernel
    )
    cross = CrossAttention(projection=projection, kernel=kernel)

    def stack(*inner: SelfAttention | CrossAttention | FeedForward | GatedFeedForward) -> Stack:
        block = Block(sublayers=tuple(PreNorm(inner=part, norm=norm, dropout=dropout) for part in inner))
        return Stack(layers=Repeat(block=block, times=layers), final_norm=norm, dropout=dropout)

    return Transformer(
        dim=dim,
        embed=Embedding(vocab=vocab, dropout=dropout),
        encoder=stack(reader, feed_forward),
        decoder=stack(writer, cross, feed_forward),
        head=LanguageHead(tied=not gated, scale=1.0 if gated else dim**-0.5),
        initialization=FanInInit(),
    )


READER, WRITER = "encoder.layers.block.sublayers", "decoder.layers.block.sublayers"
ATTENTIONS = (f"{READER}.0", f"{WRITER}.0", f"{WRITER}.1")
RESIDUALS = (*ATTENTIONS, f"{READER}.1", f"{WRITER}.2")
BIASES = tuple(f"{stack}.0.inner.positions" for stack in (READER, WRITER))
STACKS = ("encoder", "decoder")


def places(roots: tuple[str, ...], end: str) -> tuple[str, ...]:
    """The same place below several parts of the tree."""
    return tuple(f"{root}.{end}" for root in roots)


KEYS = (
    Key("d_model", ("dim",), argument="dim"),
    Key(
        "feed_forward_proj",
        (f"{READER}.1.inner.kind",),
        names={"relu": "feed_forward", "gated-gelu": "gated_feed_forward"},
        default="relu",
        argument="feed_forward",
    ),
    Key("num_layers", ("encoder.layers.times",)),
    Key("num_decoder_layers", ("decoder.layers.times",), default=lambda document: document["num_layers"]),
    Key("num_heads", places(ATTENTIONS, "inner.projection.heads")),
    Key("d_kv", places(ATTENTIONS, "inner.projection.head_dim"), default=64),
    Key("d_ff", (f"{READER}.1.inner.hidden", f"{WRITER}.2.inner.hidden")),
    Key("vocab_size", ("embed.vocab",)),
    Key("relative_attention_num_buckets", places(BIASES, "buckets"), default=32),
    Key("relative_attention_max_distance", places(BIASES, "max_distance"), default=128),
    Key("layer_norm_epsilon", (*places(RESIDUALS, "norm.eps"), *places(STACKS, "final_norm.eps")), default=1e-6),
    Key(
        "dropout_rate",
        (
            *places(RESIDUALS, "dropout"),
            *places(STACKS, "dropout"),
            *places(ATTENTIONS, "inner.kernel.dropout"),
            f"{READER}.1.inner.dropout",
            f"{WRITER}.2.inner.dropout",
            "embed.dropout",
        ),
        default=0.1,
    ),
    Key("tie_word_embeddings", ("head.tied",), default=True, argument="tied"),
)


def from_fields(dim: int, *, feed_forward: str, tied: bool) -> Transformer:
    """The family by the published fields: a tied output layer is scaled, one of its own is not."""
    tree = t5(dim, gated=feed_forward == "gated_feed_forward")
    return tree.model_copy(update={"head": LanguageHead(tied=tied, scale=dim**-0.5 if tied else 1.0)})


def weights(tree: Transformer) -> Rules:
    """The names of T5: layers of a block are numbered, and the bias table lies in the first block."""
    assert tree.encoder is not None, "a T5 has an encoder"
    attention, feed_forward = (residual.inner for residual in tree.encoder.blocks()[0].sublayers)
    assert isinstance(attention, SelfAttention), "as the family's function says"
    assert isinstance(feed_forward, FeedForward | GatedFeedForward), "likewise"
    width = attention.projection.widths(tree.dim)[0]
    gates = ("wi_0", "wi_1") if isinstance(feed_forward, GatedFeedForward) else ("wi",)
    rules = [Rule("embed.tokens.weight", "shared.weight"), Rule("head.weight", "lm_head.weight")]
    for stack, last in (("encoder", 1), ("decoder", 2)):
        block, theirs = f"{stack}.blocks.{{i}}.", f"{stack}.block.{{i}}.layer."
        up = tuple(f"{theirs}{last}.DenseReluDense.{name}.weight" for name in gates)
        first = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        rules += [
            Rule(f"{stack}.shared.weight", first),
            Rule(f"{stack}.final_norm.weight", f"{stack}.final_layer_norm.weight"),
            *attention_rules(block + "attention.", theirs + "0.", width),
            Rule(block + "feed_forward.norm.weight", f"{theirs}{last}.layer_norm.weight"),
            Rule(block + "feed_forward.inner.up.weight", up, Concat((feed_forward.hidden,) * len(gates))),
            Rule(block + "feed_forward.inner.down.weight", f"{theirs}{last}.DenseReluDense.wo.weight"),
        ]
    rules += cross_rules("decoder.blocks.{i}.cross.", "decoder.block.{i}.layer.1.", width)
    tied = tree.language_head is None or tree.language_head.tied
    return Rules(rules, ignored=[*COPIES, *(["lm_head.weight"] if tied else [])])


COPIES = (
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
)


def attention_rules(ours: str, theirs: str, width: int) -> list[Rule]:
    """The names of one self-attention."""
    return [
        Rule(ours + "norm.weight", theirs + "layer_norm.weight"),
        Rule(ours + "inner.qkv.weight", tuple(f"{theirs}SelfAttention.{x}.weight" for x in "qkv"),
             Concat((width,) * 3)),
        Rule(ours + "inner.out.weight", theirs + "SelfAttention.o.weight"),
    ]


def cross_rules(ours: str, theirs: str, width: int) -> list[Rule]:
    """The names of one cross-attention."""
    return [
        Rule(ours + "norm.weight", theirs + "layer_norm.weight"),
        Rule(ours + "inner.q.weight", theirs + "EncDecAttention.q.weight"),
        Rule(ours + "inner.kv.weight", tuple(f"{theirs}EncDecAttention.{x}.weight" for x in "kv"),
             Concat((width,) * 2)),
        Rule(ours + "inner.out.weight", theirs + "EncDecAttention.o.weight"),
    ]


T5_LAYOUT = Layout(
    "t5",
    from_fields,
    KEYS,
    weights,
    {"T5ForConditionalGeneration": whole, "T5Model": bare, "T5EncoderModel": encoder_alone},
    base="",
    fixed={"is_encoder_decoder": True},
    free=frozenset({"dense_act_fn", "is_gated_act", "is_decoder", "scale_decoder_outputs", "output_past",
                    "n_positions"}),
)
