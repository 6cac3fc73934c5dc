"""A store of chunks: what every one can do, and the one that keeps all in memory and searches exactly.

A chunk is a row of Arrow: its text, where it is, its vector, and how its file was when it was read. Axes: N chunks,
E width of a vector, K chunks found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from saucier.config.base import Config
from saucier.errors import InputError
from saucier.files import read_object
from saucier.retrieval.filters import Filter, select_rows
from saucier.retrieval.lexical import Language, LexicalIndex, build_lexical_index, take_best

if TYPE_CHECKING:
    import pyarrow

    from saucier.native.matrices import Panels

Floats = NDArray[np.float32]
Places = NDArray[np.int64]
Found = tuple[Places, Floats]
"""Places of chunks, the best first, and their scores. Shapes: [K], [K]."""
SCORE = "score"
PLACES = ("id", "path", "kind", "section", "page", "line", "start", "stop", "text")
"""What says which chunk it is, and where."""
STAMP = ("size", "changed", "digest", "last")
"""How its file was; `last` ends a file: without it the file was not read to its end."""
RESCORED = 4
"""Chunks whose exact scores are made, for each that is wanted: the first ones by rounded vectors."""


@dataclass(frozen=True, slots=True)
class FileStamp:
    """A file as it was when it was read."""

    size: int
    changed: int
    """Nanoseconds."""
    digest: str
    """Of its content."""
    chunks: int
    whole: bool
    """Whether all its chunks are there: a reading that was stopped leaves some."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Chunks that the searches found, each once, with what their order is made of."""

    rows: Places
    """Their numbers in this version of the store. Shapes: [N]."""
    texts: Sequence[str]
    vectors: Floats
    """Shapes: [N, E]."""
    words: NDArray[np.float64]
    """Scores by BM25 of the first question; 0 for a chunk that its search did not find. Shapes: [N]."""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What a store holds and takes."""

    chunks: int
    files: int
    bytes: int
    """Of the chunks; all versions and indexes included where they are on the disk."""
    versions: int = 1
    version_bytes: int = 0
    """What is kept only for versions before the last one."""
    unindexed: int = 0
    """Chunks that a search by words reads one by one, until the next `optimize`."""
    recall: float | None = None
    """Of the approximate index for vectors, against the exact scan; None: there is none, all vectors are compared."""


Read = TypeVar("Read", bound=Config)
Made = TypeVar("Made")


def read_config(kind: type[Read], path: Path) -> Read:
    """Return what an index keeps of itself. Raises `InputError` for a damaged file."""
    try:
        return kind.model_validate(read_object(path))
    except ValidationError as error:
        raise InputError(f"is damaged: {str(error).splitlines()[0]}", where=str(path), remedy="make the index again") \
            from error


class Store(Protocol):
    """Where chunks are kept and searched."""

    def replace(self, rows: pyarrow.Table, stale: Sequence[str] = ()) -> None:
        """Add rows, and remove those of the files `stale` that are not among them: all of it, or nothing.

        A file of which there are rows already is among `stale`.
        """

    def list_files(self) -> dict[str, FileStamp]:
        """Return the files by their paths."""

    def find_vectors(self, question: Floats, count: int, where: Filter | None = None) -> pyarrow.Table:
        """Return the rows of the largest inner products, the largest first, with a column `score`. Shapes: [E]."""

    def find_words(self, question: str, count: int, where: Filter | None = None) -> pyarrow.Table:
        """Return the rows of the best scores by BM25 that share a word with a question, the best first."""

    def read_version(self, work: Callable[[], Made]) -> Made:
        """Return what readings of one version give; all are done again where it is no more the same at their end."""

    def find_both(self, vector: Floats, questions: Sequence[str], count: int,
                  where: Filter | None = None) -> Candidates:
        """Return the chunks that `find_vectors` finds, and then those of `find_words` for each question.

        Inside `read_version`: a row has another number in another version. All that is known of a chunk is many
        readings, and most of those that are found are no hits. Shapes: vector [E].
        """

    def take(self, rows: Places, columns: Sequence[str]) -> pyarrow.Table:
        """Return columns of rows by their numbers, in that order; inside `read_version`. Shapes: rows [N]."""

    def count(self, where: Filter | None = None) -> int:
        """Count the rows that meet a condition."""

    def optimize(self) -> None:
        """Do what keeps the store small and quick; nothing that is found changes."""

    def describe(self) -> StoreFacts:
        """Say what it holds and takes."""


def make_schema(width: int) -> pyarrow.Schema:
    """Return the columns of a store whose vectors have so many numbers."""
    import pyarrow as pa

    kinds = {"section": pa.string(), "page": pa.int32(), "line": pa.int64(), "start": pa.int64(), "stop": pa.int64(),
             "size": pa.int64(), "changed": pa.int64(), "last": pa.bool_()}
    fields = [pa.field(name, kinds.get(name, pa.string())) for name in (*PLACES, *STAMP)]
    return pa.schema([*fields, pa.field("vector", pa.list_(pa.float32(), width))])


def make_rows(columns: Mapping[str, Sequence[Any]], vectors: Floats) -> pyarrow.Table:
    """Return rows with their vectors. Shapes: columns [N] each, vectors [N, E]. Raises `InputError` for no numbers."""
    import pyarrow as pa

    if not np.isfinite(vectors).all():
        raise InputError("gives vectors that are not finite", where="the encoder", remedy="give another model")
    schema = make_schema(vectors.shape[1])
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel(), pa.float32()), vectors.shape[1])
    return pa.table([*(pa.array(columns[name], schema.field(name).type) for name in (*PLACES, *STAMP)), flat],
                    schema=schema)


def read_vectors(rows: pyarrow.Table | pyarrow.RecordBatch) -> Floats:
    """Return the vectors of rows. Shapes: -> [N, E]."""
    column = rows["vector"].combine_chunks() if hasattr(rows["vector"], "combine_chunks") else rows["vector"]
    values: Floats = column.flatten().to_numpy(zero_copy_only=False).reshape(len(rows), column.type.list_size)
    return values


def list_stamps(rows: pyarrow.Table) -> dict[str, FileStamp]:
    """Return the files of rows that hold at least `path` and the columns of `STAMP`."""
    grouped = rows.group_by("path").aggregate([("size", "max"), ("changed", "max"), ("digest", "max"), ("last", "any"),
                                               ("path", "count")])
    return {one["path"]: FileStamp(one["size_max"], one["changed_max"], one["digest_max"], one["path_count"],
                                   bool(one["last_any"])) for one in grouped.to_pylist()}


def join_found(near: Places, *lexical: Found) -> tuple[Places, NDArray[np.float64]]:
    """Return all rows that searches by vectors and by words found, each once, where it is found first, and the scores
    of the first search by words, 0 for others. Shapes: [K], ([K], [K]) each -> [N], [N].
    """
    rows = [*dict.fromkeys(np.concatenate([near, *(places for places, _ in lexical)]).tolist())]
    words = dict(zip(*(side.tolist() for side in lexical[0]), strict=True)) if lexical else {}
    return np.array(rows, np.int64), np.array([words.get(row, 0.0) for row in rows])


class MemoryStore:
    """All chunks in memory: their vectors in int8, read by the kernels in C, and the best of them compared exactly."""

    def __init__(self, rows: pyarrow.Table, language: Language = "english") -> None:
        """Begin with some rows, such as those of another store."""
        self.rows, self.language = rows, language

    def replace(self, rows: pyarrow.Table, stale: Sequence[str] = ()) -> None:
        """Add rows, and remove those of the files `stale`; see `Store`."""
        import pyarrow as pa
        from pyarrow import compute

        gone = compute.is_in(self.rows["path"], value_set=pa.array(stale, pa.string()))
        self.rows = pa.concat_tables([self.rows.filter(compute.invert(gone)), rows]).combine_chunks()
        for name in ("vectors", "rounded", "words"):
            self.__dict__.pop(name, None)

    def list_files(self) -> dict[str, FileStamp]:
        """Return the files by their paths."""
        return list_stamps(self.rows)

    @cached_property
    def vectors(self) -> Floats:
        """All vectors. Shapes: [N, E]."""
        return read_vectors(self.rows)

    @cached_property
    def rounded(self) -> Panels:
        """They in int8, each with a scale of its own."""
        from saucier.native.matrices import lay_out_panels, store_matrix

        return lay_out_panels(store_matrix(np.ascontiguousarray(self.vectors), "int8"))

    @cached_property
    def words(self) -> LexicalIndex:
        """The stems of all texts."""
        return build_lexical_index(self.rows["text"].to_pylist(), language=self.language)

    def find_vectors(self, question: Floats, count: int, where: Filter | None = None) -> pyarrow.Table:
        """Return the rows of the largest inner products, the largest first; see `Store`."""
        return self.add_scores(*self.rank_vectors(question, count, where))

    def find_words(self, question: str, count: int, where: Filter | None = None) -> pyarrow.Table:
        """Return the rows of the best scores by BM25; see `Store`."""
        return self.add_scores(*self.rank_words(question, count, where))

    def rank_vectors(self, question: Floats, count: int, where: Filter | None) -> Found:
        """Return the places of the largest inner products, and them, the largest first. Shapes: [E] -> [K], [K]."""
        from saucier.native.matrices import multiply_vector

        if not len(self.rows):
            return np.empty(0, np.int64), np.empty(0, np.float32)
        scores = self.keep(multiply_vector(self.rounded, question), where)
        _, likely = take_best(scores, min(RESCORED * count, len(scores)))
        likely = likely[scores[likely] > -np.inf]
        exact = self.vectors[likely] @ question
        best = np.lexsort((likely, -exact))[:count]
        return likely[best], exact[best]

    def rank_words(self, question: str, count: int, where: Filter | None) -> Found:
        """Return the places of the best scores by BM25, and them, the best first. Shapes: -> [K], [K]."""
        if not len(self.rows):
            return np.empty(0, np.int64), np.empty(0, np.float32)
        scores = self.keep(next(self.words.score([question])), where)
        best, places = take_best(scores, min(count, len(scores)))
        return places[best > 0], best[best > 0]

    def read_version(self, work: Callable[[], Made]) -> Made:
        """Return what readings give: there is one version."""
        return work()

    def find_both(self, vector: Floats, questions: Sequence[str], count: int,
                  where: Filter | None = None) -> Candidates:
        """Return what both find; see `Store`."""
        near, _ = self.rank_vectors(vector, count, where)
        rows, words = join_found(near, *(self.rank_words(one, count, where) for one in questions))
        return Candidates(rows, self.take(rows, ["text"])["text"].to_pylist(), self.vectors[rows], words)

    def take(self, rows: Places, columns: Sequence[str]) -> pyarrow.Table:
        """Return columns of rows by their numbers; see `Store`."""
        import pyarrow as pa

        return self.rows.select([*columns]).take(pa.array(rows))

    def keep(self, scores: Floats, where: Filter | None) -> Floats:
        """Return scores that are -inf where a condition does not hold. Shapes: [N] -> [N]."""
        return scores if where is None else np.where(select_rows(where, self.rows), scores, np.float32(-np.inf))

    def add_scores(self, places: Places, scores: Floats) -> pyarrow.Table:
        """Return rows with their scores. Shapes: [K], [K]."""
        import pyarrow as pa

        return self.rows.take(pa.array(places)).append_column(SCORE, pa.array(scores, pa.float32()))

    def count(self, where: Filter | None = None) -> int:
        """Count the rows that meet a condition."""
        return len(self.rows) if where is None else int(select_rows(where, self.rows).sum())

    def optimize(self) -> None:
        """Make ready what a search needs."""
        if len(self.rows):
            assert self.words.size == len(self.rows) == self.rounded.rows, "one of each for every row"

    def describe(self) -> StoreFacts:
        """Say what it holds and takes."""
        return StoreFacts(len(self.rows), len(self.list_files()), self.rows.nbytes)
