"""Checks of an objective against model, tokenizer and data, before any text is read. No torch.

Any objective goes with any body where the shapes allow; `find_mismatches` says where they do not, and why.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from saucier import config as architecture
from saucier.objectives import config as c
from saucier.objectives.model_checks import Mismatch, check_body, check_conditional_masked, check_head, check_row_order
from saucier.text.config import (
    Bytes,
    Characters,
    Data,
    LanguageData,
    PairData,
    Ready,
    SpecialTokens,
    Tail,
    TokenizerConfig,
    list_languages,
)


def check_masking(objective: c.Masked, tokenizer: TokenizerConfig, data: Data, path: tuple[str, ...]) -> Iterator[
        Mismatch]:
    """Yield what does not fit; `path` is where the objective's own keys begin."""
    for found in (*check_masked_rows(objective, tokenizer), *check_token_selection(objective, tokenizer),
                  *check_masked_languages(objective, data)):
        yield replace(found, path=path + found.path) if found.own else found


def check_masked_rows(objective: c.Masked, tokenizer: TokenizerConfig) -> Iterator[Mismatch]:
    """Are there two pieces where their relation is learned, and what stands around them?"""
    cut, special = objective.cut, tokenizer.special
    pairs = isinstance(cut, c.SegmentPairs | c.SentencePairs)
    if objective.next_sentence and objective.sentence_order:
        yield Mismatch(("sentence_order",), "next sentence and sentence order are two answers of one classifier",
                       "set one of them to null", own=True)
    if pairs and objective.relation is None:
        yield Mismatch(("rows", "kind"), f"{cut.kind} are there to learn how two pieces belong together",
                       "add next_sentence or sentence_order, or use full_sentences", own=True)
    if not pairs and objective.relation is not None:
        yield Mismatch(("rows", "kind"), f"{cut.kind} rows have no two pieces to tell a relation of",
                       "use segment_pairs or sentence_pairs", own=True)
    if not isinstance(cut, c.RunningRows) and (special.cls is None or special.sep is None):
        yield Mismatch(("tokenizer", "special"), f"{cut.kind} need the tokens cls and sep",
                       "name them, such as [CLS] and [SEP]")


def check_token_selection(objective: c.Masked, tokenizer: TokenizerConfig) -> Iterator[Mismatch]:
    """Do the shares add up, and does the tokenizer show words where they are asked for?"""
    if objective.mask + objective.random > 1:
        yield Mismatch(("random",), f"mask + random is {objective.mask + objective.random:g}, more than 1",
                       "lower one of them", own=True)
    if not isinstance(objective.choice, c.RandomTokenMasking) and isinstance(tokenizer, Bytes | Characters):
        yield Mismatch(("choice", "kind"),
                       f"{objective.choice.kind} needs to know where words begin, and {tokenizer.kind} do not tell",
                       "use a tokenizer of kind wordpiece, byte_bpe, bpe or unigram, or choice.kind: tokens", own=True)


def check_masked_languages(objective: c.Masked, data: Data) -> Iterator[Mismatch]:
    """What is not made for several languages yet?"""
    if not list_languages(data):
        return
    if isinstance(objective.cut, c.SentencePairs | c.FullSentences | c.DocumentSentences):
        yield Mismatch(("rows", "kind"), f"{objective.cut.kind} are not cut from several languages",
                       "use running or segment_pairs", own=True)
    if isinstance(objective.choice, c.PMIMasking):
        yield Mismatch(("choice", "kind"), "n-grams are counted in one language, and the data are in several",
                       "use another choice, such as whole_words", own=True)


WHERE = ("data", "languages")


def check_pair_languages(objective: c.Single, model: architecture.Transformer, tokenizer: TokenizerConfig,
                         data: Data) -> Iterator[Mismatch]:
    """Can every text begin with its language, and does every direction have pairs on both sides of the cut?"""
    if not isinstance(data, PairData) or data.languages is None:
        return
    if not isinstance(objective, c.SequenceToSequence) or model.encoder is None or model.decoder is None:
        yield Mismatch(WHERE, "only an encoder-decoder that learns sequence_to_sequence is told the languages of pairs",
                       "leave the languages out, or use such a model")
    elif objective.truth is not None:
        yield Mismatch(("truth",), "a decoder that reads its own predictions could read another language than the true "
                       "one", "leave truth or data.languages out", own=True)
    if data.source is not None or data.target is not None:
        yield Mismatch(("data", "source" if data.source is not None else "target"),
                       "columns are told by their languages, which each table calls otherwise", "leave it out")
    if isinstance(data.held_out, Tail):
        yield Mismatch(("data", "held_out", "kind"), "the tail of several tables is of the last ones alone",
                       "use kind: fraction, or files")
    if tokenizer.special.eos is None and not isinstance(tokenizer, Ready):
        yield Mismatch(("tokenizer", "special", "eos"), "a decoder begins with the end token, and then the language",
                       "name one, such as </s>")


@dataclass(frozen=True, slots=True)
class ObjectiveSetting:
    """What surrounds an objective in a recipe."""

    model: architecture.Transformer
    tokenizer: TokenizerConfig
    data: Data
    length: int = 512
    """Tokens of a row, as the model sees them."""

    @property
    def special(self) -> SpecialTokens:
        """The tokenizer's special tokens."""
        return self.tokenizer.special


