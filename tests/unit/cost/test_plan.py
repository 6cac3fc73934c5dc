"""`saucier plan`: what is counted, what is measured, and how the two become a plan."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import saucier
from saucier import config as c
from saucier.config import flops_per_token, parameters
from saucier.cost import calibration, workload
from saucier.cost.calibration import Calibration
from saucier.cost.planning import PLAN_FILE, Plan, add_times, make_plan, measuring_seconds, read_plan
from saucier.cost.workload import STATES, StepTokens, training_flops
from saucier.errors import InputError, WorkError
from saucier.objectives.config import Masked, SpanMasking
from saucier.recipes import Recipe, names, recipe
from saucier.text.rows.batch import PairRows, Rows
from saucier.text.rows.running import number_documents

SMALL = ("model.dim=32", "model.layers=2", "tokenizer.vocab=300", "training.batch=4", "training.length=16",
         "training.steps=10")
MEASURED = Calibration(dtype="bfloat16", how="whole", micro_seconds=0.5, update_seconds=0.1, evaluation_seconds=1e-4,
                       growth=1000, base=200, machine="here", threads=1)


def small(*more: str) -> Recipe:
    """A recipe that is over in no time."""
    return recipe("gpt-nano", [*SMALL, *more])


@pytest.mark.sampled
@pytest.mark.parametrize("name", names())
def test_every_recipe_can_be_planned_without_measuring(name: str) -> None:
    found = recipe(name)
    plan = make_plan(found, seconds=None)
    assert plan.parameters == parameters(found.model)
    assert plan.tokens > 0
    assert plan.seconds is None
    assert plan.peak_memory is None
    kept = 4 * (2 + STATES[found.training.optimizer.kind])  # weights, gradients, and what the optimizer remembers
    assert sum(plan.memory.values()) >= kept * plan.parameters
    assert any("nothing was measured" in note for note in plan.notes)


@pytest.mark.sampled
@pytest.mark.parametrize("name", names())
def test_the_work_is_near_six_flops_for_each_parameter_and_token(name: str) -> None:
    """Weights that several layers share count as often as they are used, a table that is only looked up not at all."""
    found = recipe(name)
    plan, language = make_plan(found, seconds=None), found.model.language_head
    looked_up = 0 if language is None or language.tied else found.model.embed.vocab * found.model.dim
    assert 0.2 < plan.flops / (6 * (parameters(unshared(found.model)) - looked_up) * plan.tokens) < 2


def unshared(model: c.Transformer) -> c.Transformer:
    """Return the model with weights of its own in every layer."""
    stack = model.encoder
    if stack is None or not isinstance(stack.layers, c.Share):
        return model
    layers = c.Repeat(block=stack.layers.block, times=stack.layers.times * stack.layers.inner)
    return model.model_copy(update={"encoder": stack.model_copy(update={"layers": layers})})


def test_a_causal_model_reads_all_but_the_last_token_of_a_row() -> None:
    found = small()
    plan = make_plan(found, seconds=None)
    assert plan.tokens == 10 * 4 * 16
    assert 0.9 * plan.tokens < plan.targets < plan.tokens  # the last token of each document has no next one
    body = flops_per_token(found.model.model_copy(update={"head": None}), 16)
    head = flops_per_token(found.model, 16) - body
    assert plan.flops == pytest.approx(3 * (body * plan.tokens + head * plan.targets))


def test_micro_batches_and_evaluations_are_added_up() -> None:
    found = small("training.micro_batch=2", "training.evaluate_every=4")
    work = workload.make_workload(found, found.vocab)
    plan = add_times(make_plan(found, seconds=None), found, work, measured=MEASURED, held_out=1000, program=None)
    assert plan.step_seconds == pytest.approx(2 * 0.5 + 0.1)
    assert plan.evaluation_seconds == pytest.approx(3 * 1000 * 1e-4)
    assert plan.seconds == pytest.approx(10 * 1.1 + 0.3)
    assert plan.peak_memory == 1200
    assert add_times(plan, found, work, measured=MEASURED, held_out=0, program=7000).peak_memory == 8000


@pytest.mark.slow
def test_the_probe_measures_real_updates() -> None:
    plan = make_plan(small(), seconds=0.1, held_out_tokens=100)
    assert plan.seconds is not None
    assert 0 < plan.seconds < 60
    assert plan.step_seconds is not None
    assert plan.step_seconds * 10 <= plan.seconds
    assert plan.peak_memory is not None
    assert plan.peak_memory > sum(plan.memory.values())
    assert not any("scaled" in note for note in plan.notes)


def test_a_failed_probe_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "PATIENCE", 1e-3)
    with pytest.raises(WorkError, match="--no-calibrate"):
        make_plan(small())


def test_a_busy_machine_does_not_end_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(calibration, "PATIENCE", 1e-3)
    (tmp_path / "text.txt").write_text("the cook stirs the soup\n\n" * 200, encoding="utf-8")
    saucier.cook("shakespeare", ["training.steps=2", "training.batch=2", "training.length=16", "model.layers=1",
                                 "model.dim=16", "model.heads=2", "sampling.tokens=2"],
                 data=[tmp_path / "text.txt"], out=tmp_path / "run")
    assert "took more than" in capsys.readouterr().out
    assert (tmp_path / "run" / "report.html").is_file()


def test_steps_end_in_time_and_are_few_in_a_short_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two are made however long they take; the first one, which fetches memory, does not tell how long others take."""
    from saucier.cost import probe

    def counted(end: float, most: int, each: float, first: float = 1.0) -> int:
        now = [0.0]
        monkeypatch.setattr(probe.time, "time", lambda: now[0])
        done = 0
        for done in probe.count_steps_until(end, most):
            now[0] += each if done else first
        return done + 1

    assert counted(5.0, 1000, each=10.0, first=10.0) == 2
    assert counted(5.0, 1000, each=0.5) == 8  # a ninth, and an evaluation, would end too late
    assert counted(5.0, 3, each=0.1) == probe.WARM_UP_STEPS + 2
    assert counted(5.0, 6, each=0.1) == 6


