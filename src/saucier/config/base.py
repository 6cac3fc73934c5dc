"""`Config`, the base of everything that a recipe can say: frozen, typed, and strict about unknown keys."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """A frozen piece of a recipe. Slots that exclude each other are unions told apart by `kind`."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False,
                              use_attribute_docstrings=True)
