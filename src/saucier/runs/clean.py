"""The whole job of `saucier clean`: the folder, the pieces, the corpus, the report. What was done is not done again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saucier.errors import InputError
from saucier.files import (
    disk_errors,
    entries,
    is_taken,
    parse_json,
    read_object,
    remove,
    replace,
    sync,
    write_json,
    write_text,
)
from saucier.inspection.cleaning import CleaningReport, Cost, page
from saucier.runs.clean_rules import as_text, as_values
from saucier.runs.standard_input import is_standard_input
from saucier.text.cleaning.cleaner import Cleaner
from saucier.text.cleaning.config import BadWords, Cleaning, Contamination
from saucier.text.cleaning.contamination import forbidden_runs
from saucier.text.cleaning.corpus import REJECTED, REJECTED_FILE, write_corpus
from saucier.text.cleaning.piece import Order, clean_piece
from saucier.text.cleaning.tally import Tally
from saucier.text.sources import Source, find_sources
from saucier.text.tables import columns_of, missing_column

WORK, JOB, FINAL = ".work", "job.json", "final"
REPORT, PAGE, RULES = "report.json", "report.html", "rules.yaml"
Say = Callable[[str, str], None]
"""Takes what is going on in a word, and a sentence about it."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """How to work; nothing here changes the corpus."""

    workers: int = 1
    """Processes that clean files side by side; more than one need the extra `clean`."""
    keep_rejected: bool = False
    """Whether the text of dropped documents is kept."""


def clean(files: Sequence[str], cleaning: Cleaning, out: Path, *, wishes: Wishes, say: Say) -> CleaningReport:
    """Clean files into a new folder, or go on where an earlier run for the same folder was stopped.

    Errors: `InputError` for wrong files and rules, a folder that holds anything else, and a corpus without documents.
    """
    begin = time.perf_counter()
    work = orders(files, cleaning, out, wishes, say=say)
    _clean_pieces(work, wishes, say)
    say("corpus", "removing repetition, putting documents in order")
    final = out / WORK / FINAL
    remove(final)
    with disk_errors(out):
        corpus = write_corpus([order.target for order in work], cleaning, final, keep_rejected=wishes.keep_rejected)
    if not corpus.tally.after.documents:
        raise _nothing_left(out, corpus.tally)
    report = CleaningReport(cleaning=cleaning, sources=[order.source.name for order in work], tally=corpus.tally,
                            shards=[path.name for path in corpus.shards],
                            cost=Cost(seconds=time.perf_counter() - begin, workers=wishes.workers))
    publish(out, final, report)
    return report


def orders(files: Sequence[str], cleaning: Cleaning, out: Path, wishes: Wishes, *,
           say: Say = lambda what, about: None) -> list[Order]:
    """Check everything, make the folder ready, and return what is to be done for each file. Errors: as `clean`."""
    sources = find_sources(files)
    for source in sources:
        check_column(source, cleaning.column)
    Cleaner(cleaning, Tally())  # what a rule lacks is said before any text is read
    for rule in cleaning.rules:
        if isinstance(rule, Contamination):
            runs = forbidden_runs(rule)
            say("against", f"{runs.texts:,} lines or cells; {runs.short:,} more are too short to be looked for")
    work = [Order(source, cleaning, out / WORK / f"piece-{number:05}", wishes.keep_rejected)
            for number, source in enumerate(sources)]
    prepare(out, fingerprint(sources, cleaning, wishes), work, say)
    return work


def check_column(source: Source, column: str | None) -> None:
    """Raise `InputError` where a table does not have the column of the text, or nobody said which it is."""
    if source.format == "txt":
        return
    known = columns_of(source)
    if column is None and "text" not in known and len(known) > 1:
        raise InputError(f"which column holds the text? There are {', '.join(known)}", where=source.name,
                         remedy=f"say which, for example --column {known[-1]}")
    if column is not None and column not in known:
        raise missing_column(column, known, source.name)


def fingerprint(sources: Sequence[Source], cleaning: Cleaning, wishes: Wishes) -> dict[str, Any]:
    """Return what must be the same when a run goes on: the rules, and the files with their sizes and dates."""
    lists = [name for rule in cleaning.rules for name in _files_of(rule)]
    read = [*sources, *find_sources(lists)]
    stats = [(source.name, source.path.stat()) for source in read]
    return {"cleaning": as_values(cleaning), "keep_rejected": wishes.keep_rejected,
            "files": [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats]}


def _files_of(rule: object) -> tuple[str, ...]:
    match rule:
        case BadWords(file=file):
            return (file,)
        case Contamination(files=files):
            return files
        case _:
            return ()


def prepare(out: Path, job: dict[str, Any], orders: Sequence[Order], say: Say) -> None:
    """Make the folder ready: new, or as a stopped run left it. Raises `InputError` where it holds anything else."""
    work = out / WORK
    if (out / REPORT).exists():
        remove(work)  # where it was killed while this was removed
        raise InputError("holds a finished corpus", where=str(out), remedy="give a new folder with --out")
    found = read_object(work / JOB)
    if not found and is_taken(out) and (out.is_file() or is_taken(work) or entries(out) != [work]):
        raise InputError("is not empty", where=str(out), remedy="give a new folder with --out")
    again = any(is_standard_input(order.source.name) for order in orders)
    if found and not again and found != job:
        raise InputError("holds an unfinished cleaning with other rules, or of files that were others then",
                         where=str(out), remedy="give a new folder with --out, or remove this one")
    if found and again:
        say("starting over", "standard input cannot be read a second time")
        remove(work)
    elif found:
        done = sum(order.target.is_dir() for order in orders)
        say("going on", f"{done} of {len(orders)} files were cleaned before; a file that was not finished starts over")
    write_json(work / JOB, job)


def _clean_pieces(orders: Sequence[Order], wishes: Wishes, say: Say) -> None:
    waiting = [order for order in orders if not order.target.is_dir()]
    if wishes.workers > 1:
        from saucier.runs.clean_engine import run_here

        say("engine", f"datatrove, {wishes.workers} processes, {len(waiting)} files")
        run_here(waiting, wishes.workers)
        return
    for number, order in enumerate(waiting, 1):
        begin = time.perf_counter()
        clean_piece(order)
        say("clean", f"{order.source.name} ({number} of {len(waiting)}), {time.perf_counter() - begin:.1f} s")


def publish(out: Path, final: Path, report: CleaningReport) -> None:
    """Move a finished corpus to its place; the report is the last, and its being there says that all is."""
    with disk_errors(out):
        for path in final.iterdir():
            for file in path.rglob("*") if path.is_dir() else [path]:
                sync(file)
            if path.name in (*report.shards, REJECTED):
                replace(path, out / path.name)
    write_text(out / RULES, as_text(report.cleaning))
    write_text(out / PAGE, page(report))
    write_json(out / REPORT, report.model_dump(mode="json"))
    remove(out / WORK)


def _nothing_left(out: Path, tally: Tally) -> InputError:
    """Remove the work; say which rule took most, and show one document."""
    kind, most = max(tally.rules.items(), key=lambda item: item[1].documents)
    remove(out / WORK)
    if not any(out.iterdir()):
        out.rmdir()
    example = most.examples[0] if most.examples else None
    shown = f", such as {example.source}, line {example.line}: {example.reason or example.text!r}" if example else ""
    took = f"the rule {kind} took {most.documents:,} of {tally.before.documents:,}"
    return InputError(f"no document is left: {took}{shown}",
                      remedy=f"loosen it, leave it out with {kind}=off, or check the text")


def rejected(line: bytes, where: str) -> dict[str, Any]:
    """Read what is known of a dropped document. Raises `InputError` for a line that was changed."""
    try:
        record: Any = parse_json(line)
    except ValueError:
        record = None
    if not isinstance(record, dict) or not {"document", "source", "line"} <= record.keys():
        raise InputError("was changed", where=where, remedy="clean again into a new folder")
    return record


def why(out: Path, what: str) -> dict[str, Any]:
    """Return what is known of a dropped document, given by its number or as FILE:LINE. Raises `InputError`."""
    path = out / REJECTED / REJECTED_FILE
    if not path.is_file():
        raise InputError("holds no finished corpus", where=str(out), remedy="name the folder with --out")
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            record = rejected(line, f"{path}:{number}")
            if what in (str(record["document"]), f"{record['source']}:{record['line']}"):
                return record
    raise InputError(f"no document {what} was dropped", where=str(out),
                     remedy="give its number, or FILE:LINE as they stand in rejected/documents.jsonl")
