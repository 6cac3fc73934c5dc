"""The pages of the documentation that are drawn from code: docs/book.md, docs/published.md and docs/bodies.md.

`python tools/book.py` writes all three (`make book`); with book, published or bodies it prints that one.
The rows of the Book are data, in `tools/book.yaml`; tests hold the pages current.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, cast, get_args

import yaml

from saucier import config as architecture
from saucier.checkpoints.fields import NEUTRAL
from saucier.checkpoints.layout import Layout
from saucier.families import FAMILIES, LAYOUTS
from saucier.lens.layouts import ANY, own_rulings
from saucier.objectives import config as c
from saucier.objectives.checks import find_mismatches
from saucier.objectives.config.single_objective import ObjectiveSetting
from saucier.recipes import Recipe, names, recipe
from saucier.text.config import Data, LanguageData, PairData, SpecialTokens, TextData, WordPiece

ROWS = Path(__file__).with_name("book.yaml")
DOCS = Path(__file__).resolve().parent.parent / "docs"
RowState = Literal["works", "partly", "not yet"]


@dataclass(frozen=True, slots=True)
class BookRow:
    """One system of the Book. `tests` are pytest addresses; `missing` says what a row that works partly still lacks."""

    number: str
    system: str
    tests: Sequence[str] = ()
    state: RowState = "not yet"
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Chapter:
    """Rows that belong together."""

    letter: str
    title: str
    rows: Sequence[BookRow]


CHAPTERS = [Chapter(one["letter"], one["title"], [BookRow(**row) for row in one["rows"]])
            for one in yaml.safe_load(ROWS.read_text(encoding="utf-8"))]
"""All of it, in order."""
BOOK_HEADER = """# The Book

Every system that Saucier is to make, in the order of its chapters: the recipes that cook it, the tests that show it,
and how far it has come. Written by `tools/book.py`; a test holds this page current.

"""
COLUMNS = ("", "system", "recipes", "shown by", "state")


def book_page() -> str:
    """Return docs/book.md."""
    recipes = recipes_by_row([recipe(name) for name in names()])
    states = [row.state for row in list_rows()]
    works, partly, not_yet = (states.count(state) for state in ("works", "partly", "not yet"))
    counted = f"{works} work, {partly} work partly, {not_yet} are not there yet.\n\n"
    return BOOK_HEADER + counted + "\n".join(chapter_text(chapter, recipes) for chapter in CHAPTERS)


def recipes_by_row(recipes: Sequence[Recipe]) -> dict[str, list[str]]:
    """Return the names of the recipes that serve each row."""
    found: dict[str, list[str]] = {}
    for one in recipes:
        for number in one.book:
            found.setdefault(number, []).append(one.name)
    return found


def list_rows() -> list[BookRow]:
    """Return the rows of all chapters."""
    return [row for chapter in CHAPTERS for row in chapter.rows]


def chapter_text(chapter: Chapter, recipes: Mapping[str, Sequence[str]]) -> str:
    """Return a chapter as a heading and a table."""
    lines = [f"## {chapter.letter}. {chapter.title}", "", markdown_row(COLUMNS), markdown_row(["---"] * len(COLUMNS))]
    return "\n".join(lines + [row_text(row, recipes.get(row.number, ())) for row in chapter.rows]) + "\n"


def row_text(row: BookRow, recipes: Sequence[str]) -> str:
    """Return one line of a table."""
    state = f"{row.state}; missing: {row.missing}" if row.missing else row.state
    shown = "<br>".join(test_link(test) for test in row.tests)
    return markdown_row([row.number, row.system, ", ".join(f"`{name}`" for name in recipes), shown, state])


def test_link(test: str) -> str:
    """Return the name of a test as a link from the page to its file; of a benchmark likewise."""
    file, _, function = test.partition("::")
    return f"[{(function or file).removeprefix('test_').replace('_', ' ')}](../{file})"


def markdown_row(values: Sequence[str]) -> str:
    """Return one line of a markdown table."""
    return "|" + "|".join(f" {value} " if value else " " for value in values) + "|"


BODIES_HEADER = """# What trains what

Any objective trains any body where the shapes allow; where they do not, a recipe is refused before any text is read,
and the reason is the one below. Each objective stands here with its defaults. Written by `tools/book.py`;
tests hold this page current, and train every pair that is said to fit. What the objectives are:
[objectives.md](objectives.md).

