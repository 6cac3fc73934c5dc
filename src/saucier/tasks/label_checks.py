"""What may be wrong with the labels of a file although each can be used: spelled in two ways, or numbers."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from saucier.tasks.examples import parse_finite

MOST_SHOWN = 6
"""Groups of labels that are listed."""
MANY_NUMBERS = 10
"""Classes from which on labels that are all numbers, not all of them whole, are rather scores."""
INVISIBLE = frozenset({"Cf", "Cc", "Zl", "Zp"})
"""Categories of characters that show nothing: zero-width ones, marks of the direction of writing, controls."""

JOINERS = ("\u200c", "\u200d")
"""Of these, which show nothing either, some scripts make words."""


def remove_invisible(text: str) -> str:
    """Return a text without characters that show nothing."""
    return "".join(one for one in text if one.isspace() or unicodedata.category(one) not in INVISIBLE)


def join_blanks(text: str) -> str:
    """Return a text in which every run of blanks of any kind is one space."""
    return " ".join(text.split())


SPELLINGS: Mapping[str, Callable[[str], str]] = {
    "invisible characters": remove_invisible, "blanks": join_blanks, "case": str.casefold,
    "letters that look alike": lambda text: unicodedata.normalize("NFKC", text)}
"""In what labels may differ that mean the same, and what takes the difference away."""


def spell_plainly(label: str) -> str:
    """Return a label as all its spellings are."""
    for plain in SPELLINGS.values():
        label = plain(label)
    return join_blanks(label)


def show_label(label: str) -> str:
    """Write a label so that every character of it is seen."""
    return "'" + "".join(one if one == " " or (one.isprintable() and not one.isspace()) else ascii(one)[1:-1]
                         for one in label) + "'"


def describe_label_doubts(counts: Mapping[str, int], scored_as: str) -> Iterator[str]:
    """Yield what a person should know of the labels of training rows, given how often each comes."""
    yield from describe_spellings(counts)
    if scored_as == "classes":
        yield from describe_numbers([*counts])


def describe_spellings(counts: Mapping[str, int]) -> Iterator[str]:
    """Yield the labels that differ in nothing that a person sees or means."""
    groups: dict[str, list[str]] = defaultdict(list)
    for label in counts:
        groups[spell_plainly(label)].append(label)
    same = [group for group in groups.values() if len(group) > 1]
    for group in same[:MOST_SHOWN]:
        listed = " and ".join(f"{show_label(label)} ({counts[label]:,})" for label in group)
        yield f"labels differ only by {' and '.join(name_differences(group))}: {listed}; are they one class?"
    if len(same) > MOST_SHOWN:
        yield f"and {len(same) - MOST_SHOWN} more such groups of labels"
    for label in counts:
        seen = remove_invisible(label)
        if seen not in (label, *(label.replace(one, "") for one in JOINERS)) and len(groups[spell_plainly(label)]) == 1:
            yield f"the label {show_label(label)} holds invisible characters"


def name_differences(group: Sequence[str]) -> list[str]:
    """Say in what labels differ that are the same when spelled plainly."""
    found: list[str] = []
    for name, plain in SPELLINGS.items():
        spelled = [plain(label) for label in group]
        if len({*spelled}) < len({*group}):
            found.append(name)
        group = spelled
    return found or ["blanks"]


def describe_numbers(labels: Sequence[str]) -> Iterator[str]:
    """Yield a line where classes are numbers that a regression would learn."""
    numbers = [parse_finite(label) for label in labels]
    whole = all(number is not None and number.is_integer() for number in numbers)
    if len(labels) >= MANY_NUMBERS and None not in numbers and not whole:
        yield (f"the {len(labels):,} labels are numbers such as {labels[0]}, and each is learned as a class of its "
               "own; the task regression learns numbers")
