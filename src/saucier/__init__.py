"""Saucier: every transformer from one small kitchen.

The public names, each imported when it is first asked for, so that `import saucier` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saucier import moved
from saucier.plain import HANDED_IN, VERSION

if TYPE_CHECKING:
    from pathlib import Path

    from saucier.errors import InputError as InputError
    from saucier.folders.load import load as load
    from saucier.generation.generate import generate as generate
    from saucier.model import Transformer
    from saucier.model import build as build
    from saucier.recipes.catalogue import recipe as recipe
    from saucier.retrieval.embed import embed as embed
    from saucier.text.tokenizer.tokenizer import load_tokenizer as load_tokenizer

__version__ = VERSION
__all__ = ["InputError", "__version__", "build", "embed", "generate", "load", "load_tokenizer", "recipe"]


def save_model(model: Transformer, folder: str | Path) -> str:
    """Write a model folder, for `Transformer.save`: the model imports nothing above itself."""
    from saucier.folders.save import save

    return save(model, folder)


moved.install()
HANDED_IN["save"] = save_model


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for; it is remembered after that."""
    globals()[name] = found = public(name)
    return found


def public(name: str) -> Any:
    """Import one of the public names. Raises `AttributeError` for any other."""
    match name:
        case "load":
            from saucier.folders.load import load

            return load
        case "InputError":
            from saucier.errors import InputError

            return InputError
        case "generate":
            from saucier.generation.generate import generate

            return generate
        case "build":
            from saucier.model import build

            return build
        case "recipe":
            from saucier.recipes.catalogue import recipe

            return recipe
        case "embed":
            from saucier.retrieval.embed import embed

            return embed
        case "load_tokenizer":
            from saucier.text.tokenizer.tokenizer import load_tokenizer

            return load_tokenizer
    raise AttributeError(f"module 'saucier' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, also those not imported yet."""
    return sorted([*globals(), *__all__])
