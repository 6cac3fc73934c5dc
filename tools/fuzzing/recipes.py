"""Recipes, and the other settings that a person writes as YAML: their text damaged, and hostile `key=value` words.

A recipe that is accepted is counted and planned, on paper: no model is built, whatever sizes it says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import torch  # noqa: F401  # planning loads it: its memory is none that a recipe takes
import yaml

from saucier.cost import planning as planning
from saucier.jobs.cleaning.clean import CleaningOptions, clean, cleaning, rules_to_yaml
from saucier.jobs.comparison.experiment import read_experiment
from saucier.jobs.finetuning.settings import read_finetuning
from saucier.jobs.prompting.questions import read_questions, read_task
from saucier.lens import anatomy
from saucier.lens.subject import find_subject
from saucier.recipes import names, recipe
from saucier.recipes.catalogue import FOLDER, file_text
from tools.fuzzing.cases import Case, UnsoundError
from tools.fuzzing.damage import changed, flip, hostile, text_lines, told

FINETUNING = """name: tones
model: gpt-nano
task: {kind: classification, text: text, label: label, labels: [bad, good]}
data: {train: [rows.tsv], held_out: [], share: 0.1}
training: {epochs: 3, batch: 8, optimizer: {kind: adamw, learning_rate: 5.0e-05}, warmup: 0.1, seed: 0}
tuning: {kind: lora, where: [query, value], rank: 8, alpha: 16.0}
"""
STUDY = """name: study
about: Which learns faster?
arms:
- {name: one, recipe: gpt-nano, changes: {training.batch: 8}}
- {name: two, recipe: llama-nano}
changes: {training.length: 32}
budget: {kind: tokens, amount: 1000.0}
seeds: 2
judge: {kind: loss}
"""
PROMPT = """name: rows
evaluate: rows.jsonl
template: "Text: {{ text }}"
answer: " {{ answer }}"
gold: label
choices: [bad, good]
labels: [bad, good]
by: {kind: likelihood, normalization: {kind: token}}
"""
ROWS = '{"text": "a guest", "label": "good"}\n{"text": "my cat", "label": "bad"}\n'
ODD = (
    "x: &a [1]\ny: *a\n", "a: &a {b: *a}\n", "!!python/object/apply:os.system [ls]\n", "? [1, 2]\n: 3\n", "- a\n- b\n",
    "a: " + "[" * 3000 + "\n", "a: " + "{a: " * 3000 + "\n", "\t a: 1\n", "a: 'b\n", "%YAML 9.9\n---\na: 1\n",
    "---\na: 1\n---\n",
    "<<: {a: 1}\n", "a: 0x10\n", "a: 1_000\n", "a: 12:30:45\n", "a: 2001-01-01\n", "a: !!binary aGk=\n", "a: .inf\n",
    "a: .nan\n", "a: " + "9" * 6000 + "\n", "a: 1e400\n", "a: ~\n", "=: 1\n", "null: 1\n", "é: 1\n", "\u2028: 1\n",
    "a\u0000: 1\n",
    "".join(f"k{n}: &k{n} [{', '.join([f'*k{n - 1}'] * 9)}]\n" if n else "k0: &k0 [x]\n" for n in range(9)),
    '"\\ud800": 1\n', '"\\n": "\\n"\n', "is missing; did you mean: 1\n", 'a: "\\e[31m"\n', "true: 1\n", "1: 1\n",
)
"""Lines of YAML that are put into a file."""
ROOM = 2**30
"""Bytes: a plan makes up four updates at least, of up to four million tokens each."""
NUMBERS = ("10000000000000", "0", "-1", "1e300", ".nan", "1.5", "999999999999999999999999", "1000000", "3", "4096")


def draw(drawn: Random, stock: Path, place: Path) -> Case:
    """Damage settings of some kind, and read them as that."""
    kind = drawn.choice(["recipe"] * 6 + ["finetune", "study", "prompt", "cleaning"])
    path = place / "settings.yaml"
    (place / "rows.jsonl").write_text(ROWS)
    text, steps = of_kind(kind, path, drawn)
    words = damaged(path, text, drawn) if drawn.random() < 0.7 else ""
    if not words:
        path.write_text(text, encoding="utf-8")
    changes = [override(text, drawn) for _ in range(drawn.choice([0, 1, 2]) if words else drawn.choice([1, 1, 2, 3]))]
    steps = steps[:1] if drawn.random() < 0.7 else steps  # a plan makes up some updates, which takes longest
    return Case(f"{kind}: {words} {told(changes)}", tuple(partial(step, path, changes) for step in steps), room=ROOM,
                many_lines=True)


Reader = Callable[[Path, list[str]], object]


def of_kind(kind: str, path: Path, drawn: Random) -> tuple[str, tuple[Reader, ...]]:
    """Return whole settings of a kind, and what reads them."""
    match kind:
        case "finetune":
            return FINETUNING, (read_finetuning,)
        case "study":
            return STUDY, (lambda path, changes: read_experiment([str(path), *changes], {}),)
        case "prompt":
            return PROMPT, (asked,)
        case "cleaning":
            return rules_to_yaml(cleaning("all")), (cleaned,)
        case _:
            name = drawn.choice(names())
            return recipe_text(name) if drawn.random() < 0.3 else file_text(FOLDER / f"{name}.yaml"), (counted, planned)


@cache
def recipe_text(name: str) -> str:
    """Return a recipe of ours, with every value."""
    return yaml.safe_dump(recipe(name).as_dict(), sort_keys=False, allow_unicode=True, width=120)


def damaged(path: Path, text: str, drawn: Random) -> str:
    """Write damaged text; return what was done."""
    match drawn.randrange(6):
        case 0 | 1 | 2:
            values = yaml.safe_load(text)
            words = []
            for _ in range(drawn.choice([1, 1, 2, 3])):
                values, word = changed(values, drawn)
                words.append(word)
            path.write_text(dumped(values), encoding="utf-8")
            return "; ".join(words)
        case 3:
            path.write_text(text, encoding="utf-8")
            return text_lines(path, drawn) if drawn.random() < 0.8 else flip(path, drawn)
        case 4:
            lines, odd = text.splitlines(keepends=True), drawn.choice(ODD)
            lines.insert(drawn.randrange(len(lines) + 1), odd)
            path.write_text("".join(lines), encoding="utf-8", errors="surrogatepass")
            return f"{told(odd)} put in"
        case _:
            words_of = text.split(" ")
            first, second = drawn.randrange(len(words_of)), drawn.randrange(len(words_of))
            words_of[first], words_of[second] = words_of[second], words_of[first]
            path.write_text(" ".join(words_of), encoding="utf-8")
            return f"words {first} and {second} exchanged"


def dumped(values: Any) -> str:
    """Return values as YAML, or as it would look where YAML cannot say them."""
    try:
        text: str = yaml.safe_dump(values, sort_keys=False, allow_unicode=drawn_unicode(values))
    except (yaml.YAMLError, UnicodeEncodeError, RecursionError):
        return ascii(values)
    return text


def drawn_unicode(values: Any) -> bool:
    """Say whether all of it can be written as UTF-8."""
    try:
        repr(values).encode()
    except UnicodeEncodeError:
        return False
    return True


def override(text: str, drawn: Random) -> str:
    """Return a `key=value` word; its key mostly stands in the settings."""
    key = drawn.choice(keys_of(text)) if drawn.random() < 0.85 else drawn.choice(
        ["", "a", "model", "model.", ".model", "model..dim", "model.0", "model.-1", "data.files.0", "training.٣",
         "a" * 500, "model.decoder.layers.0.x", "é", "a b", "__class__", "rules.99", "kind", "dim", "long_words",
         "bullets.share"])
    match drawn.randrange(4):
        case 0 | 1:
            value = drawn.choice(NUMBERS)
        case 2:
            value = drawn.choice(["[", "{", "{kind: x}", "[1, 2", "*a", "&a b", "!!python/name:os.system", "'", "null",
                                  "",
                                  "\x00", "\n", "a: b", "{a: {a: {a: 1}}}", "[" * 2000, "off", "true", "{kind: own}"])
        case _:
            value = ascii(hostile(drawn))
    return f"{key}={value}"


@cache
def keys_of(text: str) -> list[str]:
    """List the dotted keys of settings."""
    found: list[str] = []

    def walk(value: Any, path: tuple[str, ...]) -> None:
        if path:
            found.append(".".join(path))
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inside in items:
            walk(inside, (*path, str(key)))

    walk(yaml.safe_load(text), ())
    return found


def counted(path: Path, changes: list[str]) -> None:
    """Read a recipe and count it, as `saucier show` does. Raises `UnsoundError` for counts that are no numbers."""
    found = find_subject(str(path), changes).recipe
    assert found is not None, "a recipe file was read"
    training = found.training
    described = anatomy.describe_model(found.name, found.model, length=training.length, batch=training.batch)
    described.to_dict()
    anatomy.render_description(described)
    if described.anatomy.parameters < 0:
        raise UnsoundError(f"{described.anatomy.parameters} parameters")


def planned(path: Path, changes: list[str]) -> None:
    """Plan a recipe without measuring anything. Raises `UnsoundError` for figures that are no numbers."""
    found = planning.make_plan(recipe(path, changes), seconds=None)
    planning.plan_lines(found)
    found.to_dict()
    if not math.isfinite(found.flops) or found.flops < 0 or found.parameters < 0:
        raise UnsoundError(f"{found.flops} floating-point operations, {found.parameters} parameters")


def asked(path: Path, changes: list[str]) -> None:
    """Read a task of prompts, and fill its templates."""
    task = read_task(path)
    if Path(task.evaluate).suffix == ".jsonl":
        read_questions(task, task.evaluate)


def cleaned(path: Path, changes: list[str]) -> None:
    """Read rules of cleaning, and clean a text by them."""
    rules = cleaning(str(path), changes)
    text = path.with_name("text.txt")
    text.write_text("The cook stirs. " * 200)
    clean([str(text)], rules, path.with_name("cleaned"), wishes=CleaningOptions(), say=lambda what, sentence: None)
