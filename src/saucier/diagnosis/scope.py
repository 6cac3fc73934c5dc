"""Which laws a model must obey, by its config: for each law None, or why it does not apply. No torch.

A law compares a row with itself elsewhere: in another batch, with padding, after another text. Some published
architectures make a row's numbers depend on what is there; then the law does not apply, and this file says why.
"""

from __future__ import annotations

from saucier import config as c
from saucier.config.questions import (
    fits_any_length,
    fits_any_place,
    list_picks,
    list_recurrent_parts,
    list_terms,
    reads_padding,
)

Reason = str | None


def sublayers(config: c.Transformer) -> list[object]:
    """Return what is inside the residuals of a model."""
    return [residual.inner for stack in config.stacks for block in stack.blocks() for residual in block.sublayers]


def attentions(config: c.Transformer) -> list[c.SelfAttention]:
    """Return the self-attentions of a model."""
    return [part for part in sublayers(config) if isinstance(part, c.SelfAttention)]


def first_that_applies(*reasons: tuple[bool, str]) -> Reason:
    """Return the first reason whose condition is met; None where none is."""
    return next((words for applies, words in reasons if applies), None)


def batch_reason(config: c.Transformer) -> Reason:
    """Rows in a batch with others of the same length."""
    return next((reason for part in attentions(config) if (reason := part.kernel.batch_reason)), None)


def padding_reason(config: c.Transformer) -> Reason:
    """Padding that no position reads."""
    return first_that_applies(
        (config.embed.projection is not None and config.embed.projection.kind == "trigram",
         "each token is read with its neighbours, padding or not, as published"),
        (any(c.mixes_padding(stack) for stack in config.stacks),
         "its transform mixes a row with its padding, as published")) or batch_reason(config)


def right_reason(config: c.Transformer) -> Reason:
    """Rows with padding after them."""
    parts = attentions(config)
    return padding_reason(config) or first_that_applies(
        (not all(fits_any_length(part.visibility) for part in parts),
         "the last block of a row is seen by all, and padding moves it"),
        (any(part.kernel.is_ring(part.visibility) for part in parts),
         "a row is a ring of chunks, or sorted by hashes, and padding moves its end"))


def left_reason(config: c.Transformer) -> Reason:
    """Rows with padding, or other text, before them."""
    return right_reason(config) or first_that_applies(
        (not all(fits_any_place(part.visibility) and part.kernel.any_place for part in attentions(config)),
         "its blocks or chunks are counted from the row's beginning"),
        (isinstance(config.head, c.QuestionSpanHead),
         "its question is counted from the row's beginning, as published"),
        (any(stack.memory is not None and stack.memory.start.kind == "zeros" for stack in config.stacks),
         "a memory of zeros stands before every row, so nothing else can"))


def sees_past_alone(part: c.SelfAttention) -> bool:
    """Whether an attention sees nothing of what comes after a position."""
    return any(isinstance(term, c.Causal) for term in list_terms(part.visibility))


def future_reason(config: c.Transformer) -> Reason:
    """Later tokens that no earlier position sees."""
    written = config.decoder.attentions() if config.decoder else ()
    return first_that_applies(
        (config.decoder is None, "an encoder sees a whole text"),
        (not all(map(sees_past_alone, written)), "its decoder sees a whole text"),
        (any(part.kernel.sorts_rows for part in attentions(config)),
         "rows are sorted by hashes, so later tokens move the chunks that earlier ones see"))


def cache_reason(config: c.Transformer) -> Reason:
    """Decoding with a key-value cache."""
    return future_reason(config) or batch_reason(config) or first_that_applies(
        (config.decoder is not None and config.decoder.memory is not None, "it keeps a memory, not a cache"),
        (any(isinstance(part, c.Experts) and part.capacity is not None for part in sublayers(config)),
         "what its experts have room for depends on the tokens of one pass"))


def left_cache_reason(config: c.Transformer) -> Reason:
    """Decoding of left-padded rows, as generation does it."""
    return "its target side is not padded on the left" if len(config.stacks) > 1 \
        else cache_reason(config) or left_reason(config)


def packing_reason(config: c.Transformer) -> Reason:
    """Several texts in one row."""
    fresh = all(part.start.kind == "zeros" for part in list_recurrent_parts(config.decoder))
    return left_reason(config) if fresh else "its decoder begins in what the encoder ended in, which is one for a row"


def memory_reason(config: c.Transformer) -> Reason:
    """A text in segments with a memory."""
    remembering = [stack.memory for stack in config.stacks if stack.memory is not None]
    return first_that_applies(
        (not remembering, "it keeps no memory"),
        (not all(map(sees_past_alone, attentions(config))),
         "it sees both ways, so a segment does not see what comes after it"),
        (any(one.reuse is not None for one in remembering),
         "its memory keeps the first positions of a segment only"))


def any_text_reason(config: c.Transformer) -> Reason:
    """The head's one answer for a text, anywhere."""
    needs_end = any(isinstance(pick, c.EndToken) for pick in list_picks(config))
    return "the head wants an end token in every row, which these rows lack" if needs_end else None


def right_text_reason(config: c.Transformer) -> Reason:
    """The same, with padding after the text."""
    return "the head reads the last place of a row, padding or not, as published" if reads_padding(config) \
        else any_text_reason(config)


def left_text_reason(config: c.Transformer) -> Reason:
    """The same, with padding before the text."""
    reads_first = any(pick.kind in ("first", "pooled") for pick in list_picks(config))
    return "the head reads the first place of a row, padding or not, as published" if reads_first \
        else right_text_reason(config)


def content_text_reason(config: c.Transformer) -> Reason:
    """The same, with other ids as padding."""
    knows_id = any(isinstance(pick, c.LastToken) for pick in list_picks(config))
    return "the head knows padding by its id" if knows_id else right_text_reason(config)


def padding_id(config: c.Transformer) -> int:
    """Return the id that padding has: the head's, else the embedding's, else 0."""
    known = [pick.padding for pick in list_picks(config) if isinstance(pick, c.LastToken)]
    return next((padding for padding in (*known, config.embed.padding) if padding is not None), 0)


def needs_global_mask(config: c.Transformer) -> bool:
    """Say whether global tokens are found by separators, which plain text lacks: a batch has to name them then."""
    terms = [term for part in attentions(config) for term in list_terms(part.visibility)]
    return any(isinstance(term, c.Global) and term.otherwise.kind in ("before_separator", "after_separator")
               for term in terms)
