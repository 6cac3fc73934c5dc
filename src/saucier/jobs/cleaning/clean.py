"""The whole job of `saucier clean`: the rules, the folder, the pieces, the corpus, the report.

Pieces are cleaned on this machine, or by datatrove on many (an extra). What is done already is not done again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import yaml

from saucier.arguments import COMMAND_LINE
from saucier.errors import InputError, SaucierError, report_missing, suggest_name
from saucier.files import (
    flush_to_disk,
    is_taken,
    list_entries,
    parse_json,
    read_object,
    remove_path,
    replace_path,
    report_disk_errors,
    write_json,
    write_text,
)
from saucier.jobs.cleaning.summary import CleaningCost, CleaningReport, cleaning_page
from saucier.jobs.run.console import print_table
from saucier.recipes.catalogue import file_text
from saucier.recipes.source import Source, apply_overrides, read_yaml
from saucier.recipes.validation import validate_config
from saucier.result import Result
from saucier.text.cleaning.cleaner import Cleaner, Tally
from saucier.text.cleaning.config import SETS, BadWords, Cleaning, Contamination, Duplicates, LineRule, PageRule
from saucier.text.cleaning.corpus import REJECTED, REJECTED_FILE, write_corpus
from saucier.text.cleaning.pieces import Order, clean_piece
from saucier.text.cleaning.rules import read_forbidden_runs
from saucier.text.reading.documents import find_text_column
from saucier.text.reading.guessing import ReadOptions
from saucier.text.reading.sources import AS_GUESSED, SourceFile, find_sources, is_standard_input
from saucier.text.reading.tables import describe_form

RULE_KINDS = tuple(rule.model_fields["kind"].default for rule in get_args(LineRule | PageRule | Duplicates))
RULE_OFF = "off"


def cleaning(name_or_file: str, changes: Iterable[str] = ()) -> Cleaning:
    """Return the rules of a name or a file, with changes.

    `kind.key=value` changes a rule, or adds it at the end with that value; `kind=off` takes it away; any other
    `key=value` is about the cleaning as a whole. Raises `InputError` with a line for each fault.
    """
    source = _rules_source(name_or_file)
    for change in changes:
        _apply_rule_change(source, change)
    return validate_config(source, Cleaning)


def _rules_source(name_or_file: str) -> Source:
    if name_or_file in SETS:
        return Source(name_or_file, Cleaning(rules=SETS[name_or_file]).model_dump(mode="json"))
    if name_or_file.endswith((".yaml", ".yml")):
        return read_yaml(file_text(Path(name_or_file)), name_or_file)
    raise InputError(f"no set of rules has the name {name_or_file!r}", where="--rules",
                     remedy=f"{suggest_name(name_or_file, list(SETS))}; a file of yours ends in .yaml")


def _apply_rule_change(source: Source, change: str) -> None:
    """Set one value. A rule is found by its kind."""
    kind, _, rest = change.partition(".") if "." in change.partition("=")[0] else change.partition("=")
    if kind not in RULE_KINDS:
        apply_overrides(source, [change])
        return
    rules: Any = source.values.setdefault("rules", [])
    if not isinstance(rules, list):
        raise InputError("is no list of rules", where=source.where(("rules",)), remedy="write one")
    place = next((number for number, rule in enumerate(rules) if isinstance(rule, dict) and rule.get("kind") == kind),
                 None)
    if change == f"{kind}={RULE_OFF}":
        if place is None:
            raise InputError(f"there is no rule {kind} to leave out", where=COMMAND_LINE, remedy="remove this change")
        del rules[place]
    elif change.startswith(f"{kind}="):
        raise InputError(f"{change!r} is no change to a rule", where=COMMAND_LINE,
                         remedy=f"write {kind}.key=value, or {kind}=off")
    else:
        if place is None:
            place = len(rules)
            rules.append({"kind": kind})
        apply_overrides(source, [f"rules.{place}.{rest}"])


def rules_to_yaml(found: Cleaning) -> str:
    """Return the rules as the text of a file that gives the same again."""
    return str(yaml.safe_dump(found.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=100))


@dataclass(frozen=True, slots=True)
class Rules(Result):
    """The rules of a cleaning."""

    cleaning: Cleaning

    def view(self) -> str:
        """Return them as the text of a file."""
        return rules_to_yaml(self.cleaning).rstrip("\n")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as in that file."""
        return self.cleaning.model_dump(mode="json")


