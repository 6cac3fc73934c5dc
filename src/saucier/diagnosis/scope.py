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


def stacks_of(config: c.Transformer) -> list[c.Stack]:
    """Return the stacks of a model."""
    return [stack for stack in (config.encoder, config.decoder) if stack]


def sublayers(config: c.Transformer) -> list[object]:
    """Return what is inside the residuals of a model."""
    return [residual.inner for stack in stacks_of(config) for block in stack.blocks() for residual in block.sublayers]


def attentions(config: c.Transformer) -> list[c.SelfAttention]:
    """Return the self-attentions of a model."""
    return [part for part in sublayers(config) if isinstance(part, c.SelfAttention)]


def batch_reason(config: c.Transformer) -> Reason:
    """Rows in a batch with others of the same length."""
    return next((reason for part in attentions(config) if (reason := part.kernel.batch_reason)), None)


def padding_reason(config: c.Transformer) -> Reason:
    """Padding that no position reads."""
    if config.embed.projection is not None and config.embed.projection.kind == "trigram":
        return "each token is read with its neighbours, padding or not, as published"
    if any(c.mixes_padding(stack) for stack in stacks_of(config)):
        return "its transform mixes a row with its padding, as published"
    return batch_reason(config)


def right_reason(config: c.Transformer) -> Reason:
    """Rows with padding after them."""
    if reason := padding_reason(config):
        return reason
    if not all(fits_any_length(part.visibility) for part in attentions(config)):
        return "the last block of a row is seen by all, and padding moves it"
    if any(part.kernel.is_ring(part.visibility) for part in attentions(config)):
        return "a row is a ring of chunks, or sorted by hashes, and padding moves its end"
    return None


def left_reason(config: c.Transformer) -> Reason:
    """Rows with padding, or other text, before them."""
    if reason := right_reason(config):
        return reason
    if not all(fits_any_place(part.visibility) and part.kernel.any_place
               for part in attentions(config)):
        return "its blocks or chunks are counted from the row's beginning"
    if isinstance(config.head, c.QuestionSpanHead):
        return "its question is counted from the row's beginning, as published"
    if any(stack.memory is not None and stack.memory.start.kind == "zeros" for stack in stacks_of(config)):
        return "a memory of zeros stands before every row, so nothing else can"
    return None


def future_reason(config: c.Transformer) -> Reason:
    """Later tokens that no earlier position sees."""
    if config.decoder is None:
        return "an encoder sees a whole text"
    inner = [residual.inner for block in config.decoder.blocks() for residual in block.sublayers]
    if not all(any(isinstance(term, c.Causal) for term in list_terms(part.visibility)) for part in inner
               if isinstance(part, c.SelfAttention)):
        return "its decoder sees a whole text"
    if any(part.kernel.sorts_rows for part in attentions(config)):
        return "rows are sorted by hashes, so later tokens move the chunks that earlier ones see"
    return None


def cache_reason(config: c.Transformer) -> Reason:
    """Decoding with a key-value cache."""
    if reason := future_reason(config) or batch_reason(config):
        return reason
    assert config.decoder is not None, "future_reason() refuses encoders"
    if config.decoder.memory is not None:
        return "it keeps a memory, not a cache"
    if any(isinstance(part, c.Experts) and part.capacity for part in sublayers(config)):
        return "what its experts have room for depends on the tokens of one pass"
    return None


def left_cache_reason(config: c.Transformer) -> Reason:
    """Decoding of left-padded rows, as generation does it."""
    if config.encoder is not None and config.decoder is not None:
        return "its target side is not padded on the left"
    return cache_reason(config) or left_reason(config)


def packing_reason(config: c.Transformer) -> Reason:
    """Several texts in one row."""
    if not all(part.start.kind == "zeros" for part in list_recurrent_parts(config.decoder)):
        return "its decoder begins in what the encoder ended in, which is one for a row"
    return left_reason(config)


def memory_reason(config: c.Transformer) -> Reason:
    """A text in segments with a memory."""
    remembering = [stack.memory for stack in stacks_of(config) if stack.memory is not None]
    if not remembering:
        return "it keeps no memory"
    if not all(any(isinstance(term, c.Causal) for term in list_terms(part.visibility)) for part in attentions(config)):
        return "it sees both ways, so a segment does not see what comes after it"
    if any(one.reuse is not None for one in remembering):
        return "its memory keeps the first positions of a segment only"
    return None


def any_text_reason(config: c.Transformer) -> Reason:
    """The head's one answer for a text, anywhere."""
    if any(isinstance(pick, c.EndToken) for pick in list_picks(config)):
        return "the head wants an end token in every row, which these rows lack"
    return None


def right_text_reason(config: c.Transformer) -> Reason:
    """The same, with padding after the text."""
    if reads_padding(config):
        return "the head reads the last place of a row, padding or not, as published"
    return any_text_reason(config)


def left_text_reason(config: c.Transformer) -> Reason:
    """The same, with padding before the text."""
    if any(pick.kind in ("first", "pooled") for pick in list_picks(config)):
        return "the head reads the first place of a row, padding or not, as published"
    return right_text_reason(config)


def content_text_reason(config: c.Transformer) -> Reason:
    """The same, with other ids as padding."""
    if any(isinstance(pick, c.LastToken) for pick in list_picks(config)):
        return "the head knows padding by its id"
    return right_text_reason(config)


def padding_id(config: c.Transformer) -> int:
    """Return the id that padding has: the head's, else the embedding's, else 0."""
    known = [pick.padding for pick in list_picks(config) if isinstance(pick, c.LastToken)]
    return next((padding for padding in (*known, config.embed.padding) if padding is not None), 0)


def wants_global(config: c.Transformer) -> bool:
    """Say whether global tokens are looked for by separators, which rows of plain text lack."""
    terms = [term for part in attentions(config) for term in list_terms(part.visibility)]
    return any(isinstance(term, c.Global) and term.otherwise.kind in ("before_separator", "after_separator")
               for term in terms)
