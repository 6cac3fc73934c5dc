"""An index follows its documents: what changed is read, what is gone goes, and a kill loses nothing."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.unit.retrieval.documents import write_pdf
from tests.unit.retrieval.hashing import HashingEncoder, write_files

from saucier.errors import InputError
from saucier.jobs.knowledge import index as job
from saucier.jobs.knowledge.index import IndexOptions, index_documents
from saucier.retrieval.encoder import find_passport
from saucier.retrieval.lance_store import LanceStore


def index(docs: Path, out: Path, encoder: HashingEncoder | None = None, **options):
    return index_documents([str(docs)], out, None, IndexOptions(**options), encoder=encoder or HashingEncoder())


def rows_of(out: Path) -> dict[str, str]:
    """The text of all chunks by their ids."""
    store = LanceStore.open(out)
    assert store is not None
    rows = store.read_rows().to_pylist()
    found = {row["id"]: row["text"] for row in rows}
    assert len(found) == len(rows), "no chunk is there twice"
    return found


def test_a_second_call_reads_only_what_changed(tmp_path: Path) -> None:
    files, out = write_files(tmp_path / "docs", 9), tmp_path / "idx"
    first = index(tmp_path / "docs", out)
    assert (first.read, first.unchanged, first.gone, first.added, first.facts.files) == (9, 0, 0, 9, 9)
    before = rows_of(out)
    again = index(tmp_path / "docs", out)
    assert (again.read, again.unchanged, again.added) == (0, 9, 0) and rows_of(out) == before
    files[0].touch()  # another time, the same content
    files[1].write_text("Quite another text.")
    files[2].unlink()
    files[3].write_bytes(b"\0\0\0")
    (tmp_path / "docs" / "new.md").write_text("# New\n\nA new one.")
    third = index(tmp_path / "docs", out)
    assert (third.read, third.unchanged, third.gone, third.added) == (2, 6, 2, 2)
    assert third.skipped == {str(files[3]): "byte 0: holds a zero byte, so this is binary data, not text"}
    left = rows_of(out)
    assert sorted(set(left.values()) - set(before.values())) == ["# New\n\nA new one.", "Quite another text."]
    assert len(left) == 8 and set(left) - set(before) == {one for one in left if left[one] not in before.values()}
    more = write_files(tmp_path / "more", 2)
    index(tmp_path / "more", out)
    assert len(rows_of(out)) == 10, "documents of other folders stay"
    assert len(rows_of(out).keys() & left.keys()) == 8
    more[0].unlink()
    assert index(tmp_path / "docs", out).gone == 1


def test_skipped_files_are_named_and_strict_writes_nothing(tmp_path: Path) -> None:
    docs, out = tmp_path / "docs", tmp_path / "idx"
    write_files(docs, 2)
    (docs / "empty.txt").touch()
    write_pdf(docs / "locked.pdf", ["x"], password="y")
    write_pdf(docs / "pages.pdf", ["Text.", ""])
    (docs / "rows.csv").write_text("a,b\n1,2\n3\n")
    (docs / "picture.png").write_bytes(b"x")
    with pytest.raises(InputError, match="5 files, rows or pages cannot be read; nothing was written") as fault:
        index(docs, out, strict=True)
    assert len(str(fault.value).splitlines()) == 6 and not out.exists()
    found = index(docs, out)
    assert {Path(path).name: why for path, why in found.skipped.items()} == {
        "empty.txt": "is empty", "locked.pdf": "is encrypted", "picture.png": ".png ending is not read"}
    assert found.pages == 1 and len(found.rows) == 1 and found.read == 4
    assert sum(line.startswith("skipped: ") for line in found.remarks()) == 3 and len(found.remarks()) == 5


def test_another_encoder_is_refused(tmp_path: Path) -> None:
    docs, out = tmp_path / "docs", tmp_path / "idx"
    write_files(docs, 3)
    index(docs, out, HashingEncoder("one"))
    before = rows_of(out)
    for other, what in ((HashingEncoder("one", seed=1), "weights, config or tokenizer one-1"),
                        (HashingEncoder("two"), "by the model that|made by another encoder: two has")):
        with pytest.raises(InputError, match=what) as fault:
            index(docs, out, other)
        assert "\n" not in str(fault.value)
    for options, what in (({"length": 30}, "chunks of 60 tokens that repeat 15"), ({"language": "german"}, "english")):
        with pytest.raises(InputError, match=what):
            index(docs, out, HashingEncoder("one"), **options)
    with pytest.raises(InputError, match="which model embeds"):
        index_documents([str(docs)], tmp_path / "none", None, IndexOptions())
    with pytest.raises(InputError, match="is no index; make one"):
        find_passport(docs)
    assert rows_of(out) == before


def test_a_long_document_goes_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of it are committed; it counts as read only when all of it is there."""
    monkeypatch.setattr(job, "MOST_PENDING", 10)
    docs, out = tmp_path / "docs", tmp_path / "idx"
    write_files(docs, 2)
    (docs / "long.txt").write_text(" ".join(f"Sentence {n} is about the number {n}." for n in range(400)))
    index(docs, out)
    before = rows_of(out)
    assert len(before) > 60
    encoder, calls = HashingEncoder(), 0

    def fail(texts: list[str]):
        nonlocal calls
        calls += 1
        if calls > 3:
            raise KeyboardInterrupt
        return HashingEncoder().embed(texts)

    encoder.embed = fail  # type: ignore[method-assign]
    (docs / "long.txt").write_text(" ".join(f"Sentence {n} has another number {n}." for n in range(400)))
    with pytest.raises(KeyboardInterrupt):
        index(docs, out, encoder)
    store = LanceStore.open(out)
    assert store is not None and not store.list_files()[str(docs / "long.txt")].whole
    found = index(docs, out)
    assert (found.read, found.unchanged) == (1, 2)
    assert rows_of(out) == rows_of_new_index(docs, tmp_path / "fresh")


