"""Both stores find what brute force finds, under any condition; commits are whole; the folder stays small."""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from saucier.errors import InputError, WorkError
from saucier.retrieval.filters import parse_filter, select_rows, write_sql
from saucier.retrieval.lance_store import LanceStore
from saucier.retrieval.lance_table import lock_writer
from saucier.retrieval.store import (
    PLACES,
    SCORE,
    STAMP,
    MemoryStore,
    make_rows,
    make_schema,
    read_vectors,
)

WIDTH = 32
CONDITIONS = {
    "": lambda row: True,
    'path ~ "[02]$" and kind = "pdf"': lambda row: row["path"][-1] in "02" and row["kind"] == "pdf",
    r"section = 'it\'s' or page < 2": lambda row: row["section"] == "it's" or row["page"] == 1,
    "not page = 1": lambda row: row["page"] is not None and row["page"] != 1,
    "not (page = 1 and kind = 'pdf') and section !~ 'x|y'": lambda row: row["section"] is not None and not (
        row["page"] == 1 and row["kind"] == "pdf"),
    "line != 3": lambda row: row["line"] is not None and row["line"] != 3,
    r"""text ~ "'" or text = "a\"b" """: lambda row: "'" in row["text"],
}


def make_some(count: int, start: int = 0, seed: int = 0, files: int = 5, text: str = "word"):
    random_numbers = np.random.default_rng(seed)
    numbers = range(start, start + count)
    vectors = random_numbers.standard_normal((count, WIDTH)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    columns = {
        "id": [f"chunk{n}" for n in numbers], "path": [f"/docs/file{n % files}" for n in numbers],
        "kind": ["pdf" if n % 3 else "txt" for n in numbers],
        "section": [None if n % 4 == 0 else "it's" if n % 4 == 1 else "plain" for n in numbers],
        "page": [n % 3 or None for n in numbers], "line": [None if n % 2 else n % 7 for n in numbers],
        "start": list(numbers), "stop": [n + 9 for n in numbers],
        "text": [f"{text} number{n} of the houses{' isn' + chr(39) + 't' * (n % 2)} {'rare' if n % 50 == 0 else ''}"
                 for n in numbers],
        "size": [9] * count, "changed": [n % files for n in numbers], "digest": ["d"] * count,
        "last": [True] * count}
    return make_rows(columns, vectors)


def forbid_io_uring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saucier.retrieval.lance_table.has_io_uring", lambda: False)


@pytest.fixture(params=["lance", "lance by threads", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if request.param == "lance by threads":
        forbid_io_uring(monkeypatch)
    if request.param == "memory":
        return MemoryStore(make_schema(WIDTH).empty_table())
    return LanceStore.create(tmp_path / "index", WIDTH, "english")


@pytest.mark.slow
@pytest.mark.parametrize("condition", CONDITIONS)
def test_search_is_that_of_brute_force(store, condition: str) -> None:
    rows = make_some(300)
    store.replace(rows.slice(0, 200))
    store.optimize()
    store.replace(rows.slice(200))
    where = parse_filter(condition) if condition else None
    kept = [CONDITIONS[condition](row) for row in rows.to_pylist()]
    assert store.count(where) == sum(kept) > 10
    question = make_some(1, seed=9)
    scores = np.where(kept, read_vectors(rows) @ read_vectors(question)[0], -9)
    found = store.find_vectors(read_vectors(question)[0], 20, where)
    expected = np.argsort(-scores, kind="stable")[:min(20, sum(kept))]
    assert found["id"].to_pylist() == [f"chunk{n}" for n in expected]
    assert np.allclose(found["score"].to_numpy(), scores[expected], atol=1e-6)
    assert np.array_equal(read_vectors(found), read_vectors(rows)[expected])
    rare = store.find_words("a RARE house?", 300, where)
    ids = {f"chunk{n}" for n in range(0, 300, 50) if kept[n]}
    assert set(rare["id"].to_pylist()[:len(ids)]) == ids and len(rare) == sum(kept)  # all have houses
    assert (np.diff(rare["score"].to_numpy()) <= 0).all()


def test_both_searches_at_once_find_what_each_does(store) -> None:
    """Each chunk once, with the score of the first question's words. Rows of equal scores may come in any order."""
    rows = make_some(200)
    store.replace(rows.slice(0, 150))
    store.optimize()
    store.replace(rows.slice(150))
    question, words = read_vectors(make_some(1, seed=9))[0], ("a RARE house?", "houses")
    for where in (None, parse_filter('kind = "pdf"')):
        near, *lexical = [store.find_vectors(question, 200, where), *(store.find_words(one, 200, where)
                                                                      for one in words)]
        for asked in (words, words[:1], ()):
            found = store.find_both(question, asked, 30, where)
            taken = store.take(found.rows, PLACES)
            numbers = [int(name.removeprefix("chunk")) for name in taken["id"].to_pylist()]
            assert len({*numbers}) == len(numbers) and taken.to_pylist() == rows.select([*PLACES]).take(
                numbers).to_pylist()
            assert [*found.texts] == rows["text"].take(numbers).to_pylist()
            assert np.array_equal(found.vectors, read_vectors(rows)[numbers])
            assert store.take(found.rows[::-1], ["id"])["id"].to_pylist() == taken["id"].to_pylist()[::-1]
            named = taken["id"].to_pylist()
            assert {*named[:30]} == {*near["id"].to_pylist()[:30]}
            scores = dict(zip(lexical[0]["id"].to_pylist(), lexical[0][SCORE].to_pylist(), strict=True))
            best = [score for score in found.words if score]
            assert np.allclose(best, [scores[name] for name, score in zip(named, found.words, strict=True) if score])
            assert np.allclose(np.sort(best)[::-1], lexical[0][SCORE].to_numpy()[:30 if asked else 0])
            assert len(numbers) <= 30 + 30 * len(asked) and (len(numbers) == 30) == (not asked)
            ends = lexical[1][SCORE].to_numpy()[29] if asked == words else np.inf
            assert {name for name, score in zip(lexical[1]["id"].to_pylist(), lexical[1][SCORE].to_pylist(),
                                                strict=True) if score > ends + 1e-6} <= {*named}


def test_a_search_is_done_again_where_the_version_changes(tmp_path: Path) -> None:
    """Rows get other numbers; what was found before and what is read after are of one version."""
    store = LanceStore.create(tmp_path, WIDTH, "english")
    store.replace(make_some(50))
    other, question, seen = LanceStore.open(tmp_path), read_vectors(make_some(50))[7], list[list[int]]()
    assert other is not None

    def search() -> list[str]:
        seen.append(store.find_both(question, [], 3).rows.tolist())
        if len(seen) == 1:
            other.replace(make_some(50, start=100, files=1), ["/docs/file0"])
            other.optimize()
            store.table = other.table
        return store.take(np.array(seen[-1]), ["id"])["id"].to_pylist()

    assert store.read_version(search)[0] == "chunk7" and len(seen) == 2 and seen[0] != seen[1]
    with pytest.raises(ValueError, match="not of the store"):
        store.read_version(lambda: (_ for _ in ()).throw(ValueError("not of the store")))


@pytest.mark.parametrize("by_threads", [False, True])
def test_a_search_goes_on_where_a_writer_removes_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                             by_threads: bool) -> None:
    """Between finding and reading, by another process's store: the search is done again in the newest version, or ends
    in the old one, whose files are open; the next reading is of the newest one.
    """
    if by_threads:
        forbid_io_uring(monkeypatch)
    LanceStore.create(tmp_path, WIDTH, "english").replace(make_some(50))
    store, other, tries = LanceStore.open(tmp_path), LanceStore.open(tmp_path), list[int]()
    assert store is not None and other is not None

    def search() -> list[str]:
        tries.append(1)
        rows = store.find_both(read_vectors(make_some(50))[7], [], 3).rows
        if len(tries) == 1:
            other.replace(make_some(50, start=100, files=1), ["/docs/file0"])
            other.optimize()
        return store.take(rows, PLACES)["id"].to_pylist()

    assert store.read_version(search)[0] == "chunk7" and len(tries) in ((2,) if by_threads else (1, 2))
    assert store.count() == 90
    other.replace(make_some(1, start=200, text="newest"), [])
    assert len(store.find_words("newest", 5)) == 1


def test_a_store_that_is_made_again_in_its_place_is_read_anew(tmp_path: Path) -> None:
    """Its versions have the names of those that were there."""
    for first in (0, 100, 200):
        shutil.rmtree(tmp_path / "index", ignore_errors=True)
        made = LanceStore.create(tmp_path / "index", WIDTH, "english")
        made.replace(make_some(3, start=first))
        for store in (made, LanceStore.open(tmp_path / "index")):
            assert sorted(store.find_words("houses", 9)["id"].to_pylist()) == [f"chunk{first + n}" for n in range(3)]


@pytest.mark.skipif(sys.platform != "linux", reason="there is no io_uring")
def test_a_store_is_read_where_io_uring_is_forbidden(tmp_path: Path) -> None:
    """As in many containers: by a filter of system calls that answers `io_uring_setup` with EPERM."""
    folder = tmp_path / "a b#%20?é"
    LanceStore.create(folder, WIDTH, "english").replace(make_some(30))
    assert LanceStore.open(folder).count() == 30 and [path.name for path in tmp_path.iterdir()] == [folder.name]
    ran = subprocess.run([sys.executable, "-c", FORBIDDEN, str(folder)], capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("False 30 1\n", "")


FORBIDDEN = """
import ctypes, struct, sys; from pathlib import Path; sys.path.insert(0, '.')
from saucier.retrieval.lance_store import LanceStore
from saucier.retrieval.lance_table import has_io_uring
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 425), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
filtered = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
class Program(ctypes.Structure):
    _fields_ = [("size", ctypes.c_ushort), ("steps", ctypes.c_void_p)]
prctl = ctypes.CDLL(None).prctl
assert prctl(38, 1, 0, 0, 0) == 0 == prctl(22, 2, ctypes.byref(Program(4, ctypes.addressof(filtered))), 0, 0)
store = LanceStore.open(Path(sys.argv[1]))
print(has_io_uring(), store.count(), len(store.find_words("number7", 5)))
"""
"""Open and search a store in a process that may not use io_uring."""


def test_nothing_is_written_where_the_command_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LanceDB makes a folder of the name of what it connects to, where that is no path."""
    monkeypatch.chdir(tmp_path)
    LanceStore.create(tmp_path / "index", 8, "english").count()
    assert os.listdir(".") == ["index"]


def test_an_empty_store_finds_nothing(store) -> None:
    assert len(store.find_vectors(np.ones(WIDTH, np.float32), 5)) == len(store.find_words("house", 5)) == 0
    assert store.list_files() == {} and store.count() == 0
    store.replace(make_some(3))
    assert len(store.find_words("nothing of it", 5)) == 0
    assert len(store.find_vectors(np.ones(WIDTH, np.float32), 5)) == 3


def test_a_commit_replaces_files(store) -> None:
    store.replace(make_some(20))
    store.replace(make_some(2, start=20, text="other"))
    assert store.count() == 22 and store.describe().files == 5
    new = make_some(3, start=100, files=1)  # of /docs/file0
    store.replace(new, ["/docs/file0", "/docs/file1"])
    left = store.list_files()
    assert {path: one.chunks for path, one in left.items()} == {
        "/docs/file0": 3, "/docs/file2": 4, "/docs/file3": 4, "/docs/file4": 4}
    store.replace(new.slice(0, 0), ["/docs/file2", "/docs/it's not there"])
    assert "/docs/file2" not in store.list_files() and store.count() == 11
    assert len(store.find_words("other", 30)) == 0  # they were of the files 0 and 1


def test_a_store_in_memory_is_that_on_the_disk(tmp_path: Path) -> None:
    disk = LanceStore.create(tmp_path / "index", WIDTH, "english")
    disk.replace(make_some(150))
    again = LanceStore.open(tmp_path / "index")
    assert again is not None
    memory = MemoryStore(again.read_rows())
    question = read_vectors(make_some(1, seed=3))[0]
    assert memory.find_vectors(question, 9)["id"].to_pylist() == disk.find_vectors(question, 9)["id"].to_pylist()
    assert memory.list_files() == disk.list_files()
    assert LanceStore.open(tmp_path / "other") is None


def test_conditions_that_cannot_be_read() -> None:
    for text, wrong in (("", "ends where a field"), ("pth = 'x'", "no field 'pth'.*did you mean 'path'"),
                        ("page = 'x'", "page is a number"), ("path = 3", "path is a text"),
                        ("page ~ 'x'", "a number, and 'x' is none"), ("path ~ '('", "cannot be used"),
                        ("path = 'x", "cannot be read from letter 8"), ("(path = 'x'", r"ends where `\)`"),
                        ("path = 'x' 3", "has '3' at letter 12 where `and`"), ("path 'x'", "a comparison"),
                        ("path = 'x'; DROP TABLE", "cannot be read from letter 11"), ("page = 1.5", "cannot be read"),
                        ("not " * 60 + "page = 1", "nested more than 50"), ("(" * 99, "nested more than 50"),
                        ("x" * 5000, "5,000 letters")):
        with pytest.raises(InputError, match=wrong) as fault:
            parse_filter(text)
        assert "\n" not in str(fault.value)


def test_values_are_quoted_by_the_store(tmp_path: Path) -> None:
    rows = make_some(5)
    disk = LanceStore.create(tmp_path, WIDTH, "english")
    disk.replace(rows)
    for value in ("' OR 1=1 --", "x'); DELETE", "\\", "a\nb", "%", "`text`", "é\u0000"):
        where = parse_filter(f'path = "{value.replace(chr(92), chr(92) * 2)}" or path ~ "^it is not there$"')
        assert disk.count(where) == 0 == select_rows(where, rows).sum()
    assert write_sql(parse_filter('path = "it\'s"')) == "path = 'it''s'"


@pytest.mark.slow
def test_many_updates_do_not_grow_the_folder(tmp_path: Path) -> None:
    check_growth(tmp_path, 120)


@pytest.mark.nightly
def test_ten_thousand_updates_do_not_grow_the_folder(tmp_path: Path) -> None:
    check_growth(tmp_path, 10_000)


def check_growth(folder: Path, updates: int) -> None:
    """Replace files one by one, each time by another process's store: the folder stays below twice its data."""
    rows = make_some(2000, files=500)
    LanceStore.create(folder, WIDTH, "english").replace(rows)
    first = LanceStore.open(folder)
    assert first is not None
    first.optimize()
    data = first.describe().bytes
    numbers = random.Random(0)
    for update in range(updates):
        opened = LanceStore.open(folder)
        assert opened is not None
        place = numbers.randrange(500)
        opened.replace(rows.filter(np.arange(2000) % 500 == place), [f"/docs/file{place}"])
        opened.finish()
        if update % 10 == 0:
            assert opened.describe().bytes < 2 * data
    assert opened.count() == 2000 and opened.describe().unindexed <= 2000 // 20
    assert opened.describe().versions <= 22


def test_a_second_writer_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    code = ("import sys, time; from pathlib import Path; from saucier.retrieval.lance_table import lock_writer\n"
            "with lock_writer(Path(sys.argv[1])): print('in', flush=True); time.sleep(60)")
    first = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None and first.stdout.readline() == "in\n"
    with pytest.raises(InputError, match=f"is being written by process {first.pid}; wait"), lock_writer(tmp_path):
        pass
    first.kill()
    first.wait()
    with lock_writer(tmp_path):
        assert (tmp_path / "lock").read_text() == str(os.getpid())


@pytest.mark.slow
def test_a_full_disk_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    """A limit on the size of a file stands for a full disk; it is set in a process of its own."""
    LanceStore.create(tmp_path, WIDTH, "english").replace(make_some(30))
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-c", (
            "import sys; sys.path.insert(0, '.')\n"
            "from tests.unit.retrieval.test_store import fill_disk; fill_disk(sys.argv[1])"), str(tmp_path)])
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
    store = LanceStore.open(tmp_path)
    assert store is not None and store.count() == 30 and len(store.find_words("houses", 50)) == 30
    store.replace(make_some(10, start=50))
    assert store.count() == 40


