"""Public functions about documents: `index`, `search`, `ask`."""

# Annotations are evaluated here, not postponed: `saucier.arguments` reads them.

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from saucier.api.options import Encoding, NumberFormat
from saucier.api.requests import file_names, refuse_folder, refuse_missing_files, refuse_missing_model
from saucier.arguments import Files, Help, Place, public
from saucier.errors import InputError

if TYPE_CHECKING:
    from saucier.jobs.knowledge.ask import Answered, Tuned
    from saucier.jobs.knowledge.index import IndexReport
    from saucier.jobs.knowledge.open_index import SearchResult

Index = Annotated[Place, Help("An index that `saucier index` made.", metavar="IDX")]
Where = Annotated[str | None, Help(
    "Only chunks that meet a condition on path, kind, section, text, page, line: 'path ~ \"2024\" and kind = \"pdf\"'.",
    metavar="CONDITION")]
SameModel = Annotated[Place | None, Help("The encoder of the index, where it is in another place now.", metavar="MODEL",
                                         check=refuse_missing_model)]
Language = Literal["danish", "dutch", "english", "french", "german", "italian", "norwegian", "portuguese", "russian",
                   "spanish", "swedish", "turkish"]


@public
def index(
    documents: Annotated[Files, Help("Files, folders and globs: txt, md, html, pdf, docx, jsonl, csv, tsv, parquet.",
                                     metavar="DOCS...")],
    *,
    out: Annotated[Place, Help("The index: a new folder, or one that is brought up to date.", metavar="IDX",
                               check=refuse_folder)],
    model: Annotated[Place | None, Help("A model that gives texts vectors; an index that is there knows its own.",
                                        metavar="MODEL", check=refuse_missing_model)] = None,
    length: Annotated[int | None, Help("The most tokens of a chunk; 200, or what the encoder reads.",
                                       minimum=1)] = None,
    overlap: Annotated[int | None, Help("The most tokens that a chunk repeats of the one before; 40.",
                                        minimum=0)] = None,
    language: Annotated[Language | None, Help("Of the words, which are searched by their stems; english.",
                                              metavar="NAME")] = None,
    column: Annotated[str | None, Help("The column of a table that holds the text; `text` or all without it.")] = None,
    encoding: Encoding = None,
    strict: Annotated[bool, Help("Write nothing where a file, a row or a page cannot be read.")] = False,
    format: NumberFormat = None,
) -> "IndexReport":
    """Index documents, to search and ask them. A second call reads only what changed; deleted files go.

    From Python: returns what became of the index; raises `InputError` for another encoder than it was made by.
    """
    from saucier.jobs.knowledge.index import IndexOptions, index_documents
    from saucier.jobs.run.console import show_progress
    from saucier.text.reading.guessing import ReadOptions

    options = IndexOptions(length, overlap, language, column, ReadOptions(None, encoding), strict)
    return index_documents(file_names(documents), Path(out), None if model is None else str(model), options,
                           number_format=format, show=show_progress)


@public
def search(
    index: Index,
    question: Annotated[str, Help("What is looked for; codes, numbers and what stands in quotes are found letter by "
                                  "letter.", metavar="QUESTION")],
    *,
    where: Where = None,
    count: Annotated[int, Help("How many chunks are shown.", minimum=1, maximum=10_000)] = 10,
    fusion: Annotated[Literal["scores", "ranks"], Help(
        "How the searches by vectors and by words are made one: standardised scores, or reciprocal ranks.",
        metavar="scores|ranks")] = "scores",
    weight: Annotated[float, Help("Of the words, where scores are fused.", minimum=0, maximum=1)] = 0.5,
    diversity: Annotated[float, Help("Above 0 hits that are unlike those before come first.", minimum=0,
                                     maximum=1)] = 0.0,
    model: SameModel = None,
) -> "SearchResult":
    """Find the chunks of an index for a question, by meaning and by words, with the score of each step.

    From Python: returns the hits; raises `InputError` for another encoder than the index was made by.
    """
    from saucier.jobs.knowledge.open_index import open_index
    from saucier.retrieval.filters import parse_filter
    from saucier.retrieval.hybrid import SearchOptions

    if where is not None:
        parse_filter(where)  # what is wrong with it is said before a model is opened
    opened = open_index(Path(index), None if model is None else str(model))
    return opened.search(question, SearchOptions(count=count, fusion=fusion, weight=weight, diversity=diversity), where)


@public
def ask(
    index: Index,
    question: Annotated[str, Help("What is asked.", metavar="QUESTION")] = "",
    *,
    reader: Annotated[Place | None, Help(
        "A model that was fine-tuned for question_answering takes the answer from what is found; without it, it is the "
        "sentence most like the question.", metavar="MODEL", check=refuse_missing_model)] = None,
    where: Where = None,
    passages: Annotated[int, Help("So many chunks are read.", minimum=1, maximum=1000)] = 8,
    tune: Annotated[Place | None, Help(
        "No question: tune on these ones how good an answer must be to be told. Rows of `question` and `answers`; an "
        "empty list where no document answers.", metavar="FILE", check=refuse_missing_files)] = None,
    model: SameModel = None,
) -> "Answered | Tuned":
    """Answer a question from the documents of an index, with the evidence marked; or say that they do not hold it.

    From Python: returns the answer, or with `tune` the threshold, which the index then keeps for this reader.
    """
    from saucier.jobs.knowledge.ask import ask_index, open_reader, tune_index
    from saucier.jobs.knowledge.open_index import open_index
    from saucier.retrieval.filters import parse_filter

    if bool(question) == (tune is not None):
        raise InputError("one of both is needed: a question, or --tune FILE", where="question",
                         remedy='saucier ask IDX "Who ...?"')
    if where is not None:
        parse_filter(where)
    opened = open_index(Path(index), None if model is None else str(model))
    reading = open_reader(opened, None if reader is None else str(reader))
    if tune is not None:
        return tune_index(opened, reading, str(tune), passages)
    return ask_index(opened, reading, question, passages, where)
