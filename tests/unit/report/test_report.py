"""The report of a run: what it says, that it needs nothing from elsewhere, and that no text can break out of it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from saucier.cost.planning import Plan
from saucier.errors import InputError
from saucier.recipes import recipe
from saucier.report.page import REPORT_FILE, Bar, environment, render_page
from saucier.report.results import (
    DataCounts,
    HeldOut,
    Results,
    RunCost,
    Sample,
    Score,
    TextCounts,
    read_metrics,
    read_results,
)
from saucier.report.run_page import verdict, write_report
from saucier.table import Table
from saucier.tasks.language_baselines import Baseline

EVIL = "<script>alert('&')</script>"
RESULTS = Results(
    step=900, steps=1000, checkpoint="checkpoints/step-900", vocab=2048,
    held_out=HeldOut(loss=3.4, tokens=38951, bytes=121138, bits_per_byte=1.7394, accuracy=0.412),
    data=DataCounts(source=f"files {EVIL}", train=TextCounts(documents=684, tokens=685614, bytes=2122610),
                    held_out=TextCounts(documents=36, tokens=38951, bytes=121138),
                    dropped={"duplicate documents": 412, "empty": 0}, truncated_rows=7, truncated_tokens=1234),
    cost=RunCost(seconds=220, phases={"read": 20, "train": 200}, training_flops=4e13, peak_memory=812_000_000,
                 tokens_per_second=21_230),
    baselines=(Baseline(name="unigram", bits_per_byte=2.947),
               Baseline(name="5-gram", bits_per_byte=1.869, about=EVIL)),
    samples=(Sample(prompt=f"given {EVIL}", text=f"written {EVIL}", source="topic assert"),))
PLAN = Plan(recipe="gpt-nano", parameters=2_200_000, steps=1000, tokens=2_048_000, targets=2_048_000,
            flops=4.4e13, dtype="float32", memory={}, peak_memory=700_000_000, seconds=160, step_seconds=0.15,
            notes=("rows are full",))
METRICS = [{"step": 1, "loss": 7.6, "rate": 1e-4}, {"step": 500, "loss": 4.0, "rate": 3e-3},
           {"step": 500, "evaluation": {"loss": 4.1}}, {"step": 1000, "evaluation": {"loss": 3.4}},
           {"step": 1000, "loss": 3.3, "rate": 3e-4}]


class Elements(HTMLParser):
    """Checks that elements close in order, and keeps what could load something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.addresses: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data if not self.open or self.open[-1] != "style" else ""


def make_run(folder: Path, results: Results | None = RESULTS, files: Sequence[str] = ()) -> Path:
    """Write a run folder as the cook leaves it."""
    import yaml

    found = recipe("gpt-nano", ["claims.bits_per_byte=1.95", f"data.files={json.dumps([*files])}"])
    (folder / "recipe.yaml").write_text(yaml.safe_dump(found.as_dict(), sort_keys=False), encoding="utf-8")
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in METRICS), encoding="utf-8")
    (folder / "passport.json").write_text(json.dumps({
        "code": {"version": EVIL}, "seeds": {"training": 0}, "seconds": {"train": 1.5}, "files": [1, 2], "gone": None}))
    (folder / "samples.txt").write_text(f"plain {EVIL}", encoding="utf-8")
    if results is not None:
        results.write(folder)
        PLAN.write(folder)
    return folder


def parsed(path: Path) -> Elements:
    """Read a page."""
    page = Elements()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    assert page.open == []
    return page


def test_the_page_says_what_was_measured(tmp_path: Path) -> None:
    path = write_report(make_run(tmp_path))
    assert path == tmp_path / REPORT_FILE
    text = re.sub(r"\s+", " ", parsed(path).text)
    for fact in ("1.74", "bits per byte", "2.95", "1.87", "It beats both baselines", "at most 1.95", ": reached",
                 "684", "685,614", "2.12 MB", "412 duplicate documents", "7 rows", "1,234 tokens",  # data
                 "2 min 40 s", "3 min 20 s", "+25%", "+16%", "rows are full",  # plan against measured
                 "200 GFLOP/s", "812 MB", "3.400", "30.0", "41.2%", "1,000 steps",  # cost, quality
                 "qkv", "192 → 576", "3.400, after step 1,000", "held-out", "learning rate"):
        assert fact in text, fact
    assert " empty" not in text
    assert text.index("gpt-nano") < text.index("bits per byte") < text.index("Samples") < text.index("Passport")


def test_the_page_loads_nothing_and_no_text_becomes_markup(tmp_path: Path) -> None:
    page = parsed(write_report(make_run(tmp_path)))
    assert page.names.count("script") == 0
    assert all(address.startswith("#") for address in page.addresses)
    assert page.text.count(EVIL) == 5  # source, baseline, prompt, sample, passport
    assert "default-src 'none'" in (tmp_path / REPORT_FILE).read_text(encoding="utf-8")
    assert not re.search(r"url\((?!#)|@import", (tmp_path / REPORT_FILE).read_text(encoding="utf-8"))


def test_the_curves_take_the_colours_of_the_page(tmp_path: Path) -> None:
    page = write_report(make_run(tmp_path)).read_text(encoding="utf-8")
    svg = page[page.index("<svg"):page.index("</svg>")]
    assert "#0102" not in svg
    assert "var(--accent)" in svg
    assert "var(--second)" in svg


