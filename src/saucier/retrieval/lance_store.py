"""Chunks in a folder on the disk: a table of LanceDB, with an index of stems, and one of vectors where that pays.

A batch of documents is one commit of the table, a new version: a reader sees all of it or nothing, and a process that
is killed at any moment leaves the version before. That is promised for a process, not for a power cut: LanceDB does not
wait until the disk has what it writes. Versions that nobody needs are removed by `optimize`.

What LanceDB does is asked of its asynchronous table, in the loop that its own synchronous one runs in: a search then is
one round trip instead of six, and searches by vectors and by words go on at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import Callable, Coroutine, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from saucier.config.base import Config
from saucier.files import write_json
from saucier.retrieval.filters import Filter, write_sql
from saucier.retrieval.lance_table import (
    FORMAT,
    TABLE,
    TABLE_FOLDER,
    VERSIONS,
    connect_folder,
    open_to_read,
    report_full_disk,
    wait_for,
)
from saucier.retrieval.lexical import Language
from saucier.retrieval.store import (
    PLACES,
    SCORE,
    STAMP,
    Candidates,
    FileStamp,
    Floats,
    Places,
    StoreFacts,
    join_found,
    list_stamps,
    make_schema,
    read_config,
    read_vectors,
)

if TYPE_CHECKING:
    import pyarrow

RECALL_FILE = "recall.json"
WORDS, VECTORS = "text_words", "vectors"
"""Names of the indexes."""
ROW_ID, DISTANCE, BM25 = "_rowid", "_distance", "_score"
"""LanceDB's number of a row, in one version, and what its searches give each row."""
MOST_COMMITS, MOST_UNINDEXED = 20, 500
"""Commits, and chunks outside the indexes, after which all is put in order: a search stems their words each time, and
1,000 of them take as long as all the rest."""
FEWEST_FOR_INDEX = 20_000
"""Chunks from which on an approximate index of their vectors is made: half of a search is then reading all of them."""
MEASURED, NEIGHBOURS = 100, 10
"""Vectors of the store whose neighbours are looked for both ways, and neighbours, to measure the recall."""
ENOUGH_RECALL = 0.97
"""More than the 0.95 that is promised: from 100 questions it is known to about 0.01."""
PROBES = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Parts of the index that are read; the first number that gives enough recall is taken."""
REFINED = 40
"""Chunks whose exact scores are made, at least; not more than are wanted: reading their vectors takes longer than
finding them in the index."""
LENGTH_ERROR = 1e-3
"""By how much a vector may be longer or shorter than one that counts as one of length one."""
BATCH_ROWS = 4096
"""Rows that are read at once."""
Made = TypeVar("Made")


class VectorIndex(Config):
    """The approximate index of vectors, as it was measured when it was made."""

    recall: float
    """Share of the nearest chunks by the exact scan that it finds."""
    neighbours: int = NEIGHBOURS
    """How many were looked for, each time."""
    questions: int
    """How often: for vectors of the store, each without itself."""
    probes: int
    """Parts of the index that a search reads."""
    chunks: int
    """Chunks that there were."""
    distance: Literal["dot", "l2"] = "dot"
    """By which it parts the vectors. Where all have length one both find the same, and parts by distance are about
    equally large; by inner product the longest centre takes nearly all."""


def read_numbers(found: pyarrow.Table) -> Places:
    """Return LanceDB's numbers of rows."""
    return np.asarray(found[ROW_ID].to_numpy(), np.int64)


