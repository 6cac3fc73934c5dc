"""Public functions that measure: `evaluate` a model on any file, `bench` its formats, `score` predictions."""

# Annotations are evaluated here, not postponed: `saucier.arguments` reads them.

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from saucier.api.options import BadRows, Base, Delimiter, Encoding, InferenceDtype, NumberFormat
from saucier.api.requests import (
    column_names,
    file_names,
    format_changes,
    refuse_folder,
    refuse_missing_model,
    row_files,
)
from saucier.arguments import Changes, Files, Help, Place, Rows, public
from saucier.errors import InputError

if TYPE_CHECKING:
    from saucier.jobs.bench import Bench
    from saucier.jobs.evaluation.measurement import Evaluation
    from saucier.jobs.score import ScoreReport


@public
def evaluate(
    model: Annotated[Place, Help("A run, a fine-tuning, a model folder in any layout, an adapter, or a hub id.",
                                 metavar="MODEL", check=refuse_missing_model)],
    rows: Annotated[Rows, Help(
        "Text for a language model, labelled rows for a task, pairs for a translator; what a run or a fine-tuning "
        "holds out without it. Words such as data.column=COLUMN and task.label=COLUMN say how they are read.",
        metavar="FILE|key.sub=value")] = (),
    *,
    set: Annotated[Changes, Help("How the rows are read: {'task.label': COLUMN}.", shell=False)] = (),
    columns: Annotated[Changes, Help(
        "The column of the text; or ROLE=NAME for what the task calls text, label and so on. Can be given again.",
        metavar="[ROLE=]NAME", option="--column")] = (),
    bad_rows: BadRows = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    baselines: Annotated[bool, Help("Measure simple methods, too: n-grams and xz for a language model, those of the "
                                    "task for a fine-tuning.")] = False,
    beams: Annotated[int | None, Help("Beams of a model that writes.", minimum=1)] = None,
    limit: Annotated[int | None, Help("The first documents, pairs or rows only.", minimum=1)] = None,
    stride: Annotated[int | None, Help("Let windows overlap: each begins this many tokens after the last. Of a masked "
                                       "model: the distance of tokens that are hidden at a time.", minimum=1)] = None,
    length: Annotated[int | None, Help("Tokens of a window; as many as the model reads by default.",
                                       minimum=2)] = None,
    batch: Annotated[int | None, Help("Rows in one pass.", minimum=1)] = None,
    memory: Annotated[int | None, Help("Tokens that a model with a memory remembers; as in training by default.",
                                       minimum=1)] = None,
    format: NumberFormat = None,
    dtype: InferenceDtype = "auto",
    base: Base = None,
) -> "Evaluation":
    """Measure a model on a file: perplexity and bits per byte of text, scores of answers, each with an interval.

    From Python: `found["accuracy"]` is a score with its interval. Raises `InputError` for a model that cannot be
    measured on such rows.
    """
    from tempfile import TemporaryDirectory

    from saucier.text.reading.guessing import ReadOptions
    from saucier.text.reading.sources import find_sources

    read = ReadOptions(delimiter, encoding)
    with TemporaryDirectory(prefix="saucier-rows-") as folder:
        files = row_files(rows, folder, "rows")
        find_sources(files, read)  # a file that is not there is refused before torch is imported
        from saucier.jobs.evaluation.evaluate import evaluate as work
        from saucier.jobs.evaluation.measurement import EvaluationOptions

        return work(str(model), files, EvaluationOptions(
            changes=format_changes(set), baselines=baselines, beams=beams, limit=limit, stride=stride, length=length,
            batch=batch, memory=memory, dtype=dtype, base=None if base is None else str(base), read=read,
            columns=column_names(columns), bad_rows=bad_rows, format=format))


@public
def bench(
    model: Annotated[Place, Help("A run, a fine-tuning, a model folder in any layout, or a hub id.", metavar="MODEL",
                                 check=refuse_missing_model)],
    set: Annotated[Changes, Help("How rows are read: {'task.label': COLUMN}.", shell=False)] = (),
    *,
    data: Annotated[Rows | None, Help("Your own text, or labelled rows: what each format loses on it. Can be given "
                                      "again.", metavar="FILE")] = None,
    loss: Annotated[float, Help("What --format auto may lose from now on: nats of KL divergence; of labelled rows the "
                                "share by which the score differs; of vectors that of other nearest neighbours.",
                                minimum=0)] = 0.0,
    tokens: Annotated[int, Help("New tokens of a turn.", minimum=1)] = 32,
    columns: Annotated[Changes, Help("The column of the text; or ROLE=NAME. Can be given again.",
                                     metavar="[ROLE=]NAME", option="--column")] = (),
    limit: Annotated[int | None, Help("The first documents, pairs or rows only.", minimum=1)] = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    base: Base = None,
    out: Annotated[Place | None, Help("Draw it into DIR/bench.html.", metavar="DIR", check=refuse_folder)] = None,
) -> "Bench":
    """Measure every number format of a model on this machine: speed, what memory allows, and what is lost on your text.

    The fastest format that loses no more than --loss is what --format auto takes for this model on this machine.
    """
    from tempfile import TemporaryDirectory

    from saucier.text.reading.guessing import ReadOptions
    from saucier.text.reading.sources import find_sources

    read = ReadOptions(delimiter, encoding)
    with TemporaryDirectory(prefix="saucier-rows-") as folder:
        files = row_files(data, folder, "rows")
        find_sources(files, read)  # a file that is not there is refused before torch is imported
        from saucier.jobs.bench import bench as work
        from saucier.jobs.evaluation.measurement import EvaluationOptions

        return work(Path(model), files, loss=loss, tokens=tokens, out=None if out is None else Path(out),
                    options=EvaluationOptions(changes=format_changes(set), columns=column_names(columns), read=read,
                                              limit=limit, base=None if base is None else str(base)))


@public
def score(
    predictions: Annotated[Files, Help('Predictions: JSONL rows {"id", "prediction", "gold"}; two files are compared '
                                       "row by row.", metavar="A B")],
    *,
    gold: Annotated[Place | None, Help("The labelled file: table, JSONL, CoNLL or SQuAD. Without it: the rows' own "
                                       "golds.", metavar="FILE")] = None,
    column: Annotated[str | None, Help("Where the golds stand in that file.", metavar="NAME")] = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    kind: Annotated[str | None, Help("classes, choices, many_labels, numbers, tags, spans, texts, summaries, "
                                     "rankings, ranks, losses; guessed without it.")] = None,
    metric: Annotated[Files | None, Help("Such as macro-f1 or entity-f1-iob2, not the usual ones. Can be given again.",
                                         metavar="NAME")] = None,
    group: Annotated[str | None, Help("Rows with the same value here are one ranking (MAP, MRR).",
                                      metavar="COLUMN")] = None,
    seed: Annotated[int, Help("Draws the intervals.", minimum=0)] = 0,
) -> "ScoreReport":
    """Score predictions: every metric of their kind with a 95 % interval, and each class by itself.

    With two files: how far they are apart, whether that is chance, and the rows where they differ most.
    """
    from saucier.jobs.score import score_files
    from saucier.text.reading.guessing import ReadOptions

    files = file_names(predictions)
    if not 1 <= len(files) <= 2:
        raise InputError(f"{len(files)} files of predictions", where="command line",
                         remedy="give one, or two to compare")
    return score_files(files, None if gold is None else str(gold), column=column, kind=kind,
                       metrics=file_names(metric), group=group, seed=seed, options=ReadOptions(delimiter, encoding))
