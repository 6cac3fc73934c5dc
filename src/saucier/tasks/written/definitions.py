"""Tasks whose answer is a text, as data: what is read, what is around it, how the answer is written, and
mixtures of several such tasks. No torch.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from saucier.checkpoints.hub import locate_model
from saucier.config.base import Config
from saucier.generation.decoding import Greedy, HypothesisScoring, LeftToRight, Thorough
from saucier.text.reading.sources import make_absolute

IS_COLUMN = "column"
"""Marks the settings that name a column."""
ColumnName = Annotated[str | None, IS_COLUMN]
"""A column of the file; None: found by the names that such columns usually have."""


class Writing(Config):
    """How long a text may be, and how it is written."""

    search: LeftToRight = Greedy()
    """How the next token is chosen."""
    tokens: int | None = Field(default=None, gt=0)
    """The most tokens of what is written, in training too; None: as many as the longest of the training file has."""
    batch: int = Field(default=32, gt=0)
    """Answers that are written at a time; with sampling, another number draws other texts."""
    repetition_penalty: float = Field(default=1.0, gt=0)
    """Scores of tokens that stand there already are divided by it."""
    no_repeat_ngram: int = Field(default=0, ge=0)
    """No n-gram of this size twice; 0: no limit."""


class Written(Config):
    """What all tasks share that write a text for a text."""

    prefix: str = ""
    """Stands before what is read, such as `summarize: `. Source: Raffel et al. 2020, §2.4, arXiv:1910.10683."""
    between: str = "\n"
    """Stands between what is read and what is written where a decoder alone does both; an encoder does not read it."""
    writing: Writing = Writing()
    """How the answer is written."""


class Pairs(Written):
    """What tasks share whose rows are pairs of texts."""

    packing: bool = False
    """Put several pairs into one row of an encoder-decoder, which keeps them apart; a batch then counts such rows."""


class TextToText(Pairs):
    """A text for a text. Source: Raffel et al. 2020, §2.4, arXiv:1910.10683."""

    kind: Literal["text_to_text"] = "text_to_text"
    input: ColumnName = None
    """The column of what is read."""
    target: ColumnName = None
    """The column of what is written: a text, or a list of texts that are all right."""


class Translation(Pairs):
    """A text in another language. Source: Sutskever et al. 2014, arXiv:1409.3215."""

    kind: Literal["translation"] = "translation"
    source: ColumnName = None
    """The column of what is translated; None: found by name, or the first of two columns."""
    target: ColumnName = None
    """The column of its translation; None: found by name, or the second of two columns."""
    source_language: str | None = None
    """Multilingual models: the language of what is read, by its token or short name, such as `de`."""
    target_language: str | None = None
    """Multilingual models: the language that is written."""


class Summarization(Pairs):
    """What a document says, in few words. Source: Rush et al. 2015, arXiv:1509.00685."""

    kind: Literal["summarization"] = "summarization"
    between: str = "\nTL;DR:\n"
    """As in every written task. Source: Radford et al. 2019, §3.6, where these words ask for a summary."""
    document: ColumnName = None
    """The column of the document."""
    summary: ColumnName = None
    """The column of its summary: a text, or a list of texts that are all right."""


class Spoken(Written):
    """What tasks share that tell one thing of a text by writing it."""

    text: ColumnName = None
    """The column of the text (of the first text)."""
    pair: ColumnName = None
    """The column of the second text, where there is one."""
    first: str = "sentence1: "
    """Stands before the first text of a pair. Source: Raffel et al. 2020, appendix D, arXiv:1910.10683."""
    second: str = " sentence2: "
    """Stands before the second."""


class LabelToText(Spoken):
    """One of several classes, by its word. What is no such word is wrong. Source: Raffel et al. 2020, §2.4."""

    kind: Literal["label_to_text"] = "label_to_text"
    label: ColumnName = None
    """The column of the class."""
    words: dict[str, str] = Field(default_factory=dict)
    """What is written for a class; one without a word is written as it stands."""
    labels: tuple[str, ...] = ()
    """The classes; none: those of the training file."""


class NumberToText(Spoken):
    """A number, rounded and written: a similarity of 3.75 is "3.8". Source: Raffel et al. 2020, §2.4."""

    kind: Literal["number_to_text"] = "number_to_text"
    score: ColumnName = None
    """The column of the number."""
    step: float = Field(default=0.2, gt=0)
    """Numbers are rounded to multiples of it."""


class Markers(Config):
    """Each turn stands behind a line that says whose it is; the tokenizer's end token stands behind each answer."""

    kind: Literal["markers"] = "markers"
    system: str = "### System:\n"
    """Before what sets the scene."""
    user: str = "### User:\n"
    """Before what is asked."""
    assistant: str = "### Assistant:\n"
    """Before what is answered."""
    between: str = "\n\n"
    """Behind every turn."""