class LanceStore:
    """Chunks in a folder; see `Store`."""

    def __init__(self, folder: Path, writer: Any) -> None:
        """Use `create` or `open`."""
        self.folder, self.writer, self.table = folder, writer, open_to_read(folder)
        self.commits, self.written = 0, 0
        """Commits since all was in order, and when one was seen last, in nanoseconds."""
        self.measured: tuple[int, VectorIndex | None] | None = None  # version of the table, and its index of vectors

    @classmethod
    def create(cls, folder: Path, width: int, language: Language) -> LanceStore:
        """Make an empty store; one that a killed process left without its index of stems is begun again."""
        connection = connect_folder(str(folder))
        from lancedb.index import FTS

        with report_full_disk(folder):
            mode = "overwrite" if (folder / TABLE_FOLDER).is_dir() else "create"
            table = wait_for(connection.create_table(TABLE, schema=make_schema(width), mode=mode, storage_options={
                "new_table_data_storage_version": FORMAT}))
            wait_for(table.create_index("text", config=FTS(language=language.capitalize(), with_position=False),
                                        name=WORDS))
        return cls(folder, table)

    @classmethod
    def open(cls, folder: Path) -> LanceStore | None:
        """Open a store; None where there is none, or one that was not made to its end."""
        connection = connect_folder(str(folder))
        if not (folder / TABLE_FOLDER).is_dir():
            return None
        table = wait_for(connection.open_table(TABLE))
        return cls(folder, table) if any(one.name == WORDS for one in wait_for(table.list_indices())) else None

    @contextlib.contextmanager
    def write(self) -> Iterator[None]:
        """Write after the last version, and read the new one from then on."""
        with report_full_disk(self.folder):
            wait_for(self.writer.checkout_latest())
            yield
            wait_for(self.table.checkout_latest())

    def refresh(self) -> None:
        """Take the last version; each commit writes into one folder. Files that are open can be read on if removed."""
        written = (self.folder / TABLE_FOLDER / VERSIONS).stat().st_mtime_ns
        if written != self.written:
            wait_for(self.table.checkout_latest())
            self.written = written

    def read_version(self, work: Callable[[], Made]) -> Made:
        """Return what readings of one version give, of the last one; see `Store`."""
        while True:
            self.refresh()
            before = wait_for(self.table.version())
            try:
                found = work()
            except (RuntimeError, OSError, ValueError, KeyError):  # a KeyError: of a row that is not there any more
                wait_for(self.table.checkout_latest())
                if wait_for(self.table.version()) == before:
                    raise
                continue
            if wait_for(self.table.version()) == before:
                return found

    def ask(self, work: Callable[[], Coroutine[Any, Any, Made]]) -> Made:
        """Return what one reading gives; it is done again where a writer has removed its version meanwhile."""
        return self.read_version(lambda: wait_for(work()))

    def replace(self, rows: pyarrow.Table, stale: Sequence[str] = ()) -> None:
        """Add rows, and remove those of the files `stale` that are not among them, in one commit; see `Store`."""
        from lancedb.expr import col, lit

        with self.write():
            if not stale:
                wait_for(self.writer.add(rows))
            else:
                gone = col("path").isin([lit(path) for path in stale]).to_sql()
                merge = self.writer.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
                wait_for(merge.when_not_matched_by_source_delete(gone).execute(rows))
        self.commits += 1
        if self.commits >= MOST_COMMITS:
            self.optimize()

    def list_files(self) -> dict[str, FileStamp]:
        """Return the files by their paths."""
        return list_stamps(self.ask(lambda: self.table.query().select(["path", *STAMP]).to_arrow()))

    def read_rows(self) -> pyarrow.Table:
        """Return all rows, for a store in memory."""
        return self.ask(lambda: self.table.query().to_arrow())

    def find_vectors(self, question: Floats, count: int, where: Filter | None = None) -> pyarrow.Table:
        """Return the rows of the largest inner products, the largest first; see `Store`."""
        return self.ask(lambda: self.query_vectors(question, count, where, self.vector_index))

    def find_words(self, question: str, count: int, where: Filter | None = None) -> pyarrow.Table:
        """Return the rows of the best scores by BM25; see `Store`."""
        return self.ask(lambda: self.query_words(question, count, where))

    def find_both(self, vector: Floats, questions: Sequence[str], count: int,
                  where: Filter | None = None) -> Candidates:
        """Return what an order is made of; see `Store`.

        All searches go on at the same time, and give numbers of rows alone: a row that several find is read once.
        """
        async def find() -> Candidates:
            index = await self.find_index()
            near, *lexical = await asyncio.gather(
                self.ask_vectors(vector, count, where, index).select([ROW_ID, DISTANCE]).to_arrow(),
                *(self.ask_words(one, count, where).select([ROW_ID, BM25]).to_arrow() for one in questions))
            rows, words = join_found(read_numbers(near), *((read_numbers(one), one[BM25].to_numpy())
                                                           for one in lexical))
            found = await self.read(rows, ("text", "vector"))
            return Candidates(rows, found["text"].to_pylist(), read_vectors(found), words)

        return wait_for(find())

    def take(self, rows: Places, columns: Sequence[str]) -> pyarrow.Table:
        """Return rows by their numbers; see `Store`."""
        return wait_for(self.read(rows, columns))

    async def read(self, rows: Places, columns: Sequence[str]) -> pyarrow.Table:
        """Return rows by their numbers, in that order, which LanceDB does not promise."""
        import pyarrow as pa

        numbers = rows.tolist()
        found = await self.table.take_row_ids(numbers).select([*columns, ROW_ID]).to_arrow()
        places = {row: place for place, row in enumerate(found[ROW_ID].to_pylist())}
        return found.take(pa.array([places[row] for row in numbers], pa.int64())).drop_columns([ROW_ID])

    def ask_vectors(self, question: Floats, count: int, where: Filter | None, index: VectorIndex | None) -> Any:
        """Return the question for the largest inner products by an index, or without one by comparing all vectors."""
        query = self.table.query().nearest_to(np.asarray(question, np.float32)).column("vector").limit(count)
        if index is None:
            query = query.distance_type("dot").bypass_vector_index()
        else:
            query = query.distance_type(index.distance).nprobes(index.probes)
            query = query.refine_factor(-(-REFINED // count)) if count < REFINED else query
        if where is not None:  # what meets a condition may be in other parts: they are read until enough is found
            query = query.where(write_sql(where))
            query = query if index is None else query.maximum_nprobes(0)
        return query

    def ask_words(self, question: str, count: int, where: Filter | None) -> Any:
        """Return the question for the best scores by BM25."""
        from lancedb import query as queries

        words: Any = queries.MatchQuery
        query = self.table.query().nearest_to_text(words(question, "text")).limit(count)
        return query if where is None else query.where(write_sql(where))

    async def query_vectors(self, question: Floats, count: int, where: Filter | None, index: VectorIndex | None,
                            columns: Sequence[str] = PLACES) -> pyarrow.Table:
        """Return the rows of the largest inner products.

        Their vectors are read, and give the scores: those of the index are of rounded vectors.
        """
        import pyarrow as pa

        query = self.ask_vectors(question, count, where, index)
        found = await query.select([*columns, "vector", DISTANCE]).to_arrow()
        scores = read_vectors(found) @ np.asarray(question, np.float32)
        order = np.argsort(-scores, kind="stable")
        return found.drop_columns([DISTANCE]).take(pa.array(order)).append_column(SCORE, pa.array(scores[order]))

    async def query_words(self, question: str, count: int, where: Filter | None) -> pyarrow.Table:
        """Return the rows of the best scores by BM25, with their vectors."""
        found = await self.ask_words(question, count, where).select([*PLACES, "vector", BM25]).to_arrow()
        return found.rename_columns([SCORE if name == BM25 else name for name in found.column_names])

    def count(self, where: Filter | None = None) -> int:
        """Count the rows that meet a condition."""
        return int(self.ask(lambda: self.table.count_rows(None if where is None else write_sql(where))))

    @property
    def vector_index(self) -> VectorIndex | None:
        """The approximate index, where there is one."""
        return wait_for(self.find_index())

    async def find_index(self) -> VectorIndex | None:
        """Return the approximate index, where there is one."""
        version = await self.table.version()
        if self.measured is None or self.measured[0] != version:
            place = self.folder / RECALL_FILE
            there = place.is_file() and any(one.name == VECTORS for one in await self.table.list_indices())
            self.measured = version, read_config(VectorIndex, place) if there else None
        return self.measured[1]

    def optimize(self) -> None:
        """Join small files, take new rows into the indexes, and remove versions before the last one."""
        with self.write(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of other writers, and there is one
            wait_for(self.writer.optimize(cleanup_older_than=timedelta(0), delete_unverified=True))
        self.commits = 0

    def finish(self) -> None:
        """Put in order what many commits have left, and make an index of vectors where there are enough."""
        chunks, (size, older) = self.count(), self.measure_bytes()
        if self.count_unindexed() > min(chunks // 100, MOST_UNINDEXED) or older > size - older \
                or len(wait_for(self.table.list_versions())) > MOST_COMMITS:
            self.optimize()
        index = self.vector_index
        if chunks >= FEWEST_FOR_INDEX and (index is None or chunks > 2 * index.chunks):
            self.build_vector_index()

    def build_vector_index(self) -> VectorIndex:
        """Make the approximate index of vectors, and measure its recall against the exact scan."""
        from lancedb.index import IvfSq

        with self.write():
            self.optimize()  # first: the index is then made of the rows in their last order
            # Reading a few parts is far less than reading all. As a size, and not as a number of parts: `optimize`
            # joins all that are far smaller than the size that the index was made with, or else than 8,192.
            size = round(self.count() ** 0.5)
            distance: Literal["dot", "l2"] = "l2" if self.have_length_one() else "dot"
            wait_for(self.writer.create_index("vector", name=VECTORS, replace=True, config=IvfSq(
                distance_type=distance, target_partition_size=size)))
            self.optimize()
        made = self.measure_recall(distance)
        write_json(self.folder / RECALL_FILE, made.model_dump(mode="json"))
        self.measured = None
        return made

    def have_length_one(self) -> bool:
        """Say whether all vectors have length one, as those of an encoder that normalizes."""
        async def check() -> bool:
            some = await self.table.query().select(["vector"]).to_batches(max_batch_length=BATCH_ROWS)
            async for rows in some:
                if not (abs(np.linalg.norm(read_vectors(rows), axis=1) - 1) < LENGTH_ERROR).all():
                    return False
            return True

        return wait_for(check())

    def measure_recall(self, distance: Literal["dot", "l2"]) -> VectorIndex:
        """Return with how many probes the index finds enough of what the exact scan finds, and how much that is."""
        total = self.count()
        places = np.unique(np.linspace(0, total - 1, MEASURED).astype(np.int64))
        rows = wait_for(self.table.take_offsets(places.tolist()).select(["id", "vector"]).to_arrow())
        vectors, ids = read_vectors(rows), rows["id"].to_pylist()

        def leave_own(found: list[list[str]]) -> list[list[str]]:
            return [[one for one in near if one != own][:NEIGHBOURS] for near, own in zip(found, ids, strict=True)]

        exact, made = leave_own(self.find_nearest(vectors, NEIGHBOURS + 1)), None
        for probes in PROBES:
            made = VectorIndex(recall=0, questions=len(ids), probes=probes, chunks=total, distance=distance)
            found = [self.ask(partial(self.query_vectors, one, NEIGHBOURS + 1, None, made, ["id"])) for one in vectors]
            shares = [len({*near} & {*far}) / max(1, len(far)) for near, far in
                      zip(leave_own([one["id"].to_pylist() for one in found]), exact, strict=True)]
            made = made.model_copy(update={"recall": float(np.mean(shares))})
            if made.recall >= ENOUGH_RECALL:
                break
        assert made is not None, "there are probes"
        return made

    def find_nearest(self, vectors: Floats, count: int) -> list[list[str]]:
        """Return the ids of the largest inner products with each of some vectors, the largest first.

        All are found while the vectors of the store are read once. Shapes: [Q, E].
        """
        async def scan() -> list[list[str]]:
            scores = np.full((count, len(vectors)), -np.inf, np.float32)
            names = np.full(scores.shape, "", object)
            async for rows in await self.table.query().select(["id", "vector"]).to_batches(max_batch_length=BATCH_ROWS):
                own = np.array(rows["id"].to_pylist(), object)[:, None]
                scores = np.concatenate([scores, read_vectors(rows) @ vectors.T])
                names = np.concatenate([names, np.broadcast_to(own, (len(rows), len(vectors)))])
                best = np.argpartition(-scores, count - 1, axis=0)[:count]
                scores, names = (np.take_along_axis(values, best, axis=0) for values in (scores, names))
            names = np.take_along_axis(names, np.argsort(-scores, axis=0, kind="stable"), axis=0)
            return [[name for name in found if name] for found in names.T.tolist()]

        return wait_for(scan())

    def count_unindexed(self) -> int:
        """Count the chunks that the index of stems does not hold yet."""
        return int(wait_for(self.table.index_stats(WORDS)).num_unindexed_rows)

    def measure_bytes(self) -> tuple[int, int]:
        """Return all bytes on the disk, and those of them that only versions before the last one need."""
        table = self.folder / TABLE_FOLDER
        size = sum(path.stat().st_size for path in table.rglob("*") if path.is_file())
        stats = wait_for(self.table.stats())
        used = stats["total_bytes"] if isinstance(stats, dict) else stats.total_bytes
        used += sum(getattr(one, "size_bytes", None) or 0 for one in wait_for(self.table.list_indices()))
        return size, max(0, size - used)

    def describe(self) -> StoreFacts:
        """Say what it holds and takes on the disk."""
        (size, older), index = self.measure_bytes(), self.vector_index
        return StoreFacts(self.count(), len(self.list_files()), size, len(wait_for(self.table.list_versions())), older,
                          self.count_unindexed(), None if index is None else index.recall)
