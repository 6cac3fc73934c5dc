"""The wheel with the C library in it, named for the systems that it runs on; a pure one where there is no C compiler.

All else is in pyproject.toml, and how to compile in `src/saucier/native/library.py`.
"""

from __future__ import annotations

import platform
import re
import sys
import sysconfig
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).parent / "src"))

from saucier.errors import WorkError
from saucier.native import library

BUILT = "saucier/native/kernels-*.so"
OLDEST = (2, 17)
"""Of the versions of glibc that wheels are named for on all processors."""


class BuildPackage(build_py):
    """Copies the package and compiles the library beside it; an editable one compiles it at first use."""

    def run(self) -> None:
        """Build. Zig comes first: what it compiles runs on older systems than this one."""
        super().run()
        if self.editable_mode:
            return
        for old in Path(self.build_lib).glob(BUILT):
            old.unlink()
        try:
            command = library.find_compiler(("ziglang", *library.COMPILERS))
            library.compile_library(command, Path(self.build_lib, BUILT).with_name(f"{library.name_library()}.so"))
        except WorkError as error:
            print(f"saucier: this wheel is without the C library: {error.what}", file=sys.stderr)


class BuildWheel(bdist_wheel):
    """Names the wheel by its library, which knows nothing of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags; called when all is built."""
        built = [name_platform(path) for path in Path(self.bdist_dir).glob(BUILT)]
        self.root_is_pure = not built
        return "py3", "none", built[0] if built else "any"


def name_platform(path: Path) -> str:
    """Return the tag of the systems that a library runs on: those whose glibc is as new as it asks for (PEP 600)."""
    asked = re.findall(rb"GLIBC_(\d+)\.(\d+)", path.read_bytes())
    if not asked:
        return re.sub(r"[-.]", "_", sysconfig.get_platform())
    major, minor = max(OLDEST, *((int(one), int(two)) for one, two in asked))
    return f"manylinux_{major}_{minor}_{platform.machine()}"


setup(cmdclass={"build_py": BuildPackage, "bdist_wheel": BuildWheel})
