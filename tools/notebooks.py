"""The notebooks of `docs/notebooks`: run them (`make notebooks`), store what they print, show them on the site.

`python -m tools.notebooks` runs all in folders of their own, two at a time, and fails where a cell does;
`python -m tools.notebooks write NAME...` stores the outputs, too, which the pages of the site show.
"""

from __future__ import annotations

import html
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "notebooks"
SECONDS = 300
"""For one cell, on a busy machine."""
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": "",
               "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore::DeprecationWarning"}
"""Of the kernels: no network, no accelerator, and one thread each, since two run at a time."""
ADDRESSES, COLOURS = re.compile(r" at 0x[0-9a-f]+"), re.compile(r"\x1b\[[0-9;]*m")


def list_notebooks(names: Sequence[str] = ()) -> list[Path]:
    """Return the notebooks, or those with these names. Raises `SystemExit` for a name that none has."""
    found = {path.stem: path for path in sorted(FOLDER.glob("*.ipynb"))}
    if wrong := [name for name in names if name not in found]:
        raise SystemExit(f"no notebook {', '.join(wrong)}; there are {', '.join(found)}")
    return [found[name] for name in names] if names else list(found.values())


def run(path: Path, *, store: bool) -> tuple[str, float, str]:
    """Run a notebook; return its name, how many seconds that took, and the error of a cell that failed."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError

    os.environ |= ENVIRONMENT
    notebook = nbformat.read(path, as_version=4)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        try:
            NotebookClient(notebook, timeout=SECONDS, startup_timeout=SECONDS, kernel_name="python3",
                           record_timing=False, extra_arguments=["--log-level=ERROR"],
                           resources={"metadata": {"path": place}}).execute()
        except (CellExecutionError, CellTimeoutError) as error:
            return path.stem, time.monotonic() - begin, COLOURS.sub("", str(error))
    if store:
        text = json.dumps(clean(notebook), indent=1, ensure_ascii=False).replace(f"{place}/", "")
        path.write_text(text + "\n", encoding="utf-8")
    return path.stem, time.monotonic() - begin, ""


def clean(notebook: Any) -> Any:
    """Return a notebook without what is another on every run: numbers of cells, metadata, addresses of objects."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook["metadata"] = {"kernelspec": kernel, "language_info": {"name": "python"}}
    for cell in notebook["cells"]:
        cell["metadata"] = {}
        if cell["cell_type"] == "code":
            cell["execution_count"] = None
            cell["outputs"] = [clean_output(one) for one in join_streams(cell["outputs"])]
    return json.loads(ADDRESSES.sub("", json.dumps(notebook)))


def join_streams(outputs: Sequence[Any]) -> Iterator[Any]:
    """Yield outputs; what was printed in pieces to one stream is one."""
    last: Any = None
    for one in outputs:
        if last is not None and one["output_type"] == "stream" == last["output_type"] and one["name"] == last["name"]:
            last["text"] += one["text"]
            continue
        if last is not None:
            yield last
        last = one
    if last is not None:
        yield last


def clean_output(output: Any) -> Any:
    """Return an output without its number, the identity of a display, and what a page leaves out next to HTML."""
    kept = {key: value for key, value in output.items() if key not in ("execution_count", "transient")}
    if "text/html" in output.get("data", {}):
        kept["data"] = {"text/html": output["data"]["text/html"]}
    return kept | ({"execution_count": None} if output["output_type"] == "execute_result" else {})


def to_markdown(path: Path) -> str:
    """Return a notebook as a page of the site: text, code, and below each code what it showed."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            parts.append(f"```python\n{source}\n```")
            parts += [show_output(one) for one in cell["outputs"]]
    parts.append(f'This page is the notebook <a href="{path.name}" download>{path.name}</a>; every change runs it.')
    return "\n\n".join(parts) + "\n"


def show_output(output: dict[str, Any]) -> str:
    """Return an output as HTML that Markdown leaves alone; its richest form."""
    if output["output_type"] == "stream":
        return show_text("".join(output["text"]))
    data = {kind: "".join(value) if isinstance(value, list) else value for kind, value in output["data"].items()}
    if "text/html" in data:
        return f'<div class="output">\n{data["text/html"]}\n</div>'
    if "image/png" in data:
        return f'<div class="output"><img src="data:image/png;base64,{data["image/png"].strip()}"></div>'
    return show_text(data["text/plain"])


def show_text(text: str) -> str:
    """Return plain output."""
    return f'<div class="output"><pre>{html.escape(text.rstrip())}</pre></div>'


def main(words: Sequence[str]) -> int:
    """Run the notebooks; return how many failed."""
    store, names = "write" in words, [word for word in words if word != "write"]
    failed = 0
    with ProcessPoolExecutor(2) as pool:
        for name, seconds, error in pool.map(partial(run, store=store), list_notebooks(names)):
            print(f"{name}: {seconds:.0f} s{', failed' if error else ''}", *error.splitlines(), sep="\n  ", flush=True)
            failed += bool(error)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