def rows_of_new_index(docs: Path, out: Path) -> dict[str, str]:
    index(docs, out)
    return rows_of(out)


@pytest.mark.slow
def test_kills_lose_nothing(tmp_path: Path) -> None:
    check_kills(tmp_path, 3)


@pytest.mark.nightly
def test_a_hundred_kills_lose_nothing(tmp_path: Path) -> None:
    check_kills(tmp_path, 100)


def check_kills(folder: Path, kills: int) -> None:
    """Kill an indexing process at random moments, while documents change; then end in peace, and compare."""
    docs, out, numbers = folder / "docs", folder / "idx", random.Random(1)
    files = write_files(docs, 60)
    seen = 0
    for _ in range(kills):
        for path in numbers.sample(files, 5):
            path.write_text(f"Changed to {numbers.random()}. " * 5)
        child = subprocess.Popen([sys.executable, "-c", INDEXING, str(docs), str(out)], stdout=subprocess.PIPE)
        assert child.stdout is not None and child.stdout.readline() == b"in\n"
        time.sleep(numbers.uniform(0.0, 0.5))
        child.kill()
        child.wait()
        if (store := LanceStore.open(out)) is not None:
            found = rows_of(out)
            assert len(found) >= seen or len(store.list_files()) >= seen
            assert all(one.whole for one in store.list_files().values())
            seen = len(store.list_files())
    index(docs, out)
    assert rows_of(out) == rows_of_new_index(docs, folder / "fresh")


INDEXING = """
import sys; from pathlib import Path; sys.path.insert(0, '.')
from saucier.jobs.knowledge import index as job
from saucier.retrieval.lance_table import connect_folder
from tests.unit.retrieval.hashing import HashingEncoder
connect_folder(sys.argv[2] + "-other")
job.BATCH = 2
print("in", flush=True)
while True:
    job.index_documents([sys.argv[1]], Path(sys.argv[2]), None, job.IndexOptions(), encoder=HashingEncoder())
"""
"""Index in a process of its own, in small commits, until it is killed."""


def test_a_new_index_of_nothing_that_can_be_read_is_not_written(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.pdf").write_bytes(b"%PDF-1.4\nnothing")
    (docs / "b.txt").write_bytes(bytes(range(256)))
    with pytest.raises(InputError, match="none of 2 documents can be read; nothing was written") as fault:
        index_documents([str(docs)], tmp_path / "idx", None, IndexOptions(), encoder=HashingEncoder())
    assert "a.pdf: is not a whole PDF" in str(fault.value) and "b.txt: " in str(fault.value)
    assert not (tmp_path / "idx").exists()
    (tmp_path / "idx").mkdir()
    (tmp_path / "idx" / "own").touch()
    with pytest.raises(InputError, match="none of 2 documents"):
        index_documents([str(docs)], tmp_path / "idx", None, IndexOptions(), encoder=HashingEncoder())
    assert [path.name for path in (tmp_path / "idx").iterdir()] == ["own"]
    (docs / "c.txt").write_text("Something to read.")
    made = index_documents([str(docs)], tmp_path / "idx", None, IndexOptions(), encoder=HashingEncoder())
    assert (made.read, made.added, len(made.skipped)) == (1, 1, 2)
    (docs / "c.txt").write_bytes(b"\0")
    left = index_documents([str(docs)], tmp_path / "idx", None, IndexOptions(), encoder=HashingEncoder())
    assert (left.gone, left.facts.chunks) == (1, 0), "an index that is there may become empty"
    (tmp_path / "idx" / "index.json").write_text("{}")
    with pytest.raises(InputError, match="is damaged"):
        index_documents([str(docs)], tmp_path / "idx", None, IndexOptions(), encoder=HashingEncoder())


FORKED = """
import os, pathlib, sys
from saucier.errors import InputError
from saucier.retrieval.lance_store import LanceStore
folder = pathlib.Path(sys.argv[1])
store = LanceStore.open(folder)
assert len(store.read_rows()) == 3
if os.fork() == 0:
    for work in (store.read_rows, store.describe, lambda: LanceStore.open(folder)):
        try:
            work()
        except InputError as error:
            assert "start processes anew" in str(error)
        else:
            os._exit(1)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7 and len(store.read_rows()) == 3
"""


@pytest.mark.slow
def test_a_forked_process_says_that_it_cannot_read(tmp_path: Path) -> None:
    """LanceDB's threads do not live there: it breaks down in one process of three."""
    write_files(tmp_path / "docs", 3)
    index(tmp_path / "docs", tmp_path / "idx")
    ran = subprocess.run([sys.executable, "-W", "error", "-W", "ignore::RuntimeWarning:lancedb", "-c", FORKED,
                          str(tmp_path / "idx")], timeout=60, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
