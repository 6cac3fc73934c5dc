"""The study files: every arm is a recipe that loads, with one tokenizer, and what they claim of papers is in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from saucier.errors import InputError
from saucier.jobs.comparison.experiment import Classification, Experiment, HeldOutLoss, read_experiment
from saucier.jobs.comparison.preparation import (
    QUIET,
    overrides,
    refuse_mixed_data,
    resolve_arm_recipe,
    shared_tokenizer,
)
from saucier.recipes import recipe

FOLDER = Path(__file__).resolve().parents[4] / "benchmarks" / "studies"
STUDIES = sorted(FOLDER.glob("*.yaml"))


def study(path: Path) -> Experiment:
    """A study as the command line opens it, with texts for its judge."""
    return read_experiment([str(path)], {"judge": HeldOutLoss()})


@pytest.mark.slow
@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_arm_of_a_study_is_a_recipe(path: Path) -> None:
    """As `saucier compare` would prepare it, up to the text."""
    found = study(path)
    assert found.name == path.stem
    recipes = {arm.name: recipe(arm.recipe, overrides(QUIET | found.changes | arm.changes)) for arm in found.arms}
    assert len(recipes) == len(found.arms)
    refuse_mixed_data(recipes)
    shared = {"tokenizer": shared_tokenizer(list(recipes.values()))}
    settled = [resolve_arm_recipe(arm, found, shared) for arm in found.arms]
    assert len({one.tokenizer for one in settled}) == 1


def test_a_study_says_how_and_the_command_line_says_on_which_texts(tmp_path: Path) -> None:
    """The files of a judge are the user's; how long it trains belongs to the study."""
    file = tmp_path / "judged.yaml"
    file.write_text("budget: {kind: tokens, amount: 1000}\njudge: {kind: classify, epochs: 7, limit: 9}\n"
                    "arms: [{name: one, recipe: gpt-nano}]\n", encoding="utf-8")
    given = Classification(train="a.tsv", dev="b.tsv")
    found = read_experiment([str(file)], {"judge": given})
    assert found.judge == Classification(train="a.tsv", dev="b.tsv", epochs=7, limit=9)
    assert read_experiment([str(file)], {"judge": HeldOutLoss()}).judge == HeldOutLoss()


def test_a_study_with_a_judge_asks_for_its_texts() -> None:
    with pytest.raises(InputError, match=r"judge-floor.yaml:\d+: judge.train: is missing"):
        read_experiment([str(FOLDER / "judge-floor.yaml")], {})


def test_the_repeats_are_what_their_names_say() -> None:
    """The budget over the text that is left: 0.3 million tokens, of which a paragraph of WikiText-2 has about 145."""
    found = study(FOLDER / "data-repeats.yaml")
    for arm in found.arms[1:]:
        repeats = int(arm.name.removeprefix("repeats-"))
        assert found.budget.amount / (145 * arm.changes["data.limit"]) == pytest.approx(repeats, rel=0.1)


def test_the_scaling_study_has_what_a_law_needs() -> None:
    """Four sizes and four lengths to fit, and one larger run that is left out."""
    *fitted, largest = study(FOLDER / "scaling.yaml").arms
    assert len({arm.changes["model.dim"] for arm in fitted}) == 4
    assert len({arm.budget.amount for arm in fitted if arm.budget}) == 4
    assert largest.changes["model.dim"] > max(arm.changes["model.dim"] for arm in fitted)
