"""The shape of the house: imports flow one way, the door opens without heavy libraries, the files are in order."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.house import House, read_budget

PACKAGE = "saucier"

HEAVY = ("torch", "pydantic", "numpy", "yaml", "tokenizers", "pyarrow", "rich", "typer", "matplotlib", "transformers")


def sources(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield (part of the house, file) for every source file."""
    folder = root / "src" / PACKAGE
    for path in sorted(folder.rglob("*.py")):
        yield path.relative_to(folder).parts[0].removesuffix(".py"), path


@pytest.fixture(scope="module")
def house(root: Path) -> House:
    """Read the whole package."""
    return House(root / "src")


@pytest.mark.slow
def test_imports_flow_one_way(house: House) -> None:
    """Every folder has its place, and imports what lies below it only: lazily and for type checking, too."""
    assert house.arrows_up(read_budget().layers) == []


@pytest.mark.parametrize("part", ["objectives", "training", "checkpoints", "generation"])
def test_no_family_is_known_to(house: House, part: str) -> None:
    """What learns, saves and generates works for every family because it names none."""
    assert [f"{module} -> {one}" for module, found in house.imports.items() if house.folder(module) == part
            for one in found if house.folder(one) == "families"] == []


def test_nothing_imports_the_command_line(house: House) -> None:
    """The command line is a door; only it goes through it."""
    assert [f"{module} -> {one}" for module, found in house.imports.items()
            if house.folder(module) not in ("cli", "__main__") for one in found if house.folder(one) == "cli"] == []


RESTRICTED = ("checkpoints/weight_files.py", "torch.load(path, map_location='cpu', weights_only=True, "
              "mmap=zipfile.is_zipfile(path))")
"""The one call that reads a pytorch_model.bin: PyTorch's reader that builds tensors and refuses all other objects."""


@pytest.mark.slow
def test_pickle_is_never_used(root: Path) -> None:
    """Weights are safetensors, states are JSON; pickle and eval do not occur, and `torch.load` once, restricted."""
    banned = {"torch.load", "pickle.load", "pickle.loads", "eval", "exec", "torch.save", "yaml.load",
              "yaml.unsafe_load"}
    allowed = 0
    for _, path in sources(root):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        found = [ast.unparse(node) for node in calls if ast.unparse(node.func) in banned]
        if path == root / "src" / PACKAGE / RESTRICTED[0]:
            assert found == [RESTRICTED[1]]
            allowed += 1
        else:
            assert not found, path
        assert "pickle" not in modules, path
    assert allowed == 1


def loaded_by(statement: str) -> set[str]:
    """Return the top-level modules that a fresh Python has after a statement."""
    names = "sorted({name.split('.')[0] for name in sys.modules})"
    program = f"import sys\n{statement}\nimport json; print(json.dumps({names}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_saucier_imports_nothing_heavy() -> None:
    """`import saucier` is quick because it imports no library at all."""
    assert loaded_by("import saucier") & set(HEAVY) == set()


def test_public_names_are_found_when_asked_for() -> None:
    """Every name in `__all__` exists, and a wrong one is an AttributeError."""
    import saucier

    for name in saucier.__all__:
        assert getattr(saucier, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        saucier.nonsense  # noqa: B018  (looking it up is the test)


@pytest.mark.slow
def test_the_config_tree_needs_no_torch() -> None:
    """Recipes can be read, counted and checked where torch is not even installed."""
    assert "torch" not in loaded_by("import saucier.config, saucier.families, saucier.recipes")


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "t5"])
def test_building_a_model_loads_no_compiler(family: str) -> None:
    """Allocating weights by `Module.to_empty`, or drawing them on the meta device, costs seconds of imports."""
    program = ("import torch, saucier; from saucier.families import FAMILIES; "
               f"saucier.build(FAMILIES[{family!r}](24, 1, heads=2)); "
               "assert not [name for name in sys.modules if name.startswith('torch._dynamo')]")
    assert "sympy" not in loaded_by(program)


def test_help_needs_no_torch() -> None:
    """`saucier --help` answers at once."""
    program = "import saucier.cli\ntry:\n    saucier.cli.main(['--help'])\nexcept SystemExit:\n    pass"
    assert loaded_by(program) & {"torch", "pydantic", "numpy", "transformers"} == set()


def test_torch_is_pinned_for_us_and_free_for_others(root: Path) -> None:
    """`constraints.txt` pins what we test with; the package asks only for what it needs."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "torch>=2.6" in project["dependencies"]
    pins = (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert "torch==2.13.0" in pins
    assert not [pin for pin in pins if pin and not pin.startswith("#") and "==" not in pin]


def test_every_extra_that_is_named_is_there(root: Path) -> None:
    """In other extras, in remedies and on the pages."""
    extras = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    files = [root / "pyproject.toml", root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").rglob("*.md"),
             *(root / "src").rglob("*.py")]
    named = {name.strip() for path in files for found in re.findall(r"saucier\[([\w, -]+)\]",
                                                                    path.read_text(encoding="utf-8"))
             for name in found.split(",")}
    assert named - {*extras} == set() and "all" in extras


@pytest.mark.slow
def test_reference_libraries_are_not_needed_at_run_time(root: Path) -> None:
    """`transformers` is a peer in tests and benchmarks; the source never imports it."""
    for _, path in sources(root):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        assert not {name for name in names if name.split(".")[0] == "transformers"}, path
