"""Measuring a model by how likely it finds texts: each token counted once, in overlapping windows of a decoder, or
hidden from a masked encoder.

Letters: B rows of a batch, L tokens of a row, V vocab, N documents or windows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saucier.adaptation.starting_weights import rebuild_model
from saucier.arguments import COMMAND_LINE
from saucier.config import remembered_tokens, sees_prefix
from saucier.config.base import Config
from saucier.config.model import set_memory_length
from saucier.devices import autocast
from saucier.errors import InputError
from saucier.generation.native_feed import find_engine, score_texts
from saucier.generation.packed_weights import inference_view
from saucier.jobs.evaluation.measurement import Evaluation, EvaluationOptions, join_notes, single_baseline
from saucier.opened import OpenModel, room
from saucier.parts.input_checks import positions_ahead
from saucier.recipes.source import Source, apply_overrides
from saucier.recipes.validation import validate_config
from saucier.tasks.encoded_examples import Frame
from saucier.tasks.language_baselines import xz_baseline
from saucier.tasks.metrics.metric import Sums, full_value, interval, ratio
from saucier.tasks.metrics.statistics import Floats
from saucier.tasks.scores import Score
from saucier.tasks.written.task import pad_rows
from saucier.text.reading.documents import Unit, read_documents
from saucier.text.rows.store import get_document_frame

USUAL_WINDOW = 1024
"""Tokens of a window where a model's positions know no end."""
LARGEST_LOGITS = 1 << 26
"""Logits of one pass, about, where no number of rows is given."""
LARGEST_BATCH = 32
HIDDEN_TOGETHER = 7
"""Every so-manieth token is hidden in one pass: a seventh, about the 15 % that masked models learn with."""


@dataclass(frozen=True, slots=True)
class Text:
    """A document as a model's ids."""

    ids: Sequence[int]
    """For a language model after what begins a text, where the tokenizer has such a token."""
    size: int
    """UTF-8 bytes of what is predicted."""


@dataclass(frozen=True, slots=True)
class Row:
    """What is read in one pass, and what is predicted of it."""

    ids: Sequence[int]
    places: Sequence[int]
    """Whose logits predict."""
    targets: Sequence[int]
    """What they should predict."""
    document: int


@dataclass(frozen=True, slots=True)
class Loss:
    """What the targets of a row cost."""

    document: int
    nats: float
    targets: int
    right: int
    """Targets that were the likeliest token."""


def window_length(opened: OpenModel, length: int | None = None) -> int:
    """Return how many tokens a window has: as many as the model has positions for, or fewer.

    Raises `InputError` for more.
    """
    ahead, _ = positions_ahead(opened.model.front, pair=False)
    known = room(opened.model.config, None, opened.tokenizer.handling.max_length, ahead=ahead)
    if length is not None and known is not None and length > known:
        raise InputError(f"{length} tokens, and this model reads {known} at most", where="length",
                         remedy=f"choose {known} or less")
    return length or known or USUAL_WINDOW


def cut_windows(text: Text, document: int, *, length: int, stride: int) -> Iterator[Row]:
    """Yield windows of `length` tokens, each `stride` after the last; every token but the first is a target once.

    A token is a target in the first window that holds it, so that all but those of the first window have at least
    `length - stride` tokens before them.
    """
    begin, done = 0, 1
    while done < len(text.ids):
        end = min(begin + length, len(text.ids))
        yield Row(text.ids[begin:end], range(done - begin - 1, end - begin - 1), text.ids[done:end], document)
        begin, done = begin + stride, end


def hide_tokens(text: Text, document: int, frame: Frame, *, mask: int, length: int, every: int) -> Iterator[Row]:
    """Yield a text's pieces in their frame, with every `every`-th token hidden: in so many passes each token once.

    With as many passes as a piece has tokens each is hidden alone: pseudo-perplexity. Source: Salazar et al. 2020,
    §2.2, arXiv:1910.14659.
    """
    before = len(frame.borders[0])
    for begin in range(0, len(text.ids), length - frame.size):
        piece = text.ids[begin:begin + length - frame.size]
        for first in range(min(every, len(piece))):
            hidden = range(first, len(piece), every)
            seen = [mask if place in hidden else one for place, one in enumerate(piece)]
            yield Row(frame.row(seen).ids, [before + place for place in hidden], [piece[place] for place in hidden],
                      document)


