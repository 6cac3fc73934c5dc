"""Compiling, loading, threads and processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from saucier.errors import WorkError
from saucier.native import library

MULTIPLY = """
import numpy as np
from saucier.native.library import load_library
load_library()
print("loaded")
"""


@pytest.mark.slow
def test_two_processes_compile_at_once(tmp_path: Path) -> None:
    environment = os.environ | {"SAUCIER_CACHE": str(tmp_path)}
    both = [subprocess.Popen([sys.executable, "-c", MULTIPLY], env=environment, stdout=subprocess.PIPE, text=True)
            for _ in range(2)]
    assert [one.communicate()[0].strip() for one in both] == ["loaded"] * 2
    assert [path.suffix for path in (tmp_path / "native").iterdir()] == [".so"]


def test_without_a_compiler_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library.shutil, "which", lambda name: None)
    monkeypatch.setattr(library.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(WorkError, match="need a C compiler, and there is none; install gcc"):
        library.find_compiler()


def test_a_compiler_that_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=r"do not compile with .*false"):
        library.compile_library(("false",), tmp_path / "kernels.so")
    assert not list(tmp_path.iterdir())


def test_another_source_has_another_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = library.find_compiler()
    before = library.name_library(command)
    for source in library.SOURCES.glob("*.[ch]"):
        (tmp_path / source.name).write_bytes(source.read_bytes())
    monkeypatch.setattr(library, "SOURCES", tmp_path)
    assert library.name_library(command) == before
    (tmp_path / "pool.c").write_text("/* other */")
    assert library.name_library(command) != before


def test_the_library_of_a_wheel_is_used_where_it_is_of_these_sources(monkeypatch: pytest.MonkeyPatch,
                                                                     tmp_path: Path) -> None:
    """It needs no compiler; one of other sources is as if it were not there."""
    compiled = library.load_library()._name
    sources = shutil.copytree(library.SOURCES, tmp_path / "csrc")
    for name, changed in (("SOURCES", sources), ("find_compiler", partial(library.find_compiler, ()))):
        monkeypatch.setattr(library, name, changed)
    monkeypatch.delenv("CC", raising=False)
    shipped = tmp_path / f"{library.name_library()}.so"
    shutil.copy(compiled, shipped)
    assert library.load_library.__wrapped__()._name == str(shipped)
    (sources / "pool.c").write_text("/* other */")
    with pytest.raises(WorkError, match="there is none"):
        library.load_library.__wrapped__()


def test_a_compiler_may_be_named_with_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for told, found in (("true -m32", ["true", "-m32"]), (" ", ["sh"]), ("no-such-compiler", ["sh"])):
        monkeypatch.setenv("CC", told)
        program, *words = library.find_compiler(("sh",))
        assert [Path(program).name, *words] == found


def test_the_structs_are_as_large_as_those_of_c(tmp_path: Path) -> None:
    structs = {"Matrix": library.CMatrix, "Op": library.COp, "Attention": library.CAttention,
               "Kernels": library.CKernels, "Plan": library.CPlan, "Session": library.CSession,
               "Panels": library.CPanels, "WideProduct": library.CWideProduct, "Batch": library.CBatch,
               "Workspace": library.CWorkspace}
    source = tmp_path / "sizes.c"
    shown = "".join(f'printf("%d ", (int)sizeof({name}));' for name in structs)
    source.write_text(f'#include <stdio.h>\n#include "saucier.h"\nint main(void) {{ {shown} return 0; }}\n')
    subprocess.run([*library.find_compiler(), f"-I{library.SOURCES}", str(source), "-o", str(tmp_path / "sizes")],
                   check=True)
    found = subprocess.run([str(tmp_path / "sizes")], capture_output=True, text=True, check=True).stdout.split()
    assert [int(size) for size in found] == [library.ctypes.sizeof(one) for one in structs.values()]


def multiply_many(seed: int) -> bool:
    """Whether products by several threads are those by one."""
    import numpy as np
    from tests.unit.native.products import multiply

    from saucier.native.matrices import store_matrix

    random = np.random.default_rng(seed)
    matrix = store_matrix(random.normal(size=(700, 96)).astype(np.float32), "int8")
    x = random.normal(size=(4, 96)).astype(np.float32)
    path = library.load_library().saucier_best_path().decode()
    alone = multiply(path, matrix, x)
    return all((multiply(path, matrix, x, threads=3) == alone).all() for _ in range(200))


def test_callers_in_several_threads_share_the_pool() -> None:
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(multiply_many, range(4))) == [True] * 4


def test_a_forked_child_starts_threads_of_its_own() -> None:
    assert multiply_many(0)
    child = os.fork()
    if child == 0:
        os._exit(0 if multiply_many(1) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_threads_are_those_of_affinity_and_control_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "count_cores", lambda: 8)
    for text, expected in (("max 100000", 8), ("300000 100000", 3), ("50000 100000", 1), ("broken", 8)):
        monkeypatch.setattr(library.Path, "read_text", lambda self, text=text, **_: text)
        library.count_threads.cache_clear()
        assert library.count_threads() == expected
    library.count_threads.cache_clear()
