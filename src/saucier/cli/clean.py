"""`saucier clean`: from a crawl to a corpus."""

import json
from pathlib import Path
from typing import Annotated

import typer

from saucier.cli.arguments import AsJson, new_folder, print_found


def clean(
    raw: Annotated[list[str] | None, typer.Argument(
        metavar="RAW... [rule.key=value]...", help="Raw text: txt, jsonl, csv, tsv, parquet, compressed or not, globs, "
        "- for standard input; and changes to the rules, such as short_lines.words=3 or bullets=off.")] = None,
    *,
    out: Annotated[Path, typer.Option(
        "--out", metavar="DIR", callback=new_folder, help="A new folder, or that of a run that was "
        "stopped.")] = Path("clean"),
    rules: Annotated[str, typer.Option(help="c4, gopher, all, or a .yaml file as --print-rules writes it.")] = "all",
    document: Annotated[str | None, typer.Option(
        help="What one document is in a .txt file: file, paragraph or line.")] = None,
    column: Annotated[str | None, typer.Option(
        help="The column of the text; `text` or the only one without it.")] = None,
    language: Annotated[str | None, typer.Option(
        "--language", metavar="CODE", help="Keep this language only, such as en.")] = None,
    bad_words: Annotated[str | None, typer.Option(
        "--bad-words", metavar="FILE", help="Drop documents with a word of this list.")] = None,
    against: Annotated[list[str] | None, typer.Option(
        metavar="FILE", help="Drop documents that share 13 words in a row with this evaluation text. Can be given "
        "again.")] = None,
    keep_rejected: Annotated[bool, typer.Option("--keep-rejected", help="Keep the text of dropped documents.")] = False,
    workers: Annotated[int, typer.Option(
        min=1, help="Processes; several clean several files at once (extra `clean`).")] = 1,
    print_rules: Annotated[bool, typer.Option("--print-rules", help="Print the rules as a file, and stop.")] = False,
    why: Annotated[str | None, typer.Option(
        metavar="N", help="Say why document N (or FILE:LINE) of --out was dropped.")] = None,
    as_json: AsJson = False,
) -> None:
    """Turn raw text into a corpus: rules of C4 and Gopher, no duplicates, shuffled, with a report of what went."""
    from saucier.jobs.cleaning import clean as job
    from saucier.jobs.cleaning.clean import cleaning, rules_to_yaml
    from saucier.jobs.cleaning.summary import render_cleaning
    from saucier.recipes.source import is_override

    if why is not None:
        found = job.explain_rejection(out, why)
        print_found(lambda: found, lambda: explain(found), as_json=as_json)
        return
    options = {"language.code": language, "bad_words.file": bad_words, "column": column, "document": document,
               "contamination.files": list(against) if against else None}
    changes = [f"{key}={json.dumps(value)}" for key, value in options.items() if value is not None]
    settings = cleaning(rules, [*changes, *filter(is_override, raw or ())])
    if print_rules:
        typer.echo(rules_to_yaml(settings), nl=False)
        return
    files = require_files([word for word in raw or () if not is_override(word)])
    report = job.clean(files, settings, out, wishes=job.CleaningOptions(workers, keep_rejected), say=log_line)
    print_found(lambda: report.model_dump(mode="json"), lambda: render_cleaning(report), as_json=as_json)
    if not as_json:
        more = " …" if len(report.shards) > 1 else ""
        typer.echo(f"corpus      {out}/{report.shards[0]}{more}; report {out}/{job.PAGE}")


def require_files(files: list[str]) -> list[str]:
    """Return the files; there must be one. Raises `InputError`."""
    from saucier.errors import InputError
    from saucier.text.reading.sources import is_standard_input

    if wrong := [word for word in files if word.startswith("-") and not is_standard_input(word)]:
        raise InputError(f"there is no option {wrong[0]}", where="saucier clean", remedy="`--help` shows what there is")
    if not files:
        raise InputError("no raw text is named", where="saucier clean", remedy="give files, or - for standard input")
    return files


def log_line(what: str, about: str) -> None:
    """Write a line of progress to standard error."""
    typer.echo(f"{what:<11} {about}", err=True)


def explain(found: dict[str, object]) -> str:
    """Say why a document was dropped."""
    place = f", line {found['at']} of it" if found["at"] else ""
    text = found.get("text", found["beginning"])
    return (f"document {found['document']}, {found['source']}, line {found['line']}\n"
            f"dropped by {found['rule']}: {found['reason']}{place}\n\n{text}")
