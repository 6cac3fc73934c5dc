"""Saucier: every transformer from one small kitchen.

The public names, each imported when it is first asked for, so that `import saucier` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saucier import moved
from saucier.plain import HANDED_IN, VERSION

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from saucier.errors import InputError as InputError
    from saucier.folders.load import load as load
    from saucier.generation.generate import generate as generate
    from saucier.model import Transformer
    from saucier.model import build as build
    from saucier.parts.provenance import Saved
    from saucier.recipes.catalogue import recipe as recipe
    from saucier.retrieval.embed import embed as embed
    from saucier.text.tokenizer.tokenizer import load_tokenizer as load_tokenizer

__version__ = VERSION
PUBLIC = {"InputError": "saucier.errors", "build": "saucier.model", "embed": "saucier.retrieval.embed",
          "generate": "saucier.generation.generate", "load": "saucier.folders.load",
          "load_tokenizer": "saucier.text.tokenizer.tokenizer", "recipe": "saucier.recipes.catalogue"}
"""Public name -> its module."""
__all__ = ["InputError", "__version__", "build", "embed", "generate", "load", "load_tokenizer", "recipe"]


def save_model(model: Transformer, folder: str | Path, **options: Any) -> Saved:
    """Write a model folder, for `Transformer.save`: the model imports nothing above itself."""
    from saucier.folders.save import save

    return save(model, folder, **options)


def restore_stored(model: Transformer) -> None:
    """Take the numbers back that loading rounded, for `Transformer.restore_stored`."""
    from saucier.folders import stored

    stored.restore_stored(model)


def choose_task_head(task: object, labels: object) -> Callable[[Transformer, str | Path], Transformer]:
    """Return what puts the head of a task on a model from a place, for `load`: what a task is stands above folders."""
    from functools import partial

    from saucier.jobs.finetuning.fresh_head import put_task_head, read_task_request

    return partial(put_task_head, task=read_task_request(task, labels))


moved.install()
HANDED_IN |= {"save": save_model, "restore_stored": restore_stored, "task head": choose_task_head}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for; it is remembered after that. Raises `AttributeError`."""
    if name not in PUBLIC:
        raise AttributeError(f"module 'saucier' has no attribute {name!r}")
    from importlib import import_module

    globals()[name] = found = getattr(import_module(PUBLIC[name]), name)
    return found


def __dir__() -> list[str]:
    """List the public names, also those not imported yet."""
    return sorted([*globals(), *__all__])
