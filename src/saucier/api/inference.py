"""Public functions that ask a model: `write`, `predict`, `embed_files`, `prompt`, `backtranslate`, `augment`."""

# Annotations are evaluated here, not postponed: `saucier.arguments` reads them.

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from saucier.api.options import (
    BadRows,
    Base,
    Delimiter,
    Device,
    Encoding,
    InferenceDtype,
    NumberFormat,
    Run,
    SourceLanguage,
    TargetLanguage,
)
from saucier.api.requests import (
    column_names,
    file_names,
    optional_path,
    refuse_file,
    refuse_folder,
    refuse_missing_files,
    refuse_missing_model,
    row_files,
)
from saucier.arguments import Changes, Files, Help, Place, Rows, public
from saucier.errors import InputError
from saucier.files import refuse_existing

if TYPE_CHECKING:
    from saucier.jobs.finetuning.predictions import Predictions
    from saucier.jobs.prompting.evaluation import PromptOutcome
    from saucier.jobs.vectors import TextVectors
    from saucier.jobs.writing.augmentation import AugmentedRows
    from saucier.jobs.writing.batches import SyntheticPairs
    from saucier.jobs.writing.written import Written


@public
def write(
    model: Run,
    prompt: Annotated[str | Sequence[str], Help(
        "The text to continue or to translate; standard input without it. `--` before it where it starts with a dash.",
        metavar="PROMPT")] = "",
    *,
    tokens: Annotated[int, Help("The most tokens to write.", minimum=1)] = 200,
    temperature: Annotated[float, Help("0 takes the likeliest token every time.", minimum=0)] = 0.8,
    top_k: Annotated[int | None, Help("Draw from the k likeliest tokens only.", minimum=1)] = None,
    top_p: Annotated[float | None, Help("Draw from the likeliest tokens that hold this probability.",
                                        maximum=1)] = None,
    beams: Annotated[int, Help("Beam search with so many hypotheses; nothing is drawn at random.", minimum=1)] = 1,
    length_penalty: Annotated[float, Help("Above 0 beams favour long texts.")] = 1.0,
    repetition_penalty: Annotated[float, Help("Above 1 tokens that are there already are less likely.",
                                              minimum=0)] = 1.0,
    no_repeat_ngram: Annotated[int, Help("No n-gram of this size twice.", minimum=0)] = 0,
    stop: Annotated[str | Sequence[str] | None, Help("End behind this text. Can be given again.",
                                                     metavar="TEXT")] = None,
    samples: Annotated[int, Help("How many texts to write.", minimum=1)] = 1,
    seed: Annotated[int | None, Help("The same seed draws the same text.", minimum=0)] = None,
    strategy: Annotated[str | None, Help(
        "Not from left to right: `gibbs` or `metropolis_hastings` fill in the mask tokens of a text, as in 'gibbs "
        "steps=200'; `mask_predict` sets how a model that writes whole texts does so.",
        metavar="'KIND [name=value]...'")] = None,
    masks: Annotated[int, Help("With such a strategy: so many mask tokens behind the text.", minimum=0)] = 0,
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    file: Annotated[Files | None, Help("Write for each line of a text file, or each row of a table. Can be given "
                                       "again.", metavar="FILE", check=refuse_missing_files)] = None,
    column: Annotated[str | None, Help("With --file: the column of a table that holds the sources.")] = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    out: Annotated[Place | None, Help("With --file: one line for each source goes here.", metavar="FILE",
                                      check=refuse_file)] = None,
    batch: Annotated[int, Help("With --file: so many sources at a time.", minimum=1)] = 32,
    compile: Annotated[bool, Help("Compile the model first: slow to start, then faster.")] = False,
    lookup: Annotated[int | None, Help("Read up to so many tokens at once, guessed from what stands in the text or its "
                                       "source already; the same is written.", minimum=1, maximum=128)] = None,
    draft: Annotated[Place | None, Help("A smaller model with the same tokenizer that guesses the next tokens; the "
                                        "same is written.", metavar="MODEL", check=refuse_missing_model)] = None,
    format: NumberFormat = None,
    dtype: InferenceDtype = "auto",
    device: Device = "auto",
    base: Base = None,
    speak: Annotated[Callable[[str], None] | None, Help("Is given the text while it is written.", shell=False)] = None,
) -> "Written":
    """Let a model write on from a prompt, or translate one. Text appears while it is written.

    From Python: returns the texts. `saucier.generate` does the same with ids and a model that is in memory.
    """
    from saucier.text.reading.guessing import ReadOptions

    options, files = ReadOptions(delimiter, encoding), file_names(file)
    from saucier.jobs.writing import written as job
    from saucier.opened import open_lowered

    drawing = job.Drawing(tokens, temperature, top_k, top_p, beams, length_penalty, repetition_penalty, no_repeat_ngram,
                          tuple(file_names(stop)), samples, seed, compile)
    sources = None if file is None else job.Sources(files, column, optional_path(out), batch, options)
    job.refuse_unused(sources, {"--out": out, "--column": column, "--delimiter": delimiter, "--encoding": encoding},
                      strategy)
    text = prompt if isinstance(prompt, str) else " ".join(prompt)
    if (dtype, device, compile) == ("auto", "auto", False) and not any(
            (sources, strategy, source_language, target_language, lookup, draft, base)):
        lowered = open_lowered(Path(model), format)
        if lowered is not None:
            return job.write_on(lowered, text, drawing.options(), speak)
    opened = job.open_writer(Path(model), dtype, device, base, format)
    if (dtype, compile) == ("auto", False):
        from saucier.generation.formats import use_few_bits

        use_few_bits(opened.model)
    way = job.Way(source_language, target_language, strategy, masks)
    ahead = job.choose_speculation(opened, way, lookup, optional_path(draft), dtype)
    if sources is not None:
        return job.write_for_files(opened, sources, drawing, way, ahead)
    return job.write_for_prompt(opened, text, drawing, way, speak, ahead)


