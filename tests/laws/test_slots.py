"""Rows that come and go in one cache get what each gets alone."""

from __future__ import annotations

import pytest
import torch
from tests.laws.test_cache import DECODERS
from tests.laws.zoo import longest, of_any_place, scrambled, tokens
from tests.tolerances import assert_close
from torch import Tensor

from saucier.errors import InputError
from saucier.generation.slots import Slots, find_obstacle
from saucier.model import Transformer, build_on_meta

ABLE = [name for name, config in DECODERS.items() if find_obstacle(build_on_meta(config)) is None]
UNABLE = [name for name in DECODERS if name not in ABLE]


class Schedule:
    """Rows with texts of their own, of which each is read to its end and then makes room for another."""

    def __init__(self, model: Transformer, *, rows: int, capacity: int) -> None:
        """Begin with free rows."""
        self.slots, self.model = Slots(model, rows=rows, capacity=capacity), model
        self.texts: dict[int, Tensor] = {}
        self.read: dict[int, int] = {}
        self.worst = 0.0

    def admit(self, row: int, text: Tensor, prompt: int) -> None:
        """Read the beginning of a text into a row."""
        self.texts[row], self.read[row] = text, prompt
        self.compare(row, self.slots.admit(row, text[:prompt]))

    def compare(self, row: int, scores: Tensor) -> None:
        """Compare the scores of a row with those of a pass over its text alone."""
        with torch.no_grad():
            want = self.model(self.texts[row][None, :self.read[row]], last_only=True).logits[0, -1]
        assert_close(scores, want, what=f"row {row} after {self.read[row]} tokens")

    def step(self) -> None:
        """Read the next token of every row; a row whose text has ended goes."""
        given = [int(self.texts[row][self.read[row]]) if row in self.texts else 0
                 for row in range(len(self.slots.lengths))]
        scores = self.slots.next(torch.tensor(given))
        for row in list(self.texts):
            self.read[row] += 1
            self.compare(row, scores[row])
            if self.read[row] == len(self.texts[row]):
                self.slots.release(row)
                del self.texts[row]


@pytest.mark.sampled
@pytest.mark.parametrize("name", ABLE)
def test_rows_that_come_and_go_equal_one_pass_over_each(name: str) -> None:
    """Short next to long, long after short, into rows that others left, until the store has gone round."""
    model = scrambled(DECODERS[name])
    full = longest(model.config)
    texts = tokens(model.config, 6, full)
    work = Schedule(model, rows=3, capacity=full)
    work.admit(0, texts[0, :5], 2)
    work.step()
    work.admit(2, texts[1], full - 5)  # longer than what is there: room is made before it
    work.step()
    work.admit(1, texts[2, :full - 1], 1)
    for _ in range(4):
        work.step()
    assert sorted(work.texts) == [1], "the others have ended"
    work.admit(0, texts[3], 3)
    work.admit(2, texts[4], full - 2)
    while work.texts:
        work.step()
    assert work.slots.cache.length == 0
    work.admit(1, texts[5], 4)
    work.step()


def test_every_model_that_takes_padding_before_its_text_is_able_or_says_why() -> None:
    """Learned places, rotations and biases by distance are among those that are able."""
    assert {"gpt2", "llama", "t5_decoder"} <= {name.removeprefix("decoder-") for name in ABLE} | set(ABLE)
    assert set(ABLE) <= set(of_any_place(DECODERS))
    for name in UNABLE:
        with pytest.raises(InputError, match="generate from prompts of one length"):
            Slots(build_on_meta(DECODERS[name]), rows=2, capacity=4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama", "part-alibi-mha", "t5_decoder"])
def test_greedy_tokens_of_a_row_do_not_depend_on_its_neighbours(name: str) -> None:
    """Whoever comes and goes next to it."""
    model = scrambled(DECODERS[name])
    prompts = tokens(model.config, 5, 9)

    def write(neighbours: list[int]) -> list[int]:
        slots = Slots(model, rows=4, capacity=20)
        written = [int(slots.admit(1, prompts[0, :4]).argmax())]
        places = [0, 2, 3]
        for step in range(7):
            if neighbours and step % 2 == 0:
                row = places[step // 2 % 3]
                if slots.lengths[row]:
                    slots.release(row)
                slots.admit(row, prompts[1 + step % 4, :neighbours[step % len(neighbours)]])
            given = torch.full((4,), step)
            given[1] = written[-1]
            written.append(int(slots.next(given)[1].argmax()))
        return written

    alone = write([])
    assert write([1]) == write([9, 2, 5]) == write([3, 8]) == alone


def test_what_does_not_fit_is_refused_by_name() -> None:
    model = scrambled(DECODERS["llama"])
    slots = Slots(model, rows=2, capacity=6)
    ids = tokens(model.config, 1, 7)[0]
    with pytest.raises(InputError, match="capacity"):
        slots.admit(0, ids)
    slots.admit(0, ids[:6])
    for wrong, words in ((lambda: slots.admit(0, ids[:2]), "row 0 is taken"),
                         (lambda: slots.admit(1, ids[:0]), "empty"),
                         (lambda: slots.next(ids[:2]), "release the longest row")):
        with pytest.raises(InputError, match=words):
            wrong()
