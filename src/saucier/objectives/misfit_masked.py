"""What does not go together in masked learning: rows, choice of tokens, what is learned beside. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from saucier.objectives import config as c
from saucier.objectives.misfit import Misfit
from saucier.text.config import Bytes, Characters, Data, TokenizerConfig, languages_of


def masked_misfits(objective: c.Masked, tokenizer: TokenizerConfig, data: Data, path: tuple[str, ...]) -> Iterator[
        Misfit]:
    """Yield what does not fit; `path` is where the objective's own keys begin."""
    for found in (*row_misfits(objective, tokenizer), *choice_misfits(objective, tokenizer),
                  *several_misfits(objective, data)):
        yield replace(found, path=path + found.path) if found.own else found


def row_misfits(objective: c.Masked, tokenizer: TokenizerConfig) -> Iterator[Misfit]:
    """Are there two pieces where their relation is learned, and what stands around them?"""
    cut, special = objective.cut, tokenizer.special
    pairs = isinstance(cut, c.SegmentPairs | c.SentencePairs)
    if objective.next_sentence and objective.sentence_order:
        yield Misfit(("sentence_order",), "next sentence and sentence order are two answers of one classifier",
                     "set one of them to null", own=True)
    if pairs and objective.relation is None:
        yield Misfit(("rows", "kind"), f"{cut.kind} are there to learn how two pieces belong together",
                     "add next_sentence or sentence_order, or use full_sentences", own=True)
    if not pairs and objective.relation is not None:
        yield Misfit(("rows", "kind"), f"{cut.kind} rows have no two pieces to tell a relation of",
                     "use segment_pairs or sentence_pairs", own=True)
    if not isinstance(cut, c.RunningRows) and (special.cls is None or special.sep is None):
        yield Misfit(("tokenizer", "special"), f"{cut.kind} need the tokens cls and sep",
                     "name them, such as [CLS] and [SEP]")


def choice_misfits(objective: c.Masked, tokenizer: TokenizerConfig) -> Iterator[Misfit]:
    """Do the shares add up, and does the tokenizer show words where they are asked for?"""
    if objective.mask + objective.random > 1:
        yield Misfit(("random",), f"mask + random is {objective.mask + objective.random:g}, more than 1",
                     "lower one of them", own=True)
    if not isinstance(objective.choice, c.RandomTokenMasking) and isinstance(tokenizer, Bytes | Characters):
        yield Misfit(("choice", "kind"),
                     f"{objective.choice.kind} needs to know where words begin, and {tokenizer.kind} do not tell",
                     "use a tokenizer of kind wordpiece, byte_bpe, bpe or unigram, or choice.kind: tokens", own=True)


def several_misfits(objective: c.Masked, data: Data) -> Iterator[Misfit]:
    """What is not made for several languages yet?"""
    if not languages_of(data):
        return
    if isinstance(objective.cut, c.SentencePairs | c.FullSentences | c.DocumentSentences):
        yield Misfit(("rows", "kind"), f"{objective.cut.kind} are not cut from several languages",
                     "use running or segment_pairs", own=True)
    if isinstance(objective.choice, c.PMIMasking):
        yield Misfit(("choice", "kind"), "n-grams are counted in one language, and the data are in several",
                     "use another choice, such as whole_words", own=True)
