"""`Config`, the base of everything that a recipe can say: frozen, typed, and strict about unknown keys."""

from __future__ import annotations

import inspect
import os

from pydantic import BaseModel, ConfigDict

# To read the docstrings of fields, Pydantic asks `inspect` for the module of every frame that a class is made in. It
# finds none for the frames of `import` itself, and looks through all modules each time: six seconds after PyTorch.
for name in ("_bootstrap", "_bootstrap_external"):
    inspect.modulesbyfile.setdefault(os.path.abspath(f"<frozen importlib.{name}>"), f"importlib.{name}")


class Config(BaseModel):
    """A frozen piece of a recipe. Slots that exclude each other are unions told apart by `kind`."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False,
                              use_attribute_docstrings=True)
