"""BART and mBART: encoder-decoders that learn to restore damaged text, with learned positions on both sides."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.fields import Key, put
from saucier.checkpoints.layout import Layout
from saucier.errors import InputError
from saucier.families.bart_lineage import (
    FREE,
    KEYS,
    LEARNED,
    OLDER,
    START,
    classes,
    encoder_decoder,
    fixed,
    from_fields,
    newer,
    weights,
)


def with_source_encoder(tree: c.Transformer, layers: int, *, vocab: int | None = None) -> c.Transformer:
    """Put a new encoder of `layers` blocks before the encoder of an encoder-decoder; its blocks are like the encoder's.

    Raises `InputError` for a body without both stacks, and for one whose blocks differ.
    Source: Lewis et al. 2020, §3.4, arXiv:1910.13461.
    """
    if tree.encoder is None or tree.decoder is None or not isinstance(tree.encoder.layers, c.Repeat):
        raise InputError("a new encoder is put before that of an encoder-decoder with equal blocks", where="source",
                         remedy="use a model such as BART")
    source = c.SourceEncoder(embed=put(tree.embed, {"vocab": vocab or tree.embed.vocab}),
                             stack=put(tree.encoder, {"layers.times": layers}))
    return tree.model_copy(update={"source": source})


def bart(dim: int = 1024, layers: int = 12, *, heads: int = 16, vocab: int = 50265, length: int = 1024,
         hidden: int | None = None, dropout: float = 0.1) -> c.Transformer:
    """BART, large by default. Source: Lewis et al. 2020, §2.1 and §4.1, arXiv:1910.13461.

    Norms after the residuals and after the embedding. Where a batch has no target, the decoder reads the source
    after the end token, as in §3.1 for labelling texts.
    """
    tree = encoder_decoder(dim, embedding(vocab, length, dropout), layers=layers, heads=heads, hidden=hidden,
                           activation="gelu", dropout=dropout, place=c.PostNorm)
    return tree.model_copy(update={"default_target": c.ShiftedSource(start=2)})


def mbart(dim: int = 1024, layers: int = 12, *, heads: int = 16, vocab: int = 250027, length: int = 1024,
          hidden: int | None = None, dropout: float = 0.1) -> c.Transformer:
    """mBART. Source: Liu et al. 2020, §2.1 and §2.2, arXiv:2001.08210.

    Norms inside the residuals, and one more after each stack. A text ends with the token of its language, and a target
    begins with it.
    """
    tree = encoder_decoder(dim, embedding(vocab, length, dropout, dim**0.5), layers=layers, heads=heads, hidden=hidden,
                           activation="gelu", dropout=dropout, place=c.PreNorm)
    return tree.model_copy(update={"default_target": c.RotatedSource(padding=1)})


def embedding(vocab: int, length: int, dropout: float, scale: float = 1.0) -> c.Embedding:
    """Tokens, learned positions whose table begins with two rows that nothing uses, and a norm."""
    positions = c.Learned(length=length + 2, places=c.CountedPlaces(kind="in_order", offset=2))
    return c.Embedding(vocab=vocab, positions=positions, norm=c.LayerNorm(), dropout=dropout, scale=scale)


BART_LAYOUT = Layout(
    "bart", from_fields(bart), (*KEYS, LEARNED, START), weights, classes("Bart", labels=3), "model.",
    fixed=fixed(learned=True, pre_norm=False, normed_embedding=True), normalize=newer, older=OLDER,
    free=FREE | {"classifier_dropout"},
)
MBART_LAYOUT = Layout(
    "mbart", from_fields(mbart), (*KEYS, LEARNED, Key("pad_token_id", ("default_target.padding",), default=1)), weights,
    classes("MBart"), "model.", fixed=fixed(learned=True, pre_norm=True, normed_embedding=True),
    normalize=newer, older=OLDER, free=FREE | {"classifier_dropout"},
)
