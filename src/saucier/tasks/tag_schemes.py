"""Tags of entities in the ways that files write them: IOB1, IOB2, BIOES; told apart, repaired, rewritten."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from saucier.tasks.config import BIOES, IOB2, AsWritten, Scheme
from saucier.tasks.examples import Tally
from saucier.tasks.metrics.entities import OUTSIDE, Entity, lenient, split_tag

Tags = tuple[str, ...]
Writer = Callable[[Sequence[Entity], int], Tags]


def iob1_tags(entities: Sequence[Entity], length: int) -> Tags:
    """Write IOB1: every word of an entity is an I; the first is a B only where one of its type stands right before.

    Source: Ramshaw and Marcus 1995, §4.1, arXiv:cmp-lg/9505040.
    """
    tags, before = [OUTSIDE] * length, Entity("", -2, -2)
    for one in entities:
        tags[one.first:one.last + 1] = [f"I-{one.type}"] * (one.last + 1 - one.first)
        if before.last == one.first - 1 and before.type == one.type:
            tags[one.first] = f"B-{one.type}"
        before = one
    return tuple(tags)


def iob2_tags(entities: Sequence[Entity], length: int) -> Tags:
    """Write IOB2: a B, then I."""
    tags = [OUTSIDE] * length
    for kind, first, last in entities:
        tags[first:last + 1] = [f"B-{kind}", *[f"I-{kind}"] * (last - first)]
    return tuple(tags)


def bioes_tags(entities: Sequence[Entity], length: int) -> Tags:
    """Write BIOES: an S alone, or a B, then I, and an E."""
    tags = [OUTSIDE] * length
    for kind, first, last in entities:
        tags[first:last + 1] = [f"S-{kind}"] if first == last else [f"B-{kind}", *[f"I-{kind}"] * (last - first - 1),
                                                                     f"E-{kind}"]
    return tuple(tags)


WRITERS: Mapping[str, Writer] = {"IOB2": iob2_tags, "IOB1": iob1_tags, "BIOES": bioes_tags}
PREFIXES: Mapping[str, str] = {"iob2": "BI", "bioes": "BIES"}
"""What stands before a type, by the kind of scheme."""


def found_scheme(sentences: Sequence[Tags]) -> tuple[str, int]:
    """Return the scheme that most tags are legal in, and how many are not. Of equal ones IOB2, then IOB1."""
    wrong = {name: sum(illegal(tags, name) for tags in sentences) for name in WRITERS}
    best = min(wrong, key=lambda name: wrong[name])
    return best, wrong[best]


def illegal(tags: Tags, scheme: str) -> int:
    """Count the tags that a scheme would write otherwise for the same entities."""
    return sum(map(str.__ne__, tags, WRITERS[scheme](lenient(tags), len(tags))))


def remarks(sentences: Sequence[Tags], scheme: Scheme) -> Tally:
    """Count what a scheme makes of a file's tags: those that are repaired, and sentences of another scheme."""
    name, wrong = found_scheme(sentences)
    kept = isinstance(scheme, AsWritten)
    found = Tally({f"tags are not legal in {name}" + (" and stay as they are" if kept else ": repaired"): wrong})
    if not kept and name.lower() != scheme.kind:
        found[f"sentences are tagged in {name}: rewritten in {scheme.kind.upper()}"] = len(sentences)
    return +found


def rewritten(tags: Tags, scheme: Scheme) -> Tags:
    """Write the entities of any tags, ill-formed ones too, in a scheme; tags that are kept come back as they are."""
    match scheme:
        case IOB2():
            return iob2_tags(lenient(tags), len(tags))
        case BIOES():
            return bioes_tags(lenient(tags), len(tags))
        case _:
            return tags


def all_tags(tags: Sequence[str], scheme: Scheme) -> Tags:
    """Return every tag that a scheme has for the types of some tags, O first, so that none lacks in a small file."""
    prefixes = PREFIXES.get(scheme.kind)
    if prefixes is None:
        return tuple(sorted(set(tags)))
    types = sorted({split_tag(tag)[1] for tag in tags if tag != OUTSIDE})
    return (OUTSIDE, *(f"{prefix}-{kind}" for kind in types for prefix in prefixes))
