"""The labelled files of a fine-tuning: read, split, checked, and described before training.

Rows, labels, lengths, what is cut, duplicates, leaks, and three examples.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from saucier.errors import InputError, suggest_name
from saucier.jobs.finetuning.labelled_files import LabelledFiles, column_roles
from saucier.objectives.token_ids import IGNORED
from saucier.tasks.encoded_examples import EncodedExamples
from saucier.tasks.examples import Tally, describe_dropped, make_faults_error
from saucier.tasks.label_checks import describe_label_doubts
from saucier.tasks.task import Task
from saucier.text.reading.guessing import ReadOptions
from saucier.text.reading.sources import AS_GUESSED, find_sources
from saucier.text.reading.tables import describe_form
from saucier.text.tokenizer.tokenizer import Tokenizer

LONGEST_ROW = 512
"""Tokens in a row, where neither the model nor the person says less. Attention's work grows with the square."""
MOST_CHARACTERS = 160
"""Characters of a text that are shown."""


def shorten_text(text: str) -> str:
    """Cut a text that is too long for a line."""
    one = " ".join(text.split())
    return one if len(one) <= MOST_CHARACTERS else one[:MOST_CHARACTERS - 1] + "…"


Examples = list[Any]


@dataclass(frozen=True, slots=True)
class Splits:
    """The examples of a fine-tuning."""

    task: Task
    """The task, which now knows its labels."""
    train: Examples
    held_out: Examples
    test: Examples
    """Empty where there is no file for it."""
    counted: Mapping[str, Tally] = field(default_factory=dict)
    """What was skipped, dropped or repaired in the files of each."""
    dropped: Mapping[str, Sequence[InputError]] = field(default_factory=dict)
    """Rows of each that cannot be used and were left out, and why."""
    forms: Sequence[str] = ()
    """How files are read, where that is not what their names promise."""

    def named(self) -> dict[str, Examples]:
        """Return those that are not empty, by name."""
        found = {"train": self.train, "held-out": self.held_out, "test": self.test}
        return {name: examples for name, examples in found.items() if examples}


def read_examples(task: Task, files: Iterable[str], *, labelled: bool = True, tally: Tally | None = None,
                  options: ReadOptions = AS_GUESSED, faults: list[InputError] | None = None) -> Examples:
    """Read all examples of some files; the tally counts what was done to them.

    `faults` takes what is wrong with single rows. Raises `InputError` for a file without any row, and, without
    `faults`, one error for all wrong rows.
    """
    found: Examples = []
    tally = Tally() if tally is None else tally
    wrong: dict[tuple[str | None, str], InputError] = {}  # a file that is read twice has the same faults twice

    def collect(fault: InputError) -> None:
        wrong.setdefault((fault.where, fault.what), fault)

    for source in find_sources(list(files), options):
        before = len(found) + len(wrong)
        found += task.read(replace(source, collect=collect), tally, labelled=labelled)
        if len(found) + len(wrong) == before:
            raise InputError("has no rows", where=source.name, remedy="leave it out")
    if wrong and (faults is None or not found):
        raise make_faults_error([*wrong.values()])
    if faults is not None:
        faults += wrong.values()
    return found


def read_splits(task: Task, files: LabelledFiles, *, seed: int = 0) -> Splits:
    """Read the files, hold rows out where there is no file for it, and let the task learn its labels.

    Raises `InputError` for what cannot be used: one error for the wrong rows of all files, unless they are to be left
    out.
    """
    names = ("train", "held-out", "test")
    counted, wrong = {name: Tally() for name in names}, {name: list[InputError]() for name in names}

    def read(name: str, of: Sequence[str], columns: Mapping[str, str] | None) -> Examples:
        return read_examples(with_columns(task, columns), of, tally=counted[name], options=files.read_options,
                             faults=wrong[name])

    train = read("train", files.train, None)
    held_out = read("held-out", files.held_out, files.held_out_columns)
    test = read("test", files.test, files.test_columns)
    if files.bad_rows != "drop" and (all_faults := [fault for faults in wrong.values() for fault in faults]):
        raise make_faults_error(all_faults)
    if not files.held_out:
        hold_out = hold_out_each_class if files.split == "stratified" else hold_out_rows
        train, held_out = hold_out(task, train, files.share, seed)
    if files.limit is not None:
        train = train[:files.limit]
    learned = task.fit_labels(train)
    for examples in (train, held_out, test):
        learned.check_labels(examples, measured=examples is not train)
    sources = find_sources([*files.train, *files.held_out, *files.test], files.read_options)
    forms = [form for form in map(describe_form, sources) if form]
    return Splits(learned, train, held_out, test, counted, wrong, forms)


