"""What a shell completes: verbs, options, names of recipes and kinds of tasks; and the script that it reads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from saucier.cli import main
from saucier.cli.completion import complete_recipe, complete_task
from saucier.recipes import names, recipe


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str], list[str]]:
    """Return a function that gives what bash is offered for the last word of a line."""

    def ask(line: str) -> list[str]:
        words = line.split(" ")
        monkeypatch.setenv("_SAUCIER_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        with pytest.raises(SystemExit) as ended:
            main([])
        assert ended.value.code == 0
        return capsys.readouterr().out.split()

    return ask


@pytest.mark.parametrize(("line", "offered"), [
    ("saucier coo", {"cook"}), ("saucier cook gpt-n", {"gpt-nano", "gpt-neo", "gpt-neox"}),
    ("saucier show llama-", {"llama-nano"}), ("saucier diff gpt2 gpt2-x", {"gpt2-xl"}),
    ("saucier plan bert-l", {"bert-large"}), ("saucier compare gpt-nano llama-n", {"llama-nano"}),
    ("saucier finetune class", {"classification"}), ("saucier push --dry", {"--dry-run"}),
    ("saucier cook --held", {"--held-out"}), ("saucier cook ./my", set())])
def test_bash_is_offered(complete: Callable[[str], list[str]], line: str, offered: set[str]) -> None:
    assert set(complete(line)) == offered


def test_a_recipe_is_shown_with_what_it_is() -> None:
    """Without reading the recipes as recipes: pydantic is not needed for a name."""
    found = dict(complete_recipe(""))
    assert set(found) == set(names())
    assert found["gpt-nano"] == recipe("gpt-nano").about


def test_every_kind_of_task_is_offered() -> None:
    assert {"classification", "tagging", "translation"} <= {name for name, _ in complete_task("")}
    assert complete_task("tagg") == [("tagging", "")]


@pytest.mark.parametrize(("shell", "mark"), [
    ("bash", "complete -o default -F"), ("zsh", "compdef"), ("fish", "complete --command")])
def test_each_shell_has_its_script(shell: str, mark: str, monkeypatch: pytest.MonkeyPatch,
                                   capsys: pytest.CaptureFixture[str]) -> None:
    """`--show-completion` prints that of the shell it is called from; where the shell is not known it says so."""
    monkeypatch.setattr("typer.completion._get_shell_name", lambda: shell)
    with pytest.raises(SystemExit) as ended:
        main(["--show-completion"])
    assert ended.value.code in (0, None)
    assert mark in (said := capsys.readouterr().out) and "_SAUCIER_COMPLETE" in said