@public
def predict(
    model: Annotated[Place, Help("The folder of a fine-tuning, or a model for a task.", metavar="MODEL",
                                 check=refuse_missing_model)],
    rows: Annotated[Rows, Help("Rows to answer for: tables, text files with a text in each line, - for standard input.",
                               metavar="FILE")] = (),
    *,
    texts: Annotated[str | Sequence[str], Help("A text to answer for; `FIRST ||| SECOND` for a pair. Can be given "
                                               "again.", metavar="TEXT", option="--text")] = (),
    columns: Annotated[Changes, Help(
        "The column of the text; or ROLE=NAME for what the task calls text, pair, words, question and so on. Can be "
        "given again.", metavar="[ROLE=]NAME", option="--column")] = (),
    bad_rows: BadRows = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    format: NumberFormat = None,
    base: Base = None,
    out: Annotated[Place | None, Help("Write JSON lines here.", metavar="FILE", check=refuse_file)] = None,
) -> "Predictions":
    """Answer for the rows of files, or for texts: one line each, JSON with --json or into a file.

    All columns of a row are kept.

    From Python: `rows` may be a list of mappings, an Arrow table or a dataframe. Returns the answers with their rows;
    raises `InputError` for files, columns and rows that are wrong.
    """
    from tempfile import TemporaryDirectory

    from saucier.jobs.finetuning.predict import RowOptions
    from saucier.jobs.finetuning.predictions import predict as work
    from saucier.text.reading.guessing import ReadOptions

    options = RowOptions(ReadOptions(delimiter, encoding), column_names(columns), drop=bad_rows == "drop")
    with TemporaryDirectory(prefix="saucier-rows-") as folder:
        return work(str(model), row_files(rows, folder, "rows"), file_names(texts),
                    base=None if base is None else str(base), out=optional_path(out), options=options,
                    number_format=format)


