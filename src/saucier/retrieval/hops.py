"""Search in several hops: each query is a piece of what was read so far, and asks for what is still missing.

A query generator is a model that answers with spans, as any reader does: `derive_queries` writes from questions with
known passages what it learns from, a row as SQuAD has them, and `saucier finetune question_answering` learns it.
Source: Qi et al. 2019, arXiv:1910.07000. `add_names` writes queries without learning: ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from saucier.errors import InputError
from saucier.retrieval.collection import Collection, Passage

Find = Callable[[Sequence[str], int], np.ndarray]
"""Returns the places of the best passages of each query, the best first. Shapes: queries, count -> [Q, K]."""
Write = Callable[[Sequence[str], Sequence[str]], Sequence[str]]
"""Returns the next query of each question from it and its context: G of eq 62; "" where it has none."""
WORD = re.compile(r"\w+")
GAP = 2
"""Words between two overlaps that are merged into one, at most; chosen here."""
NAME = re.compile(r"\w[\w'’./&-]*")
"""A word that may be (a part of) a name: it is one where its first letter is a capital."""
READ = 5
"""Passages of a query from which a generator that has learned writes the next one, as here it learned it."""
TITLED, BREAK = " : ", "\n"
"""What stands between a title and its text in a context, and between passages."""


@dataclass(frozen=True, slots=True)
class HopRow:
    """What a query generator learns from a hop of a question."""

    id: str
    question: str
    context: str
    """What was read so far: the question, and then the passages that it found."""
    query: str
    """The piece of the context that finds the missing passage best."""
    start: int
    """Its first character there."""
    rank: int
    """Of the missing passage among those that the query finds, from 1."""

    def as_paragraph(self) -> dict[str, Any]:
        """Return a line of a file in SQuAD's form, with the query as the answer."""
        answer = {"text": self.query, "answer_start": self.start}
        return {"context": self.context, "qas": [{"id": self.id, "question": self.question, "answers": [answer]}]}


def join_context(question: str, passages: Sequence[Passage]) -> str:
    """Return what a query generator reads: the question and the passages found (C of eq 62 and 63)."""
    return BREAK.join([question, *(TITLED.join(part for part in (one.title, one.text) if part) for one in passages)])


def add_names(questions: Sequence[str], contexts: Sequence[str]) -> list[str]:
    """Return each question with the words of its context that begin with a capital and that it lacks; "" without any.

    A query generator that learns nothing: what is still missing is mostly named in what was found. It is meant for one
    passage (`search_in_hops(..., context=1)`); the names of more lead away.
    """
    found = []
    for question, context in zip(questions, contexts, strict=True):
        known = {word.lower() for word in NAME.findall(question)}
        words = dict.fromkeys(word.rstrip("'’./&-") for word in NAME.findall(context[len(question):]))
        names = [word for word in words if word[:1].isupper() and word.lower() not in known]
        found.append(" ".join([question, *names]) if names else "")
    return found


def propose_queries(context: str, missing: Passage) -> dict[str, int]:
    """Return pieces of a context that have words of a passage; piece -> its first character.

    They are the shortest stretch that holds the longest common subsequence, the longest common substring, and all
    overlaps with at most `GAP` words between them in one; each with the title and with the text.
    """
    words = [(one.group().lower(), one.start(), one.end()) for one in WORD.finditer(context)]
    own = [word for word, _, _ in words]
    found = dict[str, int]()
    for target in (missing.title, missing.text):
        theirs = [one.group().lower() for one in WORD.finditer(target)]
        if not own or not theirs:
            continue
        for first, last in {longest_substring(own, theirs), common_stretch(own, theirs), *merge_overlaps(own, theirs)}:
            if first <= last:
                piece = context[words[first][1]:words[last][2]]
                found.setdefault(piece, words[first][1])
    return found


def longest_substring(own: Sequence[str], theirs: Sequence[str]) -> tuple[int, int]:
    """Return the first and last place in `own` of the longest run of words that `theirs` has too; (0, -1) for none."""
    best, where, before = 0, (0, -1), np.zeros(len(theirs) + 1, dtype=np.int64)
    others = np.array(theirs)
    for place, word in enumerate(own):
        runs = np.zeros_like(before)
        runs[1:] = np.where(others == word, before[:-1] + 1, 0)
        if runs.max() > best:
            best = int(runs.max())
            where = (place - best + 1, place)
        before = runs
    return where


def common_stretch(own: Sequence[str], theirs: Sequence[str]) -> tuple[int, int]:
    """Return the shortest stretch of `own` that holds a longest common subsequence with `theirs`; (0, -1) for none.

    The table of the lengths holds in each cell the latest beginning, too, in one number: length * size + beginning + 1.
    """
    others, size = np.array(theirs), len(own) + 1
    table = np.zeros(len(theirs) + 1, dtype=np.int64)
    best, where = 0, (0, -1)
    for place, word in enumerate(own):
        grown = np.where(table[:-1] < size, size + place + 1, table[:-1] + size)
        table[1:] = np.maximum(table[1:], np.where(others == word, grown, 0))
        table = np.maximum.accumulate(table)
        length, begin = divmod(int(table[-1]), size)
        if length and (length, begin - 1 - place) > (best, where[0] - where[1] if best else -size):
            best, where = length, (begin - 1, place)
    return where


