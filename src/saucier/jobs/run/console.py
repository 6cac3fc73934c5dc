"""What a person sees of a job: one heading per stage with a few lines under it, and tables. Plain text in a pipe."""

from __future__ import annotations

import contextlib
import json
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rich.console import Console as Screen
from rich.console import RenderableType
from rich.text import Text

from saucier.errors import escape_direction_marks
from saucier.machine import in_notebook

Item = TypeVar("Item")
PIPE_WIDTH = 160
"""Columns of output that goes to a file or another program."""


def print_table(what: RenderableType) -> None:
    """Print something for a person."""
    standard_output(PIPE_WIDTH).print(what, soft_wrap=False, crop=False)


def print_json(value: Any) -> None:
    """Print something for a program."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def show_progress(items: Sequence[Item], what: str) -> Iterable[Item]:
    """Yield items, under a bar on standard error where a person sees one."""
    from rich.progress import track

    from saucier.training.progress import shows_bar

    return track(items, what, console=Screen(stderr=True)) if shows_bar() else items


QUOTE_BAR = "│ "
STAGE_WIDTH = 12
"""Columns of the stage's name; everything else is to the right of it."""


def standard_output(pipe_width: int = 10_000) -> Screen:
    """Return standard output; in a pipe it is so wide that lines are not folded.

    In a notebook, which says that it is a terminal, it is as in a pipe: rich would make an output of its own, with
    margins, of each line.
    """
    screen = Screen(highlight=False, soft_wrap=False, force_jupyter=False)
    if screen.is_terminal and not in_notebook():
        return screen
    return Screen(highlight=False, width=pipe_width, force_jupyter=False, force_terminal=False)


@dataclass(slots=True)
class Console:
    """Speaks, and keeps the time of each stage. A silent one says nothing (the other processes of a group)."""

    silent: bool = False
    on_stage_end: Callable[[str, float], None] = lambda stage, seconds: None
    """Called with every stage that ended, and its seconds."""
    screen: Screen = field(default_factory=standard_output)
    waiting: str = ""
    """The stage whose name was not printed yet."""

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Enter a stage."""
        self.waiting, begin = name, time.perf_counter()
        try:
            yield
        finally:
            self.waiting = ""
            self.on_stage_end(name, time.perf_counter() - begin)

    def say(self, *lines: str, style: str = "") -> None:
        """Print lines; the first of a stage carries its name."""
        for text in lines:
            name, self.waiting = self.waiting, ""
            self.put(Text(name.ljust(STAGE_WIDTH), style="bold cyan") + Text(escape_direction_marks(text), style=style))

    def note(self, *lines: str) -> None:
        """Print lines that matter less."""
        self.say(*lines, style="dim")

    def quote(self, text: str) -> None:
        """Print a text that a model wrote, line by line, with a bar before it."""
        width = max(20, self.screen.width - STAGE_WIDTH - len(QUOTE_BAR))
        for line in text.strip("\n").splitlines():
            for part in textwrap.wrap(line, width, drop_whitespace=False) or [""]:
                shown = Text(escape_direction_marks(part), style="italic")
                self.put(Text(" " * STAGE_WIDTH + QUOTE_BAR, style="dim") + shown)

    def heading(self, text: str) -> None:
        """Print what this is all about."""
        self.put(Text(text, style="bold"))
        self.put(Text(""))

    def show(self, what: RenderableType) -> None:
        """Print a result, unless silent."""
        if not self.silent:
            print_table(what)

    def put(self, text: Text) -> None:
        """Print, unless silent."""
        if not self.silent:
            self.screen.print(text)
