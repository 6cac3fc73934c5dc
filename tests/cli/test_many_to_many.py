"""One translator of many languages, from tables whose columns are called by them: cooked, measured, asked, exported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.cli.conftest import Saucier

import saucier as library
from saucier.cli import main
from saucier.opened import RunFolder
from saucier.recipes import recipe
from saucier.report.results import read_results
from saucier.text.rows.store import PairStore

WORDS = {"eng": ("the cook", "a guest", "stirs", "tastes", "soup", "milk"),
         "deu": ("der Koch", "ein Gast", "rührt", "probiert", "Suppe", "Milch"),
         "fra": ("le chef", "un convive", "remue", "goûte", "soupe", "lait")}
SMALL = ("tokenizer.vocab=75", "model.dim=32", "model.heads=2", "model.layers=1", "training.steps=4",
         "training.batch=8", "training.length=24", "training.events=off", "evaluation.beams=1", "--no-calibrate")
WAYS = {"eng → deu", "deu → eng", "eng → fra", "fra → eng"}


def table(path: Path, source: str, target: str, numbers: range) -> Path:
    """Write sentences of three words and a number in two languages."""
    def text(language: str, n: int) -> str:
        words = WORDS[language]
        return f"{words[n % 2]} {words[2 + n // 2 % 2]} {words[4 + n // 4 % 2]} {n}"

    rows = "".join(f"{text(source, n)}\t{text(target, n)}\n" for n in numbers)
    path.write_text(f"{source}\t{target}\n{rows}", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of tables."""
    place = tmp_path_factory.mktemp("tables")
    table(place / "eng-deu.tsv", "eng", "deu", range(80))
    table(place / "eng-fra.tsv", "eng", "fra", range(100, 140))
    return place


