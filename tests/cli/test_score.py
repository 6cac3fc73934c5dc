"""`saucier score` on real labelled files, on the screen and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Saucier


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


def test_entities_of_real_data_are_all_found_by_their_own_golds(saucier: Saucier, shared: Path, tmp_path: Path) -> None:
    from saucier.tasks.scores.golds import read_golds

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
