"""One summary for all: it is the training summary that the reference way of counting puts nearest to all others."""

from __future__ import annotations

from dataclasses import dataclass

from saucier.tasks.build import build_task
from saucier.tasks.metrics.rouge import rouge_n
from saucier.tasks.simple_baselines import SUMMARIES, one_for_all
from saucier.tasks.written.definitions import Summarization

TASK = build_task(Summarization())


@dataclass(frozen=True)
class Summarized:
    """What the method looks at."""

    references: tuple[str, ...]


WRITTEN = ("A man was seen in the town.", "A man in the town has been seen by the police.", "Sheep.",
           "The police have found a man.", "Rain is expected in the north, and wind, and snow, and hail.")


def test_it_is_the_summary_that_is_nearest_to_all_others() -> None:
    by_scores = max(WRITTEN, key=lambda one: sum(rouge_n(one, other, 1).f1 for other in WRITTEN))
    train = [Summarized((text, "a second reference, which is not looked at")) for text in WRITTEN]
    found = one_for_all(TASK, train, [Summarized(())] * 3)
    assert found.predictions == [by_scores] * 3
    assert by_scores == WRITTEN[0]


def test_later_summaries_are_not_compared_and_empty_ones_do_no_harm() -> None:
    first = [Summarized(("...",)), *[Summarized((WRITTEN[2],))] * (SUMMARIES - 1)]
    later = [Summarized((WRITTEN[0],))] * SUMMARIES
    assert one_for_all(TASK, first + later, [Summarized(())]).predictions == [WRITTEN[2]]
