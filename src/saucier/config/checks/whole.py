"""What a model that writes whole texts at once (Mask-Predict) must be made of."""

from __future__ import annotations

from saucier.config.checks.cells import recurrent_parts
from saucier.config.heads import LengthHead, WholeText
from saucier.config.model import Transformer
from saucier.config.visibility import is_causal
from saucier.errors import InputError


def check_whole_text(config: Transformer) -> None:
    """Raise `InputError` where a head that writes whole texts knows no length, or stands on another body."""
    language = config.language_head
    whole = language is not None and isinstance(language.predicts, WholeText)
    if whole != isinstance(config.head, LengthHead):
        raise InputError("a whole text is written by a head that tells its length, and by no other",
                         where="head.language.predicts" if whole else "head",
                         remedy="use head {kind: length} with predicts {kind: whole_text} together, or neither")
    if not whole:
        return
    if config.encoder is None or config.decoder is None:
        raise InputError("a whole text is written from a source, which takes an encoder and a decoder", where="head",
                         remedy="use family: mask_predict")
    if any(is_causal(attention.visibility) for attention in config.decoder.attentions()) or recurrent_parts(
            config.decoder):
        raise InputError("a decoder that sees only the past cannot fill in a whole text", where="decoder.layers",
                         remedy="use self-attention with visibility {kind: full}")
