"""The taxonomy of the recipes, and tables that compare them: docs/taxonomy.svg and docs/taxonomy.md.

`python tools/taxonomy.py` writes both, and `make book` as well. Everything is read off the configs of the recipes:
nothing here names a model.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path

from saucier import config as c
from saucier.config import parameters
from saucier.config.questions import list_terms
from saucier.objectives.config import list_single_objectives
from saucier.plain import format_quantity
from saucier.recipes import Recipe, names, recipe
from saucier.table import Table

DOCS = Path(__file__).resolve().parent.parent / "docs"
BODIES = ("encoder", "decoder", "encoder and decoder")
WORDS = {"favor": "random features", "lsh": "hashes", "low_rank": "mixtures of keys", "nystrom": "landmarks",
         "pooled_distances": "pooled distances", "t5_bias": "T5 bias", "alibi": "ALiBi",
         "transformer_xl": "Transformer-XL", "block_window": "window", "global_blocks": "global",
         "random_blocks": "random", "global_local": "global-local"}
"""Kinds whose name says less than these words."""
COMBINING = {"and", "or", "plus", "by_head", "beyond", "causal", "full", "none"}
"""Terms of a visibility that name no pattern of their own."""
FORWARD = (c.FeedForward, c.GatedFeedForward)
HEADER = """# Taxonomy

Every recipe by what its model is: its body, what it learns, what attends to what, and how it knows positions. Read off
the configs of the recipes by `tools/taxonomy.py`; a test holds this page current. Sizes without a paper of their own
(`…-nano`) are left out of the figure where their system is there.

![Recipes by body, objective, attention and positions](taxonomy.svg)

"""


@dataclass(frozen=True, slots=True)
class System:
    """What one recipe's model is."""

    name: str
    family: str
    year: int
    paper: str
    body: str
    objective: str
    attention: str
    positions: str
    layers: str
    dim: int
    heads: int | None
    feed_forward: str
    residual: str
    vocabulary: int
    parameters: int


def read_system(one: Recipe) -> System:
    """Read a recipe's model."""
    model = one.model
    sides = [side for side in ("encoder", "decoder") if getattr(model, side) is not None]
    sublayers = [part for stack in model.stacks for block in stack.blocks() for part in block.sublayers]
    inner = [part.inner for part in sublayers]
    attending = [part for part in inner if isinstance(part, c.SelfAttention)]
    forward = [part.activation + (" (gated)" if isinstance(part, c.GatedFeedForward) else "")
               for part in inner if isinstance(part, FORWARD)]
    layers = "+".join(str(len(getattr(model, side).blocks())) for side in sides)
    return System(one.name, one.family, one.year or 0, one.paper, " and ".join(sides), name_objective(one),
                  name_attention(inner), name_positions(model, attending), layers, model.dim,
                  attending[0].projection.heads if attending else None,
                  " ".join(dict.fromkeys(forward)).replace("_", " "),
                  sublayers[0].kind.replace("_", " "), model.embed.vocab, parameters(model))


def name_objective(one: Recipe) -> str:
    """Name what is learned; of a mixture its parts."""
    kinds = dict.fromkeys(part.kind.replace("_", " ") for part in list_single_objectives(one.objective))
    return " + ".join(kinds)


def name_attention(parts: Sequence[object]) -> str:
    """Say what mixes the tokens of a model: the patterns of its attentions, or what stands in their place."""
    found: dict[str, None] = {}
    for part in parts:
        if isinstance(part, c.SelfAttention):
            found.update(dict.fromkeys(name_patterns(part)))
        elif not isinstance(part, (*FORWARD, c.CrossAttention, c.Experts)):
            found[str(getattr(part, "kind", "")).replace("_", " ")] = None
    return " + ".join(found)


def name_patterns(part: c.SelfAttention) -> Iterator[str]:
    """Yield the names of what one attention sees; `full`: all, or all that is earlier."""
    kernel, terms = part.kernel.kind, {term.kind for term in list_terms(part.visibility)} - COMBINING
    if kernel != "softmax":
        yield WORDS.get(kernel, kernel.replace("_", " "))
    elif terms:
        yield from sorted(WORDS.get(term, term.replace("_", " ")) for term in terms)
    else:
        yield "full"


def name_positions(model: c.Transformer, attending: Sequence[c.SelfAttention]) -> str:
    """Say how a model knows where a token is."""
    tables = [one.positions.kind for one in (model.embed, model.decoder_embed) if one is not None and one.positions]
    found = dict.fromkeys([*tables, *(part.positions.kind for part in attending)])
    return " + ".join(WORDS.get(one, one.replace("_", " ")) for one in found if one != "none") or "none"


