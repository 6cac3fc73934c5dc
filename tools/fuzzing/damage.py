"""Damage to files, by their kind: bits, cuts, missing files, hostile values, other text; told in words."""

from __future__ import annotations

import copy
import json
import os
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

HOSTILE: tuple[Any, ...] = (
    -1, 0, 1, 2, 7, 2**31, 2**63, 10**12, 10**400, -(10**9), 0.5, -0.0, 1e308, 1e-320, float("nan"), float("inf"),
    "768", "", " ", "x" * 1000, None, True, False, [], [1, 2], {}, {"a": 1}, [[["global"], 10**9]], "NaN", [None],
    "../../etc/passwd", "/dev/zero", "..", ".", "x/y", {"0": {"1": {"2": []}}}, "float32", "gelu", "auto", "none",
    "\x00", "a\nb", "\x1b[31mred", "\u2028", "\ud800", "\u202e", "é" * 300, "(a+)+$", "((.*)*)*x", "{0.__class__}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "%s%s%n", [[]] * 30,
    {"kind": "x"}, {"kind": None}, [{"kind": "lora"}], {"x" * 300: 1}, {"\n": "\n"}, [0] * 2000, "𝟙", "١", "1e5", "-",
)
"""Values that are put in the place of others."""
SIZES = (0, 1, 2**20, 2**40, 2**63, 2**64 - 1)
Change = Callable[[Path, Random], str]


def hostile(drawn: Random) -> Any:
    """Return a hostile value, sometimes a nested one."""
    value = copy.deepcopy(drawn.choice(HOSTILE))
    match drawn.randrange(12):
        case 0:
            return [value] * drawn.randrange(1, 4)
        case 1:
            return {drawn.choice(["kind", "a", "0", ""]): value}
        case _:
            return value


def told(value: Any) -> str:
    """Return a value in few letters."""
    text = " ".join(ascii(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def flip(path: Path, drawn: Random) -> str:
    """Change some bytes, mostly in the beginning."""
    content = bytearray(path.read_bytes())
    if not content:
        return "empty as it was"
    count = drawn.randrange(1, 6)
    for _ in range(count):
        content[drawn.randrange(min(len(content), drawn.choice([8, 64, 2000, len(content)])))] = drawn.randrange(256)
    path.write_bytes(content)
    return f"{count} bytes changed"


def cut(path: Path, drawn: Random) -> str:
    """Cut a file off."""
    size = path.stat().st_size
    kept = drawn.choice([0, max(0, size - 1), drawn.randrange(size + 1), drawn.randrange(min(size, 64) + 1)])
    path.write_bytes(path.read_bytes()[:kept])
    return f"cut to {kept} of {size} bytes"


def grow(path: Path, drawn: Random) -> str:
    """Append bytes."""
    more = drawn.choice([b"\0", b"\n", b"}", b"\xff\xfe", bytes(drawn.randrange(1, 99)), path.read_bytes()])
    path.write_bytes(path.read_bytes() + more)
    return f"{len(more)} bytes appended"


def replaced(path: Path, drawn: Random) -> str:
    """Take a file away, or put something else in its place."""
    what = drawn.choice(["missing", "missing", "a folder", "a loop of links", "a pipe", "random bytes", "zeros"])
    size = path.stat().st_size
    path.unlink()
    match what:
        case "a folder":
            path.mkdir()
        case "a loop of links":
            path.symlink_to(path.name)
        case "a pipe":
            os.mkfifo(path)
        case "random bytes":
            path.write_bytes(drawn.randbytes(max(1, size % 5000)))
        case "zeros":
            path.write_bytes(bytes(size))
    return what


def header(path: Path, drawn: Random) -> str:
    """Change what the header of a safetensors file says of a tensor."""
    content = path.read_bytes()
    if path.suffix != ".safetensors":
        return flip(path, drawn)
    length = struct.unpack("<Q", content[:8])[0]
    head = json.loads(content[8:8 + length])
    names = [key for key in head if key != "__metadata__"]
    if not names:
        return flip(path, drawn)
    words = change_head(head, drawn.choice(names), drawn)
    written = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(written)) + written + content[8 + length:])
    return words


