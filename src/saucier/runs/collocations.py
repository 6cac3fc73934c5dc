"""The stage that counts n-grams for PMI masking: done once for a run, kept in its folder, found when it goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from saucier.errors import InputError
from saucier.files import read_object, write_json
from saucier.objectives import config as c
from saucier.objectives.material import collocations as wanted
from saucier.recipes import Recipe
from saucier.runs.folder import RunFolder
from saucier.runs.voice import Voice
from saucier.text.collocations import Collocation, Collocations, Counting, collocations
from saucier.text.store import TokenStore
from saucier.text.tokenizer import Tokenizer
from saucier.text.word_marks import digits_of

FILE = "collocations.json"


def counted(recipe: Recipe, folder: RunFolder, tokenizer: Tokenizer, store: object,
            voice: Voice) -> Collocations | None:
    """Count the n-grams that the recipe's objective hides whole, or read what this run has; None where it needs none.

    Raises `InputError` where none is frequent enough, and where the tokenizer does not show words.
    """
    how = wanted(recipe.objective)
    if how is None or not isinstance(store, TokenStore):
        return None
    path = folder.path / FILE
    with voice.stage("n-grams"):
        if not path.is_file():
            write(path, count(how, tokenizer, store), tokenizer)
        found = read(path)
        lengths = [one.words for one in found.kept]
        each = ", ".join(f"{lengths.count(words):,} of {words} words" for words in sorted(set(lengths)))
        voice.say(f"{len(lengths):,} that keep company: {each}")
    return found


def stored(recipe: Recipe, folder: RunFolder) -> Collocations | None:
    """Read what a run counted; None where its recipe needs none."""
    return None if wanted(recipe.objective) is None else read(folder.path / FILE)


def count(how: c.PMIMasking, tokenizer: Tokenizer, store: TokenStore) -> Collocations:
    """Count over the whole store."""
    special = np.array(tokenizer.special_ids, dtype=np.int64)
    if not tokenizer.word_marks:
        raise InputError("the tokenizer's tokens do not tell where words begin, which pmi needs",
                         where="tokenizer.kind", remedy="use wordpiece, byte_bpe, bpe or unigram")
    found = tuple(collocations(store, special, digits_of(tokenizer.word_marks),
                               Counting(how.longest, how.least, how.each)))
    if not found:
        raise InputError(f"no n-gram of this text occurs {how.least} times and more often than its parts would",
                         where="objective.choice.least", remedy="lower it, or give more text")
    return Collocations(found)


def write(path: Path, found: Collocations, tokenizer: Tokenizer) -> None:
    """Write them as JSON, with their text for those who look."""
    write_json(path, {"n_grams": [{"text": tokenizer.decode(one.ids), "ids": list(one.ids), "words": one.words,
                                   "count": one.count, "pmi": round(one.measure, 4)} for one in found.kept]})


def read(path: Path) -> Collocations:
    """Read them back. Raises `InputError` for a file that is missing or broken."""
    try:
        return Collocations(tuple(Collocation(tuple(one["ids"]), one["words"], one["count"], one["pmi"])
                                  for one in read_object(path)["n_grams"]))
    except (KeyError, TypeError) as error:
        raise InputError("does not hold the n-grams that PMI masking needs", where=str(path),
                         remedy="delete it and start the run again: they are counted anew") from error
