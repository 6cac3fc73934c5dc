"""New rows out of labelled ones: some words are replaced by what a masked language model, or word vectors, put there.

Source: Jiao et al. 2020 (TinyBERT), §3.2 and Algorithm 1, arXiv:1909.10351. Letters: B texts of a pass, L length,
W words, C candidates of the vocabulary, K choices for a word, D width.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saucier.errors import InputError
from saucier.files import write_text
from saucier.generation.chains import MaskedModel, check_masked_model
from saucier.generation.packed_weights import inference_view
from saucier.jobs.run.console import show_progress
from saucier.opened import OpenModel, room
from saucier.plain import json_value
from saucier.result import Result
from saucier.text.reading.guessing import ReadOptions
from saucier.text.reading.sources import find_sources, read_lines
from saucier.text.reading.tables import TableRow, read_rows, read_text_cell
from saucier.text.rows.batch import pad_ids

WORD = re.compile(r"[^\W\d_]+")
"""A word is letters alone: numbers and signs stay as they are."""
LONGEST = 512
"""Tokens that are read of a text by a model that takes any length."""
WORDS_AT_ONCE = 256
"""Words whose neighbours are looked up together."""


@dataclass(frozen=True, slots=True)
class Replacing:
    """How words are replaced."""

    rows: int
    """New rows for each, N_a; those that are equal count once."""
    share: float
    """Probability that a word is replaced, p_t."""
    choices: int
    """Words that it is drawn from, K."""
    seed: int


@dataclass(frozen=True, slots=True)
class AugmentedRows(Result):
    """Rows that were made of others."""

    sources: int
    """Rows that were read."""
    rows: int
    """Rows that were made."""
    repeated: int
    """Rows that were drawn twice, or equal to their source; they are left out."""
    words: int
    """Words that can be replaced."""
    kept: int
    """Words that nothing is known to put in the place of."""
    cut: int
    """Texts that are longer than the model reads; what is beyond stays as it is."""
    file: Path
    """Where they were written."""

    def view(self) -> str:
        """Say what was made, and where."""
        lost = {f"{self.repeated:,} repeated": self.repeated, f"{self.kept:,} words without a choice": self.kept,
                f"{self.cut:,} texts cut": self.cut}
        return (f"{self.rows:,} rows of {self.sources:,}, {self.words:,} words can be replaced"
                f"{''.join(f', {words}' for words, count in lost.items() if count)} → {self.file}")

    def remarks(self) -> list[str]:
        """Say what these rows must not be used for."""
        return ["learn from them next to their sources, and give held-out rows of their own (--held-out): of rows that "
                "are held out by chance the copies would be learned"]


@dataclass(slots=True)
class Word:
    """A word of a text."""

    start: int
    end: int
    """Its characters."""
    places: tuple[int, ...]
    """Its tokens; empty where a token holds more than this word, or beyond what is read."""
    choices: Sequence[str] = ()
    """What may stand in its place."""


@dataclass(slots=True)
class SplitText:
    """A text with its words and tokens."""

    text: str
    ids: list[int]
    words: list[Word]
    cut: bool

    def replace(self, drawn: Mapping[int, str]) -> str:
        """Return the text with other words, by their numbers, written large where the word was."""
        found, end = list[str](), 0
        for number, word in enumerate(self.words):
            old = self.text[word.start:word.end]
            new = drawn.get(number, old)
            if old[0].isupper():
                new = new.upper() if old.isupper() and len(old) > 1 else new[0].upper() + new[1:]
            found += [self.text[end:word.start], new]
            end = word.end
        return "".join([*found, self.text[end:]])


@dataclass(slots=True)
class Vocabulary:
    """The whole words among a model's tokens, with their vectors."""

    ids: Tensor
    """[C]."""
    words: list[str]
    table: Tensor
    """[V, D], the vectors of all tokens that the model reads."""

    @classmethod
    def of(cls, opened: OpenModel) -> Vocabulary:
        """List the tokens that are words by themselves. Raises `InputError` where there are none."""
        tokenizer, table = opened.tokenizer, opened.model.embed.tokens.weight.detach()
        numbers = sorted({*range(min(tokenizer.vocab_size, len(table)))} - {*tokenizer.special_ids})
        texts = tokenizer.decode_batch([[number] for number in numbers], skip_special_tokens=False)
        found = [(number, text.strip()) for number, text, ids in
                 zip(numbers, texts, tokenizer.encode_batch(texts, add_special_tokens=False), strict=True)
                 if ids == [number] and WORD.fullmatch(text.strip())]
        if not found:
            raise InputError("no token of this model is a word", where=str(opened.path),
                             remedy="use a model whose tokenizer knows words, such as BERT")
        return cls(torch.tensor([one for one, _ in found], device=opened.device), [text for _, text in found], table)


