"""What a run says to the person who watches: one heading a stage, and a few lines under it. Plain text in a pipe."""

from __future__ import annotations

import contextlib
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rich.console import Console
from rich.text import Text

BAR = "│ "
INDENT = 12
"""Columns of the stage's name; everything else stands to the right of it."""


def screen() -> Console:
    """Return standard output; in a pipe lines are never folded."""
    console = Console(highlight=False, soft_wrap=False)
    return console if console.is_terminal else Console(highlight=False, width=10_000)


@dataclass(slots=True)
class Voice:
    """Speaks, and keeps the time of each stage. A silent one says nothing (the other processes of a group)."""

    silent: bool = False
    heard: Callable[[str, float], None] = lambda stage, seconds: None
    """Told of every stage that ended, with its seconds."""
    console: Console = field(default_factory=screen)
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
            self.heard(name, time.perf_counter() - begin)

    def say(self, text: str, style: str = "") -> None:
        """Print a line; the first of a stage carries its name."""
        name, self.waiting = self.waiting, ""
        self.put(Text(name.ljust(INDENT), style="bold cyan") + Text(text, style=style))

    def note(self, text: str) -> None:
        """Print a line that matters less."""
        self.say(text, style="dim")

    def quote(self, text: str) -> None:
        """Print a text that a model wrote, line by line, with a bar before it."""
        width = max(20, self.console.width - INDENT - len(BAR))
        for line in text.strip("\n").splitlines():
            for part in textwrap.wrap(line, width, drop_whitespace=False) or [""]:
                self.put(Text(" " * INDENT + BAR, style="dim") + Text(part, style="italic"))

    def heading(self, text: str) -> None:
        """Print what this is all about."""
        self.put(Text(text, style="bold"))
        self.put(Text(""))

    def put(self, text: Text) -> None:
        """Print, unless silent."""
        if not self.silent:
            self.console.print(text)