def test_the_largest_batch_is_tried_first() -> None:
    from saucier.cost.probe import largest_batch

    found = recipe("transformer-nano")
    batches = workload.make_workload(found, found.vocab).batches
    places = [batch.source.size + batch.target.size for batch in batches if isinstance(batch, PairRows)]
    assert places[largest_batch(batches)] == max(places)


def test_reading_a_batch_and_scoring_the_mean_of_checkpoints_take_time() -> None:
    found = small("training.evaluate_every=5")
    work = workload.make_workload(found, found.vocab)
    plan = make_plan(found, seconds=None)
    slow = replace(work, seconds=2.0)
    alone, read = (add_times(plan, found, one, measured=MEASURED, held_out=1000, program=None) for one in (work, slow))
    assert alone.seconds is not None and read.seconds is not None
    assert read.seconds == pytest.approx(alone.seconds + 10 * 2.0)
    averaged = small("training.evaluate_every=5", "training.average=2")
    both = add_times(plan, averaged, work, measured=MEASURED, held_out=1000, program=None)
    assert both.evaluation_seconds == pytest.approx(alone.evaluation_seconds * 3 / 2)


def test_two_layers_tell_how_long_many_take() -> None:
    from saucier.cost.probe import Measurement, extrapolate, shrink_model

    found = recipe("gpt-nano", ["model.layers=10"])
    sizes = [shrink_model(found.model, layers) for layers in (1, 2)]
    assert [len(size.decoder.blocks()) for size in sizes if size.decoder] == [1, 2]
    samples = [Measurement(micro=2 + layers, update=parameters(size), evaluate=1 + layers,
                           growth=100 * layers, flops=flops_per_token(size, 128),
                           parameters=parameters(size)) for layers, size in zip((1, 2), sizes, strict=True)]
    whole = extrapolate(*samples, found.model, length=128, more=1000)
    assert whole.micro == pytest.approx(12)
    assert whole.update == pytest.approx(parameters(found.model))
    assert whole.evaluate == pytest.approx(11)
    assert whole.growth == 1200