@pytest.fixture(scope="module")
def run(tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run of one translator."""
    out = tmp_path_factory.mktemp("runs") / "m2m"
    assert main(["cook", "m2m-nano", "--data", str(tables / "eng-*.tsv"), "--out", str(out), *SMALL,
                 "sampling.samples=4"]) == 0
    return out


@pytest.mark.slow
def test_each_direction_is_counted_scored_and_shown(run: Path) -> None:
    results = read_results(run)
    counts = {one.name: one for one in results.data.directions}
    assert counts.keys() == WAYS
    assert counts["eng → deu"].train.documents == counts["deu → eng"].train.documents > 70
    assert counts["eng → fra"].drawn > counts["eng → fra"].train.documents / results.data.train.documents
    assert sum(one.drawn for one in counts.values()) == pytest.approx(1)
    assert all(one.held_out.documents > 0 and one.seen for one in counts.values())
    names = [score.name for score in results.scores]
    assert names[:2] == ["BLEU", "chrF"]
    assert {*names[2:]} == {f"{kind} {way}" for kind in ("BLEU", "chrF") for way in WAYS}
    each = [score.value for score in results.scores if score.name.startswith("chrF ")]
    assert results.scores[1].value == pytest.approx(sum(each) / 4)
    assert {sample.source.split(",")[0] for sample in results.samples} == WAYS
    assert "eng → deu" in (run / "samples.txt").read_text(encoding="utf-8")
    assert "fra → eng" in (run / "report.html").read_text(encoding="utf-8")


def test_no_pair_is_trained_one_way_and_held_out_the_other(run: Path) -> None:
    """By tokens, without the languages in front of them."""
    folder = RunFolder(run)

    def texts(path: Path) -> set[tuple[int, ...]]:
        store = PairStore(path)
        return {tuple(side.document(number)[1:].tolist()) for side in (store.source, store.target)
                for number in range(len(store))}

    assert not texts(folder.train_store) & texts(folder.held_out_store)


@pytest.mark.slow
def test_the_target_language_is_forced_behind_the_end_token(saucier: Saucier, run: Path, tmp_path: Path) -> None:
    """What is written is what the reference library writes with the published layout, a direction unseen included."""
    import transformers

    assert saucier("convert", run, tmp_path / "hf").code == 0
    config = json.loads((tmp_path / "hf" / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["M2M100ForConditionalGeneration"]
    reference = transformers.M2M100ForConditionalGeneration.from_pretrained(tmp_path / "hf")
    cutter = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert reference.generation_config.decoder_start_token_id == cutter.eos_token_id
    ids = {name: cutter.convert_tokens_to_ids(f"__{name}__") for name in WORDS}
    for source, target, text in (("eng", "deu", "the cook stirs soup 7"), ("deu", "fra", "der Koch rührt Milch")):
        answer = saucier("generate", run, text, "--source-language", source, "--target-language", target,
                         "--temperature", 0, "--tokens", 8, "--dtype", "float32", "--json")
        assert answer.code == 0, answer.err
        row = [ids[source], *cutter(text)["input_ids"][1:]]
        wanted = reference.generate(torch.tensor([row]), max_new_tokens=8, do_sample=False, num_beams=1,
                                    forced_bos_token_id=ids[target])[0]
        assert wanted[:2].tolist() == [cutter.eos_token_id, ids[target]]
        written = library.load_tokenizer(run).decode(wanted.tolist())
        assert json.loads(answer.out)["texts"] == [written]
        opened = saucier("generate", tmp_path / "hf", text, "--source-language", source, "--target-language", target,
                         "--temperature", 0, "--tokens", 8, "--dtype", "float32", "--json")
        assert json.loads(opened.out)["texts"] == [written]


@pytest.mark.slow
def test_a_files_header_tells_its_directions(saucier: Saucier, run: Path, tmp_path: Path) -> None:
    """One that was never learned, too."""
    answer = saucier("evaluate", run, table(tmp_path / "deu-fra.tsv", "deu", "fra", range(4)), "--json")
    assert answer.code == 0, answer.err
    names = {score["name"] for score in json.loads(answer.out)["scores"]}
    assert names == {"BLEU", "chrF", *(f"{kind} {way}" for kind in ("BLEU", "chrF")
                                       for way in ("deu → fra", "fra → deu"))}
    own = saucier("evaluate", run, "--json")
    assert {score["name"].partition(" ")[2] for score in json.loads(own.out)["scores"]} == {"", *WAYS}


def test_what_is_learned_first_is_the_target_language(run: Path) -> None:
    """The decoder reads the end token, then the language; both stand in the labels but for the first."""
    from saucier.jobs.pretraining.batching import build_run_objectives, make_training_data

    found, tokenizer = recipe(run / "recipe.yaml"), library.load_tokenizer(run)
    lessons = build_run_objectives(found, tokenizer)
    study = make_training_data(found, tokenizer, PairStore(RunFolder(run).train_store), lessons)
    batch = lessons[0].corruption(study.batches[0], seed=0, step=0)
    languages = {tokenizer.token_to_id(f"__{name}__") for name in WORDS}
    assert set(batch["decoder_input_ids"][:, 0].tolist()) == {tokenizer.eos_id}
    assert batch["decoder_input_ids"][:, 1].tolist() == batch["labels"][:, 0].tolist()
    assert {*batch["input_ids"][:, 0].tolist(), *batch["labels"][:, 0].tolist()} <= languages


@pytest.mark.slow
def test_back_translation_and_the_map_are_told_both_languages(saucier: Saucier, run: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("der Koch rührt Suppe\n" * 3, encoding="utf-8")
    made = tmp_path / "made.tsv"
    told = ("--source-language", "deu", "--target-language", "eng")
    answer = saucier("backtranslate", run, lines, "--out", made, "--columns", "eng,deu", "--temperature", 1, *told)
    assert answer.code == 0, answer.err
    assert saucier("attention-map", run, "der Koch", "the cook", "--json", *told).code == 0
    for verb in (("backtranslate", run, lines, "--out", tmp_path / "x.tsv"), ("generate", run, "der Koch"),
                 ("attention-map", run, "der Koch")):
        assert "--source-language: this model is told both languages; name one of eng, deu, fra" in saucier(*verb).error
    one = saucier("generate", run, "der Koch", "--source-language", "deu")
    assert "--target-language: this model is told both languages" in one.error
    assert "no language 'ita'" in saucier("generate", run, "der Koch", "--source-language", "deu",
                                          "--target-language", "ita").error


@pytest.mark.slow
def test_a_run_goes_on_with_the_languages_it_knows(saucier: Saucier, run: Path, tables: Path, tmp_path: Path) -> None:
    words = ("training.steps=2", "training.batch=8", "training.events=off", "--no-calibrate")
    table(tmp_path / "deu-fra.tsv", "deu", "fra", range(40))
    answer = saucier("train", "--from", run, "--data", tmp_path / "deu-fra.tsv", "--out", tmp_path / "on", *words)
    assert answer.code == 0, answer.err
    assert library.load(tmp_path / "on").generation["decoder_start_token_id"] == library.load_tokenizer(run).eos_id
    table(tmp_path / "unknown.tsv", "deu", "fra", range(40))
    unknown = (tmp_path / "unknown.tsv").read_text(encoding="utf-8").replace("deu\tfra", "deu\tita", 1)
    (tmp_path / "unknown.tsv").write_text(unknown, encoding="utf-8")
    answer = saucier("train", "--from", run, "--data", tmp_path / "unknown.tsv", "--out", tmp_path / "no", *words)
    assert "the model knows no language 'ita'" in answer.error


def test_what_cannot_be_is_one_line(saucier: Saucier, run: Path, tables: Path, pair_file: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "run", *SMALL)
    words = saucier("cook", "m2m-nano", "--data", pair_file, *out)
    assert "the column 'there' is not called by a language" in words.error
    held_out = tmp_path / "ita.tsv"
    held_out.write_text("eng\tita\na\tb\n", encoding="utf-8")
    files = ("--data", tables / "eng-deu.tsv", "--held-out", held_out)
    assert "the language ita is held out, and nothing is learned of it" in saucier("cook", "m2m-nano", *files,
                                                                                   *out).error
    assert "ita.tsv, line 2: the model knows no language 'ita'" in saucier("evaluate", run, held_out).error
