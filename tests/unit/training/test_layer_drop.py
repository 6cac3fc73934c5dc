"""LayerDrop: the same layers are left out of a whole update, and none in evaluation."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.laws.zoo import family, tokens
from tests.unit.training.test_loop import Listener, Presser, equal
from tests.unit.training.toy import gpt, recipe, small, study

from saucier.adaptation.pruning.methods import EveryNth, LayerPruning
from saucier.adaptation.pruning.prune import prune_model
from saucier.adaptation.surgery.operate import operate
from saucier.adaptation.surgery.operations import Layers
from saucier.checkpoints.fields import put
from saucier.errors import InputError, WorkError
from saucier.folders.load import load
from saucier.model import Transformer, build
from saucier.parts.stack import draw_layers
from saucier.training.loop import train


def dropping(name: str, rate: float) -> Transformer:
    config = family(name)
    stacks = [one for one in ("encoder", "decoder") if getattr(config, one) is not None]
    silent = put(config, {f"{one}.layer_drop": rate for one in stacks})
    return build(silent).double()


def run(model: Transformer) -> torch.Tensor:
    ids = tokens(model.config, 2, 8)
    with torch.no_grad():
        return model(ids, **({"decoder_input_ids": ids} if model.paired else {})).last_hidden_state


@pytest.mark.parametrize("name", ["bert", "gpt2", "bart", "t5", "xlnet"])
def test_nothing_is_left_out_in_evaluation_and_all_at_a_rate_of_one(name: str) -> None:
    config = dropping(name, 0.999999)
    config.load_state_dict(build(family(name)).double().state_dict())
    whole = build(family(name)).double().eval()
    assert torch.equal(run(config.eval()), run(whole))
    for module in config.modules():  # no other randomness
        if hasattr(module, "rate"):
            module.rate = 0.0
    first = run(config.train())
    for stack in (config.encoder, config.decoder):
        if stack is not None:
            for parameter in stack.blocks.parameters():
                parameter.data.fill_(float("nan"))
    assert torch.equal(run(config), first)  # no block was read


def test_what_is_left_out_is_as_the_model_without_those_layers() -> None:
    model = operate(build(small("gpt2", dropout=0.0)), by=[Layers(order=(0, 1, 0, 1))])[0].double()
    counts = set()
    for seed in range(6):
        with draw_layers([model], 0.5, (seed, 0)):
            dropped = model.train().decoder.draw_dropped()
            got = run(model)
        kept = tuple(one for one in range(4) if one not in dropped)
        counts.add(len(kept))
        if kept:
            expected, _ = operate(model, by=[Layers(order=kept)])
            assert torch.equal(run(expected.eval()), got)
    assert len(counts) > 1
    assert model.decoder.layer_draw is None


def test_a_share_of_the_layers_goes() -> None:
    model = build(family("gpt2")).train()
    gone = 0
    for seed in range(2000):
        with draw_layers([model], 0.2, (seed,)):
            gone += len(model.decoder.draw_dropped())
    assert gone / 4000 == pytest.approx(0.2, abs=0.02)


def test_micro_batches_lose_the_same_layers(tmp_path: Path) -> None:
    losses = []
    for size in (None, 1, 3):
        listener = Listener()
        train(gpt(dropout=0.0), study(), recipe(6, micro_batch=size, layer_drop=0.5), run_folder=tmp_path / str(size),
              reporters=[listener])
        losses.append([progress.loss for progress in listener.heard])
    plain = Listener()
    train(gpt(dropout=0.0), study(), recipe(6), run_folder=tmp_path / "plain", reporters=[plain])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert losses[2] == pytest.approx(losses[0], rel=1e-5)
    assert losses[0] != pytest.approx([progress.loss for progress in plain.heard], rel=1e-3)


def test_resumed_it_is_bit_equal(tmp_path: Path) -> None:
    whole, parts = gpt(), gpt()
    train(whole, study(), recipe(7, layer_drop=0.4), run_folder=tmp_path / "whole", reporters=[])
    with pytest.raises(WorkError, match="interrupted"):
        train(parts, study(), recipe(7, layer_drop=0.4), run_folder=tmp_path / "parts", reporters=[Presser(4)])
    again = gpt(seed=3)
    train(again, study(), recipe(7, layer_drop=0.4), run_folder=tmp_path / "parts", reporters=[])
    assert equal(whole, again)


def test_the_rate_of_a_training_is_not_in_the_model_and_that_of_a_config_is(tmp_path: Path) -> None:
    model = gpt()
    train(model, study(), recipe(2, layer_drop=0.4), run_folder=tmp_path, reporters=[])
    assert model.config == small("gpt2", dropout=0.1)
    bart = put(build(family("bart")).config, {"encoder.layer_drop": 0.1, "decoder.layer_drop": 0.2})
    assert build(bart).save(tmp_path / "m") == "bart"
    said = (tmp_path / "m" / "config.json").read_text(encoding="utf-8")
    assert '"encoder_layerdrop": 0.1' in said and '"decoder_layerdrop": 0.2' in said
    assert load(tmp_path / "m").config == bart


def test_every_other_layer_is_taken_out_afterwards() -> None:
    model = build(put(operate(build(family("bert")), by=[Layers(order=(0, 1, 0, 1))])[0].config,
                      {"encoder.layer_drop": 0.5}))
    made = prune_model(model, LayerPruning(choice=EveryNth(rate=0.5)))
    assert len(made.encoder.blocks) == 2
    for place, number in enumerate((0, 2)):
        mine, theirs = made.encoder.blocks[place].state_dict(), model.encoder.blocks[number].state_dict()
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert made.config.encoder.layer_drop is None


@pytest.mark.parametrize("name", ["reformer", "funnel"])
def test_layers_that_hang_together_are_refused(name: str) -> None:
    stack = "encoder" if family(name).encoder else "decoder"
    with pytest.raises(InputError, match="no layer can be left out"):
        build(put(family(name), {f"{stack}.layer_drop": 0.5}))
    with pytest.raises(InputError, match=r"training\.layer_drop"), draw_layers([build(family(name))], 0.5, (0, 0)):
        pass


@pytest.mark.nightly
def test_a_compiled_model_loses_the_same_layers(tmp_path: Path) -> None:
    """Each set of layers is compiled by itself; what is learned is what is learned without compiling."""
    made = [gpt(dropout=0.0) for _ in range(2)]
    for number, model in enumerate(made):
        train(model, study(), recipe(4, layer_drop=0.5, compile=bool(number)), run_folder=tmp_path / str(number),
              reporters=[])
    plain = dict(made[0].named_parameters())
    for name, one in made[1].named_parameters():
        torch.testing.assert_close(one, plain[name], atol=1e-5, rtol=1e-5, msg=name)