@pytest.mark.slow
@pytest.mark.parametrize(("free", "note"), [(200_000_000, "scaled up"), (1000, "too large to try")])
def test_what_is_too_large_is_measured_in_parts(free: int, note: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from saucier.cost import planning, probe

    found = small("model.layers=8", "model.dim=256", "training.length=128")

    def here(one: Recipe, work: workload.Workload, *, seconds: float) -> Calibration:
        with TemporaryDirectory() as folder:
            work.save(Path(folder) / "rows.npz")
            rows = str(Path(folder) / "rows.npz")
            return probe.measure_job(calibration.CalibrationJob(recipe=one.as_dict(), rows=rows, ids=work.ids,
                                                                seconds=seconds))

    monkeypatch.setattr(probe.machine, "available_memory", lambda: free)
    monkeypatch.setattr(planning, "calibrate", here)
    planned = planning.make_plan(found, seconds=0.2)
    assert any(note in said for said in planned.notes)
    assert planned.seconds is not None
    assert planned.seconds > 0
    assert planned.peak_memory is not None
    assert planned.peak_memory > 16 * planned.parameters


def test_memory_that_grows_goes_on_growing_ever_more_slowly() -> None:
    from saucier.cost.probe import SATURATED, steady_memory

    same = [100, 100, 101, 101, 101, 101]
    assert steady_memory(same, 1000) == 101
    growing = [int(100 + 50 * math.log(step)) for step in range(1, 21)]
    assert steady_memory(growing, 20) == growing[-1]
    assert steady_memory(growing, 100) == pytest.approx(100 + 50 * math.log(100), rel=0.05)
    assert steady_memory(growing, 10**6) == steady_memory(growing, SATURATED)


def test_batches_survive_being_written(tmp_path: Path) -> None:
    work = workload.make_workload(small(), 300)
    work.save(tmp_path / "rows.npz")
    again = workload.load_workload(tmp_path / "rows.npz")
    assert len(again) == len(work.batches) == workload.count_trial_batches(small())
    for one, two in zip(work.batches, again, strict=True):
        assert isinstance(one, Rows)
        assert isinstance(two, Rows)
        assert np.array_equal(one.tokens, two.tokens)
        assert np.array_equal(one.positions, two.positions)


@pytest.mark.sampled
@pytest.mark.parametrize("name", names())
def test_made_up_batches_fit_the_model(name: str) -> None:
    found = recipe(name)
    longest = workload.row_tokens(found)
    for rows in workload.make_workload(found, found.vocab).batches:
        tokens = [rows.source, rows.target] if isinstance(rows, PairRows) else [rows.tokens]
        assert min(ids.min() for ids in tokens) >= 0
        assert max(ids.max() for ids in tokens) < found.vocab
        assert max(ids.shape[1] for ids in tokens) <= longest


def test_positions_start_again_with_every_document() -> None:
    starts = np.array([[False, False, True, False, True, True]])
    _, positions = number_documents(starts.cumsum(axis=1))
    assert positions.tolist() == [[0, 1, 0, 1, 0, 0]]


def test_a_plan_is_read_back(tmp_path: Path) -> None:
    assert read_plan(tmp_path) is None
    plan = make_plan(small(), seconds=None)
    plan.write(tmp_path)
    assert read_plan(tmp_path) == plan
    (tmp_path / PLAN_FILE).write_text('{"recipe": 1}')
    with pytest.raises(InputError, match="not a plan"):
        read_plan(tmp_path)


def test_speed_counts_tokens_that_are_read_and_evaluations() -> None:
    plan = Plan(recipe="x", parameters=1, steps=10, tokens=3000, targets=1000, flops=1, dtype="float32", memory={},
                step_seconds=2.0, seconds=20)
    assert plan.tokens_per_second == 150


def test_the_memory_of_a_process_can_be_read() -> None:
    code = """
import numpy
from saucier import machine
machine.reset_peak_memory()
before = machine.peak_resident_memory()
held = numpy.ones(20_000_000)
print(machine.peak_resident_memory() - before > 150_000_000,
      machine.resident_memory() <= machine.peak_resident_memory(), held.sum() > 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * 3


def test_the_span_boundary_network_is_counted() -> None:
    """Two dense layers and the output matrix, three times as much with its backward pass."""
    spans = recipe("spanbert-nano")
    plain = spans.model_copy(update={"objective": Masked(choice=SpanMasking())})
    tokens = StepTokens(1000, 0, 150, 150)
    found = training_flops(spans, 4000, tokens) - training_flops(plain, 4000, tokens)
    by_hand = 2 * ((2 * 128 + 50) * 128 + 128 * 128 + 128 * 4000)
    assert found == pytest.approx(3 * 150 * by_hand)


@pytest.mark.parametrize(("flops", "seconds"), [(1e9, 1.0), (4e11, 2.0), (1e15, 5.0)])
def test_a_short_training_is_measured_shortly(flops: float, seconds: float) -> None:
    assert measuring_seconds(flops) == seconds
