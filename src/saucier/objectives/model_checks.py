"""Checks of an objective against the model: its stacks, attention, heads and memory. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from saucier import config as architecture
from saucier.config.questions import packs_pairs
from saucier.errors import InputError
from saucier.objectives import config as c
from saucier.objectives.config.replaced_tokens import derive_generator
from saucier.text.config import Data, LanguageData, Ready, TokenizerConfig


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One thing that does not fit: where, what, and what would."""

    path: tuple[str, ...]
    what: str
    remedy: str
    own: bool = False
    """Whether the path begins at the objective; else at the recipe."""


def check_row_order(objective: c.Single, model: architecture.Transformer, data: Data) -> Iterator[Mismatch]:
    """Is there a memory that ends, for rows that go on, and none that every row must fill, for rows that do not?"""
    rows = getattr(objective, "rows", None)
    memories = [stack.memory for stack in (model.encoder, model.decoder) if stack and stack.memory]
    match rows:
        case c.ConsecutiveRows() if not memories or memories[0].length is None:
            what = "a memory that ends" if memories else "a memory"
            yield Mismatch(("rows", "kind"), f"rows that go on are read beside {what}, which the model does not have",
                           "use a model with one (family: transfo_xl, model.memory=128), or kind: shuffled", own=True)
        case c.ConsecutiveRows() if isinstance(data, LanguageData):
            yield Mismatch(("rows", "kind"), "rows of several languages are drawn, and none goes on",
                           "use data of kind: text, or kind: shuffled", own=True)
        case c.ShuffledRows() | c.DocumentRows() if memories and isinstance(memories[0].start, architecture.FromZeros):
            yield Mismatch(("rows", "kind"), "the model reads a memory of zeros before every row that does not go on",
                           "use rows: {kind: consecutive}, or model.memory=null", own=True)


def check_mixed_row_order(objectives: tuple[c.Single, ...]) -> Iterator[tuple[int, Mismatch]]:
    """Yield, by its number, each part of a mixture whose rows go on: they would go on at steps of other parts."""
    for number, objective in enumerate(objectives):
        if isinstance(getattr(objective, "rows", None), c.ConsecutiveRows) and len(objectives) > 1:
            yield number, Mismatch(("rows", "kind"), "rows go on from step to step, and parts of a mixture take turns",
                                   "use rows that are shuffled, or this objective alone", own=True)


SPECIAL_TOKEN_ORDER = ("pad", "unk", "bos", "eos", "cls", "sep", "mask")
"""Special tokens in the order of their ids."""


def check_conditional_masked(objective: c.ConditionalMasked, model: architecture.Transformer,
                             tokenizer: TokenizerConfig, length: int) -> Iterator[Mismatch]:
    """Yield what does not fit, the most basic thing first."""
    if not isinstance(head := model.head, architecture.LengthHead):
        return  # fit.body_misfits has said so
    if head.longest < length:
        yield Mismatch(("model", "longest"), f"lengths are told up to {head.longest}, and targets have up to {length}",
                       f"use longest: {length}")
    special, token = tokenizer.special, objective.length_token
    if special.mask is None:
        yield Mismatch(("tokenizer", "special", "mask"), f"{objective.kind} needs a mask token", "name one: <mask>")
    if isinstance(tokenizer, Ready):
        return
    if token not in special.extra or not special.single.startswith(token):
        yield Mismatch(("tokenizer", "special", "single"), f"a source does not begin with {token}",
                       f"use extra: ['{token}'], single: '{token} $A </s>'")
    told = head.language.predicts
    number = sum(getattr(special, name) is not None for name in SPECIAL_TOKEN_ORDER[:-1])
    if isinstance(told, architecture.WholeText) and told.mask != number:
        yield Mismatch(("model", "mask"), f"the model hides with token {told.mask}, and the mask token is {number}",
                       f"use mask: {number}")


def check_body(objective: c.Single, model: architecture.Transformer) -> Iterator[Mismatch]:
    """Does the model have the stacks, and do they look where they must?"""
    stacks = " and ".join(name for name in ("encoder", "decoder") if getattr(model, name))
    match objective:
        case c.Causal() if stacks != "decoder":
            yield report_wrong_body(objective, "decoder", stacks)
        case c.Causal(positions=c.LastPosition(), deeper=c.Deeper(further=further)) if further:
            yield Mismatch(("deeper", "further"), "no token stands behind the last position of a row",
                           "set it to 0, or positions to {kind: every}", own=True)
        case c.Bidirectional() if stacks != "encoder":
            yield report_wrong_body(objective, "encoder", stacks)
        case c.Bidirectional() if not architecture.keeps_directions_apart(model):
            yield Mismatch(("kind",), "one direction would see what the other is to predict",
                           "use family: elmo, or an encoder of recurrent layers with direction: {kind: apart}",
                           own=True)
        case c.Masked() if (objective.relation or objective.boundary) and stacks != "encoder":
            yield report_wrong_body(objective, "encoder", stacks)
        case c.Masked() if stacks == "decoder" and not architecture.sees_prefix(model.decoder):
            yield Mismatch(("kind",), "a decoder that only looks back cannot fill in what it has passed",
                           "use causal or span_corruption, or give the decoder the visibility kind: prefix", own=True)
        case c.Replaced() if stacks != "encoder":
            yield report_wrong_body(objective, "encoder", stacks)
        case c.Replaced():
            yield from check_generator(objective, model)
        case c.Permutation() if stacks != "encoder":
            yield report_wrong_body(objective, "encoder", stacks)
        case c.Permutation():
            yield from check_query_stream(objective, model)
        case c.ConditionalMasked() if stacks != "encoder and decoder" or not writes_whole_texts(model):
            yield report_wrong_body(objective, "encoder and decoder that writes whole texts", stacks)
        case _ if writes_whole_texts(model) and not isinstance(objective, c.ConditionalMasked):
            yield Mismatch(("kind",), "a model that writes whole texts learns nothing but conditional_masked",
                           "use kind: conditional_masked, or another family", own=True)
        case _ if has_source_and_target(objective) and stacks == "encoder":
            yield report_wrong_body(objective, "decoder, or of encoder and decoder", stacks)
        case c.SequenceToSequence(truth=truth) if truth is not None and stacks == "decoder":
            yield Mismatch(("truth",), "only an encoder-decoder reads its own predictions in training",
                           "leave it out, or use such a model", own=True)
        case c.SequenceToSequence(packing=packing, truth=truth) if packing is not None:
            yield from check_packing(model, alone=truth is not None)


