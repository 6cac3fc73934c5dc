"""The box of old artifacts, `tests/frozen/box`: what one version wrote, and every later one must read and end.

`python tools/box.py write DIR` makes the whole box by the public commands, under the settings of `same_bits`, on texts
that are made up here, and records what each artifact must end with. It is run once for a box: what stands in the
repository is never written again, only added to in a box of its own.
"""

from __future__ import annotations

import getpass
import hashlib
import importlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from tools import box_contents as contents
from tools.box_texts import write_all
from tools.same_bits import is_set, settings, stamp

ROOT = Path(__file__).resolve().parent.parent
FINISH = ROOT / "tests" / "frozen" / "finish.py"
LEFT_OUT = ("made", "tensorboard", "report.html")
"""What no command needs to open or to finish anything."""
TEXT = {".json", ".jsonl", ".yaml", ".txt", ".tsv"}
WHEN = 1577836800 * 10**9
"""The date that all texts have: a cleaning that goes on knows its files by it."""


def main(words: list[str]) -> int:
    """Write a box."""
    match words:
        case ["write", folder]:
            if not is_set():
                return subprocess.run([sys.executable, __file__, *words], env=settings(), check=False).returncode
            write(Path(folder).absolute())
            return 0
        case _:
            print("usage: python tools/box.py write DIR", file=sys.stderr)
            return 2


def write(target: Path) -> None:
    """Write the box: make everything, strip it, end a copy of it, and keep what came out."""
    if target.exists():
        raise SystemExit(f"{target}: is there already")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        make(folder / "box")
        shutil.move(folder / "box" / "made" / "whole", folder / "whole")
        end(folder)
        shutil.copytree(folder / "box", target)
    print(f"{sum(path.stat().st_size for path in target.rglob('*') if path.is_file()):,} bytes in {target}")


def end(folder: Path) -> None:
    """Strip the box that was made in a folder, end a copy of it elsewhere, and write down what came out."""
    box, copy = folder / "box", folder / "elsewhere" / "copy"
    strip(box)
    move(box)
    shutil.copytree(box, copy)
    here = settings() | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}  # the very code that wrote
    subprocess.run([sys.executable, str(FINISH), str(copy), str(folder)], env=here, check=True)
    expect(box, folder)
    check_ends(copy, folder / "whole")
    (box / "README.md").write_text(readme(box), encoding="utf-8")
    refuse_places(box, folder)


def make(box: Path) -> None:
    """Run every command inside the box, each in a process of its own."""
    for name in ("matplotlib.pyplot", "saucier.jobs.comparison.compare", "saucier.jobs.finetuning.finetune",
                 "saucier.jobs.pretraining.cook", "saucier.training.loop", "sklearn.linear_model", "torch._dynamo"):
        importlib.import_module(name)  # a child has it then, and need not load it again

    write_all(box)
    for name, text in contents.FILES.items():
        (box / name).parent.mkdir(parents=True, exist_ok=True)
        (box / name).write_text(text)
    date(box)
    for one in contents.ALL:
        run(one, box)
    for one in (one for one in contents.ALL if one.stop is not None):
        run(contents.unstopped(one), box)


def date(box: Path) -> None:
    """Give the texts one date."""
    for path in box.rglob("*"):
        os.utime(path, ns=(WHEN, WHEN))


