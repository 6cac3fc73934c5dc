"""Passages for a retriever that learns on both sides: an index that is made again, their texts for the retriever, and
which of them hold a question itself.

Letters: B questions, K passages of each, U passages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from saucier.errors import InputError
from saucier.model import Transformer
from saucier.objectives.base import IGNORED, MASK_OF_INPUT, Batch
from saucier.objectives.latent_passages import Joined
from saucier.objectives.live_passages import LiveRetriever
from saucier.retrieval.index_versions import (
    IndexVersions,
    InPlaceRefresher,
    NeverRefreshed,
    ProcessRefresher,
    Refresher,
    build_version,
)
from saucier.retrieval.nearest import find_nearest
from saucier.retrieval.passages import OpenPassages, PassageIndex, ReaderRows, encode_texts
from saucier.tasks.encoded_examples import EncodedExamples
from saucier.tasks.retrieval_definitions import NoRefresh, RefreshInPlace, RefreshInProcess
from saucier.text.tokenizer.tokenizer import Tokenizer

FEWEST = 4
"""Tokens of a sentence from which on its first one does not count: some tokenizers spell it otherwise there."""


@dataclass(slots=True)
class LiveIndex:
    """Passages of an index that is made again: `LivePassages`."""

    rows: ReaderRows
    """With the index that is searched now."""
    model: Transformer
    tokenizer: Tokenizer
    spelled: EncodedExamples
    """What the retriever reads of each passage, and last of the null document."""
    texts: tuple[str, ...]
    """The reader's tokens of each passage, a character for each."""
    first: PassageIndex
    versions: IndexVersions | None = None
    """None: nothing is trained."""
    refresher: Refresher = field(default_factory=NeverRefreshed)
    made: int = 0
    """After how many updates the encoder gave the index its vectors."""
    done: int | None = None
    """Updates so far; None: training did not begin."""

    @classmethod
    def of(cls, rows: ReaderRows, model: Transformer, tokenizer: Tokenizer) -> LiveIndex:
        """Spell all passages for the retriever, and the empty text. Raises `InputError` where that has no token."""
        whole = [*(one.whole for one in rows.index.passages), ""]
        spelled = EncodedExamples(encode_texts(model, tokenizer, whole))
        if not spelled.sequences["input_ids"].lengths[-1]:
            raise InputError("the retriever's tokenizer puts nothing around a text, so the null document has no token",
                             where="task.retrieval.retriever", remedy="take one with a first token, as BERT has")
        texts = tuple(spell_characters(rows.tokens.row(place).tolist()) for place in range(len(rows.index.passages)))
        return cls(rows, model, tokenizer, spelled, texts, rows.index)

    def find(self, questions: Tensor, count: int) -> Tensor:
        """Return the nearest passages. Shapes: [B, E] -> [B, K]."""
        return self.rows.find(questions, count)

    def find_others(self, batch: Batch, questions: Tensor, count: int) -> tuple[Tensor, int]:
        """Return the nearest passages that do not hold the text of the question, and how many questions had one.

        Raises `InputError` where too few are left. Shapes: questions [B, E] -> [B, count].
        """
        known, asked = len(self.texts), count + 2
        own_texts = spell_questions(batch)
        while True:
            places = find_nearest(questions, self.rows.index.matrix, asked)[1]
            own = torch.tensor([[text in self.texts[place] for place in row]
                                for text, row in zip(own_texts, places.tolist(), strict=True)])
            if bool(((~own).sum(1) >= count).all()):
                break
            if asked >= known:
                raise InputError(f"{count} passages are to be read, and {int((~own).sum(1).min())} do not hold the "
                                 "sentence itself", where="task.retrieval.count", remedy="make it smaller")
            asked *= 2
        order = own.long().argsort(dim=1, stable=True)[:, :count]
        return places.gather(1, order), int((own.long().cumsum(1)[torch.arange(len(own)), order[:, -1]] > 0).sum())

    def vectors(self, places: Tensor) -> Tensor:
        """Return the vectors of the index. Shapes: [B, K] -> [B, K, E]."""
        return self.rows.vectors(places)

    def join(self, batch: Batch, places: Tensor) -> Joined:
        """Return the reader's rows. Shapes: places [B, K]."""
        return self.rows.join(batch, places)

    def spell(self, places: Tensor) -> Batch:
        """Return what the retriever reads of passages. Shapes: [U] -> [U, L]."""
        return self.spelled.batch((places % (len(self.texts) + 1)).cpu().numpy())  # -1 is the last one

    @property
    def age(self) -> int:
        """How old the index is, in updates."""
        return (self.done or 0) - self.made

    def begin_step(self, step: int) -> None:
        """Take the index that the run used at this step, where it goes on there."""
        if self.versions is None or step == self.done:
            return
        found, self.done = self.versions.go_back(step), step
        if found is not None and found.passport.texts != self.first.passport.texts:
            raise InputError("is of other passages", where=str(self.versions.folder), remedy="begin the run again")
        self.use(found or self.first, self.versions.log[-1].made if found is not None else 0)

    def finish_step(self, step: int) -> None:
        """Take a new index, where there is one."""
        if self.versions is None:
            return
        self.done = step + 1
        if (found := self.refresher.after(self.done, self.build)) is not None:
            self.use(*found)
            self.versions.take(self.made, self.done)

    def use(self, index: PassageIndex, made: int) -> None:
        """Search in another index from now on."""
        self.rows, self.made = replace(self.rows, index=index), made

    def build(self) -> PassageIndex:
        """Make the index with the encoder as it is now."""
        training = self.model.training
        try:
            return build_version(self.first.passages, self.model, self.tokenizer)
        finally:
            self.model.train(training)

    def finish(self) -> str:
        """Make the index of the encoder as it is at the end, and say how old it was while it was learned with."""
        self.refresher.close()
        self.use(self.build(), self.done or 0)
        if self.versions is None or not self.done:
            return "the index was made of the trained retriever"
        ages = self.versions.ages(self.done)
        return (f"the index was made again {len(self.versions.log):,} times {self.refresher.describe()}; it was "
                f"{sum(ages) / len(ages):.1f} updates old in the mean, {max(ages):,} at most")


