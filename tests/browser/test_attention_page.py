"""The page of `saucier attention --text`, in Chromium without a network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.laws.zoo import scrambled

from saucier.families import FAMILIES
from saucier.lens.attention_weights import AttendedText, TextAttention, Tokens, find_attention
from saucier.lens.head_roles import describe_heads
from saucier.report.attention_page import render_attention

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install -e '.[browser]'")
NAMES = os.environ.get("SAUCIER_CHROMIUM"), "chromium", "chromium-browser", "google-chrome"
CHROMIUM = next((found for name in NAMES if name and (found := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")


def name(count: int, *, second: int = 0) -> Tokens:
    """Return tokens with names that need escaping, the last ones of a second text."""
    names = ("[CLS]", "<b>", "</script>", *(f"t{place}" for place in range(3, count)))[:count]
    return Tokens(names, tuple(range(5, 5 + count)), (True,) + (False,) * (count - 1),
                  (0,) * (count - second) + (1,) * second)


@dataclass
class Opened:
    """A page, and what it complained about or asked for."""

    page: Any
    found: TextAttention
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def lines(self) -> set[tuple[str, str, str]]:
        """Return head, query and key of every line that is drawn."""
        return {tuple(one) for one in self.page.eval_on_selector_all(
            "#lines line", "all => all.map(one => [one.dataset.head, one.dataset.q, one.dataset.k])")}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return Chromium."""
    with playwright.sync_playwright() as made:
        started = made.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


def open_page(browser: Any, folder: Path, config: Any, text: AttendedText, *, width: int = 1280) -> Opened:
    """Write the page of a model with random weights, and open it."""
    found = find_attention(scrambled(config, seed=3), text)
    roles = [role for one in found.attentions for role in describe_heads(one)]
    path = folder / "page.html"
    path.write_text(render_attention("a model", found.attentions, roles, []), encoding="utf-8")
    page = browser.new_context(offline=True, viewport={"width": width, "height": 800}).new_page()
    opened = Opened(page, found)
    page.on("console", lambda message: opened.complaints.append(message.text))
    page.on("pageerror", lambda error: opened.complaints.append(str(error)))
    page.on("request", lambda request: opened.requests.append(request.url))
    page.goto(path.as_uri())
    return opened


