"""The public function `open`: a model, its tokenizer and what it is for."""

# Annotations are evaluated here, not postponed: `saucier.arguments` reads them.

from typing import TYPE_CHECKING, Annotated

from saucier.api.options import Base, Device, InferenceDtype, NumberFormat
from saucier.arguments import Help, Place, not_imported, public

if TYPE_CHECKING:
    from saucier.jobs.app import App
    from saucier.text.tokenizer.tokenizer import Tokenizer
else:
    Tokenizer = not_imported("saucier.text.tokenizer.tokenizer", "Tokenizer")


@public
def open(
    model: Annotated[Place, Help("A run, a fine-tuning, a model folder in any layout, an adapter, or a hub id.")],
    *,
    tokenizer: Annotated[Place | Tokenizer | None, Help("Instead of the one in the model's folder.")] = None,
    base: Base = None,
    format: NumberFormat = None,
    dtype: InferenceDtype = "auto",
    device: Device = "auto",
) -> "App":
    """Open a model for use: `app("a film")` answers, `app.batch(texts)` for many, `app.stream(text)` while it writes.

    From Python: what it answers follows from what the model is. Raises `InputError` for a model that answers nothing.
    """
    import os
    from pathlib import Path

    from saucier.jobs.app import open_app

    given = Path(tokenizer) if isinstance(tokenizer, str | os.PathLike) else tokenizer
    return open_app(Path(model), tokenizer=given, base=None if base is None else str(base), dtype=dtype, device=device,
                    number_format=format)