def check_packing(model: architecture.Transformer, *, alone: bool) -> Iterator[Mismatch]:
    """Can pairs share the rows of a model? `alone`: the decoder reads its own predictions, one pair a row."""
    if not packs_pairs(model):
        yield Mismatch(("packing",),
                       "only the two sides of softmax attention over the order of places keep pairs apart",
                       "leave it out, or use an encoder-decoder such as T5 or BART", own=True)
    if alone:
        yield Mismatch(("packing",), "a decoder that reads its own predictions has one pair in a row",
                       "leave packing or truth out", own=True)


def writes_whole_texts(model: architecture.Transformer) -> bool:
    """Say whether a model writes a whole text at once."""
    return isinstance(model.head, architecture.LengthHead)


def has_source_and_target(objective: c.Single) -> bool:
    """Say whether an objective makes a source and a target."""
    return isinstance(objective, c.SequenceToSequence | c.Noisy)


def check_query_stream(objective: c.Permutation, model: architecture.Transformer) -> Iterator[Mismatch]:
    """Is there a second stream to ask with, and a memory where one is read?"""
    stack = model.encoder
    assert stack is not None, "asked of encoders"
    attentions = [one.inner for block in stack.blocks() for one in block.sublayers
                  if isinstance(one.inner, architecture.SelfAttention)]
    if stack.queries is None or not all(architecture.hides_keys(one.visibility) for one in attentions):
        yield Mismatch(("kind",),
                       "permutation needs a second stream of queries, and attention that hides keys from some",
                       "use family: xlnet, or encoder.queries and visibility kind: permutation", own=True)
    wanted = objective.rows.memory if isinstance(objective.rows, c.RunningText) else None
    kept = 0 if stack.memory is None else stack.memory.length
    if wanted is not None and kept is not None and wanted > kept:
        yield Mismatch(("rows", "memory"), f"the model remembers {kept} tokens, and not {wanted}",
                       f"use {kept or 'null'}, or a longer memory (model.memory={wanted})", own=True)
    if isinstance(objective.rows, c.TwoPieces) and model.embed.segments is None:
        yield Mismatch(("rows", "kind"), "the model does not tell two pieces of text apart", "use kind: running",
                       own=True)


def check_generator(objective: c.Replaced, model: architecture.Transformer) -> Iterator[Mismatch]:
    """Can there be a generator beside the model, and is all else as replaced-token detection wants it?"""
    try:
        derive_generator(model, objective)
    except InputError as error:
        where = error.where or ""
        path = where.split(".") if where.startswith("objective") else ("objective", "generator")
        yield Mismatch(tuple(path), error.what, error.remedy or "change the model")
    for name in ("next_sentence", "sentence_order", "boundary"):
        if getattr(objective.masking, name) is not None:
            inside = ("choice", name) if name == "boundary" else (name,)
            yield Mismatch(("masking", *inside), "nothing is learned beside replaced tokens", "set it to null",
                           own=True)


def report_wrong_body(objective: c.Single, wanted: str, stacks: str) -> Mismatch:
    """Say that the model has other stacks."""
    return Mismatch(("kind",), f"{objective.kind} trains a model of {wanted}, and this one is {stacks}",
                    "change the objective or the model", own=True)


def check_head(objective: c.Single, model: architecture.Transformer) -> Iterator[Mismatch]:
    """Does the model have the heads?"""
    if isinstance(objective, c.Replaced) and not isinstance(objective.learns, c.Originals):
        if not isinstance(model.head, architecture.ReplacedTokenHead):
            yield Mismatch(("model", "head"), "replaced needs a head that gives one logit for each token",
                           "use head: {kind: replaced_token}")
        return
    if isinstance(objective, c.Bidirectional):
        if not isinstance(model.head, architecture.BidirectionalHead):
            yield Mismatch(("model", "head"), "bidirectional needs a head that reads both directions apart",
                           "use head: {kind: bidirectional}")
        return
    if model.language_head is None and not isinstance(model.head, architecture.AdaptiveHead):
        yield Mismatch(("model", "head"), f"{objective.kind} needs a head that gives token logits",
                       "use kind: language")
    match objective:
        case c.Masked(relation=c.NextSentence() | c.SentenceOrder()):
            if not (isinstance(model.head, architecture.PretrainingHead) and has_two_segments(model)):
                name = "next_sentence" if objective.next_sentence else "sentence_order"
                yield Mismatch((name,), "needs a pretraining head and two segments",
                               f"set {name}: null, or add them", own=True)


def has_two_segments(model: architecture.Transformer) -> bool:
    """Say whether the model tells a second segment from the first."""
    segments = model.embed.segments
    return isinstance(segments, architecture.SegmentTable) and segments.count > 1
