"""Which experiments are made with the fields of published configs, and what of their outcome would be wrong.

`python -m tests.parity.field_trials [FAMILY ...] [--kind KIND] [--out FILE]` makes them and prints how many there were
of each outcome; the file gets a line of JSON for each.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tests.parity import draws
from tests.parity import field_experiment as experiment
from tests.parity import writing_experiment as writing
from tests.parity.field_values import ABSENT, fields, values
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from saucier.checkpoints.fields import GENERATION, SPECIAL_IDS
from saucier.families import LAYOUTS
from saucier.lens.layouts import Ruling, rule_fields

FAMILIES = sorted(path.stem for path in Path(draws.__path__[0]).glob("*.py") if path.stem != "__init__")
WRITES = re.compile("ConditionalGeneration|CausalLM|LMHead|MaskedLM|Decoder|PreTraining|MTModel")
HEADS = re.compile(".*label.*|classif.*|summary.*|.*pad_token_id|problem.*|tie_.*|is_decoder|[sec].*_token_id")
WIDE = 100
"""Sizes above this are not built: what a missing one stands for is compared as a tree."""
SEEDS = 20
"""Configs of a family that are drawn at most."""
PAIRS = 60
"""Pairs of fields that are drawn for each family."""
APART = {
    "position_embedding_type": "only version 4 of the reference reads it; test_positions_of_version_4 has its numbers",
    "per_layer_config": "the reference's own way to say layers one by one; refused",
}
"""Fields of which the experiment cannot find anything, and why."""
GENERATES = {*SPECIAL_IDS, *GENERATION}
"""Fields that change no number of a forward pass; generation refuses ids that are no tokens, and odd values."""
STORED = ("t5", "mt5", "switch_transformers")
"""The reference ties their output matrix whatever `tie_word_embeddings` says, unless the files hold another one."""


@dataclass(frozen=True)
class Trial:
    """Other values of fields of a family's drawn config, read as one of its classes."""

    family: str
    published: str
    seed: int
    changes: dict[str, Any]


@dataclass(frozen=True)
class Found:
    """A trial, what came of it, and what is wrong with that; empty where nothing is."""

    trial: Trial
    outcome: experiment.Outcome
    wrong: str

    @property
    def said(self) -> str:
        """The outcome in a word: fields that are set apart are no faults."""
        if self.wrong:
            return experiment.FAULT
        return "set apart" if self.outcome.kind == experiment.FAULT else self.outcome.kind

    def __str__(self) -> str:
        """Return it as a line."""
        return f"{self.trial.published} {json.dumps(self.trial.changes)}: {self.wrong}"


def main_class(family: str) -> str:
    """Return the class of a family that every value is tried with: one that writes, where there is one."""
    classes = experiment.drawn(family, 0)[1]
    return next((name for name in classes if WRITES.search(name)), classes[0])


def tried(family: str, published: str, seed: int) -> Iterator[tuple[str, Any]]:
    """Yield every field with every value; a missing size is not built."""
    config, start = experiment.drawn(family, seed)[0], experiment.base(family, published, seed)
    layout, kind = LAYOUTS[config.model_type], CONFIG_MAPPING[config.model_type]
    vocab = (config.decoder if family == "encoder_decoder" else config).vocab_size
    default = kind().to_dict() if family != "encoder_decoder" else {}
    for field in fields(layout, family):
        own = start.document.get(field, getattr(config, field, None))
        for value in values(kind, field, own, vocab):
            size = default.get(field) if value == ABSENT else 0
            if value == ABSENT and (field not in start.document or (isinstance(size, int) and size > WIDE)):
                continue
            yield field, value


def alone(family: str) -> list[Trial]:
    """Return every field in every value, one at a time, of the family's main class."""
    published = main_class(family)
    return [Trial(family, published, 0, {field: value}) for field, value in tried(family, published, 0)]


def of_heads(family: str) -> list[Trial]:
    """Return the fields that heads read, and one in twenty of the others, in every class."""
    found = []
    for published in experiment.drawn(family, 0)[1]:
        rng, seed = random.Random(published), seed_of(family, published)
        found += [Trial(family, published, seed, {field: value}) for field, value in tried(family, published, seed)
                  if HEADS.fullmatch(field) or rng.random() < 0.05]
    return found


@cache
def seed_of(family: str, published: str) -> int:
    """Return the first seed of which the drawn config is obeyed as this class."""
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(SEEDS):
            if published in experiment.drawn(family, seed)[1]:
                outcome = experiment.attempt(experiment.base(family, published, seed), seed, {}, Path(folder) / "model")
                if outcome.kind == experiment.OBEYED:
                    return seed
    raise ValueError(f"{published}: no config that was drawn is obeyed")


def in_pairs(family: str) -> list[Trial]:
    """Return random pairs of fields, of another drawn config."""
    rng, published = random.Random(family), main_class(family)
    every = list(tried(family, published, 1))
    return [Trial(family, published, 1, dict(rng.sample(every, 2))) for _ in range(PAIRS)]


@cache
def told_of(family: str, published: str) -> dict[str, Ruling]:
    """Return what the tables say of each field, as `saucier families` shows it."""
    return {found.name: found for found in rule_fields(LAYOUTS[experiment.drawn(family, 0)[0].model_type], published)}