class ChatTemplate(Config):
    """The chat template that comes with the tokenizer."""

    kind: Literal["chat"] = "chat"
    name: str | None = None
    """Which one, where it has several."""


class Instruction(Config):
    """To do what is asked, learned from conversations; the loss is on the answers alone.

    Source: Ouyang et al. 2022, §3.5, arXiv:2203.02155; Wei et al. 2022 (FLAN), arXiv:2109.01652.
    """

    kind: Literal["instruction"] = "instruction"
    template: Annotated[Markers | ChatTemplate, Field(discriminator="kind")] | None = None
    """How a conversation is written as text; None: by markers in a decoder, and by no words at all before an
    encoder, which reads what was asked and nothing else."""
    messages: ColumnName = None
    """The column of a list of `{"role": ..., "content": ...}`."""
    instruction: ColumnName = None
    """The column of what is asked, in files without messages."""
    input: ColumnName = None
    """The column of what it is asked about; may be empty."""
    output: ColumnName = None
    """The column of the answer."""
    packing: bool = True
    """Put several conversations into one row of a decoder, which keeps them apart."""
    too_long: Literal["cut", "drop"] = "cut"
    """What happens to a conversation of more tokens than a row: its end is cut off (where no answer would remain, its
    beginning), or it is left out."""
    writing: Writing = Writing()
    """How the last answer is written when the model is asked."""


class StepByStep(Written):
    """An answer, and why: two things to write for one input, told apart by its prefix; asked for the answer alone.

    Source: Hsieh et al. 2023, §3.2, arXiv:2305.02301.
    """

    kind: Literal["step_by_step"] = "step_by_step"
    input: ColumnName = None
    """The column of what is read."""
    target: ColumnName = None
    """The column of the answer."""
    rationale: ColumnName = None
    """The column of the reasons."""
    label_prefix: str = "[label] "
    """Stands before an input whose answer is wanted."""
    rationale_prefix: str = "[rationale] "
    """Stands before an input whose reasons are wanted."""
    weight: float = Field(default=1.0, ge=0)
    """λ: the loss is that of the answers, and so many times that of the reasons; 0: answers alone are learned."""


class BehindSequence(Config):
    """One passage is behind the whole answer. Source: Lewis et al. 2020, §2.1 (RAG-Sequence; eq 81)."""

    kind: Literal["sequence"] = "sequence"
    scoring: HypothesisScoring = Thorough()
    """How the hypotheses that the search finds for each passage are weighed against each other."""


class BehindToken(Config):
    """Each token of the answer may have another passage. Source: Lewis et al. 2020, §2.1 (RAG-Token; eq 82)."""

    kind: Literal["token"] = "token"


class Fusion(Config):
    """All passages are behind each token: read one by one, and attended to at once; the retriever does not learn.

    Source: Izacard and Grave 2021 (fusion-in-decoder), §3, arXiv:2007.01282.
    """

    kind: Literal["fusion"] = "fusion"


class Retrieval(Config):
    """Where the passages are that answers are found in, and how they are looked for."""

    passages: str
    """A folder with corpus.jsonl (BEIR's form), or a file of questions with their paragraphs (SQuAD, HotpotQA)."""
    retriever: str
    """The folder or hub id of the model that gives questions vectors; it learns with the reader."""
    passage_encoder: str | None = None
    """The model that gives passages vectors, which stay as they are; None: the retriever, as it begins."""
    count: int = Field(default=5, gt=0)
    """Passages that are read for each question: K."""
    scale: float | None = Field(default=None, gt=0)
    """Factor on the inner products before the softmax; None: 1 (eq 83), or 20 for vectors of length one, whose
    products are cosines, as retrievers of that kind are trained."""
    rate: float = Field(default=0.1, gt=0, le=1)
    """Share of the learning rate that the retriever learns at: it is trained already, and at the reader's rate it may
    forget before the reader reads."""
    encoder: str | None = None
    """SHA-256 of the weights that the passages' vectors are from; filled in by the training. Passages that another
    encoder gave vectors are refused."""

    def located(self) -> Self:
        """Return it with every place named so that it means the same from everywhere."""
        other = None if self.passage_encoder is None else locate_model(self.passage_encoder)
        return self.model_copy(update={"passages": make_absolute(self.passages), "passage_encoder": other,
                                       "retriever": locate_model(self.retriever)})


