"""`saucier attention`: patterns and growing costs, from the shell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Saucier


def test_a_recipe_is_drawn(saucier: Saucier) -> None:
    """A title and half as many lines as queries; figures with --json."""
    answer = saucier("attention", "gpt-nano", "--length", "8")
    assert answer.out.splitlines() == ["decoder, layers 0-3: 56.2% of all pairs",
                                       "  █▄", "  ███▄", "  █████▄", "  ███████▄", ""]
    found = json.loads(saucier("attention", "gpt-nano", "model.layers=2", "--length", "3", "--json").out)
    assert found == [{"side": "decoder", "layers": [0, 1], "heads": [0, 1, 2, 3], "share": pytest.approx(2 / 3),
                      "seen": [[0], [0, 1], [0, 1, 2]]}]


def test_a_text_too_short_for_the_pattern(saucier: Saucier) -> None:
    """A line says from where on there is something to see; none where all see all anyway."""
    told = "the pattern begins beyond 17 tokens: give a longer --length"
    assert saucier("attention", "longformer-nano", "--length", "16").err.strip() == told
    assert saucier("attention", "longformer-nano", "--length", "18").err == ""
    assert saucier("attention", "gpt-nano", "--length", "16").err == ""


def test_pictures(saucier: Saucier, tmp_path: Path) -> None:
    """Patterns and growing costs are drawn into files."""
    pytest.importorskip("matplotlib")
    for name, words in (("pattern.svg", ("--length", "8")), ("growth.svg", ("--lengths", "16,32"))):
        assert saucier("attention", "bert-nano", *words, "--out", tmp_path / name).code == 0
        assert (tmp_path / name).read_text(encoding="utf-8").count("<svg") == 1


def test_a_long_pattern_is_a_small_file(saucier: Saucier, tmp_path: Path) -> None:
    """Squares are pictures in the picture, and no shapes by the million."""
    pytest.importorskip("matplotlib")
    assert saucier("attention", "gpt-nano", "--length", "400", "--out", tmp_path / "long.svg").code == 0
    assert (tmp_path / "long.svg").stat().st_size < 100_000


def test_growing_lengths(saucier: Saucier) -> None:
    """A line for each, and the exponents."""
    found = json.loads(saucier("attention", "bert-nano", "--lengths", "32,16", "--json").out)
    assert [one["length"] for one in found["points"]] == [16, 32]
    assert "grows as" in saucier("attention", "bert-nano", "--lengths", "16,32").out


@pytest.mark.parametrize(("words", "said"), [
    (("bort",), "recipe: no recipe has the name 'bort'; did you mean 'bert'?"),
    (("elmo-nano",), "model: the model has no self-attention; give one that has"),
    (("bert-nano", "--head", "9"), "--head: there is no head 9; layers are 0 to 2, heads 0 to 3"),
    (("longformer-nano", "--length", "8", "--global", "9"),
     "--global: 9 of 8 tokens; give 8 or fewer, or a longer --length"),
    (("prefix-lm-nano", "--length", "8", "--prefix", "9"),
     "--prefix: 9 of 8 tokens; give 8 or fewer, or a longer --length"),
    (("bert-nano", "--lengths", "0,4"), "--lengths: a text has at least one token; give lengths such as 512,1024"),
    (("bert-nano", "--out", "a.gif"), "a.gif: cannot draw a .gif; use .svg, .png, .pdf"),
])
def test_what_cannot_be_drawn(saucier: Saucier, words: tuple[str, ...], said: str) -> None:
    """One line, and exit code 2."""
    answer = saucier("attention", *words)
    assert (answer.code, answer.error.partition(" `saucier")[0].rstrip()) == (2, said)
