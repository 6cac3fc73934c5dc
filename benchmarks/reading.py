"""Memory while reading a 2 GB text file, made by repeating Python's documentation.

Run as a program (`python -m benchmarks.reading WORK FILE`) it is the process whose memory is measured.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.race import ROOT
from benchmarks.section import Row, Section, at_most

SIZES = {"read": 2_000_000_000, "pack": 200_000_000}
"""Bytes of the file; encoding is much slower than reading, so it gets a smaller one."""
QUICK_SIZE = 5_000_000
LIMIT = 1.0
"""GB."""
VOCAB = 2048


def make_file(path: Path, size: int) -> None:
    """Write about `size` bytes of text."""
    from saucier.text.reading.python_texts import read_python_documentation

    text = "\n\n".join(document.text for document in read_python_documentation()).encode()
    with path.open("wb") as file:
        for _ in range(-(-size // len(text))):
            file.write(text)


def read(file: Path) -> int:
    """Read everything as one document; return the bytes that were seen."""
    from saucier.text.reading.documents import read_documents

    return sum(len(document.text.encode()) for document in read_documents([str(file)]))


def pack(file: Path) -> int:
    """Read, encode and store everything; return the bytes that were seen."""
    from saucier.text.config import ByteBPE
    from saucier.text.reading.documents import read_documents
    from saucier.text.reading.python_texts import read_python_documentation
    from saucier.text.rows.store import get_document_frame, write_documents
    from saucier.text.tokenizer.training import train_tokenizer

    tokenizer = train_tokenizer(ByteBPE(vocab=VOCAB), (document.text for document in read_python_documentation()))
    begin, end = get_document_frame(tokenizer)
    return write_documents(file.with_name("store"), read_documents([str(file)]), tokenizer, begin=begin, end=end).bytes


WORK = {"read": read, "pack": pack}


def in_a_process(work: str, file: Path) -> tuple[float, float, int]:
    """Do some work in a process of its own; return its peak memory in GB, its seconds, and the bytes it saw."""
    command = [sys.executable, "-m", "benchmarks.reading", work, str(file)]
    found = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    return found["peak"] / 1e9, found["seconds"], found["bytes"]


def measure(quick: bool) -> Section:
    """Make the files, read one, and read one into a token store."""
    rows = []
    with TemporaryDirectory() as folder:
        for work, what in (("read", "reading"), ("pack", "reading, encoding and storing the tokens")):
            file = Path(folder) / "large.txt"
            make_file(file, QUICK_SIZE if quick else SIZES[work])
            size = file.stat().st_size
            peak, seconds, seen = in_a_process(work, file)
            if abs(seen - size) > 0.01 * size:
                raise RuntimeError(f"{what}: saw {seen} of {size} bytes")
            rows += [at_most(f"{what}, a file of {size / 1e9:.2f} GB: peak memory", peak, LIMIT, "GB"),
                     Row(f"{what}: speed", f"{seen / seconds / 1e6:,.1f} MB/s")]
    about = ("Text files that are a single document: Python's documentation again and again; byte-level BPE with "
             f"{VOCAB:,} tokens, trained on the documentation once (in the time).")
    return Section("Reading a large file", about, rows)


def main(work: str, file: str) -> None:
    """Be the process that is measured."""
    from saucier.machine import peak_resident_memory

    begin = time.perf_counter()
    seen = WORK[work](Path(file))
    print(json.dumps({"peak": peak_resident_memory(), "seconds": time.perf_counter() - begin, "bytes": seen}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
