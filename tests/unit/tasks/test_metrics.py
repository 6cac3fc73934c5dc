"""Metrics against the reference scorers' golden values, and against their definitions."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from saucier.errors import InputError
from saucier.tasks.metrics import bits_per_byte, bleu, chrf, perplexity, rouge, rouge_l, rouge_l_summary, rouge_n
from saucier.tasks.metrics.rouge import porter_stem


@pytest.fixture(scope="module")
def golden(shared: Path) -> dict[str, Any]:
    """The stored values of sacrebleu 2.6.0 and rouge-score 0.1.2."""
    value: dict[str, Any] = json.loads((shared / "golden/metrics-generation/golden.json").read_text(encoding="utf-8"))
    return value


def references(golden: dict[str, Any], case: dict[str, Any]) -> list[str] | list[tuple[str, str]]:
    both = list(zip(golden["references"], golden["references_2"], strict=True))
    return both if case["references"] == "multi" else golden["references"]


@pytest.mark.parametrize("number", range(20))
def test_bleu_is_golden(golden: dict[str, Any], number: int) -> None:
    case = golden["corpus_bleu"][number]
    got = bleu(golden["hypotheses"], references(golden, case), **case["kwargs"])
    assert got.score == pytest.approx(case["score"], abs=1e-9)
    assert f"{case['bp']:.3f}" in got.details
    assert "version:" in got.signature


def test_bleu_of_parts_and_of_sentences(golden: dict[str, Any]) -> None:
    for part in golden["corpus_bleu_subset"]:
        part_rows = slice(*part["rows"])
        score = bleu(golden["hypotheses"][part_rows], golden["references"][part_rows]).score
        assert score == pytest.approx(part["score"], abs=1e-9)
    rows = zip(golden["hypotheses"], golden["references"], golden["sentence_bleu"], strict=True)
    for hypothesis, reference, want in rows:
        assert bleu([hypothesis], [reference], use_effective_order=True).score == pytest.approx(want, abs=1e-9)


@pytest.mark.parametrize("number", range(12))
def test_chrf_is_golden(golden: dict[str, Any], number: int) -> None:
    case = golden["chrf"][number]
    got = chrf(golden["hypotheses"], references(golden, case), **case["kwargs"])
    assert got.score == pytest.approx(case["score"], abs=1e-9)


@pytest.mark.parametrize("number", [0, 1])
def test_rouge_is_golden(golden: dict[str, Any], number: int) -> None:
    case = golden["rouge"][number]
    stem = case["use_stemmer"]
    for hypothesis, reference, want in zip(golden["hypotheses"], golden["references"], case["per_pair"], strict=True):
        got = {f"rouge{n}": rouge_n(hypothesis, reference, n, stem=stem) for n in (1, 2, 3)}
        got |= {"rougeL": rouge_l(hypothesis, reference, stem=stem)}
        got |= {"rougeLsum": rouge_l_summary(hypothesis, reference, stem=stem)}
        for name, overlap in got.items():
            assert overlap == pytest.approx(want[name], abs=1e-12), (name, hypothesis, reference)
    for name, overlap in rouge(golden["hypotheses"], golden["references"], stem=stem).items():
        assert overlap == pytest.approx(case["mean"][name], abs=1e-12)


def test_rouge_takes_the_best_of_several_references() -> None:
    got = rouge(["the cat sat"], [["a dog ran far", "the cat sat down"]])
    assert got["rouge1"] == pytest.approx((1.0, 0.75, 6 / 7))
    assert got["rougeL"] == rouge_l("the cat sat", "the cat sat down")


def test_rouge_l_summary_joins_the_sentences() -> None:
    """The example of Lin 2004, §3.2: the union of the subsequences is w1 w2 w3 w5."""
    got = rouge_l_summary("w1 w2 w6 w7 w8\nw1 w3 w8 w9 w5", "w1 w2 w3 w4 w5")
    assert got.recall == pytest.approx(4 / 5)
    assert got.precision == pytest.approx(4 / 10)


def definition_of_bleu(hypotheses: list[str], many: list[list[str]]) -> float:
    """Papineni et al. 2002, §2, word for word, for texts that hold spaces only between tokens."""
    def grams(text: str, n: int) -> Counter[tuple[str, ...]]:
        tokens = text.split()
        return Counter(tuple(tokens[start:start + n]) for start in range(len(tokens) - n + 1))

    logs = []
    for n in range(1, 5):
        clipped = total = 0
        for hypothesis, refs in zip(hypotheses, many, strict=True):
            counts = grams(hypothesis, n)
            total += counts.total()
            clipped += sum(min(count, max(grams(ref, n)[gram] for ref in refs)) for gram, count in counts.items())
        logs.append(math.log(clipped / total))
    length = sum(len(h.split()) for h in hypotheses)
    closest = sum(min((abs(len(ref.split()) - len(h.split())), len(ref.split())) for ref in refs)[1]
                  for h, refs in zip(hypotheses, many, strict=True))
    return 100 * math.exp(min(0.0, 1 - closest / length) + sum(logs) / 4)


def test_bleu_is_its_definition() -> None:
    hypotheses = ["the cat sat on the mat today", "a man is walking in a park"]
    many = [["the cat sat on the mat", "there is a cat on the mat today then"],
            ["a man walks in a park", "a man is walking in the big park"]]
    want = definition_of_bleu(hypotheses, many)
    assert bleu(hypotheses, many, tokenize="none").score == pytest.approx(want, abs=1e-9)


def test_likelihoods() -> None:
    assert perplexity(10 * math.log(50), 10) == pytest.approx(50)
    assert perplexity(1e6, 1) == math.inf
    assert bits_per_byte(1000 * math.log(256), 1000) == pytest.approx(8)
    for wrong in (perplexity, bits_per_byte):
        with pytest.raises(ValueError, match="of 0"):
            wrong(1.0, 0)


def test_wrong_input_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for score in (bleu, chrf, rouge):
        with pytest.raises(InputError, match="1 hypotheses for 2 references"):
            score(["a"], ["a", "b"])
        with pytest.raises(InputError, match="0 hypotheses"):
            score([], [])
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(InputError, match=r"pip install 'saucier\[translation\]'"):
        bleu(["a"], ["a"])


STEMS = """caresses:caress ponies:poni ties:tie feed:feed agreed:agre plastered:plaster motoring:motor sing:sing
    conflated:conflat hopping:hop falling:fall filing:file happy:happi enjoy:enjoy relational:relat
    vietnamization:vietnam hopefulness:hope formaliti:formal electrical:electr adjustment:adjust adoption:adopt
    probate:probat cease:ceas controlling:control dying:die apology:apolog hopefully:hope"""


@pytest.mark.parametrize("pair", STEMS.split())
def test_porter_stems(pair: str) -> None:
    """Examples of Porter 1980, and of the variant's own rules (the last three)."""
    word, want = pair.split(":")
    assert porter_stem(word) == want
