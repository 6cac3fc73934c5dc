"""The texts and labelled rows that the box of old artifacts is trained on: made up here, from fixed seeds.

The same bytes every time.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

THINGS = ("the cook", "a guest", "my cat", "the waiter", "soup", "the sauce", "some bread", "a plate")
OTHERS = ("is", "was", "quite", "very", "tonight", "again", "here")
TONES = {"good": ("fine", "lovely", "rich"), "bad": ("burnt", "sour", "cold")}
SAID = {"good": "very rich soup", "bad": "cold bread"}
TAGGED = {"fine": "B-GOOD", "lovely rich": "B-GOOD I-GOOD", "burnt": "B-BAD", "very cold": "B-BAD I-BAD"}
PAGE = ("The cook number {0} stirs the sauce of day {0} in a large pot. He tastes it {0} times with a long spoon. "
        "It needs a little more salt, and the guests of table {0} have to wait.")
Row = Sequence[str]


def write_all(folder: Path) -> None:
    """Write every file."""
    for name, made in {**TEXTS, **TABLES}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made(), encoding="utf-8")


def sentence(draw: random.Random, tone: str, size: int = 4) -> str:
    """Return some words, one of which has a tone."""
    words = [draw.choice(THINGS + OTHERS) for _ in range(size)]
    words.insert(draw.randrange(size), draw.choice(TONES[tone]))
    return " ".join(words)


def tones(count: int, seed: int) -> list[tuple[str, str]]:
    """Return (tone, sentence) rows."""
    draw = random.Random(seed)
    chosen = [draw.choice(list(TONES)) for _ in range(count)]
    return [(tone, sentence(draw, tone, draw.randint(2, 6))) for tone in chosen]


def stories(documents: int, seed: int) -> str:
    """Return paragraphs of four sentences."""
    rows = [f"{text}." for _, text in tones(4 * documents, seed)]
    return "\n\n".join("\n".join(rows[place:place + 4]) for place in range(0, len(rows), 4)) + "\n"


def pairs() -> str:
    """Return words, and the same words turned round."""
    rows = [(text, " ".join(reversed(text.split()))) for _, text in tones(48, 3)]
    return tabled("there\tback", rows)


def pages(first: int, last: int) -> str:
    """Return documents to be cleaned: good ones, one twice, and some that no rule lets pass."""
    good = [f"Home | About\n{PAGE.format(number)}\nPlease enable javascript." for number in range(first, last)]
    bad = ["Lorem ipsum dolor sit amet, consectetur adipiscing elit.", "Menu\nContact\nLogin", PAGE.format(first)]
    return lines({"text": text} for text in (*good, *bad))


def tabled(header: str, rows: Iterable[Row]) -> str:
    """Write a table."""
    return "\n".join([header, *("\t".join(row) for row in rows)]) + "\n"


def lines(rows: Iterable[dict[str, Any]]) -> str:
    """Write rows as JSON, one a line."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def from_tones(header: str, made: Callable[[str, str, random.Random], Row]) -> Callable[[int, int], str]:
    """Return what writes a table of so many rows by a seed: a row for each tone and sentence."""
    def write(count: int, seed: int) -> str:
        draw = random.Random(seed + 100)
        return tabled(header, [made(tone, text, draw) for tone, text in tones(count, seed)])

    return write


def ranked(count: int, seed: int) -> str:
    """Return four sentences for each question, of which the good ones are relevant."""
    rows = [(str(int(tone == "good")), f"is the soup of table {place // 4} fine ?", text)
            for place, (tone, text) in enumerate(tones(count, seed))]
    return tabled("label\tquestion\tsentence", rows)


def tagged(count: int, seed: int) -> str:
    """Return sentences with a word and its tag on each line."""
    draw, found = random.Random(seed), []
    for _ in range(count):
        phrases = [draw.choice((*THINGS, *TAGGED)) for _ in range(draw.randint(2, 5))]
        tags = " ".join(TAGGED.get(one, " ".join("O" for _ in one.split())) for one in phrases).split()
        found.append("\n".join(f"{word}\t{tag}" for word, tag in zip(" ".join(phrases).split(), tags, strict=True)))
    return "\n\n".join(found) + "\n"