def merge_overlaps(own: Sequence[str], theirs: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the first and last places of runs of `own` whose words `theirs` has, those near each other as one."""
    known = {*theirs}
    places = [place for place, word in enumerate(own) if word in known]
    begin = 0
    for number, place in enumerate(places, start=1):
        if number == len(places) or places[number] - place > GAP + 1:
            yield places[begin], place
            begin = number


def derive_queries(collection: Collection, find: Find, *, count: int, context: int) -> Iterator[list[HopRow]]:
    """Yield for each question what a query generator learns, hop by hop.

    Of the passages that a question needs, the one is next that some piece of the context finds best, with this piece
    as its query; among equal ranks the shorter piece. The context of the next hop is that of this one with the
    `context` best passages that the query finds, as eq 63 says; so one that was not found is missing there, too. A hop
    to which no piece of the context leads ends the question. `count`: passages of a query that are looked at.
    """
    places = collection.places
    for question in collection.questions:
        missing, read, rows = [places[one] for one in question.relevant], list[int](), list[HopRow]()
        while missing:
            text = join_context(question.text, [collection.passages[place] for place in read])
            pieces = {piece: start for place in missing
                      for piece, start in propose_queries(text, collection.passages[place]).items()}
            best = choose_query([*pieces], missing, find, count)
            if best is None:
                break
            piece, target, rank, found = best
            rows.append(HopRow(question.id, question.text, text, piece, pieces[piece], rank))
            missing.remove(target)
            read += [place for place in found[:context] if place not in read]
        yield rows


def choose_query(pieces: Sequence[str], missing: Sequence[int], find: Find,
                 count: int) -> tuple[str, int, int, list[int]] | None:
    """Return the piece that finds a missing passage best, that passage, its rank, and all that the piece finds.

    None where no piece finds one among its `count` best.
    """
    if not pieces:
        return None
    found = find(pieces, count)
    options = [(int(at[0]) + 1, len(piece), piece, target, row.tolist())
               for piece, row in zip(pieces, found, strict=True) for target in missing
               if len(at := np.flatnonzero(row == target))]
    if not options:
        return None
    rank, _, piece, target, row = min(options)
    return piece, target, rank, row


@dataclass(frozen=True, slots=True)
class QueryWriters:
    """What writes the query of each hop, the first one's too, and how many passages of a query it reads."""

    write: tuple[Write, ...]
    context: int

    @classmethod
    def plain(cls, hops: int) -> QueryWriters:
        """Ask with the question, and then with the names in the first passage that was found too."""
        return cls((add_names,) * hops, 1)


def search_in_hops(questions: Sequence[str], passages: Sequence[Passage], write: Sequence[Write], find: Find, *,
                   count: int, context: int) -> list[list[int]]:
    """Return the places of the `count` passages that each question finds in as many hops as there are generators.

    Errors: `InputError` for fewer passages than hops. Source: eq 62 and 63.
    """
    found = search_hop_by_hop(questions, passages, write, find, count=count, context=context)
    return [[place for hop in hops for place in hop] for hops in found]


def search_hop_by_hop(questions: Sequence[str], passages: Sequence[Passage], write: Sequence[Write], find: Find, *,
                      count: int, context: int) -> list[list[list[int]]]:
    """Return the places of the passages that each hop of each question adds, in all `count` of them.

    Each hop gives its share of the places, those of the first that do not divide evenly; what an earlier hop found is
    passed over, and what is left over goes to the last hop. A generator that has no query asks with the question.
    `passages` is read after each search alone: `find` may add to it what it finds.
    Errors: `InputError` for fewer passages than hops. Source: eq 62 and 63.
    """
    if count < len(write):
        raise InputError(f"is {count}, for {len(write)} hops", where="count", remedy="give one passage a hop at least")
    found: list[list[list[int]]] = [[] for _ in questions]
    read: list[list[int]] = [[] for _ in questions]
    for hop, generate in enumerate(write, start=1):
        contexts = [join_context(text, [passages[place] for place in places])
                    for text, places in zip(questions, read, strict=True)]
        queries = [query or text for query, text in zip(generate(questions, contexts), questions, strict=True)]
        most = -(-count * hop // len(write))
        for hops, places, row in zip(found, read, find(queries, count).tolist(), strict=True):
            known = {place for one in hops for place in one}
            hops.append([place for place in row if place not in known][:most - len(known)])
            places += [place for place in row[:context] if place not in places]
    return found
