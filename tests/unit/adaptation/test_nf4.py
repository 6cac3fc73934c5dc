"""NF4 and QLoRA: the published levels, the error and memory of the paper, and products as with the widened matrix."""

from __future__ import annotations

import pytest
import torch
from tests.laws.zoo import family
from tests.tolerances import assert_close

from saucier import InputError
from saucier.adaptation import tuning as a
from saucier.adaptation.lora import list_named_pairs, merge
from saucier.adaptation.quantization.maps import QuantizedLinear, held_bytes
from saucier.adaptation.quantization.normal_float import dequantize, nf4_levels, quantize
from saucier.adaptation.rewrite import list_trainable, rewrite, unrewrite
from saucier.model import build
from saucier.parts.provenance import Provenance

PUBLISHED = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
             -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
             0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
"""Dettmers et al. 2023, appendix E."""
STORE = a.NormalFloat()
IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 3, 2, 4, 1]])


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_the_levels_are_the_published_ones() -> None:
    torch.testing.assert_close(nf4_levels(), torch.tensor(PUBLISHED), rtol=0, atol=1e-6)


def widened(weight: torch.Tensor, store: a.NormalFloat = STORE) -> torch.Tensor:
    return dequantize(quantize(weight, store), weight.shape, store, torch.float32)


def test_every_value_becomes_the_nearest_level_of_its_block() -> None:
    """Against a loop over blocks, with scales that are not rounded."""
    weight = drawn(4, 96)
    found = widened(weight)
    for block, ours in zip(weight.flatten().split(64), found.flatten().split(64), strict=True):
        scale = ours.abs().max()
        assert abs(float(scale / block.abs().max()) - 1) < 0.04
        table = torch.tensor(PUBLISHED) * scale
        expected = table[(block[:, None] - table).abs().argmin(1)]
        assert (ours - expected).abs().max() <= 1e-5


def test_the_error_on_normal_weights() -> None:
    """NF4 loses less than 4-bit integers in the same blocks, and rounding the scales adds next to nothing."""
    weight = drawn(512, 512)
    error = (widened(weight) - weight).square().mean()
    blocks = weight.view(-1, 64)
    largest = blocks.abs().amax(1, keepdim=True)
    integers = ((blocks / largest * 7).round() / 7 * largest - blocks).square().mean()
    table = torch.tensor(PUBLISHED)
    near = table[torch.bucketize(blocks / largest, (table[1:] + table[:-1]) / 2)] * largest
    exact = (near - blocks).square().mean()
    assert error < 0.8 * integers
    assert abs(error / exact - 1) < 0.01
    assert 0.0075 < error < 0.0095  # of a variance of 1


def test_memory_is_the_papers() -> None:
    """4 bits a weight, and 0.127 bits of scales where plain ones take 0.5: 0.373 saved (§3)."""
    packed = quantize(drawn(1024, 1024), STORE)
    weights = 1024 * 1024
    bits = [8 * tensor.nbytes / weights for tensor in (packed.codes, packed.scales, packed.scale_scales)]
    assert bits[0] == 4.0
    assert bits[1] + bits[2] == pytest.approx(8 / 64 + 32 / (64 * 256))
    assert 32 / 64 - (bits[1] + bits[2]) == pytest.approx(0.373, abs=5e-4)


@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (7, 64), (65, 3)])
def test_odd_sizes_and_zeros(shape: tuple[int, int]) -> None:
    assert widened(torch.zeros(shape)).abs().max() == 0
    weight = drawn(*shape)
    assert (widened(weight) - weight).abs().max() < 0.2 * weight.abs().max()


