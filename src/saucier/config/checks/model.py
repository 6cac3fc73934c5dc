"""Illegal combinations, refused once and with the path, before anything is built."""

from __future__ import annotations

from saucier.config.checks.adaptive import check_adaptive
from saucier.config.checks.cells import check_apart, check_cells, check_mix
from saucier.config.checks.characters import check_characters
from saucier.config.checks.chunks import check_axial, check_streams
from saucier.config.checks.heads import check_head
from saucier.config.checks.narrow import check_trigram
from saucier.config.checks.recurrence import check_asking, check_recurrence
from saucier.config.checks.source import check_source
from saucier.config.checks.stack import check_stack
from saucier.config.checks.tied import check_tied
from saucier.config.checks.whole import check_whole_text
from saucier.config.model import (
    AfterToken,
    SegmentTable,
    Transformer,
)
from saucier.errors import InputError


def check(config: Transformer) -> None:
    """Raise `InputError` with the path of the first combination that cannot work, and what would."""
    if config.encoder is None and config.decoder is None:
        raise InputError(
            "a model needs an encoder, a decoder or both", where="encoder", remedy="give at least one stack"
        )
    if config.decoder_embed and not (config.encoder and config.decoder):
        raise InputError(
            "a decoder embedding of its own needs an encoder and a decoder",
            where="decoder_embed",
            remedy="remove it, or add the missing stack",
        )
    if config.encoder is None and config.embed.padding is not None:
        raise InputError(
            "padding is told from tokens by an encoder alone",
            where="embed.padding",
            remedy="remove it, and give attention_mask",
        )
    if config.encoder and config.decoder and config.encoder.narrow:
        raise InputError("the decoder reads vectors as wide as the model", where="encoder.narrow",
                         remedy="remove it, or give it to the decoder")
    fed = config.source.stack if config.source else None
    for name, stack in (("source.stack", fed), ("encoder", config.encoder), ("decoder", config.decoder)):
        if stack:
            check_stack(name, stack, config)
            check_cells(name, stack, config)
            check_recurrence(name, stack, config)
    check_asking(config)
    check_sides(config)
    check_tied(config)
    check_segments(config)
    check_adaptive(config)
    check_characters(config)
    check_axial(config)
    check_streams(config)
    check_trigram(config)
    check_head(config)
    check_apart(config)
    check_mix(config)
    check_whole_text(config)
    check_source(config)


def check_sides(config: Transformer) -> None:
    """A tied table has a table to be tied to, of the same size, and a default target has a decoder that reads it."""
    source, target = config.embed, config.decoder_embed
    if source.tied:
        raise InputError("the source side's token table has nothing to be tied to", where="embed.tied",
                         remedy="use tied: true in decoder_embed only")
    if target and target.tied and (target.vocab, target.widths(config.dim)[0]) != (
            source.vocab, source.widths(config.reader_dim)[0]):
        raise InputError("two token tables of different sizes cannot be one", where="decoder_embed.tied",
                         remedy="give both sides the same vocab and width, or use tied: false")
    if config.encoder_dim and not (config.encoder and config.decoder and target and not config.decoder.tied):
        raise InputError("only an encoder-decoder with an embedding and weights on each side has two widths",
                         where="encoder_dim", remedy="remove it, or give the decoder an embedding of its own")
    if config.default_target and not (config.encoder and config.decoder):
        raise InputError("only an encoder-decoder reads its source twice", where="default_target",
                         remedy="remove it")


def check_segments(config: Transformer) -> None:
    """Segments told apart by a token are two."""
    for name, embed in (("embed", config.embed), ("decoder_embed", config.decoder_embed)):
        segments = embed.segments if embed else None
        if isinstance(segments, SegmentTable) and isinstance(segments.otherwise, AfterToken) and segments.count < 2:
            raise InputError("tokens before and behind a token need two segments", where=f"{name}.segments",
                             remedy="use count: 2, or otherwise: {kind: one}")
