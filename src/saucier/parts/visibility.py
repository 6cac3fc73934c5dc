"""From a visibility config and a batch to the mask that attention reads, made late and once for all layers.

Global tokens are those that the batch names, or those that the visibility finds; random blocks are drawn as
published, by numpy's legacy generator.

Letters: B batch, Q queries, K keys, H heads, N blocks. True = may attend.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor

from saucier import config as c
from saucier.config.questions import counts_repeats
from saucier.config.visibility import SEPARATORS
from saucier.errors import InputError
from saucier.parts.masks import Draw, Mask, Span, finds_a_key, intersect, mask_streams, within_documents

PUBLISHED_LENGTHS = (1024, 3072, 4096)
"""Lengths for which the published code draws for the longest input at once, within `NEAR` positions."""
NEAR_POSITIONS = 1024


def count_random_blocks(config: c.RandomBlocks, blocks: int, draw: Draw | None) -> Tensor:
    """Return how often each block of queries sees each block of keys by chance.

    `draw` None is evaluation: the first block takes the place of every drawn one. Shapes: -> [H or 1, N, N].
    Source: Zaheer et al. 2020, appendix D, arXiv:2007.14062, and its code release.
    """
    if draw is None:
        counts = torch.zeros(1, blocks, blocks, dtype=torch.int16)
        counts[:, 1:-1, 0] = config.count
        return counts
    return torch.from_numpy(draw_counts(config, blocks, draw))


@lru_cache(maxsize=64)
def draw_counts(config: c.RandomBlocks, blocks: int, draw: Draw) -> numpy.ndarray:
    """Count what is drawn for every head and block. Shapes: -> [H, N, N]."""
    generator = numpy.random.RandomState(draw.layer)
    counts = numpy.zeros((draw.heads, blocks, blocks), dtype=numpy.int16)
    long = config.length // config.size
    if blocks * config.size in PUBLISHED_LENGTHS and long >= blocks:
        for head in range(draw.heads):
            for block in range(1, long - 1):
                near = generator.permutation(near_candidates(config.size, long, block))[:config.count]
                if block < blocks - 1:
                    counts[head, block, near] += 1
        return counts
    reach = min(2 * config.count + 5, blocks)
    for block in range(1, blocks):
        hidden = {block - 1, block, block + 1, 0, reach - 1}  # its window, and those that are global among the first
        hidden |= ({reach - 2} if block == 1 else set()) | ({1} if block == reach - 2 else set())
        for head in range(draw.heads):
            found = [other for other in generator.permutation(reach) if other not in hidden][:config.count]
            if block < blocks - 1:
                counts[head, block, found] += 1
    return counts


def near_candidates(size: int, blocks: int, block: int) -> numpy.ndarray:
    """Return the blocks to draw from at a published length: the near ones without the window, and without both ends.

    The published code lets the last blocks of the longest input draw what their window shows them too.
    """
    middle = numpy.arange(1, blocks - 1)
    last = NEAR_POSITIONS // size - 1 if 2 * size < NEAR_POSITIONS else blocks - 1
    before, after = block - 2, block
    if block <= 2:
        return middle[block + 1:last]
    if block >= blocks - 3 or before > last:
        return middle[:last]
    if after + 1 == last:
        return middle[:before]
    return numpy.concatenate([middle[:before], middle[after + 1:last]])


def find_global_tokens(otherwise: c.GlobalTokens, span: Span) -> Tensor:
    """Return which keys are global. Shapes: -> [B or 1, K], True = global.

    Raises `InputError` where the batch's mask does not fit, and where rows lack the separators that are looked for.
    """
    if span.named is not None:
        return fit_mask(span.named, span.keys, exact=span.start == 0 and span.queries == span.keys)
    match otherwise:
        case c.AtMostFirst(kind="no_tokens"):
            return torch.zeros(1, span.keys, dtype=torch.bool, device=span.device)
        case c.AtMostFirst():
            return find_first_tokens(span, 1)
        case c.FirstTokens(count=count):
            return find_first_tokens(span, count)
        case c.AtSeparator(kind="before_separator", token=token):
            return torch.arange(span.keys, device=span.device) < find_first_separator(span, token)
        case c.AtSeparator(token=token):
            return torch.arange(span.keys, device=span.device) > find_first_separator(span, token) + 1


def fit_mask(named: Tensor, keys: int, *, exact: bool) -> Tensor:
    """Cut a mask to the keys that there are, or take further keys as local, while decoding piece by piece."""
    if exact and named.shape[1] != keys:
        raise InputError(f"{named.shape[1]} positions for {keys} tokens", where="global_attention_mask",
                         remedy="give a mask of the shape of input_ids")
    return F.pad(named, (0, max(0, keys - named.shape[1])))[:, :keys]


def find_first_tokens(span: Span, count: int) -> Tensor:
    """The first real tokens of every row, or of every document in it. Shapes: -> [B or 1, K]."""
    places = torch.arange(span.keys, device=span.device)
    if span.key_documents is not None:
        documents, order = span.key_documents.sort(dim=1, stable=True)
        begins = F.pad(documents.diff(dim=1) != 0, (1, 0), value=True)
        rank = places - torch.where(begins, places, 0).cummax(dim=1).values
        return torch.zeros_like(begins).scatter(1, order, rank < count)
    first = 0 if span.padding is None else span.padding.long().argmax(-1, keepdim=True)
    return (places[None] >= first) & (places[None] < first + count)


def find_first_separator(span: Span, token: int) -> Tensor:
    """The place of the first separator of each row. Shapes: -> [B, 1]."""
    if span.ids is None or span.ids.shape[1] != span.keys:
        raise InputError("global tokens are found by the separators, and the tokens are not known",
                         where="global_attention_mask", remedy="give it")
    found = span.ids == token
    counts = found.sum(1)
    if bool((counts != SEPARATORS).any()):
        raise InputError(f"rows hold {counts.tolist()} separators (id {token}), and {SEPARATORS} tell what is global",
                         where="input_ids", remedy="give global_attention_mask, or rows of question and text")
    return found.long().argmax(-1, keepdim=True)


def build_mask(visibility: c.Visibility, span: Span) -> Mask:
    """Return the mask of a visibility over a span, as a flag where that suffices."""
    visibility = resolve_length(visibility, span.keys)
    if isinstance(visibility, c.Prefix) and span.queries == 1 and span.start == span.keys - 1:
        visibility = c.Causal()  # the last position sees all, whatever the prefix
    alone = span.start == 0 and span.queries == span.keys
    unmasked = span.padding is None and span.query_documents is None
    if unmasked and isinstance(visibility, c.Causal) and (span.queries == 1 or alone):
        return Mask(causal=span.queries > 1, device=span.device)
    allowed, times = evaluate_visibility(visibility, span), None
    if allowed is not None and allowed.dtype != torch.bool:
        allowed, times = allowed > 0, allowed.clamp(min=1)
    if span.padding is not None:
        allowed = intersect(allowed, span.padding[:, None, None, :])
    if span.query_documents is not None and span.key_documents is not None:
        same = within_documents(span.query_documents[:, :, None], span.key_documents[:, None, :])
        allowed = intersect(allowed, same[:, None])
    if c.hides_keys(visibility):
        allowed = mask_streams(allowed, span.visible, span.start, span.queries, span.targets)
    starts_seen = holds_always(visibility, lambda one: isinstance(one, c.Full | c.Causal | c.Prefix))
    whole = sees_itself(visibility) and finds_a_key(span, starts_seen=starts_seen)
    return Mask(allowed=allowed, whole=whole, times=times, device=span.device)


def resolve_length(visibility: c.Visibility, keys: int) -> c.Visibility:
    """Return what a visibility that depends on the input's length is for this number of keys."""
    while isinstance(visibility, c.Beyond):
        visibility = visibility.inner if keys > visibility.length else c.Full()
    return visibility


