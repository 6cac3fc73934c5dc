"""Parts `json`, `disk`, `codes`: what every verb prints with --json, what jobs leave in their folders, and exit codes.

Of JSON the keys and the types are kept, not the values. The jobs are run once, tiny, through the command line.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from saucier.cli import main
from saucier.training.progress import EVENTS
from tools.frozen.items import Exact, Item
from tools.frozen.text import prose, write_lines

TINY = ("model.dim=32", "model.heads=2", "model.layers=1", "model.length=32", "training.length=32", "training.steps=2",
        "training.batch=4", "sampling.tokens=6", "sampling.samples=1", "training.events=off", "training.dtype=float32")
SOURCE = ("model.dim=16", "training.steps=2", "training.batch=4", "training.length=24", "tokenizer.vocab=250",
          "evaluation.limit=2", "sampling.samples=1", "training.events=off", "training.dtype=float32")
SIZES = ("gpt-nano", "gpt1-nano", "gpt2-nano", "performer-nano", "sparse-transformer-nano")
"""Arms of a comparison; each is wider than the one before, so that a law can be fitted. The last one reads bytes."""
TASK = """name: words
evaluate: one.tsv
train: one.tsv
template: "{{ text }} is"
answer: " {{ answer }}"
gold: label
choices: [left, middle, right]
"""
PLAIN = ("tokenizer.json", "tokenizer_config.json")
"""JSON whose keys are the tokenizer's library's, or words."""


def jobs(place: Path) -> dict[str, tuple[object, ...]]:
    """Return the jobs that leave a folder, by the folder's name; later ones begin with what earlier ones left."""
    text = ("--data", place / "text.txt", "--no-calibrate")
    return {
        "cook": ("cook", "shakespeare", *text, *TINY),
        "bert": ("train", "bert-nano", *text, *TINY, "tokenizer.vocab=250", "objective.next_sentence=null"),
        "translate": ("cook", "lstm-luong-nano", "--data", place / "pairs.tsv", "--no-calibrate", *SOURCE),
        "electra": ("train", "electra-nano", *text, *TINY, "tokenizer.vocab=250", "model.width=32"),
        "lora": ("cook", "--from", place / "cook", *text, "tuning.kind=lora", "tuning.rank=2", "training.steps=2",
                 "training.batch=4", "training.events=off", "sampling.samples=0"),
        "finetune": ("finetune", "classification", "--model", place / "bert", "--data", place / "one.tsv",
                     "training.epochs=1", "training.dtype=float32"),
        "compare": ("compare", *SIZES, "--data", place / "text.txt", "--seeds", 1, "--budget",
                    "tokens=256", "--threads", 1, "--json", *TINY, *(
                        f"{name}:model.dim={8 * size}" for size, name in enumerate(SIZES, 1)), *(
                        f"{name}:tokenizer.vocab=290" for name in SIZES[:-1])),
        "clean": ("clean", place / "crawl.jsonl", "--rules", "c4", "--keep-rejected", "--json"),
        "prompt": ("prompt", place / "task.yaml", "--model", place / "cook", "--shots", "0,1", "--limit", 4, "--json"),
        "convert": ("convert", place / "cook", place / "convert", "--json"),
        "surgery": ("convert", place / "bert", place / "surgery", "--attention", "window:8", "--positions", 40,
                    "--text", place / "few.txt", "--json"),
        "merge": ("merge", place / "lora", "--json"),
        "tokenizer": ("tokenizer", "train", place / "text.txt", "--vocab", 300),
    }


def questions(place: Path) -> dict[str, tuple[object, ...]]:
    """Return the verbs that print JSON about what is there."""
    run, pairs = place / "cook", place / "translate"
    return {
        "show recipe": ("show", "gpt-nano"), "show run": ("show", run),
        "show adapter": ("show", place / "lora/checkpoints/step-2"),
        "diff": ("diff", "gpt-nano", "bert-nano"), "plan": ("plan", "gpt-nano", "--no-calibrate"),
        "recipes": ("recipes",), "families": ("families",), "number": ("number", "12", "0.1"),
        "doctor": ("doctor", run), "evaluate": ("evaluate", run),
        "evaluate with baselines": ("evaluate", run, place / "more.txt", "--baselines"),
        "evaluate pairs": ("evaluate", pairs, "--limit", 2), "evaluate masked": ("evaluate", place / "bert"),
        "generate": ("generate", run, "ba co", "--tokens", 4),
        "generate file": ("generate", pairs, "--file", place / "few.txt", "--tokens", 4),
        "fill": ("generate", place / "bert", "--masks", 2, "--strategy", "gibbs steps=2"),
        "attention": ("attention", "gpt-nano", "model.layers=1", "--length", 3),
        "attention by length": ("attention", "bert-nano", "--lengths", "16,32"),
        "attention-map": ("attention-map", pairs, "ba co", "co ba"),
        "score": ("score", place / "finetune/predictions/held-out.jsonl"),
        "predict": ("predict", place / "finetune", "--text", "ba co"),
        "tokenizer inspect": ("tokenizer", "inspect", run, "ba co"),
        "clean --why": ("clean", "--why", 1, "--out", place / "clean"),
        "rerun": ("rerun", run, "--out", place / "again"),
        "scaling": ("scaling", place / "compare", "--by", "parameters"),
    }


