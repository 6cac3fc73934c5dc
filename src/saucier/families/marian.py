"""Marian, Pegasus and M2M-100: encoder-decoders with fixed positions, sines first and cosines after them."""

from __future__ import annotations

from dataclasses import replace

from saucier import config as c
from saucier.checkpoints.classes import BARE, WHOLE, drop_classes, shares_table
from saucier.checkpoints.fields import Key, join_paths, put, replace_defaults
from saucier.checkpoints.layout import Layout, Published
from saucier.families.bart_lineage import (
    FIXED,
    FREE,
    HEAD,
    KEYS,
    OLDER,
    classes,
    encoder_decoder,
    fixed,
    from_fields,
    newer,
    weights,
)


def marian(dim: int = 512, layers: int = 6, *, heads: int = 8, vocab: int = 58101, target_vocab: int | None = None,
           hidden: int | None = None, dropout: float = 0.1, length: int = 512) -> c.Transformer:
    """Marian's Transformer, as in the OPUS translation models. Source: Junczys-Dowmunt et al. 2018, arXiv:1804.00344.

    `target_vocab` gives the target side a vocabulary and a table of its own. The output layer has a trained bias.
    """
    embed = c.Embedding(vocab=vocab, positions=c.Sinusoidal(layout=c.SinusoidLayout(kind="halves"), length=length),
                        scale=dim**0.5,
                        dropout=dropout)
    tree = encoder_decoder(dim, embed, layers=layers, heads=heads, hidden=hidden, activation="silu", dropout=dropout,
                           place=c.PostNorm)
    return put(tree, {"decoder_embed": None if target_vocab is None else put(embed, {"vocab": target_vocab})})


def pegasus(dim: int = 1024, layers: int = 16, *, heads: int = 16, vocab: int = 96103, hidden: int | None = None,
            dropout: float = 0.1, length: int = 1024) -> c.Transformer:
    """PEGASUS, large by default. Source: Zhang et al. 2020, §4 and §6, arXiv:1912.08777; norms as in the release."""
    embed = c.Embedding(vocab=vocab, positions=c.Sinusoidal(layout=c.SinusoidLayout(kind="halves"), length=length),
                        scale=dim**0.5,
                        dropout=dropout)
    return encoder_decoder(dim, embed, layers=layers, heads=heads, hidden=hidden, activation="relu", dropout=dropout,
                           place=c.PreNorm)


def m2m_100(dim: int = 1024, layers: int = 12, *, heads: int = 16, vocab: int = 128112, hidden: int | None = None,
            dropout: float = 0.1, padding: int = 1) -> c.Transformer:
    """M2M-100, 418 million parameters by default. Source: Fan et al. 2021, §2.2 and §5.1, arXiv:2010.11125.

    Positions count real tokens only. A source begins with the token of its language, and a target too.
    """
    positions = c.Sinusoidal(layout=c.SinusoidLayout(kind="full_range"), places=c.SkipPadding(padding=padding))
    embed = c.Embedding(vocab=vocab, positions=positions, scale=dim**0.5, dropout=dropout)
    tree = encoder_decoder(dim, embed, layers=layers, heads=heads, hidden=hidden, activation="relu", dropout=dropout,
                           place=c.PreNorm)
    return tree.model_copy(update={"head": c.LanguageHead()})


MARIAN = drop_classes(classes("Marian", writer="MTModel"), "ForSequenceClassification", "ForQuestionAnswering")
TARGETS = Key("decoder_vocab_size", ("embed.vocab",), default=lambda document: document.get("vocab_size", 58101))
MARIAN_LAYOUT = Layout(
    "marian", from_fields(marian),
    (*replace_defaults(KEYS, vocab_size=58101), FIXED,
     Key("share_encoder_decoder_embeddings", (), argument="shared", default=True, found=shares_table),
     replace(TARGETS, paths=("decoder_embed.vocab",))),
    weights, {**MARIAN, "MarianForCausalLM": replace(MARIAN["MarianForCausalLM"], keys=(TARGETS,)),
              "MarianMTModel": replace(MARIAN["MarianMTModel"], unwritten=(
                  "@encoder.embed_positions.weight", "@decoder.embed_positions.weight"))}, "model.",
    fixed=fixed(learned=False, pre_norm=False, normed_embedding=False), normalize=newer, older=OLDER, free=FREE,
)
PEGASUS_LAYOUT = Layout(
    "pegasus", from_fields(pegasus), (*KEYS, FIXED), weights,
    drop_classes(classes("Pegasus"), "ForSequenceClassification", "ForQuestionAnswering"), "model.",
    fixed=fixed(learned=False, pre_norm=True, normed_embedding=False), normalize=newer, older=OLDER, free=FREE,
)
M2M_100_LAYOUT = Layout(
    "m2m_100", from_fields(m2m_100),
    keys=(*replace_defaults(KEYS, vocab_size=128112, activation_function="relu", attention_dropout=0.1,
                            scale_embedding=True, encoder_layerdrop=0.05, decoder_layerdrop=0.05),
          Key("pad_token_id", join_paths(("embed", "decoder_embed"), "positions.places.padding"), default=1)),
    weights=weights,
    classes={"M2M100ForConditionalGeneration": Published(WHOLE.keep, HEAD[:1]), "M2M100Model": BARE},
    base="model.", fixed=fixed(learned=False, pre_norm=True, normed_embedding=False), normalize=newer, older=OLDER,
    free=FREE | {"max_position_embeddings"},
)
