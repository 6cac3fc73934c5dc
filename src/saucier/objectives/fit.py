"""What an objective asks of the model, the tokenizer and the data, checked before any text is read. No torch.

Any objective goes with any body where the shapes allow; `misfits` says where they do not, and why.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from saucier import config as architecture
from saucier.config.asked import packs_pairs
from saucier.errors import InputError
from saucier.objectives import config as c
from saucier.objectives.config.noise import mode_tokens, needs_mask, sentinels_needed
from saucier.objectives.generator import generator_of
from saucier.objectives.material import material
from saucier.objectives.misfit import Misfit
from saucier.objectives.misfit_masked import masked_misfits
from saucier.objectives.misfit_order import order_misfits
from saucier.objectives.misfit_told import told_misfits
from saucier.objectives.misfit_whole import whole_misfits
from saucier.text.config import Data, LanguageData, PairData, Ready, SpecialTokens, TokenizerConfig, languages_of
from saucier.text.material import Pairs, Running


@dataclass(frozen=True, slots=True)
class Around:
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


def misfits(objective: c.Single, around: Around) -> Iterator[Misfit]:
    """Yield what does not fit, the most basic thing first."""
    learned = objective
    if isinstance(objective, c.Parallel):
        learned = objective.masking
        if not isinstance(material(learned), Running):
            yield Misfit(("masking",), "the rows are the texts of the pairs, and have no sentences of their own",
                         "leave out what is learned of sentences", own=True)
    yield from body_misfits(learned, around.model)
    yield from head_misfits(learned, around.model)
    yield from order_misfits(objective, around.model, around.data)
    yield from token_misfits(learned, around)
    yield from language_misfits(objective, around)
    if isinstance(masked := getattr(objective, "masking", objective), c.Masked):
        yield from masked_misfits(masked, around.tokenizer, around.data, () if masked is objective else ("masking",))
    if isinstance(objective, c.ConditionalMasked):
        yield from whole_misfits(objective, around.model, around.tokenizer, around.length)
    yield from tag_misfits(around)
    yield from told_misfits(objective, around.model, around.tokenizer, around.data)
    pairs = isinstance(around.data, PairData)
    if pairs != isinstance(material(objective), Pairs):
        what = ("running text, and the data are pairs", "text") if pairs else ("pairs, and the data are running text",
                                                                               "pairs")
        yield Misfit(("data", "kind"), f"{objective.kind} learns from {what[0]}", f"use kind: {what[1]}")


def tag_misfits(around: Around) -> Iterator[Misfit]:
    """Is the token that tells synthetic pairs a token?"""
    made = around.data.synthetic if isinstance(around.data, PairData) else None
    known = around.tokenizer.special.extra
    if made is not None and made.tag is not None and made.tag not in known and not isinstance(around.tokenizer, Ready):
        yield Misfit(("tokenizer", "special", "extra"), f"the tag {made.tag} of synthetic pairs is no token",
                     f"name it in special.extra beside the other special tokens, extra: ['{made.tag}']")


def body_misfits(objective: c.Single, model: architecture.Transformer) -> Iterator[Misfit]:
    """Does the model have the stacks, and do they look where they must?"""
    stacks = " and ".join(name for name in ("encoder", "decoder") if getattr(model, name))
    match objective:
        case c.Causal() if stacks != "decoder":
            yield wrong_body(objective, "decoder", stacks)
        case c.Causal(positions=c.LastPosition(), deeper=c.Deeper(further=further)) if further:
            yield Misfit(("deeper", "further"), "no token stands behind the last position of a row",
                         "set it to 0, or positions to {kind: every}", own=True)
        case c.Bidirectional() if stacks != "encoder":
            yield wrong_body(objective, "encoder", stacks)
        case c.Bidirectional() if not architecture.keeps_apart(model):
            yield Misfit(("kind",), "one direction would see what the other is to predict",
                         "use family: elmo, or an encoder of recurrent layers with direction: {kind: apart}", own=True)
        case c.Masked() if (objective.relation or objective.boundary) and stacks != "encoder":
            yield wrong_body(objective, "encoder", stacks)
        case c.Masked() if stacks == "decoder" and not architecture.sees_prefix(model.decoder):
            yield Misfit(("kind",), "a decoder that only looks back cannot fill in what it has passed",
                         "use causal or span_corruption, or give the decoder the visibility kind: prefix", own=True)
        case c.Replaced() if stacks != "encoder":
            yield wrong_body(objective, "encoder", stacks)
        case c.Replaced():
            yield from generator_misfits(objective, model)
        case c.Permutation() if stacks != "encoder":
            yield wrong_body(objective, "encoder", stacks)
        case c.Permutation():
            yield from stream_misfits(objective, model)
        case c.ConditionalMasked() if stacks != "encoder and decoder" or not whole_text(model):
            yield wrong_body(objective, "encoder and decoder that writes whole texts", stacks)
        case _ if whole_text(model) and not isinstance(objective, c.ConditionalMasked):
            yield Misfit(("kind",), "a model that writes whole texts learns nothing but conditional_masked",
                         "use kind: conditional_masked, or another family", own=True)
        case _ if writes(objective) and stacks == "encoder":
            yield wrong_body(objective, "decoder, or of encoder and decoder", stacks)
        case c.SequenceToSequence(truth=truth) if truth is not None and stacks == "decoder":
            yield Misfit(("truth",), "only an encoder-decoder reads its own predictions in training",
                         "leave it out, or use such a model", own=True)
        case c.SequenceToSequence(packing=packing, truth=truth) if packing is not None:
            yield from packing_misfits(model, alone=truth is not None)


def packing_misfits(model: architecture.Transformer, *, alone: bool) -> Iterator[Misfit]:
    """Can pairs share the rows of a model? `alone`: the decoder reads its own predictions, one pair a row."""
    if not packs_pairs(model):
        yield Misfit(("packing",), "only the two sides of softmax attention over the order of places keep pairs apart",
                     "leave it out, or use an encoder-decoder such as T5 or BART", own=True)
    if alone:
        yield Misfit(("packing",), "a decoder that reads its own predictions has one pair in a row",
                     "leave packing or truth out", own=True)


def whole_text(model: architecture.Transformer) -> bool:
    """Say whether a model writes a whole text at once."""
    return isinstance(model.head, architecture.LengthHead)


def writes(objective: c.Single) -> bool:
    """Say whether an objective makes a source and a target."""
    return isinstance(objective, c.SequenceToSequence | c.Noisy)


def stream_misfits(objective: c.Permutation, model: architecture.Transformer) -> Iterator[Misfit]:
    """Is there a second stream to ask with, and a memory where one is read?"""
    stack = model.encoder
    assert stack is not None, "asked of encoders"
    attentions = [one.inner for block in stack.blocks() for one in block.sublayers
                  if isinstance(one.inner, architecture.SelfAttention)]
    if stack.queries is None or not all(architecture.permutes(one.visibility) for one in attentions):
        yield Misfit(("kind",), "permutation needs a second stream of queries, and attention that hides keys from some",
                     "use family: xlnet, or encoder.queries and visibility kind: permutation", own=True)
    wanted = objective.rows.memory if isinstance(objective.rows, c.RunningText) else None
    kept = 0 if stack.memory is None else stack.memory.length
    if wanted is not None and kept is not None and wanted > kept:
        yield Misfit(("rows", "memory"), f"the model remembers {kept} tokens, and not {wanted}",
                     f"use {kept or 'null'}, or a longer memory (model.memory={wanted})", own=True)
    if isinstance(objective.rows, c.TwoPieces) and model.embed.segments is None:
        yield Misfit(("rows", "kind"), "the model does not tell two pieces of text apart", "use kind: running",
                     own=True)


def generator_misfits(objective: c.Replaced, model: architecture.Transformer) -> Iterator[Misfit]:
    """Can there be a generator beside the model, and is all else as replaced-token detection wants it?"""
    try:
        generator_of(model, objective)
    except InputError as error:
        where = error.where or ""
        path = where.split(".") if where.startswith("objective") else ("objective", "generator")
        yield Misfit(tuple(path), error.what, error.remedy or "change the model")
    for name in ("next_sentence", "sentence_order", "boundary"):
        if getattr(objective.masking, name) is not None:
            inside = ("choice", name) if name == "boundary" else (name,)
            yield Misfit(("masking", *inside), "nothing is learned beside replaced tokens", "set it to null", own=True)


def wrong_body(objective: c.Single, wanted: str, stacks: str) -> Misfit:
    """Say that the model has other stacks."""
    return Misfit(("kind",), f"{objective.kind} trains a model of {wanted}, and this one is {stacks}",
                  "change the objective or the model", own=True)


def head_misfits(objective: c.Single, model: architecture.Transformer) -> Iterator[Misfit]:
    """Does the model have the heads?"""
    if isinstance(objective, c.Replaced) and not isinstance(objective.learns, c.Originals):
        if not isinstance(model.head, architecture.ReplacedTokenHead):
            yield Misfit(("model", "head"), "replaced needs a head that gives one logit for each token",
                         "use head: {kind: replaced_token}")
        return
    if isinstance(objective, c.Bidirectional):
        if not isinstance(model.head, architecture.BidirectionalHead):
            yield Misfit(("model", "head"), "bidirectional needs a head that reads both directions apart",
                         "use head: {kind: bidirectional}")
        return
    if model.language_head is None and not isinstance(model.head, architecture.AdaptiveHead):
        yield Misfit(("model", "head"), f"{objective.kind} needs a head that gives token logits", "use kind: language")
    match objective:
        case c.Masked(relation=c.NextSentence() | c.SentenceOrder()):
            if not (isinstance(model.head, architecture.PretrainingHead) and two_segments(model)):
                name = "next_sentence" if objective.next_sentence else "sentence_order"
                yield Misfit((name,), "needs a pretraining head and two segments",
                             f"set {name}: null, or add them", own=True)


def token_misfits(objective: c.Single, around: Around) -> Iterator[Misfit]:
    """Does the tokenizer have the special tokens?"""
    if isinstance(objective, c.Replaced):
        yield from token_misfits(objective.masking, around)
    special = around.special
    masks = isinstance(objective, c.Masked) or (isinstance(objective, c.Noisy) and needs_mask(objective))
    if masks and special.mask is None:
        yield Misfit(("tokenizer", "special", "mask"), f"{objective.kind} needs a mask token",
                     "name one, such as [MASK]")
    if not isinstance(objective, c.Noisy):
        return
    if special.sentinels < (needed := sentinels_needed(objective, around.length)):
        yield Misfit(("tokenizer", "special", "sentinels"), f"{objective.kind} needs {needed} sentinel tokens or more",
                     f"set it to {max(100, needed)}")
    if unknown := [token for token in mode_tokens(objective) if token not in special.extra]:
        yield Misfit(("tokenizer", "special", "extra"), f"{objective.kind} names tokens that are not there",
                     f"add {', '.join(map(repr, unknown))}")


def tells_languages(objective: c.Single, model: architecture.Transformer) -> bool:
    """Say whether the language of each token must be known."""
    return model.embed.languages is not None or isinstance(objective, c.MultilingualDenoising)


def language_misfits(objective: c.Single, around: Around) -> Iterator[Misfit]:
    """Does the model know as many languages as there are, and can the objective tell it?"""
    table, named = around.model.embed.languages, languages_of(around.data)
    if isinstance(objective, c.MultilingualDenoising) and not isinstance(around.data, LanguageData):
        yield Misfit(("data", "kind"), f"{objective.kind} learns from several languages", "use kind: languages")
    elif isinstance(objective, c.MultilingualDenoising) and len(objective.tokens) != len(named):
        yield Misfit(("tokens",), f"{len(objective.tokens)} tokens for {len(named)} languages", "name one for each",
                     own=True)
    if table is None or not named:
        return
    if table.count < len(named):
        yield Misfit(("model",), f"has vectors for {table.count} languages, and the data are in {len(named)}",
                     f"use languages: {len(named)}")
    if around.model.decoder is not None:
        yield Misfit(("model", "embed", "languages"), f"{objective.kind} tells a decoder of no languages",
                     "leave the table out, or use an encoder")


def reminders(objective: c.Single, model: architecture.Transformer) -> Iterator[str]:
    """Yield what fits, but is learned with less than its paper has."""
    if not isinstance(objective, c.Parallel):
        return
    if not tells_languages(objective, model):
        yield f"{objective.kind}: the model has no vectors for languages, and is not told which token is of which"
    if isinstance(objective, c.TranslationMasked) and isinstance(model.embed.positions, architecture.NoPositions):
        yield f"{objective.kind}: the model has no table of positions; how far both sides are apart stays as it is"


def two_segments(model: architecture.Transformer) -> bool:
    """Say whether the model tells a second segment from the first."""
    segments = model.embed.segments
    return isinstance(segments, architecture.SegmentTable) and segments.count > 1
