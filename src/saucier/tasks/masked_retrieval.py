"""Salient spans that are hidden in sentences, and predicted with retrieved passages (REALM): pretraining of a reader
and a retriever from texts that nobody labelled.

Axes: N sentences, U units (a sentence with one of its spans hidden), B units of a batch, K passages of each, T places,
J hidden tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from saucier import config as c
from saucier.errors import InputError
from saucier.objectives.token_ids import IGNORED
from saucier.tasks.encoded_examples import (
    DrawnBatches,
    EncodedExamples,
    Frame,
    Ragged,
    take_rows,
)
from saucier.tasks.examples import Cells, Column, Example, Tally, read_cells, read_each, requested_columns
from saucier.tasks.open_questions import PassageSource, QuestionFirst, ReadsPassages, answer_in_batches, list_evidence
from saucier.tasks.retrieval_definitions import LearnedRetrieval, MaskedRetrieval
from saucier.tasks.salient_spans import EntityTagger, Finder, Span, find_dates, join_spans
from saucier.tasks.task import Answer, Encoding, Json, Predictor, RequiredHead, Task
from saucier.text.reading.sources import SourceFile
from saucier.text.rows.batch import Batches
from saucier.text.rows.store import find_sentence_starts
from saucier.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from saucier.objectives.base import Batch, Objective

TEXT = Column("text", ("text", "context", "passage", "paragraph", "sentence", "document", "content"))
SPANS = Column("spans", ("spans", "hidden"), needed=False)
HIDDEN = "[MASK]"
"""Marks what is to be filled in, in a text that a person types."""
NOTHING = "sentences without a salient span left out"


@dataclass(frozen=True, slots=True)
class ClozeSentence(Example):
    """A sentence, and what may be hidden in it."""

    text: str
    spans: tuple[Span, ...]
    typed: bool = False
    """Whether the spans are marks that a person typed, each for one token that nobody knows."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The sentence."""
        return (self.text,)


@dataclass(frozen=True, slots=True)
class Cloze:
    """A sentence with one of its spans hidden, as reader and retriever see it."""

    ids: list[int]
    labels: list[int]
    text: str
    """For the retriever, with its mask tokens."""
    span: int
    """Which of the spans it is."""


