"""Public functions about documents: `index`, `search`, `ask`."""

# Annotations are evaluated here, not postponed: `saucier.arguments` reads them.

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from saucier.api.options import Encoding, NumberFormat
from saucier.api.requests import file_names, refuse_file, refuse_folder, refuse_missing_files, refuse_missing_model
from saucier.arguments import Files, Help, Place, public
from saucier.errors import InputError

if TYPE_CHECKING:
    from saucier.jobs.knowledge.ask import Answered, Tuned
    from saucier.jobs.knowledge.index import IndexReport
    from saucier.jobs.knowledge.open_index import OpenIndex, SearchResult

Index = Annotated[Place, Help("An index that `saucier index` made.", metavar="IDX")]
Where = Annotated[str | None, Help(
    "Only chunks that meet a condition on path, kind, section, text, page, line: 'path ~ \"2024\" and kind = \"pdf\"'.",
    metavar="CONDITION")]
SameModel = Annotated[Place | None, Help("The encoder of the index, where it is in another place now.", metavar="MODEL",
                                         check=refuse_missing_model)]
Reranker = Annotated[Place | None, Help("Read the first chunks again with this model, which scores pairs of texts.",
                                        metavar="MODEL", check=refuse_missing_model)]
REREAD, RERANKER_WEIGHT = 20, 0.5
"""Chunks that are read again, and what the reranker weighs, where nobody says it."""
Reread = Annotated[int, Help("So many chunks are read again, by their sentences or the reranker; more are not found.",
                             minimum=1, maximum=10_000)]
Sentences = Annotated[bool, Help("Read the first chunks again sentence by sentence with the encoder of the index: for "
                                 "questions that ask for one fact.")]
RerankerWeight = Annotated[float, Help("Of the reranker, next to the search.", minimum=0, maximum=1)]
Hops = Annotated[int, Help("Ask again with the names in what was found: so many queries, each with its share of the "
                           "chunks.", minimum=1, maximum=10)]
QueryWriters = Annotated[Files | None, Help(
    "A model that was fine-tuned for question_answering takes a piece of what was found, and the next query is the "
    "question with it. Given once for each hop but the first.",
    metavar="MODEL", option="--query-writer")]
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
    feedback: Annotated[int, Help("Ask for so many of the first hits too: more of the same kind is found.", metavar="N",
                                  minimum=0, maximum=100)] = 0,
    sentences: Sentences = False,
    reranker: Reranker = None,
    reread: Reread = REREAD,
    reranker_weight: RerankerWeight = RERANKER_WEIGHT,
    reranker_format: NumberFormat = None,
    hops: Hops = 1,
    query_writers: QueryWriters = None,
    model: SameModel = None,
) -> "SearchResult":
    """Find the chunks of an index for a question, by meaning and by words, with the score of each step.

    From Python: returns the hits; raises `InputError` for another encoder than the index was made by.
    """
    from saucier.retrieval.filters import parse_filter
    from saucier.retrieval.hybrid import SearchOptions

    if where is not None:
        parse_filter(where)  # what is wrong with it is said before a model is opened
    writers = check_writers(query_writers, hops, count)
    opened = open_search(index, model, (reread, reranker_weight, reranker_format), writers, hops, sentences=sentences,
                         reranker=reranker)
    return opened.search(question, SearchOptions(count=count, fusion=fusion, weight=weight, diversity=diversity,
                                                 feedback=feedback), where)


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
    sentences: Sentences = False,
    reranker: Reranker = None,
    reread: Reread = REREAD,
    reranker_weight: RerankerWeight = RERANKER_WEIGHT,
    reranker_format: NumberFormat = None,
    hops: Hops = 1,
    query_writers: QueryWriters = None,
    tune: Annotated[Place | None, Help(
        "No question: tune on these ones how good an answer must be to be told. Rows of `question` and `answers`; an "
        "empty list where no document answers.", metavar="FILE", check=refuse_missing_files)] = None,
    out: Annotated[Place | None, Help("Write the answer as a page, FILE.html.", metavar="FILE",
                                      check=refuse_file)] = None,
    model: SameModel = None,
) -> "Answered | Tuned":
    """Answer a question from the documents of an index, with the evidence marked; or say that they do not hold it.

    From Python: returns the answer, or with `tune` the threshold, which the index then keeps for this reader.
    """
    from saucier.jobs.knowledge.ask import ask_index, open_reader, tune_index, write_answer
    from saucier.retrieval.filters import parse_filter

    if bool(question) == (tune is not None):
        raise InputError("one of both is needed: a question, or --tune FILE", where="question",
                         remedy='saucier ask IDX "Who ...?"')
    if out is not None and (tune is not None or Path(out).suffix != ".html"):
        raise InputError("is no page of an answer", where=str(out), remedy="use FILE.html, with a question")
    if where is not None:
        parse_filter(where)
    writers = check_writers(query_writers, hops, passages)
    opened = open_search(index, model, (reread, reranker_weight, reranker_format), writers, hops, sentences=sentences,
                         reranker=reranker)
    reading = open_reader(opened, None if reader is None else str(reader))
    if tune is not None:
        return tune_index(opened, reading, str(tune), passages)
    found = ask_index(opened, reading, question, passages, where)
    return found if out is None else write_answer(found, Path(out))


def check_writers(given: Files | None, hops: int, count: int) -> tuple[str, ...]:
    """Return the models that write queries. Raises `InputError` for another number than that of hops, and for more hops
    than chunks.
    """
    names = tuple(file_names(given))
    for name in names:
        refuse_missing_model(name)
    if names and len(names) != hops - 1:
        raise InputError(f"{len(names)} with --hops {hops}", where="--query-writer",
                         remedy=f"give one for each hop but the first, which asks with the question, or --hops "
                                f"{len(names) + 1}")
    if hops > count:
        raise InputError(f"{hops} for {count} chunks", where="--hops", remedy="give one chunk a hop at least")
    return names


def open_search(index: Place, model: Place | None, reading: tuple[int, float, str | None], writers: tuple[str, ...],
                hops: int, *, sentences: bool, reranker: Place | None) -> "OpenIndex":
    """Open an index with all that searches in it. `reading`: chunks that are read again, and the reranker's weight and
    number format.

    Raises `InputError` where one of them is said, and nothing heeds it.
    """
    from dataclasses import replace

    from saucier.jobs.knowledge.open_index import open_index
    from saucier.retrieval.hops import QueryWriters
    from saucier.retrieval.hybrid import Rereading

    for option, is_said in (("--reranker-weight", reading[1] != RERANKER_WEIGHT), ("--reranker-format", reading[2])):
        if is_said and reranker is None:
            raise InputError("there is no reranker", where=option, remedy="give --reranker MODEL too")
    if reading[0] != REREAD and reranker is None and not sentences:
        raise InputError("nothing reads again", where="--reread", remedy="give --sentences, or --reranker MODEL")
    opened = open_index(Path(index), None if model is None else str(model))
    if sentences:
        opened = replace(opened, rereadings=(Rereading.by_sentences(opened.encoder, reading[0]),))
    if reranker is not None:
        from saucier.retrieval.retriever import open_reranker

        again = open_reranker(str(reranker), reading[2])
        by_model = Rereading(again.score, *reading[:2], kind=again.kind)
        opened = replace(opened, rereadings=(*opened.rereadings, by_model))
    if writers:
        from saucier.jobs.knowledge.spans import open_spans

        return replace(opened, writers=QueryWriters.learned([open_spans(one).write for one in writers]))
    return opened if hops == 1 else replace(opened, writers=QueryWriters.plain(hops))
