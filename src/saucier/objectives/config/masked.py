"""Masked language modelling, as data: which tokens are hidden together, what replaces them, what is learned with them,
in running text or in parallel texts. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from saucier import config as architecture
from saucier.config.base import Config
from saucier.objectives.config.single_objective import Mismatch, ObjectiveSetting, SingleObjective, name_stacks
from saucier.text.config import Bytes, Characters, list_languages
from saucier.text.rows.kinds import MaskedRows, RowRequest, RunningRows, SegmentPairs, SentencePairs


class RandomTokenMasking(Config):
    """Any tokens, each chosen by itself. Source: Devlin et al. 2019, §3.1, arXiv:1810.04805."""

    kind: Literal["tokens"] = "tokens"


class WholeWordMasking(Config):
    """All tokens of a chosen word. Source: Devlin et al. 2019, code release of 31 May 2019."""

    kind: Literal["whole_words"] = "whole_words"


class SpanBoundary(Config):
    """Tell each token of a hidden span from the two tokens around the span, too.

    Source: Joshi et al. 2020 (SpanBERT), §3.2, arXiv:1907.10529.
    """

    position_width: int = Field(default=200, gt=0)
    """Width of the embedding of a token's place in its span."""


class SpanMasking(Config):
    """Runs of whole words, their lengths drawn from a geometric distribution; one fate for all tokens of a run.

    Source: Joshi et al. 2020 (SpanBERT), §3.1, arXiv:1907.10529.
    """

    kind: Literal["spans"] = "spans"
    stop: float = Field(default=0.2, gt=0, le=1)
    """The distribution's p: how likely a span ends with each further word."""
    longest: int = Field(default=10, ge=1)
    """Words of the longest span; longer draws are drawn again."""
    boundary: SpanBoundary | None = None
    """Learn the span-boundary objective beside the hidden tokens."""


class NGramMasking(Config):
    """Runs of n whole words, n likely in proportion to 1/n.

    Source: Lan et al. 2020 (ALBERT), §4.1, arXiv:1909.11942.
    """

    kind: Literal["n_grams"] = "n_grams"
    longest: int = Field(default=3, ge=1)
    """Words of the longest run."""


class PMIMasking(Config):
    """Words that keep company are hidden together: n-grams that the training text makes likelier than their parts.

    Source: Levine et al. 2021, §3, arXiv:2010.01825.
    """

    kind: Literal["pmi"] = "pmi"
    longest: int = Field(default=5, ge=2, le=8)
    """Words of the longest n-gram."""
    least: int = Field(default=10, ge=2)
    """An n-gram must occur so often."""
    each: int = Field(default=200_000, gt=0)
    """At most so many n-grams of each length, those with the highest measure."""


Choice = Annotated[RandomTokenMasking | WholeWordMasking | SpanMasking | NGramMasking | PMIMasking,
                   Field(discriminator="kind")]

Rate = Annotated[float, Field(ge=0, le=1)]


class NextSentence(Config):
    """Tell whether the second half of a row follows the first.

    Source: Devlin et al. 2019, §3.1 task 2, arXiv:1810.04805.
    """

    real: float = Field(default=0.5, gt=0, lt=1)
    """Share of the rows whose second half is the true one."""


class SentenceOrder(Config):
    """Tell whether the two halves of a row, which follow each other in the text, stand in their order.

    Source: Lan et al. 2020 (ALBERT), §3.1, arXiv:1909.11942.
    """

    real: float = Field(default=0.5, gt=0, lt=1)
    """Share of the rows whose halves are not swapped."""


