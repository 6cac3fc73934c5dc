"""`--out` where nothing can be written, devices that are not here, tokenizers of other models: one line each."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Saucier, rhymes

import saucier as package
from saucier import config as c
from saucier.families import bert, gpt2
from saucier.files import refuse_unwritable, write_text
from saucier.text.config import BPE, WordPiece
from saucier.text.tokenizer.training import train_tokenizer

FOLDERS = {"cook": ("cook", "gpt-nano", "--out"), "train": ("train", "gpt-nano", "--out"),
           "clean": ("clean", "x.txt", "--out"),
           "finetune": ("finetune", "classification", "--model", "m", "--data", "x.csv", "--out"),
           "compare": ("compare", "gpt-nano", "llama-nano", "--out"), "merge": ("merge", "adapter", "--out"),
           "prompt": ("prompt", "task.yaml", "--model", "m", "--out"), "rerun": ("rerun", "run", "--out"),
           "scaling": ("scaling", "a", "b", "--out"), "tokenizer": ("tokenizer", "train", "x.txt", "--out"),
           "convert": ("convert", "m")}
FILES = {"predict": ("predict", "m", "x.csv", "--out"), "generate": ("generate", "m", "--file", "x.txt", "--out"),
         "backtranslate": ("backtranslate", "m", "x.txt", "--out"), "attention": ("attention", "gpt-nano", "--out"),
         "attention-map": ("attention-map", "m", "a", "--out"), "embed": ("embed", "m", "x.csv", "--out")}


PLACES, TEXTS = {"m", "a", "b", "adapter", "run"}, {"x.txt", "x.csv"}
"""Words that stand for a folder and for a file that is there."""


def fill_in(words: tuple[str, ...], folder: Path) -> list[object]:
    """Return the words of a command with places that are there."""
    (folder / "text").mkdir(exist_ok=True)
    for name in TEXTS:
        (folder / "text" / name).write_text("text,label\nwords,one\n", encoding="utf-8")
    return [folder / "text" / one if one in TEXTS else folder / "text" if one in PLACES else one for one in words]


@pytest.fixture
def in_the_way(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("years of work", encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("verb", FOLDERS)
def test_a_folder_that_cannot_be_written_is_refused_at_once(saucier: Saucier, in_the_way: Path, verb: str) -> None:
    for place in (in_the_way, in_the_way / "deeper" / "out"):
        answer = saucier(*fill_in(FOLDERS[verb], in_the_way.parent), place)
        assert (answer.code, answer.error) == (2, f"{in_the_way}: is a file; give a new folder")
    answer = saucier(*fill_in(FOLDERS[verb], in_the_way.parent), "/proc/none/out")
    assert (answer.code, answer.error.startswith("/proc/none/out: cannot be written: ")) == (2, True)
    assert in_the_way.read_text(encoding="utf-8") == "years of work"


@pytest.mark.slow
@pytest.mark.parametrize("verb", FILES)
def test_a_file_that_cannot_be_written_is_refused_at_once(saucier: Saucier, in_the_way: Path, verb: str) -> None:
    words = fill_in(FILES[verb], in_the_way.parent)
    answer = saucier(*words, in_the_way.parent)
    assert (answer.code, answer.error) == (2, f"{in_the_way.parent}: is a folder; give a new file")
    answer = saucier(*words, in_the_way / "out.txt")
    assert (answer.code, answer.error) == (2, f"{in_the_way}: is a file; give a new file")
    answer = saucier(*words, "/proc/out.txt")
    assert (answer.code, answer.error.startswith("/proc/out.txt: cannot be written: ")) == (2, True)


@pytest.mark.parametrize("name", ["a\0b", "a" * 300])
def test_a_name_that_no_file_has_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(package.InputError, match=r"cannot be written: "):
        refuse_unwritable(tmp_path / name, folder=True)


def test_what_can_be_written_leaves_nothing(tmp_path: Path) -> None:
    refuse_unwritable(tmp_path / "new" / "folder", folder=True)
    refuse_unwritable(tmp_path, folder=True)
    refuse_unwritable(tmp_path / "new.txt", folder=False)
    assert list(tmp_path.iterdir()) == []


def test_a_parent_that_is_a_file_is_one_line_from_python_too(in_the_way: Path) -> None:
    with pytest.raises(package.errors.WorkError, match=r"out.txt: cannot write: "):  # type: ignore[attr-defined]
        write_text(in_the_way / "out.txt", "text")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 20 tokens, and a tokenizer of more."""
    folder = tmp_path_factory.mktemp("small")
    package.build(gpt2(16, 1, heads=2, vocab=20, length=32)).save(folder / "gpt2")
    package.build(bert(16, 1, heads=2, vocab=20, length=32).model_copy(update={
        "head": c.ClassificationHead(classes=2, pick=c.PickVector(kind="first"))})).save(folder / "bert")
    for name in ("gpt2", "bert"):
        train_tokenizer(BPE(vocab=60), rhymes(40).splitlines()).save(folder / name)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cuda", "cuda:7", "mps", "gpu", "cuda:-1", "", "xla", "vulkan"])
