"""Denoising, as data: one frozen type for each noise that makes a source and a target of a text. Needs no torch.

Some noises move tokens to the target (T5's spans, a prefix's continuation). The others change a text step by step,
and the target is the original text (BART, and T5's other objectives).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.objectives.config.single_objective import Mismatch, ObjectiveSetting, SingleObjective
from saucier.text.config import LanguageData, list_languages
from saucier.text.rows.kinds import RowRequest

Rate = Annotated[float, Field(ge=0, le=1)]
Part = Annotated[float, Field(gt=0, lt=1)]
"""A share that is neither nothing nor all."""


class NoisyObjective(SingleObjective):
    """An objective that makes a source and a target of a text."""

    bodies: ClassVar[tuple[str, ...]] = ("decoder", "encoder and decoder")

    @property
    def steps_of_noise(self) -> tuple[TextNoise, ...]:
        """All steps of damage that it may do to a text."""
        return ()

    @property
    def mode_tokens(self) -> tuple[str, ...]:
        """The tokens that name tasks or languages, each once."""
        return ()

    @property
    def rows_read(self) -> RowRequest:
        """Running text, with its sentences where they change places."""
        return RowRequest("running", sentences=any(isinstance(step, SentencePermutation)
                                                   for step in self.steps_of_noise))

    def count_needed_sentinels(self, length: int) -> int:
        """Return how many sentinels rows of `length` tokens need."""
        return 0

    def check_tokens(self, setting: ObjectiveSetting) -> Iterator[Mismatch]:
        """Are there a mask, sentinels and the tokens of tasks?"""
        special = setting.special
        masks = any(isinstance(step, TokenMasking | TextInfilling) for step in self.steps_of_noise)
        if masks and special.mask is None:
            yield Mismatch(("tokenizer", "special", "mask"), f"{self.kind} needs a mask token",
                           "name one, such as [MASK]")
        if special.sentinels < (needed := self.count_needed_sentinels(setting.length)):
            yield Mismatch(("tokenizer", "special", "sentinels"),
                           f"{self.kind} needs {needed} sentinel tokens or more", f"set it to {max(100, needed)}")
        if unknown := [token for token in self.mode_tokens if token not in special.extra]:
            yield Mismatch(("tokenizer", "special", "extra"), f"{self.kind} names tokens that are not there",
                           f"add {', '.join(map(repr, unknown))}")


class SpanCorruption(NoisyObjective):
    """Give back dropped spans, each named by a sentinel token.

    Source: Raffel et al. 2020 (T5), §3.1.4, arXiv:1910.10683.
    """

    kind: Literal["span_corruption"] = "span_corruption"
    rate: Part = 0.15
    """Share of a row's tokens that are dropped."""
    mean_span: float = Field(default=3.0, ge=1)
    """Mean length of a dropped span, in tokens."""

    def count_needed_sentinels(self, length: int) -> int:
        """Two at least."""
        return 2


class ReplaceSpans(NoisyObjective):
    """Give back tokens that were dropped one by one; neighbours among them share a sentinel.

    Source: Raffel et al. 2020 (T5), §3.3.2 and table 5, "replace corrupted spans".
    """

    kind: Literal["replace_spans"] = "replace_spans"
    rate: Part = 0.15
    """Share of a row's tokens that are dropped."""

    def count_needed_sentinels(self, length: int) -> int:
        """One for each token where none of them are neighbours."""
        return round(self.rate * length) + 1


class DropTokens(NoisyObjective):
    """Give back tokens that were dropped one by one, and whose places nothing marks.

    Source: Raffel et al. 2020 (T5), §3.3.2 and table 5, "drop corrupted tokens".
    """

    kind: Literal["drop_tokens"] = "drop_tokens"
    rate: Part = 0.15
    """Share of a row's tokens that are dropped."""


class PrefixLanguageModel(NoisyObjective):
    """Write on from the beginning of a text, which is cut at random.

    Source: Raffel et al. 2020 (T5), §3.2.3 and §3.3.1; with a smaller `target` the S-denoiser of UL2 (Tay et al. 2023,
    §3.1.2, arXiv:2205.05131).
    """

    kind: Literal["prefix_lm"] = "prefix_lm"
    target: float = Field(default=0.5, gt=0, le=0.5)
    """Mean share of a text that is to be written; the cut is drawn evenly between none of it and twice as much."""


class TokenMasking(Config):
    """Put the mask token in the place of some tokens. Source: Lewis et al. 2020 (BART), §2.2, arXiv:1910.13461.

    With `random: 0.1` "BERT-style", without "MASS-style", of T5's table 5 (Raffel et al. 2020, §3.3.1 and §3.3.2).
    """

    kind: Literal["token_masking"] = "token_masking"
    rate: Part = 0.15
    """Share of a row's tokens that are chosen."""
    random: Rate = 0.0
    """Share of the chosen tokens that become a random token; the others become the mask token."""


class TokenDeletion(Config):
    """Leave out some tokens; the model must find where. Source: Lewis et al. 2020 (BART), §2.2."""

    kind: Literal["token_deletion"] = "token_deletion"
    rate: Part = 0.15
    """Share of a row's tokens that are left out."""


class TextInfilling(Config):
    """Put one mask token in the place of each drawn span; spans of no tokens put one between two tokens.

    Source: Lewis et al. 2020 (BART), §2.2 (lengths from a Poisson distribution of mean 3) and §5.1 (30%).
    """

    kind: Literal["text_infilling"] = "text_infilling"
    rate: Part = 0.3
    """Share of a row's tokens that are replaced."""
    mean_span: float = Field(default=3.0, ge=1)
    """Mean of the Poisson distribution that lengths are drawn from."""


