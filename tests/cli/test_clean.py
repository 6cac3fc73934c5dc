"""`saucier clean`: a crawl of known counts, stopping and going on, what is refused, and several workers."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Saucier

from saucier.jobs.cleaning import clean as job
from saucier.jobs.cleaning.clean import cleaning, rules_to_yaml
from saucier.text.cleaning import pieces as piece_module
from saucier.text.config import TextData
from saucier.text.reading.documents import read_documents

GOOD = ("The cook number {0} stirs the sauce of day {0} in a large pot. He tastes it {0} times with a long spoon. "
        "It needs a little more salt, and the guests of table {0} have to wait.")
CRAWL = [
    *(f"Home | About\n{GOOD.format(number)}\nPlease enable javascript to read on." for number in range(10)),
    f"{GOOD.format(3)}\nBy reading on you agree that we use cookies.",
    "Lorem ipsum dolor sit amet, consectetur adipiscing elit.",
    "function stir() { return sauce; } is what this page is about today.",
    "This page has one sentence only.",
    "Menu\nContact\nLogin",
    f"This page begins alone. The first words are its own. {GOOD.format(5)} So are the last ones here.",
    GOOD.format(77).replace("sauce", "soup[1]"),
]
COUNTS = {"terminal_punctuation": (1, 13), "javascript": (0, 10), "policies": (0, 1), "lorem_ipsum": (1, 0),
          "curly_brackets": (1, 0), "few_sentences": (1, 0), "repeated_spans": (1, 0)}
"""Documents dropped and lines removed by each rule of C4 in this crawl."""


@pytest.fixture
def crawl(tmp_path: Path) -> Path:
    """Return two files with the crawl in them, one compressed, as a pattern."""
    for name, pages in (("a.jsonl", CRAWL[:8]), ("b.jsonl", CRAWL[8:])):
        lines = "".join(json.dumps({"url": f"page-{number}", "text": text}) + "\n" for number, text in enumerate(pages))
        (tmp_path / name).write_text(lines)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress((tmp_path / "b.jsonl").read_bytes()))
    (tmp_path / "b.jsonl").unlink()
    return tmp_path / "*.jsonl*"


def files(out: Path) -> dict[str, bytes]:
    """Return all files of a corpus but those that tell the time."""
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*"))
            if path.is_file() and not path.name.startswith("report")}


def test_every_rule_takes_what_is_known_of_the_crawl(saucier: Saucier, crawl: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    answer = saucier("clean", crawl, "--rules", "c4", "--out", out, "--json")
    assert answer.code == 0
    found = json.loads(answer.out)["tally"]
    taken = {kind: (tally["documents"], tally["lines"]) for kind, tally in found["rules"].items()}
    assert {kind: counts for kind, counts in taken.items() if counts != (0, 0)} == COUNTS
    assert found["rules"]["citations"]["changed"] == 1
    assert found["rules"]["repeated_spans"]["sentences"] == 6
    assert (found["before"]["documents"], found["after"]["documents"], found["emptied"]) == (17, 12, 1)
    texts = [document.text for document in read_documents([str(out / "*.jsonl")])]
    assert sorted(texts)[:1] == [GOOD.format(0)] and len(texts) == 12
    assert found["after"]["bytes"] == sum(len(text.encode()) for text in texts)
    assert "This page begins alone. The first words are its own. So are the last ones here." in texts


def test_the_report_shows_counts_and_examples(saucier: Saucier, crawl: Path, tmp_path: Path) -> None:
    answer = saucier("clean", crawl, "--rules", "c4", "--out", tmp_path / "out")
    page = (tmp_path / "out/report.html").read_text()
    assert "17 documents in, 12 out" in page and "Please enable javascript to read on." in page
    assert "<script" not in page and "http" not in page.replace("http-equiv", "")
    assert [line.split()[0] for line in answer.out.splitlines() if " 13" in line] == ["terminal_punctuation"]


def test_a_dropped_document_is_looked_up(saucier: Saucier, crawl: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert saucier("clean", crawl, "--rules", "c4", "--out", out, "--keep-rejected").code == 0
    shown = saucier("clean", "--why", 12, "--out", out).out
    assert "dropped by lorem_ipsum: holds 'lorem ipsum', line 1 of it" in shown and CRAWL[11] in shown
    place = f"{crawl.parent}/b.jsonl.gz:4"
    assert json.loads(saucier("clean", "--why", place, "--out", out, "--json").out)["document"] == 12
    kept = (out / "rejected/documents.jsonl").read_text()
    for damage in ("[" * 99_999, "7", "[]", "{}", kept[:9]):
        (out / "rejected/documents.jsonl").write_text(damage + "\n" + kept)
        assert "documents.jsonl:1: was changed; clean again" in saucier("clean", "--why", 12, "--out", out).error
    (out / "rejected/documents.jsonl").write_text(kept)
    assert "no document 1 was dropped" in saucier("clean", "--why", 1, "--out", out).error


def test_the_rules_beside_a_corpus_give_it_again(saucier: Saucier, crawl: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert saucier("clean", crawl, "--rules", "c4", "short_lines.words=2", "policies=off", "--out", one).code == 0
    assert saucier("clean", crawl, "--rules", one / "rules.yaml", "--out", two).code == 0
    assert files(one) == files(two)
    assert "words: 2" in saucier("clean", "--print-rules", "short_lines.words=2").out


def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(saucier: Saucier, crawl: Path, tmp_path: Path,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    whole, out = tmp_path / "whole", tmp_path / "out"
    assert saucier("clean", crawl, "--out", whole).code == 0
    with monkeypatch.context() as patch:
        def killed(order: piece_module.Order) -> None:
            if order.target.name.endswith("1"):
                raise KeyboardInterrupt
            piece_module.clean_piece(order)

        patch.setattr(job, "clean_piece", killed)
        assert saucier("clean", crawl, "--out", out).code == 130
    assert not (out / "report.json").exists()
    refused = saucier("clean", crawl, "--rules", "c4", "--out", out)
    assert (refused.code, "with other rules" in refused.error) == (2, True)
    answer = saucier("clean", crawl, "--out", out)
    assert "going on    1 of 2 files were cleaned before" in answer.err
    assert files(out) == files(whole)
    assert not (out / ".work").exists()


def test_what_is_there_is_never_overwritten(saucier: Saucier, crawl: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert saucier("clean", crawl, "--rules", "c4", "--out", out).code == 0
    before = files(out)
    assert "holds a finished corpus" in saucier("clean", crawl, "--out", out).error
    assert files(out) == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("dear")
    assert "is not empty" in saucier("clean", crawl, "--out", tmp_path / "mine").error


def test_nothing_left_names_the_rule_that_took_most(saucier: Saucier, tmp_path: Path) -> None:
    raw = tmp_path / "raw.txt"
    raw.write_text("Menu\nContact\nThis line is one sentence.\n")
    answer = saucier("clean", raw, "--document", "line", "--rules", "c4", "--out", tmp_path / "out")
    assert answer.code == 2
    assert answer.error.startswith("no document is left: the rule terminal_punctuation took 2 of 3, such as")
    assert "terminal_punctuation=off" in answer.error
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "what"), [
    ([], "no raw text is named"),
    (["missing.jsonl"], "no such file"),
    (["{raw}", "--rule", "c4"], "there is no option --rule"),
    (["{raw}", "--rules", "gophr"], "no set of rules has the name 'gophr'; did you mean 'gopher'?"),
    (["{raw}", "short_lines.word=3"], "unknown key; did you mean 'words'?"),
    (["{raw}", "short_lines=3"], "write short_lines.key=value, or short_lines=off"),
    (["{raw}", "short_line.words=3"], "unknown key"),
    (["{raw}", "few_sentences.sentences=0"], "should be greater than or equal to 1"),
    (["{raw}", "--column", "txt"], "no column 'txt'"),
    (["{raw}", "--bad-words", "nowhere.txt"], "no such file"),
    (["{raw}", "--against", "{short}"], "no line or cell has the 8 words"),
    (["{table}"], "which column holds the text? There are a, b; say which, for example --column b"),
    (["{table}", "--column", "b", "--language", "xx"], "no language has the code 'xx'"),
])
def test_what_is_wrong_is_said_before_any_work(saucier: Saucier, tmp_path: Path, arguments: list[str],
                                               what: str) -> None:
    names = {name: str(tmp_path / f"{name}.jsonl") for name in ("raw", "table", "short")}
    for name, row in (("raw", {"text": "A text."}), ("table", {"a": "x", "b": "y"}), ("short", {"text": "few words"})):
        Path(names[name]).write_text(json.dumps(row) + "\n")
    out = tmp_path / "out"
    answer = saucier("clean", *(argument.format(**names) for argument in arguments), "--out", out)
    assert (answer.code, out.exists()) == (2, False)
    assert what in answer.error


def test_missing_extras_are_named(saucier: Saucier, crawl: Path, tmp_path: Path,
                                  monkeypatch: pytest.MonkeyPatch) -> None:
    from saucier.text.cleaning.rules import load_identifier

    load_identifier.cache_clear()
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    monkeypatch.setitem(sys.modules, "datatrove.executor", None)
    for arguments in (["--language", "en"], ["--workers", "2"]):
        answer = saucier("clean", crawl, "--out", tmp_path / "out", *arguments)
        assert (answer.code, "pip install 'saucier[clean]'" in answer.error) == (2, True)
    load_identifier.cache_clear()


@pytest.mark.slow
def test_standard_input_is_cleaned_and_starts_over(crawl: Path, tmp_path: Path) -> None:
    text = (crawl.parent / "a.jsonl").read_text()
    out = tmp_path / "out"
    (out / ".work").mkdir(parents=True)
    (out / ".work/job.json").write_text('{"files": []}')
    done = subprocess.run([sys.executable, "-m", "saucier", "clean", "-.jsonl", "--rules", "c4", "--out", str(out)],
                          input=text, capture_output=True, text=True, check=True)
    assert "starting over" in done.stderr
    assert len((out / "corpus-00000.jsonl").read_text().splitlines()) == 8


@pytest.mark.slow
def test_two_workers_of_an_engine_give_the_same_bytes(crawl: Path, tmp_path: Path) -> None:
    """datatrove runs the same rules on the same files; who made a piece cannot be seen in it."""
    pytest.importorskip("datatrove")
    alone, together = tmp_path / "alone", tmp_path / "together"
    for out, workers in ((alone, "1"), (together, "2")):
        subprocess.run([sys.executable, "-m", "saucier", "clean", str(crawl), "--out", str(out), "--workers", workers],
                       check=True, capture_output=True)
    assert files(alone) == files(together)
    assert (alone / "corpus-00000.jsonl").stat().st_size > 0


@pytest.mark.slow
def test_a_fault_of_a_file_is_one_line_with_an_engine_too(crawl: Path, tmp_path: Path) -> None:
    pytest.importorskip("datatrove")
    (crawl.parent / "c.jsonl").write_text('{"text": "fine"}\nnot json\n')
    done = subprocess.run([sys.executable, "-m", "saucier", "clean", str(crawl), "--out", str(tmp_path / "out"),
                           "--workers", "2"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if "error" in line] == [
        f"error: {crawl.parent}/c.jsonl, line 2: not JSON: Expecting value at column 1; write one JSON object per line"]


def test_a_recipe_reads_what_comes_out(saucier: Saucier, crawl: Path, tmp_path: Path) -> None:
    from saucier.recipes import recipe

    out = tmp_path / "out"
    assert saucier("clean", crawl, "--rules", "c4", "--out", out, "shard=1000").code == 0
    assert len(list(out.glob("corpus-*.jsonl"))) == 3
    data = recipe("gpt-nano", [f"data.files=['{out}/*.jsonl']"]).data
    assert isinstance(data, TextData)
    assert len(list(read_documents(data.files, column=data.column))) == 12


def test_rules_are_a_file_and_back() -> None:
    found = cleaning("all", ["language.code=de", "order={kind: unshuffled}", "bullets=off"])
    assert [rule.kind for rule in found.rules if rule.kind in ("language", "bullets")] == ["language"]
    assert found.order.kind == "unshuffled"
    assert "kind: language\n  code: de" in rules_to_yaml(found)
