"""`saucier doctor`: a model folder, a run or a hub id, opened and examined on text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from saucier import config as c
from saucier.errors import InputError
from saucier.files import is_folder
from saucier.inspection.doctor import Diagnosis, drawn_rows, examine, text_rows, texts_of
from saucier.inspection.doctor_checks import checks
from saucier.loading import load
from saucier.runs.folder import run_of
from saucier.runs.opened import tokenizer_of
from saucier.text.tokenizer import Tokenizer


def diagnose(path: str, *, files: Sequence[str] = (), dtype: str = "float32", device: str = "auto",
             base: str | None = None) -> Diagnosis:
    """Open a model folder, a run or a hub id, and examine it. `base`: of an adapter, instead of the one that it names.

    Errors: `InputError` for what cannot be opened or read.
    """
    model = load(path, dtype="fastest" if dtype == "auto" else dtype, device=device, base=base)
    tokenizer, reason = tokenizer_beside(path, base)
    rows, source = (drawn_rows(model), f"random ids, since no tokenizer: {reason}") if tokenizer is None else \
        (text_rows(model, tokenizer, texts_of(files)), ", ".join(files) or "Python's documentation")
    weight = model.embed.tokens.weight
    found = (*examine(model, rows), *checks(model, tokenizer))
    return Diagnosis(path, str(weight.dtype).removeprefix("torch."), c.parameters(model.config), source,
                     tuple(len(row.ids) for row in rows), found)


def tokenizer_beside(path: str, base: str | None) -> tuple[Tokenizer | None, str]:
    """Return the tokenizer beside a model, or beside an adapter's base; where none can be read, None and the reason."""
    try:
        return tokenizer_of(run_of(Path(path)) if is_folder(path) else path, base), ""
    except InputError as error:
        return None, str(error)