def read_texts(opened: OpenModel, texts: Sequence[str]) -> list[Text]:
    """Encode texts for a language model, each after the token that begins one (the begin token, or else the end token).

    Where the tokenizer has neither, nothing predicts a text's first token, and its bytes do not count.
    """
    begin, _ = get_document_frame(opened.tokenizer)
    rows = opened.tokenizer.encode_batch(texts, add_special_tokens=False)
    if begin is not None:
        return [Text([begin, *ids], len(text.encode())) for text, ids in zip(texts, rows, strict=True)]
    return [Text(ids, len(text.encode()) - len(opened.tokenizer.decode(ids[:1]).encode()))
            for text, ids in zip(texts, rows, strict=True)]


def read_bare_texts(opened: OpenModel, texts: Sequence[str]) -> list[Text]:
    """Encode texts for a masked model, without the tokens around them."""
    rows = opened.tokenizer.encode_batch(texts, add_special_tokens=False)
    return [Text(ids, len(text.encode())) for ids, text in zip(rows, texts, strict=True)]


def next_token_losses(opened: OpenModel, texts: Sequence[Text], *, length: int, stride: int,
                      batch: int | None) -> Iterator[Loss]:
    """Yield what each window of the texts costs a language model."""
    rows = (row for number, text in enumerate(texts) for row in cut_windows(text, number, length=length, stride=stride))
    yield from score_rows(opened, rows, length, batch)


def hide_texts(opened: OpenModel, texts: Sequence[Text], *, length: int, every: int) -> Iterator[Row]:
    """Yield all rows of texts for a masked model. Raises `InputError` for too short rows."""
    tokenizer = opened.tokenizer
    assert tokenizer.mask_id is not None, "such a model has one"
    frame = Frame.of(tokenizer, tokenizer.decode(texts[0].ids[:1]), 1)
    frame.room(length, what="for a text", where="length", remedy="give more")
    for number, text in enumerate(texts):
        yield from hide_tokens(text, number, frame, mask=tokenizer.mask_id, length=length, every=every)


def hidden_token_losses(opened: OpenModel, texts: Sequence[Text], *, length: int, every: int,
                        batch: int | None) -> Iterator[Loss]:
    """Yield what each pass over a piece of the texts costs a masked model. Raises `InputError` for too short rows."""
    yield from score_rows(opened, hide_texts(opened, texts, length=length, every=every), length, batch)


