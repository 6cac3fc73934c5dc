"""Saucier: every transformer from one small kitchen. The public names, each imported on first use, so that this is quick."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saucier.checkpoints import load as load
    from saucier.errors import InputError as InputError
    from saucier.generation import generate as generate
    from saucier.model import build as build
    from saucier.recipes import recipe as recipe
    from saucier.text.tokenizer import load_tokenizer as load_tokenizer

__version__ = "0.1.0"
__all__ = ["InputError", "__version__", "build", "generate", "load", "load_tokenizer", "recipe"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for; it is remembered after that."""
    match name:
        case "load":
            from saucier.checkpoints import load as found
        case "InputError":
            from saucier.errors import InputError as found
        case "generate":
            from saucier.generation import generate as found
        case "build":
            from saucier.model import build as found
        case "recipe":
            from saucier.recipes import recipe as found
        case "load_tokenizer":
            from saucier.text.tokenizer import load_tokenizer as found
        case _:
            raise AttributeError(f"module 'saucier' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the public names, also those not imported yet."""
    return sorted([*globals(), *__all__])
