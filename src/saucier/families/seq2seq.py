"""Recurrent encoder-decoders: thought vectors, and attention in Bahdanau's and Luong's way."""

from __future__ import annotations

from saucier.config import (
    LSTM,
    Ahead,
    Block,
    Chain,
    Embedding,
    FromFinalStates,
    LanguageHead,
    Luong,
    Recurrent,
    Repeat,
    Stack,
    Transformer,
    UniformInit,
)
from saucier.config.alignment import Alignment
from saucier.config.recurrent import Cell, Direction, Start

CELL, AHEAD, FINAL, LOOK = LSTM(), Ahead(), FromFinalStates(), Luong()


def seq2seq(
    dim: int = 1000,
    layers: int = 4,
    *,
    vocab: int = 50000,
    cell: Cell = CELL,
    direction: Direction = AHEAD,
    start: Start = FINAL,
    attention: Alignment | None = LOOK,
    dropout: float = 0.2,
) -> Transformer:
    """A recurrent encoder and decoder; Luong's by default: four LSTM layers, global attention, input feeding.

    `direction` is the encoder's. Source, target and output share one table, as in later translation; the papers have
    three. Source: Luong et al. 2015, §4.1, arXiv:1508.04025; without attention Sutskever et al.
    2014, §3, arXiv:1409.3215; Bahdanau et al. 2015, arXiv:1409.0473, with one GRU layer both ways.
    """

    def stack(part: Recurrent) -> Stack:
        return Stack(layers=Repeat(block=Block(sublayers=(Chain(inner=part, dropout=dropout),)), times=1))

    return Transformer(
        dim=dim,
        embed=Embedding(vocab=vocab, dropout=dropout),
        encoder=stack(Recurrent(cell=cell, layers=layers, direction=direction, dropout=dropout)),
        decoder=stack(Recurrent(cell=cell, layers=layers, dropout=dropout, start=start, attention=attention)),
        head=LanguageHead(),
        initialization=UniformInit(),
    )
