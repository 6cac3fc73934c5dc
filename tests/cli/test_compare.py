"""`saucier compare`: whole comparisons on a few kilobytes, what they leave behind, and every bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Answer, Saucier

from saucier.cli import main
from saucier.objectives.config import ReplaceSpans
from saucier.recipes import recipe
from saucier.text.rows.store import TokenStore

TINY = ("tokenizer.vocab=290", "model.dim=16", "model.heads=2", "model.layers=1", "training.length=32",
        "training.batch=4", "training.dtype=float32", "data.document=line")


@pytest.fixture(scope="module")
def compared(text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished comparison. Nobody may change it."""
    out = tmp_path_factory.mktemp("comparisons") / "first"
    assert main(["compare", "gpt-nano", "llama-nano", "--data", str(text_file), "--out", str(out), "--seeds", "2",
                 "--budget", "tokens=512", "--threads", "1", "llama-nano:model.kv_heads=1", *TINY]) == 0
    return out


@pytest.mark.slow
def test_every_run_is_an_ordinary_run_folder(compared: Path) -> None:
    for arm in ("gpt-nano", "llama-nano"):
        for seed in (0, 1):
            folder = compared / arm / f"seed-{seed}"
            found = recipe(folder / "recipe.yaml")
            assert (found.training.seed, found.training.steps) == (seed, 4)  # 512 / (4 · 32)
            assert (folder / "evaluation.json").is_file()


def test_all_runs_learn_the_same_tokens_in_the_same_order(compared: Path) -> None:
    """One tokenizer, and one held-out text for all seeds and arms, though the share of documents is drawn."""
    for part in ("train", "held_out"):
        stores = [TokenStore(path).tokens for path in sorted(compared.glob(f"*/seed-*/store/{part}"))]
        assert len(stores) == 4
        assert all(np.array_equal(one, stores[0]) for one in stores)


def test_what_came_out_is_written_down(compared: Path) -> None:
    found = json.loads((compared / "comparison.json").read_text())
    assert [arm["name"] for arm in found["arms"]] == ["gpt-nano", "llama-nano"]
    for arm in found["arms"]:
        bits = [json.loads((compared / arm["name"] / f"seed-{seed}" / "evaluation.json").read_text())["held_out"][
            "bits_per_byte"] for seed in (0, 1)]
        assert arm["scores"] == pytest.approx(bits, rel=2e-3)  # blocks end where rows do; the sums are the same
        assert arm["tokens"] == 512
        assert arm["six"] == 6 * arm["parameters"] * 512
    assert found["pairs"][0]["verdict"] == "not enough runs to tell"
    assert found["pairs"][0]["reason"].startswith("fewer than 3 seeds")


def test_the_report_stands_alone(compared: Path) -> None:
    page = (compared / "report.html").read_text()
    assert "against FLOPs" in page
    assert "gpt-nano – llama-nano" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")


@pytest.mark.slow
def test_a_page_says_what_came_out_and_keeps_what_people_wrote(compared: Path, saucier: Saucier, text_file: Path,
                                                               tmp_path: Path) -> None:
    """Figures come from the runs; nothing on it names a place on this machine."""
    page, words = tmp_path / "pages" / "widths.md", ("--seeds", "2", "--budget", "tokens=512", "--threads", "1")
    again = ("compare", "gpt-nano", "llama-nano", "--data", text_file, "--out", compared, *words,
             "llama-nano:model.kv_heads=1", *TINY, "--page", page)
    assert saucier(*again).code == 0
    found = json.loads((compared / "comparison.json").read_text())
    first = page.read_text()
    assert all(f"| {arm['name']} | {arm['mean']:.4f} |" in first for arm in found["arms"])
    assert str(text_file.parent) not in first
    assert f"--data {text_file.name}" in first
    drawn = page.with_suffix(".svg").read_text()
    assert "llama-nano" in drawn
    assert "var(--" not in drawn  # it stands alone
    page.write_text(first.replace("Nobody has yet written what these figures say.", "Both are small."))
    assert saucier(*again).code == 0
    assert page.read_text().endswith("## What it says\n\nBoth are small.\n")


