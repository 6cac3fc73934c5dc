"""Search in a store: by vectors and by words, fused; exact codes first; near-duplicates merged; the first ones read
again by a reranker, and diverse, where wanted.

Every step keeps its score. Axes: N candidates, E width of a vector.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, filterfalse
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from saucier.retrieval.chunks import list_sentences
from saucier.retrieval.encoder import Encoder
from saucier.retrieval.filters import Filter
from saucier.retrieval.fusion import FEEDBACK, Ranking, fuse_ranks, fuse_scores
from saucier.retrieval.store import PLACES, Candidates, Floats, Store

Fusion = Literal["scores", "ranks"]
CODES = re.compile(r"\"([^\"]+)\"|((?=[^\s\"]*\d)[^\W_][\w./:#-]+[\w])")
"""What is to be found letter by letter: what stands in quotes, and words with a digit."""
SHORTEST_CODE = 3
"""Letters of one; shorter numbers are everywhere."""
UNREAD = tuple(name for name in PLACES if name != "text")
"""What is read of hits alone."""
WORDS = re.compile(r"\w+")
COPIES = 0.9
"""Share of equal words from which on two chunks are copies, if their words with digits are the same."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How is searched."""

    count: int = 10
    depth: int = 100
    """Candidates of each kind of search."""
    fusion: Fusion = "scores"
    weight: float = 0.5
    """Of the words, where scores are fused."""
    diversity: float = 0.0
    """Share that being unlike the hits before has in the order; 0: none."""
    feedback: int = 0
    """Chunks that are asked for, too, as if they were questions: those that the question finds first."""


@dataclass(frozen=True, slots=True)
class Rereading:
    """The first chunks are read again together with the question, and what they were is not forgotten.

    Source: Nogueira and Cho 2019, §3, arXiv:1901.04085; the interpolation: Wang et al. 2021, "BERT-based Dense
    Retrievers Require Interpolation with BM25", §3.
    """

    score: Callable[[Sequence[str], Sequence[str]], NDArray[np.float64]]
    """Returns a score for each pair of a question and a text, such as `retriever.Reranker.score`."""
    first: int = 20
    """Chunks that are read again, and so the most that are found; more where more are wanted."""
    weight: float = 0.5
    """Of these scores, next to those before."""
    kind: type[Ranking] = Ranking
    """What they are, and so how they are made comparable."""
    name: str = "reranker"
    """Of these scores, among the steps of a hit."""
    fused: str = "reranked"
    """Of both together."""

    @classmethod
    def by_sentences(cls, encoder: Encoder, first: int) -> Rereading:
        """Return a reading by the best sentence of each chunk. `encoder`: that of the index."""
        return cls(BestSentence(encoder).score, first, name="sentence", fused="by sentences")


