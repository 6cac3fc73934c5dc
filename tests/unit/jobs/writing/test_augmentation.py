"""New rows out of labelled ones: those of the paper's algorithm written by hand; seeds; bad input in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.unit.jobs.finetuning.conftest import labelled_rows

import saucier
from saucier.cli import main
from saucier.errors import InputError
from saucier.families.bert import bert
from saucier.families.gpt2 import gpt2
from saucier.jobs.writing import augmentation
from saucier.model import Transformer, build
from saucier.opened import OpenModel, open_model
from saucier.text.config import ByteBPE, WordPiece
from saucier.text.tokenizer.tokenizer import Tokenizer, load_tokenizer
from saucier.text.tokenizer.training import train_tokenizer

CHOICES = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a BERT whose tokenizer knows some words whole and others in pieces, with weights far from 0."""
    folder = tmp_path_factory.mktemp("masked") / "bert"
    tokenizer = train_tokenizer(WordPiece(vocab=90), [text for _, text in labelled_rows(400, 0)])
    config = bert(vocab=tokenizer.vocab_size, dim=16, layers=2, heads=2, hidden=32, length=24, dropout=0.0)
    model = build(config, seed=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)) * 0.2
    model.save(folder)
    tokenizer.save(folder)
    return folder


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "train.tsv"
    path.write_text("label\ttext\tpair\nbad\tThe soup, the SAUCE is burnt 3 times\twaiter tonight\n"
                    "good\tmy cat\tlovely bread again and some plate\n", encoding="utf-8")
    return path


