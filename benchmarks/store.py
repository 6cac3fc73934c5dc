"""The store of an index at one million rows of 384: built, searched, and added to.

`python -m benchmarks store`; `python -m benchmarks.store --rows 100000` for fewer. The texts are sentences of
WikiText-2, again with a number after them where there are too few. Their vectors are not a model's, which would take
hours here: each is the sum of random vectors of its words, of length one; texts with words in common are near.
Questions are words of a sentence, with the vector of that sentence and noise. What embedding all of them would take
follows from MiniLM's own time for some.
"""

from __future__ import annotations

import argparse
import re
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.cooking import needed
from benchmarks.finetuning import weights
from benchmarks.section import Row, Section, at_most

ROWS, QUICK, WIDTH, BATCH = 1_000_000, 3_000, 384, 4096
QUESTIONS, FOUND, NOISE, ROWS_OF_FILE, EMBEDDED = 400, 10, 0.3, 10, 2_000
LIMITS = {"p50": 15.0, "p99": 60.0, "minutes": 10.0, "GB": 4.0, "share": 0.03}
RECALL = 0.95


def measure(quick: bool) -> Section:
    """Build, search, and add."""
    with TemporaryDirectory() as folder:
        return build_and_search(Path(folder), QUICK if quick else ROWS)


def build_and_search(folder: Path, rows: int) -> Section:
    """Measure a store of so many rows."""
    from saucier.retrieval.hybrid import SearchOptions, search_store
    from saucier.retrieval.lance_store import LanceStore

    texts, embed = read_sentences(), make_vectors()
    store, begin, embedded = LanceStore.create(folder, WIDTH, "english"), time.perf_counter(), 0.0
    for start in range(0, rows, BATCH):
        table, seconds = make_batch(texts, embed, start, min(BATCH, rows - start))
        store.replace(table)
        embedded += seconds
    store.finish()
    built = time.perf_counter() - begin - embedded
    opened = LanceStore.open(folder)
    assert opened is not None, "it was built"
    vectors, questions = make_questions(texts, embed, rows)
    search_store(opened, questions[0], vectors[0], SearchOptions())  # opens what it needs
    both = list(take_times(lambda n: search_store(opened, questions[n], vectors[n], SearchOptions())))
    near = list(take_times(lambda n: opened.find_vectors(vectors[n], FOUND)))
    exact = opened.find_nearest(vectors, FOUND)
    recall = np.mean([len({*ids} & {*opened.find_vectors(one, FOUND)["id"].to_pylist()}) / len(ids)
                      for ids, one in zip(exact, vectors, strict=True)])
    table, _ = make_batch(texts, embed, rows, rows // 100)
    begin = time.perf_counter()
    opened.replace(table)
    opened.finish()
    added = time.perf_counter() - begin
    each = time_embedding(texts[:EMBEDDED])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    found = [at_most(f"search, both kinds, {name}", float(np.percentile(both, share)), LIMITS[name], "ms")
             for name, share in (("p50", 50), ("p99", 99))]
    found += [at_most(f"search by vectors alone, {name}", float(np.percentile(near, share)), LIMITS[name], "ms")
              for name, share in (("p50", 50), ("p99", 99))]
    found += [Row(f"recall@{FOUND} against the exact scan", f"{recall:.3f}", target=f"≥ {RECALL}",
                  reached=bool(recall >= RECALL)),
              at_most("the whole build, once embedded", built / 60, LIMITS["minutes"], "minutes"),
              at_most("most memory, that of making the vectors included", memory, LIMITS["GB"], "GB"),
              at_most("1 % more rows, of the whole build, once embedded", added / built, LIMITS["share"],
                      "of its time"),
              at_most(f"the same with embedding, {1 / each:,.0f} sentences a second by MiniLM in int8",
                      (added + each * rows / 100) / (built + each * rows), LIMITS["share"], "of its time")]
    about = (f"{rows:,} sentences of WikiText-2 with vectors of {WIDTH} numbers, which are sums of random vectors of "
             f"their words; {QUESTIONS} questions. Whole searches take the first 100 of both kinds, fuse them, and "
             "merge copies.")
    return Section("The store of an index", about, found)


def time_embedding(texts: list[str]) -> float:
    """Return the seconds that MiniLM takes for a sentence in int8."""
    from saucier.retrieval.encoder import open_encoder

    encoder = open_encoder(weights(), "int8", device="cpu")
    encoder.embed(texts[:64])
    begin = time.perf_counter()
    encoder.embed(texts)
    return (time.perf_counter() - begin) / len(texts)


def read_sentences() -> list[str]:
    """Return the sentences of WikiText-2."""
    lines = needed("lm", "wikitext2", "train.txt").read_text(encoding="utf-8").split("\n")
    return [one.strip() for line in lines for one in re.split(r"(?<= [.!?]) ", line) if len(one.split()) > 4]


def make_vectors() -> Callable[[list[str]], Any]:
    """Return what gives texts vectors of length one."""
    numbers = dict[str, int]()
    words = np.random.default_rng(0).standard_normal((1 << 17, WIDTH), dtype=np.float32)

    def embed(texts: list[str]) -> Any:
        found = np.stack([words[[numbers.setdefault(word, len(numbers)) % len(words) for word in text.split()]].sum(0)
                          for text in texts])
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    return embed


def make_batch(texts: list[str], embed: Callable[[list[str]], Any], start: int, count: int) -> tuple[Any, float]:
    """Return rows, and the seconds that their vectors took."""
    from saucier.retrieval.store import PLACES, STAMP, make_rows

    places = range(start, start + count)
    own = [texts[place % len(texts)] + (f" {place}" if place >= len(texts) else "") for place in places]
    begin = time.perf_counter()
    vectors = embed(own)
    seconds = time.perf_counter() - begin
    columns: dict[str, list[Any]] = {name: [None] * count for name in (*PLACES, *STAMP)}
    columns |= {"text": own, "id": [f"{place:08}" for place in places], "kind": ["txt"] * count, "last": [True] * count,
                "path": [f"/{place // ROWS_OF_FILE}.txt" for place in places], "start": [*places], "stop": [*places],
                "size": [1] * count, "changed": [1] * count, "digest": ["d"] * count}
    return make_rows(columns, vectors), seconds


def make_questions(texts: list[str], embed: Callable[[list[str]], Any], rows: int) -> tuple[Any, list[str]]:
    """Return the vectors and the words of questions."""
    draw = np.random.default_rng(1)
    own = [texts[place % len(texts)] for place in np.linspace(0, rows - 1, QUESTIONS).astype(int)]
    vectors = embed(own) + NOISE * draw.standard_normal((QUESTIONS, WIDTH)).astype(np.float32) / WIDTH ** 0.5
    return vectors, [" ".join(draw.choice(text.split(), min(8, len(text.split())), replace=False)) for text in own]


def take_times(work: Callable[[int], object]) -> Iterator[float]:
    """Yield the milliseconds of each question."""
    for number in range(QUESTIONS):
        begin = time.perf_counter()
        work(number)
        yield 1e3 * (time.perf_counter() - begin)


def main() -> None:
    """Measure a store of another size."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store")
    parser.add_argument("--rows", type=int, default=ROWS, help="how many")
    with TemporaryDirectory() as folder:
        for row in build_and_search(Path(folder), parser.parse_args().rows).rows:
            print(f"{row.what}: {row.ours} | {row.target} {'' if row.reached is None else row.reached}")


if __name__ == "__main__":
    main()
