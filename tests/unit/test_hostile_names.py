"""Names that no file can have: whoever asks for one gets one clear line, and never an error of the file system."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import saucier
from saucier.errors import InputError
from saucier.jobs.comparison.experiment import read_experiment
from saucier.jobs.finetuning.settings import make_finetuning, read_finetuning, read_finetuning_words
from saucier.jobs.finetuning.start import open_start
from saucier.lens.subject import find_subject
from saucier.opened import find_run
from saucier.text.reading.sources import find_sources

TASK = {"kind": "classification", "labels": ["bad", "good"]}
ASK: dict[str, Callable[[str], object]] = {
    "recipe": saucier.recipe, "load": saucier.load, "load_tokenizer": saucier.load_tokenizer, "subject": find_subject,
    "compare": lambda name: read_experiment([name, name], {}), "run": lambda name: find_run(Path(name)),
    "text": lambda name: find_sources([name]), "settings": lambda name: read_finetuning(Path(name)),
    "task": lambda name: read_finetuning_words(name, (), "bert-nano", {"train": ["rows.tsv"]}),
    "start": lambda name: open_start(make_finetuning({"model": name, "task": TASK, "data": {"train": ["rows.tsv"]}})),
}


@pytest.mark.parametrize("ask", ASK)
@pytest.mark.parametrize("name", ["\u00e9" * 200, "x" * 5000, "a\x00b", "\ud800", "file/inside",
                                  "\u00e9" * 200 + ".yaml", "a\x00b.yaml", "file/inside.yaml", "file/inside.txt"])
def test_it_is_refused_in_one_line(ask: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError) as caught:
        ASK[ask](name)
    assert str(caught.value).isprintable() and ": " in str(caught.value)