@dataclass(frozen=True, slots=True)
class MaskedRetrievalTask(ReadsPassages, Task):
    """Hidden spans, predicted from a sentence and what is found for it."""

    config: MaskedRetrieval
    source: PassageSource | None = None
    """The passages; None: nobody opened them yet, which is enough for reading files."""

    @property
    def scored_as(self) -> str:
        """By exact match and F1, as pieces of a text are."""
        return "spans"

    @property
    def retrieval(self) -> LearnedRetrieval:
        """Where the passages are."""
        return self.config.retrieval

    @property
    def required_head(self) -> RequiredHead:
        """A head that speaks tokens, such as a masked language model has."""
        def make(body: c.Transformer, tokenizer: Tokenizer) -> c.Head:
            return c.LanguageHead(bias=True, transform=c.Transform(norm=body.embed.norm or c.LayerNorm()))

        return RequiredHead("language", make, holders=("pretraining",))

    def layout(self, encoding: Encoding) -> QuestionFirst:
        """A sentence, then a passage. Raises `InputError` for a model that does not see both sides of a token."""
        if encoding.body.encoder is None or encoding.body.decoder is not None:
            raise InputError("hidden tokens are predicted by an encoder alone", where="model",
                             remedy="begin with a masked language model, such as BERT")
        return QuestionFirst(self.config.question_length)

    def read(self, source: SourceFile, tally: Tally, *, labelled: bool) -> Iterator[ClozeSentence]:
        """Yield sentences with a salient span; those without any are left out and counted."""
        columns, given = (TEXT, SPANS), list[ClozeSentence]()

        def read(row: Cells) -> list[ClozeSentence]:
            return read_spans(row) if row.values.get("spans") is not None else cut_sentences(row)

        rows = read_cells(source, columns, requested_columns(self.config, columns))
        for found in read_each(rows, read, source):
            given += found
        for one in self.find_spans(given):
            if one.spans:
                yield one
            else:
                tally.update([NOTHING])

    def find_spans(self, sentences: Sequence[ClozeSentence]) -> Iterator[ClozeSentence]:
        """Yield sentences with their spans; those that have some keep them."""
        asked = [one.text for one in sentences if not one.spans]
        finders: list[Finder] = [find_dates] if self.config.dates else []
        if asked and self.config.tagger is not None:
            finders.append(EntityTagger.open(self.config.tagger))
        kinds = [find(asked) for find in finders]
        found = iter([join_spans(each) for each in zip(*kinds, strict=True)] if kinds else [[] for _ in asked])
        for one in sentences:
            yield one if one.spans else replace(one, spans=tuple(next(found)))

    def from_texts(self, texts: tuple[str, ...], example: Example) -> ClozeSentence:
        """A text that a person typed. Raises `InputError` where nothing in it is to be filled in."""
        starts = [place for place in range(len(texts[0])) if texts[0].startswith(HIDDEN, place)]
        if not starts:
            raise InputError("nothing is hidden in it", where=str(example.place),
                             remedy=f"write {HIDDEN} for each token that is to be filled in")
        return ClozeSentence(example.place, example.name, texts[0],
                             tuple((start, start + len(HIDDEN)) for start in starts), typed=True)

    def encode(self, examples: Sequence[ClozeSentence], encoding: Encoding) -> EncodedExamples:
        """Encode every sentence once for each of its spans, without it; spans beyond the longest row are lost.

        Raises `InputError` for a tokenizer without a mask token, the reader's or the retriever's.
        """
        self.layout(encoding)
        masks = self.require_masks(encoding.tokenizer)
        frame = Frame.of(encoding.tokenizer, next((one.text for one in examples), HIDDEN), 2)
        units, lost, cut, room = list[tuple[int, Cloze]](), 0, list[int](), self.config.question_length
        for number, (one, ids, offsets) in enumerate(encode_sentences(examples, encoding.tokenizer)):
            found = [*hide_spans(one, ids[:room], offsets[:room], masks)]
            lost += (1 if one.typed else len(one.spans)) - len(found)
            cut += [len(ids) - room] if len(ids) > room else []
            units += [(number, each) for each in found]
        sequences = {"input_ids": Ragged.of([one.ids for _, one in units], encoding.tokenizer.pad_id or 0),
                     "labels": Ragged.of([[IGNORED] * frame.start() + one.labels for _, one in units], IGNORED),
                     **self.opened.encode_questions([one.text for _, one in units])}
        notes = (f"{len(cut):,} sentences are cut to {room} tokens next to a passage, {sum(cut):,} tokens and {lost:,} "
                 "spans",) if cut else ()
        return EncodedExamples(sequences, {"span": np.array([one.span for _, one in units], dtype=np.int64)},
                               np.array([number for number, _ in units], dtype=np.int64), notes=notes)

    def require_masks(self, tokenizer: Tokenizer) -> tuple[int, str]:
        """Return the mask of the reader and how the retriever's is written. Raises `InputError` where one has none."""
        from saucier.objectives.base import require_token

        number = require_token(tokenizer.mask_id, "mask", "masked_retrieval")
        if self.opened.mask is None:
            raise InputError("its tokenizer has no mask token", where="task.retrieval.retriever",
                             remedy="take a retriever that comes from a masked language model, as BERT is")
        return number, self.opened.mask

    def batches(self, encoded: EncodedExamples, batch: int, *, seed: int) -> Batches[Any]:
        """Return batches in which every sentence comes once an epoch, with one of its spans hidden."""
        return DrawnBatches(encoded, batch, seed, ("sentences", "spans"))

    @property
    def objective(self) -> Objective:
        """The marginal likelihood of what is hidden."""
        from saucier.objectives.latent_passages import LatentPassages, SequenceMarginal

        return LatentPassages(self.opened.retriever, SequenceMarginal())

    def training_notes(self, encoded: EncodedExamples) -> Sequence[str]:
        """What is known of the passages."""
        return self.opened.notes()

    def predict(self, predictor: Predictor, examples: Sequence[ClozeSentence],
                encoded: EncodedExamples) -> list[Answer]:
        """Fill in the first span of each sentence; nothing where it was cut off."""
        chosen = np.flatnonzero(encoded.unit_values["span"] == 0)
        asked = replace(take_rows(encoded, chosen), example_numbers=np.arange(len(chosen)))
        answers = answer_in_batches(predictor, asked, predictor.batch, self.opened.retriever,
                                    lambda batch: self.answer_batch(predictor, batch))
        found = dict(zip(encoded.example_numbers[chosen].tolist(), answers, strict=True))
        return [found.get(number, Answer("")) for number in range(len(examples))]

    def answer_batch(self, predictor: Predictor, batch: Batch) -> list[Answer]:
        """Find passages for some sentences, and take the likeliest token at each hidden place, over all passages."""
        from saucier.objectives.answer_losses import give_token_logits
        from saucier.objectives.latent_passages import SequenceMarginal
        from saucier.objectives.teacher_losses import precise

        retriever, labels, mask = self.opened.retriever, batch["labels"], predictor.encoding.tokenizer.mask_id
        found = retriever.find(batch)
        hidden: Tensor = predictor.model(**retriever.read(batch, found).inputs, compute_logits=False).last_hidden_state
        hidden = hidden[:, :labels.shape[1]].unflatten(0, found.prior.shape)
        marginal, answers = SequenceMarginal(), list[Answer]()
        for number, (row, prior) in enumerate(zip(hidden, found.prior, strict=True)):
            real = labels[number] != IGNORED
            logs = precise(give_token_logits(predictor.model, row[:, real])).log_softmax(-1)  # [K, J, V]
            ids = (prior[:, None, None] + logs).logsumexp(0).argmax(-1)
            said, right = (logs.gather(-1, one.expand(len(prior), -1)[..., None])[..., 0]
                           for one in (ids, labels[number][real]))
            chance, behind = marginal(prior[None], said[None], real[real][None])
            loss = -marginal(prior[None], right[None], real[real][None])[0]
            evidence = list_evidence(self.opened, replace(found, places=found.places[number:number + 1],
                                                          scores=found.scores[number:number + 1]), behind, 0)
            known = {} if mask in labels[number].tolist() else {"loss": round(float(loss), 6)}  # a person typed masks
            answers.append(Answer(predictor.encoding.tokenizer.decode(ids.tolist()).strip(), float(chance.exp()),
                                  {**known, "tokens": int(real.sum()), "evidence": evidence}))
        return answers

    def gold(self, example: ClozeSentence) -> Json | list[Json]:
        """The first span; nobody knows what a person did not type."""
        start, end = example.spans[0]
        return None if example.typed else [example.text[start:end]]