def test_products_and_gradients_are_those_of_the_widened_matrix() -> None:
    base = torch.nn.Linear(40, 24)
    held = QuantizedLinear(base, STORE)
    x, y = drawn(3, 5, 40).requires_grad_(), drawn(3, 5, 40).requires_grad_()
    found = held(x)
    expected = torch.nn.functional.linear(y, held.weight, base.bias)
    assert_close(found, expected)
    change = drawn(3, 5, 24, seed=2)
    found.backward(change)
    expected.backward(change)
    assert x.grad is not None and y.grad is not None
    assert_close(x.grad, y.grad)
    with torch.autocast("cpu", torch.bfloat16):
        assert held(x).dtype == torch.bfloat16


def test_no_float_copy_is_kept_for_the_backward_pass() -> None:
    held = QuantizedLinear(torch.nn.Linear(64, 64), STORE)
    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        held(drawn(2, 64).requires_grad_()).sum()
    assert all(tensor.shape != (64, 64) for tensor in kept)


@pytest.mark.parametrize("body", ["bert", "llama", "t5"])
def test_qlora(body: str) -> None:
    """Only pairs learn; the stacks' matrices are an eighth of float32; merged, the numbers stay."""
    model = build(family(body), seed=3).eval()
    inputs = {"decoder_input_ids": IDS.flip(1)} if body == "t5" else {}
    exact, before = model(IDS, **inputs).last_hidden_state, held_bytes(model)
    maps = sum(module.weight.nbytes for name, module in model.named_modules()
               if isinstance(module, torch.nn.Linear) and name.startswith(("encoder", "decoder")))
    rewrite(model, by=a.Qlora(rank=2))
    pairs = sum(parameter.nbytes for parameter in list_trainable(model).values())
    assert before - maps + maps * 4.3 / 32 > held_bytes(model) - pairs
    rough = model(IDS, **inputs).last_hidden_state
    assert 0 < (rough - exact).norm() < 0.5 * exact.norm()
    with torch.no_grad():
        for _, _, pair in list_named_pairs(model).values():
            pair.up.weight.normal_(0.0, 0.05, generator=torch.Generator().manual_seed(1))
    model(IDS, **inputs).last_hidden_state.square().sum().backward()
    assert {name for name, p in model.named_parameters() if p.grad is not None} == set(list_trainable(model))
    assert all(".pairs." in name for name in list_trainable(model))
    with pytest.raises(InputError, match="cannot be taken back; load the base model again"):
        unrewrite(model)
    with torch.no_grad():
        apart = model(IDS, **inputs).last_hidden_state
        merge(model)
        assert_close(model(IDS, **inputs).last_hidden_state, apart)
    assert not any(isinstance(module, QuantizedLinear) for module in model.modules())


@pytest.mark.parametrize("by", [a.Qlora(rank=2, where=("qkv", "nothing")), a.Qlora(rank=2, where=("head",)),
                                a.Lora(rank=2, where=("qkv", "qkv.weight"))], ids=["place", "head", "second place"])
def test_a_rewrite_that_fails_leaves_the_model_as_it_was(by: a.Tuning, monkeypatch: pytest.MonkeyPatch) -> None:
    """The matrices are in four bits already when the pairs find no place."""
    model = build(family("bert"), seed=3).eval()
    model.provenance = Provenance(generation={"max_new_tokens": 3})
    known, places = model.provenance, dict(model.named_modules())
    before, modules = model(IDS).last_hidden_state, [type(one) for one in model.modules()]
    with pytest.raises(InputError):
        rewrite(model, by=by)
    assert torch.equal(model(IDS).last_hidden_state, before) and [type(one) for one in model.modules()] == modules
    assert model.provenance is known and all(parameter.requires_grad for parameter in model.parameters())
    assert all(model.get_submodule(name) is module for name, module in places.items())
    rewrite(model, by=a.Lora(rank=2))
    known, places = model.provenance, dict(model.named_modules())
    with pytest.raises(InputError, match="has a pair already"):
        rewrite(model, by=a.Lora(rank=2, where=("feed_forward", "qkv")))
    assert model.provenance is known and dict(model.named_modules()) == places
    assert len(list_named_pairs(unrewrite(model))) == 0
    assert torch.equal(model(IDS).last_hidden_state, before)
