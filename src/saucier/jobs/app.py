"""`App`: a model, its tokenizer and what it is for, opened once and asked often. What it answers follows from what it
is: a label, spans, a number, a text, a vector, or the tokens that a mask hides.

Letters: L tokens, K masks, V vocab.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from queue import Queue
from types import NoneType
from typing import Any

import torch
from numpy.typing import NDArray

from saucier import config as c
from saucier.checkpoints.hub import resolve_folder
from saucier.config import parameters
from saucier.errors import InputError, expect
from saucier.folders.kinds import find_model_folder
from saucier.generation.formats import use_few_bits
from saucier.generation.packed_weights import inference_view
from saucier.generation.search import TextStream
from saucier.jobs.answer_forms import FilledText, FoundText, Label, Labels, Number, Tags, find_spans
from saucier.jobs.evaluation.evaluate import fills_masks
from saucier.jobs.finetuning.predict import answer_examples, find_task
from saucier.jobs.finetuning.task_folder import read_task
from saucier.jobs.writing.writer import Writer
from saucier.jobs.writing.written import Drawing, Way
from saucier.model import Transformer
from saucier.opened import OpenModel, open_model
from saucier.retrieval.embed import embed
from saucier.tasks.definitions import Classification, ManyLabels, MultipleChoice, QuestionAnswering, Tagging
from saucier.tasks.examples import PAIR, TEXT, Example, Place
from saucier.tasks.tag_schemes import are_entities
from saucier.tasks.task import Answer
from saucier.tasks.written.task import map_in_batches
from saucier.text.tokenizer.tokenizer import Tokenizer

Row = str | Sequence[str] | Mapping[str, Any]
"""A text; texts that belong together (a pair, a question and its text, a question and its choices); or named ones."""
MOST_FILLS, BATCH = 5, 32
"""Tokens that are told for each mask, and texts that are written at a time."""
DRAWING = Drawing(tokens=200, temperature=0.8, top_k=None, top_p=None, beams=1, length_penalty=1.0,
                  repetition_penalty=1.0, no_repeat_ngram=0, stop=(), samples=1, seed=None, compile=False)
"""How a language model writes where nothing is said, as `saucier.write` does."""


@dataclass(frozen=True, slots=True)
class Answering:
    """A model for a task."""

    opened: OpenModel

    @property
    def name(self) -> str:
        """The kind of its task, and its labels."""
        assert self.opened.task is not None, "open_app knows it"
        labels = getattr(self.opened.task.config, "labels", ())
        return f"{self.opened.task.config.kind}{': ' if labels else ''}{', '.join(labels[:MOST_FILLS])}"

    def answer(self, rows: Sequence[Row]) -> list[Any]:
        """Answer for each row."""
        task = self.opened.task
        assert task is not None, "open_app knows it"
        examples = [task.from_texts(self.read_row(row), Example(Place("row", number), f"row {number}"))
                    for number, row in zip(count(1), rows, strict=False)]
        answers = answer_examples(self.opened, examples).answers
        return [self.shape(self.read_row(row)[0], answer) for row, answer in zip(rows, answers, strict=True)]

    def read_row(self, row: Row) -> tuple[str, ...]:
        """Return the texts of a row. Raises `InputError` for a mapping without a column of a usual name."""
        if not isinstance(row, Mapping):
            return (row,) if isinstance(row, str) else tuple(row)
        assert self.opened.task is not None, "open_app knows it"
        roles = (("question",), ("context", "text")) if isinstance(self.opened.task.config, QuestionAnswering) else \
            (TEXT.usual, PAIR.usual)
        found: list[str] = []
        for usual in roles:
            found += [name for name in usual if isinstance(row.get(name), str) and name not in found][:1]
        if not found:
            raise InputError(f"a row names {', '.join(map(str, row)) or 'nothing'}, and none of it is a text",
                             where="rows", remedy=f"call it {roles[0][0]}, or give a text")
        return tuple(str(row[name]) for name in found)

    def shape(self, text: str, answer: Answer) -> Any:
        """Return an answer about a text in the form of its task."""
        said: Any = answer.prediction
        assert self.opened.task is not None, "open_app knows it"
        match self.opened.task.config:
            case Classification() | MultipleChoice():
                return Label(str(said), float(answer.confidence or 0.0), answer.more["probabilities"])
            case ManyLabels():
                return Labels(tuple(said), answer.more["probabilities"])
            case Tagging(labels=labels):
                return Tags(tuple(said), find_spans(text, said, entities=are_entities(labels)),
                            answer.confidence)
            case QuestionAnswering():
                return FoundText(said, answer.confidence,
                                 {one["text"]: one["probability"] for one in answer.more["best"]})
            case _:
                return Number(said) if isinstance(said, float) else said


@dataclass(frozen=True, slots=True)
class Embedding:
    """A model that gives vectors."""

    opened: OpenModel
    name = "embedding"

    def answer(self, rows: Sequence[Row]) -> list[NDArray[Any]]:
        """Return a vector for each text, of length one where the model says so."""
        texts = [row for row in rows if isinstance(row, str)]
        if len(texts) < len(rows):
            raise InputError("a vector is of one text", where="rows",
                             remedy="give texts; the product of two vectors is their similarity")
        return list(embed(self.opened.model, texts, tokenizer=self.opened.tokenizer).numpy())


@dataclass(frozen=True, slots=True)
class Writing:
    """A model that writes on, or translates."""

    opened: OpenModel

    @property
    def name(self) -> str:
        """What it writes."""
        return "text for text" if self.opened.is_encoder_decoder else "language model"

    def drawing(self, options: Mapping[str, Any]) -> Drawing:
        """Return how it writes: a text for a text is the likeliest one. Raises `TypeError` for an unknown name."""
        usual = replace(DRAWING, temperature=0.0) if self.opened.is_encoder_decoder else DRAWING
        return replace(usual, **options)

    def writer(self, drawing: Drawing, source_language: str | None, target_language: str | None) -> Writer:
        """Return what writes. Raises `InputError` for options that do not suit the model, and for unknown languages."""
        for name, one in (("source_language", source_language), ("target_language", target_language)):
            expect(one, (str, NoneType), name, "give the name of a language, or None")
        drawing.refuse_steps(self.opened)
        if drawing.samples > 1:
            raise InputError("one text is written for each", where="samples", remedy="call it again with another seed")
        way = Way(source_language, target_language, None, 0)
        return Writer(self.opened, self.opened.trained_length(drawing.tokens), way.direction(self.opened))

    def answer(self, rows: Sequence[Row], *, source_language: str | None = None, target_language: str | None = None,
               **options: Any) -> list[str]:
        """Write for each text; only what is new is returned."""
        drawing = self.drawing(options)
        writer = self.writer(drawing, source_language, target_language)

        def write_some(texts: list[str], start: int) -> list[str]:
            prompts = [writer.start(text) for text in texts]
            if not all(prompts):
                raise InputError("there is no text, and this model has no token that begins one", where="rows",
                                 remedy="give some text")
            drawn = {} if drawing.seed is None else {"seed": drawing.seed + start}
            return writer.generate(prompts, drawing.options() | drawn)

        return map_in_batches(list(map(read_text, rows)), BATCH, write_some)

    def stream(self, text: str, *, source_language: str | None = None, target_language: str | None = None,
               **options: Any) -> Iterator[str]:
        """Yield a text while it is written."""
        drawing = self.drawing(options)
        writer = self.writer(drawing, source_language, target_language)

        def write(speak: Callable[[str], None]) -> None:
            if writer.writes_whole:
                speak(writer.write(text, drawing.options())[0])
                return
            heard = TextStream(self.opened.tokenizer.target, speak)
            writer.write(text, drawing.options(), heard)
            heard.close()

        return listen(write)


@dataclass(frozen=True, slots=True)
class Filling:
    """A model that tells hidden tokens."""

    opened: OpenModel
    name = "masked language model"

    def answer(self, rows: Sequence[Row]) -> list[FilledText]:
        """Fill in the masks of each text."""
        return [self.fill(read_text(row)) for row in rows]

    def fill(self, text: str) -> FilledText:
        """Fill in the masks of a text. Raises `InputError` where it has none."""
        tokenizer, mask = self.opened.tokenizer, self.opened.tokenizer.mask_id
        assert mask is not None, "open_app looked for it"
        name = str(tokenizer.id_to_token(mask))
        ids = torch.tensor([tokenizer.encode(text)], device=self.opened.device)
        places = (ids[0] == mask).nonzero().flatten()
        if not len(places):
            raise InputError(f"there is no {name} in the text", where="text",
                             remedy=f"write {name} where words are wanted")
        with torch.inference_mode():
            likely = inference_view(self.opened.model)(ids).logits[0, places].float().softmax(-1)
            likely[:, tokenizer.special_ids] = 0  # what spells nothing fills no place
            chances, tokens = likely.topk(min(MOST_FILLS, likely.shape[-1]))
        fills = tuple({tokenizer.decode([token]).strip(): chance for token, chance in zip(*one, strict=True)}
                      for one in zip(tokens.tolist(), chances.tolist(), strict=True))
        for one in fills:
            text = text.replace(name, next(iter(one)), 1)
        return FilledText(text, fills)


Use = Answering | Embedding | Writing | Filling
"""What a model is for."""


@dataclass(frozen=True, slots=True, repr=False)
class App:
    """An opened model: `app(text)`, `app.batch(texts)`, `app.stream(text)`."""

    opened: OpenModel
    use: Use

    def __call__(self, *texts: str, **options: Any) -> Any:
        """Answer for a text, or for texts that belong together; `options` are those of a model that writes.

        Raises `InputError` for what is no text, `TypeError` for options that the model has not.
        """
        for text in texts:
            expect(text, str, "text", "give a text")
        if not texts:
            raise InputError("there is no text", where="text", remedy="give one")
        return self.batch([texts[0] if len(texts) == 1 else texts], **options)[0]

    def batch(self, rows: Sequence[Row], **options: Any) -> list[Any]:
        """Answer for many rows: texts, tuples of texts, or mappings with the usual names of columns."""
        expect(rows, (list, tuple), "rows", "give a list of texts")
        return self.use.answer(rows, **options) if rows else []

    def stream(self, text: str, **options: Any) -> Iterator[str]:
        """Yield the pieces of a text while it is written. Raises `InputError` for a model that writes none."""
        expect(text, str, "text", "give a text")
        if not isinstance(self.use, Writing):
            raise InputError(f"a model for {self.use.name.split(':')[0]} writes no text piece by piece", where="stream",
                             remedy="call it: app(text)")
        return self.use.stream(text, **options)

    @property
    def model(self) -> Transformer:
        """The model."""
        return self.opened.model

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer."""
        return self.opened.tokenizer

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.opened.device

    @property
    def dtype(self) -> torch.dtype:
        """The number format of its weights."""
        return next(self.model.parameters()).dtype

    def __repr__(self) -> str:
        return (f"App({self.use.name}; {parameters(self.model.config):,} parameters, "
                f"{str(self.dtype).removeprefix('torch.')}, {self.device}; {self.opened.path})")


