"""Training that knows of int8: the rounding of eq 61, its gradient, its ranges, and the int8 model that it ends in."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.laws.zoo import FAMILY_OPTIONS, family

import saucier
from saucier import InputError
from saucier import config as c
from saucier.adaptation.own_adapter import fill_learned, write_own_adapter
from saucier.adaptation.quantization.aware import AwareLinear, InputRange, fix_rounding, round_rows
from saucier.adaptation.quantization.maps import QuantizedLanguageHead, QuantizedLinear, is_quantized
from saucier.adaptation.quantization.schemes import Integers, QuantizationAware
from saucier.adaptation.rewrite import rewrite, unrewrite
from saucier.folders.load import load
from saucier.model import Transformer, build
from saucier.parts.linear import Linear
from saucier.parts.stack import choose_activations
from saucier.training.optimizers import find_roles

IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 3, 2, 4, 1]])
BY = QuantizationAware(decay=0.9)


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def trained(model: Transformer, steps: int = 3, rate: float = 0.05) -> Transformer:
    """Learn to tell the ids that it reads."""
    model.train()
    optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=rate)
    inputs = {"decoder_input_ids": IDS.flip(1)} if model.paired else {}
    for _ in range(steps):
        output = model(IDS, **inputs)
        hidden = output.logits if output.logits is not None and output.logits.shape[-1] == 37 else None
        loss = output.last_hidden_state.square().mean() if hidden is None else F.cross_entropy(
            hidden.flatten(0, 1), IDS.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def test_rounding_is_eq_61() -> None:
    """`clamp(round(x·S), -M, M) / S`, S = M / max|x|, in float64; the gradient is that of x itself."""
    weight = drawn(4, 30).requires_grad_()
    found = round_rows(weight, Integers())
    scale = 127 / weight.detach().double().abs().amax(1, keepdim=True)
    expected = (weight.detach().double() * scale).round().clamp(-127, 127) / scale
    torch.testing.assert_close(found.double().detach(), expected, rtol=1e-6, atol=1e-7)
    change = drawn(4, 30, seed=1)
    found.backward(change)
    assert weight.grad is not None and torch.equal(weight.grad, change)


def test_a_map_rounds_both_and_its_gradients_pass() -> None:
    base = Linear(20, 6)
    for one in base.parameters():
        torch.nn.init.normal_(one)
    aware, x = AwareLinear(base, BY).train(), drawn(3, 20).requires_grad_()
    found, change = aware(x), drawn(3, 6, seed=1)
    step = x.detach().abs().max() / 127
    read, weight = (x.detach() / step).round() * step, round_rows(base.weight, Integers()).detach()
    torch.testing.assert_close(found, F.linear(read, weight, base.bias))
    found.backward(change)
    assert x.grad is not None and base.weight.grad is not None
    torch.testing.assert_close(x.grad, change @ weight)
    torch.testing.assert_close(base.weight.grad, change.T @ read)


def test_the_range_is_a_running_mean_that_freezes() -> None:
    model = rewrite(build(family("bert"), seed=3), by=QuantizationAware(decay=0.75, freeze=3)).train()
    maps = {name: one for name, one in model.named_modules() if isinstance(one, AwareLinear)}
    largest: dict[str, list[float]] = {name: [] for name in maps}
    for name, one in maps.items():
        one.register_forward_pre_hook(lambda _, given, name=name: largest[name].append(float(given[0].abs().max())))
    for step in range(5):
        model(IDS + step)
    model(IDS)  # what the fifth step read is taken in
    for name, one in maps.items():
        first, second, third = largest[name][:3]
        mean = 0.75 * (0.75 * first + 0.25 * second) + 0.25 * third
        assert one.inputs.state.tolist()[0] == pytest.approx(mean) and float(one.inputs.state[2]) == 3
    model.eval()
    before = [one.inputs.state.clone() for one in maps.values()]
    with torch.no_grad():
        model(IDS * 3)
    assert all(torch.equal(one.inputs.state, then) for one, then in zip(maps.values(), before, strict=True))


def test_ranges_stay_float32_and_rounding_leaves_autocast() -> None:
    model = rewrite(build(family("bert"), seed=3), by=BY).train()
    with torch.autocast("cpu", torch.bfloat16):
        model(IDS)
        model(IDS)
    states = [one.state for one in model.modules() if isinstance(one, InputRange)]
    assert all(one.dtype == torch.float32 and float(one[0]) > 0 for one in states)
    assert any(float(one[0].to(torch.bfloat16)) != float(one[0]) for one in states)
    model.to(torch.bfloat16)
    assert all(one.state.dtype == torch.float32 for one in model.modules() if isinstance(one, InputRange))


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted(set(FAMILY_OPTIONS) - {"transfo_xl"}))
def test_the_int8_model_gives_the_numbers_of_the_one_that_learned(name: str, tmp_path: Path) -> None:
    """To the last bit, in every family; and so does its folder."""
    model = trained(rewrite(build(family(name), seed=3), by=BY))
    inputs = {"decoder_input_ids": IDS.flip(1)} if model.paired else {}
    with torch.no_grad():
        expected = model(IDS, **inputs)
        found = fix_rounding(model)(IDS, **inputs)
        assert torch.equal(found.last_hidden_state, expected.last_hidden_state)
        assert found.logits is None or torch.equal(found.logits, expected.logits)
    assert is_quantized(model) and not model.provenance.rewrites
    assert not any(isinstance(one, AwareLinear | InputRange) for one in model.modules())
    model.save(tmp_path / "model")
    with torch.no_grad():
        again = saucier.load(tmp_path / "model", dtype="float32")(IDS, **inputs)
    assert torch.equal(again.last_hidden_state, found.last_hidden_state)


def test_tied_tables_stay_one() -> None:
    model = rewrite(build(family("bert"), seed=3), by=BY)
    assert model.head is not None
    head = getattr(model.head, "language", model.head)
    assert head.weight is model.embed.tokens.weight and "weight" in head._parameters
    fixed = fix_rounding(trained(model))
    heads = [one for one in fixed.modules() if isinstance(one, QuantizedLanguageHead)]
    assert len(heads) == 1 and heads[0].table is fixed.embed.tokens


def test_it_learns_and_names_and_roles_stay() -> None:
    plain = build(family("bert"), seed=3)
    names, roles = [name for name, _ in plain.named_parameters()], find_roles(plain)
    model = rewrite(plain, by=BY)
    assert [name for name, one in model.named_parameters() if one.requires_grad] == names
    assert find_roles(model) == roles
    assert trained(model, steps=1).training is False

    def loss() -> float:
        with torch.no_grad():
            return float(F.cross_entropy(model(IDS).logits.flatten(0, 1), IDS.flatten()))

    before = loss()
    trained(model, steps=20, rate=0.2)
    assert loss() < 0.8 * before


def test_taken_back_the_float_model_is_there() -> None:
    model = build(family("bert"), seed=3).eval()
    with torch.no_grad():
        before, kinds = model(IDS).last_hidden_state, [type(one) for one in model.modules()]
        unrewrite(rewrite(model, by=BY))
        assert torch.equal(model(IDS).last_hidden_state, before)
    assert [type(one) for one in model.modules()] == kinds and not model._forward_pre_hooks


def test_a_checkpoint_holds_ranges_too(tmp_path: Path) -> None:
    """What is opened from it is the int8 model, whatever format it is opened in; training goes on from the ranges."""
    model = trained(rewrite(build(family("bert"), seed=3), by=BY), steps=4)
    write_own_adapter(model, tmp_path / "step")
    again = rewrite(build(family("bert"), seed=9), by=BY)
    fill_learned(again, tmp_path / "step")
    assert all(torch.equal(one, dict(again.named_parameters())[name]) for name, one in model.named_parameters())
    opened, half = (load(tmp_path / "step", dtype=one) for one in ("float32", "bfloat16"))
    fixed = dict(fix_rounding(model).named_buffers())
    assert fixed.keys() == dict(opened.named_buffers()).keys()
    for found in (opened, half):
        assert all(torch.equal(one, fixed[name]) for name, one in found.named_buffers())


def test_computed_again_the_gradients_are_the_same() -> None:
    """The range changes between passes alone, so a block that is computed again rounds as it did."""
    found = []
    for kept in (True, False):
        model = rewrite(build(family("gpt2"), seed=3), by=BY).train()
        model.requires_grad_(True)
        for module in model.modules():
            if isinstance(module, InputRange):
                module.requires_grad_(False)
        if not kept:
            choose_activations([model], c.Activations(kind="recompute"))
        for step in range(3):
            model.zero_grad()
            torch.manual_seed(step)
            model(IDS + 7 * step).logits.square().mean().backward()
        found.append({name: one.grad if one.grad is not None else one.detach() for name, one in
                      model.named_parameters()})
    assert all(torch.equal(one, found[1][name]) for name, one in found[0].items())


def test_a_map_that_no_step_has_reached_rounds_no_inputs() -> None:
    """The global maps of a Longformer that was never given global tokens."""
    model = fix_rounding(trained(rewrite(build(family("longformer"), seed=3), by=BY)))
    kinds = {name.split(".")[-1]: None if one.activations is None else one.activations.kind
             for name, one in model.named_modules() if isinstance(one, QuantizedLinear) and name.startswith("encoder")}
    assert kinds == {"qkv": "static", "global_qkv": None, "out": "static", "up": "static", "down": "static"}


def test_what_is_refused() -> None:
    model = rewrite(build(family("bert"), seed=3), by=BY)
    with pytest.raises(InputError, match="rounds already"):
        rewrite(model, by=BY)
    with pytest.raises(InputError, match=r"is one matrix|only a part"):
        rewrite(build(family("bert"), seed=3), by=QuantizationAware(where=("query",)))
