"""The ready chains, a grid of chains, and what the command line says of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.jobs.compression.conftest import QUICK, distil

import saucier
from saucier.cli import main
from saucier.errors import InputError
from saucier.jobs.compression import compress as job
from saucier.jobs.compression.measurement import Measured, Share
from saucier.jobs.compression.outcome import AXES, Compressed, front, judge
from saucier.jobs.compression.settings import ChainList, chain_names, plan_models, read_chain_words
from saucier.jobs.compression.steps import Work, check_steps


def test_the_ready_chains_are_listed_with_what_they_are_for(capsys: pytest.CaptureFixture[str]) -> None:
    found = saucier.compress(quiet=True)
    assert isinstance(found, ChainList)
    assert {one.name for one in found.chains} == {"small", "fast", "tiny", "laptop", "search"} == set(chain_names())
    assert all(len(one.about) > 40 and one.steps for one in found.chains)
    assert main(["compress"]) == 0
    assert "small" in capsys.readouterr().out
    assert main(["compress", "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)["chains"]] == chain_names()


@pytest.mark.slow
@pytest.mark.parametrize("name", chain_names())
def test_a_ready_chain_suits_an_ordinary_model(name: str, teacher: Path) -> None:
    settings, folder, said = read_chain_words(name, ["layout=auto"], str(teacher), {})
    assert folder is None and settings.name == f"{name}-tuned" and "train.tsv" in said
    opened, splits = job.open_teacher(settings)
    check_steps(Work(settings, splits, 48), opened)


def test_a_grid_is_a_tree_of_models(teacher: Path) -> None:
    settings, _, _ = read_chain_words("search", [], str(teacher), {})
    names = [node.name for first in plan_models(settings) for node in first.walk()]
    assert len(names) == len(set(names)) == 4 * 2 * 3 - 1  # all but the teacher itself
    assert names[:3] == ["int8", "int4", "used-tokens"] or names[:3] == ["used-tokens", "used-tokens+int8",
                                                                        "used-tokens+int4"]
    assert "half+used-tokens+int4" in names


@pytest.mark.slow
def test_a_search_gives_the_front_with_intervals(teacher: Path, tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text("name: grid\nkeep: 0.5\ngrid:\n  - - {name: all}\n    - {name: half, step: " + distil(2) + "}\n"
                    "  - - {name: float}\n    - {name: int8, step: {kind: quantize}}\n")
    out = tmp_path / "out"
    found = saucier.compress(path, QUICK, model=teacher, bound="keep=0.6", search=True, out=out, quiet=True)
    assert isinstance(found, Compressed)
    assert {one.name for one in found.steps} == {"int8", "half", "half+int8"} and found.settings.keep == 0.6
    ranked = front((found.teacher, *found.steps), AXES["disk"])
    assert ranked[0].name == "half+int8" and found.model == out / "steps/half+int8/model"
    assert [(one.larger, one.smaller) for one in found.pairs] == [
        (large.name, small.name) for large, small in zip(ranked[:0:-1], ranked[-2::-1], strict=True)]
    assert all(one.low <= one.difference <= one.high and 0 < one.p <= 1 for one in found.pairs)
    assert all(one.verdict == "not enough data to tell" for one in found.pairs if one.difference == 0)
    again = saucier.compress(out, quiet=True)
    assert isinstance(again, Compressed) and again.pairs == found.pairs
    if found.pairs:
        assert "neighbours on the front" in repr(found)
        assert "Neighbours on the front" in (out / "report.html").read_text()


@pytest.mark.slow
def test_the_time_of_a_search_is_limited(teacher: Path, tmp_path: Path) -> None:
    found = saucier.compress("laptop", QUICK, model=teacher, budget=1e-9, out=tmp_path / "out", quiet=True)
    assert isinstance(found, Compressed) and found.steps == () and found.failed
    assert "not made: 1-prune, 2-quantize" in repr(found)


def test_a_search_needs_a_grid_and_a_bound_its_name(teacher: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="small: has steps, and a search tries a grid"):
        saucier.compress("small", model=teacher, search=True, quiet=True)
    with pytest.raises(InputError, match=r"--bound: there is no bound 'size=3'; write keep=SHARE"):
        saucier.compress("small", model=teacher, bound="size=3", quiet=True)
    for grid, said in (("[[{name: a}]]", "no alternative of the grid has a `step`"),
                       ("[[{name: a, step: {kind: quantize}}, {name: a, step: {kind: quantize}}]]", "have one name")):
        (tmp_path / "grid.yaml").write_text(f"name: grid\ngrid: {grid}\n")
        with pytest.raises(InputError, match=said):
            saucier.compress(tmp_path / "grid.yaml", model=teacher, quiet=True)


def point(name: str, disk: int, kept: float) -> Measured:
    """Return a model of a size that keeps so much."""
    share = Share(value=kept, low=kept - 0.01, high=kept + 0.01)
    made = Measured.model_construct(name=name)
    object.__setattr__(made, "size", type("Size", (), {"disk": disk})())
    object.__setattr__(made, "splits", {"held-out": type("Split", (), {"kept": share})()})
    return made


def test_the_front_holds_what_none_other_beats() -> None:
    models = [point("teacher", 100, 1.0), point("half", 50, 0.99), point("worse", 60, 0.98), point("equal", 50, 0.99),
              point("tiny", 10, 0.7), point("bad", 20, 0.6)]
    assert [one.name for one in front(models, AXES["disk"])] == ["tiny", "half", "equal", "teacher"]


@pytest.mark.parametrize(("low", "value", "high", "said"), [
    (0.96, 0.98, 1.0, "the bound of 95.0% holds"), (0.9, 0.98, 1.0, "holds here; too few rows to be sure of it"),
    (0.8, 0.9, 0.94, "is broken"), (0.8, 0.9, 0.99, "is broken here; too few rows to be sure of it")])
def test_few_rows_are_said_to_be_few(low: float, value: float, high: float, said: str) -> None:
    verdict = judge(Share(value=value, low=low, high=high), 0.95)
    assert verdict.line.endswith(said) and verdict.holds == (value >= 0.95) and verdict.sure == ("sure" not in said)