@dataclass(frozen=True, slots=True)
class BestSentence:
    """The sentence of a text that is nearest to a question: texts read again by the encoder that found them."""

    encoder: Encoder

    def score(self, questions: Sequence[str], texts: Sequence[str]) -> NDArray[np.float64]:
        """Return the largest inner product of each question with a sentence of its text. Shapes: [N]."""
        cut = [list_sentences(text) for text in texts]
        asked, each = np.unique([*questions], return_inverse=True)
        vectors = self.encoder.embed([*asked.tolist(), *(one for some in cut for one in some)]).astype(np.float64)
        starts = np.cumsum([0, *map(len, cut)])
        best: NDArray[np.float64] = np.maximum.reduceat(
            (vectors[len(asked):] * vectors[np.repeat(each, np.diff(starts))]).sum(1), starts[:-1])
        return best


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk that was found."""

    id: str
    path: str
    kind: str
    section: str | None
    page: int | None
    line: int | None
    start: int
    stop: int
    """Its characters, in the text of the document."""
    text: str
    score: float
    """By which it is ranked, before diversity."""
    steps: Mapping[str, float]
    """The score of each step: the inner product with the question (`vectors`), BM25 (`words`), both (`fused`), and the
    share of codes that stand in it (`codes`), where there are some; how well it suits the first ones found
    (`feedback`), and each reading again with what it made of the scores before (`sentence`, `by sentences`;
    `reranker`, `reranked`), where these are done.
    """
    copies: tuple[str, ...] = ()
    """Files that say nearly the same; they are no hits of their own."""


def search_store(store: Store, question: str, vector: Floats, options: SearchOptions, where: Filter | None = None, *,
                 rereadings: Sequence[Rereading] = ()) -> list[Hit]:
    """Return the chunks for a question and its vector, the best first; `rereadings` come one after the other.

    Shapes: vector [E].
    Source of the fusions: see `fusion`; of diversity: Carbonell and Goldstein 1998, "The Use of MMR", §2.
    """
    return store.read_version(lambda: search_version(store, question, vector, options, where, rereadings))


def search_version(store: Store, question: str, vector: Floats, options: SearchOptions, where: Filter | None,
                   rereadings: Sequence[Rereading]) -> list[Hit]:
    """Do so in one version of the store. Shapes: vector [E]."""
    codes = find_codes(question)
    asked = [question, *([" ".join(codes)] if codes else [])]
    found = store.find_both(vector, asked, max(options.depth, options.count), where)
    if not len(found.rows):
        return []
    gained = np.zeros(len(found.rows))
    if options.feedback:
        found, gained = ask_for_first(store, found, vector, options, where)
    near = found.vectors @ vector
    fused = FUSIONS[options.fusion](near, found.words, options.weight)
    held = np.array([share_of_codes(codes, text) for text in found.texts]) if codes else np.zeros(len(near))
    both = fused + FEEDBACK * gained
    scores = put_codes_first(both, held)
    order = np.lexsort((np.arange(len(scores)), -scores))
    most = max([options.count, *(one.first for one in rereadings)])
    whole = bool(options.diversity) and not rereadings  # then any candidate may be chosen
    kept, copies = merge_copies([found.texts[place] for place in order], None if whole else most)
    steps = {"vectors": near, "words": found.words, "fused": fused} | ({"codes": held} if codes else {}) \
        | ({"feedback": gained} if options.feedback else {})
    if rereadings:
        read = order[kept]
        for name, values in read_again(question, [found.texts[place] for place in read], both[read], rereadings):
            steps[name] = np.zeros(len(scores))
            steps[name][read] = last = values
        scores[read] = put_codes_first(last, held[read])
        kept = [kept[place] for place in np.argsort(-scores[read], kind="stable")]
    chosen = [kept[place] for place in choose_diverse(scores[order[kept]], found.vectors[order[kept]], options)]
    read_whole = [int(order[place]) for place in chain(chosen, *(copies[place] for place in chosen))]
    rows = dict(zip(read_whole, store.take(found.rows[read_whole], UNREAD).to_pylist(), strict=True))
    return [Hit(**rows[number], text=found.texts[number], score=float(scores[number]),
                steps={name: float(values[number]) for name, values in steps.items()},
                copies=tuple(dict.fromkeys(rows[int(order[other])]["path"] for other in copies[place])))
            for place in chosen for number in [int(order[place])]]


def read_again(question: str, texts: Sequence[str], scores: NDArray[np.float64], rereadings: Sequence[Rereading],
               ) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Yield the scores of each reading of texts, and then those with all before, with their names. Shapes: [N]."""
    for one in rereadings:
        again = one.score([question] * len(texts), texts)
        scores = spread_out(fuse_scores(rank(scores), rank(again, one.kind), one.weight), len(texts))
        yield from ((one.name, again), (one.fused, scores))


def ask_for_first(store: Store, found: Candidates, vector: Floats, options: SearchOptions,
                  where: Filter | None) -> tuple[Candidates, NDArray[np.float64]]:
    """Ask for the chunks that a question finds first; return the candidates of all, and what they gain in the mean.

    Shapes: vector [E] -> [N]. See `fusion.feed_back`.
    """
    fuse, depth = FUSIONS[options.fusion], max(options.depth, options.count)
    first = np.argsort(-fuse(found.vectors @ vector, found.words, options.weight), kind="stable")[:options.feedback]
    others = [store.find_both(found.vectors[one], [found.texts[one]], depth, where) for one in first]
    parts = [found, *others]
    rows, places = np.unique(np.concatenate([one.rows for one in parts]), return_index=True)
    texts, vectors = [text for one in parts for text in one.texts], np.concatenate([one.vectors for one in parts])
    near, words = vectors[places] @ vectors[first].T, np.zeros((len(parts), len(rows)))
    for part, own in zip(parts, words, strict=True):
        own[np.searchsorted(rows, part.rows)] = part.words
    gained = [fuse(one, own, options.weight) for one, own in zip(near.T, words[1:], strict=True)]
    return Candidates(rows, [texts[place] for place in places], vectors[places], words[0]), np.mean(gained, axis=0)


