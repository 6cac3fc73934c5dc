"""GPT-J and GPT-NeoX: rotated queries and keys, attention and feed-forward side by side."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.choices import LABELS, bare, labelling, last_token, whole
from saucier.checkpoints.keys import ACTIVATIONS, Key, Layout, Published
from saucier.checkpoints.rules import ByHead, Concat, Rule, Rules
from saucier.families.rope import one_spelling, rotary_key


def gptj(dim: int = 4096, layers: int = 28, *, heads: int = 16, vocab: int = 50400, hidden: int | None = None,
         rotated: int = 64, dropout: float = 0.0) -> c.Transformer:
    """GPT-J: attention and feed-forward read one norm; `rotated` values of each head turn in pairs of neighbours.

    Source: Wang and Komatsuzaki 2021, "GPT-J-6B: A 6 Billion Parameter Autoregressive Language Model".
    """
    attention = c.SelfAttention(
        projection=c.Projection(heads=heads, bias=False, output_bias=False), visibility=c.Causal(),
        positions=c.Rotary(share=rotated / (dim // heads), pairs=c.Neighbours()), kernel=c.Softmax(dropout=dropout))
    feed_forward = c.FeedForward(hidden=hidden or 4 * dim, activation="gelu_tanh")
    block = c.Block(sublayers=(c.PreNorm(inner=attention, dropout=dropout),
                               c.Parallel(inner=feed_forward, dropout=dropout)))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, segments=c.SegmentTokens(), dropout=dropout),
        decoder=c.Stack(layers=c.Repeat(block=block, times=layers), final_norm=c.LayerNorm()),
        head=c.LanguageHead(tied=False, bias=True),
    )


def gpt_neox(dim: int = 6144, layers: int = 44, *, heads: int = 64, vocab: int = 50432, hidden: int | None = None,
             rotated: float = 0.25, parallel: bool = True, dropout: float = 0.0) -> c.Transformer:
    """GPT-NeoX, 20 B by default: a share of each head is rotated, attention and feed-forward have a norm each.

    `parallel` sublayers both read the block's input; otherwise one follows the other, as in some Pythias' siblings.
    Source: Black et al. 2022, §2.1, arXiv:2204.06745.
    """
    attention = c.SelfAttention(projection=c.Projection(heads=heads), positions=c.Rotary(share=rotated),
                                visibility=c.Causal(), kernel=c.Softmax(dropout=dropout))
    feed_forward = c.FeedForward(hidden=hidden or 4 * dim, activation="gelu")
    place = c.Parallel if parallel else c.PreNorm
    block = c.Block(sublayers=(c.PreNorm(inner=attention, dropout=dropout),
                               place(inner=feed_forward, norm=c.LayerNorm(), dropout=dropout)))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, dropout=dropout),
        decoder=c.Stack(layers=c.Repeat(block=block, times=layers), final_norm=c.LayerNorm()),
        head=c.LanguageHead(tied=False),
    )


def rotated_of(tree: c.Transformer) -> int | None:
    """How many values of each head are rotated."""
    inner = tree.decoder.blocks()[0].sublayers[0].inner if tree.decoder else None
    if not isinstance(inner, c.SelfAttention) or not isinstance(inner.positions, c.Rotary):
        return None
    return inner.positions.width(inner.projection.widths(tree.dim)[2])


def gptj_by_fields(dim: int, heads: int, rotated: int) -> c.Transformer:
    """GPT-J by the fields that say how much of each head is rotated."""
    return gptj(dim, heads=heads, rotated=rotated)


def side_by_side(tree: c.Transformer) -> bool:
    """Say whether both sublayers read the block's input."""
    return tree.decoder is not None and tree.decoder.blocks()[0].sublayers[-1].kind == "parallel"


ATTENTION, FEED_FORWARD = "decoder.layers.block.sublayers.0", "decoder.layers.block.sublayers.1"
HEADS, LAYERS = f"{ATTENTION}.inner.projection.heads", "decoder.layers.times"
DROPOUTS = (f"{ATTENTION}.dropout", f"{FEED_FORWARD}.dropout")
GPTJ_KEYS = (
    Key("n_embd", ("dim",), argument="dim", default=4096),
    Key("n_head", (HEADS,), argument="heads", default=16),
    Key("rotary_dim", (), argument="rotated", found=rotated_of,
        default=lambda document: None if "rotary_dim" in document else 64),
    Key("n_layer", (LAYERS,), default=28),
    Key("n_inner", (f"{FEED_FORWARD}.inner.hidden",), default=lambda document: 4 * document.get("n_embd", 4096)),
    Key("vocab_size", ("embed.vocab",), default=50400),
    Key("activation_function", (f"{FEED_FORWARD}.inner.activation",), names=ACTIVATIONS, default="gelu_new"),
    Key("layer_norm_epsilon", (f"{ATTENTION}.norm.eps", "decoder.final_norm.eps"), default=1e-5),
    Key("resid_pdrop", DROPOUTS, default=0.0),
    Key("embd_pdrop", ("embed.dropout",), default=0.0),
    Key("attn_pdrop", (f"{ATTENTION}.inner.kernel.dropout",), default=0.0),
    Key("tie_word_embeddings", ("head.tied",), default=False),
)
NEOX_KEYS = (
    Key("use_parallel_residual", (), argument="parallel", default=True, found=side_by_side),
    Key("hidden_size", ("dim",), default=6144),
    Key("num_attention_heads", (HEADS,), default=64),
    Key("num_hidden_layers", (LAYERS,), default=44),
    Key("intermediate_size", (f"{FEED_FORWARD}.inner.hidden",), default=24576),
    Key("vocab_size", ("embed.vocab",), default=50432),
    Key("hidden_act", (f"{FEED_FORWARD}.inner.activation",), names=ACTIVATIONS, default="gelu"),
    Key("layer_norm_eps", (f"{ATTENTION}.norm.eps", f"{FEED_FORWARD}.norm.eps", "decoder.final_norm.eps"),
        default=1e-5),
    Key("attention_bias", (f"{ATTENTION}.inner.projection.bias", f"{ATTENTION}.inner.projection.output_bias"),
        default=True),
    Key("hidden_dropout", (*DROPOUTS, "embed.dropout"), default=0.0),
    Key("attention_dropout", (f"{ATTENTION}.inner.kernel.dropout",), default=0.0),
    Key("tie_word_embeddings", ("head.tied",), default=False),
    *rotary_key(f"{ATTENTION}.inner.positions", share=0.25, length=2048),
)


