"""BLOOM: a decoder that knows distances by a penalty on its scores, with a norm behind the embedding."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.choices import LABELS, bare, labelling, last_token, whole
from saucier.checkpoints.keys import Document, Key, Layout, Published
from saucier.checkpoints.rules import ByHead, Rule, Rules


def bloom(dim: int = 14336, layers: int = 70, *, heads: int = 112, vocab: int = 250880, behind_norm: bool = False,
          dropout: float = 0.0) -> c.Transformer:
    """BLOOM, 176 B by default. Source: BigScience 2022, §3.2, arXiv:2211.05100.

    `behind_norm` lets every residual begin behind its norm, which no published size does.
    """
    attention = c.SelfAttention(projection=c.Projection(heads=heads), positions=c.Alibi(), visibility=c.Causal(),
                                kernel=c.Softmax(dropout=dropout))
    feed_forward = c.FeedForward(hidden=4 * dim, activation="gelu_tanh")
    place = c.FromNorm if behind_norm else c.PreNorm
    block = c.Block(sublayers=tuple(place(inner=inner, dropout=dropout) for inner in (attention, feed_forward)))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, norm=c.LayerNorm()),
        decoder=c.Stack(layers=c.Repeat(block=block, times=layers), final_norm=c.LayerNorm()),
        head=c.LanguageHead(),
    )


def by_fields(dim: int, heads: int, *, behind_norm: bool) -> c.Transformer:
    """BLOOM by the published fields that shape its blocks."""
    return bloom(dim, 1, heads=heads, behind_norm=behind_norm)


def from_norm(tree: c.Transformer) -> bool:
    """Say whether residuals begin behind their norms."""
    return tree.decoder is not None and tree.decoder.blocks()[0].sublayers[0].kind == "from_norm"


def one_spelling(document: Document) -> Document:
    """Bring the other names of the three sizes to those of the table."""
    names = {"n_embed": "hidden_size", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"}
    return {names.get(name, name): value for name, value in document.items()}


ATTENTION, FEED_FORWARD = "decoder.layers.block.sublayers.0", "decoder.layers.block.sublayers.1"
KEYS = (
    Key("hidden_size", ("dim",), argument="dim", default=64),
    Key("n_head", (f"{ATTENTION}.inner.projection.heads",), argument="heads", default=8),
    Key("apply_residual_connection_post_layernorm", (), argument="behind_norm", default=False, found=from_norm),
    Key("n_layer", ("decoder.layers.times",), default=2),
    Key("vocab_size", ("embed.vocab",), default=250880),
    Key("layer_norm_epsilon", ("embed.norm.eps", f"{ATTENTION}.norm.eps", f"{FEED_FORWARD}.norm.eps",
                               "decoder.final_norm.eps"), default=1e-5),
    Key("hidden_dropout", (f"{ATTENTION}.dropout", f"{FEED_FORWARD}.dropout"), default=0.0),
    Key("attention_dropout", (f"{ATTENTION}.inner.kernel.dropout",), default=0.0),
    Key("tie_word_embeddings", ("head.tied",), default=True),
)


def weights(tree: c.Transformer) -> Rules:
    """The names of the body; the rows of its one map for queries, keys and values go head by head."""
    assert tree.decoder is not None, "a BLOOM is a decoder"
    attention = tree.decoder.blocks()[0].sublayers[0].inner
    assert isinstance(attention, c.SelfAttention), "as the family's function says"
    names = {"attention.norm": "input_layernorm", "attention.inner.out": "self_attention.dense",
             "feed_forward.norm": "post_attention_layernorm", "feed_forward.inner.up": "mlp.dense_h_to_4h",
             "feed_forward.inner.down": "mlp.dense_4h_to_h"}
    block, theirs = "decoder.blocks.{i}.", "@h.{i}."
    return Rules([
        Rule("embed.tokens.weight", "@word_embeddings.weight"),
        Rule("embed.norm.{p}", "@word_embeddings_layernorm.{p}"), Rule("decoder.final_norm.{p}", "@ln_f.{p}"),
        Rule(block + "attention.inner.qkv.{p}", theirs + "self_attention.query_key_value.{p}",
             ByHead(attention.projection.heads)),
        *(Rule(block + ours + ".{p}", theirs + other + ".{p}") for ours, other in names.items()),
    ], ignored=["lm_head.weight"])


DROPOUT = Key("classifier_dropout", ("head.dropout",), default=lambda document: document.get("hidden_dropout", 0.0))
FREE = frozenset({
    "pretraining_tp", "slow_but_exact", "attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion",
    "offset_alibi", "seq_length", "skip_bias_add", "skip_bias_add_qkv", "unk_token_id",
})
BLOOM_LAYOUT = Layout(
    "bloom", by_fields, KEYS, weights,
    {"BloomForCausalLM": Published(whole.keep, (Rule("head.weight", "lm_head.weight"),)),
     "BloomForSequenceClassification": last_token,
     "BloomForTokenClassification": labelling(c.TokenHead(), keys=(LABELS, DROPOUT)),
     "BloomForQuestionAnswering": labelling(c.SpanHead(), "qa_outputs", keys=()), "BloomModel": bare},
    "transformer.", free=FREE, fixed={"n_inner": None}, normalize=one_spelling,
)