WRONG: dict[str, tuple[object, ...]] = {
    "no such recipe": ("cook", "gpt-nono"), "no such verb": ("cok",), "no recipe": ("cook",),
    "no such option": ("cook", "gpt-nano", "--outt", "x"), "no such folder": ("generate", "nowhere"),
    "no such key": ("show", "gpt-nano", "training.stepz=3"), "no such kind": ("show", "gpt-nano", "tokenizer.kind=x"),
    "not a number": ("show", "gpt-nano", "model.dim=wide"), "heads that do not divide": ("show", "gpt-nano",
                                                                                         "model.heads=5"),
    "no text": ("cook", "gpt-nano", "--data", "nothing.txt", "--out", "run"), "no task": ("finetune", "taste"),
    "no budget": ("compare", "gpt-nano", "llama-nano"), "help": ("--help",), "version": ("--version",),
}
"""Command lines whose exit codes are kept."""


def run(words: tuple[object, ...]) -> tuple[int, str, str]:
    """Run the command line in this process; return its code, what it printed, and what it complained of."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    return code, out.getvalue(), err.getvalue()


def done(name: str, words: tuple[object, ...]) -> str:
    """Run a verb that must work; return what it printed."""
    code, out, err = run(words)
    if code:
        raise RuntimeError(f"{name}: saucier {' '.join(map(str, words))} ended with {code}: {err}")
    return out


def answers(place: Path) -> Iterator[tuple[str, Item]]:
    """Yield what the verbs print and leave, and exit codes. `place`: the folder of the text, which the jobs fill."""
    (place / "task.yaml").write_text(TASK, encoding="utf-8")
    (place / "few.txt").write_text("ba co di\nco ba\n", encoding="utf-8")
    write_lines(place / "crawl.jsonl", [{"text": "Lorem ipsum dolor sit amet, and so on."},
                                        *[dict[str, object](text=text) for text in prose(20, seed=14)]])
    for name, words in jobs(place).items():
        out = done(name, words if words[0] == "convert" else (*words, "--out", place / name))
        yield from keys(f"json/{name}", json.loads(out)) if "--json" in words else ()
        yield from on_disk(f"disk/{name}", place / name)
    for name, words in questions(place).items():
        yield from keys(f"json/{name}", json.loads(first(done(name, (*words, "--json")))))
    yield from codes(place)


def codes(place: Path) -> Iterator[tuple[str, Item]]:
    """Yield the exit codes of command lines that are wrong, called in the folder `place`."""
    with contextlib.chdir(place):
        found = {name: run(words)[0] for name, words in WRONG.items()}
    for name, code in found.items():
        yield f"codes/{name}", Exact(str(code))


def first(text: str) -> str:
    """Return the first JSON document of an output, which is the whole of it, or a line."""
    return text.splitlines()[0] if text.startswith('{"') else text


def on_disk(name: str, folder: Path) -> Iterator[tuple[str, Item]]:
    """Yield the files below a folder, and the keys of those that are JSON; where it stands is no part of a key."""
    here = str(folder.parent)
    for path in sorted(one for one in folder.rglob("*") if one.is_file() and one.parent.name != EVENTS):
        file = path.relative_to(folder).as_posix()
        yield f"{name}/{file}", Exact("a file")
        if path.suffix == ".json" and path.name not in PLAIN:
            yield from keys(f"{name}/{file}", json.loads(path.read_text(encoding="utf-8").replace(here, "")))
        if path.suffix == ".jsonl":
            lines = path.read_text(encoding="utf-8").splitlines()
            yield from keys(f"{name}/{file}", [json.loads(line) for line in lines])


def keys(name: str, value: Any) -> Iterator[tuple[str, Item]]:
    """Yield the path of every value with its types."""
    found: dict[str, set[str]] = {}
    collect("", value, found)
    for path, types in sorted(found.items()):
        yield f"{name}:{path}", Exact(" or ".join(sorted(types)))


def collect(path: str, value: Any, found: dict[str, set[str]]) -> None:
    """Gather the types of all values below a path; `[]` stands for every place of a list."""
    match value:
        case dict():
            for key, inner in value.items():
                collect(f"{path}.{key}" if path else key, inner, found)
            if not value:
                found.setdefault(path, set()).add("{}")
        case list():
            for inner in value:
                collect(f"{path}[]", inner, found)
            if not value:
                found.setdefault(path, set()).add("[]")
        case _:
            kind = {bool: "truth", int: "number", float: "number", str: "text"}.get(type(value), "null")
            found.setdefault(path, set()).add(kind)
