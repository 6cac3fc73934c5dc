"""The documentation site: links of `docs/` lead to files, every page has its menu, public functions their section."""

import inspect
import re
from pathlib import Path

import pytest
import yaml
from tools.public_page import write_public_page

import saucier

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
    pages = {path.relative_to(ROOT / "docs").with_suffix(".md").as_posix() for kind in ("*.md", "*.ipynb")
             for path in (ROOT / "docs").rglob(kind)}
    assert len(listed) == len(set(listed))
    assert pages - set(listed) == set()
    assert set(listed) - pages == {"start.md", "contributing.md", "benchmarks.md"}
    assert yaml.safe_load(text)["strict"] is True


def test_the_site_loads_nothing_from_the_network() -> None:
    """No fonts, and the one script that searching from a folder needs is ours to give."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    settings = yaml.safe_load(text)
    assert settings["theme"]["font"] is False and "offline" in settings["plugins"]
    assert [(ROOT / "docs" / name).is_file() for name in settings["extra"]["polyfills"]] == [True]
    assert "http" not in text


def test_every_public_name_has_its_section() -> None:
    """With the arguments that its signature has, their help, and their names on the command line."""
    page = write_public_page(lambda module: f"{module}.md")
    assert sorted(re.findall(r"^### (\w+) ", page, re.MULTILINE)) == sorted(saucier.PUBLIC)
    cook = page.partition("### cook ")[2].partition("### ")[0]
    assert "saucier.cook(recipe=None, set=(), *, data=None," in cook
    assert "Returns [`Run`](saucier.report.results.md)" in cook
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (.*?) \|$", cook, re.MULTILINE))
    assert (rows["start"], rows["calibrate"]) == ("`--from MODEL`", "`--no-calibrate`")
    assert rows["quiet"] == "only from Python"
    assert set(rows) == set(inspect.signature(saucier.cook).parameters)
