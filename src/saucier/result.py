"""What a public function returns: figures as fields, plain values for a program, and one view for a terminal and a
notebook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saucier.plain import json_value

if TYPE_CHECKING:
    from rich.console import RenderableType

NOTEBOOK_WIDTH = 120
"""Columns of a result in a notebook."""
FRAME = '<pre style="font-family:monospace;line-height:1.3;white-space:pre">{code}</pre>'


class Result:
    """Base of the results: a dataclass or a `Config` inherits it next to its fields, and says how it is shown."""

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        """Let Python's prompt show what a terminal does; a dataclass would write all its fields in one line."""
        super().__init_subclass__(**options)
        if "__repr__" not in cls.__dict__:
            cls.__repr__ = Result.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        """Return what a terminal shows, as plain text."""
        return render_text(self.view())

    @property
    def failed(self) -> bool:
        """Whether the answer is no (a law does not hold, two runs differ): the command line then exits with 1."""
        return False

    def view(self) -> RenderableType:
        """Return what a terminal shows: text, a `Table`, or several of them in a rich `Group`."""
        raise NotImplementedError(f"{type(self).__name__} says how it is shown")

    def remarks(self) -> list[str]:
        """Return what a person should know of how it went; a shell says it on standard error."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON holds them."""
        dump = getattr(self, "model_dump", None)
        found: dict[str, Any] = json_value(self) if dump is None else dump(mode="json")
        return found

    def to_json(self) -> Any:
        """Return what `--json` prints: `to_dict()`, the list of a result that is one, or JSON lines as a text."""
        return self.to_dict()

    def __rich__(self) -> RenderableType:
        """Let rich print it."""
        return self.view()

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return render_html(self.view())


def render_text(view: RenderableType) -> str:
    """Return what a terminal would show, without its colours."""
    import io

    from rich.console import Console

    screen = Console(file=io.StringIO(), width=NOTEBOOK_WIDTH, highlight=False, color_system=None, force_jupyter=False)
    screen.print(view)
    return "\n".join(line.rstrip() for line in screen.file.getvalue().rstrip().splitlines())  # type: ignore[attr-defined]


def render_html(view: RenderableType) -> str:
    """Return what a terminal would show, as HTML with its colours."""
    import io

    from rich.console import Console

    screen = Console(record=True, file=io.StringIO(), width=NOTEBOOK_WIDTH, highlight=False, force_jupyter=False)
    screen.print(view)
    return screen.export_html(inline_styles=True, code_format=FRAME)
