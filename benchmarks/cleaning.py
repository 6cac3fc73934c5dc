"""`saucier clean` on English text: megabytes a second of one core, memory, and how often languages are told right.

Run as a program (`python -m benchmarks.cleaning FILE [CHANGE...]`) it is the process that is measured. Rates are of
processor time, so that other work on the machine does not count.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.cooking import needed
from benchmarks.race import ROOT
from benchmarks.section import Row, Section, at_most

AIM = 3.0
"""MB/s of one core."""
TURNS: tuple[tuple[str, tuple[str, ...], float | None], ...] = (
    ("all rules but near duplicates", ("near_duplicates=off",), AIM),
    ("all rules", (), None),
    ("all rules, and the language", ("language.code=en",), None))
MEMORY = 1.0
"""GB."""
QUICK_DOCUMENTS = 60
COPIES = 4
"""How many times the text stands in the file that memory is measured with, each time in other words."""
BOOKS = ("pride_and_prejudice", "moby_dick", "middlemarch", "sherlock_holmes")
PARAGRAPHS = 12
"""Of a book in one document."""
CODES = {"ara": "ar", "ces": "cs", "cmn": "zh", "deu": "de", "ell": "el", "eng": "en", "fra": "fr", "heb": "he",
         "hin": "hi", "ind": "id", "jpn": "ja", "kor": "ko", "nld": "nl", "por": "pt", "ron": "ro", "rus": "ru",
         "spa": "es", "swe": "sv", "swh": "sw", "ukr": "uk"}
QUICK_SENTENCES = 5
SENTENCES = 200
"""Of each language."""


def documents() -> Iterator[str]:
    """Yield English documents: the articles of WikiText-2, and books in parts."""
    text = needed("lm", "wikitext2", "train.txt").read_text(encoding="utf-8")
    yield from (article for article in re.split(r"\n = [^=\n]+ = \n", text) if article.strip())
    for name in BOOKS:
        book = needed("long", f"{name}.txt").read_text(encoding="utf-8").split("\n\n")
        paragraphs = [" ".join(part.split()) for part in book if part.strip()]
        for start in range(0, len(paragraphs), PARAGRAPHS):
            yield "\n\n".join(paragraphs[start:start + PARAGRAPHS])


def make_file(path: Path, copies: int, most: int | None = None) -> None:
    """Write the documents, `most` of them; every copy but the first has a mark on each of its words."""
    with path.open("w", encoding="utf-8") as file:
        for copy in range(copies):
            for text in islice(documents(), most):
                marked = re.sub(r"\b(\w{4,})\b", rf"\1{'x' * copy}", text) if copy else text
                file.write(json.dumps({"text": marked}, ensure_ascii=False) + "\n")


def in_a_process(file: Path, *changes: str) -> dict[str, float]:
    """Clean a file in a process of its own; return its peak memory in GB, its seconds, and the bytes before."""
    command = [sys.executable, "-m", "benchmarks.cleaning", str(file), *changes]
    found: dict[str, float] = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True,
                                                        check=True).stdout)
    return found


def measure(quick: bool) -> Section:
    """Clean English text with and without the slow rules; then more of it; then tell languages."""
    rows, most = [], QUICK_DOCUMENTS if quick else None
    with TemporaryDirectory() as folder:
        file = Path(folder) / "english.jsonl"
        make_file(file, 1, most)
        for what, changes, aim in TURNS:
            found = in_a_process(file, *changes)
            rate = found["bytes"] / 1e6 / found["seconds"]
            reached = None if aim is None else rate >= aim
            rows.append(Row(what, f"{rate:.1f} MB/s", target=f"≥ {aim:g} MB/s" if aim else "", reached=reached))
        make_file(file, COPIES, most)
        found = in_a_process(file)
        rows.append(at_most(f"{found['bytes'] / 1e6:,.0f} MB, all rules: peak memory", found["peak"], MEMORY, "GB"))
    right = told_right(QUICK_SENTENCES if quick else SENTENCES)
    rows.append(Row("languages told right: sentences of Tatoeba in 20 languages", f"{100 * right:.1f}%"))
    about = ("WikiText-2 and four books, 2,353 documents in one JSONL file, one process; megabytes of text for each "
             "second of processor time, with reading and writing. For memory the same text again and again, each time "
             "in other words.")
    return Section("Cleaning English text", about, rows)


def told_right(sentences: int) -> float:
    """Return the share of sentences, so many of each language, whose language is named right."""
    from saucier.text.cleaning.rules import load_identifier

    identify, _ = load_identifier()
    right = []
    for path in sorted(needed("multilingual", "tatoeba").glob("*.tsv")):
        head, *lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
        code = CODES[head.split("\t")[1]]
        right += [identify(line.split("\t")[1])[0] == code for line in lines[:sentences]]
        right += [identify(line.split("\t")[0])[0] == "en" for line in lines[:sentences // 10]]
    return sum(right) / len(right)


def main(file: str, *changes: str) -> None:
    """Be the process that is measured."""
    from saucier.jobs.cleaning.clean import CleaningOptions, clean, cleaning
    from saucier.machine import peak_resident_memory

    rules = cleaning("all", changes)
    begin = time.process_time()
    report = clean([file], rules, Path(file).with_name("-".join(["out", *changes, str(Path(file).stat().st_size)])),
                   wishes=CleaningOptions(), say=lambda what, about: None)
    print(json.dumps({"peak": peak_resident_memory() / 1e9, "seconds": time.process_time() - begin,
                      "bytes": report.tally.before.bytes}))


if __name__ == "__main__":
    main(*sys.argv[1:])