@dataclass(frozen=True, slots=True)
class LiveSource(OpenPassages):
    """Passages that are open for one reader, with a retriever that learns on both sides: a `PassageSource`."""

    live: LiveIndex

    @classmethod
    def of(cls, opened: OpenPassages) -> LiveSource:
        """Let the retriever read passages again. Raises `InputError` as `LiveIndex.of`."""
        given = opened.retriever
        live = LiveIndex.of(opened.rows, given.model, opened.tokenizer)
        return cls(LiveRetriever(given.model, live, given.count, given.scale, given.rate), opened.tokenizer,
                   opened.rows, opened.longest, live)

    def refreshed(self, refresh: NoRefresh | RefreshInPlace | RefreshInProcess, versions: IndexVersions,
                  first: Path) -> LiveSource:
        """Let the index be made again while a run trains; `first`: where the run keeps the one that it begins with."""
        live = self.live
        live.versions = versions
        match refresh:
            case NoRefresh():
                live.refresher = NeverRefreshed()
            case RefreshInPlace(every=every):
                live.refresher = InPlaceRefresher(versions, every)
            case RefreshInProcess(every=every):
                live.refresher = ProcessRefresher(versions, first, every, live.model, live.tokenizer)
        return self

    def notes(self) -> Sequence[str]:
        """Say what passages there are, and who makes the index again."""
        (line,) = OpenPassages.notes(self)
        return (line, "one of those read is the null document, and none holds the sentence itself; the index is made "
                      f"again {self.live.refresher.describe()}")

    def finished(self) -> tuple[LiveSource, str]:
        """Return the passages with the index of the encoder as it is now, and what there is to say."""
        line = self.live.finish()
        return replace(self, rows=self.live.rows), line


def spell_characters(ids: Sequence[int]) -> str:
    """Write ids as characters, one each, so that a row of them is found in another one by a search for text."""
    return "".join(map(chr, ids))


def spell_questions(batch: Batch) -> list[str]:
    """Write the tokens of each question with what is hidden in it. Shapes: `input_ids` [B, L], `labels` [B, T]."""
    real = batch[MASK_OF_INPUT["input_ids"]].sum(1).tolist()
    shift = batch["labels"].shape[1] - batch["input_ids"].shape[1]  # labels begin where a reader's row does
    labels = batch["labels"][:, shift:]
    ids = torch.where(labels == IGNORED, batch["input_ids"], labels).tolist()
    rows = [row[:size] for row, size in zip(ids, real, strict=True)]
    return [spell_characters(row[1:] if len(row) >= FEWEST else row) for row in rows]
