"""Fingerprints of what must not change while the house is rebuilt: compared, or with `write` written anew.

    python tools/fingerprints.py [compare|write] [--only PART] [--native]

`tests/frozen/fingerprints.json` has one line for each named thing, so that a difference names exactly what changed
(`changed  batches/masked/seed 1/rank 1 of 2: 93a8ce69c863 → 07198c20f1f6`); any difference is exit code 1.

| part | what |
|---|---|
| batches | the first 50 batches of every kind of rows, of 2 seeds, as one process and each of two see them; held out |
| tasks | the same of the labelled rows of every kind of task |
| schemas, recipes | every key of every document with its type and default; every recipe with all its values |
| names, verbs | public names and those that the docs import, with their parameters; the options of every verb |
| jobs | keys of what verbs print as JSON, files that jobs leave and the keys in them, exit codes |
| parameters, published | names and shapes of every family, recipe and part; files and configs as they are saved |
| starts, adapters | starting weights of all of these at small sizes, and of what tuning adds |
| steps | losses, gradient norms, rates and weights of five updates of every nano recipe |
| tokens | what every decoder and encoder-decoder of the zoo writes, greedily and with three beams |

**What depends on the processor.** All but the last three rows do not: they are equal on every machine. Starting
weights do (PyTorch draws normal numbers eight at a time where there is AVX2, with another logarithm), and so do sums.
They are computed in a process of its own under `tools/same_bits.py`, which makes them equal on all processors of a
maker with one build of PyTorch. The file says by which build and for which processors it was written. With another
build, or on another kind of machine, the bits are not compared, which is said, but figures: norms and products of
tensors, losses and gradient norms, at the tolerances in `tools/frozen/items.py`; and of the written tokens those that
stay the same where every weight is moved by 1e-5.
`--native` leaves the settings out, to see this.

Who changes something on purpose writes the file again, and reviews its difference line by line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools import same_bits  # noqa: E402
from tools.frozen.items import Item, Items, as_json, differences, from_json  # noqa: E402

FILE = ROOT / "tests" / "frozen" / "fingerprints.json"
Make = Callable[[Path], Iterator[tuple[str, Item]]]


def batches(place: Path) -> Iterator[tuple[str, Item]]:
    """Rows of text."""
    from tools.frozen import rows, text

    return rows.batches(text.write_text(place))


def tasks(place: Path) -> Iterator[tuple[str, Item]]:
    """Labelled rows."""
    from tools.frozen import labelled

    return labelled.tasks(labelled.write_labelled(place))


def schemas(place: Path) -> Iterator[tuple[str, Item]]:
    """Documents."""
    from tools.frozen import surface

    return surface.schemas()


def recipes(place: Path) -> Iterator[tuple[str, Item]]:
    """Recipes."""
    from tools.frozen import surface

    return surface.recipes()


def names(place: Path) -> Iterator[tuple[str, Item]]:
    """Names in Python."""
    from tools.frozen import surface

    return surface.public()


def verbs(place: Path) -> Iterator[tuple[str, Item]]:
    """The command line."""
    from tools.frozen import surface

    return surface.verbs()


def jobs(place: Path) -> Iterator[tuple[str, Item]]:
    """JSON, folders and exit codes."""
    from tools.frozen import jobs, labelled, text

    return jobs.answers(labelled.write_labelled(text.write_text(place)))


def parameters(place: Path) -> Iterator[tuple[str, Item]]:
    """Names of tensors."""
    from saucier.recipes import names as every_recipe
    from tools.frozen import models

    yield from models.parameters(models.zoo())
    yield from models.recipe_parameters(every_recipe())


def published(place: Path) -> Iterator[tuple[str, Item]]:
    """Saved models."""
    from tools.frozen import models

    return models.published(place, models.zoo())


def starts(place: Path) -> Iterator[tuple[str, Item]]:
    """Starting weights."""
    from tools.frozen import models

    yield from models.starts(models.zoo())
    yield from models.starts(models.nano_models())


def adapters(place: Path) -> Iterator[tuple[str, Item]]:
    """What tuning adds."""
    from tools.frozen import models

    return models.adapters()


def steps(place: Path) -> Iterator[tuple[str, Item]]:
    """Five updates."""
    from tools.frozen import models, text

    return models.steps(text.write_text(place), models.nano())


def tokens(place: Path) -> Iterator[tuple[str, Item]]:
    """What models write."""
    from tools.frozen import written

    return written.written(written.writers(), sure=True)


PARTS: dict[str, Make] = {one.__name__: one for one in (
    schemas, recipes, names, verbs, tasks, batches, parameters, published, starts, adapters, tokens, jobs, steps)}
FLOATING = {"starts", "adapters", "steps", "tokens"}
"""Parts whose bits depend on the processor; the others may be written on any."""
PREFIXES = {"jobs": ("json", "disk", "codes")}
"""First words of the names that a part makes, where they are others than its own."""


def part_of(name: str) -> str:
    """Return the part that makes an item."""
    first = name.split("/")[0]
    return next((part for part, words in PREFIXES.items() if first in words), first)


def made(parts: list[str]) -> Items:
    """Make the items of some parts, and say on standard error how that goes."""
    found: Items = {}
    for part in parts:
        begin, count = time.perf_counter(), len(found)
        with tempfile.TemporaryDirectory(prefix="fingerprints-") as place:
            for name, item in PARTS[part](Path(place)):
                assert name not in found, f"{name} comes twice"
                found[name] = item
        spent = time.perf_counter() - begin
        print(f"{part:12}{len(found) - count:6} items {spent:6.1f} s", file=sys.stderr, flush=True)
    return found


def stamp() -> dict[str, str]:
    """Return where bits are made."""
    return same_bits.stamp() | {"settings": "same bits" if same_bits.is_set() else "native"}


def read() -> tuple[dict[str, str], Items]:
    """Read the stored fingerprints."""
    told = json.loads(FILE.read_text(encoding="utf-8"))
    return told["stamp"], {name: from_json(value) for name, value in told["items"].items()}


def write(items: Items, stamp: dict[str, str]) -> None:
    """Store fingerprints, a line for each."""
    lines = ",\n".join(f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(as_json(item), ensure_ascii=False)}"
                       for name, item in sorted(items.items()))
    FILE.write_text(f'{{"stamp": {json.dumps(stamp)},\n"items": {{\n{lines}\n}}}}\n', encoding="utf-8")


def compare(known: Items, now: Items, parts: list[str], *, same_machine: bool) -> int:
    """Print what changed in some parts; return the exit code."""
    mine = {name: item for name, item in known.items() if part_of(name) in parts}
    lines = list(differences(mine, now, same_machine=same_machine))
    print("\n".join(lines), end="\n" if lines else "")
    print(f"{len(now):,} fingerprints, {len(lines):,} differences")
    return 1 if lines else 0


def main() -> int:
    """Compare, or write."""
    parser = argparse.ArgumentParser(description="Fingerprints of what must not change.")
    parser.add_argument("what", nargs="?", choices=("compare", "write"), default="compare")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part; can be given again")
    parser.add_argument("--native", action="store_true", help="without the settings that make bits repeatable")
    asked = parser.parse_args()
    if not asked.native and not same_bits.is_set():
        os.execve(sys.executable, [sys.executable, *sys.argv], same_bits.settings())
    os.fsync = lambda fd: None  # no file here must outlive a failure of power, and there are thousands
    parts = asked.only or list(PARTS)
    stored, known = read() if FILE.is_file() else ({}, {})
    now, here = made(parts), stamp()
    if asked.what == "write":
        others = {name: item for name, item in known.items() if part_of(name) not in parts}
        exact = not FLOATING & {*parts}
        if others and stored != here and not exact:
            print(f"the others were written by {stored}, and this is {here}: write all parts", file=sys.stderr)
            return 1
        write(others | now, stored if others and exact else here)
        print(f"{len(now):,} fingerprints written to {FILE.relative_to(ROOT)}")
        return 0
    if stored != here:
        print(f"written by {stored}, and this is {here}: floats are compared by their figures, not their bits")
    return compare(known, now, parts, same_machine=stored == here)


if __name__ == "__main__":
    sys.exit(main())
