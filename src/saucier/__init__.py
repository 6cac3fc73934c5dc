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

    from saucier.api.app import open as open  # noqa: A004  # its public name: saucier.open
    from saucier.api.inference import augment as augment
    from saucier.api.inference import backtranslate as backtranslate
    from saucier.api.inference import embed_files as embed_files
    from saucier.api.inference import predict as predict
    from saucier.api.inference import prompt as prompt
    from saucier.api.inference import write as write
    from saucier.api.inspection import attention as attention
    from saucier.api.inspection import attention_map as attention_map
    from saucier.api.inspection import diagnose as diagnose
    from saucier.api.inspection import diff as diff
    from saucier.api.inspection import list_families as list_families
    from saucier.api.inspection import list_recipes as list_recipes
    from saucier.api.inspection import number_formats as number_formats
    from saucier.api.inspection import plan as plan
    from saucier.api.inspection import recipe_schema as recipe_schema
    from saucier.api.inspection import scaling as scaling
    from saucier.api.inspection import show as show
    from saucier.api.knowledge import ask as ask
    from saucier.api.knowledge import index as index
    from saucier.api.knowledge import search as search
    from saucier.api.measuring import bench as bench
    from saucier.api.measuring import evaluate as evaluate
    from saucier.api.measuring import score as score
    from saucier.api.models import convert as convert
    from saucier.api.models import export as export
    from saucier.api.models import merge as merge
    from saucier.api.models import push as push
    from saucier.api.retrieval import evaluate_retriever as evaluate_retriever
    from saucier.api.retrieval import mine_negatives as mine_negatives
    from saucier.api.retrieval import train_retriever as train_retriever
    from saucier.api.text import clean as clean
    from saucier.api.text import inspect_tokenizer as inspect_tokenizer
    from saucier.api.text import train_tokenizer as train_tokenizer
    from saucier.api.training import compare as compare
    from saucier.api.training import compress as compress
    from saucier.api.training import cook as cook
    from saucier.api.training import finetune as finetune
    from saucier.api.training import fit as fit
    from saucier.api.training import rerun as rerun
    from saucier.api.training import train as train
    from saucier.config.registry import register as register
    from saucier.errors import InputError as InputError
    from saucier.errors import WorkError as WorkError
    from saucier.folders.load import load as load
    from saucier.generation.generate import generate as generate
    from saucier.model import Transformer
    from saucier.model import build as build
    from saucier.recipes.catalogue import recipe as recipe
    from saucier.retrieval.embed import embed as embed
    from saucier.text.tokenizer.tokenizer import load_tokenizer as load_tokenizer

__version__ = VERSION
PUBLIC = {
    "InputError": "saucier.errors", "WorkError": "saucier.errors", "build": "saucier.model",
    "embed": "saucier.retrieval.embed", "generate": "saucier.generation.generate", "load": "saucier.folders.load",
    "load_tokenizer": "saucier.text.tokenizer.tokenizer", "recipe": "saucier.recipes.catalogue",
    "register": "saucier.config.registry",
    **dict.fromkeys(("cook", "train", "rerun", "finetune", "fit", "compare", "compress"), "saucier.api.training"),
    **dict.fromkeys(("bench", "evaluate", "score"), "saucier.api.measuring"), "open": "saucier.api.app",
    **dict.fromkeys(("write", "predict", "embed_files", "prompt", "backtranslate", "augment"),
                    "saucier.api.inference"),
    **dict.fromkeys(("list_recipes", "list_families", "recipe_schema", "show", "diff", "plan", "diagnose",
                     "scaling", "attention", "attention_map", "number_formats"), "saucier.api.inspection"),
    **dict.fromkeys(("ask", "index", "search"), "saucier.api.knowledge"),
    **dict.fromkeys(("convert", "export", "merge", "push"), "saucier.api.models"),
    **dict.fromkeys(("clean", "train_tokenizer", "inspect_tokenizer"), "saucier.api.text"),
    **dict.fromkeys(("evaluate_retriever", "mine_negatives", "train_retriever"), "saucier.api.retrieval"),
}
"""Public name -> its module."""
__all__ = ["__version__", *PUBLIC]


def choose_task_head(task: object, labels: object) -> Callable[[Transformer, str | Path], Transformer]:
    """Return what puts the head of a task on a model from a place, for `load`."""
    from functools import partial

    from saucier.jobs.finetuning.fresh_head import put_task_head, read_task_request

    return partial(put_task_head, task=read_task_request(task, labels))


def hand_in(module: str, name: str) -> Callable[..., Any]:
    """Return what imports a function when it is called: a low module must not import a higher one."""
    def call(*values: Any, **options: Any) -> Any:
        from importlib import import_module

        return getattr(import_module(module), name)(*values, **options)

    return call


moved.install()
HANDED_IN |= {
    "save": hand_in("saucier.folders.save", "save"),
    "restore_stored": hand_in("saucier.folders.stored", "restore_stored"),
    "task head": choose_task_head,
    "config fault": hand_in("saucier.recipes.validation", "describe_config_fault"),
    "write card": hand_in("saucier.report.card", "write_saved_card"),
    "draw config": hand_in("saucier.lens.tree", "draw_config"),
    "draw model": hand_in("saucier.lens.tree", "draw_model"),
}


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
