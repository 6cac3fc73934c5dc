"""Tensors and a loss of one's own: the loop's weights, its exact resume, and what is refused before the first step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import saucier
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.model import Transformer

STEPS = ["steps=6", "evaluate_every=3", "log_every=1", "events=off", "optimizer.learning_rate=0.01"]


def model(seed: int = 1) -> Transformer:
    """Return a small encoder."""
    return saucier.build(FAMILIES["bert"](16, 1, heads=2, vocab=20, dropout=0.0), seed=seed)


def make_batches(count: int = 4) -> list[tuple[Tensor, Tensor]]:
    """Return rows of ids with a number to be told of each."""
    generator = torch.Generator().manual_seed(0)
    ids = [torch.randint(5, 20, (6, 5), generator=generator) for _ in range(count)]
    return [(one, (one == 7).float().sum(1)) for one in ids]


def squared_error(read: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the mean over the rows."""
    ids, target = batch
    return F.mse_loss(read(ids).last_hidden_state.sum((1, 2)), target)


def equal(first: nn.Module, second: nn.Module) -> bool:
    """Say whether two modules have the same bits."""
    return all(map(torch.equal, first.parameters(), second.parameters()))


def test_a_fit_that_was_stopped_ends_with_the_same_bits(tmp_path: Path) -> None:
    batches, whole, again = make_batches(), model(), model()
    done = saucier.fit(whole, batches, squared_error, training=STEPS, out=tmp_path / "whole", evaluate=batches[:2],
                       quiet=True)
    assert done.steps == 6 and done.reason == "done" and done.scores["loss"] < 10
    calls = 0

    def stops(read: Any, batch: Any) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 9:  # four updates, and the evaluation after the third
            raise KeyboardInterrupt
        return squared_error(read, batch)

    supply = lambda step: batches[step % 4]  # noqa: E731  # the same batches, from a function
    for loss in (stops, squared_error):
        again = model()
        try:
            found = saucier.fit(again, supply, loss, training=STEPS, out=tmp_path / "again", evaluate=batches[:2],
                                quiet=True)
        except KeyboardInterrupt:
            assert loss is stops
    assert equal(whole, again) and found.scores == done.scores and found.loss == done.loss
    assert equal(saucier.load(tmp_path / "again", dtype="float32"), whole)
    third = saucier.fit(other := model(5), batches, squared_error, training=STEPS, out=tmp_path / "whole", quiet=True)
    assert equal(other, whole) and third == done, "a finished one gives its weights and its result again"
    lines = [json.loads(one) for one in (tmp_path / "again/metrics.jsonl").read_text().splitlines()]
    assert [one["step"] for one in lines if "loss" in one] == [1, 2, 3, 4, 5, 6]
    assert "training loss" in (tmp_path / "again/report.html").read_text() and "steps" in repr(done)


def test_micro_batches_change_nothing(tmp_path: Path) -> None:
    found = [saucier.fit(model(), make_batches(), squared_error, training=["steps=1", "events=off", *words], quiet=True,
                         out=tmp_path / f"run{len(words)}").loss for words in ([], ["micro_batch=2"])]
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_a_loss_with_weights_learns_and_batches_may_be_named(tmp_path: Path) -> None:
    class Read(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(16, 1)

        def forward(self, read: Any, batch: dict[str, Tensor]) -> Tensor:
            vectors = read(batch["ids"]).last_hidden_state.mean(1)
            return F.mse_loss(self.out(vectors)[:, 0], batch["target"])

    torch.manual_seed(0)
    loss, begin = Read(), Read()
    begin.load_state_dict(loss.state_dict())
    batches = [{"ids": ids, "target": target} for ids, target in make_batches()]
    found = saucier.fit(model(), batches, loss, training={"steps": 4, "events": "off"}, out=tmp_path / "run",
                        evaluate=lambda read: {"loss": 1.0, "width": read.config.dim}, quiet=True)
    assert not equal(loss, begin) and found.scores == {"loss": 1.0, "width": 16.0}
    loss.load_state_dict(begin.state_dict())
    saucier.fit(model(), batches, loss, training={"steps": 4, "events": "off"}, out=tmp_path / "run", quiet=True)
    assert not equal(loss, begin), "its weights come back, too"


@pytest.mark.parametrize(("changed", "words"), [
    ({"batches": iter(make_batches())}, "batches: is list_iterator; give a list of batches, or a function"),
    ({"batches": []}, "batches: is empty"),
    ({"evaluate": []}, "evaluate: is empty; give a list of batches, or leave it out"),
    ({"batches": [("a", "b")]}, "batch 0: 0 is str; give tensors"),
    ({"batches": [(torch.ones(2, 3), torch.ones(3))]}, "batch 0: rows: 0 2, 1 3; give every tensor the same number"),
    ({"training": {"stps": 3}}, "training: stps: unknown key; did you mean 'steps'?"),
    ({"training": "steps=3"}, "training: is str 'steps=3'; give"),
    ({"loss": 3}, "loss: is int; give a function"),
    ({"loss": lambda read, batch: read(batch[0]).last_hidden_state}, "loss: returned [6, 5, 16] torch.float32; return"),
    ({"loss": lambda read, batch: squared_error(read, batch).detach()}, "loss: returned a number without a gradient"),
    ({"model": 3}, "model: is int 3; give"),
    ({"out": "/dev/null/run"}, "/dev/null: is a file"),
])
def test_what_cannot_be_trained_is_refused_in_one_line(changed: dict[str, Any], words: str, tmp_path: Path) -> None:
    given = {"model": model(), "batches": make_batches(), "loss": squared_error, "training": ["steps=2", "events=off"],
             "out": tmp_path / "run"} | changed
    with pytest.raises(InputError) as caught:
        saucier.fit(given.pop("model"), given.pop("batches"), given.pop("loss"), quiet=True, **given)
    assert str(caught.value).startswith(words) and "\n" not in str(caught.value)


def test_a_folder_of_another_fit_is_refused(tmp_path: Path) -> None:
    batches = make_batches()
    saucier.fit(model(), batches, squared_error, training=["steps=1", "events=off"], out=tmp_path, quiet=True)
    for given, training, words in ((batches, ["steps=2"], "training.steps is 1 there, and 2 here"),
                                   (batches[1:], ["steps=1"], "holds another fit: data is")):
        with pytest.raises(InputError, match=words):
            saucier.fit(model(), given, squared_error, training=training, out=tmp_path, quiet=True)
