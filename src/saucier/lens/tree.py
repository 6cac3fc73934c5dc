"""How a config and a model print: the anatomy tree of `saucier show`, as text and for a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from saucier.config import Transformer, anatomy, check, learned_length
from saucier.config.base import validate_again
from saucier.errors import InputError
from saucier.lens.anatomy import anatomy_cells, anatomy_rows
from saucier.result import render_html, render_text
from saucier.table import Table

if TYPE_CHECKING:
    from saucier.model import Transformer as Model

LENGTH = 512
"""Tokens that attention is counted over, where the model reads as many."""


def tree_view(config: Transformer, what: str) -> Group:
    """Return the tree of a config's parts below a line that says what it is.

    Raises `InputError` for a config that makes no model.
    """
    validate_again(config)
    check(config)
    node = anatomy(config, min(learned_length(config) or LENGTH, LENGTH))
    cells = (anatomy_cells(guides, part) for guides, part in anatomy_rows(node))
    rows = [(name, shape, parameters, detail) for name, shape, parameters, _, detail in cells]
    table = Table(("part", "shape", "parameters", "what"), rows, numbers=(2,), folded=(3,), heading_style="dim",
                  whole=True)
    return Group(Text(f"{what}, {node.parameters:,} parameters"), table)


def draw_config(config: Transformer, *, html: bool = False) -> str | None:
    """Return a config as its tree; None for one that makes no model and so has none."""
    try:
        return draw(tree_view(config, "saucier.config.Transformer"), html=html)
    except InputError:
        return None


def draw_model(model: Model, *, html: bool = False) -> str:
    """Return a model as the tree of its config, with what distinguishes it: class, format, device, adapters."""
    known = model.provenance
    classes = known.document.get("architectures")
    named = f"{known.model_type} ({classes[0]})" if isinstance(classes, list) and classes else "saucier.Transformer"
    said = [named, f"{str(model.dtype).removeprefix('torch.')} on {model.device}",
            *([f"from {known.path}"] if known.path else []),
            *(f"with {one.by!r}" for one in known.rewrites)]
    return draw(tree_view(model.config, ", ".join(said)), html=html)


def draw(view: Group, *, html: bool) -> str:
    """Return what a terminal would show, as plain text or as HTML with its colours."""
    return render_html(view) if html else render_text(view)