def put_codes_first(scores: NDArray[np.float64], held: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores that are, with all codes, not below any without. Shapes: [N], [N] -> [N]."""
    return scores + held * (np.ptp(scores) or 1.0)


def rank(scores: NDArray[Any], kind: type[Ranking] = Ranking) -> Ranking:
    """Return one ranking of all candidates that have a score. Shapes: [N]."""
    places = np.argsort(-scores, kind="stable")
    places = places[scores[places] > -np.inf]
    return kind.of((scores[places][None], places[None]))


def spread_out(fused: Ranking, count: int) -> NDArray[np.float64]:
    """Return the scores of a ranking in the order of the candidates. Shapes: -> [N]."""
    scores = np.zeros(count)
    scores[fused.places[0]] = fused.scores[0]
    return scores


FUSIONS: Mapping[Fusion, Callable[[NDArray[Any], NDArray[Any], float], NDArray[np.float64]]] = {
    "scores": lambda near, words, weight: spread_out(fuse_scores(rank(near), rank(words), weight), len(near)),
    "ranks": lambda near, words, weight: spread_out(
        fuse_ranks([rank(near), *([rank(np.where(words > 0, words, -np.inf))] if words.any() else [])]), len(near)),
}
"""How both searches are made one. Shapes: [N], [N] -> [N]."""


def find_codes(question: str) -> list[str]:
    """Return what a question wants letter by letter: what stands in quotes, numbers and codes."""
    found = [quoted or code for quoted, code in CODES.findall(question)]
    return list(dict.fromkeys(one.strip().lower() for one in found if len(one.strip()) >= SHORTEST_CODE))


def share_of_codes(codes: Sequence[str], text: str) -> float:
    """Return the share of codes that stand in a text as words of their own, in small or large letters."""
    small = text.lower()
    return sum(bool(re.search(rf"(?<!\w){re.escape(code)}(?!\w)", small)) for code in codes) / max(1, len(codes))


def merge_copies(texts: Sequence[str], most: int | None = None) -> tuple[list[int], dict[int, list[int]]]:
    """Return which texts are kept, the first of nearly equal ones, `most` of them, and the copies of each."""
    kept, copies = list[int](), dict[int, list[int]]()
    alike = dict[Set[str], list[tuple[int, Set[str]]]]()  # those that are kept, by their words with digits
    for place, text in enumerate(texts):
        own = frozenset(WORDS.findall(text.lower()))
        numbers = frozenset(word for word in filterfalse(str.isalpha, own) if any(map(str.isdigit, word)))
        others = alike.setdefault(numbers, [])
        same = next((one for one, words in others if are_copies(own, words)), None)
        if same is not None:
            copies[same].append(place)
        elif most is None or len(kept) < most:
            kept.append(place)
            others.append((place, own))
            copies[place] = []
    return kept, copies


def are_copies(one: Set[str], other: Set[str]) -> bool:
    """Say whether two texts have nearly the same words; that they cannot is seen from how many they have."""
    few, many = sorted((len(one), len(other)))
    if few < COPIES * many:
        return False
    shared = len(one & other)
    return shared >= COPIES * (few + many - shared)


def choose_diverse(scores: NDArray[np.float64], vectors: Floats, options: SearchOptions) -> list[int]:
    """Return places of hits in their order: the best ones, each less the more it is like one before.

    Shapes: scores [N], from the best down, vectors [N, E].
    """
    count = min(options.count, len(scores))
    if not options.diversity:
        return list(range(count))
    worth = (scores - scores.min()) / (np.ptp(scores) or 1.0)
    length = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    alike, likest = (vectors / length) @ (vectors / length).T, np.zeros(len(scores))
    chosen = list[int]()
    for _ in range(count):
        gain = (1 - options.diversity) * worth - options.diversity * likest
        gain[chosen] = -np.inf
        chosen.append(int(gain.argmax()))
        likest = np.maximum(likest, alike[chosen[-1]])
    return chosen