@dataclass(frozen=True, slots=True)
class Rejection(Result):
    """A document that was dropped, and why."""

    record: dict[str, Any]
    """As in `rejected/documents.jsonl`."""

    def view(self) -> str:
        """Say which document, which rule, and why."""
        found = self.record
        place = f", line {found['at']} of it" if found["at"] else ""
        return (f"document {found['document']}, {found['source']}, line {found['line']}\n"
                f"dropped by {found['rule']}: {found['reason']}{place}\n\n{found.get('text', found['beginning'])}")

    def to_dict(self) -> dict[str, Any]:
        """Return the record."""
        return self.record


LOGS = "engine"
ERROR = ".error"


@dataclass(frozen=True, slots=True)
class CleanBlock:
    """A step of a datatrove pipeline that cleans its share of the orders."""

    orders: tuple[Order, ...]

    def __call__(self, data: Iterable[Any] | None, rank: int, world_size: int) -> None:
        """Make the pieces of one task that are not there yet; what is wrong with a file is noted next to its piece."""
        for order in self.orders[rank::world_size]:
            if order.target.is_dir():
                continue
            try:
                clean_piece(order)
            except SaucierError as error:
                write_text(order.target.with_suffix(ERROR), str(error))


def run_locally(orders: Sequence[Order], workers: int) -> None:
    """Make pieces with processes of this machine. Raises `InputError` for a fault of a file, or without datatrove."""
    if not orders:
        return
    with report_missing("several workers are run by datatrove, which is not installed", where="--workers",
                        remedy="pip install 'saucier[clean]', or use one worker"):
        from datatrove.executor import LocalPipelineExecutor
        from loguru import logger
    logger.disable("datatrove")  # the screen is ours; processes made by fork inherit this
    for order in orders:
        order.target.with_suffix(ERROR).unlink(missing_ok=True)
    LocalPipelineExecutor([CleanBlock(tuple(orders))], tasks=len(orders), workers=min(workers, len(orders)),
                          logging_dir=str(orders[0].target.with_name(LOGS)), skip_completed=False,
                          start_method="fork").run()
    for order in orders:
        noted = order.target.with_suffix(ERROR)
        if noted.exists():
            raise InputError(noted.read_text(encoding="utf-8"))


WORK, JOB, FINAL = ".work", "job.json", "final"
REPORT, PAGE, RULES = "report.json", "report.html", "rules.yaml"
Log = Callable[[str, str], None]
"""Takes what is going on in a word, and a sentence about it."""


@dataclass(frozen=True, slots=True)
class CleaningOptions:
    """How to work, and how files are read; nothing else here changes the corpus."""

    workers: int = 1
    """Processes that clean files side by side; more than one need the extra `clean`."""
    keep_rejected: bool = False
    """Whether the text of dropped documents is kept."""
    read: ReadOptions = AS_GUESSED
    """How the raw files are read."""