def read(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def choices_by_hand(text: str, model: Transformer, tokenizer: Tokenizer) -> list[list[str]]:
    """Compute what may stand for each word, a pass for each, from the tokens' spelling alone."""
    ids = tokenizer.encode(text)
    spelled = [tokenizer.id_to_token(one) or "" for one in ids]
    known = {number: token for token, number in tokenizer.get_vocab().items() if re.fullmatch("[a-z]+", token)}
    table = model.embed.tokens.weight.detach()
    groups: list[list[int]] = []
    for place, token in enumerate(spelled):
        if token.startswith("##"):
            groups[-1].append(place)
        elif re.fullmatch("[a-z]+", token):
            groups.append([place])
    found = []
    for group in groups:
        if len(group) == 1:
            hidden = list(ids)
            hidden[group[0]] = tokenizer.mask_id or 0
            with torch.no_grad():
                logits = model(torch.tensor([hidden])).logits[0, group[0]]
            scores = {word: float(logits[number]) for number, word in known.items()}
        else:
            own = table[[ids[place] for place in group]].mean(0)
            scores = {word: float(torch.cosine_similarity(own, table[number], dim=0)) for number, word in known.items()}
        found.append(sorted(scores, key=lambda word: -scores[word])[:CHOICES])
    return found


def test_rows_are_those_of_the_algorithm(folder: Path, rows: Path, tmp_path: Path) -> None:
    model, tokenizer = saucier.load(folder, dtype="float32").eval(), load_tokenizer(folder)
    out = tmp_path / "made.jsonl"
    found = saucier.augment(folder, rows, out=out, columns="text,pair", rows=5, choices=CHOICES, seed=7)
    expected, sizes = [], set()
    for number, line in enumerate(rows.read_text().splitlines()[1:]):
        label, *texts = line.split("\t")
        choices = [choices_by_hand(text, model, tokenizer) for text in texts]
        random, made = np.random.default_rng([7, number]), []
        for _ in range(5):
            new = []
            for text, known in zip(texts, choices, strict=True):
                words = re.findall("[A-Za-z]+", text)
                assert len(words) == len(known)
                whole, after = "", 0
                for match, options in zip(re.finditer("[A-Za-z]+", text), known, strict=True):
                    old = match[0]
                    sizes.add(len(tokenizer.encode(old, add_special_tokens=False)) > 1)
                    word = old
                    if random.random() <= 0.4:
                        word = options[int(random.integers(len(options)))]
                        word = word.upper() if old.isupper() else word.capitalize() if old[0].isupper() else word
                    whole += text[after:match.start()] + word
                    after = match.end()
                new.append(whole + text[after:])
            if new not in [texts, *made]:
                made.append(new)
        expected += [{"label": label, "text": text, "pair": pair} for text, pair in made]
    assert sizes == {True, False}  # of one token and of several
    assert read(out) == expected
    assert (found.sources, found.rows, found.repeated, found.cut) == (2, len(expected), 10 - len(expected), 0)
    assert found.words == 17 and found.kept == 0  # "3" is no word
    assert f"{len(expected)} rows of 2, 17 words can be replaced" in found.view()
    assert "--held-out" in found.remarks()[0]


def test_the_same_seed_draws_the_same_rows_whatever_the_batch(folder: Path, rows: Path, tmp_path: Path) -> None:
    made = []
    for number, (seed, batch) in enumerate(((0, 64), (0, 1), (1, 64))):
        out = tmp_path / f"{number}.jsonl"
        saucier.augment(folder, rows, out=out, seed=seed, batch=batch, rows=3)
        made.append(read(out))
    assert made[0] == made[1] != made[2]
    assert {row["pair"] for row in made[0]} == {"waiter tonight", "lovely bread again and some plate"}  # not named


def test_nothing_and_everything_is_replaced_at_the_ends_of_the_probability(folder: Path, rows: Path,
                                                                           tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no word of these rows can be replaced"):
        saucier.augment(folder, rows, out=tmp_path / "none.jsonl", share=0.0)
    assert not (tmp_path / "none.jsonl").exists()
    saucier.augment(folder, rows, out=tmp_path / "all.jsonl", share=1.0, choices=1, rows=4)
    assert len(read(tmp_path / "all.jsonl")) == 2  # one choice for each word: all four are equal


def test_words_of_several_tokens_take_neighbours_from_a_file(folder: Path, rows: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(folder)
    split = next(word for word in ("sauce", "lovely", "burnt", "tonight", "waiter", "plate")
                 if len(tokenizer.encode(word, add_special_tokens=False)) > 1)
    vectors = tmp_path / "vectors.txt"
    vectors.write_text(f"{split} 1 0\nnearest 2 0.1\nnext 1 0.5\nfar -1 0\n")
    opened = open_model(folder)
    texts = augmentation.split_texts(opened, [f"xyz {split}"])
    augmentation.choose_by_vectors(augmentation.Vocabulary.of(opened), texts, choices=2,
                                   vectors=augmentation.WordVectors.read(str(vectors)))
    assert texts[0].words[1].choices == ["nearest", "next"]
    assert not texts[0].words[0].choices  # the file has no such word: it stays, and is counted
    out = tmp_path / "made.jsonl"
    found = saucier.augment(folder, rows, out=out, vectors=vectors, rows=2)
    assert found.kept > 0 and "words without a choice" in found.view()


def test_a_text_beyond_the_models_length_keeps_its_end(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "long.tsv"
    path.write_text("label\ttext\ngood\t" + " ".join(["soup is"] * 30) + "\n")
    found = saucier.augment(folder, path, out=tmp_path / "made.jsonl", share=1.0, rows=2)
    assert found.cut == 1 and found.kept == 60 - found.words > 0 and "1 texts cut" in found.view()
    assert all(row["text"].endswith("soup is soup is") for row in read(tmp_path / "made.jsonl"))


def test_byte_level_tokens_are_words_where_a_space_is_before_them(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(ByteBPE(vocab=320), [text for _, text in labelled_rows(300, 0)])
    config = bert(vocab=tokenizer.vocab_size, dim=16, layers=1, heads=2, hidden=32, length=24, dropout=0.0)
    tokenizer.save(tmp_path)
    opened = OpenModel(tmp_path, build(config, seed=0), tokenizer)
    known = augmentation.Vocabulary.of(opened)
    assert {"soup", "the", "quite"} <= {*known.words} and all(word.isalpha() for word in known.words)
    text = augmentation.split_texts(opened, ["so the soup is"])[0]
    assert [len(word.places) for word in text.words][1:] == [1, 1, 1]


@pytest.mark.slow
def test_rows_that_were_made_are_learned_from(folder: Path, tmp_path: Path) -> None:
    train, dev, out = tmp_path / "train.tsv", tmp_path / "dev.tsv", tmp_path / "made.jsonl"
    for path, count in ((train, 24), (dev, 12)):
        lines = [f"{len(text)}.5\t{text}\n" for _, text in labelled_rows(count, count)]
        path.write_text("score\ttext\n" + "".join(lines))
    assert main(["augment", str(folder), str(train), "--out", str(out), "--rows", "2"]) == 0
    assert main(["finetune", "regression", "--model", str(folder), "--data", str(train), str(out), "--held-out",
                 str(dev), "--out", str(tmp_path / "run"), "training.epochs=1"]) == 0
    report = (tmp_path / "run" / "report.html").read_text()
    assert f"{24 + len(read(out))}" in report


def test_bad_input_is_one_line(folder: Path, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(words: str, *more: str, model: Path = folder, files: Path = rows, out: str = "made.jsonl") -> None:
        assert main(["augment", str(model), str(files), "--out", str(tmp_path / out), *more]) == 2
        said = capsys.readouterr().err.strip()
        assert re.search(words, said) and len(said.splitlines()) == 1, said
        assert not (tmp_path / out).exists()

    refused("no column 'body'; columns: label, text, pair", "--columns", "body")
    refused("is no list of columns", "--columns", "text,,pair")
    refused("rows are written as JSON lines", out="made.tsv")
    text = tmp_path / "text.txt"
    text.write_text("a line\n")
    refused("is plain text, but columns are needed", files=text)
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("cat 1 2\ndog 1\n")
    refused(r"vectors.txt, line 2: 1 numbers, and the first word has 2", "--vectors", str(vectors))
    vectors.write_text("cat 1 two\n")
    refused("no word and its numbers", "--vectors", str(vectors))
    tokenizer = load_tokenizer(folder)
    decoder = tmp_path / "gpt"
    build(gpt2(vocab=tokenizer.vocab_size, dim=16, layers=1, heads=2, length=24)).save(decoder)
    tokenizer.save(decoder)
    refused("this model fills in no hidden tokens", model=decoder)
