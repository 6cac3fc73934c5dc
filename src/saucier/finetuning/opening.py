"""What a person sees before training: rows, labels, lengths, what is cut, duplicates, leaks, three examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from saucier.finetuning.data import Splits, class_counts, repeats
from saucier.finetuning.outcome import shortened
from saucier.objectives.base import IGNORED
from saucier.tasks.sheet import Sheet
from saucier.tasks.task import Task
from saucier.text.rows import Ints
from saucier.text.tokenizer import Tokenizer

SHOWN = 12
"""Labels that are listed by name."""
SAMPLES = 3
"""Rows that are shown token by token."""
WIDEST = 48
"""Tokens of a row that are shown."""
BEFORE = 4
"""Tokens shown before the first one with a target, where that stands far behind."""
ENDS = {"start_positions": "start", "end_positions": "end"}
"""Targets that are places of a row, and how they are shown."""
QUARTILES = (0.5, 0.95, 1.0)


def opening(splits: Splits, sheets: dict[str, Sheet], length: int) -> Iterator[str]:
    """Yield lines about the data."""
    for name, examples in splits.named().items():
        yield f"{name}: {len(examples):,} rows{labels(splits, examples)}"
        if name == "train":
            yield from (f"  {line}" for line in splits.task.remarks(sheets[name]))
        if 0 < len(sheets[name]) < len(examples) - sheets[name].cut.dropped:
            yield f"  put into {len(sheets[name]):,} rows of the model, kept apart there"
        yield f"  {lengths(sheets[name], length)}"
        yield from (f"  {count:,} {what}" for what, count in splits.counted.get(name, {}).items())
        found = repeats(splits.task, examples, splits.train)
        if found.inside:
            yield f"  {found.inside:,} rows stand there more than once" + (
                f", {found.contradicting:,} texts with different labels" if found.contradicting else "")
        if found.leaked:
            yield f"  {found.leaked:,} rows stand in the training rows too, first {found.first}: their score flatters"


def labels(splits: Splits, examples: Sequence[Any]) -> str:
    """List how often each label stands."""
    counts = class_counts(splits.task, examples)
    if not counts:
        return ""
    listed = ", ".join(f"{label} {count:,}" for label, count in list(counts.items())[:SHOWN])
    more = f", and {len(counts) - SHOWN} more" if len(counts) > SHOWN else ""
    never = [label for label in getattr(splits.task.config, "labels", ()) if label not in counts]
    none = f"; none of {', '.join(never[:SHOWN])}" if never else ""
    return f"; {listed}{more}{none}"


def lengths(sheet: Sheet, length: int) -> str:
    """Say how long rows are, and what was cut."""
    sides = " read, and to write: ".join(side_lengths(side) for side in sides_of(sheet))
    cut = sheet.cut
    lost = f", {cut.targets:,} {cut.what} lost with them" if cut.targets else ""
    dropped = f" ({cut.dropped:,} left out)" if cut.dropped else ""
    told = f"{cut.rows:,} rows cut to {length} tokens, {cut.tokens:,} tokens{lost}{dropped}"
    told = told if cut.rows or cut.targets else "none cut"
    if len(sheet) > (rows := len(np.unique(sheet.item))):
        told += f"; {rows:,} rows make {len(sheet):,} of the model's"
    return f"tokens a row: {sides}; {told}"


def sides_of(sheet: Sheet) -> list[Ints]:
    """Return the lengths of what a model reads, and of what a second stack of it writes. Shapes: each [U]."""
    second = [sheet.wide["decoder_input_ids"].lengths] if "decoder_input_ids" in sheet.wide else []
    return [sheet.lengths[:, 0], *second]


def side_lengths(lengths: Ints) -> str:
    """Say how long rows are."""
    middle, most, longest = np.quantile(lengths, QUARTILES).astype(int).tolist()
    return f"{middle} in the middle, {most} at most in 95 %, {longest} in the longest"


def unknown(splits: Splits, sheet: Sheet, tokenizer: Tokenizer) -> Iterator[str]:
    """Yield a line where texts, or what is to be written, have tokens that the tokenizer does not know."""
    if knows_unknown(tokenizer) and sheet.spelled is None:  # a network of characters reads such words yet
        read = sheet.wide["input_ids"].values
        if count := int((read == tokenizer.unk_id).sum()):
            yield f"  {count:,} of {len(read):,} tokens that are read are unknown to the tokenizer"
    own = tokenizer.target
    if splits.task.wanted.kind != "language" or not knows_unknown(own):
        return
    assert own.unk_id is not None, "looked at above"
    places = [side for name, side in sheet.wide.items() if name.endswith("labels")]
    count = sum(int((side.values == own.unk_id).sum()) for side in places)
    if count:
        yield f"  {count:,} tokens to write are unknown to the tokenizer: {piece(own.unk_id, own)} is learned there"


def knows_unknown(tokenizer: Tokenizer) -> bool:
    """Say whether a token of its own stands for what the tokenizer does not know."""
    return tokenizer.unk_id not in (None, tokenizer.eos_id, tokenizer.pad_id, tokenizer.bos_id)


def shown(splits: Splits, sheet: Sheet, tokenizer: Tokenizer) -> Iterator[str]:
    """Yield the first training rows, token by token; what is learned at a token stands behind it."""
    for unit in range(min(SAMPLES, len(sheet))):
        example = splits.train[int(sheet.item[unit])]
        yield shortened(f"{example.place} → {splits.task.told(example, splits.task.gold(example))}")
        for row in range(unit * sheet.group, (unit + 1) * sheet.group):
            yield f"  {tokens(splits.task, sheet, row, tokenizer)}"


def tokens(task: Task[Any], sheet: Sheet, row: int, tokenizer: Tokenizer) -> str:
    """Write one row: each token, with its target where it has one."""
    ids = sheet.wide["input_ids"].row(row).tolist()
    beside = sheet.wide.get("labels")
    targets = [IGNORED] * len(ids) if beside is None else beside.row(row).tolist()
    if len(targets) != len(ids):
        return f"{spelled(ids, tokenizer)}  ⇒  {spelled([one for one in targets if one != IGNORED], tokenizer.target)}"
    marks = {place: f"→{task.spoken(target, tokenizer)}" for place, target in enumerate(targets) if target != IGNORED}
    for name, what in ENDS.items():
        if name in sheet.flat:
            place = int(sheet.flat[name][row])
            marks[place] = marks.get(place, "") + f"→{what}"
    pieces = [[piece(ids[place], tokenizer) + marks.get(place, "") for place in part]
              for part in parts_shown(len(ids), min(marks, default=0))]
    return " … ".join(" ".join(words) for words in pieces) + (f" … ({len(ids)} tokens)" if len(ids) > WIDEST else "")


def parts_shown(length: int, first: int) -> list[range]:
    """Return which tokens of a row are shown: the first ones, and those where learning begins, if that is further on.

    `first` is the first token with a target.
    """
    if first < WIDEST:
        return [range(min(length, WIDEST))]
    begin = first - BEFORE
    return [range(WIDEST // 2), range(begin, min(length, begin + WIDEST // 2))]


def spelled(ids: Sequence[int], tokenizer: Tokenizer) -> str:
    """Write ids as tokens."""
    more = f" … ({len(ids)} tokens)" if len(ids) > WIDEST else ""
    return " ".join(piece(number, tokenizer) for number in ids[:WIDEST]) + more


def piece(number: int, tokenizer: Tokenizer) -> str:
    """Write one token."""
    return tokenizer.id_to_token(number) or f"<{number}>"