def change_head(head: dict[str, Any], name: str, drawn: Random) -> str:
    """Change one entry of a header in place."""
    match drawn.randrange(8):
        case 0:
            del head[name]
            return f"{name} left out of the header"
        case 1:
            shape = head[name]["shape"]
            head[name]["shape"] = drawn.choice([[], [0], [2**40, 2**40], [-1], [1.5], "x", shape[::-1], [*shape, 1],
                                                [1, *shape], [2**63]])
            return f"{name} of shape {told(head[name]['shape'])}"
        case 2:
            head[name]["dtype"] = drawn.choice(["I8", "F64", "BF16", "F16", "I32", "U8", "F8_E4M3", "BOOL", "X", 7])
            return f"{name} of dtype {head[name]['dtype']}"
        case 3:
            head[name]["data_offsets"] = drawn.choice([[0, 0], [0, 2**62], [-4, 4], [8, 4], [0], "x"])
            return f"{name} at {told(head[name]['data_offsets'])}"
        case 4 | 5:
            new = drawn.choice(["", "x" * 10000, name + ".weight", "\u0000", "a\nb", "\u2028", "😀", name[1:],
                                name.replace(".", ":"), name.replace("A", "B"), drawn.choice([*head])])
            head[new] = head.pop(name)
            return f"{name} called {told(new)}"
        case 6:
            head[f"extra.{name}"] = dict(head[name])
            return f"{name} there twice"
        case _:
            head["__metadata__"] = drawn.choice([{"a": 1}, [], {"a": "b" * 10**6}, {"format": "\n"}, {
                "base_marks": drawn.choice(["[]", "{", '{"a": {}}', "[" * 50_000, "1" * 5000])}])
            return f"metadata {told(head['__metadata__'])}"


