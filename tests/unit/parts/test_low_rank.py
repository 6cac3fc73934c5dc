"""Attention to mixtures of keys against its definition: padding, documents, sharing, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import saucier
from saucier import config as c
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.model import Transformer, build
from saucier.recipes.recipe import with_kernel

VOCAB, DIM, HEADS, WIDTH, LENGTH, LONGEST, RANK = 31, 8, 2, 4, 12, 16, 3
SHARINGS = {"headwise": c.MapSharing(kind="headwise"), "key_value": c.MapSharing(kind="key_value"),
            "layerwise": c.MapSharing(kind="layerwise")}


def model_of(sharing: str = "headwise", layers: int = 1) -> Transformer:
    """An encoder of attention to mixtures, in float64, whose maps are no smaller than its vectors."""
    attention = c.SelfAttention(projection=c.Projection(heads=HEADS),
                                kernel=c.LowRank(length=LONGEST, rank=RANK, sharing=SHARINGS[sharing]))
    stack = c.Stack(layers=c.Repeat(block=c.Block(sublayers=(c.PreNorm(inner=attention),)), times=layers))
    model = build(c.Transformer(dim=DIM, embed=c.Embedding(vocab=VOCAB), encoder=stack), seed=1).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(20.0 if weight.dim() == 2 else 1.0)
    return model


def ids(rows: int = 1, length: int = LENGTH) -> Tensor:
    return torch.randint(VOCAB, (rows, length), generator=torch.Generator().manual_seed(1))


def naive(model: Transformer, tokens: Tensor) -> Tensor:
    """What a one-layer model gives for one text, head by head. Shapes: [L] -> [L, D]. Wang et al. 2020, eq 7."""
    hidden, residual = model.embed.tokens(tokens), model.encoder.blocks[0]["attention"]
    made = residual.inner.qkv(residual.norm(hidden)).split(DIM, dim=-1)
    query, key, value = (part.view(-1, HEADS, WIDTH) for part in made)
    maps = model.encoder.mixtures or residual.inner.mixtures
    e_map = maps.keys[:, :len(tokens)]
    f_map = e_map if maps.values is None else maps.values[:, :len(tokens)]
    heads = [((query[:, head] @ (e_map @ key[:, head]).T) / WIDTH**0.5).softmax(-1) @ (f_map @ value[:, head])
             for head in range(HEADS)]
    return hidden + residual.inner.out(torch.cat(heads, dim=-1))


@pytest.mark.parametrize("sharing", SHARINGS)
@torch.no_grad()
def test_it_is_the_softmax_over_mixtures(sharing: str) -> None:
    model = model_of(sharing)
    torch.testing.assert_close(model(ids()).last_hidden_state[0], naive(model, ids()[0]), rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_padding_on_either_side_adds_nothing() -> None:
    model = model_of()
    rows = torch.stack([torch.cat([ids()[0, :5], torch.full((7,), 9)]), torch.cat([torch.full((7,), 4), ids()[0, :5]])])
    mask = torch.tensor([[1] * 5 + [0] * 7, [0] * 7 + [1] * 5])
    found, wanted = model(rows, mask).last_hidden_state, naive(model, ids()[0, :5])
    torch.testing.assert_close(found[0, :5], wanted, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(found[1, 7:], wanted, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_packed_documents_have_their_own_mixtures() -> None:
    """Each gives the numbers that it gives alone; a row may be longer than the maps where no document is."""
    model, lengths = model_of(), [9, 1, 6, 8]
    tokens = ids(1, sum(lengths))
    documents = torch.cat([torch.full((length,), number) for number, length in enumerate(lengths)])[None]
    found = model(tokens, documents=documents).last_hidden_state[0]
    for part, text in zip(found.split(lengths), tokens[0].split(lengths), strict=True):
        torch.testing.assert_close(part, naive(model, text), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("sharing", "count"), [("headwise", 24), ("key_value", 12), ("layerwise", 1)])
def test_as_many_maps_as_published(sharing: str, count: int) -> None:
    """Wang et al. 2020, §4, "Parameter Sharing Between Projections": for twelve layers of twelve heads."""
    kernel = c.LowRank(length=512, rank=128, sharing=SHARINGS[sharing])
    config = with_kernel(FAMILIES["roberta"](), kernel)
    model = build(config, device="meta")
    assert sum(weight.shape == (128, 512) for weight in model.parameters()) == count
    more = c.parameters(config) - c.parameters(FAMILIES["roberta"]())
    assert more == count * 128 * 512
    assert c.parameters(config) == sum(weight.numel() for weight in model.parameters())


def test_a_shared_map_learns_from_all_layers_and_is_saved_once(tmp_path: Path) -> None:
    model = model_of("layerwise", layers=3)
    model(ids()).last_hidden_state.square().sum().backward()
    assert float(model.encoder.mixtures.keys.grad[:, :LENGTH].abs().min()) > 0
    assert float(model.encoder.mixtures.keys.grad[:, LENGTH:].abs().max()) == 0
    model.float().save(tmp_path)
    kept = saucier.load(tmp_path, dtype="float32").double()
    assert [name for name, _ in kept.named_parameters() if "mixtures" in name] == ["encoder.mixtures.keys"]
    with torch.no_grad():
        torch.testing.assert_close(kept.eval()(ids()).last_hidden_state, model.double()(ids()).last_hidden_state)


def test_weights_are_those_of_the_mixtures() -> None:
    weights = model_of()(ids(), output_attentions=True).attentions[0]
    assert weights.shape == (1, HEADS, LENGTH, RANK)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


@pytest.mark.parametrize(("inputs", "what"), [
    ({"input_ids": ids(1, 17)}, "input_ids: a text of 17 tokens, and kernel low_rank mixes 16 at most; shorten"),
    ({"input_ids": ids(1, 20), "attention_mask": torch.tensor([[1] * 17 + [0] * 3])}, "a text of 17 tokens"),
    ({"input_ids": ids(1, 4), "documents": torch.tensor([[0, 1, 0, 0]])}, "row 0: a document goes on"),
])
def test_texts_that_do_not_fit_are_refused(inputs: dict[str, Tensor], what: str) -> None:
    with pytest.raises(InputError, match=what):
        model_of()(**inputs)


REFUSED = {
    "causal": (c.SelfAttention(projection=c.Projection(heads=2), kernel=c.LowRank(), visibility=c.Causal()),
               "encoder.blocks.0.attention.visibility: kernel low_rank mixes all tokens of a text, later ones too"),
    "positions": (c.SelfAttention(projection=c.Projection(heads=2), kernel=c.LowRank(), positions=c.Alibi()),
                  "encoder.blocks.0.attention.positions: kernel low_rank cannot take positions alibi; use rotary"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_mixtures_cannot_do_is_refused(name: str) -> None:
    attention, what = REFUSED[name]
    stack = c.Stack(layers=c.Repeat(block=c.Block(sublayers=(c.PreNorm(inner=attention),)), times=1))
    with pytest.raises(InputError, match=what):
        build(c.Transformer(dim=8, embed=c.Embedding(vocab=9), encoder=stack))


def test_a_shared_map_has_one_size() -> None:
    kernels = (c.LowRank(rank=rank, sharing=c.MapSharing(kind="layerwise")) for rank in (2, 3))
    blocks = tuple(c.Block(sublayers=(c.PreNorm(inner=c.SelfAttention(
        projection=c.Projection(heads=2), kernel=kernel)),)) for kernel in kernels)
    stack = c.Stack(layers=c.Cycle(blocks=blocks, times=1))
    with pytest.raises(InputError, match="encoder: the layers of a stack share one map along the text"):
        build(c.Transformer(dim=8, embed=c.Embedding(vocab=9), encoder=stack))
