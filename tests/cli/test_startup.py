"""The command line answers at once: nothing heavy is imported before a verb runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import saucier
from saucier.cli import main
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.files import cache_folder
from saucier.jobs.finetuning.labelled_files import refuse_missing_columns
from saucier.native.library import load_library
from saucier.text.config import Characters
from saucier.text.tokenizer.training import train_tokenizer

HEAVY = ("torch", "numpy", "pydantic", "yaml", "tokenizers", "pyarrow", "rich", "matplotlib")


def imported(code: str) -> set[str]:
    """Return which of the heavy modules a fresh Python has imported after some code."""
    program = f"import sys\n{code}\nprint(*(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert imported("import saucier; saucier.__version__; dir(saucier)") == set()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    assert imported(f"from saucier.cli import main; main({arguments!r})") == set()


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["cook", "generate", "tokenizer"])
def test_help_of_a_verb_imports_only_what_typer_does(verb: str) -> None:
    assert imported(f"from saucier.cli import main; assert main([{verb!r}, '--help']) == 0") <= {"pydantic"}


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["recipes", "schema", "show gpt-nano", "diff gpt2 gpt2-medium"])
def test_looking_at_recipes_does_not_import_torch(verb: str) -> None:
    assert "torch" not in imported(f"from saucier.cli import main; assert main({verb.split()!r}) == 0")


WRONG = ("cook gpt-nano foo=1", "cook nope", "plan gpt-nano x=1", "compare nope gpt-nano --budget tokens=1e6",
         "finetune classification", "finetune classification task.text=nope --data a.tsv --held-out a.tsv --model M",
         "finetune classification task.text=nope --data a.tsv --held-out a.tsv --model gpt-nano",
         "predict nowhere a.tsv", "evaluate nowhere")
"""Commands that a person mistyped, in a folder with the file a.tsv."""
FACTS = """if True:
    import sys
    from saucier.cli import main
    assert main({!r}) == 2
    recipes = sys.modules.get("saucier.recipes.recipe")
    base = sys.modules.get("saucier.config.base")
    print(*sys.modules)
    print(base.module_docstrings.cache_info().currsize if base else 0)
    print(recipes.family_type.cache_info().currsize if recipes else 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("words", WRONG)
def test_what_is_wrong_is_said_before_anything_slow_is_done(words: str, tmp_path: Path) -> None:
    """No torch; no JSON Schema, for which docstrings are read; only the family that is named."""
    (tmp_path / "a.tsv").write_text("text\tlabel\ngood\tx\nbad\ty\n", encoding="utf-8")
    done = subprocess.run([sys.executable, "-c", FACTS.format(words.split())], capture_output=True, text=True,
                          check=True, cwd=tmp_path)
    modules, described, families = done.stdout.splitlines()
    assert "torch" not in modules.split()
    assert int(described) == 0
    assert int(families) <= 1
    if words.startswith(("predict", "evaluate")):
        assert not {"saucier.config", "saucier.recipes", "numpy", "yaml"} & {*modules.split()}
    if words.startswith("plan") or "task.text=" in words:
        assert "numpy" not in modules.split(), "neither the cost of a plan nor rows are looked at"
    if "task.text=" in words:
        assert "saucier.recipes" not in modules.split()


@pytest.mark.slow
def test_a_family_is_made_when_it_is_named() -> None:
    program = """if True:
        from saucier.recipes.recipe import Family, Recipe, family_type
        print(family_type.cache_info().currsize, Recipe.__pydantic_complete__)
        found = family_type("gpt")
        assert found is family_type("gpt") and issubclass(found, Family)
        print(family_type.cache_info().currsize)"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "False", "1"]


@pytest.mark.slow
def test_other_modules_that_are_there_do_not_make_recipes_slow() -> None:
    """Pydantic asks for the module of every frame; `inspect` must not look through all of them for each."""
    program = """if True:
        import inspect, sys, types
        sys.modules |= {f"other{number}": types.ModuleType(f"other{number}") for number in range(2000)}
        looked, real = [], inspect.ismodule
        inspect.ismodule = lambda one: looked.append(0) or real(one)
        import saucier.recipes.recipe
        print(len(looked))"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1_000_000


def test_the_public_names_are_there() -> None:
    import saucier

    assert saucier.recipe("gpt2").name == "gpt2"
    assert set(saucier.__all__) <= set(dir(saucier))
    with pytest.raises(AttributeError, match="no attribute 'recipee'"):
        saucier.recipee  # noqa: B018  # the access is what is tested


def test_a_warning_is_a_note() -> None:
    """A person reads ours without the code that gave them; those of others keep it."""
    from saucier.cli import format_warning

    assert format_warning(UserWarning("two rows were cut"), UserWarning, "code.py", 3) == "note: two rows were cut\n"
    assert "code.py:3" in format_warning(DeprecationWarning("old"), DeprecationWarning, "code.py", 3)


@pytest.mark.parametrize(("word", "error"), [
    ("task.text=[a", "task.text: cannot read the value '[a'"), ("task.text=3", "task.text: should be a valid string"),
    ('data.delimiter="', "data.delimiter: cannot read the value"), ("data.delimiter=3", "should be a valid string"),
    ('task.text="nope"', "no column 'nope'; columns: text, label")])
def test_what_is_no_plain_name_of_a_column_is_one_line_too(word: str, error: str, tmp_path: Path,
                                                           capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "a.tsv"
    table.write_text("text\tlabel\ngood\tx\nbad\ty\n", encoding="utf-8")
    assert main(["finetune", "classification", word, "--data", str(table), "--model", "gpt-nano"]) == 2
    told = capsys.readouterr().err
    assert error in told and told.count("\n") == 1


def test_a_column_file_has_no_header(tmp_path: Path) -> None:
    table = tmp_path / "a.tsv"
    table.write_text("good\tx\nsoup\ty\n", encoding="utf-8")
    refuse_missing_columns("tagging", ["task.words=form"], {"train": [str(table)]})
    with pytest.raises(InputError, match="no column 'form'"):
        refuse_missing_columns("classification", ["task.text=form"], {"train": [str(table)]})


@pytest.mark.filterwarnings("ignore:the matrices in")
def test_writing_needs_no_torch_once_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                            capsys: pytest.CaptureFixture[str]) -> None:
    """The same text appears as where all is read; what is drawn too, for which torch is imported then."""
    load_library()
    shutil.copytree(cache_folder("native"), tmp_path / "native")
    monkeypatch.setenv("SAUCIER_CACHE", str(tmp_path))
    folder, tokenizer = tmp_path / "model", train_tokenizer(Characters(), ["a text of words, and the words of a text"])
    config = FAMILIES["gpt2"](dim=32, layers=2, heads=4, vocab=tokenizer.vocab_size, length=64)
    saucier.build(config, seed=0).save(folder)
    tokenizer.save(folder)
    likeliest = ["generate", str(folder), "a text", "--tokens", "8", "--format", "int8", "--temperature", "0"]
    drawn = [*likeliest[:-1], "1", "--seed", "3"]
    found = []
    for more in (["--dtype", "float32"], [], []):  # by the whole model, by its arrays, by what is packed
        if not more and len(found) == 2:
            shutil.rmtree(tmp_path / "matrices")
        for words in (drawn, likeliest):
            assert main([*words, *more]) == 0
            found.append(capsys.readouterr().out)
    assert found[:2] == found[2:4] == found[4:] and found[0] != found[1]
    shutil.rmtree(tmp_path / "matrices")
    program = f"from saucier.cli import main; import warnings; warnings.simplefilter('ignore'); words = {likeliest!r}"
    assert imported(f"{program}; main(words); main(words)") == {"numpy", "pydantic", "tokenizers"}
