"""Rotary and ALiBi models lose less than one with learned positions at four times the training length (BOOK A4).

Source: Press et al. 2022, §2.2 and figure 1, arXiv:2108.12409. A small model of bytes on Python's documentation. Seen
here: learned +1.24, rotary +1.20, ALiBi -0.02 nats; so rotary positions without rescaling hardly help at this size, in
line with the paper, where they soon fail too.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from saucier import config as c
from saucier.model import Transformer, build
from saucier.text.reading.python_texts import read_python_documentation

TRAINED, TESTED, STEPS, ROWS = 32, 128, 1200, 32


def character_model(embedded: c.Learned | c.NoPositions, attended: c.Rotary | c.Alibi | c.NoPositions) -> Transformer:
    attention = c.SelfAttention(projection=c.Projection(heads=4), positions=attended, visibility=c.Causal())
    block = c.Block(sublayers=(c.PreNorm(inner=attention), c.PreNorm(inner=c.FeedForward(hidden=256))))
    stack = c.Stack(layers=c.Repeat(block=block, times=3), final_norm=c.LayerNorm())
    return build(
        c.Transformer(dim=64, embed=c.Embedding(vocab=256, positions=embedded), decoder=stack, head=c.LanguageHead())
    )


def rows(data: Tensor, length: int, seed: int) -> Tensor:
    starts = torch.randint(0, len(data) - length - 1, (ROWS,), generator=torch.Generator().manual_seed(seed))
    return torch.stack([data[start:start + length + 1] for start in starts]).long()


def loss_on(model: Transformer, batch: Tensor) -> Tensor:
    logits = model(batch[:, :-1]).logits
    assert logits is not None
    return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def growth(model: Transformer, train: Tensor, test: Tensor) -> float:
    """Train at one length; return how much the loss grows at four times that length, on the same text."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)
    for step in range(STEPS):
        loss_on(model, rows(train, TRAINED, step)).backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        long = [rows(test, TESTED, seed) for seed in range(4)]
        pieces = [piece for batch in long for piece in batch[:, :-1].split(TRAINED, dim=1)]
        short = torch.stack([loss_on(model, piece) for piece in pieces]).mean()
        return float(torch.stack([loss_on(model, batch) for batch in long]).mean() - short)


@pytest.mark.nightly
def test_rotary_and_alibi_hold_where_learned_positions_fail() -> None:
    text = "\n\n".join(document.text for document in read_python_documentation()).encode()
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    train, test = data[:-200_000], data[-200_000:]
    learned = growth(character_model(c.Learned(length=TESTED), c.NoPositions()), train, test)
    rotary = growth(character_model(c.NoPositions(), c.Rotary()), train, test)
    alibi = growth(character_model(c.NoPositions(), c.Alibi()), train, test)
    print(
        f"\nloss at {TESTED} − at {TRAINED}: learned {learned:+.3f}, rotary {rotary:+.3f}, ALiBi {alibi:+.3f} nats"
    )
    assert alibi < 0.0, "more context must help a model that can use it"
    assert learned > 0.3, "positions that were never trained must hurt"
    assert rotary < learned