def run(one: contents.Artifact, box: Path) -> None:
    """Run a command in a child of this process, up to its end or to where it is stopped."""
    print(f"{one.name}: saucier {' '.join(one.words)}", flush=True)
    child = os.fork()
    if child == 0:
        with (box.parent / "log.txt").open("w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            os.chdir(box)
            os._exit(done(one))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    wanted = 0 if one.stop is None else -signal.SIGKILL if one.stop.by == signal.SIGKILL else 1
    if code != wanted:
        raise SystemExit(f"{one.name} ended with {code} and not {wanted}:\n{(box.parent / 'log.txt').read_text()}")


def done(one: contents.Artifact) -> int:
    """Run a command in this process."""
    from saucier.cli import main as saucier
    from saucier.folders.load import open_adapter
    from saucier.folders.save import save_adapter

    if one.words[0] == "save_adapter":
        model = open_adapter(one.words[1], dtype="float32", device="cpu")
        return save_adapter(model, one.words[2], layout="own") != "own"
    if one.stop is not None:
        stop_at(one.stop)
    try:
        return saucier(one.words)
    except BaseException:  # noqa: BLE001  # a child must end here, and tell why
        traceback.print_exc()
        return 3
    finally:
        sys.stdout.flush()


def stop_at(stop: contents.Stop) -> None:
    """Let this process get a signal before the `number`th call of a function."""
    module, _, name = stop.place.partition(":")
    owner: Any = importlib.import_module(module)
    *outer, last = name.split(".")
    for part in outer:
        owner = getattr(owner, part)
    whole, calls = getattr(owner, last), itertools.count(1)

    def counted(*values: Any, **named: Any) -> Any:
        if next(calls) == stop.number:
            os.kill(os.getpid(), stop.by)
        return whole(*values, **named)

    setattr(owner, last, counted)


def strip(box: Path) -> None:
    """Remove what is not needed."""
    for path in sorted(box.rglob("*"), reverse=True):
        if path.name in LEFT_OUT:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def move(box: Path) -> None:
    """Write every path of this machine as it is seen from the box, and what the checkpoints note of sizes."""
    for path in sorted(path for path in box.rglob("*") if path.is_file() and path.suffix in TEXT):
        text = path.read_text(encoding="utf-8")
        if f"{box}/" in text:
            path.write_text(text.replace(f"{box}/", ""), encoding="utf-8")
    for state in box.rglob("state.json"):
        values = json.loads(state.read_text(encoding="utf-8"))
        sizes = {name: (state.parent / name).stat().st_size for name in values["files"]}
        if sizes != values["files"]:
            state.write_text(json.dumps({**values, "files": sizes}, indent=2) + "\n", encoding="utf-8")


def refuse_places(box: Path, *folders: Path) -> None:
    """Stop where a file of the box names this machine, its user or its folders."""
    places = [str(one).encode() for one in (*folders, ROOT, Path.home())]
    word = re.compile(rf"\b({re.escape(os.uname().nodename)}|{re.escape(getpass.getuser())})\b".encode())
    for path in (path for path in box.rglob("*") if path.is_file()):
        content = path.read_bytes()
        if any(one in content for one in places) or (path.suffix in TEXT and word.search(content)):
            raise SystemExit(f"{path.relative_to(box)} names this machine")


def check_ends(copy: Path, whole: Path) -> None:
    """Stop where what was stopped, and ended in the copy, is not to the last bit what was never stopped."""
    for one in (one for one in contents.ALL if one.stop is not None):
        there, here = (bits(folder / one.name) for folder in (whole, copy))
        if there != here or not there:
            raise SystemExit(f"{one.name} does not end as without a stop: {sorted(there ^ here)}")


def bits(folder: Path) -> set[tuple[str, str]]:
    """Return the last weights and texts of a folder: names and digests."""
    weights = [path for path in folder.rglob("*.safetensors") if path.parent.parent.name != "checkpoints"]
    for run in {path.parent for path in folder.rglob("checkpoints")}:
        weights += sorted(run.glob("checkpoints/step-*"), key=lambda path: int(path.name.split("-")[1]))[-1].rglob(
            "*.safetensors")
    found = [*weights, *folder.glob("*.jsonl"), *folder.rglob("samples.txt")]
    return {(str(path.relative_to(folder)), file_digest(path)) for path in found if path.name != "metrics.jsonl"}


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def expect(box: Path, folder: Path) -> None:
    """Keep what came out as what must come out, with where and by which version it was written."""
    found = json.loads((folder / "found.json").read_text(encoding="utf-8"))
    if wrong := {name: one["facts"]["error"] for name, one in found.items() if "error" in one["facts"]}:
        raise SystemExit(f"not everything could be opened: {wrong}")
    if missing := {one.name for one in contents.ALL if not one.name.startswith("made/")} - {*found}:
        raise SystemExit(f"nothing opens {sorted(missing)}")
    words = ["git", "log", "-1", "--format=%H", "--", "src"]
    commit = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    document = {"stamp": stamp(), "commit": commit.stdout.strip(), "artifacts": found}
    (box / "expected.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    shutil.copy(folder / "found.safetensors", box / "expected.safetensors")


def readme(box: Path) -> str:
    """Return the page that lists the box."""
    commit = json.loads((box / "expected.json").read_text(encoding="utf-8"))["commit"]
    rows = [f"| `{one.name}` | `saucier {' '.join(one.words)}` | {stopped(one.stop)} |" for one in contents.ALL]
    return contents.PAGE.format(commit=commit, torch=stamp()["torch"], rows="\n".join(rows).replace("||", "&#124;"))


def stopped(stop: contents.Stop | None) -> str:
    """Say where a command was stopped."""
    if stop is None:
        return "finished"
    return f"{stop.by.name} before call {stop.number} of `{stop.place.partition(':')[2]}`"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
