"""Search in several hops: each query but the first holds a piece of what was read, and asks for what is still missing.

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
READ = 1
"""Passages of a query from which the next one is written."""
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
    """The piece of the context that, beside the question, finds the missing passage best."""
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
    """Yield for each question what a query generator learns, hop by hop, from the second one on.

    The first hop asks with the question; of the passages that it needs, the nearest counts as found. Of the others the
    one is next that some piece with a name in the context, beside the question, finds best. The context of a hop holds
    the `context` best passages of each query before it (eq 63), without those that are still missing: otherwise their
    own titles would be what asks for them. A hop to which no piece leads ends the question. `count`: passages of a
    query that are looked at.
    """
    for question in collection.questions:
        relevant, read, rows = [collection.places[one] for one in question.relevant], list[int](), list[HopRow]()
        row = find([question.text], count)[0].tolist()
        found = sorted(relevant, key=lambda place: rank_in(row, place))[:1]
        while missing := [place for place in relevant if place not in found]:
            read += [place for place in row if place not in missing and place not in read][:context]
            text = join_context(question.text, [collection.passages[place] for place in read])
            pieces = {piece for place in missing for piece in propose_queries(text, collection.passages[place])
                      if piece in text[len(question.text):] and any(map(str.isupper, piece))}
            best = choose_query(question.text, sorted(pieces), found, missing, find, count)
            if best is None:
                break
            piece, target, rank, row = best
            rows.append(HopRow(question.id, question.text, text, piece, text.index(piece, len(question.text)), rank))
            found.append(target)
        yield rows


def rank_in(row: Sequence[int], place: int) -> int:
    """Return the rank of a passage among those found, from 1; one more than there are for one that is not."""
    return row.index(place) + 1 if place in row else len(row) + 1


def choose_query(question: str, pieces: Sequence[str], found: Sequence[int], missing: Sequence[int], find: Find,
                 count: int) -> tuple[str, int, int, list[int]] | None:
    """Return the piece that beside the question finds a missing passage best, that passage, its rank, and all of them.

    Ranks are those among passages that were not found before. Among equal ones it is the shorter piece. None where no
    piece finds one among its `count` best, first or earlier than the question does.
    """
    queries = [question, *(f"{question} {piece}" for piece in pieces)]
    plain, *rows = ([place for place in row if place not in found] for row in find(queries, count).tolist())
    options = [(rank_in(row, target), len(piece), piece, target, row) for piece, row in zip(pieces, rows, strict=True)
               for target in missing if target in row]
    better = [one for one in options if one[0] == 1 or one[0] < rank_in(plain, one[3])]
    if not better:
        return None
    rank, _, piece, target, row = min(better)
    return piece, target, rank, row


def ask_unchanged(questions: Sequence[str], contexts: Sequence[str]) -> list[str]:
    """Write no query: the question is asked as it is."""
    return [""] * len(questions)


def prepend_question(write: Write) -> Write:
    """Return a query generator whose queries are the question and the piece that another one writes; "" without one.

    Eq 62 asks with the piece alone, which found both passages of HotpotQA's questions less often than the question.
    """
    return lambda questions, contexts: [f"{question} {piece}" if piece else "" for question, piece in zip(
        questions, write(questions, contexts), strict=True)]


@dataclass(frozen=True, slots=True)
class QueryWriters:
    """What writes the query of each hop, the first one's too, and how many passages of a query it reads."""

    write: tuple[Write, ...]
    context: int = READ

    @classmethod
    def plain(cls, hops: int) -> QueryWriters:
        """Ask with the question, and then with the names in the first passage that was found too."""
        return cls((add_names,) * hops)

    @classmethod
    def learned(cls, writers: Sequence[Write]) -> QueryWriters:
        """Ask with the question, and then with what each generator takes from the first passage that was found too."""
        return cls((ask_unchanged, *map(prepend_question, writers)))


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
