"""GPT-Neo: a decoder whose blocks see the whole past and a window of it in turn."""

from __future__ import annotations

from typing import Any

from saucier import config as c
from saucier.checkpoints.choices import LABELS, bare, labelling, last_token, whole
from saucier.checkpoints.keys import ACTIVATIONS, Key, Layout, Published
from saucier.checkpoints.rules import Concat, Rule, Rules


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
        embed=c.Embedding(vocab=vocab, positions=c.Learned(length=length), segments=c.SegmentTokens(), dropout=dropout),
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


def neo_by_fields(types: list[Any], layers: int, heads: int, window: int) -> c.Transformer:
    """GPT-Neo with the published list of turns: kinds of attention, and how often they are repeated."""
    turns, times = ([*types[0][0]], types[0][1]) if len(types) == 1 else (
        [kind for kinds, count in types for kind in [*kinds] * count], 1)
    if len(turns) * times != layers:
        raise ValueError(f"attention_types gives {len(turns) * times} layers, and num_layers is {layers}")
    tree = gpt_neo(8 * heads, 1)
    blocks = tuple(neo_block(kind, heads=heads, hidden=1, window=window, dropout=0.0) for kind in turns)
    return tree.model_copy(update={"decoder": c.Stack(layers=c.Cycle(blocks=blocks, times=times),
                                                      final_norm=c.LayerNorm())})


def visibilities(tree: c.Transformer) -> list[c.Visibility]:
    """What each block's attention sees."""
    blocks = tree.decoder.blocks() if tree.decoder else []
    return [residual.inner.visibility for block in blocks for residual in block.sublayers
            if isinstance(residual.inner, c.SelfAttention)]


def turns_of(tree: c.Transformer) -> list[Any] | None:
    """The inverse of `neo_by_fields`, for the list of turns."""
    if tree.decoder is None or not isinstance(tree.decoder.layers, c.Cycle):
        return None
    cycle = tree.decoder.layers
    kinds = ["global" if sees == c.Causal() else "local" for sees in visibilities(tree)[:len(cycle.blocks)]]
    return [[kinds, cycle.times]]


def window_of(tree: c.Transformer) -> int | None:
    """The first window."""
    found = [term.size for sees in visibilities(tree) if isinstance(sees, c.And) for term in sees.terms
             if isinstance(term, c.Window)]
    return found[0] if found else None


ATTENTION, FEED_FORWARD = "decoder.layers.*.sublayers.0", "decoder.layers.*.sublayers.1"
KEYS = (
    Key("attention_types", (), argument="types", default=[[["global", "local"], 12]], found=turns_of),
    Key("num_layers", (), argument="layers", default=24, found=lambda tree: len(visibilities(tree)) or None),
    Key("num_heads", (f"{ATTENTION}.inner.projection.heads",), argument="heads", default=16),
    Key("window_size", (), argument="window", default=256, found=window_of),
    Key("hidden_size", ("dim",), default=2048),
    Key("intermediate_size", (f"{FEED_FORWARD}.inner.hidden",),
        default=lambda document: 4 * document.get("hidden_size", 2048)),
    Key("vocab_size", ("embed.vocab",), default=50257),
    Key("max_position_embeddings", ("embed.positions.length",), default=2048),
    Key("activation_function", (f"{FEED_FORWARD}.inner.activation",), names=ACTIVATIONS, default="gelu_new"),
    Key("layer_norm_epsilon", (f"{ATTENTION}.norm.eps", f"{FEED_FORWARD}.norm.eps", "decoder.final_norm.eps"),
        default=1e-5),
    Key("resid_dropout", (f"{ATTENTION}.dropout", f"{FEED_FORWARD}.dropout"), default=0.0),
    Key("embed_dropout", ("embed.dropout",), default=0.0),
    Key("attention_dropout", (f"{ATTENTION}.inner.kernel.dropout",), default=0.0),
    Key("tie_word_embeddings", ("head.tied",), default=True),
)


def weights(tree: c.Transformer) -> Rules:
    """The names of the body."""
    names = {"attention.norm": "ln_1", "feed_forward.norm": "ln_2", "attention.inner.out": "attn.attention.out_proj",
             "feed_forward.inner.up": "mlp.c_fc", "feed_forward.inner.down": "mlp.c_proj"}
    block, theirs = "decoder.blocks.{i}.", "@h.{i}."
    return Rules([
        Rule("embed.tokens.weight", "@wte.weight"), Rule("embed.positions.weight", "@wpe.weight"),
        Rule("decoder.final_norm.{p}", "@ln_f.{p}"),
        Rule(block + "attention.inner.qkv.weight",
             tuple(f"{theirs}attn.attention.{x}_proj.weight" for x in "qkv"), Concat((tree.dim,) * 3)),
        *(Rule(block + ours + ".{p}", theirs + other + ".{p}") for ours, other in names.items()),
    ], ignored=["@h.{i}.attn.attention.bias", "@h.{i}.attn.attention.masked_bias", "lm_head.weight"])


DROPOUT = Key("classifier_dropout", ("head.dropout",), default=0.1)
GPT_NEO_LAYOUT = Layout(
    "gpt_neo", neo_by_fields, KEYS, weights,
    {"GPTNeoForCausalLM": Published(whole.keep, (Rule("head.weight", "lm_head.weight"),)),
     "GPTNeoForSequenceClassification": last_token,
     "GPTNeoForTokenClassification": labelling(c.TokenHead(), keys=(LABELS, DROPOUT)),
     "GPTNeoForQuestionAnswering": labelling(c.SpanHead(), "qa_outputs", keys=()), "GPTNeoModel": bare},
    "transformer.", free=frozenset({"attention_layers", "summary_type", "summary_use_proj", "summary_activation",
                                    "summary_proj_to_labels", "summary_first_dropout"}),
)
