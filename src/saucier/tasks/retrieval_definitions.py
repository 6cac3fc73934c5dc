"""Tasks that learn a retriever on both sides, as data: what is hidden, and when the index is made again. No torch."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from saucier.checkpoints.hub import locate_model
from saucier.config.base import Config
from saucier.tasks.written.definitions import ColumnName, Retrieval


class NoRefresh(Config):
    """The index stays as it was made by the retriever as it began."""

    kind: Literal["never"] = "never"


class RefreshInPlace(Config):
    """The trainer makes the index again, and waits for it: a run that was stopped goes on to the same bits."""

    kind: Literal["steps"] = "steps"
    every: int = Field(default=100, gt=0)
    """Updates between two indexes."""


class RefreshInProcess(Config):
    """A second process makes the index while training goes on, which takes the new one when it is there.

    Which index an update sees depends on how fast both are. Source: Guu et al. 2020, §3.3, arXiv:2002.08909.
    """

    kind: Literal["process"] = "process"
    every: int = Field(default=1, gt=0)
    """Updates at least between two encoders that are handed over; 1: a new one as soon as an index is finished."""


class LearnedRetrieval(Retrieval):
    """Where passages are, and how an encoder that learns on both sides looks for them."""

    count: int = Field(default=8, gt=0)
    """Candidates of each text, one of which is the null document; 1: that alone, so nothing is retrieved.
    Source: Guu et al. 2020, §4.2."""
    refresh: Annotated[NoRefresh | RefreshInPlace | RefreshInProcess, Field(discriminator="kind")] = RefreshInPlace()
    """When the index is made again by the encoder as it has become."""

    @model_validator(mode="after")
    def one_encoder(self) -> Self:
        """Questions and passages share the encoder."""
        if self.passage_encoder is not None:
            raise ValueError("passage_encoder: one encoder learns questions and passages here, that of retriever")
        return self


class MaskedRetrieval(Config):
    """Salient spans of sentences are hidden, and predicted from the sentence and retrieved passages (REALM).

    Source: Guu et al. 2020, §3.1–3.4, arXiv:2002.08909.
    """

    kind: Literal["masked_retrieval"] = "masked_retrieval"
    text: ColumnName = None
    """The column of the texts, which are cut into sentences; None: found by its usual names."""
    spans: ColumnName = None
    """The column of a list of pieces of each text that are hidden, in files that have one: the text is then one
    sentence, and nobody looks for spans in it. None: found by its usual names."""
    tagger: str | None = None
    """The folder of a model that tags entities (`saucier finetune tagging`), which are hidden; None: dates alone."""
    dates: bool = True
    """Whether English dates and years are hidden too, found by a rule."""
    retrieval: LearnedRetrieval
    """Where facts are looked for."""
    question_length: int = Field(default=64, gt=0)
    """The most tokens of a sentence; the passage has the rest of the row."""

    def located(self) -> MaskedRetrieval:
        """Return it with every place named so that it means the same from everywhere."""
        tagger = None if self.tagger is None else locate_model(self.tagger)
        return self.model_copy(update={"tagger": tagger, "retrieval": self.retrieval.located()})