def clean(files: Sequence[str], cleaning: Cleaning, out: Path, *, wishes: CleaningOptions, say: Log) -> CleaningReport:
    """Clean files into a new folder, or go on where an earlier run for the same folder was stopped.

    Errors: `InputError` for wrong files and rules, a folder that holds anything else, and a corpus without documents.
    """
    begin = time.perf_counter()
    work = orders(files, cleaning, out, wishes, say=say)
    _clean_pieces(work, wishes, say)
    say("corpus", "removing repetition, putting documents in order")
    final = out / WORK / FINAL
    remove_path(final)
    with report_disk_errors(out):
        tally, shards = write_corpus([order.target for order in work], cleaning, final,
                                     keep_rejected=wishes.keep_rejected)
    if not tally.after.documents:
        raise _nothing_left(out, tally)
    report = CleaningReport(cleaning=cleaning, sources=[order.source.name for order in work], tally=tally,
                            shards=[path.name for path in shards],
                            cost=CleaningCost(seconds=time.perf_counter() - begin, workers=wishes.workers))
    publish_corpus(out, final, report)
    return report


def clean_and_say(files: Sequence[str], cleaning: Cleaning, out: Path, wishes: CleaningOptions, *,
                  quiet: bool = False) -> CleaningReport:
    """Clean, and say how it goes on standard error, and what came out. Raises `InputError` as `clean`, and for no file.
    """
    if wrong := [word for word in files if word.startswith("-") and not is_standard_input(word)]:
        raise InputError(f"there is no option {wrong[0]}", where="saucier clean", remedy="`--help` shows what there is")
    if not files:
        raise InputError("no raw text is named", where="saucier clean", remedy="give files, or - for standard input")
    report = clean(files, cleaning, out, wishes=wishes, say=say_nothing if quiet else log_line)
    if not quiet:
        print_table(report.view())
        more = " …" if len(report.shards) > 1 else ""
        print(f"corpus      {out}/{report.shards[0]}{more}; report {out}/{PAGE}")
    return report


def log_line(what: str, about: str) -> None:
    """Write a line of progress to standard error."""
    print(f"{what:<11} {about}", file=sys.stderr)


def say_nothing(what: str, about: str) -> None:
    """Take a line of progress, and leave it."""


def orders(files: Sequence[str], cleaning: Cleaning, out: Path, wishes: CleaningOptions, *,
           say: Log = say_nothing) -> list[Order]:
    """Check everything, make the folder ready, and return what is to be done for each file. Errors: as `clean`."""
    sources = find_sources(files, wishes.read)
    for source in sources:
        if source.format != "txt":
            find_text_column(source, cleaning.column, "--column ")  # or says what is missing
        if form := describe_form(source):
            say("read", form)
    Cleaner(cleaning, Tally())  # what a rule lacks is said before any text is read
    for rule in cleaning.rules:
        if isinstance(rule, Contamination):
            runs = read_forbidden_runs(rule)
            say("against", f"{runs.texts:,} lines or cells; {runs.short:,} more are too short to be looked for")
    work = [Order(source, cleaning, out / WORK / f"piece-{number:05}", wishes.keep_rejected)
            for number, source in enumerate(sources)]
    prepare_cleaning_folder(out, cleaning_fingerprint(sources, cleaning, wishes), work, say)
    return work


def cleaning_fingerprint(sources: Sequence[SourceFile], cleaning: Cleaning, wishes: CleaningOptions) -> dict[str, Any]:
    """Return what must be the same when a run goes on: the rules, and the files with their sizes and dates."""
    read = [*sources, *find_sources([name for rule in cleaning.rules for name in _files_of(rule)])]
    stats = [(source.name, source.path.stat()) for source in read]
    said = {} if wishes.read == AS_GUESSED else {"read": [wishes.read.delimiter, wishes.read.encoding]}
    return {"cleaning": cleaning.model_dump(mode="json"), "keep_rejected": wishes.keep_rejected, **said,
            "files": [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats]}


def _files_of(rule: object) -> tuple[str, ...]:
    match rule:
        case BadWords(file=file):
            return (file,)
        case Contamination(files=files):
            return files
        case _:
            return ()


