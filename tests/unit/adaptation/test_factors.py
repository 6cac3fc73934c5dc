"""Maps as products of two matrices: equal at full rank, the nearest below it, and fewer ranks that really are gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.laws.zoo import decoder, family, scrambled, tokens
from torch import Tensor, nn

from saucier import config as c
from saucier.adaptation.pruning.methods import HeadPruning, Magnitude, RankPruning
from saucier.adaptation.pruning.prune import prune, prune_model
from saucier.adaptation.quantization.quantize import quantize_model
from saucier.adaptation.quantization.schemes import Quantization
from saucier.adaptation.rewrite import rewrite
from saucier.adaptation.surgery.factors import list_whole_maps
from saucier.adaptation.surgery.operate import operate
from saucier.adaptation.surgery.operations import Factorize, GroupedHeads, Heads, Neurons, Ranks, Windows
from saucier.adaptation.surgery.units import list_places
from saucier.adaptation.tuning import Lora
from saucier.config.counting.model import parameters
from saucier.cost.memory import stack_activations
from saucier.errors import InputError
from saucier.folders.load import load
from saucier.model import Transformer, build
from saucier.parts.linear import LowRankLinear

NAMES = ["bert", "gpt2", "bart", "t5", "llama", "xlnet", "deberta", "deberta_v2", "longformer", "transfo_xl", "gptj",
         "nystromformer", "etc"]
UP, QKV = "encoder.blocks.1.feed_forward.inner.up", "encoder.blocks.0.attention.inner.qkv"


def exact(config: c.Transformer) -> Transformer:
    return scrambled(config).double().eval()


def run(model: Transformer) -> Tensor:
    ids = tokens(model.config, 2, 9).clamp(min=4)
    with torch.no_grad():
        return model(ids, **({"decoder_input_ids": ids.flip(0)} if model.paired else {})).last_hidden_state


def products(model: nn.Module) -> dict[str, LowRankLinear]:
    return {name: one for name, one in model.named_modules() if isinstance(one, LowRankLinear)}


def counted(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_at_full_rank_all_maps_give_the_numbers_that_they_gave(name: str) -> None:
    before = exact(family(name))
    ranks = list_whole_maps(before.config)
    after, same = operate(before, by=[Factorize(ranks=ranks)])
    assert same == float("inf")
    assert products(after).keys() == ranks.keys() and len(ranks) >= 8
    assert torch.allclose(run(after), run(before), rtol=1e-8, atol=1e-10)
    assert counted(after) == parameters(after.config) > parameters(before.config)


def test_a_lower_rank_is_the_nearest_product() -> None:
    """The error is that of the singular values left out: Eckart and Young, by numpy."""
    before = exact(family("bert"))
    after, same = operate(before, by=[Factorize(ranks={UP: 5})])
    weight = before.get_submodule(UP).weight.detach().numpy()
    made = products(after)[UP]
    product = (made.second.weight @ made.first.weight).detach().numpy()
    values = np.linalg.svd(weight, compute_uv=False)
    assert same == 0
    assert np.linalg.norm(weight - product) == pytest.approx(np.sqrt((values[5:]**2).sum()), rel=1e-9)
    assert made.first.weight.shape == (5, 24) and made.second.weight.shape == (96, 5)
    assert made.first.weight.norm(dim=1).tolist() == pytest.approx(np.sqrt(values[4::-1]).tolist(), rel=1e-9)
    assert parameters(before.config) - parameters(after.config) == 24 * 96 - 5 * (24 + 96)


@pytest.mark.parametrize("share", [0.3, 0.7])
@pytest.mark.parametrize("scope", ["model", "matrix"])
def test_ranks_go_until_the_share_is_gone_and_no_further(scope: Any, share: float) -> None:
    """The least squares of singular values by what a rank costs; what two matrices would not make smaller stays."""
    before = exact(family("bert"))
    found = prune(before, RankPruning(share=share, scope=scope))
    weights = {name: before.get_parameter(f"{name}.weight") for name in list_whole_maps(before.config)}
    whole, gone = sum(one.numel() for one in weights.values()), found.before - found.after
    assert found.before - found.after == counted(before) - counted(found.model)
    largest = max(sum(one.shape) for one in weights.values())
    assert share * whole <= gone < share * whole + largest * (1 if scope == "model" else len(weights))
    for name, product in products(found.model).items():
        rank = min(weights[name].shape) - len(found.removed[name])
        left, values, right = torch.linalg.svd(weights[name].detach())
        nearest = left[:, :rank] * values[:rank] @ right[:rank]
        torch.testing.assert_close(product.second.weight @ product.first.weight, nearest, atol=1e-10, rtol=1e-10)
    assert {*found.removed} == {*products(found.model)}
    for name in {*weights} - {*found.removed}:
        assert scope == "model" and torch.equal(found.model.get_parameter(f"{name}.weight"), weights[name])


def test_the_least_ranks_of_all_maps_go_first() -> None:
    before = exact(family("bert"))
    with torch.no_grad():
        before.get_parameter(f"{UP}.weight").mul_(1e-3)
    assert [*prune(before, RankPruning(share=0.02)).removed] == [UP]
    some = prune(before, RankPruning(share=0.5, scope="matrix", where=("*.up",)))
    assert [*some.removed] == [name for name in list_whole_maps(before.config) if name.endswith(".up")]
    with pytest.raises(InputError, match=r"where: 'wheel' meets no map that is one matrix"):
        prune(before, RankPruning(share=0.5, where=("wheel",)))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_fewer_ranks_are_the_model_whose_other_ranks_give_zero(name: str) -> None:
    """Some maps keep half of their ranks, some so many that they are one matrix again, some one."""
    whole = exact(family(name))
    before, _ = operate(whole, by=[Factorize(ranks=list_whole_maps(whole.config))])
    kept, single = {}, set()
    for number, (path, one) in enumerate(products(before).items()):
        rank = one.first.out_features
        kept[path] = [tuple(range(0, rank, 3)), tuple(range(1, rank)), (rank - 1,)][number % 3]
        if len(kept[path]) * (one.in_features + one.out_features) >= one.in_features * one.out_features:
            single.add(path)
    after, _ = operate(before, by=[Ranks(kept=kept)])
    for path, numbers in kept.items():
        with torch.no_grad():
            gone = [one for one in range(products(before)[path].first.out_features) if one not in numbers]
            products(before)[path].first.weight[gone] = 0.0
    assert torch.allclose(run(after), run(before), rtol=1e-8, atol=1e-10)
    assert products(after).keys() == kept.keys() - single and single
    assert counted(after) == parameters(after.config) < parameters(whole.config)


def test_heads_and_neurons_go_from_products_too() -> None:
    whole = exact(family("bart"))
    kept = {path: place.inner for path, place in list_places(whole.config).items()}
    heads = Heads(kept={path: (1, 2) for path, one in kept.items() if hasattr(one, "projection")})
    neurons = Neurons(kept={path: tuple(range(0, 96, 7)) for path, one in kept.items() if hasattr(one, "hidden")})
    factors = Factorize(ranks=list_whole_maps(whole.config))
    first, _ = operate(whole, by=[heads, neurons])
    second, _ = operate(whole, by=[factors, heads, neurons])
    assert torch.allclose(run(first), run(second), rtol=1e-8, atol=1e-10)
    scored = prune_model(operate(whole, by=[factors])[0], HeadPruning(share=0.5, score=Magnitude()))
    assert torch.allclose(run(scored), run(prune_model(whole, HeadPruning(share=0.5, score=Magnitude()))), rtol=1e-8,
                          atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "bart", "llama", "deberta"])
def test_what_is_saved_in_our_layout_is_loaded_again(name: str, tmp_path: Path) -> None:
    before = scrambled(family(name)).eval()
    after, _ = operate(before, by=[Factorize(ranks={path: 2 + number % 3 for number, path in enumerate(
        list_whole_maps(before.config))})])
    with pytest.raises(InputError, match="layout"):
        after.save(tmp_path / "published", layout=name)
    assert after.save(tmp_path / "m") == "saucier"
    again = load(tmp_path / "m")
    assert again.config == after.config and torch.equal(run(again), run(after))
    assert {type(one) for one in products(again).values()} == {LowRankLinear}


def test_a_product_is_built_counted_and_learns() -> None:
    """Shapes as documented: [R, I], then [O, R] with the bias."""
    whole = build(family("bert"))
    config = operate(whole, by=[Factorize(ranks={UP: 4, QKV: 5})])[0].config
    model = build(config, seed=3)
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items() if UP in name or QKV in name}
    assert shapes == {f"{QKV}.first.weight": (5, 24), f"{QKV}.second.weight": (72, 5), f"{QKV}.second.bias": (72,),
                      f"{UP}.first.weight": (4, 24), f"{UP}.second.weight": (96, 4), f"{UP}.second.bias": (96,)}
    stack = config.encoder
    assert stack_activations(stack, 24) == stack_activations(whole.config.encoder, 24) + 4 + 5
    node = next(one for one in c.anatomy(config).leaves() if one.shape == "24 → 4 → 96")
    assert (node.parameters, node.flops) == (4 * 120 + 96, 2.0 * 4 * 120)
    run_grad = model(tokens(config, 2, 9)).last_hidden_state
    run_grad.square().sum().backward()
    assert all(float(one.grad.abs().sum()) > 0 for path in (UP, QKV)
               for one in products(model)[path].parameters() if one.dim() > 1)


def test_a_product_is_tuned_and_quantized_like_other_maps(tmp_path: Path) -> None:
    whole = scrambled(family("bert")).eval()
    made, _ = operate(whole, by=[Factorize(ranks={UP: 4})])
    expected = run(made)
    quantized = quantize_model(operate(made, by=[Neurons(kept={UP.removesuffix(".inner.up"): tuple(range(96))})])[0],
                               Quantization())
    assert not torch.equal(run(quantized), expected)
    assert torch.allclose(run(quantized), expected, atol=0.3)
    quantized.save(tmp_path / "q")
    assert torch.equal(run(load(tmp_path / "q")), run(quantized))
    tuned = rewrite(made, by=Lora(where=("linear",)))
    assert torch.allclose(run(tuned), expected, atol=1e-5)


def test_what_cannot_be_factorized_is_refused() -> None:
    whole = build(family("bert"))
    made, _ = operate(whole, by=[Factorize(ranks={QKV: 4})])
    name = "encoder.blocks.0.attention.inner.qkv"
    cases: list[tuple[Transformer, Any, str]] = [
        (whole, Factorize(ranks={UP: 25}), "a rank of 25 is more than the 24"),
        (whole, Factorize(ranks={"encoder.blocks.9.feed_forward.inner.up": 2}), "there is no map"),
        (made, Factorize(ranks={QKV: 2}), "product of two matrices already"),
        (whole, Ranks(kept={QKV: (0,)}), "has no ranks"),
        (made, Ranks(kept={QKV: (4,)}), "there is no rank 4"),
        (made, Ranks(kept={QKV: ()}), "no rank stays"),
        (made, Windows(width=4), "products of two matrices"), (made, GroupedHeads(count=2), "products of two matrices"),
        (build(family("albert")), Factorize(ranks={name: 2}), "share their weights"),
        (build(family("mobilebert")), Factorize(ranks={"encoder.blocks.0.inside.attention.inner.qkv": 2}),
         "in a bottleneck"),
        (build(family("switch_transformers")), Factorize(ranks={
            "encoder.blocks.1.experts.inner.experts.0.up": 2}), "experts are not factorized"),
        (build(decoder(c.SelfAttention(projection=c.Projection(heads=4), visibility=c.Causal(), kernel=c.Hashing(
            chunks=c.Chunks(length=4), rounds=2, seed=1)))), Factorize(ranks={
                "decoder.blocks.0.attention.inner.qkv": 2}), "hashes are not factorized"),
        (quantize_model(build(family("bert")), Quantization()), Factorize(ranks={UP: 2}), "quantized model"),
        (rewrite(build(family("bert")), by=Lora()), Factorize(ranks={UP: 2}), "adapter")]
    for model, operation, message in cases:
        with pytest.raises(InputError, match=message):
            operate(model, by=[operation])


@pytest.mark.parametrize(("sublayer", "message"), [
    (c.SelfAttention(projection=c.Projection(heads=4, ranks=c.AttentionRanks(kv=2)), visibility=c.Causal()),
     "no map kv"),
    (c.SelfAttention(projection=c.Projection(heads=4, ranks=c.AttentionRanks(out=2)), visibility=c.Causal(),
                     kernel=c.Hashing(chunks=c.Chunks(length=4), rounds=2)), "that hashes are one matrix")])
def test_a_config_with_ranks_that_cannot_be_is_refused(sublayer: c.SelfAttention, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(decoder(sublayer))
