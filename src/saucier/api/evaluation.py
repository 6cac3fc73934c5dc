"""The public function `evaluate`: any model on any file."""

# Annotations are evaluated here, not postponed: `saucier.arguments` reads them.

from typing import TYPE_CHECKING, Annotated

from saucier.api.options import Base, InferenceDtype
from saucier.api.requests import file_names, format_changes
from saucier.arguments import Changes, Files, Help, Place, public

if TYPE_CHECKING:
    from saucier.jobs.evaluation.measurement import Evaluation


@public
def evaluate(
    model: Annotated[Place, Help("A run, a fine-tuning, a model folder in any layout, an adapter, or a hub id.",
                                 metavar="MODEL")],
    rows: Annotated[Files, Help(
        "Text for a language model, labelled rows for a task, pairs for a translator; what a run or a fine-tuning "
        "holds out without it. Words such as data.column=COLUMN and task.label=COLUMN say how they are read.",
        metavar="FILE|key.sub=value")] = (),
    *,
    set: Annotated[Changes, Help("How the rows are read: {'task.label': COLUMN}.", shell=False)] = (),
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
    dtype: InferenceDtype = "auto",
    base: Base = None,
) -> "Evaluation":
    """Measure a model on a file: perplexity and bits per byte of text, scores of answers, each with an interval.

    From Python: `found["accuracy"]` is a score with its interval. Raises `InputError` for a model that cannot be
    measured on such rows.
    """
    from saucier.text.reading.sources import find_sources

    files = file_names(rows)
    find_sources(files)  # a file that is not there is refused before torch is imported
    from saucier.jobs.evaluation.evaluate import evaluate as work
    from saucier.jobs.evaluation.measurement import EvaluationOptions

    return work(str(model), files, EvaluationOptions(
        changes=format_changes(set), baselines=baselines, beams=beams, limit=limit, stride=stride, length=length,
        batch=batch, memory=memory, dtype=dtype, base=None if base is None else str(base)))