def test_the_same_run_gives_the_same_page(tmp_path: Path) -> None:
    first = write_report(make_run(tmp_path)).read_text(encoding="utf-8")
    assert write_report(tmp_path).read_text(encoding="utf-8") == first


def test_a_run_that_is_not_evaluated_has_a_page_too(tmp_path: Path) -> None:
    (make_run(tmp_path, results=None) / "metrics.jsonl").unlink()
    text = parsed(write_report(tmp_path)).text
    assert "has not been evaluated" in text
    assert f"plain {EVIL}" in text
    assert "Anatomy" in text


def test_without_likelihood_a_score_leads_and_without_scores_the_perplexity(tmp_path: Path) -> None:
    held_out = HeldOut(loss=1.0, tokens=10, bytes=20)
    score = Score(name="BLEU", value=33.21, note="beam 4")
    scored = RESULTS.model_copy(update={"held_out": held_out, "scores": (score,), "baselines": ()})
    page = write_report(make_run(tmp_path, scored)).read_text(encoding="utf-8")
    assert '<div class="value">33.2</div><div class="unit">BLEU</div>' in page
    bare = scored.model_copy(update={"scores": ()})
    page = write_report(make_run(tmp_path, bare)).read_text(encoding="utf-8")
    assert '<div class="value">2.7</div><div class="unit">perplexity' in page


def test_without_matplotlib_the_page_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = parsed(write_report(make_run(tmp_path)))
    assert "pip install 'saucier[report]'" in page.text
    assert "svg" not in page.names


def test_verdicts_are_honest() -> None:
    low, high = Baseline(name="5-gram", bits_per_byte=1.5), Baseline(name="unigram", bits_per_byte=3.0)
    assert "does not beat 5-gram." in verdict(2.0, (low, high), 1.95)
    assert "not reached" in verdict(2.0, (low, high), 1.95)
    assert "at most 1.95 (the upright mark): reached" in verdict(1.95, (low, high), 1.95)
    assert "beats" not in verdict(2.0, (), None)
    assert "does not beat 5-gram." in verdict(1.5, (low,), None), "a tie is no win"


def test_wrong_folders_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a run folder"):
        write_report(tmp_path)
    make_run(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"st\n{"step": 2}\n')
    with pytest.raises(InputError, match=r"metrics.jsonl:2: not JSON"):
        write_report(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"st')
    assert read_metrics(tmp_path / "metrics.jsonl") == ({"step": 1},)
    (tmp_path / "evaluation.json").write_text('{"step": "one"}')
    with pytest.raises(InputError, match=r"evaluation.json: step: .*; evaluate the run again"):
        read_results(tmp_path)


def test_results_come_back_as_they_were_written(tmp_path: Path) -> None:
    RESULTS.write(tmp_path)
    assert read_results(tmp_path) == RESULTS


def test_html_is_escaped_once() -> None:
    """In text, in attributes and in cells; finished pieces are not escaped again."""
    parts = environment().get_template("parts.html").module
    assert "<dt>a &lt; b</dt><dd><span>&#39;&amp;</span></dd>" in parts.record({"a < b": "'&"})
    assert '<div class="scroll">' in environment().from_string("{{ made }}").render(made=parts.table(Table([], [])))
    assert 'aria-label="x&#34;y:' in parts.bars([Bar("b", 1.0)], 'x"y')
    made = parts.table(Table(["<"], [["&"], [Markup("<b>&amp;</b>")]], numbers=[0]))
    assert '<td class="number">&amp;</td>' in made
    assert '<td class="number"><b>&amp;</b></td>' in made


def test_values_are_shown_by_their_kind() -> None:
    """Numbers with their thousands, nothing as a word, one thing within another."""
    show = environment().get_template("parts.html").module.show
    shown = {None: "none", True: "yes", 12345: "12,345", 10**15: str(10**15), 0.25: "0.25", "text": "text"}
    assert [re.sub("<.*?>", "", show(value)) for value in shown] == [*shown.values()]
    assert show([]) == show({}) == show(None) == '<span class="soft">none</span>'
    assert show(["a", 1]) == "<span>a, 1</span>"
    assert show([{"a_b": 1}, "c"]) == '<dl class="record"><dt>a b</dt><dd><span>1</span></dd></dl><span>c</span>'
    assert show([["a"], ()]) == '<span>a</span><span class="soft">none</span>'


def test_a_name_that_a_page_is_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="title"):
        render_page("scaling.html")


def test_another_text_than_the_recipe_tells_of_has_no_claim(tmp_path: Path) -> None:
    """`cook gpt-nano --data romeo.txt` is no run on Python's documentation, of which the recipe claims a figure."""
    write_report(make_run(tmp_path, files=("romeo.txt",)))
    text = re.sub(r"\s+", " ", parsed(tmp_path / REPORT_FILE).text)
    assert "The recipe gpt-nano, on other text: romeo.txt" in text
    assert "claims at most" not in text
    assert "to write Python" not in text[:text.index("bits per byte")]  # the recipe itself is shown further down


def test_bars_go_to_the_best_possible_score() -> None:
    parts = environment().get_template("parts.html").module
    half = [Bar("this model", 0.5, ours=True)]
    assert "width:50.00%" in parts.bars(half, "accuracy", full=1.0)
    assert "width:100.00%" in parts.bars(half, "bits per byte")
