"""A verb that is killed, or meets a full disk, ends with the results of one that was left alone when it is run again.

Nobody cleans up in between, nothing is left beside the results, and everything is compared byte for byte but times.
"""

from __future__ import annotations

import json
import random

import pytest
from tests.kills.conftest import Alone
from tests.kills.driver import Kitchen, Moment, differences
from tests.kills.jobs import JOBS

DONE_BEFORE = ("is there already", "holds a finished corpus")
"""What verbs that write into a new place only say where the result is whole."""
MOMENTS = 20


def check(name: str, kitchen: Kitchen, alone: Alone, *moments: Moment) -> None:
    """End a verb at some moments, one start after the other, and compare what it leaves in the end."""
    _, wanted = alone(name)
    ended, found = kitchen.run(JOBS[name], *moments)
    told = f"{name}, {moments}: {[one.events[-1:] for one in ended]}\n{ended[-1].said}"
    for one, moment in zip(ended[:-1], moments, strict=True):
        if moment.how == "full":
            assert one.code == 1, told + one.said
            (error,) = [line for line in one.said.splitlines() if line.startswith("error: ")]
            assert ": cannot write: " in error, told
        elif not moment.pause:
            assert one.code == -9, told
    finished = ended[-1].code == 2 and any(words in ended[-1].said for words in DONE_BEFORE)
    assert ended[-1].code == 0 or finished, told
    assert not differences(wanted, found), told


ORDINARY = {"cook": ("open", "best.json"), "finetune": ("open", "scores.json"),
            "search": ("open", "search.json"), "compare": ("open", "scores.json"),
            "clean": ("os.rename", ".work/final"), "prompt": ("open", "scores.json"),
            "convert": ("open", "tokenizer.json"), "merge": ("open", "tokenizer.json"),
            "compress": ("open", "measured.json"), "backtranslate": ("os.rename", "out.tsv")}
"""One moment of each verb, before the last such event: between the last checkpoint and the pointer to the best one, the
model and its scores, a search's last round and its best, a comparison's last run and its scores, two files of a corpus
that are moved to their place, the answers and the scores, the weights and the tokenizer, twice; the last step of a
chain and its figures; before the table is in its place."""


@pytest.mark.parametrize("name", JOBS)
def test_a_verb_that_is_killed_ends_as_if_left_alone(name: str, kitchen: Kitchen, alone: Alone) -> None:
    events = alone(name)[0].events
    check(name, kitchen, alone, Moment(max(n for n, one in enumerate(events) if all(w in one for w in ORDINARY[name]))))
    if name in ("cook", "finetune"):
        assert json.loads((kitchen.place / "out/passport.json").read_text())["parts"] == 2


def test_a_step_of_a_chain_that_is_finished_is_never_made_again(kitchen: Kitchen, alone: Alone) -> None:
    """Killed a little after the figures of the second step were begun: nothing of the first two is written again."""
    events = alone("compress")[0].events
    place = max(n for n, one in enumerate(events) if "/steps/2-prune/" in one and "measured.json" in one)
    ended, found = kitchen.run(JOBS["compress"], Moment(place + 5))
    assert ended[0].code == -9 and not differences(alone("compress")[1], found)
    assert any("/steps/3-prune/" in one for one in ended[1].events)
    assert not [one for one in ended[1].events if "/steps/1-distil/" in one or "/steps/2-prune/" in one]


@pytest.mark.nightly
@pytest.mark.parametrize("name", JOBS)
def test_killed_at_random_moments(name: str, kitchen: Kitchen, alone: Alone) -> None:
    """Twenty moments; every other one some time after an event instead of just before it."""
    dice, events = random.Random(f"{name} 1"), len(alone(name)[0].events)
    for number in range(MOMENTS):
        check(name, kitchen, alone, Moment(dice.randrange(events), pause=dice.random() * 0.05 * (number % 2)))


@pytest.mark.nightly
@pytest.mark.parametrize("name", JOBS)
def test_a_disk_that_is_full_for_a_while(name: str, kitchen: Kitchen, alone: Alone) -> None:
    """One line says so; with space again it goes on."""
    dice, ended = random.Random(f"{name} 2"), alone(name)[0]
    written = [number for number, event in enumerate(ended.events) if " open " in event]
    for number in dice.sample(written, min(5, len(written))):
        check(name, kitchen, alone, Moment(number, "full"))
