"""Finding passages: BM25, the published MiniLM, a retriever and a reranker trained here, and their fusions; on the
paragraphs of SQuAD, and on Cranfield, of which nothing is learned. Paired intervals over questions, three seeds.

Vectors are of whole passages, and also of their sentences, the best of which is added to the whole.
`python -m benchmarks retrieval`. What is finished is kept in `runs/retrieval`, and is not done again. On a CPU the
retriever takes half an hour of one core and a seed, and the reranker hours: `python -m benchmarks.retrieval --seeds 0
--kinds dense` leaves it out. All can be made elsewhere, from two folders: `--start MINILM --data DATA/retrieval`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.section import Row, Section

if TYPE_CHECKING:
    from saucier.retrieval.collection import Collection
    from saucier.retrieval.fusion import Fused, Ranking
    from saucier.retrieval.mining import Learner

RUNS = Path("runs/retrieval")
SEEDS = (0, 1, 2)
TRAINED, TESTED, FOREIGN = "squad_paragraphs_train", "squad_paragraphs", "cranfield"
TRAINED_KINDS = ("dense", "reranker")
"""Rankings of trained models; where these are kept, the models are not needed."""
MEASURED_BY = {TESTED: "recall@1", FOREIGN: "nDCG@10"}
DEPTH, REREAD = 1400, 20
"""Passages that systems rank, here all of them; and of these the first that the reranker reads."""
QUICK_QUESTIONS = 40
GOALS = {"dense_sentences": 0.74, "hybrid_sentences": 0.86, "reranked": 0.90}
"""Recall@1 on the paragraphs of SQuAD."""
GOAL_AT_5, GOAL_FOREIGN = 0.975, 0.46
PLAIN = {TESTED: {"words": 0.795, "minilm": 0.670, "ranks": 0.773, "sum": 0.838},
         FOREIGN: {"words": 0.383, "minilm": 0.409, "ranks": 0.437, "sum": 0.432}}
"""What the plain systems were measured at when the goals were set."""
PROMISED: dict[str, tuple[tuple[str, str, str | None], ...]] = {
    TESTED: (("dense", "minilm", "better"), ("hybrid", "sum", None), ("sentences", "minilm", None),
             ("sum_sentences", "sum", None), ("dense_sentences", "sentences", "better"),
             ("hybrid_sentences", "sum", "better"), ("hybrid_sentences", "sum_sentences", None),
             ("feedback", "sum", None), ("reranked", "hybrid_sentences", "better")),
    FOREIGN: (("dense", "minilm", None), ("hybrid", "sum", None), ("sentences", "minilm", None),
              ("sum_sentences", "sum", None), ("feedback", "sum", "better"), ("reranked", "hybrid", "not below"),
              ("reranked_tuned", "hybrid", "not below"))}
"""Systems, the ones that they are compared with, and what was promised of them."""
READ_AGAIN = {TESTED: "hybrid_sentences", FOREIGN: "hybrid"}
"""What the reranker reads of. The questions of Cranfield ask for no single fact."""
NAMES = {"words": "BM25", "minilm": "MiniLM as published (it has seen SQuAD)", "ranks": "both, reciprocal rank",
         "sum": "both, sum of standardised scores", "sentences": "MiniLM as published, by sentences",
         "sum_sentences": "BM25 + MiniLM as published, by sentences", "dense": "MiniLM trained here",
         "hybrid": "BM25 + trained MiniLM", "dense_sentences": "MiniLM trained here, by sentences",
         "hybrid_sentences": "BM25 + trained MiniLM, by sentences",
         "feedback": "the sum + feedback of the first three", "reranked": "the same + reranker",
         "reranked_tuned": "the same + reranker, whose weight is tuned in folds here"}
FED_BACK = 3
"""Passages that are asked too."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one of the two models is trained."""

    learner: Learner
    negatives: int
    """Mined passages beside the right one."""
    topics: int | None
    """Most passages of a topic, where a batch is about one."""
    epochs: int
    batch: int


RECIPES = {"dense": Recipe("retriever", 0, 60, 3, 256), "reranker": Recipe("reranker", 7, None, 2, 32)}


