"""Public functions that train: `cook`, `train`, `rerun`, `finetune`, `fit`, `compare`, `compress`."""

# Annotations are evaluated here, not postponed: `saucier.arguments` reads them.

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from saucier.api.options import (
    BadRows,
    Calibrate,
    Delimiter,
    Encoding,
    HeldOutText,
    Out,
    Quiet,
    RecipeChanges,
    RecipeOrRun,
    TextData,
)
from saucier.api.requests import (
    Begin,
    TextFiles,
    column_names,
    file_names,
    format_changes,
    optional_path,
    read_request,
    refuse_file,
    refuse_folder,
    refuse_missing_files,
    refuse_missing_model,
    refuse_missing_runs,
    row_files,
)
from saucier.arguments import Changes, Files, Help, Place, Rows, is_override, not_imported, public, with_arguments_of
from saucier.errors import InputError

if TYPE_CHECKING:
    from saucier.jobs.comparison.outcome import Outcome
    from saucier.jobs.compression.outcome import Compressed
    from saucier.jobs.compression.settings import ChainList
    from saucier.jobs.finetuning.finished import Finetuned
    from saucier.jobs.fit import Fitted
    from saucier.jobs.run.passport import RerunComparison
    from saucier.model import Transformer
    from saucier.report.results import Run
    from saucier.training.hyperparameters import Training
else:
    Transformer = not_imported("saucier.model", "Transformer")
    Training = not_imported("saucier.training.hyperparameters", "Training")

Steps = Annotated[int | None, Help("Updates of the weights in all; a run that has ended goes on to more.", metavar="N",
                                   minimum=1)]
What = Annotated[RecipeOrRun, Help("A recipe's name or file, or a run folder to go on with; not needed with --from.",
                                   metavar="RECIPE")]
Start = Annotated[Place | None, Help("Begin with the weights and the tokenizer of this model or run.", metavar="MODEL",
                                     option="--from", check=refuse_missing_model)]
EncoderStart = Annotated[Place | None, Help(
    "Learn from pairs with an encoder-decoder whose encoder begins with the weights of this model.", metavar="MODEL",
    check=refuse_missing_model)]
DecoderStart = Annotated[Place | None, Help("The same for the decoder; may be the same.", metavar="MODEL",
                                            check=refuse_missing_model)]
Shared = Annotated[bool, Help("With these: both sides share their weights.")]
Synthetic = Annotated[Files | None, Help(
    "Learn from these pairs too, which `saucier backtranslate` made. Can be given again.", metavar="FILE",
    check=refuse_missing_files)]
SourceEncoder = Annotated[int | None, Help(
    "With --from: put a new encoder of so many blocks before that of an encoder-decoder, and learn from pairs in two "
    "stages.", metavar="LAYERS", minimum=1)]


@public
def cook_run(evaluate: bool, recipe: What = None, set: RecipeChanges = (), *, data: TextData = None,
             held_out: HeldOutText = None, out: Out = None, steps: Steps = None, start: Start = None,
             encoder: EncoderStart = None, decoder: DecoderStart = None, shared: Shared = False,
             synthetic: Synthetic = None, source_encoder: SourceEncoder = None, delimiter: Delimiter = None,
             encoding: Encoding = None, calibrate: Calibrate = True, quiet: Quiet = False) -> "Run":
    """Cook what was requested, or go on with it: the whole of it (`evaluate`), or the training alone."""
    files = TextFiles.of(data, held_out, out, synthetic=synthetic, delimiter=delimiter, encoding=encoding)
    found, given = read_request(recipe, with_key(set, "training.steps", steps), files,
                                Begin(start, encoder, decoder, shared, source_encoder))
    from saucier.text.languages import check_first_rows

    check_first_rows(found.data)
    from saucier.jobs.pretraining.cook import JobOptions
    from saucier.jobs.pretraining.cook import cook as work
    from saucier.jobs.run.folder import PRETRAINING, default_folder
    from saucier.report.results import read_run

    folder = optional_path(out) or given or default_folder(found, PRETRAINING)
    options = JobOptions(calibrate=calibrate, evaluate=evaluate, quiet=quiet, start=optional_path(start))
    return read_run(work(found, folder, options).path)


