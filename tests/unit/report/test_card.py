"""The model card: what it says, what it keeps, and that nobody's own text is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml

import saucier
from saucier import config as c
from saucier.families import bert, gpt2
from saucier.jobs.convert import convert
from saucier.jobs.run.cards import describe_finetuning, describe_pretraining
from saucier.jobs.run.passport import Code, Passport
from saucier.report.card import CARD, CardFacts, Data, Measured, find_facts, read_facts, render_card, write_card
from saucier.report.results import DataCounts, HeldOut, Results, RunCost
from saucier.tasks.scores import Score

FACTS = CardFacts(
    name="my run", made_by="saucier finetune classification", task="classification", base="owner/base",
    data=(Data("train.csv", "ab" * 32), Data("dev | <b>.csv")),
    scores=(Measured("held-out", "accuracy", 0.91234, 0.88, 0.94), Measured("held-out", "loss", 1.5)),
    seeds={"training": 7}, steps=1200, versions={"saucier": "0.1.0", "torch": "2.13"})


def front_matter(card: str) -> dict[str, object]:
    found: dict[str, object] = yaml.safe_load(card.split("---\n")[1])
    return found


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    tree = bert(dim=32, layers=1, heads=2, vocab=80, length=16)
    head = c.ClassificationHead(pick=c.PickVector(kind="pooled"), classes=3)
    saucier.build(tree.model_copy(update={"head": head})).save(tmp_path / "classifier")
    return tmp_path / "classifier"


def test_a_card_says_where_a_model_comes_from_and_how_it_is_used(classifier: Path) -> None:
    config = saucier.load(classifier).config
    card = render_card(classifier, config, FACTS)
    assert front_matter(card) == {
        "library_name": "transformers", "pipeline_tag": "text-classification",
        "tags": ["saucier", "bert", "classification"], "license": "unknown", "base_model": "owner/base",
        "datasets": ["train.csv", "dev | <b>.csv"], "metrics": ["accuracy", "loss"]}
    for said in ("# my run", "An encoder with ", "made by `saucier finetune classification`, beginning with the "
                 "weights of owner/base", 'saucier predict path --text "a text"',
                 "from transformers import AutoTokenizer, BertForSequenceClassification",
                 "| held-out | accuracy | 0.9123 | 0.88 – 0.94 |", "| held-out | loss | 1.5 |  |",
                 f"| train.csv | `{'ab' * 32}` |", "| dev \\| &lt;b>.csv |  |", "- updates: 1,200",
                 "- seeds: training 7", "- versions: saucier 0.1.0, torch 2.13", "- license: unknown"):
        assert said in card, said
    (classifier / CARD).write_text(card, encoding="utf-8")
    assert find_facts(classifier) == FACTS
    (classifier / CARD).write_text(card.replace("1,200", "1,201"), encoding="utf-8")
    assert read_facts(classifier / CARD) is None  # a person's own now


def test_every_saved_model_has_a_card_and_keeps_its_history(classifier: Path, tmp_path: Path) -> None:
    model = saucier.load(classifier, device="cpu")
    write_card(classifier, model.config, FACTS)
    model.save(tmp_path / "copy")
    assert find_facts(tmp_path / "copy") == FACTS
    convert(classifier, tmp_path / "own", layout="own")
    assert find_facts(tmp_path / "own") == FACTS
    assert "Its layout is Saucier's own" in (tmp_path / "own" / CARD).read_text(encoding="utf-8")
    assert front_matter((tmp_path / "own" / CARD).read_text(encoding="utf-8"))["library_name"] == "saucier"
    with torch.no_grad():
        model.embed.tokens.weight += 1
    model.save(tmp_path / "changed")  # what was measured is no longer true of it
    assert find_facts(tmp_path / "changed") == CardFacts(task="classification", base="classifier", changed=True)


def test_what_a_person_wrote_is_kept(classifier: Path, tmp_path: Path) -> None:
    (classifier / CARD).write_text("# Mine\n", encoding="utf-8")
    model = saucier.load(classifier, device="cpu")
    model.save(tmp_path / "copy")
    convert(classifier, tmp_path / "converted")
    model.save(classifier)  # onto itself
    for name in ("copy", "converted", "classifier"):
        assert (tmp_path / name / CARD).read_text(encoding="utf-8") == "# Mine\n"
    saucier.load(classifier, head="none").save(tmp_path / "body")  # another model: the text is not about it
    assert find_facts(tmp_path / "body").base == "classifier"
    other = saucier.build(gpt2(dim=32, layers=1, heads=2, vocab=80, length=16))
    other.save(tmp_path / "other")
    card = (tmp_path / "other" / CARD).read_text(encoding="utf-8")
    (tmp_path / "other" / CARD).write_text(card + "\nAnd a word of mine.\n", encoding="utf-8")
    other.save(tmp_path / "other")
    assert (tmp_path / "other" / CARD).read_text(encoding="utf-8").endswith("And a word of mine.\n")


PASSPORT = Passport(recipe="gpt-nano", code=Code(version="0.1.0", sha256="0"), begun="now", seeds={"training": 3},
                    environment={"torch": "2.13", "threads": "2"}, data={"train": "12", "held_out": "34"},
                    start="/somewhere/of/mine/base")


def test_jobs_say_what_they_know() -> None:
    scores = {"test": [Score("accuracy", 0.5, 0.4, 0.6, 9, "rows"),
                       Score("pearson", float("nan"), 0.0, 0.0, 9, "rows")]}
    tuned = describe_finetuning(PASSPORT, "classification", 10, scores)
    assert tuned.scores == (Measured("test", "accuracy", 0.5, 0.4, 0.6),)
    assert (tuned.base, tuned.steps, tuned.seeds) == ("base", 10, {"training": 3})
    assert tuned.versions == {"saucier": "0.1.0", "torch": "2.13"}
    cooked = describe_pretraining(PASSPORT, "causal", Results(
        step=5, steps=6, held_out=HeldOut(loss=2.0, tokens=3, bytes=4), data=DataCounts(source="book.txt"),
        cost=RunCost(seconds=1.0)))
    assert cooked.data == (Data("book.txt (train)", "12"), Data("book.txt (held out)", "34"))
    assert cooked.scores == (Measured("held-out text", "loss (nats a token)", 2.0),)


def test_hostile_cards_are_nobodys(tmp_path: Path) -> None:
    for text in (b"\xff\xfe", b"<!-- saucier card 0123456789abcdef {} -->", b"x\n<!-- saucier card " + b"0" * 16 + b" {"
                 + b"[" * 9999 + b"} -->\n"):
        (tmp_path / CARD).write_bytes(text)
        assert read_facts(tmp_path / CARD) is None