def values(path: Path, drawn: Random) -> str:
    """Fill the end of a file of tensors with a repeated number, which may be NaN or infinite."""
    content = bytearray(path.read_bytes())
    pattern = drawn.choice([b"\xff\xff\xff\x7f", b"\x00\x00\x80\x7f", b"\xff\xff\x7f\x7f", b"\x00\x00\x00\x00"])
    count = drawn.randrange(len(content) // 8 + 1)
    content[len(content) - 4 * count:] = pattern * count
    path.write_bytes(content)
    return f"the last {count} numbers made {pattern.hex()}"


def claimed(path: Path, drawn: Random) -> str:
    """Claim a header of another size."""
    size = drawn.choice(SIZES)
    path.write_bytes(struct.pack("<Q", size) + path.read_bytes()[8:])
    return f"a header of {size} bytes claimed"


def json_values(path: Path, drawn: Random) -> str:
    """Change some values of a JSON file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return flip(path, drawn)
    words = []
    for _ in range(drawn.choice([1, 1, 1, 2, 3])):
        document, word = changed(document, drawn)
        words.append(word)
    path.write_text(json.dumps(document), encoding="utf-8")
    return "; ".join(words)


def changed(document: Any, drawn: Random) -> tuple[Any, str]:
    """Change one value of plain data, in place where it can be; the places near the top are the likeliest."""
    if not isinstance(document, dict | list) or not document:
        value = hostile(drawn)
        return value, f"all of it {told(value)}"
    holder, path = document, list[str]()
    while True:
        key: Any = drawn.choice([*holder]) if isinstance(holder, dict) else drawn.randrange(len(holder))
        path.append(str(key))
        inside = holder[key]
        if not isinstance(inside, dict | list) or not inside or drawn.random() < 0.4:
            return document, f"{'.'.join(path)[:100]} {change_at(holder, key, drawn)}"
        holder = inside


def change_at(holder: Any, key: Any, drawn: Random) -> str:
    """Change what stands at a key of a dict or list."""
    old = holder[key]
    match drawn.randrange(8):
        case 0:
            del holder[key]
            return "left out"
        case 1 if isinstance(holder, dict):
            new = drawn.choice(["", "new", f"{key}_", "\n", "\ud800", "x" * 300, "kind", str(key).upper()])
            holder[new] = holder.pop(key) if drawn.random() < 0.5 else copy.deepcopy(old)
            return f"called {told(new)}"
        case 2 | 3 if isinstance(old, int) and not isinstance(old, bool):
            holder[key] = old * drawn.choice([-1, 0, 2, 3, 10**6, 10**30]) + drawn.choice([0, 1, -1])
            return f"made {told(holder[key])}"
        case 4 if isinstance(holder, list):
            holder.insert(key, copy.deepcopy(old))
            return "there twice"
        case _:
            holder[key] = hostile(drawn)
            return f"made {told(holder[key])}"


def json_text(path: Path, drawn: Random) -> str:
    """Make a JSON file something else."""
    text = path.read_text(encoding="utf-8", errors="replace")
    end = text.rstrip()[:-1]
    path.write_text(drawn.choice([
        "", "[]", "null", "{", "[" * 100_000, '{"a":' * 50_000, text.replace(":", "", 1), text.replace('"', "'"), "{}",
        text.upper(), end + ', "x": NaN}', end + ', "hidden_size": Infinity}', end + ', "x": ' + "9" * 6000 + "}",
        "\ufeff" + text, text + text, "1", '"a"', "[{}]", "[[]]", '{"\\ud800": "\\ud800"}', text.replace("}", "", 1),
        '{"model_type": "saucier"}', '{"model_type": ["bert"]}', '{"model_type": "bert"}', "{}" * 3,
        '{"model_type": "saucier", "format": 1, "model": {"dim": 1}}',
    ]), encoding="utf-8")
    return "another JSON text"


def text_lines(path: Path, drawn: Random) -> str:
    """Change the lines of a text file."""
    lines = path.read_bytes().split(b"\n")
    place = drawn.randrange(len(lines))
    odd = drawn.choice([b"", b" ", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"x" * 300_000, b"\t\t\t", b'"', b"\r", b"{",
                        b"\xed\xa0\x80", b"- [", b"a: b: c", b"\\ud800", b"1e999", b"\x1b[0m", "\u2028".encode()])
    match drawn.randrange(6):
        case 0:
            words, lines[place:place + 1] = f"line {place + 1} left out", []
        case 1:
            words, lines[place:place] = f"line {place + 1} there twice", [lines[place]]
        case 2:
            other = drawn.randrange(len(lines))
            lines[place], lines[other] = lines[other], lines[place]
            words = f"lines {place + 1} and {other + 1} exchanged"
        case 3:
            words, lines[place] = f"line {place + 1} made {told(odd)}", odd
        case 4:
            words, lines[place] = f"{told(odd)} put before line {place + 1}", odd + lines[place]
        case _:
            at = drawn.randrange(len(lines[place]) + 1)
            words, lines[place] = f"{told(odd)} put into line {place + 1}", lines[place][:at] + odd + lines[place][at:]
    path.write_bytes(b"\n".join(lines))
    return words


ANY: Sequence[Change] = (flip, cut, grow, replaced)
BY_SUFFIX: dict[str, Sequence[Change]] = {
    ".json": (*ANY, json_text, *[json_values] * 8),
    ".safetensors": (*ANY, claimed, values, *[header] * 5),
    ".bin": (flip, flip, cut, grow, replaced, values),
    ".model": (flip, flip, flip, cut, grow, replaced),
    ".parquet": (flip, flip, flip, cut, grow, replaced),
}


def damaged_file(path: Path, drawn: Random) -> str:
    """Damage a file as befits its kind."""
    change = drawn.choice(BY_SUFFIX.get(path.suffix, (*ANY, *[text_lines] * 8)))
    try:
        return change(path, drawn)
    except (ValueError, KeyError, TypeError, struct.error):  # it was damaged before: not what this change expects
        return flip(path, drawn)


def damaged_folder(folder: Path, drawn: Random, likely: Sequence[str] = ()) -> str:
    """Damage one file of a folder, sometimes two; those whose names are `likely` more often."""
    words = []
    for _ in range(drawn.choice([1, 1, 1, 1, 2])):
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        if not files:
            break
        path = drawn.choice([*files, *(one for one in files for _ in range(4) if one.name in likely)])
        words.append(f"{path.relative_to(folder)}: {damaged_file(path, drawn)}")
    return "; ".join(words)


def copied(source: Path, target: Path) -> Path:
    """Copy a folder, contents only."""
    shutil.copytree(source, target, copy_function=shutil.copyfile, ignore=shutil.ignore_patterns("golden*", "*.py"))
    return target
