"""Saving: a published layout where one can express the model, our own otherwise; what is written is what is read."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import saucier
from saucier import config as c
from saucier.checkpoints.fields import Key
from saucier.checkpoints.layout import MODEL_TYPE
from saucier.checkpoints.published_folder import express_model
from saucier.families import LAYOUTS, bert, gpt2
from saucier.folders.save import save
from saucier.recipes import names


def test_a_recipes_model_is_written_as_transformers_reads_it(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = saucier.build(gpt2(dim=32, layers=2, heads=2, vocab=50, length=16), seed=3).eval()
    assert model.save(tmp_path / "out") == "gpt2"
    reference = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    ids = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        torch.testing.assert_close(reference(ids).logits, model(ids).logits, atol=1e-5, rtol=1e-5)
    assert torch.equal(saucier.load(tmp_path / "out", dtype="float32", device="cpu")(ids).logits, model(ids).logits)


@pytest.mark.slow
def test_what_no_layout_expresses_is_written_in_ours(tmp_path: Path) -> None:
    tree = gpt2(dim=32, layers=2, heads=2, vocab=50, length=16)
    model = saucier.build(tree.model_copy(update={"embed": tree.embed.model_copy(update={"scale": 3.0})}))
    assert model.save(tmp_path / "out") == MODEL_TYPE
    assert saucier.load(tmp_path / "out", device="cpu").config == model.config
    with pytest.raises(saucier.InputError, match="no published layout can express this model"):
        save(model, tmp_path / "other", layout="published")
    with pytest.raises(saucier.InputError, match="cannot be written as gpt2"):
        save(model, tmp_path / "other", layout="gpt2")
    with pytest.raises(saucier.InputError, match="did you mean 'gpt"):
        save(model, tmp_path / "other", layout="gpt3")
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_a_published_model_that_was_changed_says_so(tmp_path: Path) -> None:
    saucier.build(bert(dim=32, layers=2, heads=2, vocab=50, length=16)).save(tmp_path / "bert")
    model = saucier.load(tmp_path / "bert", dtype="float32", device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert save(model, tmp_path / "again") == "bert"
        assert save(model, tmp_path / "own", layout="own") == MODEL_TYPE
    model.config = model.config.model_copy(update={"embed": model.config.embed.model_copy(update={"scale": 2.0})})
    with pytest.warns(UserWarning, match=r"written in our own layout: .*embed\.scale"):
        assert save(model, tmp_path / "changed") == MODEL_TYPE


def test_number_formats_and_generation_survive(tmp_path: Path) -> None:
    model = saucier.build(gpt2(dim=32, layers=1, heads=2, vocab=50, length=16), dtype=torch.bfloat16)
    model.generation = {"max_new_tokens": 7, "eos_token_id": 3}
    model.save(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "bfloat16"
    back = saucier.load(tmp_path / "out", dtype="bfloat16", device="cpu")
    assert back.generation == model.generation
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), back.parameters(), strict=True))


@pytest.mark.parametrize(("said", "becomes"), [("gelu_fast", "gelu_fast"), ("gelu_python_tanh", "gelu_python_tanh"),
                                               ("relu", "gelu_new")])
def test_a_field_keeps_its_spelling_while_it_is_true(said: str, becomes: str, tmp_path: Path) -> None:
    """Several names mean one function; the first is written only where the config had not named another."""
    saucier.build(gpt2(dim=32, layers=1, heads=2, vocab=50, length=16)).save(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "activation_function": "gelu_new"}))
    model = saucier.load(tmp_path / "model", dtype="float32", device="cpu")
    model.provenance = replace(model.provenance, document={**model.provenance.document, "activation_function": said})
    model.save(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["activation_function"] == becomes


def test_a_folder_with_something_else_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    model = saucier.build(c.Transformer.model_validate(gpt2(dim=32, layers=1, heads=2, vocab=50, length=16)))
    with pytest.raises(saucier.InputError, match="holds something else"):
        model.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


SHAPES = ("rnn-small", "transformer-xl-nano", "ul2-nano", "xlm-roberta-nano", "performer-nano", "elmo-nano")
"""Recipes with no attention, with no table of positions, with a head of another kind: what a table may not expect."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SHAPES, *(pytest.param(one, marks=pytest.mark.nightly) for one in names()
                                             if one not in SHAPES)])
def test_every_layout_expresses_a_model_or_says_that_it_cannot(name: str) -> None:
    """Other errors are faults of a family's tables, and nothing hides them."""
    model = saucier.build(saucier.recipe(name).model, device="meta")
    refusals = {}
    for layout in LAYOUTS.values():
        try:
            express_model(model, layout)
        except saucier.InputError as error:
            refusals[layout.model_type] = str(error)
    assert len(refusals) >= len(LAYOUTS) - 3  # RoBERTa, XLM-RoBERTa and CamemBERT are spelled alike
    assert all("cannot be written as" in said for said in refusals.values())


def test_a_fault_of_a_familys_tables_keeps_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(tree: c.Transformer) -> int:
        return tree.no_such_field  # type: ignore[attr-defined, no-any-return]

    layout = LAYOUTS["gpt2"]
    monkeypatch.setitem(LAYOUTS, "gpt2", replace(layout, keys=(*layout.keys, Key("broken", (), found=broken))))
    model = saucier.build(gpt2(dim=32, layers=1, heads=2, vocab=50, length=16))
    with pytest.raises(AttributeError, match="no_such_field"):
        model.save(tmp_path / "out")


@pytest.mark.parametrize(("model_type", "width"), [("gpt2", "n_embd"), ("gpt_neo", "hidden_size"), ("gptj", "n_embd")])
def test_a_null_width_is_the_familys_own(model_type: str, width: str) -> None:
    layout = LAYOUTS[model_type]
    name = next(iter(layout.classes))
    assert layout.tree({width: None}, name, "config.json") == layout.tree({}, name, "config.json")
