"""What pairs whose languages are told ask of objective, model, tokenizer and data. No torch."""

from __future__ import annotations

from collections.abc import Iterator

from saucier import config as architecture
from saucier.objectives import config as c
from saucier.objectives.misfit import Misfit
from saucier.text.config import Data, PairData, Ready, Tail, TokenizerConfig

WHERE = ("data", "languages")


def told_misfits(objective: c.Single, model: architecture.Transformer, tokenizer: TokenizerConfig,
                 data: Data) -> Iterator[Misfit]:
    """Can every text begin with its language, and does every direction have pairs on both sides of the cut?"""
    if not isinstance(data, PairData) or data.languages is None:
        return
    if not isinstance(objective, c.SequenceToSequence) or model.encoder is None or model.decoder is None:
        yield Misfit(WHERE, "only an encoder-decoder that learns sequence_to_sequence is told the languages of pairs",
                     "leave the languages out, or use such a model")
    elif objective.truth is not None:
        yield Misfit(("truth",), "a decoder that reads its own predictions could read another language than the true "
                                 "one", "leave truth or data.languages out", own=True)
    if data.source is not None or data.target is not None:
        yield Misfit(("data", "source" if data.source is not None else "target"),
                     "columns are told by their languages, which each table calls otherwise", "leave it out")
    if isinstance(data.held_out, Tail):
        yield Misfit(("data", "held_out", "kind"), "the tail of several tables is of the last ones alone",
                     "use kind: fraction, or files")
    if tokenizer.special.eos is None and not isinstance(tokenizer, Ready):
        yield Misfit(("tokenizer", "special", "eos"), "a decoder begins with the end token, and then the language",
                     "name one, such as </s>")
