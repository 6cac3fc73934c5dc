"""What `make wheel` built: it holds the package and nothing else, and works where only what it asks for is installed.

The environment is made of links into the one that runs the tests, so that nothing is installed twice: of each library
that the wheel asks for, and of nothing else. The editable package is not among them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from email import message_from_string
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import saucier
from saucier.errors import WorkError
from saucier.native import library

pytestmark = pytest.mark.wheel
TINY = ("model.dim=32", "model.heads=2", "model.layers=1", "model.length=32", "training.length=32", "training.steps=3",
        "training.batch=4", "tokenizer.vocab=300", "sampling.tokens=12", "sampling.samples=1", "sampling.prompts=[]")
TEXT = "".join(f"the cook stirs the {what}, and tastes it {how}.\n\n" for what in ("sauce", "soup", "milk", "stock")
               for how in ("slowly", "twice", "again", "with care", "at noon"))
DECODE = """
import torch, saucier
from saucier.families import FAMILIES
from saucier.generation.decoding import Native
from saucier.native.library import list_paths, load_library
model = saucier.build(FAMILIES["gpt2"](dim=32, layers=1, heads=2, vocab=50, length=16)).eval()
ids = torch.arange(6)[None]
print(torch.equal(saucier.generate(model, ids, max_new_tokens=6, engine=Native()),
                  saucier.generate(model, ids, max_new_tokens=6)))
print(load_library()._name)
print(*list_paths())
"""
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def wheel(root: Path) -> Path:
    """Return the wheel that `make wheel` has just built."""
    found = list((root / "dist").glob("saucier-*.whl"))
    if len(found) != 1:
        pytest.skip("there is not one wheel in dist/: `make wheel` builds it, and runs these tests")
    return found[0]


@pytest.fixture(scope="session")
def metadata(wheel: Path) -> Distribution:
    """Return what the wheel says about itself."""
    with zipfile.ZipFile(wheel) as files:
        name = next(name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        text = files.read(name).decode()

    class Told(Distribution):
        """A distribution that is not installed."""

        def read_text(self, filename: str) -> str | None:
            return text if filename == "METADATA" else None

        def locate_file(self, path: object) -> Path:
            return wheel

    return Told()


@pytest.fixture(scope="session")
def run(wheel: Path, metadata: Distribution, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Install the wheel where only what it asks for is there; return a function that runs a program of there."""
    place = tmp_path_factory.mktemp("empty")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "venv"], check=True)
    python = place / "venv/bin/python"
    link_libraries(metadata, next((place / "venv/lib").glob("python3*")) / "site-packages")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index",
                    "--disable-pip-version-check", wheel], check=True, env=environment)

    def start(*words: str, **changed: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([place / "venv/bin" / words[0], *words[1:]], cwd=place, env=environment | changed,
                              text=True, capture_output=True, check=False)

    (place / "kitchen.txt").write_text(TEXT, encoding="utf-8")
    return start


@pytest.fixture(scope="session")
def built() -> str:
    """Return the file of the C library in the wheel."""
    try:
        library.find_compiler()
    except WorkError:
        pytest.skip("no C compiler here, so the wheel is a pure one")
    return f"saucier/native/{library.name_library()}.so"


def link_libraries(metadata: Distribution, target: Path) -> None:
    """Link the files of what a distribution requires, and of what that requires, into a folder of modules."""
    waiting, seen = list(metadata.requires or ()), set[tuple[str, str]]()
    while waiting:
        wanted = Requirement(waiting.pop())
        for extra in ("", *wanted.extras):
            if (wanted.name, extra) in seen or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
                continue
            seen.add((wanted.name, extra))
            found = distribution(wanted.name)
            waiting += [one for one in found.requires or () if (marker := Requirement(one).marker) is None
                        or marker.evaluate({"extra": extra})]
            for name in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
                if not (target / name).exists():
                    (target / name).symlink_to(Path(str(found.locate_file(name))))


def package_files(root: Path) -> set[str]:
    """Return the files of the package in the repository, as `saucier/...`."""
    source = root / "src"
    return {path.relative_to(source).as_posix() for path in (source / "saucier").rglob("*")
            if path.is_file() and "__pycache__" not in path.parts}


def test_the_wheel_holds_the_package_and_nothing_else(root: Path, wheel: Path, built: str) -> None:
    """Modules, recipes, templates, the mark of a typed package and the C library; no tests, no docs."""
    with zipfile.ZipFile(wheel) as files:
        names = {name for name in files.namelist() if ".dist-info/" not in name}
    assert names == package_files(root) | {built}
    assert {"saucier/py.typed", "saucier/recipes/gpt-nano.yaml", "saucier/report/templates/base.html"} <= names
    assert wheel.name.startswith(f"saucier-{saucier.__version__}-py3-none-") and not wheel.name.endswith("-any.whl")


def test_the_source_distribution_holds_what_builds_it(root: Path, wheel: Path) -> None:
    """The package, and what pip needs to build it; the wheel was built from it."""
    with tarfile.open(wheel.with_name(f"saucier-{saucier.__version__}.tar.gz")) as files:
        names = {name.partition("/")[2] for name in files.getnames() if files.getmember(name).isfile()}
    told = {name for name in names if not name.startswith("src/")}
    assert {name.removeprefix("src/") for name in names - told if ".egg-info/" not in name} == package_files(root)
    assert told == {"LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg", "setup.py"}


def test_what_the_wheel_says(metadata: Distribution) -> None:
    """A name, a version, a licence, the pages to read; extras name extras that there are."""
    told = message_from_string(metadata.read_text("METADATA") or "")
    assert (told["Name"], told["Version"], told["License-Expression"]) == ("saucier", saucier.__version__, "MIT")
    assert told["Requires-Python"] == ">=3.11" and "Saucier is a Python library" in str(told.get_payload())
    extras = set(told.get_all("Provides-Extra") or ())
    inner = [Requirement(one) for one in metadata.requires or () if Requirement(one).name == "saucier"]
    assert inner and all(one.extras <= extras for one in inner)


def test_extras_resolve_without_a_warning(metadata: Distribution, wheel: Path) -> None:
    """Pip finds everything in the environment of the tests; what is not installed there cannot be tried offline."""
    told = message_from_string(metadata.read_text("METADATA") or "").get_all("Provides-Extra") or ()
    tried = [extra for extra in told if is_installed(metadata, extra)]
    assert {"all", "report", "statistics"} <= set(tried)
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--no-build-isolation",
                           "--disable-pip-version-check", f"{wheel}[{','.join(tried)}]"],
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert "Requirement already satisfied: matplotlib" in done.stdout


