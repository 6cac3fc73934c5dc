"""What a run says: the name of a stage once, everything else beside it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console as Screen

from saucier.jobs.pretraining.held_out import describe_measurements
from saucier.jobs.run.console import Console
from saucier.report.results import HeldOut, Score
from saucier.tasks.language_baselines import Baseline


def spoken(width: int = 60) -> tuple[Console, io.StringIO]:
    """Return a voice, and where it speaks to."""
    heard = io.StringIO()
    return Console(screen=Screen(file=heard, width=width, highlight=False)), heard


def test_a_stage_is_named_once_and_timed() -> None:
    times: dict[str, float] = {}
    console, heard = spoken()
    console.on_stage_end = times.__setitem__
    with console.stage("read"):
        console.say("one")
        console.say("two")
    assert heard.getvalue() == "read        one\n            two\n"
    assert times["read"] >= 0


def test_quotes_stay_behind_their_bar() -> None:
    console, heard = spoken(width=40)
    console.quote("words and more words in a much longer line\n\nnext")
    assert all(line.startswith(" " * 12 + "│") and len(line) <= 40 for line in heard.getvalue().splitlines())
    assert heard.getvalue().count("│") == 4


def test_markup_in_a_text_is_text() -> None:
    console, heard = spoken()
    console.quote("[bold]x[/bold] :smile:")
    assert "[bold]x[/bold] :smile:" in heard.getvalue()


def test_the_other_processes_are_silent() -> None:
    heard = io.StringIO()
    Console(silent=True, screen=Screen(file=heard)).say("x")
    assert heard.getvalue() == ""


@pytest.mark.parametrize(("own", "words"),
                         [(1.5, "better than all of them"), (2.0, "not yet better than xz -9"),
                          (9.0, "not yet better than unigram and xz -9")])
def test_the_verdict_names_what_was_not_beaten(own: float, words: str) -> None:
    baselines = (Baseline(name="unigram", bits_per_byte=3.0), Baseline(name="xz -9", bits_per_byte=2.0))
    held_out = HeldOut(loss=1.0, tokens=10, bytes=20, bits_per_byte=own, accuracy=0.25)
    said = list(describe_measurements(held_out, baselines, (Score(name="BLEU", value=33.333),)))
    assert said[0] == f"{own:.3f} bits per byte   (unigram 3.000, xz -9 2.000)"
    assert said[1] == words
    assert "perplexity 2.72, 25.0% of the tokens right" in said[2]
    assert said[3] == "BLEU 33.33"