def open_app(model: str | Path, *, tokenizer: Tokenizer | str | Path | None = None, base: str | None = None,
             dtype: str = "auto", device: str = "auto", number_format: str | None = None) -> App:
    """Open a run, a fine-tuning, a model folder in any layout, an adapter, or a hub id, for use.

    `tokenizer`: instead of the one in its folder. Raises `InputError` for a model that answers nothing.
    """
    opened = open_model(Path(model), dtype=dtype, device=device, base=base, tokenizer=tokenizer, format=number_format)
    if dtype == "auto":
        use_few_bits(opened.model)
    config = opened.model.config
    saved = read_task(find_model_folder(resolve_folder(opened.path)))
    match config.head:
        case c.EmbeddingHead():
            return App(opened, Embedding(opened))
        case _ if saved is not None:
            return answering(opened)
        case c.ClassificationHead() | c.TokenHead() | c.SpanHead() | c.ChoiceHead():
            return answering(opened)
        case c.LanguageHead() | c.PretrainingHead() if fills_masks(opened):
            return App(opened, Filling(opened))
        case _ if config.writes:
            return App(opened, Writing(opened))
    raise InputError("this model has no head that answers", where=str(model),
                     remedy="fine-tune it first: saucier finetune TASK --model ... --data ...")


def answering(opened: OpenModel) -> App:
    """Return an app for a task."""
    found = find_task(opened)
    return App(found, Answering(found))


def read_text(row: Row) -> str:
    """Return a row that is one text. Raises `InputError` for any other."""
    if isinstance(row, str):
        return row
    raise InputError("this model reads one text a row", where="rows", remedy="give texts")


class StoppedError(Exception):
    """Nobody listens any more."""


def listen(write: Callable[[Callable[[str], None]], None]) -> Iterator[str]:
    """Yield what `write` says, while it says it in a thread of its own; what it raises is raised here.

    It is stopped at its next word where nobody reads on.
    """
    pieces: Queue[str | None] = Queue()
    stopped = threading.Event()

    def speak(piece: str) -> None:
        if stopped.is_set():
            raise StoppedError
        pieces.put(piece)

    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(write, speak)
        done.add_done_callback(lambda _: pieces.put(None))
        try:
            while (piece := pieces.get()) is not None:
                yield piece
        finally:
            stopped.set()
    done.result()