def fill_disk(folder: str) -> None:
    """Write more than a file may hold; leave with 7 where that is said in one line."""
    store = LanceStore.open(Path(folder))
    assert store is not None
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
    try:
        store.replace(make_some(5000, start=100))
    except WorkError as fault:
        os._exit(7 if "cannot write: No space left" in str(fault) else 8)
    os._exit(9)


@pytest.mark.slow
@pytest.mark.parametrize("distance", ["dot", "l2"])
def test_the_recall_of_an_approximate_index_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                        distance: str) -> None:
    """Of vectors of any length, and of those of length one, which are parted by their distance."""
    rows = make_some(3000)
    if distance == "dot":
        vectors = read_vectors(rows) * np.random.default_rng(4).uniform(0.5, 2, (3000, 1)).astype(np.float32)
        rows = make_rows({name: rows[name].to_pylist() for name in (*PLACES, *STAMP)}, vectors)
    store = LanceStore.create(tmp_path, WIDTH, "english")
    store.replace(rows)
    assert store.describe().recall is None
    monkeypatch.setattr("saucier.retrieval.lance_store.FEWEST_FOR_INDEX", 3000)
    store.finish()
    index = store.vector_index
    assert index is not None and index.chunks == 3000 and index.questions == 100 and index.distance == distance
    shares = []
    some = read_vectors(rows)[:2]
    assert store.find_nearest(some, 7) == [
        [f"chunk{n}" for n in np.argsort(-(read_vectors(rows) @ one))[:7]] for one in some]
    assert len(store.find_nearest(some, 5000)[1]) == 3000
    for place in range(0, 3000, 100):
        question = read_vectors(rows)[place]
        exact = np.argsort(-(read_vectors(rows) @ question), kind="stable")[:10]
        question = 3 * question  # a question may have any length
        rows_found = store.find_vectors(question, 10)
        found = rows_found["id"].to_pylist()
        np.testing.assert_allclose(rows_found[SCORE].to_numpy(), read_vectors(rows_found) @ question, rtol=1e-4)
        shares.append(len({f"chunk{n}" for n in exact} & set(found)) / 10)
    assert index.recall >= 0.9 and abs(np.mean(shares) - index.recall) < 0.1
    assert store.describe().recall == index.recall
    store.replace(make_some(1, start=9000, seed=5))
    assert store.find_vectors(read_vectors(make_some(1, seed=5))[0], 1)["id"].to_pylist() == ["chunk9000"]


@pytest.mark.slow
def test_an_index_of_vectors_keeps_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Putting the store in order joins none of them, and what meets a rare condition is found in any of them."""
    monkeypatch.setattr("saucier.retrieval.lance_store.FEWEST_FOR_INDEX", 3000)
    rows = make_some(3000, files=1000)
    store = LanceStore.create(tmp_path, WIDTH, "english")
    store.replace(rows)
    store.finish()
    for update in range(3):
        store.replace(make_some(10, start=9000 + 10 * update, seed=update + 1))
        store.optimize()
    index, question = store.vector_index, read_vectors(rows)[7]
    assert index is not None and index.chunks == 3000
    one = store.ask(lambda: store.query_vectors(question, 3000, None, index.model_copy(update={"probes": 1}), ["id"]))
    assert 1 <= len(one) < 500
    where = parse_filter("path = '/docs/file13' or path = '/docs/file500'")
    kept = np.flatnonzero([path in ("/docs/file13", "/docs/file500") for path in rows["path"].to_pylist()])
    order = kept[np.argsort(-(read_vectors(rows)[kept] @ question), kind="stable")]
    assert len(kept) == 6
    assert store.find_vectors(question, 10, where)["id"].to_pylist() == [f"chunk{place}" for place in order]