@pytest.mark.slow
def test_it_goes_on_with_more_seeds(compared: Path, saucier: Saucier, text_file: Path, tmp_path: Path) -> None:
    """What is finished is not done again, and the same command with a third seed adds it."""
    import shutil

    out = tmp_path / "again"
    shutil.copytree(compared, out)
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/seed-*/checkpoints/*/model.safetensors")}
    answer = saucier("compare", "gpt-nano", "llama-nano", "--data", text_file, "--out", out, "--seeds", "3",
                     "--budget", "tokens=512", "--threads", "1", "llama-nano:model.kv_heads=1", "--json", *TINY)
    assert answer.code == 0, answer.err
    assert len(json.loads(answer.out)["arms"][0]["scores"]) == 3
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_another_budget_in_the_same_folder_is_refused(compared: Path, saucier: Saucier, text_file: Path) -> None:
    answer = saucier("compare", "gpt-nano", "llama-nano", "--data", text_file, "--out", compared, "--seeds", "2",
                     "--budget", "tokens=1024", "llama-nano:model.kv_heads=1", *TINY)
    assert answer.code == 2
    assert "holds a run of another recipe: training.steps is 4 there, and 8 here" in answer.error


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return two tables of texts about milk and about soup."""
    folder = tmp_path_factory.mktemp("labelled")
    for name, count in (("train", 32), ("dev", 8)):
        rows = "".join(f"{'dairy' if n % 2 else 'meal'}\ta guest spills {'milk' if n % 2 else 'some soup'} {n}\n"
                       for n in range(count))
        (folder / f"{name}.tsv").write_text(f"label\ttext\n{rows}", encoding="utf-8")
    return folder / "train.tsv", folder / "dev.tsv"


@pytest.mark.slow
def test_different_objectives_are_compared_by_fine_tuning(saucier: Saucier, text_file: Path, tmp_path: Path,
                                                          labelled: tuple[Path, Path]) -> None:
    """An encoder, decoders with and without a prefix and an encoder-decoder, and one tokenizer for all."""
    train, dev = labelled
    answer = saucier("compare", "gpt-nano", "bert-nano", "t5-nano", "prefix-lm-nano", "--data", text_file,
                     "--out", tmp_path / "c", "--seeds", "1", "--budget", "tokens=512", "--threads", "1", "--json",
                     *TINY, "t5-nano:model.head_dim=8", "t5-nano:model.hidden=32", "prefix-lm-nano:model.head_dim=8",
                     "prefix-lm-nano:model.hidden=32", "bert-nano:model.length=32",
                     "gpt-nano:model.length=64", "tokenizer.vocab=296", "--judge", f"classify:{train},{dev}")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert found["measure"]["name"] == "accuracy"
    assert [len(arm["scores"]) for arm in found["arms"]] == [1, 1, 1, 1]
    assert all(0.0 <= arm["mean"] <= 1.0 for arm in found["arms"])
    assert len(found["pairs"]) == 6
    assert (tmp_path / "c" / "gpt-nano" / "seed-0" / "classify" / "metrics.jsonl").is_file()


@pytest.mark.slow
def test_losses_of_different_objectives_are_shown_and_not_compared(saucier: Saucier, stories_file: Path,
                                                                   tmp_path: Path) -> None:
    answer = saucier("compare", "gpt-nano", "bert-nano", "--data", stories_file, "--out", tmp_path / "c",
                     "--seeds", "1", "--budget", "tokens=256", "--threads", "1", *TINY, "model.length=32")
    assert answer.code == 0, answer.err
    assert "losses of different objectives cannot be compared" in answer.out
    assert "verdict" not in answer.out


@pytest.mark.slow
def test_words_are_tagged_by_every_model(saucier: Saucier, text_file: Path, tmp_path: Path) -> None:
    """Units are sentences, weighed by their words; the score is that of the fine-tuning itself."""
    lines = [f"{who}\tNAME\nspills\tVERB\nmilk\tNOUN\n" for who in ("Ann", "Ben", "Cleo")]
    train, dev = tmp_path / "train.tsv", tmp_path / "dev.tsv"
    train.write_text("\n".join(lines * 8), encoding="utf-8")
    dev.write_text("\n".join(lines[:2]), encoding="utf-8")
    words = ("compare", "gpt-nano", "llama-nano", "--data", text_file, "--seeds", "1", "--budget", "tokens=512",
             "--threads", "1", *TINY, "--json")
    answer = saucier(*words, "--out", tmp_path / "c", "--judge", f"tag:{train},{dev}")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["measure"]["name"] == "tag accuracy"
    run = tmp_path / "c/gpt-nano/seed-0"
    found = json.loads((run / "scores.json").read_text())
    assert found["weights"] == [3.0, 3.0] and all(0 <= value <= 3 for value in found["values"])
    told = json.loads((run / "tag/scores.json").read_text())["held-out"]["scores"]
    accuracy = next(one["value"] for one in told if one["name"] == "tag accuracy")
    assert sum(found["values"]) / 6 == pytest.approx(accuracy)
    dev.write_text("Dan\tOTHER\n", encoding="utf-8")
    assert "OTHER" in refused(saucier, *words[1:], "--out", tmp_path / "d", "--judge", f"tag:{train},{dev}")


@pytest.mark.slow
def test_models_that_learned_otherwise_are_asked_for_the_same(saucier: Saucier, text_file: Path,
                                                              tmp_path: Path) -> None:
    """All go on with the same gaps for a few updates, from their own weights, and are asked for the same."""
    study = tmp_path / "rates.yaml"
    line = "- {{name: r{0}, recipe: t5-nano, changes: {{objective.rate: 0.{0}}}}}\n"
    arms = "".join(line.format(rate) for rate in (15, 50))
    judge = "judge: {kind: adapt, objective: {kind: replace_spans, rate: 0.15}, steps: 3}\n"
    study.write_text(f"budget: {{kind: tokens, amount: 512}}\nseeds: 1\n{judge}arms:\n{arms}", encoding="utf-8")
    tiny = (*TINY, "model.head_dim=8", "model.hidden=32", "tokenizer.vocab=60")
    answer = saucier("compare", study, "--data", text_file, "--out", tmp_path / "c", "--threads", "1", "--json", *tiny,
                     "--page", tmp_path / "page.md")
    assert answer.code == 0, answer.err
    scores = {name: json.loads((tmp_path / "c" / name / "seed-0" / "scores.json").read_text())
              for name in ("r15", "r50")}
    assert scores["r15"]["weights"] == scores["r50"]["weights"]
    assert len(json.loads(answer.out)["pairs"]) == 1
    assert "gone on for 3 updates with `{kind: replace_spans, rate: 0.15}`" in (tmp_path / "page.md").read_text()
    for name in scores:
        own = tmp_path / "c" / name / "seed-0"
        assert recipe(own / "adapted" / "recipe.yaml").objective == ReplaceSpans(rate=0.15)
        assert json.loads((own / "adapted" / "passport.json").read_text())["start"] == str(own)
    study.write_text(study.read_text() + "- {name: encoder, recipe: bert-nano}\n", encoding="utf-8")
    said = refused(saucier, study, "--data", text_file, "--out", tmp_path / "d", *TINY)
    assert "encoder cannot be asked for it" in said


def refused(saucier: Saucier, *words: object) -> str:
    """Return the one line of a comparison that is refused before anything is trained."""
    answer: Answer = saucier("compare", *words)
    assert answer.code == 2, answer.out
    assert not any(line.startswith("1/") for line in answer.out.splitlines())
    return answer.error


@pytest.mark.slow
def test_bad_input_is_one_line(saucier: Saucier, tmp_path: Path, text_file: Path, pair_file: Path) -> None:
    both, text = ("gpt-nano", "llama-nano"), ("--data", text_file, "--out", tmp_path / "c", *TINY)
    enough = ("--budget", "tokens=1e4")
    assert "unknown budget 'token'; did you mean 'tokens'?" in refused(saucier, *both, "--budget", "token=1")
    assert "'much' is no number above zero" in refused(saucier, *both, "--budget", "tokens=much")
    assert "'-5' is no number above zero" in refused(saucier, *both, "--budget", "flops=-5")
    assert "there is no budget" in refused(saucier, *both)
    assert "1 recipe; give two or more" in refused(saucier, "gpt-nano", *enough)
    assert "no recipe has the name 'gtp-nano'" in refused(saucier, "gtp-nano", "gpt-nano", *enough)
    assert "seeds: " in refused(saucier, *both, *enough, "--seeds", "0")
    assert "no judge is called 'taste'" in refused(saucier, *both, *enough, "--judge", "taste")
    assert "the name 'lama-nano'" in refused(saucier, *both, *enough, "lama-nano:model.dim=8", *text)
    assert "100 tokens do not pay one step of gpt-nano, which takes 128" in refused(
        saucier, *both, "--budget", "tokens=100", *text, "llama-nano:model.kv_heads=1")
    assert "gpt-nano learns from text, and transformer-nano from pairs" in refused(
        saucier, "gpt-nano", "transformer-nano", *enough, "--data", pair_file)
    missing = tmp_path / "missing.txt"
    assert str(missing) in refused(saucier, *both, *enough, "--data", missing, "--out", tmp_path / "d")
    assert "is a file" in refused(saucier, *both, *enough, "--out", text_file)
    table = tmp_path / "table.csv"
    table.write_text("words;number\ngood, soup;1\n", encoding="utf-8")
    assert "There are words, number; say which" in refused(
        saucier, *both, *enough, "--data", table, "--delimiter", "semicolon", "--out", tmp_path / "e", *TINY)
    assert "'klingon' is no encoding" in refused(saucier, *both, *enough, *text, "--encoding", "klingon")


def test_labelled_texts_are_checked_before_training(saucier: Saucier, tmp_path: Path, text_file: Path,
                                                    labelled: tuple[Path, Path]) -> None:
    train, dev = labelled
    words = ("gpt-nano", "llama-nano", "--budget", "tokens=1e4", "--data", text_file, "--out", tmp_path / "c", *TINY)
    other = tmp_path / "dev.tsv"
    other.write_text("label\ttext\nmeal\tsoup\ndessert\tcake\n", encoding="utf-8")
    error = refused(saucier, *words, "--judge", f"classify:{train},{other}")
    assert "dev.tsv, line 3: label 'dessert' is not among those of" in error
    other.write_text("label\ttext\nmeal\t\n", encoding="utf-8")
    assert "line 2: has no text" in refused(saucier, *words, "--judge", f"classify:{train},{other}")
    other.write_text("label\ttext\nmeal\tsoup\n", encoding="utf-8")
    assert "has 1 class;" in refused(saucier, *words, "--judge", f"classify:{other},{dev}")


@pytest.mark.slow
def test_a_study_file_says_the_same(saucier: Saucier, tmp_path: Path, text_file: Path) -> None:
    """Arms, changes, budget and seeds stand in it; the command line goes before it."""
    study = tmp_path / "widths.yaml"
    study.write_text("name: widths\nabout: Is wider better?\nseeds: 1\nbudget: {kind: tokens, amount: 256}\n"
                     "changes: {training.batch: 2}\n"
                     "published: {paper: a paper, measure: GLUE}\n"
                     "arms:\n- {name: narrow, recipe: gpt-nano, published: 70}\n"
                     "- {name: wide, recipe: gpt-nano, changes: {model.dim: 24}, published: 75.5}\n", encoding="utf-8")
    tiny = [word for word in TINY if not word.startswith(("training.batch", "model.dim"))]
    answer = saucier("compare", study, "--data", text_file, "--out", tmp_path / "c", "--threads", "1",
                     "narrow:model.dim=16", *tiny)
    assert answer.code == 0, answer.err
    assert recipe(tmp_path / "c/wide/seed-0/recipe.yaml").training.steps == 4
    assert "75.5" in answer.out
    study.write_text(study.read_text().replace("seeds: 1", "seedz: 1"), encoding="utf-8")
    assert "widths.yaml:3: seedz: unknown key; did you mean 'seeds'?" in refused(saucier, study)


def test_runs_are_points_of_a_scaling_law(compared: Path) -> None:
    """What is read of a run is what its files say."""
    from saucier.jobs.comparison.scaling import finished_runs, read_points

    runs = finished_runs([compared])
    assert [run.relative_to(compared).as_posix() for run in runs] == [
        "gpt-nano/seed-0", "gpt-nano/seed-1", "llama-nano/seed-0", "llama-nano/seed-1"]
    for run, point in zip(runs, read_points(runs), strict=True):
        results = json.loads((run / "evaluation.json").read_text())
        assert (point.loss, point.flops) == (results["held_out"]["loss"], results["cost"]["training_flops"])
        assert point.tokens == 512


def test_a_scaling_law_asks_for_runs_that_go_together(compared: Path, cooked: Path, saucier: Saucier,
                                                      tmp_path: Path) -> None:
    assert "2 runs to fit" in saucier("scaling", compared, "--by", "parameters").error
    assert "has another held-out text than" in saucier("scaling", compared, cooked).error
    assert "unknown by 'size'" in saucier("scaling", compared, "--by", "size").error
    assert f"{tmp_path}: holds no finished run" in saucier("scaling", tmp_path).error
    assert "no such folder" in saucier("scaling", tmp_path / "nothing").error


@pytest.mark.slow
def test_a_stopped_comparison_goes_on(text_file: Path, tmp_path: Path) -> None:
    """Ctrl-C in the middle of a run ends everything in one line; the same command finishes it."""
    import signal
    import subprocess
    import sys
    import time

    words = [sys.executable, "-m", "saucier", "compare", "gpt-nano", "llama-nano", "--data", str(text_file), "--out",
             str(tmp_path / "c"), "--seeds", "1", "--budget", "tokens=25600", "--threads", "1",
             "llama-nano:model.kv_heads=1", "training.save_every=5", *TINY]
    first = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while first.poll() is None and not list((tmp_path / "c").glob("gpt-nano/seed-0/checkpoints/step-*")):
        time.sleep(0.05)
    first.send_signal(signal.SIGINT)
    _, error = first.communicate(timeout=120)
    assert first.returncode == 1, error
    assert "interrupted after step" in error
    assert "Traceback" not in error
    again = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "c" / "comparison.json").is_file()
    assert json.loads((tmp_path / "c/gpt-nano/seed-0/passport.json").read_text())["parts"] == 2


@pytest.mark.nightly
def test_side_by_side_gives_the_same_scores(compared: Path, saucier: Saucier, text_file: Path, tmp_path: Path) -> None:
    """Two workers of Ray, and one run after the other: equal to the last bit."""
    pytest.importorskip("ray")
    answer = saucier("compare", "gpt-nano", "llama-nano", "--data", text_file, "--out", tmp_path / "c", "--seeds", "2",
                     "--budget", "tokens=512", "--threads", "1", "--workers", "2", "llama-nano:model.kv_heads=1", *TINY)
    assert answer.code == 0, answer.err
    one, two = (json.loads((folder / "comparison.json").read_text()) for folder in (compared, tmp_path / "c"))
    assert [arm["scores"] for arm in one["arms"]] == [arm["scores"] for arm in two["arms"]]
    assert one["pairs"] == two["pairs"]


def test_workers_need_ray(monkeypatch: pytest.MonkeyPatch, saucier: Saucier, text_file: Path, tmp_path: Path) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "ray" else find(name, *rest))
    answer = saucier("compare", "gpt-nano", "llama-nano", "--data", text_file, "--out", tmp_path / "c", "--workers",
                     "2", "--budget", "tokens=512", "llama-nano:model.kv_heads=1", *TINY)
    assert answer.code == 2
    assert answer.error == ("--workers: runs side by side need Ray, which is not installed; "
                            "pip install 'saucier[ray]', or leave it out")
