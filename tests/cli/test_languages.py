"""Multilingual models translate from the command line, with the tokens of their family; files are written in batches.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cli.conftest import TINY, Saucier
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, processors

import saucier as library
from saucier.families import FAMILIES
from saucier.files import write_json
from saucier.model import build

WORDS = ["<s>", "<pad>", "</s>", "<unk>", "ein", "hund", "the", "dog", "le", "chien", "sees", "a"]
SPELLED = {"m2m_100": "__{}__", "mbart": "{}_XX"}
FRAMES = {"m2m_100": "__en__ $A </s>", "mbart": "$A </s> en_XX"}
LANGUAGES = ("en", "de", "fr")
PAD, END, FIRST = 1, 2, len(WORDS)
IDS = dict(zip(LANGUAGES, range(FIRST, FIRST + 3), strict=True))


def folder_of(family: str, place: Path) -> Path:
    """Save a small model with its tokenizer, as its library does."""
    place = place / family
    save_model(family, place)
    backend = Backend(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", *(SPELLED[family].format(one) for one in LANGUAGES)])
    single = FRAMES[family].split()
    used = [(one, backend.token_to_id(one)) for one in single if one != "$A"]
    backend.post_processor = processors.TemplateProcessing(single=single, pair=[*single, "$B"], special_tokens=used)
    backend.save(str(place / "tokenizer.json"))
    write_json(place / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>",
                                                 "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"})
    return place


def save_model(family: str, place: Path) -> None:
    """Save a small model whose every weight is moved, so that texts differ."""
    options: dict[str, Any] = {"length": 32} if family == "mbart" else {}
    model = build(FAMILIES[family](dim=32, layers=1, heads=2, vocab=FIRST + 3, **options), seed=4)
    generator = torch.Generator().manual_seed({"m2m_100": 5, "mbart": 4}[family])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    model.generation = {"eos_token_id": END, "pad_token_id": PAD, "bos_token_id": 0}
    if family == "m2m_100":
        model.generation = {**model.generation, "decoder_start_token_id": END}
    model.save(place)


CASES = {"m2m_100": ([IDS["de"], 4, 5, END], {"decoder_start_token_id": END, "forced_bos_token_id": IDS["fr"]}),
         "mbart": ([4, 5, END, IDS["de"]], {"decoder_start_token_id": IDS["fr"]})}


@pytest.mark.slow
@pytest.mark.parametrize("family", CASES)
def test_source_and_target_are_told_as_the_family_is(saucier: Saucier, tmp_path: Path, family: str) -> None:
    """The tokens are those of the reference library with source and options written by hand."""
    folder = folder_of(family, tmp_path)
    answer = saucier("generate", folder, "ein hund", "--source-language", "de", "--target-language", "fr", "--json",
                     "--temperature", 0, "--tokens", 8, "--dtype", "float32")
    assert answer.code == 0, answer.err
    import transformers

    reference = {"m2m_100": transformers.M2M100ForConditionalGeneration,
                 "mbart": transformers.MBartForConditionalGeneration}[family].from_pretrained(folder)
    source, options = CASES[family]
    wanted = reference.generate(torch.tensor([source]), max_new_tokens=8, do_sample=False, num_beams=1, **options)
    tokenizer = library.load_tokenizer(folder)
    written = tokenizer.decode(wanted[0].tolist())
    assert written
    assert json.loads(answer.out)["texts"] == [written]
    plain = saucier("generate", folder, "ein hund", "--json", "--temperature", 0, "--tokens", 8, "--dtype", "float32",
                    *(() if family == "m2m_100" else ("--target-language", "en")))
    assert json.loads(plain.out)["texts"] != json.loads(answer.out)["texts"]


@pytest.mark.slow
def test_a_file_is_translated_line_by_line(saucier: Saucier, tmp_path: Path) -> None:
    """In batches as alone, empty lines kept; a table's column too; to a file that was not there."""
    folder = folder_of("m2m_100", tmp_path)
    sources = ["ein hund", "", "a dog sees the chien", "le chien"]
    (tmp_path / "in.txt").write_text("\n".join(sources) + "\n", encoding="utf-8")
    (tmp_path / "in.tsv").write_text("number\ttext\n" + "".join(f"1\t{one}\n" for one in sources if one),
                                     encoding="utf-8")
    how = ("--source-language", "de", "--target-language", "fr", "--temperature", 0, "--dtype", "float32", "--batch", 2)
    lines = saucier("generate", folder, "--file", tmp_path / "in.txt", *how).out.split("\n")[:-1]
    alone = [json.loads(saucier("generate", folder, one, *how, "--json").out)["texts"][0] for one in sources if one]
    assert lines[1] == ""
    assert [len(one.split()) > 0 for one in lines] == [True, False, True, True]
    shortened = [one.split()[:3] for one in alone]  # a batch writes at most twice the longest source
    assert [one.split()[:3] for one in lines if one] == shortened
    out = tmp_path / "out.txt"
    table = ("generate", folder, "--file", tmp_path / "in.tsv", "--column", "text", "--out", out, *how)
    assert saucier(*table).code == 0
    assert out.read_text(encoding="utf-8").splitlines() == [one for one in lines if one]
    assert "is there already" in saucier(*table).error


@pytest.mark.slow
def test_a_run_that_mends_several_languages_translates(saucier: Saucier, tmp_path: Path) -> None:
    """mBART as it is pretrained here: the language ends the source and begins the target."""
    run = tmp_path / "run"
    answer = saucier("train", "mbart-nano", "--out", run, "--no-calibrate", *TINY[:-1], "training.events=off",
                     "data.limit=40")
    assert answer.code == 0, answer.err
    told = ("--source-language", "python", "--target-language", "english", "--tokens", 4, "--json", "--seed", 0)
    assert saucier("generate", run, "def cook(sauce):", *told).code == 0
    assert "told both languages" in saucier("generate", run, "def", "--source-language", "python").error
    assert "no language 'german'" in saucier("generate", run, "def", "--source-language", "python",
                                             "--target-language", "german").error


@pytest.mark.slow
def test_what_cannot_be_is_one_line(saucier: Saucier, cooked: Path, tmp_path: Path) -> None:
    folder = folder_of("m2m_100", tmp_path)
    assert "no language 'es'" in saucier("generate", folder, "a dog", "--target-language", "es").error
    assert "only an encoder-decoder" in saucier("generate", cooked, "the", "--target-language", "de").error
    assert "--out: is read with --file alone" in saucier("generate", folder, "a", "--out", tmp_path / "x").error
    (tmp_path / "in.txt").write_text("a dog\n", encoding="utf-8")
    several = saucier("generate", folder, "--file", tmp_path / "in.txt", "--samples", 2)
    assert "one text for each source" in several.error
