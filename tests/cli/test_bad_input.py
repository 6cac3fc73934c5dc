"""Bad input gets one clear line (what, where, remedy) and exit code 2, and nothing that was there is lost."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from tests.cli.conftest import TINY, Saucier, rhymes

NANO = ("cook", "shakespeare", "--no-calibrate")


def recipe_file(folder: Path, change: tuple[str, str] = ("", "")) -> Path:
    """Write a recipe of one's own, with one thing changed."""
    text = """name: own
about: A test
model:
  family: gpt2
  dim: 32
  layers: 1
  heads: 2
  length: 32
tokenizer: {kind: bytes}
objective: {kind: causal}
training:
  steps: 2
  length: 32
"""
    assert change[0] in text
    path = folder / "own.yaml"
    path.write_text(text.replace(*change) if change[0] else text, encoding="utf-8")
    return path


@pytest.mark.parametrize(("change", "line", "words"), [
    (("  steps: 2", "  stepz: 2"), 12, ["training.stepz", "did you mean 'steps'?"]),
    (("family: gpt2", "family: gpt22"), 4, ["model.family", "did you mean 'gpt2'?"]),
    (("kind: bytes", "kind: byts"), 9, ["tokenizer.kind", "did you mean 'bytes'?"]),
    (("dim: 32", "dimm: 32"), 5, ["model.dimm", "did you mean 'dim'?"]),
    (("dim: 32", "dim: wide"), 5, ["model.dim", "integer", "'wide'"]),
    (("steps: 2", "steps: -2"), 12, ["training.steps", "greater than 0", "-2"]),
    (("heads: 2", "heads: 5"), 3, ["model.decoder.blocks.0.attention", "does not divide into 5 heads"]),
    (("  length: 32\n", "  length: 16\n"), 13,
     ["training.length", "32 tokens", "16 learned positions", "training.length=16"]),
    (("kind: causal", "kind: masked"), 10, ["objective.kind", "only looks back"]),
    (("about: A test", "about: A test\nabout: B"), 3, ["about", "second time", "line 2"]),
    (("model:", "model: &x\nmodel2: *x\nmodel3:"), 4, ["aliases"]),
    (("about: A test", "about: !!python/name:os.system x"), 2, ["about", "python/name"]),
    (("about: A test", "about: [A"), 3, ["not YAML"]),
])
def test_a_wrong_recipe(saucier: Saucier, tmp_path: Path, change: tuple[str, str], line: int, words: list[str]) -> None:
    if change[0].startswith("  length"):
        path = recipe_file(tmp_path)
        path.write_text(path.read_text().replace(*change, 1), encoding="utf-8")
    else:
        path = recipe_file(tmp_path, change)
    answer = saucier("cook", path, "--out", tmp_path / "run")
    assert answer.code == 2
    assert answer.error.startswith(f"{path}:{line}: ")
    assert [word for word in words if word not in answer.error] == []
    assert not (tmp_path / "run").exists()


def test_two_faults_are_two_lines(saucier: Saucier, tmp_path: Path) -> None:
    path = recipe_file(tmp_path, ("  steps: 2\n  length: 32", "  stepz: 2\n  length: -1"))
    answer = saucier("show", path)
    assert answer.code == 2
    assert [line.split(": ")[:3] for line in sorted(answer.err.splitlines())] == [
        ["error", f"{path}:12", "training.stepz"], ["error", f"{path}:13", "training.length"]]


@pytest.mark.parametrize(("word", "words"), [
    ("training.stepz=3", ["command line: training.stepz", "did you mean 'steps'?"]),
    ("training.optimizer.kind=mun", ["training.optimizer.kind", "did you mean 'muon'?"]),
    ("training.steps.deep=1", ["training.steps.deep", "no such place"]),
    ("training.dtype=bf16", ["training.dtype", "did you mean 'bfloat16'?"]),
    ("model.length=[", ["model.length", "cannot read"]),
    ("training.length=4096", ["training.length", "learned positions"]),
    ("trainin", ["'trainin'", "key.sub=value"]),
])
def test_a_wrong_override(saucier: Saucier, word: str, words: list[str]) -> None:
    answer = saucier(*NANO, word)
    assert answer.code == 2
    assert [one for one in words if one not in answer.error] == []


@pytest.mark.parametrize("verb", ["show", "plan", "cook", "diff", "attention", "evaluate", "finetune"])
def test_names_that_no_file_can_have(saucier: Saucier, verb: str) -> None:
    """200 letters of two bytes each are more than a folder takes."""
    name = "\u00e9" * 200
    answer = saucier(verb, name, *([name] if verb == "diff" else []))
    assert answer.code == 2 and name in answer.error and "; " in answer.error


