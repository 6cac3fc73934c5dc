"""`saucier attention`: patterns and growing costs, from the shell."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.cli.conftest import Saucier

from saucier import attention as saucier_attention


def test_a_recipe_is_drawn(saucier: Saucier) -> None:
    """A title and half as many lines as queries; figures with --json."""
    answer = saucier("attention", "gpt-nano", "--length", "8")
    assert answer.out.splitlines() == ["decoder, layers 0-3: 56.2% of all pairs",
                                       "  █▄", "  ███▄", "  █████▄", "  ███████▄", ""]
    found = json.loads(saucier("attention", "gpt-nano", "model.layers=2", "--length", "3", "--json").out)
    assert found == [{"side": "decoder", "layers": [0, 1], "heads": [0, 1, 2, 3], "share": pytest.approx(2 / 3),
                      "seen": [[0], [0, 1], [0, 1, 2]]}]


def test_a_text_too_short_for_the_pattern(saucier: Saucier, recwarn: pytest.WarningsRecorder) -> None:
    """A line says from where on there is something to see; none where all see all anyway."""
    with pytest.warns(UserWarning, match="the pattern begins beyond 17 tokens: give a longer --length"):
        saucier("attention", "longformer-nano", "--length", "16")
    recwarn.clear()
    saucier("attention", "longformer-nano", "--length", "18")
    saucier("attention", "gpt-nano", "--length", "16")
    assert not recwarn.list


@pytest.mark.slow
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


TEXT = "the cat sat on the mat"


@pytest.mark.slow
def test_a_text_on_a_run(saucier: Saucier, cooked: Path, tmp_path: Path) -> None:
    """Tokens with what they attend to, and heads with what they do; the same numbers from Python."""
    answer = saucier("attention", cooked, "--text", TEXT)
    assert answer.code == 0, answer.err
    assert answer.out.splitlines()[0].split() == ["decoder", "looks", "at"]
    found = json.loads(saucier("attention", cooked, "--text", TEXT, "--head", "1", "--json").out)
    assert [(one["side"], one["layer"], one["heads"]) for one in found["attentions"]] == [("decoder", 0, [1])]
    [one] = found["attentions"]
    assert [sum(row) for row in one["weights"][0]] == pytest.approx([1] * len(one["rows"]), abs=1e-4)
    assert [(role["layer"], role["head"]) for role in found["heads"]] == [(0, 1)]
    python = saucier_attention(cooked, text=TEXT)
    assert python.to_dict()["attentions"][0]["weights"][1] == one["weights"][0]
    assert "srcdoc=" in python._repr_html_()


def test_a_long_text_is_cut_and_counted(saucier: Saucier, cooked: Path) -> None:
    """The line says how many tokens are read."""
    found = json.loads(saucier("attention", cooked, "--text", TEXT * 4, "--length", "5", "--json").out)
    assert len(found["attentions"][0]["rows"]) == 5
    assert found["notes"][0].endswith("tokens, of which 5 are read")


def test_pages_and_pictures_of_a_text(saucier: Saucier, cooked: Path, tmp_path: Path) -> None:
    """A page needs nothing from elsewhere; a picture is one head's."""
    pytest.importorskip("matplotlib")
    answer = saucier("attention", cooked, "--text", "a </script><b>", "--out", tmp_path / "page.html")
    assert answer.out.strip() == f"{tmp_path / 'page.html'}: 1 layers, 2 heads, decoder"
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    assert page.count("</script>") == 2
    assert not re.search(r"""(src|href)\s*=|@import|url\(|fetch\(|https?://(?!www\.w3\.org/2000/svg)""", page)
    picture = saucier("attention", cooked, "--text", TEXT, "--layer", "0", "--head", "1", "--out", tmp_path / "a.svg")
    assert picture.code == 0, picture.err
    assert "layer 0, head 1" in (tmp_path / "a.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(("words", "said"), [
    (("--text", " "), "text: the text is empty; give some text"),
    (("--text", TEXT, "--out", "a.gif"),
     "a.gif: cannot draw a .gif; use .html for a page with all heads, or .svg, .png, .pdf for a picture of one"),
    (("--text", TEXT, "--target", "x"), "target: only an encoder-decoder reads a target; leave it out"),
    (("--text", TEXT, "--second", "x"), "second: a decoder reads one text; put both into one text"),
    (("--text", TEXT, "--layer", "3"), "layer: there is no layer 3; layers are 0 to 0"),
    (("--text", TEXT, "--head", "3"), "head: there is no head 3; heads are 0 to 1"),
    (("--text", TEXT, "--side", "both"), "side: is str 'both'; give 'encoder' or 'decoder' or 'cross'"),
    (("--text", TEXT, "--lengths", "4"), "lengths: is a setting of random weights; leave it out, or leave out text"),
    (("--second", "x"), "second: is a setting of a text; give text too"),
])
def test_what_cannot_be_shown_of_a_text(saucier: Saucier, cooked: Path, words: tuple[str, ...], said: str) -> None:
    """One line, and exit code 2."""
    answer = saucier("attention", cooked, *words)
    assert (answer.code, answer.error.removeprefix("--")) == (2, said)


def test_a_recipe_has_no_weights(saucier: Saucier) -> None:
    """The line says what a text needs."""
    said = saucier("attention", "gpt-nano", "--text", TEXT).error
    assert said.startswith("gpt-nano: a recipe has no trained weights")