def find_mismatches(objective: c.Single, around: ObjectiveSetting) -> Iterator[Mismatch]:
    """Yield what does not fit, the most basic thing first."""
    learned = objective
    if isinstance(objective, c.Parallel):
        learned = objective.masking
        if learned.rows_read.kind != "running":
            yield Mismatch(("masking",), "the rows are the texts of the pairs, and have no sentences of their own",
                           "leave out what is learned of sentences", own=True)
    yield from check_body(learned, around.model)
    yield from check_head(learned, around.model)
    yield from check_row_order(objective, around.model, around.data)
    yield from check_special_tokens(learned, around)
    yield from check_languages(objective, around)
    if isinstance(masked := getattr(objective, "masking", objective), c.Masked):
        yield from check_masking(masked, around.tokenizer, around.data, () if masked is objective else ("masking",))
    if isinstance(objective, c.ConditionalMasked):
        yield from check_conditional_masked(objective, around.model, around.tokenizer, around.length)
    yield from check_synthetic_tag(around)
    yield from check_pair_languages(objective, around.model, around.tokenizer, around.data)
    pairs = isinstance(around.data, PairData)
    if pairs != (objective.rows_read.kind == "text_pairs"):
        what = ("running text, and the data are pairs", "text") if pairs else ("pairs, and the data are running text",
                                                                               "pairs")
        yield Mismatch(("data", "kind"), f"{objective.kind} learns from {what[0]}", f"use kind: {what[1]}")


def check_synthetic_tag(around: ObjectiveSetting) -> Iterator[Mismatch]:
    """Is the token that tells synthetic pairs a token?"""
    made = around.data.synthetic if isinstance(around.data, PairData) else None
    known = around.tokenizer.special.extra
    if made is not None and made.tag is not None and made.tag not in known and not isinstance(around.tokenizer, Ready):
        yield Mismatch(("tokenizer", "special", "extra"), f"the tag {made.tag} of synthetic pairs is no token",
                       f"name it in special.extra beside the other special tokens, extra: ['{made.tag}']")


def check_special_tokens(objective: c.Single, around: ObjectiveSetting) -> Iterator[Mismatch]:
    """Does the tokenizer have the special tokens?"""
    if isinstance(objective, c.Replaced):
        yield from check_special_tokens(objective.masking, around)
    special = around.special
    masks = isinstance(objective, c.Masked) or (isinstance(objective, c.Noisy) and objective.needs_mask)
    if masks and special.mask is None:
        yield Mismatch(("tokenizer", "special", "mask"), f"{objective.kind} needs a mask token",
                       "name one, such as [MASK]")
    if not isinstance(objective, c.Noisy):
        return
    if special.sentinels < (needed := objective.count_needed_sentinels(around.length)):
        yield Mismatch(("tokenizer", "special", "sentinels"),
                       f"{objective.kind} needs {needed} sentinel tokens or more", f"set it to {max(100, needed)}")
    if unknown := [token for token in objective.mode_tokens if token not in special.extra]:
        yield Mismatch(("tokenizer", "special", "extra"), f"{objective.kind} names tokens that are not there",
                       f"add {', '.join(map(repr, unknown))}")


def needs_language_ids(objective: c.Single, model: architecture.Transformer) -> bool:
    """Say whether the language of each token must be known."""
    return model.embed.languages is not None or isinstance(objective, c.MultilingualDenoising)


def check_languages(objective: c.Single, around: ObjectiveSetting) -> Iterator[Mismatch]:
    """Does the model know as many languages as there are, and can the objective tell it?"""
    table, named = around.model.embed.languages, list_languages(around.data)
    if isinstance(objective, c.MultilingualDenoising) and not isinstance(around.data, LanguageData):
        yield Mismatch(("data", "kind"), f"{objective.kind} learns from several languages", "use kind: languages")
    elif isinstance(objective, c.MultilingualDenoising) and len(objective.tokens) != len(named):
        yield Mismatch(("tokens",), f"{len(objective.tokens)} tokens for {len(named)} languages", "name one for each",
                       own=True)
    if table is None or not named:
        return
    if table.count < len(named):
        yield Mismatch(("model",), f"has vectors for {table.count} languages, and the data are in {len(named)}",
                       f"use languages: {len(named)}")
    if around.model.decoder is not None:
        yield Mismatch(("model", "embed", "languages"), f"{objective.kind} tells a decoder of no languages",
                       "leave the table out, or use an encoder")


def list_reminders(objective: c.Single, model: architecture.Transformer) -> Iterator[str]:
    """Yield what fits, but is learned with less than its paper has."""
    if not isinstance(objective, c.Parallel):
        return
    if not needs_language_ids(objective, model):
        yield f"{objective.kind}: the model has no vectors for languages, and is not told which token is of which"
    if isinstance(objective, c.TranslationMasked) and isinstance(model.embed.positions, architecture.NoPositions):
        yield f"{objective.kind}: the model has no table of positions; how far both sides are apart stays as it is"
