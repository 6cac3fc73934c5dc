"""The main job end to end, on text of a few kilobytes; each objective once."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.cli.conftest import TINY, Saucier

import saucier as library
from saucier.jobs.run.passport import read_passport
from saucier.recipes import recipe
from saucier.report.card import find_facts
from saucier.report.results import read_results
from saucier.text.tokenizer.tokenizer import load_tokenizer

FILES = ("recipe.yaml", "passport.json", "plan.json", "evaluation.json", "metrics.jsonl", "samples.txt", "report.html",
         "tokenizer/tokenizer.json", "store/train/store.json", "store/held_out/store.json",
         "checkpoints/step-4/model.safetensors", "checkpoints/step-4/state.json")


def small(*without: str) -> list[str]:
    """Return the overrides that make a recipe tiny, but for some keys."""
    return [override for override in TINY if override.split("=")[0] not in without]


def test_a_run_folder_holds_everything(cooked: Path) -> None:
    assert [name for name in FILES if not (cooked / name).is_file()] == []
    assert not list(cooked.rglob("*.pkl")) + list(cooked.rglob("*.pt")) + list(cooked.rglob("*.bin.tmp"))


def test_the_recipe_of_a_run_is_resolved(cooked: Path) -> None:
    values = yaml.safe_load((cooked / "recipe.yaml").read_text())
    assert values["training"]["steps"] == 4
    assert values["training"]["optimizer"]["momentum"] == 0.95  # a default, written out
    assert recipe(cooked / "recipe.yaml").as_dict() == values


def test_the_passport_says_where_everything_comes_from(cooked: Path) -> None:
    passport = read_passport(cooked)
    assert passport.data.keys() == {"train", "held_out", "tokenizer"}
    assert passport.environment.keys() >= {"python", "torch", "threads", "dtype", "device"}
    assert passport.outcome is not None
    assert passport.outcome.loss == read_results(cooked).held_out.loss
    assert list(passport.seconds) == ["read", "tokenizer", "pack", "plan", "train", "evaluate", "sample",
                                      "report"][:len(passport.seconds)]


def test_the_best_checkpoint_has_a_card(cooked: Path) -> None:
    results = json.loads((cooked / "evaluation.json").read_text())
    facts = find_facts(cooked / results["checkpoint"])
    assert facts.made_by == "saucier cook shakespeare" and facts.scores[0].value == results["held_out"]["loss"]
    assert facts.steps == results["step"]


def test_the_run_is_usable_from_python(cooked: Path) -> None:
    import torch

    model, tokenizer = library.load(cooked, dtype="float32"), library.load_tokenizer(cooked)
    ids = torch.tensor([tokenizer.encode("the cat")])
    assert model(input_ids=ids).logits.shape == (1, 7, tokenizer.vocab_size)
    assert library.generate(model, ids, max_new_tokens=3).shape == (1, 10)


def test_every_stage_says_what_it_counted(saucier: Saucier, text_file: Path, tmp_path: Path) -> None:
    answer = saucier("cook", "gpt-nano", "--data", text_file, "--out", tmp_path / "run", "--no-calibrate",
                     "tokenizer.vocab=280", "data.document=line", *small("evaluation.baselines"))
    assert answer.code == 0
    stages = [line.split()[0] for line in answer.out.splitlines()[2:] if line and line[0] != " "]
    assert stages == ["read", "tokenizer", "pack", "plan", "train", "evaluate", "sample", "report"]
    assert "280 tokens" in answer.out
    assert "bits per byte   (" in answer.out
    assert "training: 114 documents" in answer.out
    assert "held out: 6 documents" in answer.out


def test_documents_left_out_are_counted(saucier: Saucier, text_file: Path, tmp_path: Path) -> None:
    answer = saucier("cook", "gpt-nano", "--data", text_file, "--out", tmp_path / "run", "--no-calibrate",
                     "tokenizer.vocab=280", "data.document=line", "data.deduplicate=true", *small())
    assert "left out: 93 seen before" in answer.out
    assert read_results(tmp_path / "run").data.dropped == {"seen before": 93}


def test_what_rows_cannot_hold_is_counted(saucier: Saucier, pair_file: Path, tmp_path: Path) -> None:
    answer = saucier("cook", "transformer-nano", "--data", pair_file, "--out", tmp_path / "run", "--no-calibrate",
                     "tokenizer.vocab=30", "evaluation.beams=1", *small("model.length", "training.length"),
                     "training.length=8")
    assert answer.code == 0, answer.err
    data = read_results(tmp_path / "run").data
    assert data.truncated_rows > 0
    assert f"too long: {data.truncated_rows:,} cut by {data.truncated_tokens:,} tokens" in answer.out


@pytest.mark.slow
def test_rows_of_whole_documents_say_what_they_pad_and_divide(saucier: Saucier, stories_file: Path,
                                                              tmp_path: Path) -> None:
    rest = ["--data", stories_file, "--no-calibrate", "tokenizer.vocab=280", "data.document=paragraph", *small()]
    whole, running = tmp_path / "whole", tmp_path / "running"
    answer = saucier("cook", "gpt-nano", "--out", whole, *rest, "objective.rows.kind=documents")
    assert answer.code == 0, answer.err
    results = read_results(whole)
    assert results.data.divided_documents > 0
    assert 0 < results.data.padding < 0.2
    assert f"{results.data.padding:.1%} of their places are padding" in answer.out
    assert f"{results.data.divided_documents} documents are longer than a row and divided" in answer.out
    assert f"{results.data.divided_documents} documents were longer than a row" in (whole / "report.html").read_text()
    saucier("cook", "gpt-nano", "--out", running, *rest)
    assert results.held_out.tokens == read_results(running).held_out.tokens  # the same ones, in other rows
    refused = saucier("evaluate", whole, "--stride", 4)
    assert refused.code == 2
    assert "shuffled rows" in refused.error


@pytest.mark.slow
@pytest.mark.parametrize(("learned", "called"), [
    ("objective.next_sentence={}", "next-sentence accuracy"),
    ("objective={kind: masked, sentence_order: {}, choice: {kind: n_grams}}", "sentence-order accuracy")])
def test_bert_learns_and_shows_its_guesses(learned: str, called: str, saucier: Saucier, stories_file: Path,
                                           tmp_path: Path) -> None:
    answer = saucier("cook", "bert-nano", "--data", stories_file, "--out", tmp_path / "run", "--no-calibrate",
                     "tokenizer.vocab=60", "data.document=paragraph", learned,
                     *small("training.length", "model.length"))
    assert answer.code == 0, answer.err
    assert called in answer.out
    assert "[MASK]" in (tmp_path / "run" / "samples.txt").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "vocab"), [("elmo-nano", 35), ("elmo-characters-nano", 15)])
def test_elmo_learns_and_tells_what_comes_next(name: str, vocab: int, saucier: Saucier, stories_file: Path,
                                               tmp_path: Path) -> None:
    out = tmp_path / "run"
    answer = saucier("cook", name, "--data", stories_file, "--out", out, "--no-calibrate", f"tokenizer.vocab={vocab}",
                     "model.cells=24", *(one for one in small("model.length") if not one.startswith("model.heads")))
    assert answer.code == 0, answer.err
    lines = [line for line in (out / "samples.txt").read_text().splitlines() if line.startswith("[")]
    given, written, true = (line.partition("]")[2].strip() for line in lines)
    assert written.startswith(given)
    assert true.startswith(given)
    assert library.load(out).embed.tokens.num_embeddings == vocab


@pytest.mark.slow
def test_collocations_are_counted_once_and_found_again(saucier: Saucier, stories_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    wanted = ["cook", "bert-nano", "--data", stories_file, "--out", out, "--no-calibrate", "tokenizer.vocab=60",
              "data.document=paragraph", "objective.choice={kind: pmi, least: 2}",
              *small("training.length", "model.length")]
    answer = saucier(*wanted)
    assert answer.code == 0, answer.err
    assert "that keep company" in answer.out
    found = json.loads((out / "collocations.json").read_text(encoding="utf-8"))["n_grams"]
    assert all(one["count"] >= 2 and one["pmi"] > 0 and one["words"] >= 2 for one in found)
    again = saucier("evaluate", out)
    assert again.code == 0, again.err
    (out / "collocations.json").unlink()
    assert "collocations.json" in saucier("evaluate", out).err
    answer = saucier(*wanted[:5], tmp_path / "other", *wanted[6:], "objective.choice.least=100000")
    assert answer.code == 2
    assert "no n-gram of this text occurs 100000 times" in answer.err


@pytest.mark.slow
def test_span_boundaries_are_scored_and_their_network_is_saved(saucier: Saucier, stories_file: Path,
                                                               tmp_path: Path) -> None:
    out = tmp_path / "run"
    answer = saucier("cook", "bert-nano", "--data", stories_file, "--out", out, "--no-calibrate", "tokenizer.vocab=60",
                     "objective={kind: masked, choice: {kind: spans, boundary: {position_width: 8}}}",
                     *small("training.length", "model.length"))
    assert answer.code == 0, answer.err
    assert "span-boundary accuracy" in answer.out
    assert list(out.glob("checkpoints/step-*/boundary.safetensors"))


@pytest.mark.slow
def test_electra_shows_what_it_takes_for_replaced(saucier: Saucier, text_file: Path, tmp_path: Path) -> None:
    answer = saucier("cook", "electra-nano", "--data", text_file, "--out", tmp_path / "run", "--no-calibrate",
                     "tokenizer.vocab=60", "model.width=16", "data.document=line",
                     *small("training.length", "model.length"))
    assert answer.code == 0, answer.err
    assert "share of all tokens that are replaced" in answer.out
    assert "[given]" in (tmp_path / "run" / "samples.txt").read_text()
    assert (tmp_path / "run" / "checkpoints" / "step-4" / "generator" / "model.safetensors").is_file()


@pytest.mark.slow
def test_xlnet_fills_in_the_end_of_an_order(saucier: Saucier, stories_file: Path, tmp_path: Path) -> None:
    for number, rows in enumerate(("{kind: running, memory: 8}", "{kind: two_pieces, real: 0.5}")):
        folder = tmp_path / str(number)
        answer = saucier("cook", "xlnet-nano", "--data", stories_file, "--out", folder, "--no-calibrate",
                         "tokenizer.kind=wordpiece", "tokenizer.vocab=60", "data.document=paragraph", "model.memory=8",
                         f"objective.rows={rows}", *small("training.length", "model.length"))
        assert answer.code == 0, answer.err
        assert "[...]" in (folder / "samples.txt").read_text()


@pytest.mark.slow
def test_t5_learns_to_mend(saucier: Saucier, text_file: Path, tmp_path: Path) -> None:
    answer = saucier("cook", "t5-nano", "--data", text_file, "--out", tmp_path / "run", "--no-calibrate",
                     "tokenizer.vocab=60",
                     "model.head_dim=16", "data.document=paragraph", *small("model.length"))
    assert answer.code == 0, answer.err
    assert "<extra_id_0>" in (tmp_path / "run" / "samples.txt").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "vocab", "own"), [
    ("bart-nano", 290, ["model.length=32", "training.length=32"]),
    ("prefix-lm-nano", 28, ["model.head_dim=16", "training.length=24"]),
    ("t5-lm-nano", 60, ["model.head_dim=16", "training.length=32"])])
def test_damaged_texts_are_written_by_both_kinds_of_bodies(saucier: Saucier, text_file: Path, tmp_path: Path,
                                                           recipe: str, vocab: int, own: list[str]) -> None:
    answer = saucier("cook", recipe, "--data", text_file, "--out", tmp_path / "run", "--no-calibrate",
                     f"tokenizer.vocab={vocab}", "data.document=paragraph", "model.dim=32", "model.heads=2",
                     "training.steps=3", "model.layers=1", *own)
    assert answer.code == 0, answer.err
    found = read_results(tmp_path / "run").samples
    assert found
    assert all(sample.prompt and sample.reference and not sample.text.startswith(sample.prompt) for sample in found)
    written = saucier("generate", tmp_path / "run", "the cat", "--tokens", 3, "--temperature", 0, "--json")
    assert written.code == 0, written.err
    assert not json.loads(written.out)["texts"][0].startswith("the cat")


@pytest.mark.slow
def test_translation_is_scored_on_held_out_files(saucier: Saucier, pair_file: Path, tmp_path: Path) -> None:
    held_out = tmp_path / "held_out.tsv"
    held_out.write_text("there\tback\nmilk spills\tspills milk\nthe cat tastes\ttastes cat the\n", encoding="utf-8")
    out = tmp_path / "run"
    answer = saucier("cook", "transformer-nano", "--data", pair_file, "--held-out", held_out, "--out", out,
                     "--no-calibrate",
                     "tokenizer.vocab=60", "evaluation.beams=2", *small("model.length"))
    assert answer.code == 0, answer.err
    results = read_results(out)
    assert results.data.truncated_rows == 0
    assert {score.name for score in results.scores} == {"BLEU", "chrF"}
    assert results.data.held_out.documents == 2
    assert results.samples[0].reference == "spills milk"
    found = json.loads(saucier("evaluate", out, pair_file, "--limit", 2, "--json").out)
    assert "2 held-out pairs" in found["scores"][0]["note"]


@pytest.mark.slow
def test_the_loss_stands_beside_that_of_frequencies(saucier: Saucier, pair_file: Path, tmp_path: Path) -> None:
    out, held_out = tmp_path / "run", tmp_path / "held_out.tsv"
    held_out.write_text("there\tback\nmilk spills\tspills milk\nthe cat tastes\ttastes cat the\n", encoding="utf-8")
    answer = saucier("cook", "transformer-nano", "--data", pair_file, "--held-out", held_out, "--out", out,
                     "--no-calibrate", "tokenizer.vocab=60", "evaluation.beams=1",
                     *small("model.length", "evaluation.baselines"))
    assert answer.code == 0, answer.err
    found, tokenizer = read_results(out).held_out, load_tokenizer(out / "tokenizer")

    def targets(path: Path) -> list[int]:
        written = [line.split("\t")[1] for line in path.read_text(encoding="utf-8").splitlines()[1:]]
        return [token for text in written for token in (*tokenizer.encode(text, False), tokenizer.sep_id)]

    learned, asked = targets(pair_file), targets(held_out)
    total = len(learned) + 0.5 * tokenizer.vocab_size
    surprise = [-math.log((learned.count(token) + 0.5) / total) for token in asked]
    assert found.by_frequency == pytest.approx(sum(surprise) / len(asked))
    assert f"each target by its frequency alone: {found.by_frequency:.4f} nats" in answer.out


def test_several_files_follow_data(saucier: Saucier, text_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("another file, with words of its own.\n" * 20, encoding="utf-8")
    answer = saucier("train", "shakespeare", "--data", text_file, other, "--out", tmp_path / "run", "--no-calibrate",
                     *small())
    assert answer.code == 0, answer.err
    assert "kitchen.txt, other.txt" in answer.out
    assert not (tmp_path / "run" / "evaluation.json").exists()


@pytest.mark.slow
def test_cook_finishes_what_train_began(saucier: Saucier, text_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert saucier("train", "shakespeare", "--data", text_file, "--out", out, "--no-calibrate", *small()).code == 0
    answer = saucier("cook", out)
    assert answer.code == 0
    assert "as trained before" in answer.out
    assert (out / "report.html").is_file()
    assert read_passport(out).parts == 2


def test_training_can_start_from_another_run(saucier: Saucier, text_file: Path, cooked: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ("train", "shakespeare", "--data", text_file, "--out", out, "--from", cooked, "--no-calibrate")
    answer = saucier(*arguments, *small("training.steps"), "training.steps=1")
    assert answer.code == 0
    assert f"from {cooked}" in answer.out
    assert (out / "tokenizer" / "tokenizer.json").read_bytes() == (cooked / "tokenizer" / "tokenizer.json").read_bytes()
    assert read_passport(out).start == str(cooked)
    first = json.loads((out / "metrics.jsonl").read_text().splitlines()[0])["loss"]
    begun = json.loads((cooked / "metrics.jsonl").read_text().splitlines()[0])["loss"]
    assert first < begun


def test_a_finished_run_is_not_touched(saucier: Saucier, cooked: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in cooked.rglob("*") if path.is_file()}
    answer = saucier("cook", cooked)
    assert (answer.code, "is finished" in answer.out) == (0, True)
    assert {path: path.stat().st_mtime_ns for path in cooked.rglob("*") if path.is_file()} == before


def test_rerun_gives_the_same_weights(saucier: Saucier, cooked: Path, tmp_path: Path) -> None:
    answer = saucier("rerun", cooked, "--out", tmp_path / "again")
    assert answer.code == 0, answer.err
    assert "the results are equal" in answer.out
    assert read_passport(tmp_path / "again").outcome == read_passport(cooked).outcome


@pytest.mark.slow
def test_rerun_says_when_the_data_changed(saucier: Saucier, text_file: Path, tmp_path: Path) -> None:
    text = tmp_path / "own.txt"
    text.write_text(text_file.read_text(), encoding="utf-8")
    out = tmp_path / "run"
    assert saucier("cook", "shakespeare", "--data", text, "--out", out, "--no-calibrate", *small()).code == 0
    text.write_text(text_file.read_text().replace("soup", "beer"), encoding="utf-8")
    answer = saucier("rerun", out)
    assert answer.code == 1
    assert "the results differ" in answer.out
    assert "data: train was" in answer.out
    assert (tmp_path / "run-again").is_dir()


@pytest.mark.nightly
def test_two_processes_cook_one_run(text_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "saucier",
               "cook", "shakespeare", "--data", str(text_file), "--out", str(out), "--no-calibrate",
               "training.dtype=float32", *TINY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert read_results(out).steps == 4
    assert done.stdout.count("evaluate ") == 1


@pytest.mark.slow
def test_standard_input_is_kept_so_that_the_run_can_be_repeated(text_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    python = [sys.executable, "-m", "saucier"]
    command = [*python, "cook", "shakespeare", "--data", "-", "--out", str(out), "--no-calibrate", *TINY]
    first = subprocess.run(command, input=text_file.read_bytes(), capture_output=True, timeout=120, check=False)
    assert first.returncode == 0, first.stderr
    assert (out / "input.txt").read_bytes() == text_file.read_bytes()
    again = subprocess.run([*python, "rerun", str(out)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                           timeout=120, check=False)
    assert again.returncode == 0, again.stderr
    assert "the results are equal" in again.stdout


@pytest.mark.slow
def test_nothing_on_standard_input_leaves_no_folder(tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "saucier", "cook", "shakespeare", "--data", "-", "--out", str(out)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith("error: -: is empty")
    assert not out.exists()
