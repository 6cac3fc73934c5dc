"""docs/taxonomy.md and its figure are current, and read off the configs."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from tools.taxonomy import group_systems, read_system, taxonomy_figure, taxonomy_page

from saucier.recipes import names, recipe


@pytest.mark.slow
def test_the_page_is_current(root: Path) -> None:
    """`make book` writes it."""
    assert (root / "docs" / "taxonomy.md").read_text(encoding="utf-8") == taxonomy_page(), "run `make book`"
    assert (root / "docs" / "taxonomy.svg").read_text(encoding="utf-8") == taxonomy_figure(), "run `make book`"


def test_what_is_read_off_a_recipe() -> None:
    """Of each body one, by what its paper says."""
    bert, neo, t5, big = (read_system(recipe(name)) for name in ("bert", "gpt-neo", "t5", "bigbird"))
    assert (bert.body, bert.objective, bert.attention, bert.positions) == ("encoder", "masked", "full", "learned")
    assert (bert.layers, bert.dim, bert.heads, bert.feed_forward, bert.residual) == ("12", 768, 12, "gelu", "post")
    assert (neo.body, neo.attention) == ("decoder", "full + window")
    assert (t5.layers, t5.positions, t5.objective) == ("12+12", "T5 bias", "span corruption")
    assert big.attention == "global + random + window"


def test_every_system_is_in_the_figure() -> None:
    """Once, by its sizes; the file is well-formed."""
    systems = [read_system(recipe(name)) for name in names()]
    groups = group_systems(systems)
    tree = ElementTree.fromstring(taxonomy_figure())
    drawn = [one.text for one in tree.iter("{http://www.w3.org/2000/svg}text") if one.get("class") == "name"]
    assert len(drawn) == len(groups) == len({*drawn})
    assert {one.family for one in systems} == {one.family for group in groups for one in group}