def prepare_cleaning_folder(out: Path, job: dict[str, Any], orders: Sequence[Order], say: Log) -> None:
    """Make the folder ready: new, or as a stopped run left it. Raises `InputError` where it holds anything else."""
    work = out / WORK
    if (out / REPORT).exists():
        remove_path(work)  # where it was killed while this was removed
        raise InputError("holds a finished corpus", where=str(out), remedy="give a new folder with --out")
    found = read_object(work / JOB)
    if not found and is_taken(out) and (out.is_file() or is_taken(work) or list_entries(out) != [work]):
        raise InputError("is not empty", where=str(out), remedy="give a new folder with --out")
    again = any(is_standard_input(order.source.name) for order in orders)
    if found and not again and found != job:
        raise InputError("holds an unfinished cleaning with other rules, or of files that were others then",
                         where=str(out), remedy="give a new folder with --out, or remove this one")
    if found and again:
        say("starting over", "standard input cannot be read a second time")
        remove_path(work)
    elif found:
        done = sum(order.target.is_dir() for order in orders)
        say("going on", f"{done} of {len(orders)} files were cleaned before; a file that was not finished starts over")
    write_json(work / JOB, job)


def _clean_pieces(orders: Sequence[Order], wishes: CleaningOptions, say: Log) -> None:
    waiting = [order for order in orders if not order.target.is_dir()]
    if wishes.workers > 1:

        say("engine", f"datatrove, {wishes.workers} processes, {len(waiting)} files")
        run_locally(waiting, wishes.workers)
        return
    for number, order in enumerate(waiting, 1):
        begin = time.perf_counter()
        clean_piece(order)
        say("clean", f"{order.source.name} ({number} of {len(waiting)}), {time.perf_counter() - begin:.1f} s")


def publish_corpus(out: Path, final: Path, report: CleaningReport) -> None:
    """Move a finished corpus to its place; the report is the last, and its being there says that all is."""
    with report_disk_errors(out):
        for path in final.iterdir():
            for file in path.rglob("*") if path.is_dir() else [path]:
                flush_to_disk(file)
            if path.name in (*report.shards, REJECTED):
                replace_path(path, out / path.name)
    write_text(out / RULES, rules_to_yaml(report.cleaning))
    write_text(out / PAGE, cleaning_page(report))
    write_json(out / REPORT, report.model_dump(mode="json"))
    remove_path(out / WORK)


def _nothing_left(out: Path, tally: Tally) -> InputError:
    """Remove the work; say which rule took most, and show one document."""
    kind, most = max(tally.rules.items(), key=lambda item: item[1].documents)
    remove_path(out / WORK)
    if not any(out.iterdir()):
        out.rmdir()
    example = most.examples[0] if most.examples else None
    shown = f", such as {example.source}, line {example.line}: {example.reason or example.text!r}" if example else ""
    took = f"the rule {kind} took {most.documents:,} of {tally.before.documents:,}"
    return InputError(f"no document is left: {took}{shown}",
                      remedy=f"loosen it, leave it out with {kind}=off, or check the text")


def read_rejected(line: bytes, where: str) -> dict[str, Any]:
    """Read what is known of a dropped document. Raises `InputError` for a line that was changed."""
    try:
        record: Any = parse_json(line)
    except ValueError:
        record = None
    if not isinstance(record, dict) or not {"document", "source", "line"} <= record.keys():
        raise InputError("was changed", where=where, remedy="clean again into a new folder")
    return record


def explain_rejection(out: Path, what: str) -> Rejection:
    """Return what is known of a dropped document, given by its number or as FILE:LINE. Raises `InputError`."""
    path = out / REJECTED / REJECTED_FILE
    if not path.is_file():
        raise InputError("holds no finished corpus", where=str(out), remedy="name the folder with --out")
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            record = read_rejected(line, f"{path}:{number}")
            if what in (str(record["document"]), f"{record['source']}:{record['line']}"):
                return Rejection(record)
    raise InputError(f"no document {what} was dropped", where=str(out),
                     remedy="give its number, or FILE:LINE as they stand in rejected/documents.jsonl")
