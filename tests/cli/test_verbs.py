"""Every verb, on a run of a second."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from tests.cli.conftest import Saucier
from tools.book import published_page

from saucier.recipes import names

VERBS = ("cook", "train", "evaluate", "generate", "rerun", "recipes", "families", "show", "diff", "plan", "schema",
         "backtranslate", "embed", "tokenizer", "convert", "score", "doctor", "prompt")


def test_help_names_every_verb(saucier: Saucier) -> None:
    answer = saucier("--help")
    assert answer.code == 0
    assert all(f"\n  {verb}" in answer.out for verb in VERBS)


@pytest.mark.sampled
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(saucier: Saucier, verb: str) -> None:
    answer = saucier(verb, "--help")
    assert answer.code == 0
    assert "Usage: saucier" in answer.out


@pytest.mark.slow
def test_recipes_lists_every_recipe(saucier: Saucier) -> None:
    answer = saucier("recipes")
    assert answer.code == 0
    assert [line.split()[0] for line in answer.out.splitlines()[1:] if line[0] != " "] == names()


@pytest.mark.slow
def test_recipes_as_json(saucier: Saucier) -> None:
    found = {one["name"]: one for one in json.loads(saucier("recipes", "--json").out)}
    assert found["gpt2"]["parameters"] == found["gpt2"]["claims"]["parameters"] == 124439808
    assert found["bert"]["objective"] == "masked"
    assert found["t5"]["family"] == "t5"


def test_families_lists_what_can_be_opened(saucier: Saucier) -> None:
    found = {one["model_type"]: one for one in json.loads(saucier("families", "--json").out)}
    assert "BertForMaskedLM" in found["bert"]["classes"]
    assert "hidden_size" in found["bert"]["fields"]
    shown = saucier("families", "bert").out
    assert "BertForQuestionAnswering" in shown
    assert "add_cross_attention" in shown
    answer = saucier("families", "brt")
    assert answer.code == 2
    assert "bert" in answer.error


def test_the_page_of_published_layouts_is_current(root: Path) -> None:
    page = (root / "docs" / "published.md").read_text(encoding="utf-8")
    assert page == published_page(), "run `make book`"


@pytest.mark.slow
def test_schema_knows_every_section(saucier: Saucier) -> None:
    found = json.loads(saucier("schema").out)
    assert {"model", "tokenizer", "data", "objective", "training", "evaluation",
            "sampling"} <= found["properties"].keys()
    assert found["additionalProperties"] is False


def test_generate_streams_the_prompt_and_the_text(saucier: Saucier, cooked: Path) -> None:
    answer = saucier("generate", cooked, "the cook", "--tokens", 8, "--seed", 1)
    assert answer.code == 0
    assert answer.out.startswith("the cook")
    assert len(answer.out) > len("the cook\n")


def test_generate_repeats_itself_with_a_seed(saucier: Saucier, cooked: Path) -> None:
    first, again, other = (saucier("generate", cooked, "the", "--tokens", 20, "--seed", seed).out for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.slow
@pytest.mark.parametrize("options",
                         [("--temperature", 0), ("--beams", 3), ("--top-k", 5, "--top-p", 0.9, "--samples", 2),
                          ("--repetition-penalty", 1.3, "--no-repeat-ngram", 2), ("--stop", "a")])
def test_generate_takes_every_way_of_choosing(saucier: Saucier, cooked: Path, options: tuple[object, ...]) -> None:
    answer = saucier("generate", cooked, "the", "--tokens", 6, "--json", *options)
    assert answer.code == 0
    texts = json.loads(answer.out)["texts"]
    assert len(texts) == (2 if "--samples" in options else 1)
    assert all(len(text) <= 6 for text in texts)


@pytest.mark.parametrize(("options", "count"), [(("--beams", 2), 1), (("--samples", 2), 2)])
def test_every_text_begins_with_its_prompt(saucier: Saucier, cooked: Path, options: tuple[object, ...],
                                           count: int) -> None:
    texts = saucier("generate", cooked, "the cook", "--tokens", 4, *options).out.split("\n" + "─" * 20 + "\n")
    assert len(texts) == count and all(text.startswith("the cook") for text in texts)


def test_generate_reads_standard_input(saucier: Saucier, cooked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("the cat\n"))
    assert json.loads(saucier("generate", cooked, "--tokens", 2, "--json").out)["prompt"] == "the cat"


def test_a_checkpoint_of_a_run_can_be_used_alone(saucier: Saucier, cooked: Path) -> None:
    checkpoint = cooked / "checkpoints" / "step-4"
    assert saucier("generate", checkpoint, "the", "--tokens", 4, "--seed", 1).out.startswith("the")
    alone, whole = (json.loads(saucier("evaluate", path, "--json").out) for path in (checkpoint, cooked))
    assert alone.pop("tokens_per_second") > 0 < whole.pop("tokens_per_second")
    assert alone == whole
    assert saucier("tokenizer", "inspect", checkpoint, "the").code == 0


@pytest.mark.parametrize("prompt", ["", "日本", "\n", "the 日 cat"])
def test_any_prompt_is_continued(saucier: Saucier, cooked: Path, prompt: str) -> None:
    answer = saucier("generate", cooked, prompt, "--tokens", 4)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith(prompt)


def test_evaluate_repeats_what_the_cook_measured(saucier: Saucier, cooked: Path) -> None:
    measured = json.loads((cooked / "evaluation.json").read_text())["held_out"]
    found = json.loads(saucier("evaluate", cooked, "--json").out)["held_out"]
    assert found["tokens"] == measured["tokens"]
    assert found["loss"] == pytest.approx(measured["loss"], abs=1e-6)


def test_evaluate_takes_files_and_words_for_any_model(saucier: Saucier, root: Path, text_file: Path) -> None:
    box = root / "tests" / "frozen" / "box"
    answer = saucier("evaluate", box / "models" / "gpt2", text_file, "data.document=line", "--limit", 3, "--stride", 9)
    assert answer.code == 0
    assert "windows of 160 tokens, 9 apart" in answer.out
    assert "3 documents" in answer.out
    words = ("evaluate", box / "tasks" / "classification" / "model", box / "dev" / "tones.tsv", "task.label=label")
    found = json.loads(saucier(*words, "--json").out)
    assert (found["kind"], found["scores"][0]["name"]) == ("classification", "accuracy")
    assert "no column 'tone'" in saucier(*words[:3], "task.label=tone").error
    assert "no such file" in saucier("evaluate", box / "models" / "gpt2", "nowhere.txt").error


@pytest.mark.slow
def test_evaluate_gives_a_run_intervals_over_its_batches(saucier: Saucier, cooked: Path) -> None:
    found = json.loads(saucier("evaluate", cooked, "--batch", 1, "--json").out)
    low, high = found["intervals"]["loss"]
    assert low < found["held_out"]["loss"] < high
    low, high = found["intervals"]["bits per byte"]
    assert low < found["held_out"]["bits_per_byte"] < high
    assert "95 % intervals over" in saucier("evaluate", cooked, "--batch", 1).out


def test_evaluate_other_text_with_baselines(saucier: Saucier, cooked: Path, text_file: Path) -> None:
    found = json.loads(saucier("evaluate", cooked, text_file, "--baselines", "--json").out)
    assert found["held_out"]["bytes"] == text_file.stat().st_size
    assert {one["name"] for one in found["baselines"]} == {"unigram", "5-gram", "xz -9"}
    assert "bits per byte" in saucier("evaluate", cooked, text_file).out


def test_tokenizer_is_trained_and_shows_its_pieces(saucier: Saucier, text_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "tokenizer"
    assert saucier("tokenizer", "train", text_file, "--out", out, "--vocab", 280).code == 0
    found = json.loads(saucier("tokenizer", "inspect", out, "the cook stirs ñ", "--json").out)
    assert "".join(found["tokens"][:4]).replace(" ", "").startswith("thecook")
    assert len(found["tokens"]) == len(found["ids"]) < len("the cook stirs ñ")
    assert "|" in saucier("tokenizer", "inspect", out, "the cook").out


def test_tokenizer_never_overwrites(saucier: Saucier, cooked: Path, text_file: Path) -> None:
    before = (cooked / "tokenizer" / "tokenizer.json").read_bytes()
    answer = saucier("tokenizer", "train", text_file, "--out", cooked / "tokenizer")
    assert (answer.code, "is not empty" in answer.error) == (2, True)
    assert (cooked / "tokenizer" / "tokenizer.json").read_bytes() == before


def test_tokenizer_inspects_that_of_a_run(saucier: Saucier, cooked: Path) -> None:
    assert json.loads(saucier("tokenizer", "inspect", cooked, "the cat", "--json").out)["tokens"] == list("the cat")


@pytest.mark.parametrize("what", ["gpt-nano", "transformer-nano"])
def test_show_and_plan_and_diff(saucier: Saucier, cooked: Path, what: str) -> None:
    assert "parameters" in saucier("show", what).out
    assert json.loads(saucier("plan", what, "--no-calibrate", "--json").out)["steps"] > 0
    assert saucier("diff", what, cooked).code == 0
