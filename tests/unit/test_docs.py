"""What the documentation says is there: links, files, verbs, recipes; its recipes load and its code runs."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from saucier import config as c
from saucier.families import FAMILIES
from saucier.recipes import names, recipe

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of a page in one language."""
    return [body for found, body in FENCE.findall(page.read_text(encoding="utf-8")) if found == language]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Relative links name files that exist."""
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", prose) if "://" not in link]
    assert [link for link in links if link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_exist(page: Path) -> None:
    """Paths into the repository name what is there."""
    named = re.findall(r"`((?:src|tests|docs|tools|benchmarks)/[\w./*-]+)`", page.read_text(encoding="utf-8"))
    known = {"src/saucier/families/palmlike.py", "src/saucier/recipes/palmlike-nano.yaml",
             "benchmarks/RESULTS.md"}
    assert [name for name in named if name not in known and not list(ROOT.glob(name.rstrip("/")))] == []


@pytest.mark.sampled
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_verbs_exist(page: Path) -> None:
    """Every `saucier VERB` is a verb."""
    import typer.main

    from saucier.cli import app

    verbs = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    text = page.read_text(encoding="utf-8")
    said = set(re.findall(r"(?:^|`|\$ |bin/)saucier ([a-z]+(?:-[a-z]+)*)\b", text, re.MULTILINE))
    assert said - verbs == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_recipes_exist(page: Path) -> None:
    """Every recipe that a command names is one of ours, or the page's own."""
    said = set(re.findall(r"saucier (?:cook|train|show|plan|diff) ([a-z0-9]+-[a-z0-9-]+)(?=[\s`])",
                          page.read_text(encoding="utf-8")))
    assert said - {*names(), "palmlike-nano"} == set()


def test_every_page_is_in_the_index() -> None:
    """No page is lost."""
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES if page.parent.name == "docs" and page.name != "index.md"
            and f"({page.name})" not in index] == []


def test_the_recipes_of_the_recipe_page_load(tmp_path: Path) -> None:
    """A whole recipe is one; a `model:` section alone replaces that of gpt-nano."""
    found = blocks(ROOT / "docs" / "recipes.md", "yaml")
    assert len(found) == 2
    for body in found:
        values = yaml.safe_load(body)
        if "name" not in values:
            values = yaml.safe_load((ROOT / "src/saucier/recipes/gpt-nano.yaml").read_text(encoding="utf-8")) | values
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump(values), encoding="utf-8")
        c.check(recipe(path).model)


def test_the_new_family_of_the_docs_works() -> None:
    """The function on the page about adding a family gives a legal model, and its recipe fits its signature."""
    page = ROOT / "docs" / "adding-a-family.md"
    scope: dict[str, object] = {}
    exec(compile(blocks(page, "python")[0], str(page), "exec"), scope)  # noqa: S102  (our own page)
    settings = yaml.safe_load(blocks(page, "yaml")[0])["model"]
    name = settings.pop("family")
    config = scope[name](**settings)  # type: ignore[operator]
    c.check(config)
    assert isinstance(config, c.Transformer)
    assert name not in FAMILIES, "it is real now: give the page another example"


def test_the_architecture_of_the_readme_builds(capsys: pytest.CaptureFixture[str]) -> None:
    """The Python example runs, and the page shows what it printed."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    exec(compile(blocks(ROOT / "README.md", "python")[0], "README.md", "exec"), {})  # noqa: S102  (our own page)
    assert capsys.readouterr().out.strip() in page


@pytest.mark.slow
@pytest.mark.parametrize("laws", ["named", pytest.param("held", marks=pytest.mark.nightly)])
def test_the_parts_of_ones_own_on_the_page_work(laws: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                capsys: pytest.CaptureFixture[str]) -> None:
    """Every program of the page runs after those before it; what it registers is chosen by its kind.

    The laws, to which four parts are held, take a minute: the quick test only sees that they are.
    """
    from saucier.config.registry import REGISTERED, registered_kinds
    from saucier.tasks.build import build_task
    from saucier.tasks.examples import Tally
    from saucier.text.reading.sources import find_sources

    page, scope, held = ROOT / "docs" / "extending.md", {"__name__": "kitchen"}, []
    monkeypatch.chdir(tmp_path)
    if laws == "named":
        monkeypatch.setattr("saucier.testing.check_laws", lambda part: held.append(type(part).__name__))
    for body in blocks(page, "python"):
        exec(compile(body, str(page), "exec", dont_inherit=True), scope)  # noqa: S102  (our own page)
    assert laws == "held" or held == ["Sigmoid", "NearBias", "Shift", "TwoSoftmaxes"]
    assert capsys.readouterr().out.strip().endswith("True")
    assert registered_kinds() == tuple(f"kitchen:{name}" for name in (
        "bell", "in-order", "late", "near", "near-enough", "shift", "sigmoid", "two-softmaxes"))
    (tmp_path / "pairs.tsv").write_text("text\tpair\nfirst\tsecond\nthird\tfourth\n", encoding="utf-8")
    task = build_task(scope["InOrder"]())  # type: ignore[operator]
    rows = list(task.read(find_sources(["pairs.tsv"])[0], Tally(), labelled=True))
    assert [(one.text, one.pair, one.label) for one in rows] == [("first", "second", "in order"),
                                                                 ("fourth", "third", "swapped")]
    for kind in registered_kinds():
        REGISTERED.pop(kind)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_python_imports_is_there(page: Path) -> None:
    """Every import of a page's programs, and every `saucier.a.b` in its prose; commands with `python -c` too."""
    text = page.read_text(encoding="utf-8")
    told = [one.group(1) for one in re.finditer(r"`(saucier(?:\.\w+)+)(?:\([^`]*\))?`", FENCE.sub("", text))]
    told += [word for body in blocks(page, "python") for word in imported(body)]
    programs = re.findall(r"python -c [\"'](.*?)[\"'](?:\s|$)", text)
    told += [word for body in programs if "saucier" in body for word in imported(body)]
    assert [name for name in told if name not in NEW and not is_there(name)] == []


