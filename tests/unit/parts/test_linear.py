"""Products through oneDNN are those of torch, values and gradients; everything else is left to torch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from saucier import config as c
from saucier.parts import linear as module
from saucier.parts.linear import (
    ACTIVATIONS,
    FUSED_ACTIVATIONS,
    Linear,
    first_outputs,
    linear,
    linear_activation,
    matmul_t,
)


@pytest.fixture(autouse=True)
def with_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use oneDNN whatever the processor."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this torch is built without oneDNN")
    monkeypatch.setattr(module, "onednn_pays", lambda: True)


def drawn(*shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("rows", [(1,), (2,), (7,), (3, 5), (2, 3, 4)])
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_torchs(rows: tuple[int, ...], bias: bool) -> None:
    results = []
    for function in (linear, F.linear):
        x, weight, added = drawn((*rows, 6), (9, 6), (9,))
        out = function(x, weight, added if bias else None)
        (out * torch.arange(9.0)).sum().backward()
        results.append((out, x.grad, weight.grad, added.grad))
    for ours, theirs in zip(*results, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_strided_operands_are_read_right() -> None:
    left, right = (value.detach() for value in drawn((8, 5), (7, 8)))
    torch.testing.assert_close(matmul_t(left.T, right), left.T @ right.T, rtol=1e-5, atol=1e-5)


def test_frozen_weights_get_no_gradient() -> None:
    x, weight = drawn((4, 6), (9, 6))
    weight.requires_grad_(False)
    linear(x, weight).sum().backward()
    assert x.grad is not None
    assert weight.grad is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_formats_are_left_to_torch(dtype: torch.dtype) -> None:
    x, weight = (value.detach().to(dtype) for value in drawn((4, 6), (9, 6)))
    assert torch.equal(linear(x, weight), F.linear(x, weight))


def test_autocast_and_empty_inputs_and_meta_work() -> None:
    layer = Linear(6, 9)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(torch.ones(4, 6)).dtype == torch.bfloat16
    assert layer(torch.ones(0, 6)).shape == (0, 9)
    assert layer.to("meta")(torch.ones(4, 6, device="meta")).shape == (4, 9)


@pytest.mark.parametrize("piece", [1, 24, 2**20])
@pytest.mark.parametrize("bias", [True, False])
def test_bfloat16_is_the_rounded_float32_product(bias: bool, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the matrix is cut, and for the gradients too."""
    monkeypatch.setattr(module, "emulates_bfloat16", lambda: True)
    monkeypatch.setattr(module, "WIDENED_AT_ONCE", piece)
    x, weight, added = (value.detach().bfloat16().requires_grad_() for value in drawn((2, 20, 6), (9, 6), (9,)))
    wide = [value.detach().float().requires_grad_() for value in (x, weight, added)]
    found, wanted = linear(x, weight, added if bias else None), F.linear(wide[0], wide[1], wide[2] if bias else None)
    assert torch.equal(found, wanted.bfloat16())
    found.sum().backward()
    wanted.sum().backward()
    for ours, theirs in zip((x, weight), wide[:2], strict=True):
        assert ours.grad is not None and theirs.grad is not None
        torch.testing.assert_close(ours.grad.float(), theirs.grad, rtol=1e-2, atol=1e-2)


def test_few_rows_of_bfloat16_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "emulates_bfloat16", lambda: True)
    x, weight = (value.detach().bfloat16() for value in drawn((module.FEW_EMULATED_ROWS, 6), (9, 6)))
    assert module.suits_multiply(x, weight)
    assert not module.suits_multiply(x[1:], weight)


def layer_of(dtype: torch.dtype = torch.float32) -> Linear:
    layer = Linear(24, 40).to(dtype)
    for parameter, value in zip(layer.parameters(), drawn((40, 24), (40,)), strict=True):
        parameter.data.copy_(value.detach())
    return layer


@pytest.mark.parametrize("activation", [*FUSED_ACTIVATIONS, "tanh"])
@pytest.mark.parametrize("rows", [(4,), (3, 16)])
def test_an_activation_behind_a_product_is_the_same_in_one_operation(activation: c.Activation,
                                                                     rows: tuple[int, ...]) -> None:
    layer, (x,) = layer_of(), drawn((*rows, 24))
    expected = ACTIVATIONS[activation](F.linear(x.double(), layer.weight.double(), layer.bias.double()))
    with torch.inference_mode():
        torch.testing.assert_close(linear_activation(layer, x, activation).double(), expected, rtol=1e-6, atol=3e-6)


@pytest.mark.parametrize("activation", [*FUSED_ACTIVATIONS])
def test_in_bfloat16_one_operation_is_no_less_exact_than_two(activation: c.Activation,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    if not module.onednn_takes_bfloat16():
        pytest.skip("oneDNN takes no bfloat16 on this processor")
    monkeypatch.setattr(module, "emulates_bfloat16", lambda: False)
    layer, x = layer_of(torch.bfloat16), drawn((64, 24))[0].detach().bfloat16()
    exact = ACTIVATIONS[activation](F.linear(x.double(), layer.weight.double(), layer.bias.double()))
    with torch.inference_mode():
        apart = (ACTIVATIONS[activation](layer(x)) - exact).abs().mean()
        assert (linear_activation(layer, x, activation) - exact).abs().mean() <= apart


def test_maps_that_learn_are_watched_or_rewritten_stay_two_operations() -> None:
    class Doubled(Linear):
        def forward(self, input: Tensor) -> Tensor:  # noqa: A002
            return 2 * super().forward(input)

    x, seen = drawn((64, 24))[0], []
    layer, twice = layer_of(), Doubled(24, 40)
    twice.load_state_dict(layer.state_dict())
    linear_activation(layer, x, "gelu").sum().backward()
    assert layer.weight.grad is not None
    layer.register_forward_hook(lambda *given: seen.append(given))
    with torch.no_grad():
        assert torch.equal(linear_activation(twice, x, "relu"), 2 * linear_activation(layer, x, "relu"))
        assert torch.equal(first_outputs(twice, x, 7), twice(x)[..., :7])
        torch.testing.assert_close(first_outputs(layer, x, 7), layer(x)[..., :7], rtol=1e-6, atol=1e-6)
    assert len(seen) == 3, "every use is watched"


def test_whoever_hooks_a_map_is_asked() -> None:
    """Hooks before and behind a map change what comes out, as of any module, when nothing is learned too."""
    layer, x = layer_of(), drawn((64, 24))[0]
    layer.register_forward_pre_hook(lambda module, given: (2 * given[0],))
    with torch.no_grad():
        torch.testing.assert_close(linear_activation(layer, x, "relu"),
                                   torch.relu(F.linear(2 * x, layer.weight, layer.bias)))
        whole = layer(x)
        torch.testing.assert_close(first_outputs(layer, x, 8), whole[..., :8])
        layer.register_forward_hook(lambda module, given, made: made + 1)
        torch.testing.assert_close(first_outputs(layer, x, 8), whole[..., :8] + 1)
