"""OPT: decoders of many sizes with learned positions that padding does not count in."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.choices import bare, labelling, last_token, whole
from saucier.checkpoints.keys import ACTIVATIONS, Key, Layout, Published
from saucier.checkpoints.rules import Concat, Rule, Rules


def opt(dim: int = 768, layers: int = 12, *, heads: int = 12, vocab: int = 50272, length: int = 2048,
        narrow: int | None = None, pre_norm: bool = True, dropout: float = 0.1) -> c.Transformer:
    """OPT, 125 M by default. Source: Zhang et al. 2022, §2.1 and table 1, arXiv:2205.01068; code release.

    `narrow` is the width of the token table where it is narrower than the model; with norms behind the residuals
    (`pre_norm` false), it is the second smallest size.
    """
    attention = c.SelfAttention(projection=c.Projection(heads=heads), visibility=c.Causal())
    feed_forward = c.FeedForward(hidden=4 * dim, activation="relu")
    place = c.PreNorm if pre_norm else c.PostNorm
    block = c.Block(sublayers=tuple(place(inner=inner, dropout=dropout) for inner in (attention, feed_forward)))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, projection=c.ProjectTokens(width=narrow, bias=False) if narrow else None,
                          positions=c.Learned(length=length + 2, places=c.RealTokens(offset=2))),
        decoder=c.Stack(layers=c.Repeat(block=block, times=layers), final_norm=c.LayerNorm() if pre_norm else None,
                        narrow=narrow),
        head=c.LanguageHead(),
    )


def by_fields(dim: int, table: int, *, pre_norm: bool, unnormed: bool, affine: bool) -> c.Transformer:
    """OPT by the published fields that shape it: width of the `table`, place and kind of norms."""
    tree = opt(dim, 1, narrow=None if table == dim else table, pre_norm=pre_norm)
    assert tree.decoder is not None, "an OPT is a decoder"
    norm = c.LayerNorm() if affine else c.PlainLayerNorm()
    block = c.Block(sublayers=tuple(residual.model_copy(update={"norm": norm})
                                    for residual in tree.decoder.blocks()[0].sublayers))
    update = {"layers": c.Repeat(block=block, times=1), "final_norm": norm if pre_norm and not unnormed else None}
    return tree.model_copy(update={"decoder": tree.decoder.model_copy(update=update)})


def table_of(tree: c.Transformer) -> int:
    """The width of the token table."""
    return tree.embed.widths(tree.dim)[0]


def first(tree: c.Transformer) -> c.Residual | None:
    """The first sublayer in its residual."""
    return tree.decoder.blocks()[0].sublayers[0] if tree.decoder else None


def unnormed_end(tree: c.Transformer) -> bool:
    """Say whether a stack with norms inside the residuals has none at its end."""
    return isinstance(first(tree), c.PreNorm) and tree.decoder is not None and tree.decoder.final_norm is None


ATTENTION, FEED_FORWARD = "decoder.layers.block.sublayers.0", "decoder.layers.block.sublayers.1"
PROJECTION = f"{ATTENTION}.inner.projection"
KEYS = (
    Key("hidden_size", ("dim",), argument="dim", default=768),
    Key("word_embed_proj_dim", (), argument="table", default=lambda document: document.get("hidden_size", 768),
        found=table_of),
    Key("do_layer_norm_before", (), argument="pre_norm", default=True,
        found=lambda tree: isinstance(first(tree), c.PreNorm)),
    Key("_remove_final_layer_norm", (), argument="unnormed", default=False, found=unnormed_end),
    Key("layer_norm_elementwise_affine", (), argument="affine", default=True,
        found=lambda tree: (residual := first(tree)) is not None and isinstance(residual.norm, c.LayerNorm)),
    Key("num_hidden_layers", ("decoder.layers.times",), default=12),
    Key("num_attention_heads", (f"{PROJECTION}.heads",), default=12),
    Key("ffn_dim", (f"{FEED_FORWARD}.inner.hidden",), default=3072),
    Key("vocab_size", ("embed.vocab",), default=50272),
    Key("max_position_embeddings", ("embed.positions.length",), default=2048, ours=lambda rows: rows + 2,
        theirs=lambda rows: rows - 2),
    Key("activation_function", (f"{FEED_FORWARD}.inner.activation",), names=ACTIVATIONS, default="relu"),
    Key("enable_bias", (f"{PROJECTION}.bias", f"{PROJECTION}.output_bias", f"{FEED_FORWARD}.inner.bias"), default=True),
    Key("dropout", (f"{ATTENTION}.dropout", f"{FEED_FORWARD}.dropout"), default=0.1),
    Key("attention_dropout", (f"{ATTENTION}.inner.kernel.dropout",), default=0.0),
    Key("tie_word_embeddings", ("head.tied",), default=True),
)


def weights(tree: c.Transformer) -> Rules:
    """The names of the body."""
    names = {"attention.norm": "self_attn_layer_norm", "attention.inner.out": "self_attn.out_proj",
             "feed_forward.norm": "final_layer_norm", "feed_forward.inner.up": "fc1", "feed_forward.inner.down": "fc2"}
    block, theirs = "decoder.blocks.{i}.", "@decoder.layers.{i}."
    return Rules([
        Rule("embed.tokens.weight", "@decoder.embed_tokens.weight"),
        Rule("embed.positions.weight", "@decoder.embed_positions.weight"),
        Rule("embed.project.weight", "@decoder.project_in.weight"),
        Rule("decoder.narrow.weight", "@decoder.project_out.weight"),
        Rule("decoder.final_norm.{p}", "@decoder.final_layer_norm.{p}"),
        Rule(block + "attention.inner.qkv.{p}", tuple(f"{theirs}self_attn.{x}_proj.{{p}}" for x in "qkv"),
             Concat((tree.dim,) * 3)),
        *(Rule(block + ours + ".{p}", theirs + other + ".{p}") for ours, other in names.items()),
    ], ignored=["lm_head.weight", "@decoder.version"])


OPT_LAYOUT = Layout(
    "opt", by_fields, KEYS, weights,
    {"OPTForCausalLM": Published(whole.keep, (Rule("head.weight", "lm_head.weight"),)),
     "OPTForSequenceClassification": last_token,
     "OPTForQuestionAnswering": labelling(c.SpanHead(), "qa_outputs", keys=()), "OPTModel": bare},
    "model.", free=frozenset({"layerdrop", "init_std", "activation_dropout"}),
)
