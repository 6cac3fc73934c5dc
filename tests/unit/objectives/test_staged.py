"""Two stages: what rests does not move, weight decay or not; then everything learns."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from tests.unit.training.toy import Doubling, recipe, small, study

from saucier import config as architecture
from saucier.errors import InputError
from saucier.families.bart import with_source_encoder
from saucier.model import Transformer, build
from saucier.objectives import config as o
from saucier.training import hyperparameters as t
from saucier.training.loop import train
from saucier.training.progress import Reporter

QKV = "encoder.blocks.0.attention.inner.qkv"


def body() -> architecture.Transformer:
    """Return a small model with trained positions and a new encoder in front."""
    tree = small("transformer", dropout=0.0)
    positions = architecture.Learned(length=16)
    tree = tree.model_copy(update={"embed": tree.embed.model_copy(update={"positions": positions})})
    return with_source_encoder(tree, 1)


def trained(stage: o.FirstStage, steps: int, folder: Path) -> tuple[Transformer, Transformer]:
    """Return a model before and after training."""
    before, model = build(body(), seed=1), build(body(), seed=1)
    learning = study(o.SequenceToSequence(first_stage=stage), Doubling(), body(), steps)
    learning.objective.bind(model)
    training = recipe(steps, save_every=steps, optimizer=t.AdamW(learning_rate=1e-2, weight_decay=0.5))
    reporters: list[Reporter] = []
    train(model, learning, training, run_folder=folder, reporters=reporters)
    return before, model


def moved(before: Transformer, after: Transformer) -> set[str]:
    """Return the names of the parameters that are not the same to the last bit."""
    other = dict(after.named_parameters())
    return {name for name, value in before.named_parameters() if not torch.equal(value, other[name])}


def test_only_what_is_named_learns_at_first(tmp_path: Path) -> None:
    """BART's choice: the new encoder, positions, and the first map of the encoder; to the last bit, decay or not."""
    stage = o.FirstStage(share=1.0, learns=("source", "embed.positions", QKV))
    before, after = trained(stage, 4, tmp_path)
    names = [name for name, _ in before.named_parameters()]
    wanted = {name for name in names if name.startswith(("source.", "embed.positions.", f"{QKV}."))}
    assert moved(before, after) == wanted
    assert len(wanted) < len(names) / 2
    assert all(parameter.requires_grad for parameter in after.parameters())


def test_then_everything_learns(tmp_path: Path) -> None:
    before, after = trained(o.FirstStage(share=0.5, learns=("source",)), 4, tmp_path)
    assert moved(before, after) == {name for name, _ in before.named_parameters()}


def test_a_run_that_goes_on_is_the_uninterrupted_one(tmp_path: Path) -> None:
    """StoppedError in the first stage, gone on into the second: the same bits."""
    stage = o.FirstStage(share=0.5, learns=("source",))
    _, whole = trained(stage, 6, tmp_path / "whole")
    learning = study(o.SequenceToSequence(first_stage=stage), Doubling(), body(), 6)
    training = recipe(6, save_every=2, optimizer=t.AdamW(learning_rate=1e-2, weight_decay=0.5))
    model = build(body(), seed=1)
    learning.objective.bind(model)
    objective = learning.objective

    class StoppedError(Exception):
        pass

    def broken(step: int) -> object:
        if step == 3:
            raise StoppedError
        return objective.at(step)

    half = dataclasses.replace(learning, objective=Broken(objective, broken))
    with pytest.raises(StoppedError):
        train(model, half, training, run_folder=tmp_path / "parts", reporters=[])
    again = build(body(), seed=1)
    train(again, learning, training, run_folder=tmp_path / "parts", reporters=[])
    assert not moved(whole, again)


class Broken:
    """An objective that stops the training at a step."""

    def __init__(self, inner: object, at: object) -> None:
        self.inner, self.at = inner, at

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


def test_a_name_that_nothing_has_is_said() -> None:
    learning = study(o.SequenceToSequence(first_stage=o.FirstStage(learns=("sauce",))), Doubling(), body(), 4)
    with pytest.raises(InputError, match="no parameter is called sauce"):
        learning.objective.bind(build(body()))
