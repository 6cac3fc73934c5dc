"""Tasks as data: what is predicted of a text, a pair, a question or a sentence, which columns of a labelled file
hold what, and how texts become one row. No torch. Tasks whose answer is a text are in `written/definitions.py`.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field

from saucier.config import Pick
from saucier.config.base import Config
from saucier.config.registry import OpenSlot, find_extension, is_outside, registered_kinds
from saucier.tasks.retrieval_definitions import MaskedRetrieval
from saucier.tasks.written.definitions import ColumnName, Retrieval, WrittenTask


class TokenizerFrame(Config):
    """The special tokens that the tokenizer puts around texts."""

    kind: Literal["frame"] = "frame"


class Transformed(Config):
    """A start token, the texts with a delimiter between, an extract token at which a decoder's vector is taken.

    Source: Radford et al. 2018, §3.3, figure 1 (classification, entailment, multiple choice).
    """

    kind: Literal["gpt"] = "gpt"
    auxiliary: float = Field(default=0.5, ge=0)
    """Weight of learning the words of the rows beside the task. Source: Radford et al. 2018, §3.2, eq 5, and §4.1."""


class BothOrders(Config):
    """A pair in both orders, each a row as in `gpt`; their vectors are added.

    Source: Radford et al. 2018, §3.3, figure 1 (similarity).
    """

    kind: Literal["gpt_both_orders"] = "gpt_both_orders"
    auxiliary: float = Field(default=0.5, ge=0)
    """As in `gpt`."""


TextForm = Annotated[TokenizerFrame | Transformed | BothOrders, Field(discriminator="kind")]
"""Of a text or a pair."""
ChoiceForm = Annotated[TokenizerFrame | Transformed, Field(discriminator="kind")]
"""Of a question with a choice."""


class QuestionAnswering(Config):
    """The piece of a text that answers a question, or none. Source: Devlin et al. 2019, §4.2–4.3, arXiv:1810.04805."""

    kind: Literal["question_answering"] = "question_answering"
    question: ColumnName = None
    """The column of the question, in files that are not in SQuAD's form; None: found by its usual names."""
    context: ColumnName = None
    """The column of the text, likewise."""
    answers: ColumnName = None
    """The column of the answers, likewise."""
    misplaced: Literal["refuse", "drop"] = "refuse"
    """What happens to answers that do not stand in their text."""
    no_answer: float | None = None
    """By how much (in logits) "no answer" must beat the best answer to be told; None: something is always answered,
    unless the training file has questions without an answer, which makes it 0."""
    stride: int = Field(default=128, gt=0)
    """Each window of a long text begins so many tokens behind the one before."""
    question_length: int = Field(default=64, gt=0)
    """Most tokens of a question; longer ones are cut, and counted."""
    longest_answer: int = Field(default=30, gt=0)
    """Most tokens of an answer that is told."""
    best: int = Field(default=5, gt=0)
    """Answers that are told with their probabilities, the best first."""


class MultipleChoice(Config):
    """One of several answers to a question. Source: Radford et al. 2018, §3.3; Devlin et al. 2019, §4.4 (SWAG)."""

    kind: Literal["multiple_choice"] = "multiple_choice"
    question: ColumnName = None
    """The column of the question; None: found by its usual names, in files that have one."""
    context: ColumnName = None
    """The column of the text that the question is about, likewise."""
    choices: ColumnName = None
    """The column of the list of choices; None: found, or else a column for each choice, such as `ending0`."""
    answer: ColumnName = None
    """The column of the right one: its number from 0, its letter, its name or its text."""
    form: ChoiceForm = TokenizerFrame()
    """How a question with a choice becomes a row."""
    labels: tuple[str, ...] = ()
    """What the choices are called, in order; none: as in the training file."""


class InBatch(Config):
    """Each text finds its own pair among those of the whole batch, and among wrong texts where the file has some."""

    kind: Literal["in_batch"] = "in_batch"
    scale: float = Field(default=20.0, gt=0)
    """Factor on the cosines. Source: the usual one, Reimers and Gurevych, code release."""
    similarity: Literal["cosine", "inner_product"] = "cosine"
    """What the scale is a factor on; inner_product: of the vectors as the model gives them (DPR: with a scale of 1)."""
    passage_encoder: str | None = None
    """A folder with which a second encoder begins, that of all texts but the first ones. None: one encoder for all."""