def gptj_weights(tree: c.Transformer) -> Rules:
    """The names of GPT-J's body."""
    names = {"attention.norm": "ln_1", "attention.inner.out": "attn.out_proj", "feed_forward.inner.up": "mlp.fc_in",
             "feed_forward.inner.down": "mlp.fc_out"}
    block, theirs = "decoder.blocks.{i}.", "@h.{i}."
    return Rules([
        Rule("embed.tokens.weight", "@wte.weight"), Rule("decoder.final_norm.{p}", "@ln_f.{p}"),
        Rule(block + "attention.inner.qkv.weight", tuple(f"{theirs}attn.{x}_proj.weight" for x in "qkv"),
             Concat((tree.dim,) * 3)),
        *(Rule(block + ours + ".{p}", theirs + other + ".{p}") for ours, other in names.items()),
    ], ignored=["@h.{i}.attn.bias", "@h.{i}.attn.masked_bias", "@h.{i}.attn.embed_positions", "lm_head.weight"])


def neox_weights(tree: c.Transformer) -> Rules:
    """The names of GPT-NeoX's body; the rows of its one map for queries, keys and values go head by head."""
    assert tree.decoder is not None, "a GPT-NeoX is a decoder"
    attention = tree.decoder.blocks()[0].sublayers[0].inner
    assert isinstance(attention, c.SelfAttention), "as the family's function says"
    names = {"attention.norm": "input_layernorm", "attention.inner.out": "attention.dense",
             "feed_forward.norm": "post_attention_layernorm", "feed_forward.inner.up": "mlp.dense_h_to_4h",
             "feed_forward.inner.down": "mlp.dense_4h_to_h"}
    block, theirs = "decoder.blocks.{i}.", "@layers.{i}."
    return Rules([
        Rule("embed.tokens.weight", "@embed_in.weight"), Rule("decoder.final_norm.{p}", "@final_layer_norm.{p}"),
        Rule(block + "attention.inner.qkv.{p}", theirs + "attention.query_key_value.{p}",
             ByHead(attention.projection.heads)),
        *(Rule(block + ours + ".{p}", theirs + other + ".{p}") for ours, other in names.items()),
    ], ignored=["@layers.{i}.attention.bias", "@layers.{i}.attention.masked_bias", "@rotary_emb.inv_freq",
                "@layers.{i}.attention.rotary_emb.inv_freq", "embed_out.weight", "lm_head.weight"])


DROPOUT = Key("classifier_dropout", ("head.dropout",), default=0.1)
ANSWERS = labelling(c.SpanHead(), "qa_outputs", keys=())
GPTJ_LAYOUT = Layout(
    "gptj", gptj_by_fields, GPTJ_KEYS, gptj_weights,
    {"GPTJForCausalLM": Published(whole.keep, (Rule("head.{p}", "lm_head.{p}"),)),
     "GPTJForSequenceClassification": last_token, "GPTJForQuestionAnswering": ANSWERS, "GPTJModel": bare},
    "transformer.", free=frozenset({
        "n_positions", "n_ctx", "rotary", "scale_attn_weights", "summary_type", "summary_use_proj",
        "summary_activation", "summary_proj_to_labels", "summary_first_dropout"}),
)
GPT_NEOX_LAYOUT = Layout(
    "gpt_neox", gpt_neox, NEOX_KEYS, neox_weights,
    {"GPTNeoXForCausalLM": Published(whole.keep, (Rule("head.weight", "embed_out.weight", instead="lm_head.weight"),)),
     "GPTNeoXForSequenceClassification": last_token,
     "GPTNeoXForTokenClassification": labelling(c.TokenHead(), keys=(LABELS, DROPOUT)),
     "GPTNeoXForQuestionAnswering": ANSWERS, "GPTNeoXModel": bare},
    "gpt_neox.", free=frozenset({"max_position_embeddings", "is_decoder"}), normalize=one_spelling,
)
