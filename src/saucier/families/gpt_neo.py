"""GPT-Neo: a decoder whose blocks see the whole past and a window of it in turn."""

from __future__ import annotations

from typing import Any

from saucier import config as c
from saucier.checkpoints.classes import FREE_SUMMARY_FIELDS, decoder_classes
from saucier.checkpoints.fields import Document, Key, list_attentions, make_keys, put
from saucier.checkpoints.layout import Layout
from saucier.checkpoints.weight_names import NameTable


def gpt_neo(dim: int = 2048, layers: int = 24, *, heads: int = 16, vocab: int = 50257, length: int = 2048,
            hidden: int | None = None, window: int = 256, dropout: float = 0.0) -> c.Transformer:
    """GPT-Neo, 1.3 B by default: global and local attention in turn, with scores that are not scaled.

    Source: Black et al. 2021, "GPT-Neo: Large Scale Autoregressive Language Modeling with Mesh-Tensorflow".
    """
    kinds = tuple(neo_block(kind, heads=heads, hidden=hidden or 4 * dim, window=window, dropout=dropout)
                  for kind in ("global", "local") * layers)
    turns = c.Cycle(blocks=kinds[:2], times=layers // 2) if layers % 2 == 0 else c.Cycle(blocks=kinds[:layers], times=1)
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, positions=c.Learned(length=length), segments=c.TablelessSegments(kind="tokens"),
                          dropout=dropout),
        decoder=c.Stack(layers=turns, final_norm=c.LayerNorm()),
        head=c.LanguageHead(),
    )


def neo_block(kind: str, *, heads: int, hidden: int, window: int, dropout: float) -> c.Block:
    """A block that sees the whole past, or only a window of it. Raises `KeyError` for another kind."""
    visibility = {"global": c.Causal(), "local": c.Causal() & c.Window(window)}[kind]
    attention = c.SelfAttention(projection=c.Projection(heads=heads, bias=False, scale=1.0), visibility=visibility,
                                kernel=c.Softmax(dropout=dropout))
    feed_forward = c.FeedForward(hidden=hidden, activation="gelu_tanh")
    return c.Block(sublayers=tuple(c.PreNorm(inner=inner, dropout=dropout) for inner in (attention, feed_forward)))


def by_fields(types: list[Any], layers: int, heads: int, window: int) -> c.Transformer:
    """GPT-Neo with the published list of turns: kinds of attention, and how often they are repeated."""
    turns, times = ([*types[0][0]], types[0][1]) if len(types) == 1 else (
        [kind for kinds, count in types for kind in [*kinds] * count], 1)
    if len(turns) * times != layers:
        raise ValueError(f"attention_types gives {len(turns) * times} layers, and num_layers is {layers}")
    blocks = tuple(neo_block(kind, heads=heads, hidden=1, window=window, dropout=0.0) for kind in turns)
    return put(gpt_neo(8 * heads, 1), {"decoder.layers": c.Cycle(blocks=blocks, times=times)})


def turns_of(tree: c.Transformer) -> list[Any] | None:
    """The inverse of `by_fields`, for the list of turns."""
    if tree.decoder is None or not isinstance(tree.decoder.layers, c.Cycle):
        return None
    cycle = tree.decoder.layers
    kinds = ["global" if part.visibility == c.Causal() else "local"
             for part in list_attentions(tree)[:len(cycle.blocks)]]
    return [[kinds, cycle.times]]


def in_turns(document: Document) -> Document:
    """Return the config with its layers as the shortest turns; a list of all layers counts more than turns."""
    rest, listed = dict(document), document.get("attention_layers")
    rest.pop("attention_layers", None)
    if not isinstance(listed, list) or not listed:
        return rest
    size = next(size for size in range(1, len(listed) + 1) if listed == listed[:size] * (len(listed) // size))
    return {**rest, "attention_types": [[listed[:size], len(listed) // size]]}


GPT_NEO_LAYOUT = Layout(
    "gpt_neo", by_fields,
    keys=(
        Key("attention_types", (), argument="types", default=[[["global", "local"], 12]], found=turns_of),
        Key("num_layers", (), argument="layers", default=24, found=lambda tree: len(list_attentions(tree)) or None),
        Key("window_size", ("decoder.layers.*.sublayers.0.inner.visibility.terms.1.size",), argument="window",
            default=256),
        *make_keys("decoder", {
            "num_heads": ("heads", 16), "hidden_size": ("dim", 2048), "vocab_size": ("vocab", 50257),
            "intermediate_size": ("hidden", lambda document: 4 * (document.get("hidden_size") or 2048)),
            "max_position_embeddings": ("length", 2048), "activation_function": ("activation", "gelu_new"),
            "layer_norm_epsilon": ("eps", 1e-5), "resid_dropout": ("dropout", 0.0),
            "embed_dropout": ("embed_dropout", 0.0),
            "attention_dropout": ("attention_dropout", 0.0), "tie_word_embeddings": ("tied", True),
        }, arguments=("heads",)),
    ),
    weights=NameTable(
        {"embed.tokens.weight": "@wte.weight", "embed.positions.weight": "@wpe.weight",
         "decoder.final_norm.{p}": "@ln_f.{p}"},
        "@h.{i}.",
        {"attention.norm": "ln_1", "feed_forward.norm": "ln_2", "attention.inner.out": "attn.attention.out_proj",
         "feed_forward.inner.up": "mlp.c_fc", "feed_forward.inner.down": "mlp.c_proj"},
        {"attention.inner.qkv": ("attn.attention.q_proj", "attn.attention.k_proj", "attn.attention.v_proj")},
        ignored=("@h.{i}.attn.attention.bias", "@h.{i}.attn.attention.masked_bias", "lm_head.weight"),
    ),
    classes=decoder_classes("GPTNeo"),
    base="transformer.", free=FREE_SUMMARY_FIELDS, normalize=in_turns, older={"attention_layers": "attention_types"},
)
