"""`saucier score` on real labelled files, on the screen and as JSON."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from tests.cli.conftest import Saucier

from saucier.jobs.score import render_report, score_files, short_names


@pytest.mark.slow
def test_a_majority_class_on_real_data(saucier: Saucier, shared: Path, tmp_path: Path) -> None:
    gold = shared / "data/classification/sst2/dev.tsv"
    count = len(gold.read_text(encoding="utf-8").splitlines()) - 1
    for name, answer in (("ones", "1"), ("zeros", "0")):
        rows = "".join(json.dumps({"id": f"dev.tsv:{n + 2}", "prediction": answer}) + "\n" for n in range(count))
        (tmp_path / f"{name}.jsonl").write_text(rows)
    answer = saucier("score", str(tmp_path / "ones.jsonl"), "--gold", str(gold), "--json")
    found = json.loads(answer.out)
    [accuracy] = [one for one in found["scores"][0] if one["name"] == "accuracy"]
    assert accuracy["value"] == pytest.approx(444 / 872) and accuracy["count"] == 872
    assert accuracy["low"] < 444 / 872 < accuracy["high"]
    classes = [(one["name"], one["recall"], one["count"]) for one in found["classes"]]
    assert classes == [("0", 0.0, 428), ("1", 1.0, 444)]
    shown = saucier("score", str(tmp_path / "ones.jsonl"), str(tmp_path / "zeros.jsonl"), "--gold", str(gold)).out
    assert "ones − zeros" in shown and "They differ on 872 of 872 rows" in shown and "column 'label'" in shown


@pytest.mark.slow
def test_entities_of_real_data_are_all_found_by_their_own_golds(saucier: Saucier, shared: Path, tmp_path: Path) -> None:
    from saucier.tasks.prediction_files import read_golds

    gold = shared / "data/ner/conll2003/dev.tsv"
    rows = [{"prediction": row.gold} for row in read_golds(str(gold)).rows]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shown = saucier("score", str(tmp_path / "p.jsonl"), "--gold", str(gold), "--metric", "entity-f1-iob2").out
    assert "3,250 rows scored as tags" in shown and "entity F1 (iob2)  1.0000" in shown
    assert "PER       1.0000  1.0000  1.0000  1,842      1,842" in shown


def test_faults_are_one_line(saucier: Saucier, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prediction": "a"}\n')
    for words, message in ((["p.jsonl"], "has no 'gold'"), (["none.jsonl"], "no such file"),
                           (["p.jsonl", "p.jsonl", "p.jsonl"], "3 files of predictions")):
        answer = saucier("score", *(str(tmp_path / word) for word in words))
        assert answer.code == 2 and message in answer.error


@pytest.mark.parametrize(("files", "names"), [
    (("runs/A/predictions/held-out.jsonl", "runs/B/predictions/held-out.jsonl"), ("A", "B")),
    (("words.jsonl", "bigrams.jsonl"), ("words", "bigrams")),
    (("p.jsonl", "deeper/p.jsonl"), ("p (1)", "p (2)")),
    (("a/x/p.jsonl", "b/y/p.jsonl"), ("a/x", "b/y")),
    (("p.jsonl", "p.jsonl"), ("p (1)", "p (2)")), (("p.jsonl", "p.csv"), ("p.jsonl", "p.csv"))])
def test_files_are_named_by_what_tells_them_apart(files: tuple[str, str], names: tuple[str, str]) -> None:
    assert short_names(files) == names


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 120, 160])
def test_a_comparison_of_runs_is_shown_whole(tmp_path: Path, width: int) -> None:
    """As in the README: two runs, with the files that `finetune` writes. Nothing is cut, the text is shown."""
    files = []
    for run, wrong in (("bert-small-sst2-lora-seed-0", 3), ("bert-small-sst2-whole-seed-0", 40)):
        path = tmp_path / "runs" / run / "predictions" / "held-out.jsonl"
        path.parent.mkdir(parents=True)
        rows = [{"id": f"dev.tsv:{n + 2}", "prediction": "negative" if n < wrong else "positive",
                 "gold": "positive", "confidence": 0.9, "texts": [f"a stirring, funny film number {n}"]}
                for n in range(200)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        files.append(str(path))
    console = Console(width=width, file=io.StringIO(), highlight=False)
    console.print(render_report(score_files(tuple(files))))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, shown.splitlines())) <= width
    for whole in ("difference", "95 % interval", "p (exchanged)", "p (bootstrap)", "+0.1850",
                  "0.9850 (0.9568 … 0.9949)", "200 rows", "dev.tsv:9"):
        assert whole in shown, whole
    assert "stirring" in shown and "bert-small-sst2-lora-seed-0 is better: accuracy" in " ".join(shown.split())