def read_spans(row: Cells) -> list[ClozeSentence]:
    """Return a text as one sentence, with the pieces that its row lists, each where it comes last.

    Raises `InputError` for a piece that is not in the text.
    """
    text, found = row.text("text"), list[Span]()
    for piece in row.texts("spans"):
        if (start := text.rfind(piece)) < 0:
            raise row.fault("spans", f"{piece[:40]!r} is not in the text", "write it as it is there")
        found.append((start, start + len(piece)))
    return [ClozeSentence(row.example.place, row.example.name, text, tuple(join_spans([found])))]


def cut_sentences(row: Cells) -> list[ClozeSentence]:
    """Return the sentences of a text, in which nobody looked for spans yet."""
    text = row.text("text")
    pieces = [text[start:end].strip() for start, end in pairwise([*find_sentence_starts(text), len(text)])]
    name = row.example.name
    return [ClozeSentence(row.example.place, f"{name}, sentence {number}", piece, ())
            for number, piece in enumerate(pieces, start=1) if piece]


def encode_sentences(examples: Sequence[ClozeSentence],
                     tokenizer: Tokenizer) -> Iterator[tuple[ClozeSentence, list[int], list[Span]]]:
    """Yield sentences with their tokens and where these are; typed marks are written as the tokenizer's mask."""
    mask = tokenizer.names["mask"]
    texts = [one.text.replace(HIDDEN, mask) if one.typed else one.text for one in examples]
    for one, pieces in zip(examples, tokenizer.encode_with_offsets(texts), strict=True):
        yield one, tokenizer.published_ids(pieces.ids), pieces.offsets


def hide_spans(one: ClozeSentence, ids: list[int], offsets: Sequence[Span], masks: tuple[int, str]) -> Iterator[Cloze]:
    """Yield a sentence once for each span that is whole in a row, with it hidden; typed marks are hidden together."""
    from saucier.objectives.masking_units import MarkedSpans, MaskableRow, select_runs

    mask, written = masks
    if one.typed:
        labels = [number if number == mask else IGNORED for number in ids]
        if sum(number == mask for number in ids) == len(one.spans):
            yield Cloze(ids, labels, one.text.replace(HIDDEN, written), 0)
        return
    begin, end = np.array(offsets, dtype=np.int64).reshape(-1, 2).T
    free, borders, whole = np.zeros(len(ids), dtype=bool), np.zeros(len(ids), dtype=bool), list[int]()
    for number, (start, stop) in enumerate(one.spans):
        inside = (begin < stop) & (end > start) & ~free
        if inside.any() and end[inside].max() >= stop:
            free |= inside
            borders[inside.nonzero()[0][0]] = True
            whole.append(number)
    units = MarkedSpans()(MaskableRow(np.array(ids), free, borders))
    for unit, number in enumerate(whole):
        places, (start, stop) = select_runs(units, [(unit, unit + 1)]).places, one.spans[number]
        hidden = {*places.tolist()}
        yield Cloze([mask if place in hidden else token for place, token in enumerate(ids)],
                    [token if place in hidden else IGNORED for place, token in enumerate(ids)],
                    one.text[:start] + " ".join([written] * len(places)) + one.text[stop:], number)
