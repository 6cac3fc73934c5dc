"""The chunked cross-entropy against its definition: value, gradients, label smoothing, formats, and its memory."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from saucier.objectives import cross_entropy as module
from saucier.objectives.cross_entropy import compute_cross_entropy

N, D, V = 37, 12, 53


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make several chunks, the last of them shorter."""
    monkeypatch.setattr(module, "CHUNK_BYTES", 10 * V * 4)


def inputs(bias: bool, seed: int = 0) -> tuple[list[Tensor], Tensor]:
    generator = torch.Generator().manual_seed(seed)
    values = [torch.randn(N, D, generator=generator), torch.randn(V, D, generator=generator)]
    values += [torch.randn(V, generator=generator)] if bias else []
    return [value.requires_grad_() for value in values], torch.randint(V, (N,), generator=generator)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [False, True])
def test_value_and_gradients_are_those_of_the_whole_matrix(bias: bool, smoothing: float) -> None:
    ours, targets = inputs(bias)
    sums = compute_cross_entropy(ours[0], ours[1], ours[2] if bias else None, targets, smoothing=smoothing)
    (sums.loss * 0.25).backward()
    theirs, _ = inputs(bias)
    logits = F.linear(*theirs)
    expected = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    (expected * 0.25).backward()
    torch.testing.assert_close(sums.loss, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(sums.nll, F.cross_entropy(logits, targets, reduction="sum"), rtol=1e-5, atol=1e-5)
    for mine, reference in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, reference.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_without_gradients_it_gives_the_same_loss_and_counts_hits(smoothing: float) -> None:
    (features, weight), targets = inputs(False)
    trained = compute_cross_entropy(features, weight, None, targets, smoothing=smoothing)
    with torch.no_grad():
        measured = compute_cross_entropy(features, weight, None, targets, smoothing=smoothing)
        hits = ((features @ weight.T).argmax(1) == targets).sum().float()
    torch.testing.assert_close(measured.loss, trained.loss.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(measured.nll, trained.nll, rtol=1e-5, atol=1e-5)
    assert measured.correct == hits


def test_under_autocast_it_is_near_and_gives_gradients_in_float32() -> None:
    (features, weight), targets = inputs(False)
    exact = compute_cross_entropy(features, weight, None, targets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        near = compute_cross_entropy(features, weight, None, targets)
    near.loss.backward()
    assert abs(near.loss.item() / exact.loss.item() - 1) < 0.01
    assert weight.grad is not None
    assert weight.grad.dtype == features.grad.dtype == torch.float32


def test_no_targets_give_zero_loss_and_zero_gradients() -> None:
    (features, weight), _ = inputs(False)
    sums = compute_cross_entropy(features[:0], weight, None, torch.empty(0, dtype=torch.long))
    sums.loss.backward()
    assert sums.loss == 0
    assert weight.grad is not None
    assert not weight.grad.any()


def test_the_matrix_of_logits_never_exists_as_a_whole() -> None:
    (features, weight), targets = inputs(False)
    seen: list[int] = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            out = function(*args, **(kwargs or {}))
            if isinstance(out, Tensor) and out.dim() == 2 and out.shape[1] == V and len(out) != D:  # not the weight
                seen.append(len(out))
            return out

    with Watch():
        compute_cross_entropy(features, weight, None, targets).loss.backward()
    assert max(seen) == 10
