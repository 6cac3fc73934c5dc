"""What a shell completes in the place of an argument: names of recipes and kinds of tasks. Files it completes itself.

Nothing heavy is imported for a name of a recipe; for a task its settings are, without torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

ABOUT = re.compile(r"^about: *[\"']?(.*?)[\"']?$", re.MULTILINE)
Completion = list[tuple[str, str]]
"""Names, each with what a shell may show next to it."""


def complete_recipe(incomplete: str) -> Completion:
    """Return the recipes whose name begins so, each with what it is."""
    folder = Path(__file__).parents[1] / "recipes"
    found = {path.stem: ABOUT.search(path.read_text(encoding="utf-8"))
             for path in sorted(folder.glob("*.yaml")) if path.stem.startswith(incomplete)}
    return [(name, about[1] if about else "") for name, about in found.items()]


def complete_task(incomplete: str) -> Completion:
    """Return the kinds of tasks that begin so."""
    from saucier.tasks.definitions import task_kinds

    return [(kind, "") for kind in task_kinds() if kind.startswith(incomplete)]


COMPLETERS: dict[str | None, Callable[[str], Completion]] = {
    "RECIPE": complete_recipe, "NAME|FILE": complete_recipe, "A": complete_recipe, "B": complete_recipe,
    "A|B|STUDY": complete_recipe, "TASK": complete_task}
"""What an argument is called on the command line -> what completes it."""