class Masked(SingleObjective):
    """Predict hidden tokens from both sides. Source: Devlin et al. 2019, §3.1 task 1, arXiv:1810.04805.

    Of the chosen tokens, `mask` become the mask token, `random` a random token, and the rest stay as they are.
    """

    kind: Literal["masked"] = "masked"
    rate: float = Field(default=0.15, gt=0, lt=1)
    """Share of a row's ordinary tokens that are chosen as targets."""
    choice: Choice = RandomTokenMasking()
    """Which tokens are chosen together."""
    mask: Rate = 0.8
    random: Rate = 0.1
    dynamic: bool = True
    """True: new masks whenever a row comes again (Liu et al. 2019, RoBERTa, §4.1); False: the same for ever."""
    duplicates: int = Field(default=1, ge=1)
    """Where masks are not dynamic: how many each row has, one of them drawn whenever it comes (BERT's code has 10)."""
    rows: MaskedRows | None = None
    """How rows are cut from the text; None: segment pairs where sentences are learned, running rows elsewhere."""
    next_sentence: NextSentence | None = None
    """Learn next-sentence prediction too; needs a `pretraining` head and segment embeddings."""
    sentence_order: SentenceOrder | None = None
    """Learn sentence-order prediction too, in the place of the other."""

    @property
    def relation(self) -> NextSentence | SentenceOrder | None:
        """What is learned of the two halves of a row."""
        return self.next_sentence or self.sentence_order

    @property
    def boundary(self) -> SpanBoundary | None:
        """What is learned from the tokens around a hidden span."""
        return self.choice.boundary if isinstance(self.choice, SpanMasking) else None

    @property
    def cut(self) -> MaskedRows:
        """How rows are cut."""
        return self.rows or (RunningRows() if self.relation is None else SegmentPairs())

    @property
    def rows_read(self) -> RowRequest:
        """Running text in BERT's frame, the same in every epoch where masks are; or sentences."""
        if isinstance(self.cut, RunningRows):
            return RowRequest("running", "segment", fixed=not self.dynamic)
        return RowRequest(self.cut.kind, real=1.0 if self.relation is None else self.relation.real,
                          wrong="swapped" if isinstance(self.relation, SentenceOrder) else "elsewhere")

    def check_body(self, model: architecture.Transformer) -> Iterator[Mismatch]:
        """Does the model have the stacks? What is learned of sentences and spans needs an encoder."""
        stacks = name_stacks(model)
        if (self.relation or self.boundary) and stacks != "encoder":
            yield self.report_wrong_body("encoder", stacks)
        else:
            yield from super().check_body(model)

    def check_parts(self, model: architecture.Transformer) -> Iterator[Mismatch]:
        """Does the model see both sides of a hidden token?"""
        if model.encoder is None and not architecture.sees_prefix(model.decoder):
            yield Mismatch(("kind",), "a decoder that only looks back cannot fill in what it has passed",
                           "use causal or span_corruption, or give the decoder the visibility kind: prefix", own=True)

    def check_head(self, model: architecture.Transformer) -> Iterator[Mismatch]:
        """Does the model have the heads?"""
        yield from super().check_head(model)
        segments = model.embed.segments
        two = isinstance(segments, architecture.SegmentTable) and segments.count > 1
        if self.relation is not None and not (isinstance(model.head, architecture.PretrainingHead) and two):
            name = "next_sentence" if self.next_sentence else "sentence_order"
            yield Mismatch((name,), "needs a pretraining head and two segments", f"set {name}: null, or add them",
                           own=True)

    def check_tokens(self, setting: ObjectiveSetting) -> Iterator[Mismatch]:
        """Is there a mask token?"""
        if setting.special.mask is None:
            yield Mismatch(("tokenizer", "special", "mask"), f"{self.kind} needs a mask token",
                           "name one, such as [MASK]")

    def check_text(self, setting: ObjectiveSetting) -> Iterator[Mismatch]:
        """Do rows, selection and languages go together?"""
        yield from self.check_rows(setting)
        yield from self.check_selection(setting)
        yield from self.check_languages(setting)

    def check_rows(self, setting: ObjectiveSetting) -> Iterator[Mismatch]:
        """Are there two pieces where their relation is learned, and special tokens around them?"""
        cut, special = self.cut, setting.special
        pairs = isinstance(cut, SegmentPairs | SentencePairs)
        if self.next_sentence and self.sentence_order:
            yield Mismatch(("sentence_order",), "next sentence and sentence order are two answers of one classifier",
                           "set one of them to null", own=True)
        if pairs and self.relation is None:
            yield Mismatch(("rows", "kind"), f"{cut.kind} are there to learn how two pieces belong together",
                           "add next_sentence or sentence_order, or use full_sentences", own=True)
        if not pairs and self.relation is not None:
            yield Mismatch(("rows", "kind"), f"{cut.kind} rows have no two pieces to tell a relation of",
                           "use segment_pairs or sentence_pairs", own=True)
        if not isinstance(cut, RunningRows) and (special.cls is None or special.sep is None):
            yield Mismatch(("tokenizer", "special"), f"{cut.kind} need the tokens cls and sep",
                           "name them, such as [CLS] and [SEP]")

    def check_selection(self, setting: ObjectiveSetting) -> Iterator[Mismatch]:
        """Do the shares add up, and does the tokenizer mark words where they are masked?"""
        tokenizer = setting.tokenizer
        if self.mask + self.random > 1:
            yield Mismatch(("random",), f"mask + random is {self.mask + self.random:g}, more than 1",
                           "lower one of them", own=True)
        if not isinstance(self.choice, RandomTokenMasking) and isinstance(tokenizer, Bytes | Characters):
            yield Mismatch(("choice", "kind"),
                           f"{self.choice.kind} needs to know where words begin, and {tokenizer.kind} do not tell",
                           "use a tokenizer of kind wordpiece, byte_bpe, bpe or unigram, or choice.kind: tokens",
                           own=True)

    def check_languages(self, setting: ObjectiveSetting) -> Iterator[Mismatch]:
        """What is not made for several languages yet?"""
        if not list_languages(setting.data):
            return
        if not isinstance(self.cut, RunningRows | SegmentPairs):
            yield Mismatch(("rows", "kind"), f"{self.cut.kind} are not cut from several languages",
                           "use running or segment_pairs", own=True)
        if isinstance(self.choice, PMIMasking):
            yield Mismatch(("choice", "kind"), "n-grams are counted in one language, and the data are in several",
                           "use another choice, such as whole_words", own=True)