class RetrievalAugmented(Written):
    """An answer that is written from passages that a retriever finds, reader and retriever trained together (RAG).

    Files in SQuAD's form are read for their questions and answers alone, or tables with a question and an answer.
    Source: Lewis et al. 2020, arXiv:2005.11401.
    """

    kind: Literal["retrieval_augmented"] = "retrieval_augmented"
    input: ColumnName = None
    """The column of the question."""
    target: ColumnName = None
    """The column of the answer: a text, or a list of texts that are all right."""
    retrieval: Retrieval
    """Where answers are looked for."""
    marginal: Annotated[BehindSequence | BehindToken | Fusion, Field(discriminator="kind")] = BehindSequence()
    """What a passage is behind: the whole answer, or each token; or all of them are behind all."""
    after_title: str = " / "
    """Stands between a passage's title and its text. Source: Lewis et al. 2020, code release."""
    before_question: str = " // "
    """Stands between a passage and the question. Source: the same."""
    after_question: str | None = None
    """Stands between the question and a passage where the question comes first, as models that take spans read them:
    "[SEP]" with BERT's tokens; None: the passage comes first. Source: Izacard and Grave 2021, §3, arXiv:2007.01282."""
    question_length: int = Field(default=64, gt=0)
    """The most tokens of a question with what joins it to a passage, which has the rest of the row."""

    def located(self) -> RetrievalAugmented:
        """Return it with every place named so that it means the same from everywhere."""
        return self.model_copy(update={"retrieval": self.retrieval.located()})


Share = Annotated[float, Field(gt=0)]


class Proportional(Config):
    """As often as a task has rows, of which at most `cap` count. Source: Raffel et al. 2020, §3.5.2 (eq of r_m)."""

    kind: Literal["proportional"] = "proportional"
    cap: int | None = Field(default=None, gt=0)
    """A task with more rows counts as one with so many; None: all count."""


class Temperature(Config):
    """Proportional rates to the power 1/T, scaled to one again: 1 is proportional, infinitely many is equal.

    Source: Raffel et al. 2020, §3.5.2, arXiv:1910.10683.
    """

    kind: Literal["temperature"] = "temperature"
    temperature: float = Field(default=2.0, ge=1)
    """T."""
    cap: int | None = Field(default=None, gt=0)
    """As in proportional rates; the source uses 2^21 here."""


class Equal(Config):
    """Every task as often as every other."""

    kind: Literal["equal"] = "equal"


class Declared(Config):
    """As often as is said."""

    kind: Literal["declared"] = "declared"
    rates: dict[str, Share]
    """How often each task comes, by name; only their ratios count."""


Rates = Annotated[Proportional | Temperature | Equal | Declared, Field(discriminator="kind")]
"""How often each task of a mixture comes."""
Ingredient = Annotated[TextToText | Translation | Summarization | LabelToText | NumberToText | Instruction,
                       Field(discriminator="kind")]

LEARNED = ("labels", "writing")
"""What a task of a column learns from its rows."""


class Member(Config):
    """A task of a mixture."""

    task: Ingredient
    """What is learned."""
    files: tuple[str, ...] = ()
    """Patterns of the files that are its own, such as `*/sst2/*`; none: those with its name in their path."""


class Mixture(Config):
    """Several tasks whose answers are texts, learned by one model, which tells them apart by what it reads.

    Their rows stand in files of their own, or in the same files with a column that names each row's task.

    Source: Raffel et al. 2020, §2.4 and §3.5.2, arXiv:1910.10683; Wei et al. 2022 (FLAN), §2.1, arXiv:2109.01652.
    """

    kind: Literal["mixture"] = "mixture"
    tasks: dict[str, Member] = Field(default_factory=dict)
    """The tasks, by name; with `by` they are found in the training rows."""
    by: ColumnName = None
    """The column that names the task of each row; None: a file belongs to one task."""
    each: Ingredient = Instruction()
    """What each of them is, where a column tells them apart."""
    rates: Rates = Proportional()
    """How often each comes."""

    @model_validator(mode="after")
    def tasks_fit_together(self) -> Self:
        """There are two tasks or more, with rates that are theirs; or a column names them, and all read its columns."""
        def form(task: Config) -> dict[str, object]:
            return task.model_dump(exclude=set(LEARNED))

        if self.by is None and len(self.tasks) < 2:
            raise ValueError("tasks are needed: name the column that tells them apart with task.by=COLUMN, or two "
                             "tasks or more, each with files of its own, as task.tasks in a file of settings")
        if self.by is not None and (other := [name for name, one in self.tasks.items()
                                              if form(one.task) != form(self.each)]):
            raise ValueError(f"{other[0]} is not like task.each, and tasks in a column are all alike")
        if self.by is None and isinstance(self.rates, Declared) and self.rates.rates.keys() != self.tasks.keys():
            raise ValueError(f"rates are of {', '.join(self.rates.rates)}, and the tasks are {', '.join(self.tasks)}")
        return self


WrittenTask = (TextToText | Translation | Summarization | LabelToText | NumberToText | Instruction | StepByStep
               | Mixture | RetrievalAugmented)
"""Any task whose answer is a text."""