@public
def embed_files(
    model: Annotated[Place, Help("A model that gives texts vectors, such as a folder of sentence-transformers.",
                                 metavar="MODEL", check=refuse_missing_model)],
    files: Annotated[Files, Help("Texts: one a line, or a row of a table; - for standard input.", metavar="FILE",
                                 check=refuse_missing_files)] = (),
    *,
    texts: Annotated[str | Sequence[str], Help("A text. Can be given again.", metavar="TEXT", option="--text")] = (),
    column: Annotated[str | None, Help("The column of a table that holds the text; `text`, or the only one, without "
                                       "it.")] = None,
    bad_rows: BadRows = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    out: Annotated[Place | None, Help(
        "Write the vectors here: .npy holds them alone, .parquet and .jsonl each row with its vector.", metavar="FILE",
        check=refuse_file)] = None,
    batch: Annotated[int, Help("So many texts at a time.", minimum=1)] = 32,
    format: NumberFormat = None,
    device: Device = "auto",
) -> "TextVectors":
    """Give each row of files, and each text, a vector by which texts are compared.

    Without --out the first texts are shown, each with the one that is nearest to it; --json prints all vectors.

    From Python: returns the vectors, or where they are. `saucier.embed` does the same for texts in memory.
    """
    from saucier.jobs.vectors import TextFiles
    from saucier.jobs.vectors import embed_files as work
    from saucier.text.reading.guessing import ReadOptions

    given = TextFiles(file_names(files), file_names(texts), column, ReadOptions(delimiter, encoding),
                      bad_rows == "drop")
    from saucier.jobs.run.console import show_progress

    return work(str(model), given, optional_path(out), number_format=format, device=device, batch=batch,
                show=show_progress)


@public
def prompt(
    task: Annotated[Place, Help("The task: files, wording, how answers are taken.", metavar="TASK.yaml")],
    *,
    model: Annotated[Place, Help("A model folder, a run, or a hub id.", metavar="MODEL", check=refuse_missing_model)],
    shots: Annotated[str, Help("Examples in front of each question: 0,1,4.", metavar="N,...")] = "0",
    draws: Annotated[int, Help("Times that the examples are drawn anew.", minimum=1)] = 1,
    limit: Annotated[int | None, Help("Ask so many questions only.", minimum=1)] = None,
    seed: Annotated[int, Help("Draws the examples and the intervals.", minimum=0)] = 0,
    out: Annotated[Place | None, Help("A new folder; runs/prompt-NAME by default.", metavar="DIR",
                                      check=refuse_folder)] = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    dtype: InferenceDtype = "auto",
    base: Base = None,
) -> "PromptOutcome":
    """Evaluate a model in context: zero-, one- and few-shot, by the likelihood of choices or by what it writes.

    The exact text that was sent, and every answer, stand in DIR/results.jsonl.
    """
    from saucier.jobs.prompting.questions import read_task

    settings = read_task(Path(task))  # what is wrong with it is said before torch is imported
    from saucier.files import find_free_name
    from saucier.jobs.prompting.evaluation import PromptPlan, run_prompting
    from saucier.jobs.prompting.prompted_model import open_prompted_model, read_shots

    said = {"delimiter": delimiter, "encoding": encoding}
    settings = read_task(Path(task)).model_copy(update={name: value for name, value in said.items() if value})
    requested = PromptPlan(read_shots(shots), draws, limit, seed)
    folder = optional_path(out) or find_free_name(Path("runs") / f"prompt-{settings.name}")
    opened = open_prompted_model(str(model), dtype, None if base is None else str(base))
    return run_prompting(settings, opened, requested, model=str(model), out=folder)


