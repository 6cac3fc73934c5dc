"""The documentation site's links: what lies in `docs/` leads to files that are there, and every page has its menu."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
LINK = re.compile(r"(?<!`)\[[^\]]*\]\((?P<target>[^)\s#]+)")


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.stem)
def test_links_of_a_page_lead_to_files(page: Path) -> None:
    """Outside of code, every link that is no address is a path from the page to a file or a folder."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = [found["target"] for found in LINK.finditer(text) if "://" not in found["target"]]
    assert [one for one in targets if not (page.parent / one).exists()] == []


def test_every_page_is_in_a_menu_of_the_site() -> None:
    """`mkdocs.yml` lists each page of `docs/` once; the others come from outside of it."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = [line.strip("- ").rpartition(" ")[2] for line in text.partition("\nnav:\n")[2].splitlines()
              if line.endswith(".md")]
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert len(listed) == len(set(listed))
    assert pages - set(listed) == set()
    assert set(listed) - pages == {"start.md", "contributing.md", "benchmarks.md"}
    assert yaml.safe_load(text)["strict"] is True