def sees_itself(visibility: c.Visibility) -> bool:
    """Say whether every query sees at least its own key."""
    return holds_always(visibility, lambda one: not isinstance(one, c.Global | c.GlobalBlocks | c.RandomBlocks
                                                          | c.Permutation | c.Columns))


def holds_always(visibility: c.Visibility, of_term: Callable[[c.Visibility], bool]) -> bool:
    """Say whether what `of_term` tells of a term holds for every query: of all terms of an `and`, of one of an `or`."""
    match visibility:
        case c.Combined(kind="and" | "by_head", terms=terms):
            return all(holds_always(term, of_term) for term in terms)
        case c.Combined(kind="or" | "plus", terms=terms):
            return any(holds_always(term, of_term) for term in terms)
        case c.Beyond(inner=inner):
            return holds_always(inner, of_term)
        case _:
            return of_term(visibility)


def evaluate_visibility(visibility: c.Visibility, span: Span) -> Tensor | None:
    """Return the visibility itself as a tensor that broadcasts to [B, H, Q, K]; None when all is visible.

    It is boolean, or holds how often each key counts where that may be more than once.
    """
    if isinstance(visibility, c.Full | c.Permutation):
        return None
    queries = torch.arange(span.start, span.start + span.queries, device=span.device)[:, None]
    keys = torch.arange(span.keys, device=span.device)[None, :]
    return (counted_pairs if counts_repeats(visibility) else allowed_pairs)(visibility, queries, keys, span)


