"""Entities as tags of words, in the schemes of files (IOB1, IOB2, BIOES): read, recognized, repaired and
rewritten.

`lenient` is conlleval's and seqeval's default: it takes all three schemes, ill-formed tags as well. `iob2` and
`bioes` take only what is well-formed, as seqeval's strict mode. Source: Tjong Kim Sang and De Meulder 2003,
CoNLL-2003, §2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from saucier.errors import InputError
from saucier.tasks.definitions import AsWritten, Scheme
from saucier.tasks.examples import Tally

TAG = re.compile(r"[BIES]-.+")
OUTSIDE = "O"


class Entity(NamedTuple):
    """Words `first` to `last` (both counted from 0, both inside) are of a type."""

    type: str
    first: int
    last: int


Reader = Callable[[Sequence[str]], list[Entity]]


def read_lenient(tags: Sequence[str]) -> list[Entity]:
    """Read tags of any scheme; an entity also starts where the type changes, or an I or E is after no other."""
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


def split_tag(tag: str) -> tuple[str, str]:
    """Cut `B-PER` into ("B", "PER"); a tag without a type has the type `_`, as in seqeval."""
    return (OUTSIDE, "") if tag == OUTSIDE else (tag[:1], tag[1:].split("-", maxsplit=1)[-1] or "_")


def are_entities(tags: Iterable[str]) -> bool:
    """Tell whether tags mark entities, and not parts of speech or the like."""
    kinds = set(tags)
    return kinds - {OUTSIDE} != set() and all(tag == OUTSIDE or TAG.fullmatch(tag) for tag in kinds)


Tags = tuple[str, ...]
Writer = Callable[[Sequence[Entity], int], Tags]


def iob1_tags(entities: Sequence[Entity], length: int) -> Tags:
    """Write IOB1: every word of an entity is an I; the first is a B only where one of its type is right before it.

    Source: Ramshaw and Marcus 1995, §4.1, arXiv:cmp-lg/9505040.
    """
    tags, before = [OUTSIDE] * length, Entity("", -2, -2)
    for one in entities:
        tags[one.first:one.last + 1] = [f"I-{one.type}"] * (one.last + 1 - one.first)
        if before.last == one.first - 1 and before.type == one.type:
            tags[one.first] = f"B-{one.type}"
        before = one
    return tuple(tags)


def well_formed_tags(entities: Sequence[Entity], length: int, *, alone: str, last: str) -> Tags:
    """Write a B, then I, and at the end `last`; an entity of one word is `alone`."""
    tags = [OUTSIDE] * length
    for kind, first, final in entities:
        prefixes = alone if first == final else ["B", *"I" * (final - first - 1), last]
        tags[first:final + 1] = [f"{prefix}-{kind}" for prefix in prefixes]
    return tuple(tags)


WRITERS: Mapping[str, Writer] = {"IOB2": partial(well_formed_tags, alone="B", last="I"), "IOB1": iob1_tags,
                                 "BIOES": partial(well_formed_tags, alone="S", last="E")}
PREFIXES: Mapping[str, str] = {"iob2": "BI", "bioes": "BIES"}
"""What is written before a type, by the kind of scheme."""


def read_well_formed(tags: Sequence[str], scheme: str) -> list[Entity]:
    """Read only entities that are tagged as a scheme of `PREFIXES` writes them.

    Raises `InputError` for a tag that is of another scheme.
    """
    for tag in tags:
        if tag != OUTSIDE and tag[:1] not in PREFIXES[scheme]:
            raise InputError(f"{tag!r} is no tag of this scheme, which has {', '.join(PREFIXES[scheme])} and O",
                             where="tags", remedy="read them by the lenient scheme, or convert them")
    entities = read_lenient([tag or OUTSIDE for tag in tags])
    read, written = ([split_tag(tag) for tag in side]
                     for side in (tags, WRITERS[scheme.upper()](entities, len(tags))))
    return [one for one in entities if read[one.first:one.last + 1] == written[one.first:one.last + 1]]


read_iob2: Reader = partial(read_well_formed, scheme="iob2")
"""Reads IOB2: an entity is a B and all I of its type after it; an I without a B is none."""
read_bioes: Reader = partial(read_well_formed, scheme="bioes")
"""Reads BIOES: an entity is an S, or a B, any number of I and an E, all of one type."""
SCHEMES: Mapping[str, Reader] = {"lenient": read_lenient, "iob2": read_iob2, "bioes": read_bioes}


def detect_scheme(sentences: Sequence[Tags]) -> tuple[str, int]:
    """Return the scheme that most tags are legal in, and how many it would write otherwise for the same entities.

    Of equal ones IOB2, then IOB1.
    """
    wrong = {name: sum(sum(map(str.__ne__, tags, write(read_lenient(tags), len(tags)))) for tags in sentences)
             for name, write in WRITERS.items()}
    best = min(wrong, key=lambda name: wrong[name])
    return best, wrong[best]


def scheme_remarks(sentences: Sequence[Tags], scheme: Scheme) -> Tally:
    """Count what a scheme makes of a file's tags: those that are repaired, and sentences of another scheme."""
    name, wrong = detect_scheme(sentences)
    kept = isinstance(scheme, AsWritten)
    found = Tally({f"tags are not legal in {name}" + (" and stay as they are" if kept else ": repaired"): wrong})
    if not kept and name.lower() != scheme.kind:
        found[f"sentences are tagged in {name}: rewritten in {scheme.kind.upper()}"] = len(sentences)
    return +found


def rewrite_tags(tags: Tags, scheme: Scheme) -> Tags:
    """Write the entities of any tags, ill-formed ones too, in a scheme; tags that are kept come back as they are."""
    write = WRITERS.get(scheme.kind.upper())
    return tags if write is None else write(read_lenient(tags), len(tags))


def all_tags(tags: Sequence[str], scheme: Scheme) -> Tags:
    """Return every tag that a scheme has for the types of some tags, O first, so that none lacks in a small file."""
    prefixes = PREFIXES.get(scheme.kind)
    if prefixes is None:
        return tuple(sorted(set(tags)))
    types = sorted({split_tag(tag)[1] for tag in tags if tag != OUTSIDE})
    return (OUTSIDE, *(f"{prefix}-{kind}" for kind in types for prefix in prefixes))
