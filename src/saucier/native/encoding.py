"""Stacks that read whole rows, lowered to a plan, and that plan at work: encoders, and decoders without a cache.

It begins with the vectors that the embedding gives, which has a plan of its own, and ends with the last hidden ones.
Rows lie one after the other without padding; products are of all tokens of a pass at once (`csrc/rows.c`), so that
reading the weights costs little.
Letters: T tokens, R rows, D dim, H heads, P places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from ctypes import byref
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from saucier import config as c
from saucier.config.questions import find_shared_positions
from saucier.native.decoders import lower_embedding
from saucier.native.library import (
    BUFFERS,
    PANEL_ROWS,
    QUERIES_AT_ONCE,
    TILE_TOKENS,
    CBatch,
    CWorkspace,
    load_library,
)
from saucier.native.lowering import Lowering, Tables, refuse, refuse_stack
from saucier.native.matrices import Weights, aligned_zeros, lay_out_panels, make_tiles, read_matrix, store_matrix
from saucier.native.plan import (
    HEADS,
    HIDDEN,
    MIXED,
    NORMED,
    SCORES,
    STREAM,
    Distances,
    PassBuffers,
    Plan,
    count_inputs,
)

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
KINDS = frozenset({"norm", "product", "rotate", "attend_rows", "gate", "activate", "add", "scale", "experts",
                   "neighbours", "embed", "places", "segments"})
"""Steps that `csrc/encode.c` runs."""
LOOKED_UP = {"embed": "ids", "places": "places", "segments": "segments"}
"""Step that reads rows of a table -> the field of `Batch` with their numbers."""
MOST_TOKENS = 288
"""Tokens of a pass, unless one row alone has more: what the next step reads is still in the third cache."""
LEAST_TOKENS = 64
"""Tokens that each thread must have to run passes of its own."""
THREAD_TOKENS = 192
"""Tokens of such a pass, on average at most: more of them end at about the same time."""
LONGEST_WAIT = 1.1
"""How many times as long as all threads on average the last one may take then."""


class Rows(NamedTuple):
    """Rows that lie one after the other."""

    vectors: Floats
    """[T, D]."""
    starts: Ints
    """[R + 1]: the first token of each row."""
    positions: Ints
    """[T]."""


def lower_stack(config: c.Transformer, weights: Weights, tables: Tables, places: int) -> Plan:
    """Return the plan of a model's encoder, or of the decoder of a model without one, for rows of `places` tokens.

    Raises `InputError` for parts that the kernels do not have, and for weights that the plan has no place for.
    """
    side, stack = ("encoder", config.encoder) if config.encoder else ("decoder", config.decoder)
    assert stack is not None, "check() refuses a model without stacks"
    lowering = RowLowering(config.model_copy(update={"dim": config.reader_dim}), weights, tables, places)
    lowering.side = side
    try:
        lowering.run_stack(stack)
    except KeyError as error:
        refuse(f"way to use the model without a plain {error.args[0]}")
    used = lowering.used | ({f"{side}.shared.weight"} if find_shared_positions(stack) else set())
    if left := sorted(one for one in weights.arrays.keys() - used if one.startswith(f"{side}.")):
        refuse(f"place for the weight {left[0]}" + (f" and {len(left) - 1} more" if len(left) > 1 else ""))
    return lowering.plan()


def lower_tokens(config: c.Transformer, weights: Weights, tables: Tables, places: int) -> Plan:
    """Return the plan that gives tokens the vectors that a stack reads, for tables of `places` where they are computed.

    Raises `InputError` for parts that the kernels do not have.
    """
    lowering = RowLowering(config.model_copy(update={"dim": config.reader_dim}), weights, tables, places)
    lower_embedding(lowering, config.embed, "embed", add_segments)
    return lowering.plan()


def add_segments(lowering: Lowering, embed: c.Embedding, name: str, *, to: int, width: int) -> None:
    """Append the addition of the vector of each token's segment."""
    if isinstance(embed.segments, c.SegmentTable | c.FirstSegment):
        lowering.add("segments", f"{name}.segments", source=to, to=to, width=width,
                     matrix=lowering.table(f"{name}.segments", width, embed.segments.count))


