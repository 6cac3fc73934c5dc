"""What a person names on the command line, opened: a model that can be asked, and numbers of shots."""

from __future__ import annotations

from pathlib import Path

from saucier.errors import InputError
from saucier.files import is_folder
from saucier.loading import load
from saucier.prompting.likelihood import Speaker, check_speaks
from saucier.runs.folder import run_of
from saucier.runs.opened import tokenizer_of
from saucier.spelling import check_fits


def open_speaker(path: str, dtype: str = "auto", base: str | None = None) -> Speaker:
    """Open a model folder, a run or a hub id. `base`: of an adapter, instead of the one that it names.

    Errors: `InputError` for a model that writes no text, and a folder without tokenizer.
    """
    model = load(path, dtype="fastest" if dtype == "auto" else dtype, base=base)
    check_speaks(model)
    tokenizer = tokenizer_of(run_of(Path(path)) if is_folder(path) else path, base)
    check_fits(model, tokenizer, path)
    return Speaker(model, tokenizer)


def numbers(text: str) -> tuple[int, ...]:
    """Read numbers of shots such as `0,1,4`. Errors: `InputError`."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise InputError(f"{text!r} is no list of numbers", where="--shots", remedy="write 0,1,4")
    return tuple(dict.fromkeys(map(int, parts)))
