"""One table for every reader: a terminal prints it, a template of `report` makes HTML of it, and it writes Markdown."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from saucier.errors import escape_direction_marks

if TYPE_CHECKING:
    from rich.table import Table as Drawn
    from rich.text import Text


@dataclass(frozen=True, slots=True)
class Table:
    """Headings and rows of cells: text, text with colours, or for a page alone finished HTML.

    Anything that prints with rich prints it (`__rich__`). A column is kept on one line unless it is among `folded`.
    """

    headings: Sequence[object]
    """All empty: none are shown."""
    rows: Sequence[Sequence[object]]
    numbers: Collection[int] = ()
    """Columns that are set to the right."""
    folded: Collection[int] = ()
    """Columns that go over several lines where the screen is narrow."""
    cut_words: bool = False
    """A word that is too long for a folded column is cut, not broken."""
    title: Text | str = ""
    caption: str = ""
    colours: Mapping[int, str] = field(default_factory=dict)
    """The style of a column on the screen."""
    bold: Collection[int] = ()
    """Rows in bold letters on the screen."""
    heading_style: str = "bold"
    whole: bool = False
    """Columns that are not folded keep their width even where the screen is too narrow for all."""
    gap: int = 2
    """Blanks after each column on the screen."""

    def __rich__(self) -> Drawn:
        """Return the table as the terminal draws it; brackets in cells are text, no markup."""
        from rich.table import Table as Drawn
        from rich.text import Text

        drawn = Drawn(box=None, pad_edge=False, padding=(0, self.gap, 0, 0), header_style=self.heading_style,
                      show_header=any(map(str, self.headings)), title=self.title or None, title_justify="left",
                      caption=self.caption or None, caption_justify="left")
        for place, heading in enumerate(self.headings):
            fixed = place not in self.folded
            width = max(len(str(line[place])) for line in (self.headings, *self.rows)) if fixed and self.whole else None
            drawn.add_column(Text(str(heading)), justify="right" if place in self.numbers else "left", no_wrap=fixed,
                             min_width=width, overflow="ellipsis" if fixed or self.cut_words else "fold",
                             style=self.colours.get(place, ""))
        for place, row in enumerate(self.rows):
            cells = (cell if isinstance(cell, Text) else Text(escape_direction_marks(str(cell))) for cell in row)
            drawn.add_row(*cells, style="bold" if place in self.bold else None)
        return drawn

    def to_markdown(self) -> str:
        """Return the table in Markdown, without a line end after it."""
        lines = ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |"
                 for line in (self.headings, *self.rows)]
        return "\n".join([lines[0], "|" + "---|" * len(self.headings), *lines[1:]])
