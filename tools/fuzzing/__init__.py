"""Fuzzing: damaged files and bad values, one module for each kind; `tools/fuzz.py` runs them."""

from __future__ import annotations

from tools.fuzzing.cases import Draw

KINDS = ("folders", "state", "adapters", "tasks", "recipes", "calls")


def kind_of(name: str) -> Draw:
    """Return what makes the cases of a kind. Each is imported when it is asked for."""
    match name:
        case "folders":
            from tools.fuzzing.folders import draw
        case "state":
            from tools.fuzzing.state import draw
        case "adapters":
            from tools.fuzzing.adapters import draw
        case "tasks":
            from tools.fuzzing.tasks import draw
        case "recipes":
            from tools.fuzzing.recipes import draw
        case _:
            from tools.fuzzing.calls import draw
    return draw
