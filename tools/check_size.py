"""Small units: files, functions and signatures stay under the limits below, and options are given by name.

The exceptions are named one by one, each with its reason. Tests and benchmarks are held to the file limit only.
"""

from __future__ import annotations

import ast
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.source import Function, Named, definitions, python_files, run

FILE_LINES = 400
FUNCTION_LINES = 50
MEDIAN_LINES = 10
PARAMETERS = 8
POSITIONAL = 2
ONLY_FILES = ("tests", "benchmarks")

# "file: dotted name" -> why its signature may be longer, or take more by position.
EXCEPTIONS: dict[str, str] = {
    "src/saucier/folders/load.py: load": "the head, the format and the device are given by position, as documented",
    "src/saucier/generation/compiled_step.py: OneToken.forward": "torch.export gives inputs by position",
    "src/saucier/families/reformer.py: reformer": "a family's hyper-parameters are its table of choices",
    "src/saucier/families/transfo_xl.py: transfo_xl": "a family's hyper-parameters are its table of choices",
    "src/saucier/families/unpublished.py: etc": "a family's hyper-parameters are its table of choices",
    "src/saucier/families/longformer.py: longformer": "a family's hyper-parameters are its table of choices",
    "src/saucier/families/llama.py: llama": "a family's hyper-parameters are its table of choices",
}


def line_count(node: Function) -> int:
    """Count the lines of a function without its docstring, decorators and signature."""
    told = ast.get_docstring(node) is not None
    body = node.body[1:] if told else node.body
    return body[-1].end_lineno - body[0].lineno + 1 if body and body[-1].end_lineno else 0


def positional(named: Named) -> int:
    """Count what may be given by position; `self` and `cls` do not count."""
    names = [argument.arg for argument in [*named.node.args.posonlyargs, *named.node.args.args]] \
        if isinstance(named.node, Function) else []
    return len(names) - (bool(names) and names[0] in ("self", "cls") and isinstance(named.parent, ast.ClassDef))


def signature_faults(named: Named) -> list[str]:
    """Return what is wrong with the signature of a function, if anything."""
    assert isinstance(named.node, Function)
    total = positional(named) + len(named.node.args.kwonlyargs)
    faults = [f"{total} parameters, over {PARAMETERS}"] if total > PARAMETERS else []
    loose = optional_positional(named)
    return [*faults, f"{loose} optional parameters by position, over {POSITIONAL}: put `*,` before them"] \
        if loose > POSITIONAL else faults


def optional_positional(named: Named) -> int:
    """Count parameters with a default that may be given by position; these are the ones that a call should name."""
    return len(named.node.args.defaults) if isinstance(named.node, Function) else 0


def is_verb(node: Function) -> bool:
    """Say whether a function is one of `saucier.api`: its signature is the options of a verb, each with its help."""
    return any(isinstance(one, ast.Name) and one.id == "public" for one in node.decorator_list)


def check_function(path: Path, named: Named) -> list[str]:
    """Return one line per limit that this function is over."""
    assert isinstance(named.node, Function)
    lines = line_count(named.node)
    faults = [f"{lines} lines, over {FUNCTION_LINES}"] if lines > FUNCTION_LINES else []
    if f"{path.as_posix()}: {named.name}" not in EXCEPTIONS and not is_verb(named.node):
        faults += signature_faults(named)
    return [f"{path}:{named.node.lineno}: {named.name}: {fault}" for fault in faults]


def check(path: Path) -> list[str]:
    """Return one line per limit that the file is over."""
    text = path.read_text(encoding="utf-8")
    length = len(text.splitlines())
    faults = [f"{path}: {length} lines, over {FILE_LINES}"] if length > FILE_LINES else []
    if path.parts[0] in ONLY_FILES:
        return faults
    functions = [named for named in definitions(ast.parse(text)) if isinstance(named.node, Function)]
    return [*faults, *(fault for named in functions for fault in check_function(path, named))]


def median_lines(roots: list[str]) -> float:
    """Return the median number of lines of a function over all files that are held to the function limit."""
    files = [path for path in python_files(roots) if path.parts[0] not in ONLY_FILES]
    named = [item for path in files for item in definitions(ast.parse(path.read_text(encoding="utf-8")))]
    return statistics.median([line_count(item.node) for item in named if isinstance(item.node, Function)] or [0])


if __name__ == "__main__":
    where = sys.argv[1:] or ["src"]
    code = run(check, where)
    print(f"median function: {median_lines(where):g} lines (limit {MEDIAN_LINES})")
    sys.exit(max(code, int(median_lines(where) > MEDIAN_LINES)))