@pytest.mark.parametrize(("verb", "recipe", "word", "told"), [
    ("cook", "longformer-nano", "model.window=0", "model.window: 0 neighbours cannot stand half on each side; give"),
    ("plan", "longformer-nano", "model.window=5", "model.window: 5 neighbours cannot stand half on each side; give"),
    ("show", "longformer-nano", "model.window=[4,4]", "model.window: 2 windows for 4 layers; give one number for all"),
    ("show", "longformer-nano", "model.layers=0", "model.window: 4 windows for 0 layers; give one number for all"),
    ("show", "led-nano", "model.window=0", "model.window: 0 neighbours cannot stand half on each side; give"),
    ("show", "t5-nano", "model.dim=0", "model.dim: no model has such a size: 0.0 cannot be raised"),
    ("show", "gpt-nano", f"training.length={10**30}", "training.length: should be a whole number of at most 64 bits"),
    ("show", "reformer-nano", "model.layers=0", "model.layers: a stack has at least one layer; give 1"),
    ("show", "sparse-transformer-nano", "model.layers=0", "model.layers: a stack has at least one layer; give 1"),
])
def test_hyper_parameters_that_make_no_model(saucier: Saucier, tmp_path: Path, verb: str, recipe: str, word: str,
                                             told: str) -> None:
    more = ("--out", tmp_path / "run") if verb == "cook" else ()
    answer = saucier(verb, recipe, word, *more)
    assert answer.code == 2
    assert told in answer.error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("arguments", "words"), [
    (("cook", "gpt-nono"), ["'gpt-nono'", "did you mean 'gpt-nano'?"]),
    (("cook", "nowhere.yaml"), ["nowhere.yaml", "no such recipe file"]),
    (("cok",), ["No such command 'cok'", "cook"]),
    (("cook",), ["which recipe?", "saucier recipes"]),
    (("cook", "gpt-nano", "--outt", "x"), ["No such option", "--out"]),
    (("generate", "nowhere"), ["nowhere", "no such folder"]),
    (("evaluate", "nowhere"), ["nowhere", "no such folder"]),
    (("rerun", "nowhere"), ["nowhere", "no such folder"]),
    (("tokenizer", "inspect", "nowhere", "x"), ["nowhere", "no such folder"]),
    (("tokenizer", "train", "--kind", "bpee", "--out", "nowhere"), ["bpee", "did you mean 'bpe'?"]),
    (("show", "nowhere/"), ["nowhere"]),
    (("generate", "x", "--tokens", "many"), ["--tokens", "integer"]),
])
def test_wrong_arguments(saucier: Saucier, arguments: tuple[str, ...], words: list[str]) -> None:
    answer = saucier(*arguments)
    assert answer.code == 2
    assert [word for word in words if word not in answer.error] == []


def write(folder: Path, name: str, content: bytes) -> Path:
    """Write a data file."""
    path = folder / name
    path.write_bytes(content)
    return path


GOOD = rhymes(30).encode()


@pytest.mark.parametrize(("name", "content", "words"), [
    ("empty.txt", b"", ["empty.txt"]),
    ("white.txt", b"  \n\n \t\n", ["white.txt", "no text"]),
    ("damaged.txt", GOOD + "Soupe à l'oi".encode() + b"\xff" + "gnon à la crème\n".encode(),
     ["damaged.txt", f"byte {len(GOOD) + 13}", "UTF-8"]),
    ("binary.txt", b"the cook\x00\x01\x02" * 20, ["binary.txt", "byte 8"]),
    ("picture.txt", b"\x89PNG\r\n\x1a\n" + bytes(range(256)), ["picture.txt", "byte"]),
    ("rows.jsonl", b'{"text": "the cook"}\n{"text": "the cat"\n', ["rows.jsonl", "2"]),
    ("array.jsonl", b'{"text": "the cook"}\n["the cat"]\n', ["array.jsonl", "2"]),
    ("column.jsonl", b'{"txt": "the cook", "n": 1}\n', ["column.jsonl", "column"]),
    ("table.csv", b'text,n\n"the cook,1\n', ["table.csv"]),
    ("short.txt.gz", gzip.compress(GOOD)[:-20], ["short.txt.gz"]),
    ("not.txt.gz", GOOD, ["not.txt.gz"]),
    ("table.parquet", GOOD, ["table.parquet"]),
])
def test_wrong_data(saucier: Saucier, tmp_path: Path, name: str, content: bytes, words: list[str]) -> None:
    path = write(tmp_path, name, content)
    answer = saucier(*NANO, "--data", path, "--out", tmp_path / "run", *TINY)
    assert answer.code == 2, answer.err
    assert [word for word in words if word not in answer.error] == []
    assert path.read_bytes() == content


@pytest.mark.slow
@pytest.mark.parametrize(("name", "content", "encoding"), [
    ("latin.txt", GOOD + "Soupe à l'oignon\n".encode("latin-1"), "cp1252"),
    ("utf16.txt", rhymes(3).encode("utf-16"), "utf-16")])
def test_text_that_is_not_utf8_is_read_and_named(saucier: Saucier, tmp_path: Path, name: str, content: bytes,
                                                 encoding: str) -> None:
    path = write(tmp_path, name, content)
    answer = saucier(*NANO, "--data", path, "--out", tmp_path / "run", *TINY)
    assert (answer.code, f"{name}: encoding {encoding}" in answer.out) == (0, True)
    answer = saucier(*NANO, "--data", path, "--out", tmp_path / "other", *TINY, "--encoding", "utf-8")
    assert (answer.code, f"{name}: byte" in answer.error) == (2, True)


