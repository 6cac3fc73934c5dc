"""Gates that learn: their distribution, the size that they are drawn to, and the smaller model that they leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.laws.zoo import family, scrambled, tokens
from tests.unit.training.test_loop import Presser, equal
from tests.unit.training.toy import IDS, LENGTH, Counting, gpt, recipe
from torch import Tensor

from saucier.adaptation.quantization.quantize import quantize_model
from saucier.adaptation.quantization.schemes import Quantization
from saucier.adaptation.rewrite import rewrite
from saucier.adaptation.surgery.units import list_places
from saucier.adaptation.tuning import Lora
from saucier.config.counting.model import parameters
from saucier.errors import InputError, WorkError
from saucier.folders.load import load
from saucier.model import Transformer, build
from saucier.objectives import config as o
from saucier.objectives.base import ObjectiveInputs
from saucier.objectives.build import build_objective
from saucier.objectives.config.pruning import KeptZeros, OpenPenalty, TargetSize, UnitGates
from saucier.objectives.gates import GatedObjective
from saucier.objectives.pruning import keep_pruned
from saucier.parts.linear import LowRankLinear
from saucier.training.loop import train
from saucier.training.update import TrainingData

BOTH = ("heads", "neurons")


def gated(model: Transformer, by: UnitGates, steps: int = 10) -> GatedObjective:
    _, loss = build_objective(o.Causal(), ObjectiveInputs(IDS, None, steps, LENGTH))
    objective = keep_pruned(loss, by, steps)
    assert isinstance(objective, GatedObjective)
    objective.bind(model)
    return objective


def study(objective: GatedObjective) -> TrainingData:
    corruption, _ = build_objective(o.Causal(), ObjectiveInputs(IDS, None, 10, LENGTH))
    return TrainingData(Counting(), corruption, objective)


def run(model: Transformer) -> Tensor:
    ids = tokens(model.config, 2, 9).clamp(min=4)
    with torch.no_grad():
        return model(ids, **({"decoder_input_ids": ids} if model.paired else {})).last_hidden_state


def set_gates(objective: GatedObjective, spread: float = 8.0) -> None:
    torch.manual_seed(3)
    for raw in objective.state.raw:
        raw.data.copy_((torch.rand_like(raw) - 0.5) * spread / objective.by.faster)


def test_gates_are_open_as_often_as_their_probability_says() -> None:
    """C eq 52 against many draws; in evaluation as many are closed as are expected to be, the likeliest of them."""
    objective = gated(gpt(), UnitGates(aim=OpenPenalty(weight=1.0), units=BOTH))
    set_gates(objective)
    torch.manual_seed(0)
    state = objective.state
    number = 1  # the neurons of a layer
    draws = torch.stack([state.draw(number) for _ in range(4000)])
    assert torch.allclose((draws > 0).float().mean(0), state.probability(number), atol=0.04)
    assert ((draws == 1).any(0) & (draws == 0).any(0)).float().mean() > 0.5  # both ends are reached exactly
    settled, likely = state.settled(number), state.probability(number)
    closed = round(float((1 - likely).sum()))
    assert int((settled == 0).sum()) >= closed
    assert float(likely[settled == 0].max()) <= float(likely[settled > 0].min())


@pytest.mark.parametrize("name", ["bert", "bart", "llama", "t5"])
def test_the_model_that_is_left_gives_the_numbers_of_the_gated_one(name: str) -> None:
    model = scrambled(family(name)).double().eval()
    before = parameters(model.config)
    objective = gated(model, UnitGates(aim=OpenPenalty(weight=1.0), units=BOTH))
    set_gates(objective)
    expected = run(model)
    settled = [objective.state.settled(number) for number in range(len(objective.state.places))]
    assert any(0 < float(one) < 1 for gates in settled for one in gates)  # not all gates are 0 or 1
    made = objective.finished(model)
    assert torch.allclose(run(made), expected, rtol=1e-10, atol=1e-12)
    assert parameters(made.config) < before
    counts = [one.inner for one in list_places(made.config).values()]
    assert all(getattr(one, "hidden", 1) > 0 for one in counts)


def test_gates_stand_where_they_are_asked_for() -> None:
    model = scrambled(family("bart")).double().eval()
    objective = gated(model, UnitGates(aim=OpenPenalty(weight=1.0), where=("decoder.blocks.*.cross",)))
    paths = [one.path for one in objective.state.places]
    assert paths and all(path.endswith(".cross") for path in paths)
    heads = {path: one.inner.projection.heads for path, one in list_places(model.config).items() if path not in paths
             and hasattr(one.inner, "projection")}
    set_gates(objective)
    places = list_places(objective.finished(model).config)
    assert {path: places[path].inner.projection.heads for path in heads} == heads
    with pytest.raises(InputError, match=r"where: 'decoder\.blocks\.\*\.crss' meets no sublayer with heads"):
        gated(model, UnitGates(aim=OpenPenalty(weight=1.0), where=("decoder.blocks.*.crss",)))
    with pytest.raises(InputError, match=r"pruning\.where: ranks are those of all maps"):
        gated(model, UnitGates(aim=OpenPenalty(weight=1.0), units=("ranks",), where=("decoder.*",)))


@pytest.mark.parametrize("name", ["bert", "bart", "llama", "t5", "deberta"])
def test_a_model_without_ranks_gives_the_numbers_of_the_gated_one(name: str) -> None:
    """FLOP: with open gates before = after factorizing; at the end the closed ranks are gone, and one matrix is whole.
    """
    model = scrambled(family(name)).double().eval()
    plain, before = run(model), parameters(model.config)
    objective = gated(model, UnitGates(aim=OpenPenalty(weight=1.0), units=("ranks",)))
    behind = sum(one.whole for one in objective.state.places)
    assert float(objective.state.size().detach()) == 1.0
    for raw in objective.state.raw:
        raw.data.fill_(9.0 / objective.by.faster)
    assert torch.allclose(run(model), plain, rtol=1e-8, atol=1e-10)
    set_gates(objective)
    with torch.no_grad():
        objective.state.raw[0].fill_(9.0 / objective.by.faster)  # all open
        objective.state.raw[1].sub_(6.0 / objective.by.faster)
    expected, places = run(model), objective.state.places
    settled = [objective.state.settled(number) for number in range(len(places))]
    made = objective.finished(model)
    assert torch.allclose(run(made), expected, rtol=1e-8, atol=1e-10)
    stays = [max(1, int((gates > 0).sum())) * one.cost for gates, one in zip(settled, places, strict=True)]
    left = sum(min(one.whole, size) for one, size in zip(places, stays, strict=True))
    assert before - parameters(made.config) == behind - left > 0
    assert sum(one.numel() for one in made.parameters()) == parameters(made.config)
    inner: Any = [made.get_submodule(one.path) for one in places]
    assert [type(one) is LowRankLinear for one in inner] == [
        size < one.whole for one, size in zip(places, stays, strict=True)]
    assert type(inner[0]) is not LowRankLinear and type(inner[1]) is LowRankLinear


def test_what_is_added_to_the_loss() -> None:
    model = gpt()
    objective = gated(model, UnitGates(aim=OpenPenalty(weight=0.5)), 10)
    set_gates(objective)
    data = study(objective)
    batch = data.corruption(Counting()[0], seed=0, step=0)
    loss = objective(model, batch)
    likely = torch.cat([objective.state.probability(number) for number in range(len(objective.state.places))])
    assert float(loss.parts["gates"].total) / loss.parts["gates"].weight == pytest.approx(0.5 * float(likely.mean()))
    target = gated(gpt(), UnitGates(aim=TargetSize(share=0.4, rise=0.5)), 10).at(1)
    assert isinstance(target, GatedObjective)
    target.state.multipliers.data.copy_(torch.tensor([2.0, 3.0]) / target.by.faster)
    size = target.state.size()
    apart = float(size) - (1 - 0.4 * 2 / 5)  # the second of five steps in which the target falls
    penalty = target.penalty(size)
    assert float(penalty) == pytest.approx(2 * apart + 3 * apart**2, rel=1e-5)
    penalty.backward()
    assert torch.allclose(target.state.multipliers.grad, -target.by.faster * torch.tensor([apart, apart**2]), rtol=1e-4)


@pytest.mark.slow
def test_a_target_is_reached(tmp_path: Path) -> None:
    """Counted after the gates are settled: within 1 % of the parameters behind them."""
    model, share, steps = gpt(dropout=0.0), 0.6, 300
    before = parameters(model.config)
    objective = gated(model, UnitGates(aim=TargetSize(share=share), units=("neurons",), faster=30.0), steps)
    behind = sum(one.whole for one in objective.state.places)
    train(model, study(objective), recipe(steps, evaluate_every=1000, save_every=1000), run_folder=tmp_path,
          reporters=[])
    made = objective.finished(model)
    assert (before - parameters(made.config)) / behind == pytest.approx(share, abs=0.01)


@pytest.mark.slow
def test_a_target_of_ranks_is_reached(tmp_path: Path) -> None:
    """FLOP: of the parameters that the maps have as one matrix each, within 1 %; the result is saved and loaded."""
    model, share, steps = gpt(dropout=0.0), 0.6, 300
    before = parameters(model.config)
    objective = gated(model, UnitGates(aim=TargetSize(share=share), units=("ranks",), faster=30.0), steps)
    behind = sum(one.whole for one in objective.state.places)
    train(model, study(objective), recipe(steps, evaluate_every=1000, save_every=1000), run_folder=tmp_path / "run",
          reporters=[])
    ids = torch.arange(4, 20)[None]
    expected = model.eval()(ids).logits
    made = objective.finished(model)
    assert (before - parameters(made.config)) / behind == pytest.approx(share, abs=0.01)
    assert torch.allclose(made(ids).logits, expected, atol=1e-4)
    assert made.save(tmp_path / "m") == "saucier"
    assert torch.equal(load(tmp_path / "m")(ids).logits, made(ids).logits)


@pytest.mark.slow
@pytest.mark.parametrize("units", [BOTH, ("ranks",)])
def test_resumed_it_is_bit_equal(units: Any, tmp_path: Path) -> None:
    by = UnitGates(aim=TargetSize(share=0.5), units=units, faster=30.0)
    models = [gpt(), gpt(), gpt()]
    objectives = [gated(model, by, 8) for model in models]
    train(models[0], study(objectives[0]), recipe(8), run_folder=tmp_path / "whole", reporters=[])
    with pytest.raises(WorkError, match="interrupted"):
        train(models[1], study(objectives[1]), recipe(8), run_folder=tmp_path / "parts", reporters=[Presser(4)])
    train(models[2], study(objectives[2]), recipe(8), run_folder=tmp_path / "parts", reporters=[])
    assert equal(models[0], models[2])
    for one, other in zip(objectives[0].state.parameters(), objectives[2].state.parameters(), strict=True):
        assert torch.equal(one, other)


def test_what_cannot_be_gated_is_refused() -> None:
    by: Any = UnitGates(aim=OpenPenalty(weight=1.0))
    with pytest.raises(InputError, match="share their weights"):
        gated(build(family("albert")), by)
    with pytest.raises(InputError, match="no sublayers with heads"):
        gated(build(family("fnet")), by)
    ranks: Any = by.model_copy(update={"units": ("ranks",)})
    for name, message in (("albert", "share their weights"), ("switch_transformers", "experts"),
                          ("mobilebert", "in a bottleneck"), ("reformer", "hashes")):
        with pytest.raises(InputError, match=message):
            gated(build(family(name)), ranks)
    with pytest.raises(InputError, match="alone"):
        gated(gpt(), by.model_copy(update={"units": ("ranks", "heads")}))
    with pytest.raises(InputError, match="quantized model"):
        gated(quantize_model(gpt(), Quantization()), ranks)
    with pytest.raises(InputError, match="beside an adapter"):
        gated(rewrite(gpt(), by=Lora()), ranks)
    tuned = rewrite(gpt(), by=Lora())
    with pytest.raises(InputError, match="beside an adapter"):
        gated(tuned, by)
    with pytest.raises(InputError, match="beside an adapter"):
        keep_pruned(study(gated(gpt(), by)).objective, KeptZeros(), 5).bind(tuned)