def test_a_device_that_is_not_here_is_one_line(saucier: Saucier, small: Path, device: str) -> None:
    for verb in (("generate", small / "gpt2", "a guest"), ("doctor", small / "gpt2")):
        answer = saucier(*verb, "--device", device)
        assert answer.code == 2
        assert answer.error.startswith(("device: there is no device ", "device: unknown device "))
        assert " cpu" in answer.error
    with pytest.raises(package.InputError, match=r"^device: "):
        package.load(small / "gpt2", device=device)


@pytest.mark.parametrize("device", [None, 7, 1.5, "cuda"])
def test_a_device_from_python_is_one_line(small: Path, device: object) -> None:
    import torch

    for given in (device, torch.device("cuda", 3)):
        with pytest.raises(package.InputError, match=r"^device: "):
            package.load(small / "gpt2", device=given)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "name"), [(("predict", "bert", "--text", "a guest"), "bert"),
                                            (("generate", "gpt2", "a guest"), "gpt2")])
def test_a_tokenizer_of_another_model_is_told_as_the_doctor_does(saucier: Saucier, small: Path, verb: tuple[str, ...],
                                                                 name: str) -> None:
    answer = saucier(verb[0], small / name, *verb[2:])
    assert answer.code == 2
    assert answer.error == (f"{small / name}: the tokenizer does not fit the model: 60 ids, and the model has 20 rows "
                            "for them; put the model's own tokenizer into its folder")
    assert "60 ids, and the model has 20 rows for them" in saucier("doctor", small / name).out


def test_an_option_that_is_refused_comes_before_the_prompt(saucier: Saucier, tmp_path: Path) -> None:
    package.build(gpt2(16, 1, heads=2, vocab=60, length=32), seed=1).save(tmp_path / "m")
    train_tokenizer(BPE(vocab=60), rhymes(40).splitlines()).save(tmp_path / "m")
    refused = saucier("generate", tmp_path / "m", "a guest", "--top-p", "0", "--tokens", "3")
    assert (refused.code, refused.out) == (2, "")
    written = saucier("generate", tmp_path / "m", "a guest", "--tokens", "3", "--seed", "0")
    assert written.code == 0 and written.out.startswith("a guest") and written.out.endswith("\n")
    assert saucier("generate", tmp_path / "m", "a guest", "--tokens", "3", "--seed", "0", "--dtype", "auto").code == 0


def test_remedies_name_what_is_there(saucier: Saucier, tmp_path: Path) -> None:
    assert saucier("show", "nothing-like-it-at-all").error == (
        "recipe: no recipe has the name 'nothing-like-it-at-all'; `saucier recipes` lists them; "
        "a file of yours ends in .yaml")
    package.build(gpt2(16, 1, heads=2, vocab=60, length=32)).save(tmp_path / "m")
    assert saucier("generate", tmp_path / "m", "a guest").error.endswith("; put the model's tokenizer.json into it")


@pytest.mark.slow
def test_a_fine_tuning_gives_rows_to_the_ids_that_have_none_and_says_so(saucier: Saucier, tmp_path: Path) -> None:
    package.build(bert(16, 1, heads=2, vocab=20, length=32)).save(tmp_path / "bert")
    lines = [f"{'rich soup' if n % 2 else 'cold bread'} {n % 7}" for n in range(40)]
    tokenizer = train_tokenizer(WordPiece(vocab=40), lines * 3)
    tokenizer.save(tmp_path / "bert")
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text("label\ttext\n" + "".join(f"{n % 2}\t{line}\n" for n, line in enumerate(lines)))
    answer = saucier("finetune", "classification", "--model", tmp_path / "bert", "--data", tmp_path / "train.tsv",
                     "--held-out", tmp_path / "dev.tsv", "--out", tmp_path / "run", "training.epochs=1")
    told = f"the tokenizer has {tokenizer.vocab_size} ids, so there are new rows in: embed.tokens.weight"
    assert answer.code == 0 and tokenizer.vocab_size > 20 and told in answer.out + answer.err
    assert saucier("predict", tmp_path / "run", "--text", "rich soup").code == 0
