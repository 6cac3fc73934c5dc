"""Entities in rows of tags, and their strict F1: the type, the first and the last word must all be right.

Three ways to read tags. `lenient` is conlleval's and seqeval's default: it takes IOB1, IOB2 and BIOES alike, and what
is ill-formed as well as can be. `iob2` and `bioes` take only what is well-formed, as seqeval's strict mode.
Source: Tjong Kim Sang and De Meulder 2003, "Introduction to the CoNLL-2003 Shared Task", §2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from saucier.errors import InputError
from saucier.tasks.metrics.classes import Side, macro, micro
from saucier.tasks.metrics.intervals import Sums, ratio
from saucier.tasks.metrics.metric import Metric
from saucier.tasks.metrics.statistics import Floats

TAG = re.compile(r"[BIES]-.+")
OUTSIDE = "O"


class Entity(NamedTuple):
    """Words `first` to `last` (both counted from 0, both inside) are of a type."""

    type: str
    first: int
    last: int


Reader = Callable[[Sequence[str]], list[Entity]]


def lenient(tags: Sequence[str]) -> list[Entity]:
    """Read tags of any scheme; an entity also starts where the type changes, or an I or E stands behind no other."""
    found: list[Entity] = []
    first, before = 0, (OUTSIDE, "")
    for place, tag in enumerate([*tags, OUTSIDE]):
        now = split_tag(tag)
        goes_on = now[0] in "IE" and before[0] in "BI" and now[1] == before[1]
        if before[0] != OUTSIDE and not goes_on:
            found.append(Entity(before[1], first, place - 1))
        if now[0] != OUTSIDE and not goes_on:
            first = place
        before = now
    return found


def iob2(tags: Sequence[str]) -> list[Entity]:
    """Read IOB2: an entity is a B and all I of its type behind it; an I without a B is none."""
    return well_formed(tags, prefixes="BI", alone="B", ends="BI")


def bioes(tags: Sequence[str]) -> list[Entity]:
    """Read BIOES: an entity is an S, or a B, any number of I and an E, all of one type."""
    return well_formed(tags, prefixes="BIES", alone="S", ends="E")


def well_formed(tags: Sequence[str], *, prefixes: str, alone: str, ends: str) -> list[Entity]:
    """Read only what is well-formed; `alone` may be a whole entity, `ends` may be the last tag of a longer one."""
    read = [split_tag(tag) for tag in tags]
    check_prefixes(tags, prefixes)
    found: list[Entity] = []
    for first, (prefix, kind) in enumerate(read):
        if prefix not in ("B", "S"):
            continue
        last = last_inside(read, first, ends) if prefix == "B" else first
        if read[last][0] in (alone if last == first else ends):
            found.append(Entity(kind, first, last))
    return found


def last_inside(read: Sequence[tuple[str, str]], first: int, ends: str) -> int:
    """Give the last word that goes on with the entity that a B began."""
    last = first
    while last + 1 < len(read) and read[last + 1][1] == read[first][1] and read[last + 1][0] in ("I", "E"):
        last += 1
        if read[last][0] == "E":
            break
    return last


def check_prefixes(tags: Sequence[str], prefixes: str) -> None:
    """Raise `InputError` for a tag that is of another scheme."""
    for tag in tags:
        if tag != OUTSIDE and tag[:1] not in prefixes:
            raise InputError(f"{tag!r} is no tag of this scheme, which has {', '.join(prefixes)} and O", where="tags",
                             remedy="read them by the lenient scheme, or convert them")


def split_tag(tag: str) -> tuple[str, str]:
    """Cut `B-PER` into ("B", "PER"); a tag without a type has the type `_`, as in seqeval."""
    return (OUTSIDE, "") if tag == OUTSIDE else (tag[:1], tag[1:].split("-", maxsplit=1)[-1] or "_")


SCHEMES: Mapping[str, Reader] = {"lenient": lenient, "iob2": iob2, "bioes": bioes}


def are_entities(tags: Iterable[str]) -> bool:
    """Tell whether tags mark entities, and not parts of speech or the like."""
    kinds = set(tags)
    return kinds - {OUTSIDE} != set() and all(tag == OUTSIDE or TAG.fullmatch(tag) for tag in kinds)


def entity_types(*sides: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """List the types that any side names."""
    return tuple(sorted({split_tag(tag)[1] for side in sides for tags in side for tag in tags if tag != OUTSIDE}))


def entity_statistics(golds: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]], types: Sequence[str],
                      read: Reader = lenient) -> Floats:
    """Count hits, predicted and gold entities of each type in each sentence. Shapes: N, C types -> [N, 3C]."""
    places, found = {name: place for place, name in enumerate(types)}, np.zeros((len(golds), 3, len(types)))
    for row, (gold, prediction) in enumerate(zip(golds, predictions, strict=True)):
        theirs, ours = set(read(gold)), set(read(prediction))
        for side, entities in enumerate((ours & theirs, ours, theirs)):
            for entity in entities:
                found[row, side, places[entity.type]] += 1
    return found.reshape(len(golds), -1)


def entity_score(side: Side, types: Sequence[str], read: Reader = lenient, scheme: str = "") -> Metric:
    """Precision, recall or F1 of all entities together (micro). Sentences are resampled, not entities."""
    name = f"entity {side}" + f" ({scheme})" * bool(scheme)
    return Metric(name, lambda golds, predictions: Sums(entity_statistics(golds, predictions, types, read),
                                                        micro(side)), "sentences")


def entity_macro_f1(types: Sequence[str], read: Reader = lenient) -> Metric:
    """Mean of the types' F1."""
    return Metric("entity macro F1", lambda golds, predictions: Sums(
        entity_statistics(golds, predictions, types, read), macro), "sentences")


def tag_accuracy() -> Metric:
    """Share of words whose tag is right. Sentences are resampled, since words of one are not independent."""
    def measure(golds: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> Sums:
        rows = [(sum(map(str.__eq__, gold, prediction)), len(gold))
                for gold, prediction in zip(golds, predictions, strict=True)]
        return Sums(np.array(rows, dtype=np.float64).reshape(-1, 2), ratio)

    return Metric("tag accuracy", measure, "sentences")