@dataclass(frozen=True, slots=True)
class WordVectors:
    """Vectors of words from a file, each of length 1. Shapes: [W, D]."""

    words: list[str]
    vectors: NDArray[np.float32]

    @classmethod
    def read(cls, name: str) -> WordVectors:
        """Read lines of a word and its numbers, as GloVe's are; a first line of two numbers, as word2vec's, is skipped.

        Raises `InputError` with the line.
        """
        words, rows = list[str](), list[NDArray[np.float32]]()
        for source in find_sources([name], ReadOptions(None, "utf-8")):
            for number, line in read_lines(source):
                word, *values = line.rstrip().split(" ")
                if number == 1 and len(values) == 1:
                    continue
                try:
                    row = np.array(values, dtype=np.float32)
                except ValueError as error:
                    raise InputError(f"no word and its numbers: {line[:40]!r}", where=f"{source.name}, line {number}",
                                     remedy="give lines such as: cat 0.1 -0.2 0.3") from error
                if not len(row) or (rows and len(row) != len(rows[0])):
                    raise InputError(f"{len(row)} numbers, and the first word has {len(rows[0]) if rows else 'some'}",
                                     where=f"{source.name}, line {number}", remedy="give all words as many numbers")
                words.append(word)
                rows.append(row)
        if not rows:
            raise InputError("holds no words", where=name, remedy="give lines such as: cat 0.1 -0.2 0.3")
        whole = np.stack(rows)
        return cls(words, whole / np.maximum(np.linalg.norm(whole, axis=1, keepdims=True), 1e-12))


def split_texts(opened: OpenModel, texts: Sequence[str]) -> list[SplitText]:
    """Split texts into words, and say which tokens each has."""
    longest = room(opened.model.config, None) or LONGEST
    found = list[SplitText]()
    for text, encoded in zip(texts, opened.tokenizer.encode_with_offsets(texts, True), strict=True):
        spans = [(start + len(text[start:end]) - len(text[start:end].lstrip()), end) for start, end in encoded.offsets]
        spans = [span if special == 0 else (0, 0)
                 for span, special in zip(spans, encoded.special_tokens_mask, strict=True)]
        words = list[Word]()
        for match in WORD.finditer(text):
            first, last = match.span()
            touching = [place for place, (start, end) in enumerate(spans) if start < last and end > first]
            whole = touching and touching[-1] < longest and all(
                first <= spans[place][0] and spans[place][1] <= last for place in touching)
            words.append(Word(first, last, tuple(touching) if whole else ()))
        found.append(SplitText(text, opened.tokenizer.published_ids(encoded.ids)[:longest], words,
                               len(encoded.ids) > longest))
    return found


def choose_by_model(opened: OpenModel, known: Vocabulary, texts: Sequence[SplitText], *, choices: int,
                    batch: int) -> None:
    """Give each word of one token the K likeliest words at its place, when it alone is hidden."""
    mask = opened.tokenizer.mask_id
    if mask is None:
        raise InputError("the tokenizer has no mask token", where=str(opened.path),
                         remedy="use a masked language model, such as BERT with its language head")
    hidden = sorted(((text, word) for text in texts for word in text.words if len(word.places) == 1),
                    key=lambda one: len(one[0].ids))
    view, filler = inference_view(opened.model.eval()), opened.tokenizer.pad_id or 0
    with torch.inference_mode():
        for start in show_progress(range(0, len(hidden), batch), "words"):
            part = hidden[start:start + batch]
            ids, lengths = pad_ids([np.array(text.ids) for text, _ in part], filler)
            real = torch.from_numpy(np.arange(ids.shape[1]) < lengths[:, None]).long().to(opened.device)
            places = torch.tensor([word.places[0] for _, word in part], device=opened.device)
            rows = torch.from_numpy(ids).to(opened.device)
            logits = MaskedModel(view, mask, real.bool(), real, ()).logits(rows, places, real)
            best = logits[:, known.ids].topk(min(choices, len(known.words)), dim=-1).indices.tolist()
            for (_, word), numbers in zip(part, best, strict=True):
                word.choices = [known.words[number] for number in numbers]