class SentencePermutation(Config):
    """Put sentences into a random order. Source: Lewis et al. 2020 (BART), §2.2; all of them: §5.1."""

    kind: Literal["sentence_permutation"] = "sentence_permutation"
    share: float = Field(default=1.0, gt=0, le=1)
    """Share of a row's sentences that change places among each other."""


class DocumentRotation(Config):
    """Begin a text with a random token of it; what was before comes last. Source: Lewis et al. 2020 (BART), §2.2."""

    kind: Literal["document_rotation"] = "document_rotation"


class TokenShuffling(Config):
    """Put all tokens into a random order: "deshuffling" of T5's table 4 (Raffel et al. 2020, §3.3.1)."""

    kind: Literal["token_shuffling"] = "token_shuffling"


TextNoise = Annotated[
    TokenMasking | TokenDeletion | TextInfilling | SentencePermutation | DocumentRotation | TokenShuffling,
    Field(discriminator="kind"),
]
"""One step of damage to a text."""


class Denoising(NoisyObjective):
    """Write a damaged text as it was. Source: Lewis et al. 2020 (BART), §2.2 and §5.1, arXiv:1910.13461."""

    kind: Literal["denoising"] = "denoising"
    noises: tuple[TextNoise, ...] = Field(default=(SentencePermutation(), TextInfilling()), min_length=1)
    """What is done to the text, in this order; the default is BART's pretraining."""

    @property
    def steps_of_noise(self) -> tuple[TextNoise, ...]:
        """All of its noises."""
        return self.noises


Denoiser = SpanCorruption | ReplaceSpans | DropTokens | PrefixLanguageModel | Denoising
"""A noise that can be one of several."""


class DenoiserPart(Config):
    """One of the denoisers that rows are drawn for."""

    weight: float = Field(default=1.0, gt=0)
    """How often it comes, relative to the others."""
    token: str | None = None
    """A special token that the source begins with, so that the model knows its task; one of `special.extra`."""
    objective: Annotated[Denoiser, Field(discriminator="kind")]
    """What is learned from such a row."""


def build_ul2_parts() -> tuple[DenoiserPart, ...]:
    """Return UL2's seven denoisers. Source: Tay et al. 2023, §3.1.2 and table 1."""
    settings = (("[R]", 0.15, 3), ("[R]", 0.15, 8), ("[X]", 0.5, 3), ("[X]", 0.5, 8), ("[X]", 0.15, 64),
                ("[X]", 0.5, 64))
    spans = tuple(DenoiserPart(token=token, objective=SpanCorruption(rate=rate, mean_span=mean))
                  for token, rate, mean in settings)
    return (*spans, DenoiserPart(token="[S]", objective=PrefixLanguageModel(target=0.25)))


class MixtureOfDenoisers(NoisyObjective):
    """Each row is drawn for one of several denoisers. Source: Tay et al. 2023 (UL2), §3.1, arXiv:2205.05131.

    The lengths of spans are drawn as in T5; the paper says only their mean.
    """

    kind: Literal["mixture_of_denoisers"] = "mixture_of_denoisers"
    parts: tuple[DenoiserPart, ...] = Field(default_factory=build_ul2_parts, min_length=1)
    """The denoisers and their weights; the default is UL2's, all equally often."""

    @property
    def steps_of_noise(self) -> tuple[TextNoise, ...]:
        """Those of all denoisers."""
        return tuple(step for part in self.parts for step in part.objective.steps_of_noise)

    @property
    def mode_tokens(self) -> tuple[str, ...]:
        """Those of its parts."""
        return tuple(dict.fromkeys(part.token for part in self.parts if part.token is not None))

    def count_needed_sentinels(self, length: int) -> int:
        """As many as the part that needs most."""
        return max(part.objective.count_needed_sentinels(length) for part in self.parts)


class MultilingualDenoising(NoisyObjective):
    """Write a damaged text of one of several languages as it was; both sides end with the token of its language.

    The decoder begins with that token. Source: Liu et al. 2020 (mBART), §2.2 and figure 1, arXiv:2001.08210.
    """

    kind: Literal["multilingual_denoising"] = "multilingual_denoising"
    names_languages: ClassVar[bool] = True
    tokens: tuple[str, ...] = Field(default=("<python>", "<english>"), min_length=2)
    """The token of each language, in the order of `data.languages`; all of them are in `special.extra`."""
    noises: tuple[TextNoise, ...] = Field(
        default=(SentencePermutation(), TextInfilling(rate=0.35, mean_span=3.5)), min_length=1)
    """What is done to the text, in this order; the default is mBART's."""

    @property
    def steps_of_noise(self) -> tuple[TextNoise, ...]:
        """All of its noises."""
        return self.noises

    @property
    def mode_tokens(self) -> tuple[str, ...]:
        """Those of the languages."""
        return self.tokens

    def check_tokens(self, setting: ObjectiveSetting) -> Iterator[Mismatch]:
        """Is there a token for each language of the data, too?"""
        yield from super().check_tokens(setting)
        named = list_languages(setting.data)
        if not isinstance(setting.data, LanguageData):
            yield Mismatch(("data", "kind"), f"{self.kind} learns from several languages", "use kind: languages")
        elif len(self.tokens) != len(named):
            yield Mismatch(("tokens",), f"{len(self.tokens)} tokens for {len(named)} languages", "name one for each",
                           own=True)


Noisy = Denoiser | MixtureOfDenoisers | MultilingualDenoising
"""Objectives that make a source and a target of a text."""