NEW = {"saucier.families.palmlike.palmlike"}
"""What a page tells its reader to write."""


def imported(program: str) -> list[str]:
    """Return the names of ours that a program imports, or reads as `saucier.name`."""
    tree = ast.parse(program)
    found = [f"{node.module}.{one.name}" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
             for one in node.names]
    found += [one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names]
    found += [f"saucier.{node.attr}" for node in ast.walk(tree) if isinstance(node, ast.Attribute)
              and isinstance(node.value, ast.Name) and node.value.id == "saucier"]
    return [name for name in found if name.split(".")[0] == "saucier"]


def is_there(name: str) -> bool:
    """Say whether a dotted name can be imported, or is in what can be."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def test_the_book_page_is_not_written_by_hand() -> None:
    """docs/book.md says that it is generated."""
    page = ROOT / "docs" / "book.md"
    if not page.exists():
        pytest.skip("written by `tools/book.py`")
    assert "tools/book.py" in page.read_text(encoding="utf-8")


def test_the_python_of_the_scores_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The page's first example prints scores, its own metric counts as it says."""
    first, second = blocks(ROOT / "docs" / "scores.md", "python")
    exec(compile(first, "docs/scores.md", "exec"), {})  # noqa: S102  (our own page)
    assert "accuracy 0.750 (0.301 … 0.954, 4 rows)" in capsys.readouterr().out
    scope: dict[str, object] = {}
    exec(compile(second, "docs/scores.md", "exec"), scope)  # noqa: S102  (our own page)
    assert scope["within_one"].measure([1, 2], [2, 4]).values.tolist() == [1.0, 0.0]  # type: ignore[attr-defined]


def test_the_tasks_of_the_prompting_page_are_tasks(shared: Path, tmp_path: Path) -> None:
    """Both tasks load, and word the real rows."""
    from saucier.jobs.prompting.questions import read_questions, read_task

    (tmp_path / "repository").mkdir()
    (tmp_path / "shared").symlink_to(shared)
    prompts = []
    for body in blocks(ROOT / "docs" / "prompting.md", "yaml"):
        (tmp_path / "repository/task.yaml").write_text(body, encoding="utf-8")
        task = read_task(tmp_path / "repository/task.yaml")
        prompts.append(read_questions(task, task.evaluate, 1)[0])
    assert prompts[0].prompt.endswith("\nSentiment:") and prompts[0].answers == (" negative", " positive")
    assert prompts[1].right == 0 and prompts[1].answers[0] == " bank"


@pytest.mark.slow
@pytest.mark.parametrize(("slot", "owner", "field"), [
    ("embed.positions", "Embedding", "positions"), ("attention.positions", "SelfAttention", "positions"),
    ("kernel", "SelfAttention", "kernel"), ("visibility", "Beyond", "inner"), ("layers", "Stack", "layers"),
    ("sublayers", "Block", "sublayers"), ("inner", "Chain", "inner"), ("norm", "Embedding", "norm")])
def test_the_recipe_page_names_every_part(slot: str, owner: str, field: str) -> None:
    """The table of unions is that of the schema."""
    told = re.search(rf"^\| `{slot}` \| (.*) \|$", (ROOT / "docs/recipes.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert told is not None
    property_of = c.Transformer.model_json_schema()["$defs"][owner]["properties"][field]
    assert set(re.findall(r"`(\w+)`", told[1])) == set(kinds(property_of))


def kinds(schema: dict[str, Any]) -> list[str]:
    """Return the tags of the union in a schema."""
    inside = [part for key in ("anyOf", "oneOf") for part in schema.get(key, ())]
    inside += [schema["items"]] if isinstance(schema.get("items"), dict) else []
    return [*schema.get("discriminator", {}).get("mapping", {}), *(kind for part in inside for kind in kinds(part))]