@with_arguments_of(cook_run)
def cook(**given: Any) -> "Run":
    """Read text, train a tokenizer and a model, evaluate, sample and report. A run that was stopped goes on.

    With --steps a run that has ended gets more. With --from another run goes on from a model that is there; a recipe
    for that is made where none is given.

    From Python: the text may be rows in memory (a column `text`), which are copied into `out`/rows, or runs/rows.
    Returns the run, with its folder, results and curves. Raises `InputError` for a recipe or text that is
    wrong and for a folder with another run, `WorkError` when training fails or is interrupted (after saving).
    """
    return cook_run(True, **given)


@with_arguments_of(cook_run)
def train(**given: Any) -> "Run":
    """Train a model and stop there; `saucier cook` on the same folder evaluates, samples and reports.

    From Python: returns and raises as `cook`; the run has no results yet.
    """
    return cook_run(False, **given)


def with_key(changes: Changes, key: str, value: object) -> list[str]:
    """Return changes as words, with one more where a value is given."""
    return [*format_changes(changes), *([] if value is None else [f"{key}={value}"])]


@public
def rerun(run: Annotated[Place, Help("A finished run folder.", metavar="RUN", check=refuse_missing_runs)], *,
          out: Annotated[Place | None, Help("Where to; RUN-again by default.", metavar="DIR",
                                            check=refuse_folder)] = None,
          quiet: Quiet = False) -> "RerunComparison":
    """Repeat a run from its passport. Exit code 0 when both results are equal to the last bit, 1 when they differ.

    From Python: raises `InputError` for a run that is not finished.
    """
    from saucier.jobs.pretraining.cook import rerun as work
    from saucier.jobs.run.console import Console

    found = work(Path(run), optional_path(out), quiet=quiet)
    Console(silent=quiet).show("\n" + found.view())
    return found


@public
def finetune(
    task: Annotated[Place, Help("A kind of task, such as classification or translation; a file of settings; or a "
                                "folder.", metavar="TASK")],
    set: Annotated[Changes, Help("Settings, such as training.epochs=5 or task.label=COLUMN.",
                                 metavar="key.sub=value")] = (),
    *,
    model: Annotated[Place | None, Help("A folder, a run, or a hub id; or a recipe, to learn from nothing.",
                                        metavar="MODEL")] = None,
    data: Annotated[Rows | None, Help("Labelled rows to learn from.", metavar="FILE...")] = None,
    held_out: Annotated[Rows | None, Help("To measure with; a tenth of the data without.", metavar="FILE")] = None,
    test: Annotated[Rows | None, Help("To measure with at the very end.", metavar="FILE")] = None,
    epochs: Annotated[float | None, Help("How often each row is seen, in all; what is finished goes on to more.",
                                         metavar="N", minimum=0)] = None,
    columns: Annotated[Changes, Help(
        "The column of the text; or ROLE=NAME for what the task calls text, label and so on; held-out.ROLE=NAME and "
        "test.ROLE=NAME where those files have other names. Can be given again.", metavar="[ROLE=]NAME",
        option="--column")] = (),
    bad_rows: BadRows = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    search: Annotated[int | None, Help(
        "First search for rate, epochs, batch and pooling on the held-out rows: N combinations, of which the better "
        "half goes on after each round.", metavar="N", minimum=2, maximum=1000)] = None,
    find_rate: Annotated[bool, Help("First find the learning rate, by a range test.")] = False,
    out: Out = None,
    quiet: Quiet = False,
) -> "Finetuned":
    """Show what will be learned, train, score with intervals next to simple methods, and write predictions.

    From Python: the rows may be lists of mappings, Arrow tables or dataframes, which are copied into `out`/rows, or
    runs/rows. Returns the folder, the scores, and whether simple methods are beaten; raises `InputError` for settings,
    files or rows that are wrong, `WorkError` when training fails or is interrupted (after saving).
    """
    from saucier.jobs.finetuning.labelled_files import refuse_missing_columns, row_changes

    files = {name: row_files(rows, out, name) for name, rows in (("train", data), ("held_out", held_out),
                                                                 ("test", test))}
    changes = [*row_changes(str(task), column_names(columns), bad_rows=bad_rows, delimiter=delimiter,
                            encoding=encoding), *with_key(set, "training.epochs", epochs)]
    refuse_missing_columns(str(task), changes, files)
    from saucier.jobs.finetuning.entry import run_finetuning

    return run_finetuning(str(task), changes, model=None if model is None else str(model), files=files,
                          out=optional_path(out), quiet=quiet, search=search, find_rate=find_rate)