class CandidateMargin(Config):
    """Wrong texts must be further away than the pair by as much as the teacher says: squared error.

    Source: Hofstätter et al. 2020, §3.2, arXiv:2010.02666 (margin-MSE).
    """

    kind: Literal["margin"] = "margin"


class CandidateSoftmax(Config):
    """The softmax over the pair and the wrong texts must be the teacher's: Kullback-Leibler divergence."""

    kind: Literal["divergence"] = "divergence"
    temperature: float = Field(default=1.0, gt=0)
    """Of the teacher's softmax."""


class TeacherScores(Config):
    """A teacher's scores of the pair and of the wrong texts, such as a reranker gives them."""

    kind: Literal["teacher"] = "teacher"
    loss: Annotated[CandidateMargin | CandidateSoftmax, Field(discriminator="kind")] = CandidateSoftmax()
    """How ours are compared with them."""
    scale: float = Field(default=20.0, gt=0)
    """Factor on our cosines."""


class CosineScore(Config):
    """The cosine of two texts is their score, moved into 0 … 1."""

    kind: Literal["cosine"] = "cosine"
    low: float | None = None
    """The score of texts that have nothing to do with each other; None: the lowest of the training file."""
    high: float | None = None
    """The score of texts that mean the same; None: the highest of the training file."""


class ContrastivePairs(Config):
    """Pairs that belong together or do not, told by a label of two."""

    kind: Literal["contrastive"] = "contrastive"
    margin: float = Field(default=0.5, gt=0)
    """Distance (1 - cosine) up to which others are pushed apart."""
    together: str = "1"
    """The label of pairs that belong together."""


class TripletTexts(Config):
    """A text, its pair, and a wrong one."""

    kind: Literal["triplet"] = "triplet"
    margin: float = Field(default=0.5, gt=0)
    """By how much the pair must be nearer, in distances of vectors of length one."""


class Embedding(Config):
    """Vectors by which texts are compared. Source: Reimers and Gurevych 2019, arXiv:1908.10084."""

    kind: Literal["embedding"] = "embedding"
    learns: Annotated[InBatch | CosineScore | ContrastivePairs | TripletTexts | TeacherScores,
                      Field(discriminator="kind")] = InBatch()
    """What is learned, and from which columns."""
    text: ColumnName = None
    """The column of the first text."""
    pair: ColumnName = None
    """The column of the text that it is compared with."""
    negative: ColumnName = None
    """The column of a wrong text, or of a list of them (in_batch: where the file has one; triplet, teacher: always)."""
    answer: ColumnName = None
    """The column of what answers the first text (in_batch): pairs of texts with an equal answer are no negatives."""
    topic: ColumnName = None
    """The column of what a row is about: that of a batch is one. Source: Hofstätter et al. 2021, arXiv:2104.06967."""
    score: ColumnName = None
    """The column of the score (cosine), or of the list of a teacher's scores: of the pair, then of the wrong texts."""
    label: ColumnName = None
    """The column of the label (contrastive)."""


class InverseCloze(Config):
    """A sentence finds the passage that it was taken out of among those of the batch: a retriever from texts alone.

    Source: Lee et al. 2019 (ORQA), §5, arXiv:1906.00300 (eq 64–66 and 70). One encoder and one map serve sentences and
    passages here; the equations write two of each.
    """

    kind: Literal["inverse_cloze"] = "inverse_cloze"
    text: ColumnName = None
    """The column of the passage; None: found by its usual names."""
    title: ColumnName = None
    """The column of its title, likewise, where the file has one."""
    kept: float = Field(default=0.1, ge=0, le=1)
    """Share of the sentences that stay in their passage, so that equal words are learned too."""
    width: int = Field(default=128, gt=0)
    """Numbers of a vector, where the model has no embedding head yet: a map of the first token's."""
    scale: float | None = Field(default=None, gt=0)
    """Factor on the inner products before the softmax; None: 1, or 20 for vectors of length one."""