def questions(count: int, seed: int) -> str:
    """Return questions whose answer stands in a text; some have none."""
    draw, rows = random.Random(seed), []
    for number in range(count):
        words = [draw.choice(THINGS) for _ in range(draw.randint(3, 7))]
        answer = "" if number % 4 == 3 else draw.choice(TONES["good"])
        words[1:1] = [answer] if answer else []
        context = " ".join(words)
        answers = [{"text": answer, "answer_start": context.index(answer)}] if answer else []
        rows.append({"title": "", "context": context,
                     "qas": [{"id": f"q{number}", "question": "the cook is", "answers": answers}]})
    return lines(rows)


def choices(count: int, seed: int) -> str:
    """Return questions with two choices, of which the good one is right."""
    draw, rows = random.Random(seed), []
    for _ in range(count):
        right = draw.randrange(2)
        rows.append({"question": f"{draw.choice(THINGS)} is", "answer": right, "choices": [
            draw.choice(TONES["good" if place == right else "bad"]) for place in range(2)]})
    return lines(rows)


def reasons(count: int, seed: int) -> str:
    """Return sentences with their tone and why."""
    return lines({"input": text, "target": tone, "rationale": f"it says {SAID[tone]}"}
                 for tone, text in tones(count, seed))


def talks(count: int, seed: int) -> str:
    """Return what is asked and what is answered."""
    return lines({"instruction": "what is it ?", "input": text, "output": SAID[tone]}
                 for tone, text in tones(count, seed))


WRITTEN: dict[str, Callable[[int, int], str]] = {
    "tones.tsv": from_tones("label\ttext", lambda tone, text, draw: (tone, text)),
    "labels.tsv": from_tones("labels\ttext", lambda tone, text, draw: (
        ",".join([tone, *(["cat"] if "cat" in text else [])]), text)),
    "scores.tsv": from_tones("score\ttext", lambda tone, text, draw: ("4.5" if tone == "good" else "1.5", text)),
    "similar.tsv": from_tones("score\tsentence1\tsentence2", lambda tone, text, draw: (
        "1.0" if tone == "good" else "0.0", text, draw.choice(TONES["good"]))),
    "triplets.tsv": from_tones("anchor\tpositive\tnegative", lambda tone, text, draw: (
        text, sentence(draw, tone), sentence(draw, "bad" if tone == "good" else "good"))),
    "said.tsv": from_tones("input\ttarget", lambda tone, text, draw: (text, SAID[tone])),
    "turned.tsv": from_tones("there\tback", lambda tone, text, draw: (text, " ".join(reversed(text.split())))),
    "short.tsv": from_tones("document\tsummary", lambda tone, text, draw: (text, " ".join(text.split()[:2]))),
    "ranked.tsv": ranked, "tagged.conll": tagged, "questions.jsonl": questions, "choices.jsonl": choices,
    "reasons.jsonl": reasons, "talks.jsonl": talks}
"""Labelled files; of each there is one to learn from, and one to measure with."""
TABLES: dict[str, Callable[[], str]] = {
    f"{part}/{name}": partial(made, count, seed)
    for name, made in WRITTEN.items() for part, count, seed in (("train", 24, 1), ("dev", 8, 2))}
TEXTS: dict[str, Callable[[], str]] = {
    "kitchen.txt": lambda: "".join(f"{text}.\n" for _, text in tones(160, 0)),
    "stories.txt": lambda: stories(40, 4), "pairs.tsv": pairs,
    "python.txt": lambda: "\n\n".join(f"stir({word}) taste({word})" for word in TONES["good"] + TONES["bad"]) * 3,
    "raw-1.jsonl": lambda: pages(0, 5), "raw-2.jsonl": lambda: pages(5, 9)}