@public
def fit(
    model: Annotated[Transformer, Help("What `saucier.build` or `saucier.load` returns; it is trained in place.")],
    batches: Annotated[Any, Help("A list of batches, gone through again and again; or a function that gives, for the "
                                 "number of a step from 0, always the same batch. A batch is a tensor, a tuple of "
                                 "tensors, or tensors by name, with a row for each example.")],
    loss: Annotated[Any, Help("A function of the model and a batch that returns the mean loss over its rows; a module "
                              "with weights learns too.")],
    *,
    training: Annotated[Training | Changes, Help("Settings of the loop: {'steps': 100}, or words such as "
                                                 "training.steps of a recipe without `training.`.")],
    out: Annotated[Place, Help("The run folder; one that was stopped goes on.", metavar="DIR", check=refuse_folder)],
    evaluate: Annotated[Any, Help("Batches on which the loss is measured; or a function of the model that returns a "
                                  "loss, or figures by name with a `loss` among them.")] = None,
    quiet: Quiet = False,
) -> "Fitted":
    """Train a model on tensors and a loss of one's own: the same loop, checkpoints, resume and report.

    At the end the model has the weights of the best evaluation, or the last ones. Raises `InputError` for what cannot
    be trained and for a folder with another run, `WorkError` when training fails or is interrupted (after saving).
    """
    from saucier.jobs.fit import fit as work

    return work(model, batches, loss, training=training, out=out, evaluate=evaluate, quiet=quiet)


@public
def compare(
    recipes: Annotated[Files, Help(
        "Recipes by name or file, or one study file; then changes to all, key.sub=value, or to one, A:key.sub=value.",
        metavar="A|B|STUDY")],
    set: Annotated[Changes, Help("Changes to all recipes, or to one: `A:key.sub=value`.", shell=False)] = (),
    *,
    budget: Annotated[str | None, Help("flops=1e15, tokens=2e6, seconds=300 or parameters=2e6 for each run.",
                                       metavar="UNIT=AMOUNT")] = None,
    seeds: Annotated[int | None, Help("Runs of each recipe; 3 by default.", metavar="N")] = None,
    data: TextData = None,
    held_out: HeldOutText = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    judge: Annotated[str | None, Help("loss; or accuracy after fine-tuning: classify:TRAIN.tsv,DEV.tsv of texts, "
                                      "tag:TRAIN.tsv,DEV.tsv of words.", metavar="JUDGE")] = None,
    own_tokenizers: Annotated[bool, Help("Each recipe trains its own tokenizer.")] = False,
    out: Annotated[Place | None, Help("The folder; runs/NAME by default.", metavar="DIR", check=refuse_folder)] = None,
    page: Annotated[Place | None, Help(
        "Also write a page of Markdown, its picture beside it; what stands under its last heading, 'What it says', is "
        "yours and stays.", metavar="FILE.md", check=refuse_file)] = None,
    workers: Annotated[int, Help("So many runs side by side, on Ray.", metavar="N", minimum=1)] = 1,
    threads: Annotated[int | None, Help("Threads of one run.", metavar="N", minimum=1)] = None,
    quiet: Quiet = False,
) -> "Outcome":
    """Train recipes at an equal budget, each with several seeds, and say which differences are real.

    A comparison that was stopped goes on where it was, also with more seeds.

    From Python: raises `InputError` for what cannot be compared, before anything is trained; `WorkError` as `cook`.
    """
    from saucier.jobs.comparison.experiment import read_budget, read_experiment, read_judge

    options = {"budget": budget and read_budget(budget).model_dump(), "seeds": seeds,
               "judge": judge and read_judge(judge), "own_tokenizers": own_tokenizers or None}
    read_as = TextFiles(delimiter=delimiter, encoding=encoding).changes()
    experiment = read_experiment([*file_names(recipes), *read_as, *format_changes(set)], options,
                                 row_files(data, out, "data"), row_files(held_out, out, "held-out"))
    from saucier.jobs.comparison.compare import compare as work
    from saucier.jobs.run.console import Console

    found = work(experiment, optional_path(out) or Path("runs") / experiment.name, workers=workers, threads=threads,
                 quiet=quiet)
    if page is not None:
        from saucier.jobs.comparison.report import write_comparison_page

        write_comparison_page(found, Path(page))
    Console(silent=quiet).show(found.view())
    return found


