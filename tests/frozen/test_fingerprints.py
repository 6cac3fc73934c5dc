"""The fingerprints of what must not change: the quick ones in every run, all of them under `nightly`.

`tools/fingerprints.py` says what they are. The quick ones are made in this process, on whatever processor it runs:
what holds floats is compared by its figures here, and by its bits in the whole.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tools import fingerprints
from tools.frozen import jobs, labelled, models, rows, text, written
from tools.frozen.items import Bits, Exact, Item, Tokens, differences

REMEDY = ("`make fingerprints` compares all of them. What was changed on purpose is stored by `make fingerprints "
          "WHAT=write`, and every line of its difference is reviewed (CONTRIBUTING.md).")
SHOWN = 40
"""Lines of a failure."""
ROWS = ("causal", "masked, whole words", "masked, sentence order", "replaced", "permutation",
        "span corruption", "denoising", "pairs")
TASKS = ("classification of pairs", "tagging", "question answering", "multiple choice, GPT's form",
         "text to text, packed", "instruction, packed")
STARTS = ("decoder gpt2", "decoder mixtral", "decoder transfo_xl", "encoder bert", "encoder deberta_v2", "pair t5",
          "pair bart", "pair seq2seq")
RECIPES = ("gpt2", "bert", "t5")
STEPS = ("gpt-nano",)
"""What is made in every run, of kinds that there are many of."""
Made = Iterator[tuple[str, Item]]


def zoo(*names: str) -> dict[str, models.c.Transformer]:
    """Return some of the small models."""
    found = models.zoo()
    return {name: found[name] for name in names}


QUICK: dict[str, tuple[tuple[str, ...], Callable[[Path], Made]]] = {
    "schemas": (("schemas/",), fingerprints.schemas),
    "recipes": (("recipes/",), fingerprints.recipes),
    "names": (("names/",), fingerprints.names),
    "verbs": (("verbs/",), fingerprints.verbs),
    "codes": (("codes/",), jobs.codes),
    "parameters": (("parameters/decoder ", "parameters/encoder ", "parameters/pair "),
                   lambda place: models.parameters(models.zoo())),
    "parameters of recipes": (tuple(f"parameters/recipe {name}/" for name in RECIPES),
                              lambda place: models.recipe_parameters([*RECIPES])),
    "adapters": (("adapters/",), fingerprints.adapters),
    "starts": (tuple(f"starts/{name}/" for name in STARTS), lambda place: models.starts(zoo(*STARTS))),
    "batches": (tuple(f"batches/{kind}/seed 1/" for kind in ROWS),
                lambda place: rows.batches(text.write_text(place), ROWS, seeds=(1,))),
    "tasks": (tuple(f"tasks/{case}/seed 1/" for case in TASKS),
              lambda place: labelled.tasks(labelled.write_labelled(place), TASKS, seeds=(1,))),
    "tokens": (("tokens/decoder gpt2/", "tokens/pair t5/"),
               lambda place: written.written(zoo("decoder gpt2", "pair t5"), sure=False)),
    "steps": (tuple(f"steps/{name}/" for name in STEPS),
              lambda place: models.steps(text.write_text(place), list(STEPS))),
}
"""The beginnings of the names that are made, and what makes them."""


@pytest.fixture(scope="module")
def known() -> dict[str, Item]:
    return fingerprints.read()[1]


@pytest.mark.parametrize("part", QUICK)
def test_nothing_has_changed(part: str, known: dict[str, Item], tmp_path: Path) -> None:
    beginnings, make = QUICK[part]
    wanted = {name: item for name, item in known.items() if f"{name}/".startswith(beginnings)}
    found = list(differences(wanted, dict(make(tmp_path)), same_machine=False))
    if found:
        pytest.fail("\n".join([f"{len(found)} fingerprints:", *found[:SHOWN], REMEDY]), pytrace=False)
    assert len(wanted) >= len(beginnings)


@pytest.mark.nightly
def test_nothing_at_all_has_changed() -> None:
    done = subprocess.run([sys.executable, fingerprints.__file__, "compare"], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, "\n".join([done.stdout[-4000:], done.stderr[-1000:], REMEDY])


def test_every_part_is_stored(known: dict[str, Item]) -> None:
    assert {fingerprints.part_of(name) for name in known} == fingerprints.PARTS.keys()


BITS = Bits("5a1a", (1.0, 0.0))


@pytest.mark.parametrize(("known", "now", "here", "elsewhere"), [
    (Exact("3"), Exact("3"), False, False),
    (Exact("3"), Exact("4"), True, True),
    (BITS, Bits("07c8", BITS.figures), True, False),
    (BITS, Bits("07c8", (1.0, 2e-5)), True, True),
    (BITS, Bits("5a1a", BITS.figures[:1]), False, True),
    (Tokens((1, 2, 3), sure=2), Tokens((1, 2, 4), sure=3), True, False),
    (Tokens((1, 2, 3), sure=2), Tokens((1, 4, 3), sure=2), True, True),
    (Tokens((1, 2, 3), sure=3), Tokens((1, 2), sure=2), True, False),
])
def test_what_counts_as_a_change_here_and_on_other_machines(known: Item, now: Item, here: bool,
                                                            elsewhere: bool) -> None:
    for same_machine, differs in ((True, here), (False, elsewhere)):
        found = list(differences({"starts/x": known}, {"starts/x": now}, same_machine=same_machine))
        assert [one.split()[:2] for one in found] == [["changed", "starts/x:"]] * differs


def test_what_is_gone_and_new_is_told() -> None:
    found = list(differences({"verbs/a": Exact("1")}, {"verbs/b": Exact("2")}, same_machine=True))
    assert found == ["gone     verbs/a: was 1", "new      verbs/b: is 2"]


def test_what_is_stored_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    items: dict[str, Item] = {"a": Exact("ä"), "b": BITS, "c": Tokens((1, 2), sure=1)}
    monkeypatch.setattr(fingerprints, "FILE", tmp_path / "file.json")
    fingerprints.write(items, {"torch": "2"})
    assert fingerprints.read() == ({"torch": "2"}, items)