@public
def backtranslate(
    model: Run,
    files: Annotated[Files, Help("Texts of the target language: one a line, or a row of a table.", metavar="FILE...",
                                   check=refuse_missing_files)],
    *,
    out: Annotated[Place, Help("The pairs, as a new table.", metavar="FILE.tsv", check=refuse_file)],
    column: Annotated[str | None, Help("The column of a table that holds the texts.")] = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    columns: Annotated[str, Help("What the columns of the pairs are called.", metavar="SOURCE,TARGET")]
    = "source,target",
    beams: Annotated[int, Help("Beams of the reverse model.", minimum=1)] = 5,
    temperature: Annotated[float, Help("Draw sources at this temperature instead; 0 takes the likeliest.",
                                       minimum=0)] = 0.0,
    top_k: Annotated[int | None, Help("Draw from the k likeliest tokens only.", minimum=1)] = None,
    seed: Annotated[int, Help("The same seed draws the same sources.", minimum=0)] = 0,
    limit: Annotated[int | None, Help("The first so many texts only.", minimum=1)] = None,
    batch: Annotated[int, Help("So many texts at a time.", minimum=1)] = 64,
    source_language: Annotated[str | None, Help("Multilingual models: the language of the texts.")] = None,
    target_language: TargetLanguage = None,
) -> "SyntheticPairs":
    """Let a model that translates backwards write a source for each text; `cook --synthetic` learns from the pairs."""
    names = tuple(name.strip() for name in columns.split(","))
    if len(names) != 2 or not all(names):
        raise InputError(f"{columns!r} is not two names", where="--columns", remedy="write source,target")
    from saucier.text.reading.guessing import ReadOptions

    options = ReadOptions(delimiter, encoding)
    from saucier.jobs.run.language_pairs import read_direction
    from saucier.jobs.writing import batches as job
    from saucier.jobs.writing.writer import choose_decoding
    from saucier.opened import open_model

    refuse_existing(Path(out))
    opened = open_model(Path(model))
    decoding = choose_decoding(beams=1 if temperature else beams, temperature=temperature, top_k=top_k, seed=seed)
    way = read_direction(opened, source_language, target_language)
    texts = list(job.source_texts(file_names(files), column, options))
    made = job.back_translate(job.make_batch_writer(opened, way), texts, decoding, limit=limit, batch=batch)
    return job.write_pairs_table(Path(out), made, (names[0], names[1]))


@public
def augment(
    model: Annotated[Place, Help("A masked language model, such as BERT with its language head.", metavar="RUN",
                                 check=refuse_missing_model)],
    files: Annotated[Files, Help("Labelled rows: jsonl, csv, tsv, parquet.", metavar="FILE...",
                                 check=refuse_missing_files)],
    *,
    out: Annotated[Place, Help("The new rows, as a new file of JSON lines.", metavar="FILE.jsonl", check=refuse_file)],
    columns: Annotated[str, Help("The columns whose words are replaced.", metavar="NAME,NAME")] = "text",
    rows: Annotated[int, Help("New rows for each; equal ones count once.", minimum=1)] = 20,
    share: Annotated[float, Help("Probability that a word is replaced.", minimum=0, maximum=1)] = 0.4,
    choices: Annotated[int, Help("Words that it is drawn from.", minimum=1)] = 15,
    vectors: Annotated[Place | None, Help(
        "Vectors of words, as GloVe's text files, for words of several tokens; the model's own table without it.",
        metavar="FILE", check=refuse_missing_files)] = None,
    seed: Annotated[int, Help("The same seed draws the same words.", minimum=0)] = 0,
    batch: Annotated[int, Help("So many texts at a time.", minimum=1)] = 64,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
) -> "AugmentedRows":
    """Make new labelled rows: words are replaced by others that a masked language model puts there (TinyBERT)."""
    names = [name.strip() for name in columns.split(",")]
    if not all(names) or len({*names}) < len(names):
        raise InputError(f"{columns!r} is no list of columns", where="--columns", remedy="write text or text,pair")
    if Path(out).suffix != ".jsonl":
        raise InputError("rows are written as JSON lines", where=f"--out: {out}",
                         remedy="give a name such as made.jsonl")
    from saucier.jobs.writing import augmentation as job
    from saucier.opened import open_model
    from saucier.text.reading.guessing import ReadOptions

    refuse_existing(Path(out))
    table = job.ReadTable.read(file_names(files), names, ReadOptions(delimiter, encoding))
    near = None if vectors is None else job.WordVectors.read(str(vectors))
    how = job.Replacing(rows, share, choices, seed)
    return job.augment_rows(open_model(Path(model)), table, how, Path(out), vectors=near, batch=batch)
