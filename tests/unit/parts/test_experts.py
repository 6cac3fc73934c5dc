"""Experts against the definition: every token on its own, one expert after the other, in 64 bits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from saucier import config as c
from saucier.errors import InputError
from saucier.model import build
from saucier.parts.context import Context
from saucier.parts.feed_forward import Experts, measure_imbalance, rank_in_expert
from saucier.parts.inputs import Inputs
from saucier.parts.masks import Span

DIM, ROWS, LENGTH, COUNT = 6, 3, 7, 4
PLAIN = c.FeedForward(hidden=5, activation="relu", bias=False)
GATED = c.GatedFeedForward(hidden=5)


def experts(config: c.Experts, *, seed: int = 0) -> Experts:
    """Return a module with random weights in 64 bits."""
    module, generator = Experts(config, DIM).double(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return module.eval()


def context(*, padding: Tensor | None = None, documents: Tensor | None = None, **inputs: bool) -> Context:
    """Return the context of one pass over [ROWS, LENGTH]."""
    span = Span(LENGTH, LENGTH, 0, torch.device("cpu"), padding, documents, documents)
    return Context(span, torch.arange(LENGTH)[None], rows=ROWS, inputs=Inputs(**inputs))  # type: ignore[typeddict-item]


def batch(seed: int = 1) -> Tensor:
    """Return random vectors [ROWS, LENGTH, DIM]."""
    return torch.randn(ROWS, LENGTH, DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def one_by_one(module: Experts, x: Tensor) -> Tensor:
    """The definition: Fedus et al. 2021, eq 1–2, and Jiang et al. 2024, §2.1."""
    config, out = module.config, torch.zeros_like(x)
    bias = 0.0 if module.router.bias is None else module.router.bias
    for row in range(x.shape[0]):
        taken = [0] * config.count
        for place in range(x.shape[1]):
            scores = (module.router.weight @ x[row, place] + bias).float()
            best = scores.argsort(descending=True)[:config.router.top].tolist()
            shares = (scores.softmax(0) if isinstance(config.router, c.TopOfSoftmax)
                      else scores[best].softmax(0).new_zeros(config.count).scatter(0, torch.tensor(best),
                                                                                   scores[best].softmax(0)))
            for expert in best:
                taken[expert] += 1
                if config.capacity is None or taken[expert] <= config.capacity:
                    token = x[row, place][None, None]
                    out[row, place] += shares[expert] * module.experts[expert](token, context())[0, 0]
    return out


@pytest.mark.parametrize("capacity", [None, 1, 2, 64])
@pytest.mark.parametrize("router", [c.TopOfSoftmax(), c.TopOfSoftmax(top=3), c.SoftmaxOfTop(), c.SoftmaxOfTop(top=1)])
@pytest.mark.parametrize("inner", [PLAIN, GATED], ids=["plain", "gated"])
def test_equal_to_the_definition(inner: c.FeedForward | c.GatedFeedForward, router: c.TopOfSoftmax | c.SoftmaxOfTop,
                                 capacity: int | None) -> None:
    module = experts(c.Experts(inner=inner, count=COUNT, router=router, router_bias=True, capacity=capacity))
    x = batch()
    torch.testing.assert_close(module(x, context()), one_by_one(module, x), atol=1e-6, rtol=1e-6)


def test_gradients_reach_the_router_and_every_expert_and_are_those_of_the_definition() -> None:
    module = experts(c.Experts(inner=GATED, count=COUNT))
    x = batch()
    found = torch.autograd.grad(module(x, context()).square().sum(), tuple(module.parameters()))
    wanted = torch.autograd.grad(one_by_one(module, x).square().sum(), tuple(module.parameters()))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)  # scores have 32 bits


def test_an_expert_that_nobody_chose_has_a_gradient_of_zero() -> None:
    module = experts(c.Experts(inner=PLAIN, count=COUNT, router=c.TopOfSoftmax(), router_bias=True))
    with torch.no_grad():
        module.router.bias[0] = 1e3
    module(batch(), context()).sum().backward()
    assert all(bool((parameter.grad == 0).all()) for parameter in module.experts[1].parameters())
    assert any(bool((parameter.grad != 0).any()) for parameter in module.experts[0].parameters())


def test_only_chosen_experts_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    module, rows = experts(c.Experts(inner=PLAIN, count=COUNT, router=c.TopOfSoftmax())), []
    for expert in module.experts:
        expert.register_forward_hook(lambda _, inputs, __: rows.append(len(inputs[0])))
    with torch.no_grad():
        module(batch(), context())
    assert sum(rows) == ROWS * LENGTH and 0 not in rows


def test_the_first_tokens_of_each_sequence_are_taken_and_padding_takes_no_place() -> None:
    module = experts(c.Experts(inner=GATED, count=2, router=c.TopOfSoftmax(), router_bias=True, capacity=2))
    with torch.no_grad():
        module.router.bias[0] = 1e3  # all want the first
    padding = torch.ones(ROWS, LENGTH, dtype=torch.bool)
    padding[1, :3] = False
    taken = module(batch(), context(padding=padding)).abs().sum(-1) > 0
    assert taken[0].tolist() == [True, True, *[False] * 5]
    assert taken[1, 3:].tolist() == [True, True, False, False]


def test_packed_documents_have_a_capacity_each() -> None:
    module = experts(c.Experts(inner=GATED, count=2, router=c.TopOfSoftmax(), router_bias=True, capacity=1))
    with torch.no_grad():
        module.router.bias[0] = 1e3
    documents = torch.tensor([0, 0, 0, 1, 1, 2, 2]).expand(ROWS, -1)
    taken = module(batch(), context(documents=documents)).abs().sum(-1) > 0
    assert taken[2].tolist() == [True, False, False, True, False, True, False]


def test_places_count_earlier_tokens_with_the_same_wish() -> None:
    wish, sequence = torch.tensor([1, 0, 1, 1, 0, 1]), torch.tensor([0, 0, 0, 5, 5, 5])
    assert rank_in_expert(wish, sequence).tolist() == [0, 0, 1, 0, 0, 1]


def test_scores_are_recorded_where_they_are_wanted() -> None:
    module = experts(c.Experts(inner=PLAIN, count=COUNT))
    silent, loud = context(), context(output_router_logits=True)
    module(batch(), silent)
    module(batch(), loud)
    assert silent.router_logits == []
    wanted = (batch() @ module.router.weight.T).flatten(0, 1)
    torch.testing.assert_close(loud.router_logits[0], wanted)


def test_scores_are_never_less_exact_than_float32() -> None:
    module = experts(c.Experts(inner=PLAIN, count=COUNT)).bfloat16()
    loud = context(output_router_logits=True)
    module(batch().bfloat16(), loud)
    assert loud.router_logits[0].dtype == torch.float32
    wanted = (batch().bfloat16().float() @ module.router.weight.float().T).flatten(0, 1)
    torch.testing.assert_close(loud.router_logits[0], wanted)


def test_noise_is_for_training_only() -> None:
    module = experts(c.Experts(inner=PLAIN, count=COUNT, noise=0.3))
    assert torch.equal(module(batch(), context()), module(batch(), context()))
    module.train()
    assert not torch.equal(module(batch(), context()), module(batch(), context()))


def test_balance_is_one_where_experts_are_used_alike_and_their_number_where_one_does_all() -> None:
    alike = torch.eye(COUNT).repeat(5, 1) * 50
    assert measure_imbalance(alike).item() == pytest.approx(1.0)
    assert measure_imbalance(torch.tensor([[50.0, 0.0, 0.0, 0.0]]).repeat(5, 1)).item() == pytest.approx(COUNT)
    mixed = torch.cat([alike, torch.tensor([[50.0, 0.0, 0.0, 0.0]]).repeat(9, 1)])
    assert measure_imbalance(mixed, torch.arange(29) < 20).item() == pytest.approx(1.0)


def test_more_experts_a_token_than_there_are_is_refused() -> None:
    block = c.Block(sublayers=(c.PreNorm(inner=c.Experts(inner=PLAIN, count=1, router=c.SoftmaxOfTop())),))
    tree = c.Transformer(dim=DIM, embed=c.Embedding(vocab=9), encoder=c.Stack(layers=c.Repeat(block=block, times=1)))
    with pytest.raises(InputError, match="2 experts for each token, and there are 1"):
        build(tree)
