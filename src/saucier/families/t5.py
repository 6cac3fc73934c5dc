"""T5 and mT5: encoder-decoders that turn every task into writing text."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from saucier import config as c
from saucier.checkpoints.classes import PAST
from saucier.checkpoints.fields import Document, Key, put
from saucier.checkpoints.layout import Layout
from saucier.checkpoints.weight_names import Concat, Rule
from saucier.families.t5_lineage import (
    FEED_FORWARD_KEYS,
    FREE,
    LAYERS,
    OLDER_FEED_FORWARD,
    TIED,
    classes,
    encoder_decoder,
    keys,
    read_feed_forward,
    weights,
)


def t5(dim: int = 768, layers: int = 12, *, heads: int = 12, head_dim: int = 64, vocab: int = 32128, hidden: int = 3072,
       dropout: float = 0.1, gated: bool = False) -> c.Transformer:
    """T5. Source: Raffel et al. 2020, §2.1, arXiv:1910.10683; `gated` is version 1.1 (gated GELU, untied output)."""
    feed_forward: c.FeedForward | c.GatedFeedForward = (
        c.GatedFeedForward(hidden=hidden, activation="gelu_tanh", dropout=dropout) if gated
        else c.FeedForward(hidden=hidden, activation="relu", bias=False, dropout=dropout))
    return encoder_decoder(dim, layers, feed_forward, heads=heads, head_dim=head_dim, vocab=vocab, dropout=dropout,
                           head=c.LanguageHead(tied=not gated, scale=1.0 if gated else dim**-0.5))


def mt5(dim: int = 512, layers: int = 8, *, heads: int = 6, head_dim: int = 64, vocab: int = 250112, hidden: int = 1024,
        dropout: float = 0.0) -> c.Transformer:
    """mT5, small by default: T5 1.1 with the tokens of 101 languages. Source: Xue et al. 2021, §3.2, arXiv:2010.11934.

    Trained without dropout.
    """
    return t5(dim, layers, heads=heads, head_dim=head_dim, vocab=vocab, hidden=hidden, dropout=dropout, gated=True)


def t5_shared(dim: int = 768, layers: int = 12, *, heads: int = 12, head_dim: int = 64, vocab: int = 32128,
              hidden: int = 3072, dropout: float = 0.1) -> c.Transformer:
    """T5 whose decoder uses the encoder's weights next to a cross-attention of its own.

    The tables of relative positions and the last norms are each stack's own, which the published code shares too.
    Source: Raffel et al. 2020, §3.2.2 and table 2, "encoder-decoder, shared", arXiv:1910.10683.
    """
    return put(t5(dim, layers, heads=heads, head_dim=head_dim, vocab=vocab, hidden=hidden, dropout=dropout),
               {"decoder.tied": True})


def t5_decoder(dim: int = 768, layers: int = 12, *, heads: int = 12, head_dim: int = 64, vocab: int = 32128,
               hidden: int = 3072, dropout: float = 0.1, visibility: c.DecoderVisibility = PAST) -> c.Transformer:
    """T5's decoder alone, without cross-attention: a language model, or a prefix language model by `visibility`.

    A prefix is seen in both directions, so its distances have a sign, as the encoder's.
    Source: Raffel et al. 2020, §3.2.1 and table 2, "language model" and "prefix LM", arXiv:1910.10683.
    """
    tree = t5(dim, layers, heads=heads, head_dim=head_dim, vocab=vocab, hidden=hidden, dropout=dropout)
    attention = "decoder.layers.block.sublayers.0.inner"
    return put(tree, {"decoder": tree.encoder, "encoder": None, f"{attention}.visibility": visibility,
                      f"{attention}.positions.bidirectional": not c.is_causal(visibility)})


def from_fields(dim: int, *, feed_forward: tuple[str, c.Activation], tied: bool, scaled: bool = False) -> c.Transformer:
    """The family by the published fields: kind and activation of the feed-forwards, and what the output layer is."""
    kind, activation = feed_forward
    inner = (c.GatedFeedForward(hidden=1, activation=activation) if kind == "gated_feed_forward"
             else c.FeedForward(hidden=1, activation=activation, bias=False))
    return encoder_decoder(dim, 1, inner, heads=1, head_dim=64, vocab=1, dropout=0.0,
                           head=c.LanguageHead(tied=tied, scale=dim**-0.5 if scaled else 1.0))


def feed_forward_rules(ours: str, theirs: str, inner: c.FeedForward | c.GatedFeedForward) -> list[Rule]:
    """The names of one feed-forward; a gate has a matrix of its own."""
    gates = ("wi_0", "wi_1") if isinstance(inner, c.GatedFeedForward) else ("wi",)
    return [
        Rule(ours + "feed_forward.norm.weight", theirs + "layer_norm.weight"),
        Rule(ours + "feed_forward.inner.up.weight", tuple(f"{theirs}DenseReluDense.{name}.weight" for name in gates),
             Concat((inner.hidden,) * len(gates))),
        Rule(ours + "feed_forward.inner.down.weight", theirs + "DenseReluDense.wo.weight"),
    ]


def scaled_output(tree: c.Transformer) -> bool | None:
    """Say whether the output layer is scaled; None without an output layer."""
    return None if tree.language_head is None else tree.language_head.scale != 1.0


def unscaled(document: Document) -> Document:
    """Return T5's config, of which null says that the output is not scaled."""
    said = "scale_decoder_outputs" in document and document["scale_decoder_outputs"] is None
    return read_feed_forward({**document, "scale_decoder_outputs": False} if said else document)


SCALED = Key("scale_decoder_outputs", (), default=lambda document: document.get("tie_word_embeddings") is not False,
             argument="scaled", found=scaled_output)
NAMES = partial(weights, inner=feed_forward_rules)
T5_LAYOUT = Layout("t5", from_fields, keys(*LAYERS, FEED_FORWARD_KEYS, TIED, SCALED), NAMES, classes("T5"), base="",
                   free=FREE, normalize=unscaled, older=OLDER_FEED_FORWARD)
MT5_LAYOUT = Layout("mt5", from_fields, keys(*LAYERS, replace(FEED_FORWARD_KEYS, default="gated-gelu"), TIED), NAMES,
                    classes("MT5"), base="",
                    free=FREE | {"scale_decoder_outputs"}, older=OLDER_FEED_FORWARD,
                    normalize=partial(read_feed_forward, usual="gated-gelu"))
