"""The documentation site: what `mkdocs.yml` cannot say. `make docs` builds it, offline and strictly, into `build/site`.

The pages of `docs/` are written to be read in the repository, too: their links lead to source files, tests and the
README. On the site a link to a module leads to its page of the reference, which is made here for every module of the
package, after one page of the public functions; README, contributing guide, benchmark results and notebooks become
pages; a link to a test becomes plain text. Nothing is loaded from the network: the build fails where a page would.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools.notebooks import list_notebooks, to_markdown
from tools.public_page import write_public_page

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "saucier"
OUTSIDE = {"README.md": "start.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md",
           "benchmarks/RESULTS.md": "benchmarks.md"}
"""Pages that lie outside of `docs`, and what they are called on the site."""
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
REFERENCE, PUBLIC_PAGE = "API reference", "reference/index.md"
FIRST = ("api", "config", "parts", "model", "objectives", "training", "tasks", "recipes", "generation", "text")
"""What of the package the menu of the reference shows first: what a person combines. The rest is alphabetical."""
LOADED = re.compile(r"""<(?:script|img|iframe|source|embed)\b[^>]*\bsrc=["']?https?:"""
                    r"""|<link\b[^>]*\brel=["']?stylesheet[^>]*https?:""")
"""What a browser would fetch from the network to show a page."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the reference, notebooks, and what is outside of `docs`; put the reference into the menu."""
    for source, name in OUTSIDE.items():
        if (ROOT / source).is_file():
            files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    for path in list_notebooks():
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=to_markdown(path)))
    page = write_public_page(lambda module: posixpath.relpath(reference_page(module), posixpath.dirname(PUBLIC_PAGE)))
    files.append(File.generated(config, PUBLIC_PAGE, content=page))
    for module in list_modules():
        text = f"---\ntitle: {module.rpartition('.')[2]}\n---\n\n# {module}\n\n::: {module}\n"
        files.append(File.generated(config, reference_page(module), content=text))
    assert config.nav is not None, "mkdocs.yml has one"
    config.nav = [*config.nav, {REFERENCE: [{"Public functions": PUBLIC_PAGE}, *build_navigation()]}]
    return files


def list_modules() -> Iterator[str]:
    """Yield every module of the package by its dotted name, packages before what is in them."""
    for path in sorted(PACKAGE.rglob("*.py"), key=lambda one: name_module(one).split(".")):
        if path.stem != "__main__":
            yield name_module(path)


def name_module(path: Path) -> str:
    """Return the dotted name of a module of the package."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def reference_page(module: str) -> str:
    """Return where the page of a module lies on the site; a package has the page of its folder."""
    path = Path(*module.split("."))
    return f"reference/{path.as_posix()}{'/index' if (PACKAGE.parent / path).is_dir() else ''}.md"


def build_navigation() -> list[Any]:
    """Return the modules as nested menus, a menu for each folder."""
    menus: dict[str, list[Any]] = {"": []}
    for module in sorted(list_modules(), key=menu_place):
        parent, _, name = module.rpartition(".")
        if (PACKAGE.parent / Path(*module.split("."))).is_dir():
            menus[module] = [reference_page(module)]
            menus[parent].append({name: menus[module]})
        else:
            menus[parent].append(reference_page(module))
    return menus[""]


def menu_place(module: str) -> int:
    """Return where the menu shows a module: the package, then what comes first, then all other folders and files."""
    folder = module.split(".")[1:2]
    return 0 if not folder else 1 + FIRST.index(folder[0]) if folder[0] in FIRST else 1 + len(FIRST)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Refuse a page that would load something from the network."""
    if (found := LOADED.search(output)) is not None:
        raise PluginError(f"{page.file.src_uri} loads from the network: {found[0]}")
    return output


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let the links of a page lead to what is on the site."""
    name = page.file.src_uri
    if name.startswith("reference/"):
        return markdown
    sources = {uri: source for source, uri in OUTSIDE.items()}
    source = sources.get(name, f"docs/{name}")

    def follow(found: re.Match[str]) -> str:
        if "://" in found["target"] or found["target"].startswith("mailto:"):
            return found[0]
        target = find_page(posixpath.normpath(posixpath.join(posixpath.dirname(source), found["target"])))
        if target is None:
            return found["text"]
        return f"[{found['text']}]({posixpath.relpath(target, posixpath.dirname(name) or '.')}{found['anchor'] or ''})"

    return LINK.sub(follow, markdown)


def find_page(path: str) -> str | None:
    """Return where a file of the repository lies on the site; None for what is not there."""
    if path in OUTSIDE:
        return OUTSIDE[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/").replace(".ipynb", ".md")
    module = ROOT / path
    if module.is_relative_to(PACKAGE) and module.suffix == ".py" and module.is_file():
        return reference_page(name_module(module))
    return None