def contradiction(trial: Trial, outcome: experiment.Outcome) -> str:
    """Return what is wrong with an outcome: a fault, or that the tables say something else; empty where nothing is.

    Of several fields any one may be what is refused, or what changes the numbers; an error that names a further field
    of the config refuses both values together, which the tables do not list.
    """
    tied = trial.family in STORED and "tie_word_embeddings" in trial.changes
    if outcome.kind == experiment.ILLEGAL or tied or APART.keys() & trial.changes:
        return ""
    if outcome.kind == experiment.FAULT:
        return outcome.told
    told = told_of(trial.family, trial.published)
    said = {field: told.get(field) for field in trial.changes}
    idle = all(one is not None and not one.acts for one in said.values())
    if outcome.kind == experiment.REFUSED:
        if idle and not GENERATES & trial.changes.keys():
            return "it is refused, and the tables say that it changes no number"
        listed = all(one is not None and listed_in(one, trial.changes[field]) for field, one in said.items())
        further = any(re.search(rf"\b{name}\b", outcome.told) for name in told.keys() - said.keys())
        return "it is refused, and the tables list it" if listed and len(said) == 1 and not further else ""
    if idle and outcome.acts:
        return "it changes numbers, and the tables say that it does not"
    for field, one in said.items():
        value = trial.changes[field]
        if one is None:
            return f"{field} is obeyed, and no table knows it"
        if not (one.values is None or value in (None, ABSENT) or listed_in(one, value)):
            return f"{field} is obeyed, and the tables refuse it"
    return ""


def listed_in(one: Ruling, value: Any) -> bool:
    """Say whether the tables list a value as one that is obeyed."""
    return one.values is not None and value in one.values


def found_of(trials: Iterable[Trial], folder: Path) -> Iterator[Found]:
    """Make trials, and yield what came of each."""
    for trial in trials:
        start = experiment.base(trial.family, trial.published, trial.seed)
        outcome = experiment.attempt(start, trial.seed, trial.changes, folder)
        yield Found(trial, outcome, contradiction(trial, outcome))


def never_obeyed(found: Iterable[Found]) -> list[str]:
    """Return fields of which the tables obey every value, and of which each legal one was refused.

    Only fields that the base has not: the value of the base is obeyed.
    """
    seen: dict[tuple[str, str, str], Counter[str]] = {}
    for one in found:
        start = experiment.base(one.trial.family, one.trial.published, one.trial.seed)
        for field in one.trial.changes.keys() - start.document.keys() if len(one.trial.changes) == 1 else ():
            seen.setdefault((one.trial.family, one.trial.published, field), Counter())[one.outcome.kind] += 1
    return [f"{published} {field}: no value was obeyed, and the tables say that every one is"
            for (family, published, field), kinds in seen.items()
            if kinds[experiment.REFUSED] and not kinds[experiment.OBEYED] and field not in APART
            and field in (told := told_of(family, published)) and told[field].acts and not told[field].refused]


def of_generation(family: str, folder: Path) -> Iterator[Found]:
    """Make every trial of what a folder says of generation."""
    start = writing.writer(family, 0)
    for file, said in writing.cases(family):
        outcome = writing.attempt_writing(start, file, said, folder)
        yield Found(Trial(family, f"{start.published} {file}", 0, said), outcome,
                    outcome.told if outcome.kind == experiment.FAULT else "")


def of_kind(kind: str, family: str, folder: Path) -> Iterator[Found]:
    """Make all trials of a kind that a family has."""
    if kind == "generation":
        return of_generation(family, folder) if family in writing.WRITERS else iter(())
    return found_of(KINDS[kind](family), folder)


KINDS = {"alone": alone, "heads": of_heads, "pairs": in_pairs}


def counted(families: Iterable[str], kind: str, folder: Path, out: Path | None) -> tuple[Counter[str], set[Any]]:
    """Make all trials of a kind, print what is wrong; return how many had each outcome, and the fields of families."""
    counts: Counter[str] = Counter()
    names = set()
    for family in families:
        for found in of_kind(kind, family, folder / family):
            counts[found.said] += 1
            names |= {(family, field) for field in found.trial.changes}
            if found.wrong:
                print(kind, found, flush=True)
            if out is not None:
                outcome = {"outcome": found.outcome.kind, "told": found.outcome.told, "wrong": found.wrong}
                with out.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps({"kind": kind, **asdict(found.trial), **outcome}) + "\n")
    return counts, names


def main(given: list[str]) -> int:
    """Print how many trials there were of each outcome, and every one that is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", nargs="*", default=FAMILIES)
    parser.add_argument("--kind", action="append", choices=[*KINDS, "generation"])
    parser.add_argument("--out", type=Path)
    asked, wrong = parser.parse_args(given), 0
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for kind in asked.kind or [*KINDS, "generation"]:
            counts, names = counted(asked.family, kind, Path(folder), asked.out)
            told = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
            print(f"{kind}: {len({family for family, _ in names})} families, {len(names):,} fields, "
                  f"{counts.total():,} trials: {told}", flush=True)
            wrong += counts[experiment.FAULT]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
