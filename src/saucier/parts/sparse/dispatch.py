"""Where attention is computed by a plan, and the plan of a pass: made once for all layers that see alike.

Dense attention stays where it is faster, where weights are returned, and where scores depend on vectors of distances.
"""

from __future__ import annotations

from dataclasses import replace

from saucier import config as c
from saucier.config.questions import counts_repeats, differs_by_head, list_terms
from saucier.config.visibility import visible_keys
from saucier.parts.context import Context
from saucier.parts.global_attention import find_global_positions
from saucier.parts.masks import Draw, Span
from saucier.parts.positions import kept_slopes
from saucier.parts.sparse.candidates import RowShape, select_head
from saucier.parts.sparse.mixing import SparseWork, Stretch
from saucier.parts.sparse.plan import RowFacts, plan_row

LARGEST_SHARE = 0.4
"""The most that may be visible of all pairs. With eight heads of 64 in float32 (torch 2.13, one thread), a plan that is
known is 1.2 times faster than dense attention at 512 keys and this share, forward, and 2 times at a tenth; at 2048 keys
2.3 and 5 times. With the gradient these are 1.3, 2, 2 and 4.5 times."""
PLANNED_VISIBILITIES = (c.Full, c.Causal, c.Prefix, c.Window, c.SameLength, c.Global, c.BlockWindow, c.GlobalBlocks,
                        c.RandomBlocks, c.Dilated, c.Strided, c.Columns, c.Combined, c.Beyond)
"""Terms that candidates can be found for."""


PLACED_POSITIONS = (c.NoPositions, c.Rotary, c.GlobalLocal, c.T5Bias, c.Alibi)
"""Positions that tiles can tell of, or need not."""


def takes_tiles(attention: c.SelfAttention) -> bool:
    """Say whether an attention can be computed by tiles at all: its visibility and positions are such."""
    return isinstance(attention.positions, PLACED_POSITIONS) and all(
        isinstance(term, PLANNED_VISIBILITIES) for term in list_terms(attention.visibility))


def plan_sparse_work(attention: c.SelfAttention, context: Context, *, scale: float, dropout: float,
                     draw: Draw | None) -> SparseWork | None:
    """Return the work of an attention where a plan pays; None where dense attention is to be taken."""
    if not is_worth_planning(attention.visibility, context, draw is not None):
        return None
    key = ("plan", attention.visibility, attention.positions, attention.projection.heads,
           attention.global_maps is None, draw)
    stretches = context.once(key, lambda: list_stretches(attention, context, draw))
    by_head = draw is not None or len({(one.heads.start, one.heads.stop) for one in stretches}) > 1
    return SparseWork(stretches, scale, dropout, by_head)


def is_worth_planning(visibility: c.Visibility, context: Context, draw: bool) -> bool:
    """Say whether the plan of a visibility is faster than dense attention in a pass that plans, and can be made."""
    span, terms = context.span, list_terms(visibility)
    named = int(span.named.sum(1).max()) if span.named is not None and c.global_terms(visibility) else 0
    if visible_keys(visibility, span.keys) + 2 * named > LARGEST_SHARE * span.keys:
        return False
    unknown = span.prefix is None and any(isinstance(term, c.Prefix) for term in terms)
    several = span.named is None and len(set(c.global_terms(visibility))) > 1
    drawn = {term for term in terms if isinstance(term, c.RandomBlocks)} if draw else ()
    gaps = any(isinstance(term, c.Dilated | c.Strided) for term in terms)
    return not (unknown or several or len(drawn) > 1 or (draw and (gaps or differs_by_head(visibility)))
                or (gaps and counts_repeats(visibility)))


def list_stretches(attention: c.SelfAttention, context: Context, draw: Draw | None) -> list[Stretch]:
    """Return what every row of the pass is to do; packed rows follow each other."""
    span, layout = replace(context.span, padding=context.real_keys()), context.layout
    found, begin = [], 0
    tokens = find_global_positions(attention.visibility, context) if c.global_terms(attention.visibility) else None
    related = attention.positions if isinstance(attention.positions, c.GlobalLocal | c.T5Bias) else None
    groups = group_heads(attention.visibility, attention.projection.heads)
    slopes = (kept_slopes(attention.positions, attention.projection.heads)
              if isinstance(attention.positions, c.Alibi) else [])
    for number, (first, end) in enumerate(find_real_ranges(span, context.rows)):
        facts, place = find_facts(span, number, first, end), (slice(0, span.queries), slice(0, span.keys))
        if layout is not None:
            place = (slice(begin, begin + layout.lengths[number]),) * 2
            begin = place[0].stop
        for heads, visibility in groups:
            row = RowShape(visibility, span.queries, span.keys, span.start, span.memory, first, end,
                           None if span.prefix is None else int(span.prefix[number]),
                           tokens.of_row(number) if tokens else (), draw, related, tuple(slopes[heads]))
            tiles = plan_row(row, facts, span.device, rows=attention.global_maps is None)
            found.append(Stretch(0 if layout else number, heads, *place, tiles))
    return found


def group_heads(visibility: c.Visibility, heads: int) -> list[tuple[slice, c.Visibility]]:
    """Return the heads that see alike, and what they see."""
    if not differs_by_head(visibility):
        return [(slice(None), visibility)]
    found: list[tuple[slice, c.Visibility]] = []
    for head in range(heads):
        one = select_head(visibility, head, heads)
        begin = found.pop()[0].start if found and found[-1][1] == one else head
        found.append((slice(begin, head + 1), one))
    return found


def find_real_ranges(span: Span, rows: int) -> list[tuple[int, int]]:
    """Return the place of the first real key of each row, and the place after its last one."""
    if span.padding is None:
        return [(0, span.keys)] * rows
    real = span.padding.long()
    begins, ends = real.argmax(1), span.keys - real.flip(1).argmax(1)
    return [(int(first), int(end) if some else int(first))
            for first, end, some in zip(begins, ends, real.any(1), strict=True)]


def find_facts(span: Span, row: int, first: int, end: int) -> RowFacts:
    """Return what only tensors tell of a row."""
    real = None if span.padding is None else span.padding[row]
    holes = real is not None and not bool(real[first:end].all())
    documents = [None if x is None else x[row] for x in (span.query_documents, span.key_documents)]
    return RowFacts(real if holes else None, *documents)
