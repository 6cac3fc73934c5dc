"""The folder of LanceDB's table: who writes in it, how it is opened, and what a full disk says.

The table is open twice: what is written goes the usual way, and all that is read by io_uring, where the system has it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import sys
from collections.abc import Coroutine, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from saucier.errors import InputError, WorkError, report_missing
from saucier.retrieval.documents import INSTALL

IO_URING_SETUP, RING_ENTRIES, RING_PARAMETERS = 425, 1 << 14, 120
"""The number of a system call, on every processor; as many entries as LanceDB asks for; bytes of a struct."""
TABLE, LOCK_FILE = "chunks", "lock"
TABLE_FOLDER = f"{TABLE}.lance"
FORMAT = "2.1"
"""In which LanceDB writes its files. From 2.2 on, reading one row of a column that holds one value everywhere, such as
the kind of all chunks, takes as long as there are rows: 2 ms for a million.
"""
VERSIONS = "_versions"
"""LanceDB's folder of the versions of a table."""
FULL_DISK = ("No space left", "os error 28", "File too large", "os error 27", "quota exceeded", "os error 122")
"""What LanceDB says where nothing more can be written."""
Made = TypeVar("Made")


@contextlib.contextmanager
def report_full_disk(folder: Path) -> Iterator[None]:
    """Turn a full disk into one `WorkError`: the version before is whole."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        if not any(one.lower() in str(error).lower() for one in FULL_DISK):
            raise
        raise WorkError(f"cannot write: {os.strerror(errno.ENOSPC)}", where=str(folder),
                        remedy="free space; what was committed before is whole") from error


@contextlib.contextmanager
def lock_writer(folder: Path) -> Iterator[None]:
    """Be the only one who writes in a folder; a killed process holds no lock. Raises `InputError` for a second one."""
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_FILE).open("a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            who = file.read().strip()
            raise InputError(f"is being written by process {who}" if who else "is being written", where=str(folder),
                             remedy="wait until that has ended") from error
        with contextlib.suppress(OSError):  # on a full disk the lock holds without its name
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
        yield


@cache
def remember_process() -> int:
    """Return the process that asked first: this one, or one that it was forked from."""
    return os.getpid()


def wait_for(work: Coroutine[Any, Any, Made]) -> Made:
    """Return what LanceDB gives when it has done its work. Raises `InputError` in a process that was forked from one
    that had worked with an index: LanceDB's threads are not there, and it waits for ever or breaks down.
    """
    from lancedb import background_loop

    if remember_process() != os.getpid():
        work.close()
        raise InputError("this process was forked from one that has worked with an index, and can work with none",
                         where="index", remedy="start processes anew: multiprocessing.get_context('spawn')")
    loop: Any = background_loop.LOOP
    done: Made = loop.run(work)
    return done


@cache
def has_io_uring() -> bool:
    """Say whether the system lets this process read by io_uring: old ones have none, and containers often forbid it."""
    if sys.platform != "linux":
        return False
    ring = ctypes.CDLL(None).syscall(IO_URING_SETUP, RING_ENTRIES, ctypes.create_string_buffer(RING_PARAMETERS))
    if ring < 0:
        return False
    os.close(ring)
    return True


def open_to_read(folder: Path) -> Any:
    """Return the table as it is searched. By io_uring a row is read in less than half the time: no thread has to wait
    for each of its pieces. Nothing is written that way, since LanceDB does not make commits by it safe from each other.
    """
    # The table's address alone: LanceDB makes a folder of what it connects to.
    scheme = "file+uring:" if has_io_uring() else "file:"
    table = scheme + (folder.absolute() / TABLE_FOLDER).as_uri().removeprefix("file:")
    return wait_for(connect_folder(str(folder)).open_table(TABLE, location=table))


def connect_folder(address: str) -> Any:
    """Return LanceDB's connection to a folder. Raises `InputError` without the package."""
    os.environ.setdefault("LANCEDB_LOG", "error")  # it warns of its own calls
    os.environ.setdefault("LANCE_URING_THREAD_COUNT", "1")  # a second one is no quicker
    with report_missing("an index needs lancedb, which is not installed", remedy=INSTALL):
        import lancedb
    return wait_for(lancedb.connect_async(address))