class OpenQuestionAnswering(Config):
    """The piece of a passage that answers a question, of passages that a retriever finds; both are trained together.

    Files in SQuAD's form are read for their questions and answers alone, or tables with a question and its answers.
    Source: Lee et al. 2019 (ORQA), arXiv:1906.00300 (eq 64–71).
    """

    kind: Literal["open_question_answering"] = "open_question_answering"
    question: ColumnName = None
    """The column of the question; None: found by its usual names."""
    answers: ColumnName = None
    """The column of the answer, a text or a list of texts that are all right, likewise."""
    retrieval: Retrieval
    """Where answers are looked for."""
    early: int | None = Field(default=5000, gt=0)
    """Passages of which the retriever alone learns which hold an answer, at most all; None: it learns from those that
    are read alone. Source: Lee et al. 2019, "Learning" (the early update, c = 5,000)."""
    question_length: int = Field(default=64, gt=0)
    """Most tokens of a question; the passage has the rest of the row."""
    longest_answer: int = Field(default=10, gt=0)
    """Most tokens of an answer. Source: Lee et al. 2019, code release."""
    best: int = Field(default=5, gt=0)
    """Answers that are told with their probabilities, the best first."""

    def located(self) -> OpenQuestionAnswering:
        """Return it with every place named so that it means the same from everywhere."""
        return self.model_copy(update={"retrieval": self.retrieval.located()})


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


def read_class_weights(value: Any) -> Any:
    """Return class weights with names for keys, as a command line may have read them as numbers.

    Raises `ValueError` for what are none.
    """
    if not isinstance(value, dict):
        if value not in (None, "balanced"):
            raise ValueError("should be balanced, or a number above 0 by class")
        return value
    for label, weight in value.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
            raise ValueError(f"the weight of {str(label)[:40]} should be a number above 0, not {str(weight)[:40]!r}")
    return {str(label): weight for label, weight in value.items()}


class Classification(Texts):
    """One of several classes. Source: Devlin et al. 2019, §4.1, arXiv:1810.04805."""

    kind: Literal["classification"] = "classification"
    label: ColumnName = None
    """The column of the class."""
    labels: tuple[str, ...] = ()
    """The classes, in the order of the model's outputs; none: those of the training file, sorted."""
    class_weights: Annotated[Literal["balanced"] | dict[str, float] | None, BeforeValidator(read_class_weights)] = None
    """What a row of each class counts in the loss. balanced: rare classes more, so that all classes count alike; or a
    number by class, 1 where none is given. None: every row the same."""


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


class CustomTask(Config):
    """The slot of a task from outside.

    A new one is a subclass with its own `kind`, registered with what builds, from its config, a `Task`.
    """

    slot: ClassVar[str] = "task"
    """What `register` knows the slot by."""
    kind: str


TaskConfig = Annotated[Classification | ManyLabels | Regression | Ranking | Tagging | QuestionAnswering
                       | MultipleChoice | Embedding | InverseCloze | OpenQuestionAnswering | MaskedRetrieval
                       | WrittenTask | CustomTask, OpenSlot("task")]
"""Any task."""


class NamedMetric(Config):
    """A metric of ours by its name, as `saucier score --metric` has it."""

    kind: Literal["named"] = "named"
    name: str
    """Such as `matthews`."""


class CustomMetric(Config):
    """The slot of a metric from outside.

    A new one is a subclass with its own `kind`, registered with what builds, from its config, a `Metric`.
    """

    slot: ClassVar[str] = "metric"
    """What `register` knows the slot by."""
    kind: str
    scores: ClassVar[tuple[str, ...]] = ("classes",)
    """The kinds of predictions that it is for (`saucier.tasks.scores`)."""


MetricConfig = Annotated[NamedMetric | CustomMetric, OpenSlot("metric")]
"""A metric in addition to the usual ones of a task."""


def find_task_class(kind: str) -> type[Config] | None:
    """Return the class of the settings of a kind of task; None where there is no such kind."""
    for one in get_args(get_args(TaskConfig)[0]):
        if kind in get_args(one.model_fields["kind"].annotation):
            found: type[Config] = one
            return found
    extension = find_extension(kind) if is_outside(kind) else None
    return None if extension is None or extension.slot != "task" else extension.config


def task_kinds() -> list[str]:
    """Name the kinds of task."""
    own = [kind for one in get_args(get_args(TaskConfig)[0]) for kind in get_args(one.model_fields["kind"].annotation)]
    return [*own, *registered_kinds("task")]