class ParallelObjective(SingleObjective):
    """An objective that hides tokens in the texts of pairs."""

    masking: Masked

    @property
    def rows_read(self) -> RowRequest:
        """Pairs, none without a side."""
        return RowRequest("text_pairs", whole=True)

    def check_body(self, model: architecture.Transformer) -> Iterator[Mismatch]:
        """Are rows of pairs enough for the masking, and does the body fit it?"""
        if self.masking.rows_read.kind != "running":
            yield Mismatch(("masking",), "the rows are the texts of the pairs, and have no sentences of their own",
                           "leave out what is learned of sentences", own=True)
        yield from self.masking.check_body(model)

    def check_head(self, model: architecture.Transformer) -> Iterator[Mismatch]:
        """As the masking."""
        return self.masking.check_head(model)

    def check_tokens(self, setting: ObjectiveSetting) -> Iterator[Mismatch]:
        """As the masking."""
        return self.masking.check_tokens(setting)

    def check_text(self, setting: ObjectiveSetting) -> Iterator[Mismatch]:
        """As the masking, which is a part of it."""
        return check_inner_masking(self.masking, setting)

    def list_reminders(self, model: architecture.Transformer) -> Iterator[str]:
        """Say where the model does not know the language of a token."""
        if not self.needs_language_ids(model):
            yield f"{self.kind}: the model has no vectors for languages, and is not told which token is of which"


def check_inner_masking(masking: Masked, setting: ObjectiveSetting) -> Iterator[Mismatch]:
    """Yield what does not fit of a masking that is a part of another objective."""
    for found in masking.check_text(setting):
        yield replace(found, path=("masking", *found.path)) if found.own else found


class TranslationMasked(ParallelObjective):
    """Predict tokens hidden in a text and in its translation, which stand in one row: translation language modelling.

    Source: Lample and Conneau 2019 (XLM), §3.4 and figure 1, arXiv:1901.07291.
    """

    kind: Literal["translation_masked"] = "translation_masked"
    masking: Masked = Masked()
    """Which tokens are hidden on both sides, and what stands in their place."""

    def list_reminders(self, model: architecture.Transformer) -> Iterator[str]:
        """Say also where the model has no places that begin again."""
        yield from super().list_reminders(model)
        if isinstance(model.embed.positions, architecture.NoPositions):
            yield f"{self.kind}: the model has no table of positions; how far both sides are apart stays as it is"


class MaskedSides(ParallelObjective):
    """Predict tokens hidden in the texts of pairs, each side a row of its own: what XLM learns in turns with TLM.

    Source: Lample and Conneau 2019 (XLM), §3.3 and §3.5, arXiv:1901.07291; there the texts are not those of the pairs.
    """

    kind: Literal["masked_sides"] = "masked_sides"
    masking: Masked = Masked()
    """Which tokens are hidden, and what stands in their place."""


Parallel = TranslationMasked | MaskedSides
"""Objectives that hide tokens in the texts of pairs."""