def choose_by_vectors(known: Vocabulary, texts: Sequence[SplitText], *, choices: int,
                      vectors: WordVectors | None) -> None:
    """Give each word of several tokens the K words whose vectors are nearest by their cosine, itself left out.

    Without vectors of a file its own is the mean of its tokens' rows in the table that the model reads, and its
    neighbours are tokens. (In the paper they are GloVe's.)
    """
    wanted = dict[tuple[str, tuple[int, ...]], list[Word]]()
    for text in texts:
        for word in text.words:
            if len(word.places) > 1:
                ids = tuple(text.ids[place] for place in word.places)
                wanted.setdefault((text.text[word.start:word.end].lower(), ids), []).append(word)
    if vectors is None:
        words, near = known.words, known.table[known.ids].float().cpu().numpy()
        near = near / np.maximum(np.linalg.norm(near, axis=1, keepdims=True), 1e-12)
        own = {key: known.table[list(key[1])].float().mean(0).cpu().numpy() for key in wanted}
    else:
        words, near = vectors.words, vectors.vectors
        numbers = {word.lower(): number for number, word in reversed([*enumerate(words)])}
        own = {key: near[numbers[key[0]]] for key in wanted if key[0] in numbers}
    keys = list(own)
    for start in range(0, len(keys), WORDS_AT_ONCE):
        part = keys[start:start + WORDS_AT_ONCE]
        scores = np.stack([own[key] for key in part]) @ near.T
        for key, row in zip(part, scores, strict=True):
            best = (words[number] for number in np.argsort(-row, kind="stable")[:choices + 1])
            found = [word for word in best if word.lower() != key[0]][:choices]
            for word in wanted[key]:
                word.choices = found


def draw_rows(texts: Sequence[SplitText], how: Replacing, row: int) -> Iterator[tuple[str, ...]]:
    """Yield the texts of new rows: each word is replaced with the probability p_t, by one of its choices.

    Algorithm 1 of the paper; a word's choices are those in its source (as in the released code), not in what was
    replaced before. `row`: the number of the source, on which alone the draws depend.
    """
    random = np.random.default_rng([how.seed, row])
    for _ in range(how.rows):
        made = list[str]()
        for text in texts:
            drawn = dict[int, str]()
            for number, word in enumerate(text.words):
                if word.choices and random.random() <= how.share:
                    drawn[number] = word.choices[int(random.integers(len(word.choices)))]
            made.append(text.replace(drawn))
        yield tuple(made)


@dataclass(slots=True)
class ReadTable:
    """Rows of files, and their texts."""

    columns: tuple[str, ...]
    rows: list[TableRow] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    """Of each row one for each column."""

    @classmethod
    def read(cls, files: Sequence[str], columns: Sequence[str], options: ReadOptions) -> ReadTable:
        """Read whole tables. Raises `InputError` for a missing column, a cell that is no text, and no rows."""
        found = cls(tuple(columns))
        for source in find_sources(files, options):
            for row in read_rows(source, None):
                found.rows.append(row)
                found.texts += [read_text_cell(row, name, source) or "" for name in columns]
        if not found.rows:
            raise InputError("there are no rows", where="data", remedy="give a table with a row at least")
        return found


def augment_rows(opened: OpenModel, table: ReadTable, how: Replacing, out: Path, *, vectors: WordVectors | None = None,
                 batch: int = 64) -> AugmentedRows:
    """Write new rows as JSON lines, all other cells being those of their sources. Raises `InputError`."""
    try:
        check_masked_model(opened.model.config)
    except InputError as error:
        raise InputError(error.what, where=str(opened.path), remedy=error.remedy) from error
    known, texts = Vocabulary.of(opened), split_texts(opened, table.texts)
    choose_by_model(opened, known, texts, choices=how.choices, batch=batch)
    choose_by_vectors(known, texts, choices=how.choices, vectors=vectors)
    width, lines = len(table.columns), list[str]()
    for number, row in enumerate(table.rows):
        own = texts[number * width:(number + 1) * width]
        made = dict.fromkeys(draw_rows(own, how, number))
        made.pop(tuple(one.text for one in own), None)
        lines += [json.dumps(json_value({**row.cells, **dict(zip(table.columns, one, strict=True))}),
                             ensure_ascii=False, default=str) for one in made]
    words = [word for text in texts for word in text.words]
    if not lines:
        raise InputError("no word of these rows can be replaced", where="data",
                         remedy="name the columns that hold texts: --columns text,pair")
    write_text(out, "".join(f"{line}\n" for line in lines))
    return AugmentedRows(
        sources=len(table.rows), rows=len(lines), repeated=len(table.rows) * how.rows - len(lines),
        words=sum(bool(word.choices) for word in words), kept=sum(not word.choices for word in words),
        cut=sum(text.cut for text in texts), file=out)