def with_columns(task: Task, columns: Mapping[str, str] | None) -> Task:
    """Return a task that reads other columns; one without a role ("") is the first that the task reads.

    Raises `InputError` for what is no column of the task.
    """
    if not columns:
        return task
    known = column_roles(type(task.config))
    for role in columns:
        if role and role not in known:
            raise InputError(f"a task of the kind {task.config.kind} reads no column {role!r}", where="--column",
                             remedy=suggest_name(role, known))
    if "" in columns and not known:
        raise InputError(f"a task of the kind {task.config.kind} reads no single column", where="--column",
                         remedy="leave it out")
    return task.with_config(**{role or known[0]: name for role, name in columns.items()})


def hold_out_rows(task: Task, examples: Examples, share: float, seed: int) -> tuple[Examples, Examples]:
    """Hold out a share of the rows, by their texts: equal texts stay together, and more rows change no row's side.

    Raises `InputError` where one side would be empty.
    """
    return put_aside(examples, [draw_share(task.split_key(one), seed) < share for one in examples], share)


def draw_share(key: Sequence[str], seed: int) -> float:
    """Draw a number in [0, 1) that depends on texts and seed alone."""
    drawn = hashlib.sha256("\x00".join((str(seed), *key)).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(drawn[:7], "big") / (1 << 56)


def put_aside(examples: Examples, marked: Sequence[bool], share: float) -> tuple[Examples, Examples]:
    """Return the rows that are not marked and those that are. Raises `InputError` where one side would be empty."""
    train = [one for one, held in zip(examples, marked, strict=True) if not held]
    held_out = [one for one, held in zip(examples, marked, strict=True) if held]
    if not train or not held_out:
        raise InputError(f"{len(examples)} rows are too few to hold {share:.0%} of them out",
                         where=examples[0].place.file, remedy="give --held-out FILE")
    return train, held_out


def hold_out_each_class(task: Task, examples: Examples, share: float, seed: int) -> tuple[Examples, Examples]:
    """Hold out the same share of each class, to a row; equal texts stay together, and the last of a class is learned.

    Raises `InputError` where one side would be empty.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for number, one in enumerate(examples):
        groups.setdefault(tuple(task.split_key(one)), []).append(number)
    classes: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for key, numbers in groups.items():
        classes.setdefault(tuple(task.classes(examples[numbers[0]])), []).append(key)
    marked = [False] * len(examples)
    for keys in classes.values():
        left = round(share * sum(len(groups[key]) for key in keys))
        for key in sorted(keys, key=lambda key: draw_share(key, seed))[:-1]:
            if len(groups[key]) <= left:
                left -= len(groups[key])
                for number in groups[key]:
                    marked[number] = True
    return put_aside(examples, marked, share)


@dataclass(frozen=True, slots=True)
class Repeats:
    """Rows that come more than once."""

    inside: int
    """Rows whose texts came before in the same split."""
    contradicting: int
    """Texts that have different labels."""
    leaked: int
    """Rows whose texts are in the training split, too."""
    first: str | None
    """Where the first leaked row is."""


def count_repeats(task: Task, examples: Sequence[Any], train: Sequence[Any]) -> Repeats:
    """Count repeated rows of a split, and those that the training split has too (none, for that split itself)."""
    keys = [one.texts for one in examples]
    known = {one.texts for one in train} if examples is not train else set()
    golds_by_texts: dict[tuple[str, ...], set[str]] = {}
    for key, one in zip(keys, examples, strict=True):
        golds_by_texts.setdefault(key, set()).add(repr(task.gold(one)))
    leaked = [one for key, one in zip(keys, examples, strict=True) if key in known]
    contradicting = sum(len(golds) > 1 for golds in golds_by_texts.values())
    return Repeats(len(keys) - len(golds_by_texts), contradicting, len(leaked),
                   str(leaked[0].place) if leaked else None)


SHOWN_LABELS = 12
"""Labels that are listed by name."""
SHOWN_ROWS = 3
"""Rows that are shown token by token."""
MOST_TOKENS = 48
"""Tokens of a row that are shown."""
TOKENS_BEFORE_TARGET = 4
"""Tokens shown before the first one with a target, where that is far away."""
POSITION_TARGETS = {"start_positions": "start", "end_positions": "end"}
"""Targets that are places of a row, and how they are shown."""
QUARTILES = (0.5, 0.95, 1.0)


def describe_splits(splits: Splits, encoded: dict[str, EncodedExamples], length: int) -> Iterator[str]:
    """Yield lines about the data."""
    yield from splits.forms
    for name, examples in splits.named().items():
        yield f"{name}: {len(examples):,} rows{describe_labels(splits, examples)}"
        yield from (f"  {line}" for line in describe_dropped(splits.dropped.get(name, ())))
        yield from describe_unseen(splits, examples)
        if name == "train":
            counts = Counter(label for one in examples for label in splits.task.classes(one))
            yield from (f"  {line}" for line in describe_label_doubts(counts, splits.task.scored_as))
            yield from (f"  {line}" for line in splits.task.training_notes(encoded[name]))
        if 0 < len(encoded[name]) < len(examples) - encoded[name].truncation.dropped:
            yield f"  put into {len(encoded[name]):,} rows of the model, kept apart there"
        yield f"  {describe_lengths(encoded[name], length)}"
        yield from (f"  {line}" for line in encoded[name].notes)
        yield from (f"  {count:,} {what}" for what, count in splits.counted.get(name, {}).items())
        found = count_repeats(splits.task, examples, splits.train)
        if found.inside:
            yield f"  {found.inside:,} duplicates" + (
                f", {found.contradicting:,} texts with different labels" if found.contradicting else "")
        if found.leaked:
            yield f"  {found.leaked:,} rows are in the training rows too, first {found.first}: their score is too good"


def describe_unseen(splits: Splits, examples: Sequence[Any]) -> Iterator[str]:
    """Say how many rows have labels that are never learned: no model can answer them right."""
    unseen = [labels for one in examples if (labels := splits.task.unseen_labels(one))]
    if unseen:
        counts = Counter(label for labels in unseen for label in labels).most_common(SHOWN_LABELS)
        listed = ", ".join(f"{label!r} {count:,}" for label, count in counts)
        rows = "1 row has labels" if len(unseen) == 1 else f"{len(unseen):,} rows have labels"
        yield f"  {rows} that no training row has ({listed}): they count as errors"


def describe_labels(splits: Splits, examples: Sequence[Any]) -> str:
    """List how often each label comes."""
    counts = dict(Counter(label for one in examples for label in splits.task.classes(one)).most_common())
    if not counts:
        return ""
    listed = ", ".join(f"{label} {count:,}" for label, count in list(counts.items())[:SHOWN_LABELS])
    more = f", and {len(counts) - SHOWN_LABELS} more" if len(counts) > SHOWN_LABELS else ""
    never = [label for label in getattr(splits.task.config, "labels", ()) if label not in counts]
    none = f"; none of {', '.join(never[:SHOWN_LABELS])}" if never else ""
    return f"; {listed}{more}{none}"


def describe_lengths(encoded: EncodedExamples, length: int) -> str:
    """Say how long rows are, and what was cut."""
    read = [encoded.lengths[:, 0]]
    if "decoder_input_ids" in encoded.sequences:  # what a second stack writes
        read.append(encoded.sequences["decoder_input_ids"].lengths)
    quartiles = [np.quantile(lengths, QUARTILES).astype(int).tolist() for lengths in read]
    sides = " read, and to write: ".join(f"{middle} in the middle, {most} at most in 95 %, {longest} in the longest"
                                         for middle, most, longest in quartiles)
    cut = encoded.truncation
    lost = f", {cut.targets:,} {cut.what} lost with them" if cut.targets else ""
    dropped = f" ({cut.dropped:,} left out)" if cut.dropped else ""
    lost_rows = f"{cut.rows:,} rows cut to {length} tokens, {cut.tokens:,} tokens{lost}{dropped}" \
        if cut.rows or cut.targets else "none cut"
    if len(encoded) > (rows := len(np.unique(encoded.example_numbers))):
        lost_rows += f"; {rows:,} rows make {len(encoded):,} of the model's"
    return f"tokens a row: {sides}; {lost_rows}"


def describe_unknown_tokens(splits: Splits, encoded: EncodedExamples, tokenizer: Tokenizer) -> Iterator[str]:
    """Yield a line where texts, or what is to be written, have tokens that the tokenizer does not know."""
    if has_unknown_token(tokenizer) and encoded.characters is None:  # a network of characters reads such words yet
        read = encoded.sequences["input_ids"].values
        if count := int((read == tokenizer.unk_id).sum()):
            yield f"  {count:,} of {len(read):,} tokens that are read are unknown to the tokenizer"
    own = tokenizer.target
    if splits.task.required_head.kind != "language" or not has_unknown_token(own):
        return
    assert own.unk_id is not None, "looked at above"
    places = [side for name, side in encoded.sequences.items() if name.endswith("labels")]
    count = sum(int((side.values == own.unk_id).sum()) for side in places)
    if count:
        yield (f"  {count:,} tokens to write are unknown to the tokenizer: {format_token(own.unk_id, own)} is learned "
               "there")


def has_unknown_token(tokenizer: Tokenizer) -> bool:
    """Say whether the tokenizer has a token of its own for what it does not know."""
    return tokenizer.unk_id not in (None, tokenizer.eos_id, tokenizer.pad_id, tokenizer.bos_id)


def show_examples(splits: Splits, encoded: EncodedExamples, tokenizer: Tokenizer) -> Iterator[str]:
    """Yield the first training rows, token by token; what is learned at a token comes after it."""
    for unit in range(min(SHOWN_ROWS, len(encoded))):
        example = splits.train[int(encoded.example_numbers[unit])]
        yield shorten_text(f"{example.place} → {splits.task.format_prediction(example, splits.task.gold(example))}")
        for row in range(unit * encoded.group, (unit + 1) * encoded.group):
            yield f"  {format_row(splits.task, encoded, row, tokenizer)}"


def format_row(task: Task, encoded: EncodedExamples, row: int, tokenizer: Tokenizer) -> str:
    """Write one row: each token, with its target where it has one."""
    ids = encoded.sequences["input_ids"].row(row).tolist()
    labels = encoded.sequences.get("labels")
    targets = [IGNORED] * len(ids) if labels is None else labels.row(row).tolist()
    if len(targets) != len(ids):
        written = format_tokens([one for one in targets if one != IGNORED], tokenizer.target)
        return f"{format_tokens(ids, tokenizer)}  ⇒  {written}"
    marks = {place: f"→{task.describe_target(target, tokenizer)}" for place, target in enumerate(targets)
             if target != IGNORED}
    for name, what in POSITION_TARGETS.items():
        if name in encoded.unit_values:
            place = int(encoded.unit_values[name][row])
            marks[place] = marks.get(place, "") + f"→{what}"
    return format_tokens(ids, tokenizer, marks)


def select_positions(length: int, first: int) -> list[range]:
    """Return which tokens of a row are shown: the first ones, and those where learning begins, if that is further on.

    `first` is the first token with a target.
    """
    if first < MOST_TOKENS:
        return [range(min(length, MOST_TOKENS))]
    begin = first - TOKENS_BEFORE_TARGET
    return [range(MOST_TOKENS // 2), range(begin, min(length, begin + MOST_TOKENS // 2))]


def format_tokens(ids: Sequence[int], tokenizer: Tokenizer, marks: Mapping[int, str] | None = None) -> str:
    """Write ids as tokens, those that are shown of a long row, each with the mark of its place after it."""
    marks = marks or {}
    pieces = (" ".join(format_token(ids[place], tokenizer) + marks.get(place, "") for place in part)
              for part in select_positions(len(ids), min(marks, default=0)))
    return " … ".join(pieces) + (f" … ({len(ids)} tokens)" if len(ids) > MOST_TOKENS else "")


def format_token(number: int, tokenizer: Tokenizer) -> str:
    """Write one token."""
    return tokenizer.id_to_token(number) or f"<{number}>"
