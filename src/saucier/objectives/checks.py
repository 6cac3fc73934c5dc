"""Checks of an objective against model, tokenizer and data, before any text is read. No torch.

Any objective goes with any body where the shapes allow; `find_mismatches` says where they do not, and why. What is
particular to an objective is checked by its config.
"""

from __future__ import annotations

from collections.abc import Iterator

from saucier import config as architecture
from saucier.objectives import config as c
from saucier.objectives.config.single_objective import Mismatch, ObjectiveSetting
from saucier.text.config import Data, LanguageData, PairData, Ready, Tail, TokenizerConfig, list_languages


def find_mismatches(objective: c.Single, setting: ObjectiveSetting) -> Iterator[Mismatch]:
    """Yield what does not fit, the most basic thing first."""
    yield from objective.check_body(setting.model)
    yield from objective.check_head(setting.model)
    yield from check_row_order(objective, setting.model, setting.data)
    yield from objective.check_tokens(setting)
    yield from check_languages(objective, setting)
    yield from objective.check_text(setting)
    yield from check_synthetic_tag(setting)
    yield from check_pair_languages(objective, setting.model, setting.tokenizer, setting.data)
    pairs = isinstance(setting.data, PairData)
    if pairs != (objective.rows_read.kind == "text_pairs"):
        what = ("running text, and the data are pairs", "text") if pairs else ("pairs, and the data are running text",
                                                                               "pairs")
        yield Mismatch(("data", "kind"), f"{objective.kind} learns from {what[0]}", f"use kind: {what[1]}")


def check_row_order(objective: c.Single, model: architecture.Transformer, data: Data) -> Iterator[Mismatch]:
    """Is there a memory that ends, for rows that go on, and none that every row must fill, for rows that do not?"""
    rows = getattr(objective, "rows", None)
    memories = [stack.memory for stack in model.stacks if stack.memory]
    match rows:
        case c.ConsecutiveRows() if not memories or memories[0].length is None:
            what = "a memory that ends" if memories else "a memory"
            yield Mismatch(("rows", "kind"), f"rows that go on are read beside {what}, which the model does not have",
                           "use a model with one (family: transfo_xl, model.memory=128), or kind: shuffled", own=True)
        case c.ConsecutiveRows() if isinstance(data, LanguageData):
            yield Mismatch(("rows", "kind"), "rows of several languages are drawn, and none goes on",
                           "use data of kind: text, or kind: shuffled", own=True)
        case c.ShuffledRows() | c.DocumentRows() if memories and memories[0].start.kind == "zeros":
            yield Mismatch(("rows", "kind"), "the model reads a memory of zeros before every row that does not go on",
                           "use rows: {kind: consecutive}, or model.memory=null", own=True)


def check_mixed_row_order(objectives: tuple[c.Single, ...]) -> Iterator[tuple[int, Mismatch]]:
    """Yield, by its number, each part of a mixture whose rows go on: they would go on at steps of other parts."""
    for number, objective in enumerate(objectives):
        if isinstance(getattr(objective, "rows", None), c.ConsecutiveRows) and len(objectives) > 1:
            yield number, Mismatch(("rows", "kind"), "rows go on from step to step, and parts of a mixture take turns",
                                   "use rows that are shuffled, or this objective alone", own=True)


def check_synthetic_tag(setting: ObjectiveSetting) -> Iterator[Mismatch]:
    """Is the token that tells synthetic pairs a token?"""
    made = setting.data.synthetic if isinstance(setting.data, PairData) else None
    known = setting.special.extra
    if made is not None and made.tag is not None and made.tag not in known and not isinstance(setting.tokenizer, Ready):
        yield Mismatch(("tokenizer", "special", "extra"), f"the tag {made.tag} of synthetic pairs is no token",
                       f"name it in special.extra beside the other special tokens, extra: ['{made.tag}']")


def check_languages(objective: c.Single, setting: ObjectiveSetting) -> Iterator[Mismatch]:
    """Does the model know as many languages as there are, and can the objective tell it?"""
    table, named = setting.model.embed.languages, list_languages(setting.data)
    if table is None or not named:
        return
    if table.count < len(named):
        yield Mismatch(("model",), f"has vectors for {table.count} languages, and the data are in {len(named)}",
                       f"use languages: {len(named)}")
    if setting.model.decoder is not None:
        yield Mismatch(("model", "embed", "languages"), f"{objective.kind} tells a decoder of no languages",
                       "leave the table out, or use an encoder")


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