@pytest.fixture
def encoder(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    """Return the page of a small BERT that has read two texts."""
    config = FAMILIES["bert"](dim=24, layers=2, heads=3, hidden=32, vocab=60, length=32)
    opened = open_page(browser, tmp_path, config, AttendedText(name(9, second=4)))
    yield opened
    assert opened.complaints == []
    assert [one for one in opened.requests if not one.startswith("file://")] == []
    opened.page.context.close()


def test_lines_are_the_weights(encoder: Opened) -> None:
    """Every weight of 5 % has a line, and no other; tokens stay text."""
    weights = encoder.found.attentions[0].weights
    expected = {tuple(map(str, place)) for place in np.argwhere(weights >= 0.05)}
    assert encoder.lines() == expected
    assert encoder.page.locator("#rows li").nth(2).inner_text() == "</script>"


def test_layers_and_heads_change_what_is_drawn(encoder: Opened) -> None:
    """The layer is chosen, a head is switched off, and one is shown alone."""
    first = encoder.lines()
    encoder.page.select_option("#layer", "1")
    second = encoder.lines()
    assert second != first
    assert second == {tuple(map(str, place)) for place in np.argwhere(encoder.found.attentions[1].weights >= 0.05)}
    encoder.page.locator("#chips .head").nth(1).click()
    assert encoder.lines() == {one for one in second if one[0] != "1"}
    encoder.page.locator("#chips .head").nth(2).click(modifiers=["Shift"])
    assert encoder.lines() == {one for one in second if one[0] == "2"}
    encoder.page.get_by_text("none", exact=True).click()
    assert encoder.lines() == set()


def test_a_token_shows_what_it_attends_to(encoder: Opened) -> None:
    """By the mouse and by the keyboard; the words name the strongest, and Escape brings all lines back."""
    every = encoder.lines()
    encoder.page.locator("#rows li").nth(3).hover()
    assert {one[1] for one in encoder.lines()} == {"3"}
    mean = encoder.found.attentions[0].weights.mean(0)[3]
    best = encoder.found.attentions[0].columns.names[int(mean.argmax())]
    assert encoder.page.inner_text("#said").startswith(f"t3 attends to: {best} {100 * mean.max():.0f} %")
    encoder.page.locator("#rows li").first.focus()
    encoder.page.keyboard.press("ArrowDown")
    assert {one[1] for one in encoder.lines()} == {"1"}
    encoder.page.keyboard.press("ArrowRight")
    assert {one[2] for one in encoder.lines()} == {"1"}
    encoder.page.keyboard.press("Escape")
    assert encoder.lines() == every


def test_pairs_of_texts(encoder: Opened) -> None:
    """Of two texts one direction is drawn alone."""
    encoder.page.select_option("#pairs", "01")
    assert {(int(one[1]) < 5, int(one[2]) >= 5) for one in encoder.lines()} == {(True, True)}


def test_the_model_view_has_a_map_for_every_head(encoder: Opened) -> None:
    """A map is opened in the other views."""
    encoder.page.click("#tab-model")
    assert encoder.page.locator("#grid canvas").count() == 2 * 3
    encoder.page.locator('#grid [data-layer="1"][data-head="2"]').click()
    assert encoder.page.inner_text("#map-title").startswith("encoder, layer 1, head 2: ")
    encoder.page.click("#to-heads")
    assert encoder.page.input_value("#layer") == "1"
    assert {one[0] for one in encoder.lines()} == {"2"}


def read_neurons(page: Any) -> list[list[str]]:
    """Return the numbers of the neuron view: q · k, scaled, position and softmax of each key."""
    found: list[list[str]] = page.eval_on_selector_all(
        "#neurons tbody tr", "all => all.map(row => [...row.cells].slice(3).map(cell => cell.textContent))")
    return found


def test_the_neuron_view_multiplies_queries_and_keys(encoder: Opened) -> None:
    """q · k is what the model computed, and its softmax is the weight."""
    encoder.page.click("#tab-neuron")
    for choice, value in (("#layer", "1"), ("#head", "2"), ("#token", "4")):
        encoder.page.select_option(choice, value)
    one = encoder.found.attentions[1]
    assert one.softmax is not None
    dots = one.softmax.keys[2] @ one.softmax.queries[2, 4]
    shown = read_neurons(encoder.page)
    assert [float(row[0]) for row in shown] == pytest.approx(dots, abs=0.006)
    assert [float(row[1]) for row in shown] == pytest.approx(dots * one.softmax.scale, abs=0.006)
    assert [float(row[-1].removesuffix(" %")) / 100 for row in shown] == pytest.approx(one.weights[2, 4], abs=0.006)


def test_an_encoder_decoder(browser: Any, tmp_path: Path) -> None:
    """Three kinds of attention; keys that are not seen and what positions add are shown."""
    config = FAMILIES["t5"](dim=16, layers=1, heads=2, head_dim=8, hidden=32, vocab=60)
    opened = open_page(browser, tmp_path, config, AttendedText(name(7), name(4)))
    options = opened.page.eval_on_selector_all("#side option", "all => all.map(one => one.value)")
    assert options == ["encoder", "decoder", "cross"]
    opened.page.select_option("#side", "cross")
    assert [opened.page.locator(f"#{side} li").count() for side in ("rows", "columns")] == [4, 7]
    opened.page.select_option("#side", "decoder")
    opened.page.click("#tab-neuron")
    opened.page.select_option("#token", "1")
    shown = read_neurons(opened.page)
    assert [row[-1] == "not seen" for row in shown] == [False, False, True, True]
    total = [float(row[1]) + float(row[2]) for row in shown[:2]]
    assert np.exp(total) / np.exp(total).sum() == pytest.approx(opened.found.attentions[1].weights[0, 1, :2], abs=0.01)
    assert opened.complaints == []
    opened.page.context.close()


@pytest.mark.slow
def test_a_narrow_screen(browser: Any, tmp_path: Path) -> None:
    """Nothing is wider than the window."""
    config = FAMILIES["gpt2"](dim=16, layers=2, heads=2, vocab=60, length=32)
    opened = open_page(browser, tmp_path, config, AttendedText(name(12)), width=390)
    for view in ("heads", "model", "neuron"):
        opened.page.click(f"#tab-{view}")
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert opened.complaints == []
    opened.page.context.close()