def score_rows(opened: OpenModel, rows: Iterator[Row], length: int, batch: int | None) -> Iterator[Loss]:
    """Read rows in batches; yield what each costs."""
    config = opened.model.config
    size = batch or min(LARGEST_BATCH, max(1, LARGEST_LOGITS // (length * config.output_embed.vocab)))
    model = inference_view(opened.model)
    with torch.inference_mode(), autocast(opened.dtype, opened.device):
        while some := list(islice(rows, size)):
            ids, mask = (one.to(opened.device) for one in pad_rows([row.ids for row in some],
                                                                   opened.tokenizer.pad_id or 0, left=False))
            more = {"prefix_length": ids.new_zeros(len(ids))} if sees_prefix(config.decoder) else {}
            engine = find_engine(opened.model) if config.decoder is not None else None
            logits = model(ids, mask, **more).logits if engine is None else score_texts(opened.model, engine, ids, mask)
            yield from (row_loss(found, row) for found, row in zip(logits, some, strict=True))


def remembered_losses(opened: OpenModel, texts: Sequence[Text], *, length: int) -> Iterator[Loss]:
    """Yield what each piece of the texts costs a model that remembers those before it (Transformer-XL).

    Pieces of `length` tokens follow one another, so that each token is read once.
    """
    model = inference_view(opened.model)
    with torch.inference_mode(), autocast(opened.dtype, opened.device):
        for number, text in enumerate(texts):
            memory: Any = None
            for begin in range(0, len(text.ids) - 1, length):
                piece = text.ids[begin:begin + length + 1]
                output = model(torch.tensor([piece[:-1]], device=opened.device), mems=memory, use_mems=True)
                memory = output.mems
                yield row_loss(output.logits[0], Row(piece[:-1], range(len(piece) - 1), piece[1:], number))


def row_loss(logits: Tensor, row: Row) -> Loss:
    """Add up what the targets of a row cost. Shapes: logits [L, V]."""
    chosen = logits[list(row.places)].float()
    targets = torch.tensor(list(row.targets), device=logits.device)
    nats = torch.nn.functional.cross_entropy(chosen, targets, reduction="sum")
    return Loss(row.document, float(nats), len(row.targets), int((chosen.argmax(-1) == targets).sum()))


def perplexity_of(sums: Floats) -> Floats:
    """Give the exponential of nats a target. Shapes: [R, 2] -> [R]."""
    return np.exp(ratio(sums))


def bits_of(sums: Floats) -> Floats:
    """Give bits a byte from nats and bytes. Shapes: [R, 2] -> [R]."""
    return ratio(sums) / math.log(2)


@dataclass(frozen=True, slots=True)
class TextLosses:
    """What texts cost, in sums that can be drawn again. Shapes: [N] each."""

    nats: Floats
    targets: Floats
    right: Floats
    bytes: Floats
    unit: str
    """What is drawn again for an interval: documents, or the windows of a single one."""

    @classmethod
    def of(cls, losses: Sequence[Loss], texts: Sequence[Text]) -> TextLosses:
        """Add up the losses of each document; of a single one the windows stay apart, with a share of its bytes."""
        found = np.array([(one.nats, one.targets, one.right) for one in losses], dtype=np.float64)
        documents = np.array([one.document for one in losses])
        if len(texts) > 1:
            nats, targets, right = (np.bincount(documents, weights=column, minlength=len(texts)).astype(np.float64)
                                    for column in found.T)
            return cls(nats, targets, right, np.array([text.size for text in texts], dtype=np.float64), "documents")
        nats, targets, right = found.T
        return cls(nats, targets, right, texts[0].size * targets / targets.sum(), "windows")

    def score(self, name: str, value: Callable[[Floats], Floats], above: Floats, below: Floats) -> Score:
        """Return a figure with its 95 % interval."""
        measured = Sums(np.stack([above, below], axis=1), value)
        return Score(name, full_value(measured), *interval(measured), len(self.nats), self.unit)

    def next_token_scores(self) -> tuple[Score, ...]:
        """Return the figures of a language model."""
        return (self.score("perplexity", perplexity_of, self.nats, self.targets),
                self.score("bits per byte", bits_of, self.nats, self.bytes),
                self.score("loss", ratio, self.nats, self.targets),
                self.score("accuracy", ratio, self.right, self.targets))

    def hidden_token_scores(self) -> tuple[Score, ...]:
        """Return the figures of a masked model; those of a byte would claim that it can compress a text."""
        return (self.score("pseudo-perplexity", perplexity_of, self.nats, self.targets),
                self.score("loss", ratio, self.nats, self.targets),
                self.score("accuracy", ratio, self.right, self.targets))


@dataclass(frozen=True, slots=True)
class NextTokenModel:
    """A decoder, which gives each text its likelihood."""

    opened: OpenModel


@dataclass(frozen=True, slots=True)
class HiddenTokenModel:
    """An encoder, which tells hidden tokens."""

    opened: OpenModel


class TextColumns(Config):
    """Where a language model finds its text."""

    column: str | None = None
    """The column of a table; None: `text`, or the only one."""
    document: Unit = "file"
    """What one document is in a .txt file."""
    delimiter: str | None = None
    """What divides the columns of a table; None: guessed."""
    encoding: str | None = None
    """How the files are written; None: guessed."""


class TextChanges(Config):
    """What may be said of a language model's files."""

    data: TextColumns = TextColumns()
    """The text."""


def read_measured_texts(files: Sequence[str], options: EvaluationOptions) -> list[str]:
    """Read documents whole. Raises `InputError` for a table whose column of text is not known."""
    source = Source(COMMAND_LINE, {})
    apply_overrides(source, options.words, TextChanges)
    data = validate_config(source, TextChanges).data
    texts: list[str] = []
    for part in read_documents(files, column=data.column, unit=data.document, options=options.read):
        if part.part == 0 and options.limit == len(texts):
            break
        texts[len(texts) - (part.part > 0):] = [texts[-1] + part.text if part.part else part.text]
    return texts


def evaluate_language_model(opened: OpenModel, files: Sequence[str], options: EvaluationOptions) -> Evaluation:
    """Measure a decoder on texts: in windows that overlap, or with a memory that goes on."""
    length = window_length(opened, options.length)
    if remembered_tokens(opened.model.config) == 0:
        options.refuse_idle("language model without a memory", "baselines", "stride", "length")
        stride = max(1, length // 2) if options.stride is None else options.stride
        if not stride < length:
            raise InputError(f"windows of {length} tokens that begin {stride} apart leave targets without a token "
                             "before them", where="--stride", remedy=f"choose {length - 1} or less")
        how = f"windows of {length:,} tokens, {stride:,} apart"
        measure = partial(next_token_losses, length=length, stride=stride, batch=options.batch)
    else:
        options.refuse_idle("language model with a memory", "baselines", "length", "memory")
        if options.memory is not None:
            config = set_memory_length(opened.model.config, options.memory)
            opened = replace(opened, model=rebuild_model(opened.model, config))
        how, measure = f"pieces of {length:,} tokens, each after the memory of those before", \
            partial(remembered_losses, length=length)
    texts = read_measured_texts(files, options)
    begin, _ = get_document_frame(opened.tokenizer)
    first = "the first token of a text is predicted by nothing, and not counted" if begin is None else \
        f"each text after {opened.tokenizer.id_to_token(begin)}"
    found = measure_texts(opened, read_texts(opened, texts), measure)
    unit = "document" if len(texts) == 1 else "documents"
    simple = single_baseline("xz -9", "bits per byte", xz_baseline(texts).bits_per_byte, len(texts), unit) \
        if options.baselines else ()
    return Evaluation(str(opened.path), "language model", found.losses.next_token_scores(),
                      join_notes(found.notes, f"{how}; {first}"), found.seconds, found.targets, "tokens", simple)


def evaluate_masked_model(opened: OpenModel, files: Sequence[str], options: EvaluationOptions) -> Evaluation:
    """Measure an encoder on texts, every token hidden once."""
    options.refuse_idle("masked language model", "stride", "length")
    length, every = window_length(opened, options.length), options.stride or HIDDEN_TOGETHER
    if every < 2:
        raise InputError("1 hides all tokens at once", where="--stride", remedy="choose 2 or more")
    found = measure_texts(opened, read_bare_texts(opened, read_measured_texts(files, options)),
                          partial(hidden_token_losses, length=length, every=every, batch=options.batch))
    how = f"rows of {length:,} tokens, read {every} times: every {every}th token is hidden, so that each is hidden once"
    return Evaluation(str(opened.path), "masked language model", found.losses.hidden_token_scores(),
                      join_notes(found.notes, how), found.seconds, found.targets, "tokens")


@dataclass(frozen=True, slots=True)
class MeasuredTexts:
    """What texts cost, what there was of them, and how long it took."""

    losses: TextLosses
    notes: tuple[str, ...]
    seconds: float

    @property
    def targets(self) -> int:
        """Tokens that were predicted."""
        return int(self.losses.targets.sum())


def measure_texts(opened: OpenModel, texts: Sequence[Text],
                  measure: Callable[[OpenModel, Sequence[Text]], Iterable[Loss]]) -> MeasuredTexts:
    """Let a model read texts, and add up what they cost. Raises `InputError` where there is nothing to predict."""
    begin, unk = time.perf_counter(), opened.tokenizer.unk_id
    losses = list(measure(opened, texts)) if any(len(one.ids) for one in texts) else []
    if not losses:
        raise InputError("the texts have no token to predict", where="files", remedy="give more text")
    seconds, found = time.perf_counter() - begin, TextLosses.of(losses, texts)
    unknown = 0 if unk in (None, opened.tokenizer.eos_id) else sum(list(one.ids).count(unk) for one in texts)
    return MeasuredTexts(found, join_notes(
        f"{len(texts):,} document{'s' * (len(texts) != 1)}, {round(found.bytes.sum()):,} bytes, "
        f"{round(found.targets.sum()):,} tokens predicted",
        f"{unknown:,} tokens are unknown to the tokenizer, so the figures flatter" if unknown else ""), seconds)