@public
def compress(
    chain: Annotated[Place | None, Help("A ready chain, a file of one, or the folder of a compression to go on with; "
                                        "without it: the list of the ready chains.", metavar="CHAIN")] = None,
    set: Annotated[Changes, Help("Changes to the chain, such as keep=0.95 or steps.0.training.epochs=2.",
                                 metavar="key.sub=value")] = (),
    *,
    model: Annotated[Place | None, Help("The model to make smaller: a fine-tuning, or a model that was published for a "
                                        "task.", metavar="MODEL", check=refuse_missing_model)] = None,
    data: Annotated[Rows | None, Help("Labelled rows that the steps learn from; those of the fine-tuning without.",
                                      metavar="FILE...")] = None,
    held_out: Annotated[Rows | None, Help("To measure every step with; as the fine-tuning held them out without.",
                                          metavar="FILE")] = None,
    test: Annotated[Rows | None, Help("To measure with too; the bound does not look at it.", metavar="FILE")] = None,
    bound: Annotated[str | None, Help("keep=0.97: the share of the model's first score that must be kept.",
                                      metavar="keep=SHARE")] = None,
    search: Annotated[bool, Help("Try a grid of chains, and show which models are small, fast and good.")] = False,
    budget: Annotated[float | None, Help("Seconds after which no further model is begun.", metavar="SECONDS",
                                         minimum=0)] = None,
    out: Out = None,
    quiet: Quiet = False,
) -> "Compressed | ChainList":
    """Make a model smaller by declared steps, measure each, and stop where less is kept than the chain says.

    Steps: distil (fewer layers, or another model), prune, quantize. Each leaves a folder STEP/model for `predict`. A
    chain that was stopped goes on at the step where it was. Exit code 1 when not one step keeps enough.

    From Python: returns the models with what they keep and cost; the list of chains where none is given. Raises
    `InputError` for what cannot be done, before anything is trained; `WorkError` as `finetune`.
    """
    from saucier.jobs.compression.settings import SEARCH, bound_words, list_chains, read_chain_words
    from saucier.jobs.run.console import Console

    console = Console(silent=quiet)
    words = [*format_changes(set), *bound_words(bound), *([] if budget is None else [f"budget={budget}"])]
    if search and (chain is None or is_override(str(chain))):  # the grid of ours, and a first change to it
        words, chain = [*([] if chain is None else [str(chain)]), *words], SEARCH
    if chain is None:
        ready = list_chains()
        console.show(ready.view())
        return ready
    files = {name: row_files(rows, out, name) for name, rows in (("train", data), ("held_out", held_out),
                                                                 ("test", test))}
    settings, folder, said = read_chain_words(str(chain), words, None if model is None else str(model), files)
    if search and not settings.grid:
        raise InputError("has steps, and a search tries a grid", where=str(chain),
                         remedy="leave the chain or --search out")
    from saucier.jobs.compression.compress import COMPRESSION
    from saucier.jobs.compression.compress import compress as work
    from saucier.jobs.run.folder import default_folder

    found = work(settings, optional_path(out) or folder or default_folder(settings, COMPRESSION), quiet=quiet,
                 said=[said] if said else [])
    console.show(found.view())
    return found
