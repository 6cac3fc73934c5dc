"""ELMo: a language model in either direction, which share their token table and their output layer."""

from __future__ import annotations

from saucier.config import (
    LSTM,
    Apart,
    BidirectionalHead,
    Block,
    Chain,
    CharacterNetwork,
    Cycle,
    Embedding,
    LanguageHead,
    ProjectTwice,
    Recurrent,
    Skip,
    Stack,
    Transformer,
    UniformInit,
)


def elmo(dim: int = 1024, layers: int = 2, *, cells: int = 4096, vocab: int = 793471, dropout: float = 0.1,
         characters: CharacterNetwork | None = None, clip: float | None = None, tied: bool = False) -> Transformer:
    """ELMo; `dim` is the width of both directions together.

    As published it has `characters` (`CharacterNetwork()`) and `clip` 3; without characters a table has a vector for
    each token.

    Each direction has `cells` memory cells in a layer, projected to half of `dim`, and a residual from the first layer
    on. Source: Peters et al. 2018, §3.4, arXiv:1802.05365; the sizes are those of Jozefowicz et al. 2016,
    arXiv:1602.02410, halved. `tied`: the output layer is the token table, for small models.
    """
    part = Recurrent(cell=LSTM(cells=cells, clip=clip), direction=Apart())
    first, other = (Block(sublayers=(place(inner=part, dropout=dropout),)) for place in (Chain, Skip))
    return Transformer(
        dim=dim,
        embed=Embedding(vocab=vocab, characters=characters, projection=ProjectTwice(), dropout=dropout),
        encoder=Stack(layers=Cycle(blocks=(first, *[other] * (layers - 1)), times=1)),
        head=BidirectionalHead(language=LanguageHead(tied=tied, bias=True)),
        initialization=UniformInit(reach=0.05),
    )