"""
LENGTH_TOKEN = c.ConditionalMasked().length_token
TOKENIZER = WordPiece(special=SpecialTokens(
    pad="<pad>", bos="<s>", eos="</s>", cls="<cls>", sep="<sep>", mask="<mask>", sentinels=100,
    extra=(*c.MixtureOfDenoisers().mode_tokens, *c.MultilingualDenoising().tokens, LENGTH_TOKEN),
    single=f"{LENGTH_TOKEN} $A </s>"))
"""A tokenizer that has every token, and marks what goes on with a word."""
SIZE = {"dim": 16, "layers": 2, "heads": 2, "vocab": 200}
HEADS = (architecture.LanguageHead(tied=False), architecture.ReplacedTokenHead(), architecture.BidirectionalHead())
"""The heads that an objective may ask for; a recipe puts any of them on a body."""


def list_bodies() -> dict[str, architecture.Transformer]:
    """Return a small body of every kind, by what a table calls it."""
    prefix = architecture.Prefix()
    return {"encoder": FAMILIES["bert"](**SIZE, length=64),
            "encoder, two streams": FAMILIES["xlnet"](**SIZE, hidden=32),
            "encoder, two directions": FAMILIES["elmo"](dim=16, layers=2, cells=12, vocab=200, tied=True),
            "decoder": FAMILIES["gpt2"](**SIZE, length=64),
            "prefix decoder": FAMILIES["gpt2"](**SIZE, length=64, visibility=prefix),
            "encoder and decoder": FAMILIES["t5"](**SIZE, head_dim=8, hidden=32),
            "encoder and decoder, whole texts": FAMILIES["mask_predict"](**SIZE, hidden=32, mask=5, longest=512)}


def list_objectives() -> list[c.Single]:
    """Return every objective with its defaults."""
    own = (kind for kind in union_members(c.Single) if not kind.model_fields["kind"].is_required())  # none from outside
    return [cast(Any, kind)() for kind in own]


def union_members(union: UnionType) -> Iterator[type[c.Single]]:
    """Yield the types of a union of unions."""
    for one in get_args(union):
        if isinstance(one, UnionType):
            yield from union_members(one)
        else:
            yield one


@dataclass(frozen=True, slots=True)
class ObjectiveOnBody:
    """An objective and a body, and why they do not go together, if they do not."""

    objective: c.Single
    body: architecture.Transformer
    """With the head that the objective asks for, where there is one that makes it fit."""
    reason: str | None


def check_pair(objective: c.Single, body: architecture.Transformer) -> ObjectiveOnBody:
    """Ask whether a body, with any head, can learn an objective."""
    several = isinstance(objective, c.MultilingualDenoising)
    data: Data = PairData() if objective.rows_read.kind == "text_pairs" else \
        LanguageData() if several else TextData()
    heads = (body.head,) if isinstance(body.head, architecture.LengthHead) else HEADS
    asked = [body.model_copy(update={"head": head}) for head in heads]
    reasons = [next((found.what for found in find_mismatches(objective, ObjectiveSetting(one, TOKENIZER, data))), None)
               for one in asked]
    best = reasons.index(None) if None in reasons else 0
    return ObjectiveOnBody(objective, asked[best], reasons[best])


def bodies_page() -> str:
    """Return docs/bodies.md."""
    kinds, reasons, lines = list_bodies(), dict[str, int](), []
    for objective in list_objectives():
        cells = []
        for body in kinds.values():
            reason = check_pair(objective, body).reason
            cells.append("yes" if reason is None else f"no ({reasons.setdefault(reason, len(reasons) + 1)})")
        lines.append(f"| `{objective.kind}` | " + " | ".join(cells) + " |")
    head = ["| objective | " + " | ".join(kinds) + " |", "|" + " --- |" * (len(kinds) + 1)]
    why = [f"{number}. {reason}" for reason, number in reasons.items()]
    return BODIES_HEADER + "\n".join([*head, *lines, "", *why]) + "\n"


SHARED = "Of these only one value is obeyed where a family does not list them: " + ", ".join(
    f"`{name}` (`{value}`)" for name, value in NEUTRAL.items()) + "."
PUBLISHED_HEADER = f"""# Published checkpoints

What `saucier.load` opens and `model.save` writes back, by the `model_type` of a folder's config.json. A class is what
the folder holds, or what `head=` asks for. A field that is not expressed is refused by its name, unless it is known to
change no number. Written by `tools/book.py`; a test holds this page current. How to use it:
[checkpoints.md](checkpoints.md).

{SHARED}

"""


def published_page() -> str:
    """Return docs/published.md."""
    return PUBLISHED_HEADER + "\n".join(layout_section(one) for one in LAYOUTS.values())


def layout_section(one: Layout) -> str:
    """Return the part of the page about one layout."""
    acting = [found for found in own_rulings(one) if found.acts]
    whole = ", ".join(f"`{found.name}`" for found in acting if found.obeyed == ANY)
    some = [f"- `{found.name}`: {found.words or ', '.join(f'`{value}`' for value in found.values or ())}"
            for found in acting if found.refused]
    older = ", ".join(f"`{found.name}`" for found in acting if found.newer)
    lines = [f"## {one.model_type}", "", "Classes: " + ", ".join(f"`{name}`" for name in one.classes) + ".", "",
             f"Obeyed with every value that makes a model: {whole}."]
    if older:
        lines += ["", f"Other spellings of these: {older}."]
    if some:
        lines += ["", "Obeyed with these values, refused with others:", "", *some]
    return "\n".join(lines) + "\n"


PAGES = {"book": book_page, "published": published_page, "bodies": bodies_page}


def main(words: list[str] | None = None) -> int:
    """Write the pages, or print one."""
    parser = argparse.ArgumentParser(description="write the pages of the documentation that are drawn from code")
    parser.add_argument("page", nargs="?", choices=PAGES, help="print this one, and write none")
    wanted = parser.parse_args(words).page
    if wanted is not None:
        print(PAGES[wanted](), end="")
    else:
        for name, make in PAGES.items():
            (DOCS / f"{name}.md").write_text(make(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