@pytest.mark.parametrize("name", ["missing.txt", "*.nothing"])
def test_missing_data(saucier: Saucier, tmp_path: Path, name: str) -> None:
    answer = saucier(*NANO, "--data", tmp_path / name, "--out", tmp_path / "run")
    assert answer.code == 2
    assert name in answer.error


def test_a_folder_of_data(saucier: Saucier, tmp_path: Path) -> None:
    answer = saucier(*NANO, "--data", tmp_path, "--out", tmp_path / "run")
    assert (answer.code, str(tmp_path) in answer.error) == (2, True)


def test_a_vocabulary_larger_than_the_data_gives(saucier: Saucier, tmp_path: Path) -> None:
    path = write(tmp_path, "small.txt", GOOD)
    answer = saucier("cook", "gpt-nano", "--data", path, "--out", tmp_path / "run", "tokenizer.vocab=50000")
    assert answer.code == 2
    assert "tokenizer.vocab" in answer.error
    assert "50000" in answer.error.replace(",", "")


def test_a_model_with_fewer_vectors_than_characters(saucier: Saucier, tmp_path: Path) -> None:
    path = write(tmp_path, "small.txt", GOOD)
    answer = saucier(*NANO, "--data", path, "--out", tmp_path / "run", "model.vocab=10")
    assert answer.code == 2
    assert "model.vocab" in answer.error


def test_pairs_are_not_text_and_text_is_not_pairs(saucier: Saucier, tmp_path: Path, pair_file: Path) -> None:
    answer = saucier(*NANO, "--data", pair_file, "--out", tmp_path / "run")
    assert (answer.code, "data.column" in answer.error) == (2, True)
    text = write(tmp_path, "small.txt", GOOD)
    answer = saucier("cook", "transformer-nano", "--data", text, "--out", tmp_path / "run2")
    assert (answer.code, "small.txt" in answer.error) == (2, True)


def test_a_run_of_another_recipe_is_refused(saucier: Saucier, cooked: Path, text_file: Path) -> None:
    before = sorted(path.stat().st_mtime_ns for path in cooked.rglob("*"))
    answer = saucier(*NANO, "--data", text_file, "--out", cooked, *TINY, "training.batch=9")
    assert answer.code == 2
    assert [word for word in (str(cooked), "training.batch", "4", "9", "--out") if word not in answer.error] == []
    assert sorted(path.stat().st_mtime_ns for path in cooked.rglob("*")) == before


def test_other_samples_of_a_finished_run_are_refused(saucier: Saucier, cooked: Path, text_file: Path) -> None:
    answer = saucier(*NANO, "--data", text_file, "--out", cooked, *TINY, "sampling.tokens=99")
    assert (answer.code, "sampling.tokens" in answer.error) == (2, True)


def test_a_folder_with_other_things_is_refused(saucier: Saucier, text_file: Path, tmp_path: Path) -> None:
    write(tmp_path, "thesis.tex", b"years of work")
    answer = saucier(*NANO, "--data", text_file, "--out", tmp_path)
    assert (answer.code, "not a run" in answer.error) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_place_of_the_folder_is_refused(saucier: Saucier, text_file: Path) -> None:
    answer = saucier(*NANO, "--data", text_file, "--out", text_file)
    assert (answer.code, "is a file" in answer.error) == (2, True)
    answer = saucier(*NANO, "--data", text_file, "--out", text_file / "deeper" / "run")
    assert (answer.code, answer.error.startswith(f"{text_file}: is a file")) == (2, True)


def test_an_unfinished_run_cannot_be_repeated(saucier: Saucier, text_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert saucier("train", "shakespeare", "--data", text_file, "--out", out, "--no-calibrate", *TINY).code == 0
    answer = saucier("rerun", out)
    assert (answer.code, "not finished" in answer.error) == (2, True)


def test_a_prompt_longer_than_the_model(saucier: Saucier, cooked: Path) -> None:
    answer = saucier("generate", cooked, "the cook stirs the sauce and " * 9)
    assert answer.code == 2
    assert "32" in answer.error


def test_a_model_of_another_shape_to_start_from(saucier: Saucier, cooked: Path, text_file: Path,
                                                tmp_path: Path) -> None:
    answer = saucier("train", "shakespeare", "--data", text_file, "--out", tmp_path / "run", "--from", cooked,
                     "--no-calibrate",
                     *TINY, "model.layers=2")
    assert answer.code == 2
    assert "the model to begin with has decoder.layers.times = 1, and this one 2" in answer.error


def test_a_truncated_checkpoint_is_said_and_passed_over(saucier: Saucier, text_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ("train", "shakespeare", "--data", text_file, "--out", out, "--no-calibrate", *TINY,
                 "training.save_every=2")
    assert saucier(*arguments).code == 0
    weights = out / "checkpoints" / "step-4" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:1000])
    answer = saucier(*arguments)
    assert answer.code == 0
    assert "step-4: damaged" in answer.err
    assert "resumed from" in answer.err
    assert weights.read_bytes() == whole
