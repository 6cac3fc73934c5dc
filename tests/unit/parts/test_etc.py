"""ETC: four parts of attention, labels for how pairs are related, and a global input of its own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from saucier import config as c
from saucier.errors import InputError
from saucier.families.unpublished import etc
from saucier.model import Transformer, build
from saucier.parts import context as context_module
from saucier.parts.attention import SelfAttention
from saucier.parts.context import Context
from saucier.parts.masks import Span
from saucier.parts.sparse import dispatch

GLOBALS, STRETCH, REACH, RADIUS, LENGTH = 5, 32, 3, 8, 150


def label(query: int, key: int) -> int:
    """The label of one pair, as the paper has it: distances, and whether a global token stands for a local one."""
    distance = max(-REACH, min(REACH, key - query)) + REACH
    if query < GLOBALS and key < GLOBALS:
        return 2 * REACH + 1 + distance
    if query >= GLOBALS and key >= GLOBALS:
        return distance
    base, local, own = 2 * (2 * REACH + 1), max(query, key) - GLOBALS, min(query, key)
    return base + (0 if query >= GLOBALS else 2) + (0 if local // STRETCH == own else 1)


def attention() -> SelfAttention:
    """Return one attention of ETC with random weights."""
    config = c.SelfAttention(projection=c.Projection(heads=2),
                             positions=c.GlobalLocal(globals=GLOBALS, stretch=STRETCH, reach=REACH),
                             visibility=c.Window(RADIUS + 1) | c.Global(otherwise=c.FirstTokens(count=GLOBALS)))
    module, generator = SelfAttention(config, 8), torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5, generator=generator)
    return module.eval()


def by_definition(module: SelfAttention, x: Tensor) -> Tensor:
    """Ainslie et al. 2020, §3.1: scores q·(k + a), a the vector of the pair's label, over the four parts."""
    query, key, value = (part.unflatten(-1, (2, 4)).transpose(0, 1) for part in module.qkv(x).chunk(3, -1))
    table = module.positions.weight  # type: ignore[union-attr]
    labels = torch.tensor([[label(i, j) for j in range(len(x))] for i in range(len(x))])
    scores = (query @ key.transpose(1, 2) + torch.einsum("hie,ije->hij", query, table[labels])) / 2
    seen = torch.tensor([[min(i, j) < GLOBALS or abs(i - j) <= RADIUS for j in range(len(x))] for i in range(len(x))])
    mixed = scores.masked_fill(~seen, -torch.inf).softmax(-1) @ value
    found: Tensor = module.out(mixed.transpose(0, 1).flatten(1))
    return found


@pytest.mark.parametrize("least", [0, 10**9], ids=["planned", "dense"])
def test_the_four_parts_and_their_labels(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """g2g, g2l, l2g and l2l: values and gradients, the table's too, are those of the definition."""
    monkeypatch.setattr(context_module, "LEAST_LENGTH", least)
    monkeypatch.setattr(dispatch, "LARGEST_SHARE", 9.0)
    module, x = attention(), torch.randn(LENGTH, 8, generator=torch.Generator().manual_seed(1)).requires_grad_()
    context = Context(Span(LENGTH, LENGTH, 0, x.device), torch.arange(LENGTH)[None])
    found, expected = module(x[None], context)[0], by_definition(module, x)
    assert any(isinstance(key, tuple) and key[0] == "plan" for key in context.made) == (least == 0)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    inputs, slope = [x, *module.parameters()], torch.randn(LENGTH, 8, generator=torch.Generator().manual_seed(2))
    for got, wanted in zip(torch.autograd.grad((found * slope).sum(), inputs),
                           torch.autograd.grad((expected * slope).sum(), inputs), strict=True):
        scale = max(1.0, float(wanted.abs().max()))
        torch.testing.assert_close(got / scale, wanted / scale, rtol=1e-5, atol=1e-5)


def small() -> Transformer:
    """Return a small ETC with random weights."""
    torch.manual_seed(0)
    config = etc(16, 2, heads=2, vocab=50, global_tokens=GLOBALS, radius=RADIUS, reach=REACH, stretch=STRETCH)
    return build(config).eval()


def test_a_global_input_stands_before_the_text() -> None:
    """Given apart, it is read as if it stood in the row, and what comes out is of the text."""
    model, ids = small(), torch.randint(0, 50, (2, 40), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, 30:] = 0
    apart = model(ids[:, GLOBALS:], mask[:, GLOBALS:], global_input_ids=ids[:, :GLOBALS], output_hidden_states=True)
    within = model(ids, mask)
    assert apart.logits is not None and within.logits is not None and apart.hidden_states is not None
    assert apart.hidden_states[0].shape[1] == 40 - GLOBALS
    torch.testing.assert_close(apart.logits[0], within.logits[0, GLOBALS:], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(apart.logits[1, :25], within.logits[1, GLOBALS:30], rtol=1e-5, atol=1e-5)


def test_global_input_that_does_not_fit_is_refused() -> None:
    """One line with the place and what would work."""
    model, ids = small(), torch.zeros(1, 9, dtype=torch.long)
    with pytest.raises(InputError, match=r"global_input_ids.*\[1, 5\]"):
        model(ids, global_input_ids=ids[:, :3])
    with pytest.raises(InputError, match="leave out inputs_embeds, documents"):
        model(ids, global_input_ids=ids[:, :5], documents=ids)
