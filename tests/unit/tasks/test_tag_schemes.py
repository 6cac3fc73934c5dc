"""Schemes of tags: told apart, rewritten without loss, repaired where they are ill-formed."""

from __future__ import annotations

import random

import pytest

from saucier.tasks.definitions import BIOES, IOB2, AsWritten
from saucier.tasks.tag_schemes import (
    WRITERS,
    Entity,
    all_tags,
    detect_scheme,
    read_lenient,
    rewrite_tags,
    scheme_remarks,
)


def drawn(seed: int) -> tuple[list[Entity], int]:
    draw, found, place = random.Random(seed), [], 0
    for _ in range(5):
        place += draw.choice((0, 0, 1, 2))
        size = draw.randint(1, 3)
        found.append(Entity(draw.choice(("PER", "LOC")), place, place + size - 1))
        place += size
    return found, place + draw.randint(0, 2)


@pytest.mark.parametrize("name", sorted(WRITERS))
@pytest.mark.parametrize("seed", range(20))
def test_what_is_written_is_read_again(name: str, seed: int) -> None:
    entities, length = drawn(seed)
    tags = WRITERS[name](entities, length)
    assert read_lenient(tags) == entities
    assert len(tags) == length


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_a_file_tells_its_scheme(name: str) -> None:
    assert detect_scheme([WRITERS[name](*drawn(seed)) for seed in range(20)]) == (name, 0)


def test_every_scheme_is_rewritten_in_the_one_that_is_wanted() -> None:
    entities, length = drawn(3)
    for writer in WRITERS.values():
        tags = writer(entities, length)
        assert rewrite_tags(tags, IOB2()) == WRITERS["IOB2"](entities, length)
        assert rewrite_tags(tags, BIOES()) == WRITERS["BIOES"](entities, length)
        assert rewrite_tags(tags, AsWritten()) == tags


def test_ill_formed_tags_are_repaired_and_counted() -> None:
    good = [("B-PER", "I-PER", "O"), ("B-LOC", "O"), ("B-PER", "B-PER")]
    bad = ("O", "I-PER", "I-PER", "I-LOC")
    assert rewrite_tags(bad, IOB2()) == ("O", "B-PER", "I-PER", "B-LOC")
    assert scheme_remarks([*good, bad], IOB2()) == {"tags are not legal in IOB2: repaired": 2}
    assert scheme_remarks([("I-PER", "I-PER"), ("O", "I-LOC")], IOB2()) == {
        "sentences are tagged in IOB1: rewritten in IOB2": 2}
    assert scheme_remarks([*good, bad], AsWritten()) == {"tags are not legal in IOB2 and stay as they are": 2}


def test_a_small_file_still_gives_every_tag_of_its_types() -> None:
    assert all_tags(["O", "B-PER", "B-LOC"], IOB2()) == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    assert len(all_tags(["O", "B-PER", "B-LOC"], BIOES())) == 9
