"""What a step of a recipe will work on, before anything is trained: full rows of running text, real pairs of the data.

Rows of running text are full whatever the text says, so made-up ones tell their cost. Pairs are as long as people wrote
them, and a batch is as long as its longest: only the data knows.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from saucier.inspection.workload import Workload, made_up
from saucier.recipes import Recipe
from saucier.runs.folder import RunFolder
from saucier.runs.pantry import Store, open_corpus, open_store
from saucier.runs.study import make_lessons, make_study
from saucier.runs.teach import real_batches
from saucier.text.config import PairData
from saucier.text.corpus import PairCorpus
from saucier.text.encode import write_pairs
from saucier.text.tokenizer import Tokenizer, load_tokenizer

PAIRS = 8192
"""Pairs that are looked at: their lengths tell those of the others."""


def rehearsed(recipe: Recipe, tokenizer: Tokenizer | None) -> Workload:
    """Return some batches as the recipe will see them; made-up ones where no tokenizer is there yet.

    Raises `InputError` as reading the pairs does.
    """
    if tokenizer is None:
        return made_up(recipe, recipe.vocab)
    corpus = open_corpus(recipe)
    if not isinstance(corpus, PairCorpus):
        return made_up(recipe, tokenizer.vocab_size)
    with TemporaryDirectory() as folder:
        return of_pairs(recipe, tokenizer, write_pairs(Path(folder) / "pairs", islice(corpus.train, PAIRS), tokenizer))


def performed(run: RunFolder, recipe: Recipe, vocab: int) -> Workload:
    """Return some batches of a finished run."""
    if not isinstance(recipe.data, PairData):
        return made_up(recipe, vocab)
    return of_pairs(recipe, load_tokenizer(run.tokenizer), open_store(recipe, run.train_store))


def of_pairs(recipe: Recipe, tokenizer: Tokenizer, store: Store) -> Workload:
    """Return some batches of a store of pairs."""
    return real_batches(recipe, make_study(recipe, tokenizer, store, make_lessons(recipe, tokenizer)), tokenizer)