def is_installed(metadata: Distribution, extra: str) -> bool:
    """Say whether every library that an extra brings is in the environment of the tests."""
    wanted = [one for one in map(Requirement, metadata.requires or ())
              if one.marker is not None and one.marker.evaluate({"extra": extra})]
    try:
        return all(distribution(one.name).version in one.specifier for one in wanted if one.name != "saucier")
    except PackageNotFoundError:
        return False


def test_it_needs_no_more_than_it_asks_for(run: Run) -> None:
    """In an environment of its own libraries alone: version, recipes, a short run and what it left."""
    assert run("saucier", "--version").stdout == f"saucier {saucier.__version__}\n"
    where = run("python", "-c", "import saucier, sys; print(saucier.__file__.startswith(sys.prefix))")
    assert where.stdout == "True\n", where.stderr
    absent = run("python", "-c", "from importlib.util import find_spec as f; print(f('pytest'), f('matplotlib'))")
    assert absent.stdout == "None None\n"
    listed = run("saucier", "recipes")
    assert listed.returncode == 0 and "gpt-nano" in listed.stdout, listed.stderr
    cooked = run("saucier", "cook", "gpt-nano", "--data", "kitchen.txt", "--out", "first", "--no-calibrate", *TINY)
    assert cooked.returncode == 0, cooked.stderr
    assert "report      first/report.html" in cooked.stdout
    page = run("python", "-c", "print('</html>' in open('first/report.html').read())")
    assert page.stdout == "True\n"
    written = run("saucier", "generate", "first", "the cook", "--tokens", "4", "--seed", "1")
    assert written.returncode == 0 and written.stdout.startswith("the cook"), written.stderr


def test_it_decodes_without_a_compiler(run: Run, built: str, tmp_path: Path) -> None:
    """By the library that it brings, with every instruction set that this machine has; nothing is compiled."""
    done = run("python", "-c", DECODE, PATH=str(tmp_path), CC="", SAUCIER_CACHE=str(tmp_path))
    equal, used, paths = done.stdout.splitlines() or [done.stderr] * 3
    assert equal == "True", done.stderr
    assert used.endswith(f"/site-packages/{built}") and paths.split() == library.list_paths()
    assert not list(tmp_path.iterdir())


def test_it_runs_as_a_module(run: Run) -> None:
    """`python -m saucier` is the same door; an optional library that is missing is one line."""
    assert "Usage: saucier" in run("python", "-m", "saucier", "--help").stdout
    refused = run("saucier", "cook", "gpt-nano", "--data", "kitchen.txt", "--out", "second", "training.events=on",
                  "--no-calibrate", *TINY)
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].endswith("pip install 'saucier[tensorboard]', or set events: off")
