"""Which optimizer moves which weight, and the state that goes out and comes back."""

from __future__ import annotations

import copy

import pytest
import torch
from tests.unit.training.toy import small
from torch import nn

from saucier.errors import InputError
from saucier.model import Transformer, build
from saucier.training import hyperparameters as c
from saucier.training.optimizers import (
    FloatMuon,
    Optimizer,
    ParameterRole,
    build_optimizer,
    find_roles,
    fused_rows,
    orthogonalize,
)

ALL = [c.AdamW(), c.Muon(), c.Adafactor()]


def filled(model: Transformer, seed: int = 0) -> Transformer:
    """Give every parameter a gradient."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    return model


def test_roles_of_a_tied_decoder() -> None:
    kinds = find_roles(build(small("gpt2")))
    assert kinds["embed.tokens.weight"] is ParameterRole.OTHER
    matrices = {name for name, role in kinds.items() if role is ParameterRole.MATRIX}
    assert len(matrices) == 2 * 4  # qkv, out, up, down in each of two blocks
    assert all(name.startswith("decoder.") and name.endswith(".weight") for name in matrices)
    assert ParameterRole.OUTPUT not in kinds.values()


def test_an_untied_output_matrix_decays_but_is_no_matrix_of_muon() -> None:
    kinds = find_roles(build(small("llama")))
    assert kinds["head.weight"] is ParameterRole.OUTPUT


@pytest.mark.parametrize("family", ["gpt2", "llama", "bert", "t5", "transformer"])
def test_every_vector_and_table_is_free_of_decay(family: str) -> None:
    model = build(small(family))
    kinds = find_roles(model)
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2 or "embed" in name or "norm" in name:
            assert kinds[name] is ParameterRole.OTHER, name
    assert sum(role is ParameterRole.MATRIX for role in kinds.values()) >= 8


def test_weight_decay_touches_matrices_only() -> None:
    model = build(small("gpt2"))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before, kinds = copy.deepcopy(dict(model.named_parameters())), find_roles(model)
    build_optimizer(c.AdamW(learning_rate=0.1, weight_decay=0.5), model).step(1.0)
    for name, parameter in model.named_parameters():
        expected = before[name] * (0.95 if kinds[name] is ParameterRole.MATRIX else 1.0)
        torch.testing.assert_close(parameter, expected)


def test_muon_orthogonalizes_queries_keys_and_values_apart() -> None:
    model = filled(build(small("llama")))
    rows = fused_rows(model)
    qkv = model.get_parameter("decoder.blocks.0.0.inner.qkv.weight") if "decoder.blocks.0.0.inner.qkv.weight" in dict(
        model.named_parameters()) else next(p for n, p in model.named_parameters() if n.endswith("qkv.weight"))
    assert rows[id(qkv)] == [32, 16, 16]
    before = qkv.detach().clone()
    build_optimizer(c.Muon(learning_rate=1.0, weight_decay=0.0), model).step(1.0)
    for start, count in ((0, 32), (32, 16), (48, 16)):
        step = (before - qkv.detach())[start:start + count]
        values = torch.linalg.svdvals(step) / (0.2 * max(step.shape) ** 0.5)  # Liu et al. 2025, §2.2
        assert values.min() > 0.5
        assert values.max() < 1.3


def test_muon_leaves_tables_and_vectors_to_adamw() -> None:
    model = filled(build(small("gpt2")))
    optimizer = build_optimizer(c.Muon(learning_rate=1e-9, weight_decay=0.0, others=c.AdamW(learning_rate=0.01)), model)
    before = copy.deepcopy(dict(model.named_parameters()))
    optimizer.step(1.0)
    for name, parameter in model.named_parameters():
        moved = (parameter - before[name]).abs().max()
        assert moved < 1e-7 if find_roles(model)[name] is ParameterRole.MATRIX else moved > 0.009, name


@pytest.mark.parametrize("config", ALL, ids=lambda config: config.kind)
def test_state_goes_out_and_comes_back_bit_equal(config: c.OptimizerConfig) -> None:
    first, second = build(small("llama")), build(small("llama"))
    one, two = build_optimizer(config, first), build_optimizer(config, second)
    for seed in range(2):
        filled(first, seed)
        one.step(1.0)
    second.load_state_dict(first.state_dict())
    two.load(one.state())
    for model, optimizer in ((first, one), (second, two)):
        filled(model, 7)
        optimizer.step(0.5)
    for (name, a), b in zip(first.named_parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b), name
    assert one.state().keys() == two.state().keys()
    assert all(torch.equal(value, two.state()[name]) for name, value in one.state().items())


def test_every_rate_follows_the_schedule() -> None:
    optimizer: Optimizer = build_optimizer(c.Muon(learning_rate=0.02, others=c.AdamW(learning_rate=0.001)),
                                           filled(build(small("gpt2"))))
    optimizer.step(0.25)
    assert optimizer.rate() == 0.005
    assert {group["lr"] for group in optimizer.parts[1].param_groups} == {0.00025}


def test_state_of_another_model_is_refused() -> None:
    model = build(small("gpt2"))
    with pytest.raises(InputError, match=r"unknown parameter other\.weight"):
        build_optimizer(c.AdamW(), model).load({"other.weight:exp_avg": torch.zeros(1)})


@pytest.mark.parametrize("config", [c.AdamW(learning_rate=0.01, weight_decay=0.0),
                                    c.Muon(learning_rate=0.01, weight_decay=0.0, others=c.AdamW(learning_rate=0.01))])
def test_lower_blocks_learn_more_slowly(config: c.OptimizerConfig) -> None:
    """The first step of AdamW moves every value by its rate, so that steps show rates: 1, f, f², and embeddings f³."""
    from tests.laws.zoo import family

    from saucier.model import build

    model = build(family("bert"), seed=1)
    optimizer = build_optimizer(config, model, rates=c.LayerRates(factor=0.5))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for name, parameter in model.named_parameters():
        parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name)))
    optimizer.step(1.0)
    moved = {name: float((parameter.detach() - before[name]).abs().max()) for name, parameter
             in model.named_parameters()}
    for name, share in (("head.sentence.bias", 1.0), ("encoder.blocks.1.attention.norm.weight", 0.5),
                        ("encoder.blocks.0.attention.norm.weight", 0.25), ("embed.positions.weight", 0.125)):
        assert moved[name] == pytest.approx(0.01 * share, rel=1e-3)
    upper, lower = (moved[f"encoder.blocks.{number}.feed_forward.inner.up.weight"] for number in (1, 0))
    assert upper == pytest.approx(2 * lower, rel=0.3)


@pytest.mark.parametrize("shape", [(24, 60), (60, 24)])
def test_muon_without_bfloat16_is_that_of_torch_but_for_its_rounding(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    begin, options = torch.randn(shape), {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05,
                                          "adjust_lr_fn": "match_rms_adamw"}
    ours, theirs = (nn.Parameter(begin.clone()) for _ in range(2))
    both = FloatMuon([ours], **options), torch.optim.Muon([theirs], **options)
    for _ in range(3):
        gradient = torch.randn(shape)
        for weight, optimizer in zip((ours, theirs), both, strict=True):
            weight.grad = gradient.clone()
            optimizer.step()
    moved = (theirs - begin).norm()
    assert 0 < (ours - theirs).norm() < 0.02 * moved  # eight bits of a number
    assert both[0].state_dict().keys() == both[1].state_dict().keys()
    assert torch.equal(both[0].state[ours]["momentum_buffer"], both[1].state[theirs]["momentum_buffer"])


@pytest.mark.parametrize("shape", [(12, 40), (40, 12)])
def test_all_singular_values_are_brought_near_one(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape, dtype=torch.float64)
    found = orthogonalize(matrix, (3.4445, -4.7750, 2.0315), 5, 1e-7)
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    inside = left.T @ found @ right.T
    values = inside.diagonal()
    assert ((values > 0.6) & (values < 1.25)).all()
    assert torch.allclose(inside, torch.diag(values), atol=1e-12), "directions stay"


@pytest.mark.parametrize(("config", "fast", "kind"), [
    (c.Muon(), False, torch.optim.Muon), (c.Muon(dtype="auto"), True, torch.optim.Muon),
    (c.Muon(dtype="auto"), False, FloatMuon)])
def test_muon_rounds_where_that_is_fast_or_was_so(config: c.Muon, fast: bool, kind: type,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saucier.training.optimizers.multiplies_bfloat16", lambda device: fast)
    assert type(build_optimizer(config, build(small("gpt2"))).parts[0]) is kind
