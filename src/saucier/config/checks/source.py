"""What an encoder that feeds an encoder must be."""

from __future__ import annotations

from saucier.config.model import Transformer
from saucier.errors import InputError


def check_source(config: Transformer) -> None:
    """Raise `InputError` where nothing can be fed, or where what feeds gives other vectors than tokens have."""
    source = config.source
    if source is None:
        return
    if config.encoder is None or config.decoder is None:
        raise InputError("only the encoder of an encoder-decoder is fed by another one", where="source",
                         remedy="remove it, or add the missing stack")
    if source.embed.tied:
        raise InputError("an encoder for another vocabulary has a token table of its own", where="source.embed.tied",
                         remedy="use tied: false")
    if source.stack.width(config.dim) != config.embed.widths(config.dim)[0]:
        raise InputError(f"gives vectors of {source.stack.width(config.dim)}, and the encoder reads token vectors of "
                         f"{config.embed.widths(config.dim)[0]}", where="source.stack",
                         remedy="use a body whose token table is as wide as the model")
    if source.stack.memory or source.stack.queries or source.stack.tied:
        raise InputError("reads one text at a time, with weights of its own", where="source.stack",
                         remedy="remove memory, queries and tied")
