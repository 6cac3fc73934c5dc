"""A plan as a search sees it: a feed that reads prompt and tokens through it. No torch: what is given and taken are
arrays of the library that the prompt is of.

Prompt and new tokens go the same way, 144 at a time, so that a token's scores do not depend on who read it with it.
Letters: B prompts, R rows, L length, S sources' tokens, D dim, V vocab.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from saucier import config as c
from saucier.config.questions import fits_any_place
from saucier.errors import InputError
from saucier.generation.options import resolve_options
from saucier.generation.processors import Array
from saucier.generation.rules import Prompt, check_length, check_tokens, make_search, make_search_rules
from saucier.generation.search import Listener, Step, TextDecoder, decode, repeat_rows
from saucier.native.library import count_threads
from saucier.native.plan import Plan
from saucier.native.session import Session
from saucier.plain import library_of

if TYPE_CHECKING:
    from saucier.generation.vocabulary_map import VocabularyMap
    from saucier.native.lowered import LoweredModel

Sources = tuple[NDArray[np.float32], NDArray[np.int32]]
"""What an encoder gave for the real tokens of each text's sources, and how many there are: [T, D], [B]."""


class PlanFeed:
    """Feeds a plan through its own cache, in which every row has its length; padding is not read at all."""

    def __init__(self, plan: Plan, prompt: Prompt, *, copies: int, threads: int,
                 candidates: Candidates | None = None, encode: Callable[[], Sources] | None = None) -> None:
        """`copies` rows for each prompt, as long as the plan has places; `encode` reads the sources."""
        self.prompt, self.copies, self.candidates, self.encode = prompt, copies, candidates, encode
        rows = prompt.ids.shape[0] * copies
        self.session = Session(plan if candidates is None else plan.limit_scores(candidates.tokens), rows,
                               threads=threads)
        self.give = library_of(prompt.ids).asarray
        """Makes of numpy's arrays those of the prompt's library; they share their memory."""
        self.lengths = np.zeros(rows, np.int32)
        self.numbers = np.arange(rows, dtype=np.int32)
        self.begun = [0] * prompt.ids.shape[0]
        """How many first tokens of each prompt are in the cache already."""

    def __call__(self, step: Step | None) -> Array:
        """Read the prompt, or one more token a row. Shapes: -> [R, V], float32."""
        if step is None:
            return self.read_prompt()
        if step.rows is not None:
            self.follow(np.asarray(step.rows))
        tokens = np.asarray(step.tokens).astype(np.int32)
        scores = self.session.read(tokens, self.numbers, self.lengths, self.numbers)
        self.lengths = self.lengths + 1
        return self.give(self.spread(scores, self.session.sources[self.session.slots]))

    def read_ahead(self, tokens: Array, rows: Array, places: Array) -> Array:
        """Read tokens of some rows, each at its place, which is forgotten from the first of them on.

        Shapes: tokens, rows, places [T], in rising order -> scores of what follows each [T, V], float32.
        """
        read, row, place = (np.asarray(one).astype(np.int32) for one in (tokens, rows, places))
        return self.give(self.session.read(read, row, place, np.arange(len(read), dtype=np.int32)))

    def read_prompt(self) -> Array:
        """Read every prompt into its first row, then give the other rows copies. Shapes: -> [R, V], float32."""
        ids = np.asarray(self.prompt.ids)
        if self.encode is not None:
            self.session.read_sources(*self.encode(), self.numbers // self.copies)
        real = np.ones(ids.shape, bool) if self.prompt.mask is None else np.asarray(self.prompt.mask).astype(bool)
        lengths = real.sum(1, dtype=np.int32)
        first = np.arange(len(ids), dtype=np.int32) * self.copies
        places = np.concatenate([np.arange(length, dtype=np.int32) for length in lengths])
        new = places >= np.repeat(self.begun, lengths)
        tokens, rows = ids[real].astype(np.int32)[new], np.repeat(first, lengths)[new]
        scores = self.session.read(tokens, rows, places[new],
                                   (lengths - np.array(self.begun)).cumsum().astype(np.int32) - 1)
        self.lengths[first] = lengths
        self.follow(np.repeat(first, self.copies))
        return self.give(repeat_rows(self.spread(scores, np.arange(len(ids))), self.copies))

    def spread(self, scores: NDArray[Any], sources: NDArray[Any]) -> NDArray[Any]:
        """Return the scores of all tokens, those of no candidate -∞. Shapes: [R, C], the source of each [R] -> [R, V].
        """
        return scores if self.candidates is None else self.candidates.spread(scores, sources)

    def take_row(self, row: int, length: int) -> list[NDArray[Any]]:
        """Return copies of keys and values of a row's first `length` tokens."""
        return [view.copy() for view in self.session.list_row(row, length)]

    def put_row(self, row: int, kept: list[NDArray[Any]], length: int) -> None:
        """Fill the first `length` places of a row."""
        for view, one in zip(self.session.list_row(row, length), kept, strict=True):
            view[:] = one[:, :view.shape[1]]

    def follow(self, sources: NDArray[Any]) -> None:
        """Let each row continue another one. Shapes: [R]."""
        self.session.move(sources, self.lengths)
        self.lengths = self.lengths[sources]


@dataclass(frozen=True)
class Candidates:
    """The tokens that may be written for some sources. C: those of all sources together."""

    tokens: NDArray[np.int64]
    """[C], rising."""
    barred: NDArray[np.bool_]
    """[B, C], True where a token is a candidate of other sources alone."""
    vocab: int

    @classmethod
    def of_prompt(cls, found: VocabularyMap, prompt: Prompt, config: c.Transformer) -> Candidates:
        """Look the sources of a prompt up. Raises `InputError` for a map of other vocabularies, or without sources."""
        sizes, vocab = (config.input_embed.vocab, config.output_embed.vocab), config.output_embed.vocab
        if prompt.source is None:
            raise InputError("a vocabulary map is for models that write from a source", where="engine.vocabulary_map",
                             remedy="leave it out")
        if prompt.sources > 1:
            raise InputError("a vocabulary map is for texts of one source each", where="engine.vocabulary_map",
                             remedy="leave it out, or fusion")
        if (found.source_vocab, found.target_vocab) != sizes:
            raise InputError(f"a map of {found.source_vocab} source and {found.target_vocab} target tokens, and the "
                             f"model has {sizes[0]} and {sizes[1]}", where="engine.vocabulary_map",
                             remedy="build it with the model's own tokenizer")
        source = np.asarray(prompt.source)
        real = np.ones_like(source) if prompt.source_mask is None else np.asarray(prompt.source_mask)
        lists = [found.find_candidates(row[kept]) for row, kept in zip(source, real.astype(bool), strict=True)]
        tokens = np.unique(np.concatenate(lists))
        return cls(tokens, np.stack([~np.isin(tokens, one) for one in lists]), vocab)

    def spread(self, scores: NDArray[Any], sources: NDArray[Any]) -> NDArray[Any]:
        """Put the scores of candidates among those of all tokens. Shapes: [R, C], [R] -> [R, V]."""
        full = np.full((len(scores), self.vocab), -np.inf, scores.dtype)
        full[:, self.tokens] = np.where(self.barred[sources], full[:, :1], scores)
        return full


def check_prompt(config: c.Transformer, prompt: Prompt) -> None:
    """Raise `InputError` for prompts that these parts of a model read otherwise in one piece than token by token."""
    assert config.decoder is not None, "lower() refuses others"
    full = [one.capacity for one in config.decoder.sublayers() if isinstance(one, c.Experts) and one.capacity]
    length, positions = prompt.ids.shape[1], config.output_embed.positions
    padded = prompt.mask is not None and not all(fits_any_place(one.visibility) for one in config.decoder.attentions())
    skipped = length > 1 and isinstance(positions, c.Learned | c.Sinusoidal) and isinstance(
        positions.places, c.SkipPadding) and bool(((prompt.ids == positions.places.padding) & (
            prompt.ids >= 0 if prompt.mask is None else prompt.mask > 0)).any())
    for found, what in ((full and length > min(full), f"experts that take {min(full, default=0)} of {length} tokens"),
                        (padded, "patterns of visibility that count padding"),
                        (skipped, "padding among real tokens")):
        if found:
            raise InputError(f"the native kernels have no {what}", where="engine", remedy="use engine=None")


def write_rows(model: LoweredModel, prompts: Sequence[Sequence[int]], *, tokenizer: TextDecoder,
               listener: Listener | None = None, **options: Any) -> list[list[int]]:
    """Write on from prompts of one length, as `saucier.generate` does with the same options; return prompts and texts.

    Rows are numpy's arrays where the likeliest tokens are taken one by one, and torch's where tokens are drawn, beams
    compared, or scores made probabilities. Raises `InputError` as `saucier.generate`.
    """
    chosen = resolve_options({"engine": {"format": model.weights.form}, **options}, model.generation)
    check_tokens(chosen, model.config.output_embed.vocab)
    ids: Array = np.array(prompts, np.int64)
    if not chosen.by_numpy:
        import torch

        ids = torch.from_numpy(ids)
    prompt, limit = Prompt(ids), ids.shape[1] + chosen.new_tokens(ids.shape[1])
    check_length(model.config, prompt, limit)
    rules = make_search_rules(chosen, prompt, limit=limit, tokenizer=tokenizer)
    search, plan = make_search(chosen, ids, rules), model.plan(limit)
    check_prompt(model.config, prompt)
    feed = PlanFeed(plan, prompt, copies=chosen.rows, threads=limit_threads())
    found: list[list[int]] = decode(feed, search, listener).tolist()
    return found


def limit_threads() -> int:
    """Return how many threads a pass gets: no more than `OMP_NUM_THREADS` says, which torch follows."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    return min(int(said), count_threads()) if said.isdecimal() and int(said) else count_threads()
