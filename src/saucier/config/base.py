"""`Config`, the base of everything that a recipe can say: frozen, typed, and strict about unknown keys.

`rewrite_config` changes a whole tree of them.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, field_validator

LARGEST_NUMBER = 2**63 - 1
"""The largest whole number that tensors, arrays and files can hold."""

# To read the docstrings of fields, Pydantic asks `inspect` for the module of every frame that a class is made in. It
# finds none for the frames of `import` itself, and looks through all modules each time: six seconds after PyTorch.
for part in ("_bootstrap", "_bootstrap_external"):
    inspect.modulesbyfile.setdefault(os.path.abspath(f"<frozen importlib.{part}>"), f"importlib.{part}")


class Config(BaseModel):
    """A frozen piece of a recipe. Slots that exclude each other are unions told apart by `kind`.

    No whole number in it is beyond 64 bits: nothing that reads it could hold it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False,
                              use_attribute_docstrings=True)

    @field_validator("*")
    @classmethod
    def _of_64_bits(cls, value: Any) -> Any:
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, int) and not -LARGEST_NUMBER <= one <= LARGEST_NUMBER:
                raise ValueError("should be a whole number of at most 64 bits")
        return value


Part = TypeVar("Part", bound=Config)


def rewrite_config(config: Part, change: Callable[[Config], Config]) -> Part:
    """Return a part of a model with `change` done to every config in it, the innermost first.

    What does not change is the same object as before.
    """
    found = {name: one for name, value in config if (one := _rewrite_value(value, change)) is not value}
    return change(config.model_copy(update=found) if found else config)  # type: ignore[return-value]  # the same slot


def _rewrite_value(value: Any, change: Callable[[Config], Config]) -> Any:
    if isinstance(value, Config):
        return rewrite_config(value, change)
    if isinstance(value, tuple):
        found = tuple(_rewrite_value(one, change) for one in value)
        return value if all(one is other for one, other in zip(found, value, strict=True)) else found
    return value
