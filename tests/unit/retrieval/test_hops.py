"""Queries derived from what is known, and search in several hops."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saucier.errors import InputError
from saucier.retrieval.collection import Collection, Passage, Question
from saucier.retrieval.hops import (
    QueryWriters,
    common_stretch,
    derive_queries,
    join_context,
    longest_substring,
    merge_overlaps,
    propose_queries,
    search_in_hops,
)
from saucier.retrieval.lexical import build_lexical_index

WORDS = st.lists(st.sampled_from("abcd"), max_size=7)
FILM = Passage("p0", "Kiss and Tell", "Kiss and Tell is a film in which Shirley Temple plays Corliss Archer.")
STAR = Passage("p1", "Shirley Temple", "She served as ambassador, and later as Chief of Protocol.")
OTHERS = tuple(Passage(f"p{number}", "", f"The river number {number} flows past a mill of stone.") for number in
               range(2, 9))
COLLECTION = Collection("films", (FILM, STAR, *OTHERS), (
    Question("q0", "What did the woman do who played Corliss Archer in Kiss and Tell?", {"p0": 1.0, "p1": 1.0},
             ("Chief of Protocol",)),))
INDEX = build_lexical_index([passage.whole for passage in COLLECTION.passages])


def find(queries, count):
    """Search by words."""
    return INDEX.find(queries, count)[1]


def subsequences(words):
    """All subsequences with the places that they are made of."""
    for length in range(1, len(words) + 1):
        for places in combinations(range(len(words)), length):
            yield tuple(words[place] for place in places), places


@settings(max_examples=150, deadline=None)
@given(WORDS, WORDS)
def test_the_stretch_is_the_shortest_that_holds_a_longest_common_subsequence(own, theirs):
    """Against all subsequences of both."""
    known = {words for words, _ in subsequences(theirs)}
    shared = [(len(words), places[0] - places[-1], places) for words, places in subsequences(own) if words in known]
    first, last = common_stretch(own, theirs)
    if not shared:
        assert (first, last) == (0, -1)
    else:
        length, width, _ = max(shared)
        inside = own[first:last + 1]
        assert last - first == -width
        assert any(words in known and len(words) == length for words, _ in subsequences(inside))


@settings(max_examples=150, deadline=None)
@given(WORDS, WORDS)
def test_the_substring_is_a_longest_run_that_both_have(own, theirs):
    """Against all runs of both."""
    runs = {tuple(theirs[a:b]) for a in range(len(theirs)) for b in range(a + 1, len(theirs) + 1)}
    longest = max((b - a for a in range(len(own)) for b in range(a + 1, len(own) + 1) if tuple(own[a:b]) in runs),
                  default=0)
    first, last = longest_substring(own, theirs)
    assert last - first + 1 == longest
    assert not longest or tuple(own[first:last + 1]) in runs


def test_overlaps_near_each_other_are_one():
    """Two words between them are few enough, three are not."""
    own = ["a", "x", "x", "b", "y", "y", "y", "a", "c"]
    assert [*merge_overlaps(own, ["a", "b", "c"])] == [(0, 3), (7, 8)]
    assert [*merge_overlaps(own, ["z"])] == []


def test_a_query_is_copied_from_its_context():
    """Letters, case and punctuation are those of the context, and the place is where it stands."""
    context = join_context("Who played Corliss Archer?", [FILM])
    found = propose_queries(context, STAR)
    assert "Shirley Temple" in found
    assert all(context[start:start + len(piece)] == piece for piece, start in found.items())
    assert propose_queries("nothing of it", Passage("p", "", "...")) == {}


def test_the_hops_lead_from_the_question_to_both_passages():
    """The film is found by the question, the woman by her name, which is told of the film."""
    question = COLLECTION.questions[0].text
    ((row,),) = derive_queries(COLLECTION, find, count=5, context=1)
    assert row.rank == 1 and row.query == "Shirley Temple" and row.context == join_context(question, [FILM])
    assert find([f"{question} Shirley Temple"], 2).tolist() == [[0, 1]]
    line = row.as_paragraph()
    answer = line["qas"][0]["answers"][0]
    assert line["context"][answer["answer_start"]:].startswith(answer["text"])


def test_a_hop_to_which_nothing_leads_ends_the_question():
    """A passage without any word of the context is never found."""
    lost = Collection("lost", (FILM, Passage("p1", "", "zzz")), (
        Question("q0", "Who played Corliss Archer?", {"p0": 1.0, "p1": 1.0}),))
    index = build_lexical_index([passage.whole for passage in lost.passages])
    assert [*derive_queries(lost, lambda queries, count: index.find(queries, count)[1], count=1, context=1)] == [[]]


def test_what_is_missing_is_not_in_the_context_of_its_query():
    """Nor does a piece count that finds it no earlier than the question does."""
    question = Question("q0", "Who is told of in Kiss and Tell, of Shirley Temple?", {"p0": 1.0, "p1": 1.0})
    near = Collection("near", COLLECTION.passages, (question,))
    assert set(find([question.text], 2)[0].tolist()) == {0, 1}
    first = find([question.text], 1)[0, 0]
    for row in next(derive_queries(near, find, count=5, context=2)):
        assert near.passages[1 - first].text not in row.context and row.rank == 1


def test_a_learned_piece_is_asked_for_beside_the_question():
    """A generator without a piece leaves the question as it is."""
    first, second = QueryWriters.learned([lambda questions, contexts: ["Temple", ""]]).write
    assert [*first(["a?", "b?"], ["", ""])] == ["", ""] and [*second(["a?", "b?"], ["", ""])] == ["a? Temple", ""]


def test_each_hop_gives_its_share_without_what_was_found_before():
    """Generators read the question and what was found; without a query the question itself is asked."""
    contexts = []

    def second(questions, given):
        contexts.extend(given)
        return ["Shirley Temple"]

    question = COLLECTION.questions[0].text
    (found,) = search_in_hops([question], COLLECTION.passages, [lambda questions, given: [""], second], find, count=4,
                              context=1)
    plain = find([question], 4)[0].tolist()
    assert found[:2] == plain[:2] and len({*found}) == 4
    assert contexts == [join_context(question, [COLLECTION.passages[plain[0]]])]
    (two,) = search_in_hops([question], COLLECTION.passages, [lambda questions, given: ["Kiss and Tell"], second], find,
                            count=2, context=1)
    assert two == [0, 1]


def test_fewer_passages_than_hops_are_refused():
    """Each hop needs one."""
    with pytest.raises(InputError, match="for 2 hops"):
        search_in_hops(["?"], COLLECTION.passages, [lambda *given: [""]] * 2, find, count=1, context=1)
    assert np.array(find(["Kiss"], 2)).shape == (1, 2)