def counted_pairs(visibility: c.Visibility, queries: Tensor, keys: Tensor, span: Span) -> Tensor:
    """Evaluate the algebra with repetitions: a sum adds, `&` multiplies, `|` takes the larger.

    Shapes: queries [Q, 1], keys [1, K] or [H, 1, K] -> broadcasts to [B, H, Q, K], int16.
    """
    def counted(terms: tuple[c.Visibility, ...]) -> Tensor:
        return torch.stack(torch.broadcast_tensors(*(counted_pairs(term, queries, keys, span) for term in terms)))

    match visibility:
        case c.RandomBlocks(size=size):
            counts = count_random_blocks(visibility, count_blocks(span, size), span.draw).to(queries.device)
            heads = torch.arange(len(counts), device=queries.device)[:, None, None]
            return counts[heads, queries // size, keys // size][None]
        case c.Combined(kind="plus", terms=terms):
            return counted(terms).sum(0, dtype=torch.int16)
        case c.Combined(kind="and", terms=terms):
            return counted(terms).prod(0, dtype=torch.int16)
        case c.Combined(kind="or", terms=terms):
            return counted(terms).amax(0)
        case c.Combined(kind="by_head", terms=terms):
            return assign_to_heads([counted_pairs(term, queries, keys, span) for term in terms], span)
        case c.Beyond():
            return counted_pairs(resolve_length(visibility, span.keys), queries, keys, span)
        case _:
            return allowed_pairs(visibility, queries, keys, span).to(torch.int16)


def count_blocks(span: Span, size: int) -> int:
    """Return how many blocks a row has, the last one shorter perhaps."""
    return -(-span.keys // size)


def allowed_pairs(visibility: c.Visibility, queries: Tensor, keys: Tensor, span: Span) -> Tensor:
    """Evaluate the algebra on places of a row, all of them or some.

    Shapes: queries [Q, 1], keys [1, K] or [H, 1, K] -> broadcasts to [B, 1 or H, Q, K].
    """
    match visibility:
        case c.Full() | c.Permutation():
            return torch.ones(1, 1, len(queries), keys.shape[-1], dtype=torch.bool, device=span.device)
        case c.Prefix() if span.prefix is None and span.queries == 1 and span.start == span.keys - 1:
            return expand_places(keys <= queries)  # the last position sees all, whatever the prefix
        case c.Prefix():
            if span.prefix is None:
                raise InputError("a prefix visibility needs to know the prefix", where="prefix_length",
                                 remedy="give prefix_length, one number for each row")
            return expand_places(keys <= queries) | (expand_places(keys) < span.prefix[:, None, None, None])
        case c.Global(otherwise=otherwise):
            tokens = find_global_tokens(otherwise, span)
            return expand_rows(tokens[:, queries]) | expand_rows(tokens[:, keys])
        case c.RandomBlocks() | c.Combined(kind="plus"):
            return counted_pairs(visibility, queries, keys, span) > 0
        case c.Beyond():
            return allowed_pairs(resolve_length(visibility, span.keys), queries, keys, span)
        case c.Combined(kind="and" | "or", terms=terms):
            parts = torch.stack(torch.broadcast_tensors(*(allowed_pairs(term, queries, keys, span) for term in terms)))
            return parts.all(0) if visibility.kind == "and" else parts.any(0)
        case c.Combined(kind="by_head", terms=terms):
            return assign_to_heads([allowed_pairs(term, queries, keys, span) for term in terms], span)
        case _:
            return expand_places(placed_pairs(visibility, queries, keys, span))


def placed_pairs(visibility: c.Visibility, queries: Tensor, keys: Tensor, span: Span) -> Tensor:
    """Evaluate a term that depends on places alone. Shapes: queries [Q, 1], keys [.., 1, K] -> [.., Q, K]."""
    match visibility:
        case c.SameLength():
            return queries - keys <= span.memory
        case c.Causal():
            return keys <= queries
        case c.Window(size=size):
            return (queries - keys).abs() < size
        case c.Dilated(size=size, dilation=step):
            distance = (queries - keys).abs()
            return (distance % step == 0) & (distance < size * step)
        case c.Strided(stride=step):
            return (queries - keys) % step == 0
        case c.Columns(stride=step, count=count):
            return (keys % step >= step - count).expand(*keys.shape[:-2], len(queries), -1)
        case c.BlockWindow(size=size, reach=reach):
            return (queries // size - keys // size).abs() <= reach
        case c.GlobalBlocks(size=size):
            ends = torch.tensor([0, count_blocks(span, size) - 1], device=span.device)
            return torch.isin(queries // size, ends) | torch.isin(keys // size, ends)
    raise TypeError(visibility.kind)


def expand_places(found: Tensor) -> Tensor:
    """Say the same of every row, and of every head where it is not by head. Shapes: [Q, K] or [H, Q, K] -> 4 axes."""
    return found[(None,) * (4 - found.dim())]


def assign_to_heads(terms: list[Tensor], span: Span) -> Tensor:
    """Give each term to its share of the heads. Shapes: each broadcasts to [B, 1 or H, Q, K] -> [B, H, Q, K]."""
    share = max(1, span.heads // len(terms))
    parts = [part if part.shape[1] == 1 else part[:, number * share:(number + 1) * share]
             for number, part in enumerate(terms)]
    rows, queries, keys = (max(part.shape[axis] for part in parts) for axis in (0, 2, 3))
    return torch.cat([part.expand(rows, share, queries, keys) for part in parts], dim=1)


def expand_rows(found: Tensor) -> Tensor:
    """Say the same of every head, where it is not by head. Shapes: [B, Q, K] or [B, H, Q, K] -> 4 axes."""
    return found if found.dim() == 4 else found[:, None]
