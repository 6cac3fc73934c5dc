"""GPT: a stack of causal blocks with learned positions, a tied output layer, and a norm after each sublayer."""

from __future__ import annotations

from dataclasses import replace

from saucier import config as c
from saucier.checkpoints.classes import (
    FREE_SUMMARY_FIELDS,
    NormPlacement,
    decoder_classes,
    drop_classes,
    head_class,
    repeat_block,
)
from saucier.checkpoints.fields import ACTIVATIONS, Document, Key, look_up, make_keys
from saucier.checkpoints.layout import Layout
from saucier.checkpoints.weight_names import NameTable, Rule, Rules, Transpose


def gpt(dim: int = 768, layers: int = 12, *, heads: int = 12, vocab: int = 40478, length: int = 512,
        hidden: int | None = None, dropout: float = 0.1) -> c.Transformer:
    """GPT: norms after each sublayer.

    Source: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", §4.1.
    """
    return c.Transformer(dim=dim, embed=embedding(vocab, length, dropout), head=c.LanguageHead(),
                         decoder=decoder(layers, heads, hidden or 4 * dim, dropout, c.PostNorm))


def embedding(vocab: int, length: int, dropout: float) -> c.Embedding:
    """Tokens, learned positions, and segments that are tokens too, as both generations have them."""
    return c.Embedding(vocab=vocab, positions=c.Learned(length=length), segments=c.TablelessSegments(kind="tokens"),
                       dropout=dropout)


def decoder(layers: int, heads: int, hidden: int, dropout: float, place: NormPlacement) -> c.Stack:
    """The blocks of both generations; the second has a norm at the end."""
    attention = c.SelfAttention(projection=c.Projection(heads=heads), visibility=c.Causal(),
                                kernel=c.Softmax(dropout=dropout))
    return repeat_block(layers, attention, c.FeedForward(hidden=hidden, activation="gelu_tanh"), place=place,
                        dropout=dropout, final_norm=None if place is c.PostNorm else c.LayerNorm())


FIELDS = {
    "vocab_size": ("vocab", 40478), "n_positions": ("length", 512), "layer_norm_epsilon": ("eps", 1e-5),
    "resid_pdrop": ("dropout", 0.1), "embd_pdrop": ("embed_dropout", 0.1), "attn_pdrop": ("attention_dropout", 0.1),
    "tie_word_embeddings": ("tied", True), "n_embd": ("dim", 768), "n_head": ("heads", 12),
}
"""Fields of both generations, with the defaults of the first."""
SUMMARY = (
    Key("summary_first_dropout", ("head.choice.dropout",), default=0.1),
    Key("summary_activation", ("head.choice.activation",), nullable=True, default=None,
        ours=lambda name: ACTIVATIONS[name] if name else "identity",
        theirs=lambda name: None if name == "identity" else "gelu_new" if name == "gelu_tanh" else name),
    Key("summary_type", (), names={"cls_index": "cls_index"}, default="cls_index"),
    Key("summary_use_proj", (), names={True: True}, default=True),
    Key("summary_proj_to_labels", (), names={True: True}, default=True),
)
"""Fields of the head that compares texts: it reads the token that the batch names, and gives one number."""
FREE = FREE_SUMMARY_FIELDS | {"n_ctx", "predict_special_tokens", "reorder_and_upcast_attn"}
MAPS = {"attention.inner.qkv": "attn.c_attn", "attention.inner.out": "attn.c_proj", "feed_forward.inner.up": "mlp.c_fc",
        "feed_forward.inner.down": "mlp.c_proj", "cross.inner.q": "crossattention.q_attn",
        "cross.inner.kv": "crossattention.c_attn", "cross.inner.out": "crossattention.c_proj"}


def weights(tree: c.Transformer, *, tokens: str, positions: str) -> Rules:
    """The names of both generations; matrices of the blocks are stored as [inputs, outputs].

    A file may hold a tied table under the output layer's name alone.
    """
    untied = tree.language_head is not None and not tree.language_head.tied
    return NameTable(
        {"embed.positions.weight": f"@{positions}.weight", "decoder.final_norm.{p}": "@ln_f.{p}"},
        "@h.{i}.", {"attention.norm": "ln_1", "cross.norm": "ln_cross_attn", "feed_forward.norm": "ln_2"},
        more=(Rule("embed.tokens.weight", f"@{tokens}.weight", instead=None if untied else "lm_head.weight"),
              *(Rule(f"decoder.blocks.{{i}}.{ours}.{{p}}", f"@h.{{i}}.{theirs}.{{p}}", Transpose())
                for ours, theirs in MAPS.items())),
        ignored=("@h.{i}.attn.bias", "@h.{i}.attn.masked_bias", "lm_head.weight"),
    )(tree)


def two_heads(tree: c.Transformer, document: Document) -> c.Head:
    """The language head next to one that compares texts."""
    return c.DoubleHead(language=look_up(tree, "head"))


def one_head(tree: c.Transformer) -> c.Transformer:
    """The language head alone, where keys look for it."""
    return tree.model_copy(update={"head": tree.language_head}) if isinstance(tree.head, c.DoubleHead) else tree


DOUBLE = replace(head_class(two_heads, keys=SUMMARY), undo=one_head, rules=(
    Rule("head.language.weight", "lm_head.weight"),
    Rule("head.choice.output.{p}", "multiple_choice_head.summary.{p}")))
GPT_LAYOUT = Layout(
    "openai-gpt", gpt,
    keys=(
        *make_keys("decoder", {**FIELDS, "n_layer": ("layers", 12)}, arguments=("dim",)),
        Key("afn", ("decoder.layers.block.sublayers.1.inner.activation",), default="gelu",
            names={"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}),
    ),
    weights=lambda tree: weights(tree, tokens="tokens_embed", positions="positions_embed"),
    classes={**drop_classes(decoder_classes("OpenAIGPT", language="LMHeadModel"), "ForTokenClassification",
                            "ForQuestionAnswering"), "OpenAIGPTDoubleHeadsModel": DOUBLE},
    base="transformer.", free=FREE,
)
