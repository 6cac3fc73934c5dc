"""`saucier score`: how good predictions are, and whether one file of them is better than another."""

from __future__ import annotations

from typing import Annotated

import typer

from saucier.cli.arguments import AsJson, print_found

Files = Annotated[list[str], typer.Argument(
    metavar="A [B]", help='Predictions: JSONL rows {"id", "prediction", "gold"}; two files are compared row by row.')]
GoldFile = Annotated[str | None, typer.Option(
    "--gold", metavar="FILE", help="The labelled file: table, JSONL, CoNLL or SQuAD. Without it: the rows' own golds.")]
Column = Annotated[str | None, typer.Option("--column", metavar="NAME", help="Where the golds stand in that file.")]
Kind = Annotated[str | None, typer.Option(
    "--kind", help="classes, choices, many_labels, numbers, tags, spans, texts, summaries, rankings, ranks, losses; "
                   "guessed without it.")]
Metrics = Annotated[list[str] | None, typer.Option(
    "--metric", metavar="NAME", help="Such as macro-f1 or entity-f1-iob2, not the usual ones. Can be given again.")]
Group = Annotated[str | None, typer.Option(
    "--group", metavar="COLUMN", help="Rows with the same value here are one ranking (MAP, MRR).")]
Seed = Annotated[int, typer.Option(min=0, help="Draws the intervals.")]


def score(files: Files, *, gold: GoldFile = None, column: Column = None, kind: Kind = None, metric: Metrics = None,
          group: Group = None, seed: Seed = 0, as_json: AsJson = False) -> None:
    """Score predictions: every metric of their kind with a 95 % interval, and each class by itself.

    With two files: how far they are apart, whether that is chance, and the rows where they differ most.
    """
    from saucier.errors import InputError
    from saucier.jobs.score import render_report, score_files
    from saucier.plain import json_value

    if len(files) > 2:
        raise InputError(f"{len(files)} files of predictions", where="command line",
                         remedy="give one, or two to compare")
    found = score_files(files, gold, column=column, kind=kind, metrics=metric or (), group=group, seed=seed)
    print_found(lambda: json_value(found), lambda: render_report(found), as_json=as_json)