def group_systems(every: Sequence[System]) -> list[list[System]]:
    """Return the sizes of each system together: one family, one paper, one objective; in the order of the figure."""
    def key(one: System) -> tuple[int, str, int, str, str]:
        return BODIES.index(one.body), one.objective, one.year, one.family, one.paper

    groups = [sorted(group, key=lambda one: one.parameters) for _, group in groupby(sorted(every, key=key), key)]
    return [[one for one in group if "nano" not in one.name] or group for group in groups]


ROW, TOP, LEFT = 19, 46, 12
COLUMNS = (12, 164, 396, 556, 606, 796, 916, 1080)
"""Where body, objective, name, year, attention, positions and parameters begin, and where the figure ends."""
STYLE = """<style>
  text { font: 12px system-ui, sans-serif; fill: #5f6670; } .name { font-weight: 600; fill: #c0503a; }
  .body { font-size: 14px; font-weight: 600; } .head { font-size: 11px; fill: #7d858f; } .end { text-anchor: end; }
  path { fill: none; stroke: #b5bbc2; }
</style>"""


def draw_figure(groups: Sequence[Sequence[System]]) -> str:
    """Return the tree as an SVG file that can be read on light and on dark paper."""
    lines, place = [], TOP
    heads = ("body", "objective", "recipe", "year", "attention", "positions")
    lines += [draw_text(x, TOP - 24, head, "head") for x, head in zip(COLUMNS, heads, strict=False)]
    lines.append(draw_text(COLUMNS[-1], TOP - 24, "parameters", "head end"))
    for body, systems in groupby(groups, key=lambda group: group[0].body):
        first = place
        lines.append(draw_text(COLUMNS[0], place, body.replace(" and ", "-"), "body"))
        for objective, sizes in groupby(systems, key=lambda group: group[0].objective):
            begin = place
            lines += [draw_text(COLUMNS[1], place, objective), draw_branch(COLUMNS[1], first, place)]
            for group in sizes:
                lines += [draw_branch(COLUMNS[2], begin, place), *draw_leaf(group, place)]
                place += ROW
        place += ROW
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {COLUMNS[-1] + LEFT} {place}" role="img" '
            'aria-label="Recipes by body, objective, attention and positions">\n'
            + "\n".join([STYLE, *lines, "</svg>"]) + "\n")


def draw_leaf(group: Sequence[System], y: int) -> Iterator[str]:
    """Yield the line of one system."""
    one = group[0]
    sizes = dict.fromkeys(format_quantity(size.parameters) for size in (group[0], group[-1]))
    shown = min((size.name for size in group), key=len)
    yield draw_text(COLUMNS[2], y, shown, "name")
    for x, text in zip(COLUMNS[3:], (str(one.year), one.attention, one.positions), strict=False):
        yield draw_text(x, y, text)
    yield draw_text(COLUMNS[-1], y, " – ".join(sizes), "end")


def draw_text(x: int, y: int, text: str, kind: str = "") -> str:
    """Return a word of the figure."""
    return f'<text x="{x}" y="{y}"{f" class={chr(34)}{kind}{chr(34)}" if kind else ""}>{escape(text)}</text>'


def draw_branch(x: int, start: int, end: int) -> str:
    """Return the line from a node to one of its children."""
    middle = x - 14
    return f'<path d="M{middle} {start - 4}V{end - 4}H{x - 4}"/>'


def taxonomy_page() -> str:
    """Return docs/taxonomy.md."""
    every = [read_system(recipe(name)) for name in names()]
    parts = []
    for body in BODIES:
        found = sorted((one for one in every if one.body == body),
                       key=lambda one: (one.year, one.family, one.parameters))
        rows = [(f"`{one.name}`", one.year, one.layers, one.dim, one.heads or "", one.attention, one.positions,
                 one.feed_forward, one.residual, one.objective, f"{one.vocabulary:,}", format_quantity(one.parameters))
                for one in found]
        table = Table(("recipe", "year", "layers", "width", "heads", "attention", "positions", "feed-forward",
                       "residual", "objective", "vocabulary", "parameters"), rows)
        parts.append(f"## {body.capitalize()}\n\n{table.to_markdown()}\n")
    return HEADER + "\n".join(parts)


def taxonomy_figure() -> str:
    """Return docs/taxonomy.svg."""
    return draw_figure(group_systems([read_system(recipe(name)) for name in names()]))


def main() -> int:
    """Write both files."""
    (DOCS / "taxonomy.svg").write_text(taxonomy_figure(), encoding="utf-8")
    (DOCS / "taxonomy.md").write_text(taxonomy_page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