@dataclass(frozen=True, slots=True)
class Place:
    """Where things are: the folder of MiniLM, that of the collections, and that of what is made."""

    start: Path
    data: Path
    runs: Path
    quick: bool
    kinds: tuple[str, ...] = TRAINED_KINDS
    """What is trained: all, or the retriever alone."""
    reranker_format: str | None = None
    """The number format that the reranker reads in; None: the model's own parts, in float32."""

    def collection(self, name: str) -> Path:
        """Return the folder of a collection; for a quick run one with the first of its questions and passages."""
        source, target = self.data / name, self.runs / "data" / name
        if not self.quick:
            return source
        if not target.is_dir():
            shorten_collection(source, target)
        return target

    def made(self, seed: int, name: str) -> Path:
        """Return the place of what one seed makes."""
        return self.runs / f"seed-{seed}" / name

    def ranked(self, seed: int, collection: str, system: str) -> Path:
        """Return the place of a ranking by what one seed made."""
        form = f"-{self.reranker_format}" if system == "reranker" and self.reranker_format else ""
        return self.made(seed, f"{collection}-{system}{form}.npz")


def shorten_collection(source: Path, target: Path) -> None:
    """Write some questions from all over a collection, their passages, and as many others."""
    rows = {name: [json.loads(line) for line in (source / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
            for name in ("corpus", "queries")}
    judged = [line.split("\t") for line in (source / "qrels.tsv").read_text(encoding="utf-8").splitlines()]
    names = {row["_id"] for row in rows["queries"][::len(rows["queries"]) // QUICK_QUESTIONS]}
    kept = [line for line in judged[1:] if line[0] in names]
    passages = {line[1] for line in kept} | {row["_id"] for row in rows["corpus"][:QUICK_QUESTIONS]}
    target.mkdir(parents=True)
    for name, wanted in (("corpus", passages), ("queries", names)):
        lines = [json.dumps(row) + "\n" for row in rows[name] if row["_id"] in wanted]
        (target / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    (target / "qrels.tsv").write_text("".join("\t".join(line) + "\n" for line in (judged[0], *kept)), encoding="utf-8")


def train(place: Place, seed: int) -> None:
    """Train a retriever, and a reranker on what BM25 and MiniLM confuse. Each is finished, or goes on."""
    for name in place.kinds:
        learn(place, seed, name)


def learn(place: Place, seed: int, name: str) -> None:
    """Train one of the two, by its name in `TRAINED_KINDS`, unless that is done."""
    import saucier

    recipe, rows = RECIPES[name], place.made(seed, f"{name}.jsonl")
    if not rows.is_file():
        saucier.mine_negatives(place.collection(TRAINED), out=rows, learner=recipe.learner, models=[str(place.start)],
                               negatives=recipe.negatives, topics=recipe.topics, seed=seed)
    settings = [f"training.seed={seed}", f"training.epochs={1 if place.quick else recipe.epochs}",
                f"training.batch={8 if place.quick else recipe.batch}"]
    saucier.train_retriever(recipe.learner, rows, settings, model=place.start, out=place.made(seed, name), quiet=True)


def keep_ranking(path: Path, make: Callable[[], Ranking]) -> Ranking:
    """Return a ranking that is kept in a file, or make it."""
    from saucier.files import write_atomically
    from saucier.retrieval.fusion import Ranking

    if not path.is_file():
        found = make()
        path.parent.mkdir(parents=True, exist_ok=True)

        def write(temporary: Path) -> None:
            with temporary.open("wb") as file:
                np.savez_compressed(file, scores=found.scores.astype(np.float32), places=found.places.astype(np.int32))

        write_atomically(path, write)
    with np.load(path) as stored:
        return Ranking.of((stored["scores"], stored["places"]))


def worth(collection: Collection, name: str) -> Callable[[Ranking], Any]:
    """Return what gives each question's value by one measure."""
    from saucier.retrieval.measures import MEASURES, judge

    return lambda ranking: MEASURES[name](judge(ranking, collection))


def rank_plain(place: Place, name: str) -> dict[str, Ranking]:
    """Rank by the systems that learn nothing here."""
    from saucier.jobs.retrieval import rank_by_both
    from saucier.retrieval.fusion import feed_back, fuse_ranks, fuse_scores
    from saucier.retrieval.retriever import open_retriever, rank_by_words

    collection = read(place, name)
    words = keep_ranking(place.runs / "plain" / f"{name}-words.npz", lambda: rank_by_words(collection, DEPTH))
    minilm, sentences = rank_by_vectors(place.start, collection, place.runs / "plain", name, "minilm")
    both = fuse_scores(words, minilm, 0.5)
    again = partial(rank_by_both, retriever=open_retriever(place.start), count=DEPTH, weight=0.5)
    fed = keep_ranking(place.runs / "plain" / f"{name}-feedback.npz", lambda: feed_back(
        both, FED_BACK, lambda places: again(collection.ask_passages(places.tolist()))))
    return {"words": words, "minilm": minilm, "ranks": fuse_ranks([words, minilm]), "sum": both, "feedback": fed,
            "sentences": sentences, "sum_sentences": tune(words, sentences, collection, "MRR").ranking}


def tune(first: Ranking, second: Ranking, collection: Collection, by: str) -> Fused:
    """Fuse by scores, with weights that are tuned in folds on other questions of the collection, by a measure."""
    from saucier.retrieval.fusion import fuse_by_folds

    groups = [next(iter(one.relevance)) for one in collection.questions]
    return fuse_by_folds(first, second, worth(collection, by), groups)


def rank_by_vectors(model: Path, collection: Collection, place: Path, name: str, system: str) -> list[Ranking]:
    """Rank by the vectors of whole passages, and by those with their best sentences. Both are kept."""
    from saucier.retrieval.retriever import SentenceRetriever, open_retriever

    opened = cache(lambda: open_retriever(model))
    return [keep_ranking(place / f"{name}-{system}.npz", lambda: opened().rank(collection, DEPTH)),
            keep_ranking(place / f"{name}-{system}-sentences.npz",
                         lambda: SentenceRetriever(opened()).rank(collection, DEPTH))]


def rank_trained(place: Place, name: str, seed: int, weights: Sequence[float] | None) -> tuple[
        dict[str, Ranking], tuple[float, ...]]:
    """Rank by the trained models and the fusions with them; return these, and the mean weights of the fusions.

    `weights`: None: tuned in folds on other questions of the same collection; or those of another collection.
    """
    from saucier.retrieval.fusion import Choice, fuse_scores
    from saucier.retrieval.retriever import open_reranker

    collection = read(place, name)

    def fuse(first: Ranking, second: Ranking, number: int) -> tuple[Ranking, float]:
        if weights is not None:
            return fuse_scores(first, second, weights[number]), weights[number]
        fused = tune(first, second, collection, "MRR")
        return fused.ranking, float(np.mean(fused.weights))

    words = rank_plain(place, name)["words"]
    dense, sentences = rank_by_vectors(place.made(seed, "dense"), collection, place.made(seed, ""), name, "dense")
    (hybrid, share), (both, other) = fuse(words, dense, 0), fuse(words, sentences, 1)
    found = {"dense": dense, "hybrid": hybrid, "dense_sentences": sentences, "hybrid_sentences": both}
    if "reranker" not in place.kinds:
        return found, (share, other)
    first = found[READ_AGAIN[name]].cut(REREAD)
    kept = keep_ranking(place.ranked(seed, name, "reranker"), lambda: open_reranker(
        place.made(seed, "reranker"), place.reranker_format).rank(first, collection))
    reread = Choice(kept.scores, kept.places)
    reranked, last = fuse(first, reread, 2)
    found |= {"reranked": reranked, "reranked_tuned": tune(first, reread, collection, MEASURED_BY[name]).ranking}
    return found, (share, other, last)


def read(place: Place, name: str) -> Collection:
    """Read a collection, with the questions alone that a passage answers."""
    from saucier.retrieval.collection import read_collection

    return read_collection(place.collection(name)).answerable


def work(place: Place, seeds: Sequence[int]) -> dict[str, dict[str, list[Ranking]]]:
    """Train and rank, seed after seed; return the rankings of each system on each collection."""
    found: dict[str, dict[str, list[Ranking]]] = {}
    for name in (TESTED, FOREIGN):
        found[name] = {system: [ranking] * len(seeds) for system, ranking in rank_plain(place, name).items()}
    for seed in seeds:
        begin = time.perf_counter()
        kept = [place.ranked(seed, name, kind) for name in (TESTED, FOREIGN)
                for kind in (*place.kinds, "dense-sentences")]
        if not all(path.is_file() for path in kept):
            train(place, seed)
        own, weights = rank_trained(place, TESTED, seed, None)
        foreign, _ = rank_trained(place, FOREIGN, seed, weights)
        for name, rankings in ((TESTED, own), (FOREIGN, foreign)):
            for system, ranking in rankings.items():
                found[name].setdefault(system, []).append(ranking)
        print(f"  seed {seed}: {time.perf_counter() - begin:.0f} s, weights {weights}", file=sys.stderr, flush=True)
    return found


def open_place(runs: Path, quick: bool, start: Path | None = None, data: Path | None = None) -> Place:
    """Return where things are: MiniLM and the collections in the folders of the tests, unless others are given."""
    from benchmarks.cooking import needed
    from benchmarks.finetuning import weights

    return Place(start or Path(weights()), data or needed("retrieval"), runs, quick)


def measure(quick: bool) -> Section:
    """Train, rank, and compare on the same questions."""
    place = open_place(RUNS / "quick" if quick else RUNS, quick)
    found = work(place, SEEDS[:1] if quick else SEEDS)
    rows = [row for name in (TESTED, FOREIGN) for row in compare(place, name, found[name])]
    about = ("Retrievers and rerankers begin with the published MiniLM weights (22.7 M parameters) and learn from "
             "3,997 questions over 800 paragraphs; they are measured on 4,863 questions over 978 other paragraphs, and "
             "on Cranfield's 150 over 1,400 abstracts, of which nothing is learned. Mean of the seeds; in brackets the "
             "95 % interval of paired differences over seeds and questions. Weights of fusions are tuned in five folds "
             "on other questions than those that are scored; on Cranfield they are those of SQuAD. By sentences: the "
             "best sentence of a passage counts beside the whole.")
    return Section("Retrieval", about, rows, ["`runs/retrieval` holds every training with its report, and every "
                                              "ranking."])


def compare(place: Place, name: str, found: dict[str, list[Ranking]]) -> list[Row]:
    """Lay out one collection: each system's value, and what it gains over the one that it is to beat."""
    collection, by = read(place, name), MEASURED_BY[name]
    values = {system: np.stack([worth(collection, by)(one) for one in rankings]) for system, rankings in found.items()}
    rows = [Row(f"{name}: {by}, {NAMES[system]}", f"{values[system].mean():.3f}", f"{expected:.3f} when the goals were "
                "set") for system, expected in PLAIN[name].items()]
    rows += [compared(name, by, values, system, against, target)
             for system, against, target in PROMISED[name] if system in values]
    if name == TESTED:
        rows += [goal(f"{name}: {by}, {NAMES[system]}", values[system].mean(), least)
                 for system, least in GOALS.items() if system in values]
    if name == FOREIGN:
        return [*rows, *(goal(f"{name}: {by}, {NAMES[system]}", values[system].mean(), GOAL_FOREIGN)
                         for system in ("feedback", "reranked") if system in values)]
    if "reranked" not in values:
        return rows
    at_5 = np.mean([worth(collection, "recall@5")(one).mean() for one in found["reranked"]])
    return [*rows, goal(f"{name}: recall@5, {NAMES['reranked']}", at_5, GOAL_AT_5)]


def compared(name: str, by: str, values: dict[str, Any], system: str, against: str, promised: str | None) -> Row:
    """Lay out the paired difference of two systems."""
    from saucier.tasks.metrics.statistics import paired_difference

    gap = paired_difference(values[system], values[against], np.ones(values[system].shape[1]))
    reached = {None: None, "better": gap.low > 0, "not below": gap.value >= 0}[promised]
    return Row(f"{name}: {by}, {NAMES[system]} against {NAMES[against]}", f"{values[system].mean():.3f}",
               f"{values[against].mean():.3f}; difference {gap.value:+.3f} ({gap.low:+.3f} … {gap.high:+.3f})",
               target=promised or "", reached=None if reached is None else bool(reached))


def goal(what: str, value: float, least: float) -> Row:
    """Lay out a figure and its goal."""
    return Row(what, f"{value:.3f}", target=f"goal ≥ {least:g}", reached=bool(value >= least))


def main() -> None:
    """Train and rank from the folders that are given, without the rest of the benchmarks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retrieval")
    parser.add_argument("--start", type=Path, help="the folder of MiniLM; that of the test package without")
    parser.add_argument("--data", type=Path, help="the folder of the collections; that of the tests without")
    parser.add_argument("--out", type=Path, default=RUNS, help="where all is kept")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--kinds", nargs="+", choices=TRAINED_KINDS, default=TRAINED_KINDS, help="what is trained")
    parser.add_argument("--reranker-format", help="the number format that the reranker reads in, by the kernels")
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    given = parser.parse_args()
    place = open_place(given.out, given.quick, given.start, given.data)
    found = work(replace(place, kinds=tuple(given.kinds), reranker_format=given.reranker_format), given.seeds)
    for name in found:
        for row in compare(place, name, found[name]):
            print(f"{row.what}: {row.ours} | {row.theirs} | {row.target} {'' if row.reached is None else row.reached}")


if __name__ == "__main__":
    main()
