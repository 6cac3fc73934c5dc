"""GPT and GPT-2: a stack of causal blocks with learned positions and a tied output layer."""

from __future__ import annotations

from saucier.checkpoints.choices import heads as published
from saucier.checkpoints.keys import ACTIVATIONS, Key, Layout
from saucier.checkpoints.rules import Rule, Rules, Transpose
from saucier.config import (
    Block,
    Causal,
    Embedding,
    FeedForward,
    LanguageHead,
    LayerNorm,
    Learned,
    NormalInit,
    PostNorm,
    PreNorm,
    Projection,
    Repeat,
    SelfAttention,
    Softmax,
    Stack,
    Transformer,
)


def sublayers(dim: int, heads: int, hidden: int | None, dropout: float) -> tuple[SelfAttention, FeedForward]:
    """The two sublayers that both generations share."""
    attention = SelfAttention(projection=Projection(heads=heads), visibility=Causal(), kernel=Softmax(dropout=dropout))
    return attention, FeedForward(hidden=hidden or 4 * dim, activation="gelu_tanh")


def gpt(
    dim: int = 768,
    layers: int = 12,
    *,
    heads: int = 12,
    vocab: int = 40478,
    length: int = 512,
    hidden: int | None = None,
    dropout: float = 0.1,
) -> Transformer:
    """GPT: norms after each sublayer.

    Source: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", §4.1.
    """
    norm = LayerNorm()
    residuals = tuple(
        PostNorm(inner=inner, norm=norm, dropout=dropout) for inner in sublayers(dim, heads, hidden, dropout)
    )
    return Transformer(
        dim=dim,
        embed=Embedding(vocab=vocab, positions=Learned(length=length), dropout=dropout),
        decoder=Stack(layers=Repeat(block=Block(sublayers=residuals), times=layers)),
        head=LanguageHead(),
    )


def gpt2(
    dim: int = 768,
    layers: int = 12,
    *,
    heads: int = 12,
    vocab: int = 50257,
    length: int = 1024,
    hidden: int | None = None,
    dropout: float = 0.1,
) -> Transformer:
    """GPT-2: norms before each sublayer and one at the end, residual maps started smaller with depth.

    Source: Radford et al. 2019, §2.3.
    """
    norm = LayerNorm()
    residuals = tuple(
        PreNorm(inner=inner, norm=norm, dropout=dropout) for inner in sublayers(dim, heads, hidden, dropout)
    )
    return Transformer(
        dim=dim,
        embed=Embedding(vocab=vocab, positions=Learned(length=length), dropout=dropout),
        decoder=Stack(layers=Repeat(block=Block(sublayers=residuals), times=layers), final_norm=norm),
        head=LanguageHead(),
        initialization=NormalInit(depth_scaled=True),
    )


ATTENTION, FEED_FORWARD = "decoder.layers.block.sublayers.0", "decoder.layers.block.sublayers.1"
NORMS = (f"{ATTENTION}.norm.eps", f"{FEED_FORWARD}.norm.eps", "decoder.final_norm.eps")
KEYS = (
    Key("n_embd", ("dim",), argument="dim"),
    Key("n_layer", ("decoder.layers.times",)),
    Key("n_head", (f"{ATTENTION}.inner.projection.heads",)),
    Key("vocab_size", ("embed.vocab",)),
    Key("n_positions", ("embed.positions.length",)),
    Key("layer_norm_epsilon", NORMS, default=1e-5),
    Key("resid_pdrop", (f"{ATTENTION}.dropout", f"{FEED_FORWARD}.dropout"), default=0.1),
    Key("embd_pdrop", ("embed.dropout",), default=0.1),
    Key("attn_pdrop", (f"{ATTENTION}.inner.kernel.dropout",), default=0.1),
)
FREE = frozenset(
    {
        "n_ctx",
        "summary_activation",
        "summary_first_dropout",
        "summary_proj_to_labels",
        "summary_type",
        "summary_use_proj",
        "predict_special_tokens",
    }
)


def weights(tree: Transformer, *, tokens: str, positions: str) -> Rules:
    """The names of both generations; matrices of the blocks are stored as [inputs, outputs]."""
    names = {"attention.norm": "ln_1", "feed_forward.norm": "ln_2"}
    maps = {
        "attention.inner.qkv": "attn.c_attn",
        "attention.inner.out": "attn.c_proj",
        "feed_forward.inner.up": "mlp.c_fc",
        "feed_forward.inner.down": "mlp.c_proj",
    }
    block, theirs = "decoder.blocks.{i}.", "@h.{i}."
    return Rules([
        Rule("embed.tokens.weight", f"@{tokens}.weight"), Rule("embed.positions.weight", f"@{positions}.weight"),
        Rule("decoder.final_norm.{p}", "@ln_f.{p}"),
        *(Rule(block + ours + ".{p}", theirs + other + ".{p}") for ours, other in names.items()),
        *(Rule(block + ours + ".{p}", theirs + other + ".{p}", Transpose()) for ours, other in maps.items()),
    ], ignored=["@h.{i}.attn.bias", "@h.{i}.attn.masked_bias", "lm_head.weight"])


GPT_LAYOUT = Layout(
    "openai-gpt",
    gpt,
    (
        *KEYS,
        Key(
            "afn",
            (f"{FEED_FORWARD}.inner.activation",),
            names={"gelu": "gelu_tanh", "relu": "relu", "silu": "silu"},
            default="gelu",
        ),
    ),
    lambda tree: weights(tree, tokens="tokens_embed", positions="positions_embed"),
    published("OpenAIGPTLMHeadModel", "OpenAIGPTModel"),
    "transformer.",
    fixed={"tie_word_embeddings": True},
    free=FREE,
)
GPT2_LAYOUT = Layout(
    "gpt2",
    gpt2,
    (
        *KEYS,
        Key("activation_function", (f"{FEED_FORWARD}.inner.activation",), names=ACTIVATIONS, default="gelu_new"),
        Key("n_inner", (f"{FEED_FORWARD}.inner.hidden",), default=lambda document: 4 * document["n_embd"]),
    ),
    lambda tree: weights(tree, tokens="wte", positions="wpe"),
    published("GPT2LMHeadModel", "GPT2Model"),
    "transformer.",
    free=FREE,
    fixed={
        "tie_word_embeddings": True,
        "add_cross_attention": False,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
    },
)
