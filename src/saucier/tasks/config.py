"""Tasks as data: what is to be told of a text, and which columns of a labelled file hold what. No torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config import Pick
from saucier.config.base import Config
from saucier.tasks.columns import ColumnName
from saucier.tasks.embedding_config import Embedding
from saucier.tasks.forms_config import TextForm, TokenizerFrame
from saucier.tasks.questions_config import MultipleChoice, QuestionAnswering
from saucier.tasks.written.mixture_config import WrittenTask


class Texts(Config):
    """What all tasks share that tell one thing of a text, or of a pair of texts."""

    text: ColumnName = None
    """The column of the text (of the first text: the premise, the question)."""
    pair: ColumnName = None
    """The column of the second text. Without it, a second text is read where the file has a usual name for it."""
    pick: Pick | None = None
    """Where the text's vector is taken; None: as the model's family publishes its classifiers."""
    form: TextForm = TokenizerFrame()
    """How a text or a pair becomes a row."""


class Classification(Texts):
    """One of several classes. Source: Devlin et al. 2019, §4.1, arXiv:1810.04805."""

    kind: Literal["classification"] = "classification"
    label: ColumnName = None
    """The column of the class."""
    labels: tuple[str, ...] = ()
    """The classes, in the order of the model's outputs; none: those of the training file, sorted."""


class ManyLabels(Texts):
    """Any number of labels, each true or false on its own."""

    kind: Literal["many_labels"] = "many_labels"
    label: ColumnName = None
    """The column of the labels: a list in JSONL and parquet, words with a separator in other tables."""
    separator: str = Field(default=",", min_length=1)
    """What stands between two labels in one cell."""
    labels: tuple[str, ...] = ()
    """The labels, in the order of the model's outputs; none: those of the training file, sorted."""


class Regression(Texts):
    """One number, such as the similarity of two texts. Source: Devlin et al. 2019, §4.1 (STS-B)."""

    kind: Literal["regression"] = "regression"
    score: ColumnName = None
    """The column of the number."""


class Ranking(Texts):
    """How relevant a text is to a query; the rows of one query are ranked by it, and scored together.

    Source: Nogueira and Cho 2019, §3, arXiv:1901.04085 (one number and a sigmoid for their two classes).
    """

    kind: Literal["ranking"] = "ranking"
    label: ColumnName = None
    """The column of the relevance: a number, above 0 where the text is relevant."""


class IOB2(Config):
    """Every entity begins with a B; the words behind it are I."""

    kind: Literal["iob2"] = "iob2"


class BIOES(Config):
    """An entity of one word is an S; longer ones begin with B and end with E."""

    kind: Literal["bioes"] = "bioes"


class AsWritten(Config):
    """As the files have them, ill-formed tags too."""

    kind: Literal["as_written"] = "as_written"


Scheme = Annotated[IOB2 | BIOES | AsWritten, Field(discriminator="kind")]
"""How tags of entities are written. Files may have them otherwise: they are told apart and rewritten."""


class Tagging(Config):
    """A tag for each word: entities, parts of speech. Source: Devlin et al. 2019, §5.3, arXiv:1810.04805."""

    kind: Literal["tagging"] = "tagging"
    words: ColumnName = None
    """The column of the words: a list, or text with spaces. Column files have them in their first column."""
    tags: ColumnName = None
    """The column of the tags, likewise."""
    column: int | None = Field(default=None, ge=2)
    """The column of the tags in a column file, counted from 1; None: the last one."""
    scheme: Scheme = IOB2()
    """How tags of entities are learned and told; other tags stay as they are."""
    labels: tuple[str, ...] = ()
    """The tags, in the order of the model's outputs; none: those of the training file."""


TaskConfig = Annotated[Classification | ManyLabels | Regression | Ranking | Tagging | QuestionAnswering
                       | MultipleChoice | Embedding | WrittenTask, Field(discriminator="kind")]
"""Any task."""