class RowLowering(Lowering):
    """A plan of whole rows: matrices in panels, and attention among the tokens of a row in place of a cache."""

    side = "encoder"
    """The stack's name in the model."""

    def plan(self) -> Plan:
        """Return what was made. Raises `InputError` for steps that take no whole rows."""
        for step in self.steps:
            if step.kind not in KINDS:
                refuse(f"{step.kind} for whole rows ({step.what})")
        return Plan(tuple(self.steps), tuple(self.widths), (), self.places, 0)

    def run_stack(self, stack: c.Stack) -> None:
        """Append all blocks, and what follows the last one."""
        refuse_stack(stack)
        if stack.layer_positions is not None:
            refuse("positions of every layer among whole rows")
        self.widths[STREAM] = self.config.dim
        for number, (block, stored) in enumerate(zip(stack.blocks(), stack.layers.order(), strict=True)):
            if block.bottleneck is not None:
                refuse("bottleneck")
            convolution = None if number else stack.convolution
            if convolution is not None:
                self.convolve(convolution, f"{self.side}.convolution")
            self.run_block(block, f"{self.side}.blocks.{stored}")
            if convolution is not None:
                self.add("add", f"{self.side}.convolution", source=SCORES, to=STREAM, width=self.config.dim)
                self.norm(convolution.norm, f"{self.side}.convolution.norm", STREAM, STREAM)
        if stack.final_norm is not None:
            self.norm(stack.final_norm, f"{self.side}.final_norm", STREAM, STREAM)
        if stack.narrow is not None:
            self.product(f"{self.side}.narrow", (self.config.dim, stack.narrow), STREAM, NORMED)

    def convolve(self, convolution: c.Convolution, name: str) -> None:
        """Append a convolution of the stream: its result waits where no block looks."""
        dim, size, form = self.config.dim, convolution.size, self.weights.form
        if f"{name} panels" not in self.weights.made:
            weight, groups = self.vector(f"{name}.weight"), convolution.groups
            assert weight is not None, "it has a kernel"
            apart = weight.reshape(groups, dim // groups, dim // groups, size).swapaxes(2, 3)
            whole, each = np.zeros((groups, dim // groups, size, groups, dim // groups), np.float32), np.arange(groups)
            whole[each, :, :, each] = apart
            self.weights.made[f"{name} panels"] = lay_out_panels(store_matrix(whole.reshape(dim, size * dim), form))
        self.add("neighbours", name, source=STREAM, to=HIDDEN, width=size * dim, before=size // 2, after=size // 2)
        self.product(name, (size * dim, dim), HIDDEN, SCORES, activation=convolution.activation)

    def attend(self, attention: c.SelfAttention, name: str, source: int, to: int, *, adds: bool) -> None:
        """Append an attention: its maps, its positions, the tokens of the row, and the output map."""
        heads, groups, head = self.make_heads(attention, name, source)
        query, bias, distances = heads * head, None, None
        scale = attention.projection.scale or head**-0.5
        match attention.positions:
            case c.NoPositions():
                pass
            case c.Disentangled() as disentangled:
                scale = attention.projection.scale or (disentangled.terms * head)**-0.5
                distances = self.read_distances(disentangled, attention.projection, name, scale)
            case c.Rotary() as rotary:
                self.rotate(rotary, f"{name}.positions", heads + groups * (2 if rotary.values else 1), head)
            case c.Alibi() | c.T5Bias() as biased:
                table = self.weights.vector(f"{self.side}.shared.weight")
                bias = self.tables.biases_of_both_sides(biased, heads, self.places, table)
            case _:
                refuse(f"attention with positions of kind {attention.positions.kind}")
        before, after = find_reach(attention.visibility, self.places)
        self.add("attend_rows", name, source=HEADS, to=MIXED, width=query, heads=heads, groups=groups, head=head,
                 before=before, after=after, scale=scale, reach=self.places, rounded=self.weights.form != "float32",
                 arrays={"table": bias, "distances": distances})
        self.product(f"{name}.out", (query, self.config.dim), MIXED, to, adds=adds)

    def read_distances(self, positions: c.Disentangled, projection: c.Projection, name: str,
                       scale: float) -> Distances:
        """Return the vectors of distances that queries meet, and those that keys meet, for rows of any length.

        They are in the order of the places that are met, so that what a token gives with them lies side by side.
        """
        table = self.vector(f"{self.side}.shared.weight", self.config.dim)
        assert table is not None, "a stack with such positions has their table"
        norm = {part: found for part in ("weight", "bias")
                if (found := self.vector(f"{self.side}.shared.norm.{part}", self.config.dim)) is not None}
        table, rows = self.tables.distances(positions, self.places, table, norm)
        own, made = isinstance(positions.maps, c.OwnMaps), self.weights.made
        for what, used in (("key", positions.content_to_position), ("query", positions.position_to_content)):
            source, vectors = f"{name}.positions.{what}" if own else f"{name}.qkv", f"{name} {what} of distances"
            self.used |= {one for one in self.weights.arrays if used and one.startswith(f"{source}.")}
            if used and vectors not in made:
                mapped = self.map_distances(projection, source, what, table) * np.float32(scale)
                made[vectors] = lay_out_panels(store_matrix(mapped[::-1] if what == "key" else mapped, "float32"))
        keys, queries = (made.get(f"{name} {what} of distances") for what in ("key", "query"))
        return Distances(keys, queries, np.stack([len(table) - 1 - rows[::-1], rows]))

    def map_distances(self, projection: c.Projection, source: str, what: str, table: Floats) -> Floats:
        """Return the keys or the queries of distances, of all heads side by side. Shapes: table [R, D] -> [R, H·E]."""
        query, key, head = projection.widths(self.config.dim)
        part = slice(query, query + key) if what == "key" and source.endswith(".qkv") else slice(query)
        mapped = map_stored(self.weights, source, table, part)
        return np.repeat(mapped.reshape(len(table), -1, head), query // mapped.shape[1], 1).reshape(len(table), query)


def find_reach(visibility: c.Visibility, places: int) -> tuple[int, int]:
    """Return how many tokens before it, and after it, a query sees in a row of up to `places`."""
    match visibility:
        case c.Full():
            return places, places
        case c.Causal():
            return places, 0
        case c.Window(size=size):
            return size - 1, size - 1
        case c.Combined(kind="and", terms=terms):
            befores, afters = zip(*(find_reach(term, places) for term in terms), strict=True)
            return min(befores), min(afters)
        case _:
            return refuse(f"attention with the visibility {visibility.kind}")


def map_stored(weights: Weights, name: str, vectors: Floats, part: slice) -> Floats:
    """Return some outputs of a map, whose weights are not rounded but as they are stored. Shapes: [R, D] -> [R, O]."""
    if f"{name}.first.weight" in weights.arrays:
        name, vectors = f"{name}.second", map_stored(weights, f"{name}.first", vectors, slice(None))
    matrix = read_matrix(weights.arrays, name, vectors.shape[1], weights.stored_format(name))
    bias = weights.vector(f"{name}.bias")
    found: Floats = vectors @ matrix.values()[part].astype(np.float32).T
    return found if bias is None else found + bias[part]


def encode(plan: Plan, vectors: Floats, starts: Ints, positions: Ints, *, threads: int,
           path: str | None = None) -> Floats:
    """Return the last hidden vectors of rows that lie one after the other; `path`: None: the fastest instruction set.

    Shapes: vectors [T, D], starts [R + 1] the first token of each row, positions [T] -> [T, width of the stack].
    """
    found = np.empty((len(vectors), int(plan.steps[-1].numbers["width"])), np.float32)
    split = split_for_threads(starts, threads)
    passes = split or list(cut_passes(starts))
    longest = max((int(starts[end] - starts[first]) for first, end in passes), default=0)
    held = [take_buffers(plan, longest) for _ in range(threads if split else 1)]
    run_passes(plan, Rows(vectors, starts, positions), passes, threads, path, held, found)
    plan.spare.extend(one for one in held if len(one.buffers[0]) == MOST_TOKENS)
    return found


def embed_rows(plan: Plan, rows: Mapping[str, Ints], *, threads: int, path: str | None = None) -> Floats:
    """Return the vectors of tokens; `rows`: kind of a step -> the rows of its table, of which there are enough.

    Shapes: [T] each -> [T, D].
    """
    tokens = len(rows["embed"])
    held = PassBuffers([np.empty((tokens, width), np.float32) for width in plan.widths],
                       [make_tiles(tokens, count_inputs(plan.steps))] * 2)
    batch = CBatch(workspace=describe_workspace(plan, held), tokens=tokens, rows=1, **{
        field: rows[kind].ctypes.data for kind, field in LOOKED_UP.items() if kind in rows})
    run_batches(plan, [batch], [], threads, path)
    return held.buffers[STREAM]


def take_buffers(plan: Plan, tokens: int) -> PassBuffers:
    """Return room for passes of so many tokens: what an earlier call left, where these are no more than usual."""
    if tokens <= MOST_TOKENS:
        with suppress(IndexError):  # threads that read at once have rooms of their own
            return plan.spare.pop()
    size = max(tokens, MOST_TOKENS)
    return PassBuffers([np.empty((size, width), np.float32) for width in plan.widths],
                       [make_tiles(size, count_inputs(plan.steps)) for _ in range(2)])


def cut_passes(starts: Ints) -> Iterator[tuple[int, int]]:
    """Cut rows into passes of at most `MOST_TOKENS` tokens, one row at least; yields (first row, row after the last).
    """
    first, rows = 0, len(starts) - 1
    while first < rows:
        end = max(first + 1, int(np.searchsorted(starts, starts[first] + MOST_TOKENS, "right")) - 1)
        yield first, end
        first = end


def split_for_threads(starts: Ints, threads: int) -> list[tuple[int, int]]:
    """Cut rows into passes that threads run at once, each by itself; none where some would wait long for the others,
    or each would read the weights for a few tokens.

    A token's numbers are the same either way.
    """
    tokens = int(starts[-1])
    if threads < 2 or tokens < threads * LEAST_TOKENS:
        return []
    rounds, longest = -(-tokens // (threads * THREAD_TOKENS)), max(MOST_TOKENS, int(np.diff(starts).max()))
    while (starts[(ends := split_evenly(starts, rounds * threads))[1:]] - starts[ends[:-1]]).max() > longest:
        rounds += 1
    spent = [0] * threads  # whoever is free takes the next pass
    for first, end in pairwise(ends.tolist()):
        spent[spent.index(min(spent))] += int(starts[end] - starts[first])
    return list(pairwise(ends.tolist())) if max(spent) * threads <= LONGEST_WAIT * tokens else []


def split_evenly(starts: Ints, parts: int) -> NDArray[np.int64]:
    """Cut rows into parts of about as many tokens; returns the first row of each, and how many rows there are."""
    shares = int(starts[-1]) * np.arange(1, parts) / parts
    nearest = np.searchsorted((starts[:-1] + starts[1:]) / 2, shares)  # the row that begins closest to a share
    return np.unique(np.concatenate([[0], nearest, [len(starts) - 1]]))


def run_passes(plan: Plan, rows: Rows, passes: Sequence[tuple[int, int]], threads: int, path: str | None,
               held: list[PassBuffers], found: Floats | None = None) -> None:
    """Run a plan for some rows at a time, with several `held` by as many threads at once; `found`: [T, width], or None:
    what the last pass found stays in its buffer.
    """
    vectors, starts, positions = rows
    assert vectors.shape[1] == plan.widths[STREAM], "the first step reads whole vectors"
    vectors, positions = np.ascontiguousarray(vectors, np.float32), np.ascontiguousarray(positions, np.int32)
    wide = count_attention_room(plan, int(np.diff(starts).max(initial=0)))
    attention = aligned_zeros((threads, wide), np.float32)
    workspaces = [describe_workspace(plan, one, attention[number:]) for number, one in enumerate(held)]
    batches, kept = [], []
    for first, end in passes:
        part = slice(int(starts[first]), int(starts[end]))
        kept.append(np.ascontiguousarray(starts[first:end + 1] - starts[first], np.int32))
        batches.append(CBatch(
            workspace=workspaces[0], tokens=part.stop - part.start, rows=end - first, starts=kept[-1].ctypes.data,
            places=positions[part].ctypes.data, vectors=vectors[part].ctypes.data,
            found=None if found is None else found[part].ctypes.data))
    run_batches(plan, batches, workspaces if len(workspaces) > 1 else [], threads, path)


def run_pass(plan: Plan, vectors: Floats, starts: Ints, positions: Ints, threads: int, path: str | None,
             held: PassBuffers) -> None:
    """Run a plan once for all rows; the buffers hold what it found."""
    run_passes(plan, Rows(vectors, starts, positions), [(0, len(starts) - 1)], threads, path, [held])


def describe_workspace(plan: Plan, held: PassBuffers, attention: Floats | None = None) -> CWorkspace:
    """Return where a pass writes to."""
    found = CWorkspace(attention=None if attention is None else attention.ctypes.data,
                 attention_stride=0 if attention is None else attention.shape[1])
    for number, (tiles, scales) in enumerate(held.rooms):
        found.tiles[number], found.token_scales[number] = tiles.ctypes.data, scales.ctypes.data
    for number in range(BUFFERS):
        found.buffers[number], found.strides[number] = held.buffers[number].ctypes.data, plan.widths[number]
    return found


def run_batches(plan: Plan, batches: list[CBatch], workspaces: list[CWorkspace], threads: int,
                path: str | None) -> None:
    """Run a plan for each batch, all at once where threads have workspaces."""
    library = load_library()
    library.saucier_encode(
        path.encode() if path else library.saucier_best_path(), byref(plan.struct), (CBatch * len(batches))(*batches),
        len(batches), (CWorkspace * len(workspaces))(*workspaces) if workspaces else None, threads)


def count_attention_room(plan: Plan, longest: int) -> int:
    """Return the numbers that attention among the tokens of a row needs: keys, values and scores, in whole panels; of
    distances what they add to the scores of some queries, and what these meet.
    """
    steps = [step for step in plan.steps if step.kind == "attend_rows"]
    keys, head = (round_up(count, 2 * PANEL_ROWS) for count in (
        longest, max((int(step.numbers["head"]) for step in steps), default=0)))
    room = keys * (2 * head + PANEL_ROWS) + PANEL_ROWS * head
    met = [one.vectors for step in steps for one in step.arrays.values() if isinstance(one, Distances)]
    return room + (QUERIES_AT_ONCE * (keys + PANEL_ROWS) + TILE_TOKENS * round_up(max(met)) if met else 0)


def round_up(count: int, whole: int = PANEL_ROWS) -> int:
    """Return the rows of as many panels, or other wholes, as so many rows take."""
    return -(-count // whole) * whole
