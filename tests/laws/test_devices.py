"""A CUDA device gives what the CPU gives: outputs, gradients and written tokens of every family and part; and on both,
gradients in bfloat16 are numbers, however much of a row is padding.
"""

from __future__ import annotations

import copy

import pytest
import torch
from tests.laws.zoo import decoders, everything, longest, pairs, steady, tokens
from torch import Tensor

import saucier
from saucier.model import Transformer
from saucier.parts.kernels import Scores, attend
from saucier.parts.masks import Mask

CUDA = pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(),
                                                                       reason="needs a CUDA device")])
MODELS = everything()
WRITERS = {**decoders(), **pairs()}
ROWS = 3


def run(model: Transformer, ids: Tensor, mask: Tensor) -> Tensor:
    """Return the last hidden vectors where rows have tokens, with gradients in the weights."""
    targets = {"decoder_input_ids": ids, "decoder_attention_mask": mask} if model.config.encoder \
        and model.config.decoder else {}
    found: Tensor = model(ids, mask, **targets).last_hidden_state
    if found.shape[:2] == mask.shape:
        found = found[mask.bool()]
    found.square().sum().backward()
    return found


@pytest.mark.parametrize("device", [CUDA])
@pytest.mark.parametrize("name", MODELS)
def test_outputs_and_gradients_are_those_of_the_cpu(name: str, device: str) -> None:
    """In float64, rows of unequal length, so that kernels and not roundings are compared; but for sines of positions,
    which are float32, and which devices round otherwise.
    """
    config = MODELS[name]
    length = longest(config)
    model, ids = steady(config).double(), tokens(config, ROWS, length)
    mask = torch.ones(ROWS, length, dtype=torch.long)
    mask[1, length - length // 3:] = 0
    other = copy.deepcopy(model).to(device)
    expected, found = run(model, ids, mask), run(other, ids.to(device), mask.to(device))
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)
    theirs = dict(other.named_parameters())
    for place, weight in model.named_parameters():
        gradient = theirs[place].grad
        assert (weight.grad is None) == (gradient is None), place
        if weight.grad is not None and gradient is not None:
            torch.testing.assert_close({place: gradient.cpu()}, {place: weight.grad}, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_numbers_in_bfloat16(name: str, device: str) -> None:
    """Where a row is mostly padding, the windows of its last places hold nothing else."""
    config = MODELS[name]
    length = longest(config)
    model, ids = steady(config).float().to(device), tokens(config, ROWS, length).to(device)
    mask = torch.ones(ROWS, length, dtype=torch.long, device=device)
    mask[1, 1:] = 0
    with torch.autocast(device, torch.bfloat16):
        found = run(model, ids, mask)
    assert bool(found.isfinite().all())
    for place, weight in model.named_parameters():
        assert weight.grad is None or bool(weight.grad.isfinite().all()), place


@pytest.mark.parametrize("device", [CUDA])
def test_no_kernel_of_cudnn_learns_under_a_mask(device: str) -> None:
    """Its gradients were no numbers (`without_cudnn`)."""
    query, key, value = (torch.randn(2, 4, 16, 32, device=device, dtype=torch.bfloat16, requires_grad=True)
                         for _ in range(3))
    allowed = torch.ones(2, 1, 1, 16, dtype=torch.bool, device=device)
    allowed[1, ..., 9:] = False
    mixed = attend(query, key, value, Scores(Mask(allowed=allowed), scale=1.0))
    assert mixed.grad_fn is not None and "Cudnn" not in mixed.grad_fn.name()


@pytest.mark.parametrize("device", [CUDA])
@pytest.mark.parametrize("name", WRITERS)
def test_greedy_tokens_are_those_of_the_cpu(name: str, device: str) -> None:
    """In float64, where no two scores are as near as roundings."""
    config = WRITERS[name]
    model, ids = steady(config).double(), tokens(config, 2, 6)
    other = copy.deepcopy(model).to(device)
    start = {"decoder_start_token_id": 1} if config.encoder else {}
    expected = saucier.generate(model, ids, max_new_tokens=8, **start)
    assert torch.equal(saucier.generate(other, ids.to(device), max_new_tokens=8, **start).cpu(), expected)
