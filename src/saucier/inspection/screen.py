"""Putting tables on the screen, or into a pipe: there they are plain text, wide enough that nothing is folded."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console, RenderableType

PIPE_WIDTH = 160
"""Columns of output that goes to a file or another program."""


def put(what: RenderableType) -> None:
    """Print something for a person."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PIPE_WIDTH)
    console.print(what, soft_wrap=False)


def put_json(value: Any) -> None:
    """Print something for a program."""
    print(json.dumps(value, indent=2, ensure_ascii=False))
