"""The blocks of a decoder lowered to a flat plan of kernel calls: from the parts of its config, and weights by names.

Nothing here knows families: each part of the config tree has its arm in a `match`, and the last arm names what the
kernels do not have. The decoder of an encoder-decoder has a second, short list of steps: what is done once with each
vector that the encoder gave.
Letters: D dim, E head width, H heads, P places, R distances, W rotated width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import numpy as np

from saucier import config as c
from saucier.config.questions import fits_any_length, list_key_widths, list_terms, name_sublayers
from saucier.config.visibility import is_causal
from saucier.errors import InputError
from saucier.native.matrices import Array, Matrix, Panels, Weights
from saucier.native.plan import (
    ACTIVATIONS,
    HEADS,
    HIDDEN,
    MIXED,
    NORMED,
    OTHER,
    RANKS,
    STREAM,
    Plan,
    Pointed,
    Relative,
    Step,
)

BY_PLACE = c.Causal | c.Full | c.Window | c.Dilated | c.Strided | c.Columns | c.BlockWindow
"""Terms of a visibility that depend on places alone."""


class Tables(Protocol):
    """Positions as tables, made by the parts that define them."""

    def turns(self, positions: c.Rotary, places: int, head: int) -> Array:
        """Return cosines, then sines. Shapes: -> [P, W], float32."""

    def biases(self, positions: c.Alibi | c.T5Bias, heads: int, places: int, table: Array | None) -> Array:
        """Return what is added to a score, by the distance to the key. Shapes: -> [H, P], float32."""

    def biases_of_both_sides(self, positions: c.Alibi | c.T5Bias, heads: int, places: int,
                             table: Array | None) -> Array:
        """Return the same by the place of the key less that of the query, 1 - P first. Shapes: -> [H, 2P - 1]."""

    def distances(self, positions: c.Disentangled, places: int, table: Array,
                  norm: Mapping[str, Array]) -> tuple[Array, Array]:
        """Return the vectors of distances after their norm, and which one each place of a query less that of a key has,
        1 - P first. Shapes: table [R, D] -> [R, D], [2P - 1] int32.
        """

    def waves(self, positions: c.Sinusoidal, places: int, dim: int) -> Array:
        """Return what is added to the token vectors. Shapes: -> [P, D], float32."""

    def visible(self, visibility: c.Visibility, places: int) -> Array:
        """Return which keys each place sees. Shapes: -> [P, P], uint8."""


def refuse(what: str) -> NoReturn:
    """Raise `InputError` for a part that the kernels do not have."""
    raise InputError(f"the native kernels have no {what}", where="engine", remedy="use engine=None")


def refuse_stack(stack: c.Stack) -> None:
    """Raise `InputError` for what goes through a stack beside one stream of vectors."""
    for found, what in ((isinstance(stack.layers, c.Funnel), "funnel"), (stack.residual.kind != "one", "two streams"),
                        (stack.memory is not None, "memory"), (stack.queries is not None, "second stream")):
        if found:
            refuse(what)


@dataclass
class Lowering:
    """A plan in the making."""

    config: c.Transformer
    weights: Weights
    tables: Tables
    places: int
    used: set[str] = field(default_factory=set)
    widths: list[int] = field(default_factory=lambda: [0] * 8)
    steps: list[Step] = field(default_factory=list)
    kept: int = 0
    """Keys of a token that the attentions so far keep."""
    key_widths: list[tuple[int, int]] = field(default_factory=list)
    """Key heads and head width of each attention to the source."""
    source: Lowering | None = None
    """What is done once with each vector of a source."""
    seen: dict[c.Visibility, Array] = field(default_factory=dict)

    def plan(self) -> Plan:
        """Return what was made."""
        stack = self.config.decoder
        assert stack is not None, "lower() refuses others"
        source = self.source or Lowering(self.config, self.weights, self.tables, 0)
        widths, others = (tuple(one) for one in (list_key_widths(stack, self.config.dim), source.key_widths))
        paired = self.weights.is_rounded and all(head % 2 == 0 for _, head in widths + others)
        return Plan(tuple(self.steps), tuple(self.widths), widths, self.places, self.config.output_embed.vocab,
                    tuple(source.steps), self.config.reader_dim, others, "bfloat16" if paired else "float32")

    def add(self, kind: str, what: str, *, source: int, to: int, width: int, matrix: Matrix | Panels | None = None,
            arrays: Mapping[str, Pointed] | None = None, **numbers: float) -> None:
        """Append a step that leaves `width` numbers in the buffer `to`."""
        self.widths[to] = max(self.widths[to], width)
        self.steps.append(Step(kind, what, {"source": source, "to": to, "width": width} | numbers, matrix,
                               arrays or {}))

    def vector(self, name: str, *shape: int) -> Array | None:
        """Return a gain, a bias or vectors whose last sizes are these, counted as used."""
        self.used.add(name)
        found = self.weights.vector(name)
        if found is not None and found.shape[found.ndim - len(shape):] != shape:
            refuse(f"{name} of the shape {list(found.shape)}")
        return found

    def table(self, name: str, width: int, rows: int) -> Matrix:
        """Return a table of vectors with so many rows at least, counted as used."""
        self.count_used(name)
        found = self.weights.table(name, width)
        if found.inputs != width or found.rows < rows:
            refuse(f"table of {found.rows} × {found.inputs} numbers in place of {name}")
        return found

    def norm(self, norm: c.Norm, name: str, source: int, to: int, width: int | None = None) -> None:
        """Append a norm."""
        match norm:
            case c.LayerNorm(eps=eps) | c.PlainLayerNorm(eps=eps):
                kind = 0
            case c.RMSNorm(eps=eps):
                kind = 1
            case _:
                refuse(f"norm of kind {norm.kind}")
        width = width or self.config.dim
        arrays = {"gain": self.vector(f"{name}.weight", width), "bias": self.vector(f"{name}.bias", width)}
        self.add("norm", name, source=source, to=to, width=width, norm=kind, eps=eps, arrays=arrays)

    def count_used(self, name: str) -> None:
        """Count a matrix as used, however it is stored."""
        self.used |= {f"{name}.{part}" for part in ("weight", "codes", "scales", "zeros", "index", "input_scale")}

    def product(self, name: str, sizes: tuple[int, int], source: int, to: int, *, activation: str = "identity",
                adds: bool = False) -> None:
        """Append a map from and to these widths, or the two of a map of low rank."""
        inputs, outputs = sizes
        if f"{name}.first.weight" in self.weights.arrays:
            rank = self.weights.panels(f"{name}.first", inputs).rows
            self.product(f"{name}.first", (inputs, rank), source, RANKS)
            name, inputs, source = f"{name}.second", rank, RANKS
        matrix, bias = self.read_map(name, inputs, outputs)
        self.add("product", name, source=source, to=to, width=outputs, matrix=matrix, arrays={"bias": bias},
                 activation=find_activation(activation), adds=int(adds))

    def read_map(self, name: str, inputs: int, outputs: int) -> tuple[Panels, Array | None]:
        """Return the matrix and the bias of a map, counted as used."""
        bias = self.vector(f"{name}.bias")
        if bias is not None and len(bias) != outputs:
            refuse(f"bias for some rows of {name} alone")
        name = f"{name}.table" if f"{name}.table.codes" in self.weights.arrays else name  # an output layer in few bits
        self.count_used(name)
        matrix = self.weights.panels(name, inputs)
        if (matrix.rows, matrix.inputs) != (outputs, inputs):
            refuse(f"map of {matrix.inputs} to {matrix.rows} numbers in place of {name}")
        return matrix, bias

    def add_places(self, name: str, table: Matrix, places: c.Places, to: int) -> None:
        """Append the addition of a row of a table for the place of each token."""
        self.count_used(name)
        offset, padding = first_row(places)
        if len(table.codes) < self.places + offset:
            raise InputError(f"{self.places} tokens, and {name} has {len(table.codes) - offset} places",
                             where="max_new_tokens", remedy="write less")
        self.add("places", name, source=to, to=to, width=table.inputs, matrix=table, offset=offset, padding=padding)

    def run_stack(self, stack: c.Stack) -> None:
        """Append all blocks."""
        refuse_stack(stack)
        if stack.convolution is not None:
            refuse("convolution next to a cache")
        for number, (block, stored) in enumerate(zip(stack.blocks(), stack.layers.order(), strict=True)):
            if block.bottleneck is not None:
                refuse("bottleneck")
            if stack.layer_positions is not None:
                name = f"decoder.positions.{number}"
                self.add_places(name, self.table(name, self.config.dim, 1), stack.layer_positions.places, STREAM)
            self.run_block(block, f"decoder.blocks.{stored}")

    def run_block(self, block: c.Block, name: str) -> None:
        """Append the sublayers of a block; those that are parallel read what the one before them reads."""
        named = list(name_sublayers(block).items())
        while named:
            (first, residual), *rest = named
            parallel = []
            while rest and isinstance(rest[0][1], c.Parallel):
                parallel.append(rest.pop(0))
            self.run_residual(residual, f"{name}.{first}", [(f"{name}.{one}", at) for one, at in parallel])
            named = rest

    def run_residual(self, residual: c.Residual, name: str, parallel: list[tuple[str, Any]]) -> None:
        """Append a sublayer with its norms, and those that are parallel to it."""
        match residual:
            case c.PreNorm(norm=norm, inner=inner):
                if (read := STREAM if norm.kind == "identity" else NORMED) == NORMED:
                    self.norm(norm, f"{name}.norm", STREAM, NORMED)
                if len([one for _, one in parallel if one.norm is not None]) > 1:
                    refuse("room for more than one parallel sublayer with a norm of its own")
                for other, one in parallel:
                    if one.norm is not None:
                        self.norm(one.norm, f"{other}.norm", STREAM, OTHER)
                if parallel and read == STREAM:
                    refuse("parallel sublayers without a norm")
                self.run_inner(inner, f"{name}.inner", read, STREAM, adds=True)
                for other, one in parallel:
                    self.run_inner(one.inner, f"{other}.inner", OTHER if one.norm else NORMED, STREAM, adds=True)
            case c.PostNorm(norm=norm, inner=inner):
                self.run_inner(inner, f"{name}.inner", STREAM, STREAM, adds=True)
                self.norm(norm, f"{name}.norm", STREAM, STREAM)
            case c.SandwichNorm(norm=norm, inner=inner):
                self.norm(norm, f"{name}.norm", STREAM, NORMED)
                self.run_inner(inner, f"{name}.inner", NORMED, OTHER, adds=False)
                self.norm(norm, f"{name}.norm_after", OTHER, OTHER)
                self.add("add", name, source=OTHER, to=STREAM, width=self.config.dim)
            case c.FromNorm(norm=norm, inner=inner):
                self.norm(norm, f"{name}.norm", STREAM, STREAM)
                self.run_inner(inner, f"{name}.inner", STREAM, STREAM, adds=True)
            case c.Skip(inner=inner):
                self.run_inner(inner, f"{name}.inner", STREAM, STREAM, adds=True)
            case _:
                refuse(f"residual of kind {residual.kind}")

    def run_inner(self, inner: c.Sublayer, name: str, source: int, to: int, *, adds: bool) -> None:
        """Append a sublayer."""
        dim = self.config.dim
        match inner:
            case c.SelfAttention():
                self.attend(inner, name, source, to, adds=adds)
            case c.CrossAttention():
                self.attend_source(inner, name, source, to, adds=adds)
            case c.Experts():
                self.run_experts(inner, name, source, to, adds=adds)
            case c.FeedForward(hidden=hidden, activation=activation):
                self.product(f"{name}.up", (dim, hidden), source, HIDDEN, activation=activation)
                self.product(f"{name}.down", (hidden, dim), HIDDEN, to, adds=adds)
            case c.GatedFeedForward(hidden=hidden, activation=activation):
                self.product(f"{name}.up", (dim, 2 * hidden), source, HIDDEN)
                self.add("gate", name, source=HIDDEN, to=HIDDEN, width=hidden, activation=find_activation(activation))
                self.product(f"{name}.down", (hidden, dim), HIDDEN, to, adds=adds)
            case _:
                refuse(f"sublayer of kind {inner.kind}")

    def run_experts(self, experts: c.Experts, name: str, source: int, to: int, *, adds: bool) -> None:
        """Append the scores of the experts, and the work of those that are chosen."""
        inner, dim, gated = experts.inner, self.config.dim, isinstance(experts.inner, c.GatedFeedForward)
        if inner.ranks is not None:
            refuse("experts with maps of low rank")
        router = f"{name}.router"
        self.count_used(router)
        matrix = self.weights.panels(router, dim, "float32")  # its vectors are not rounded
        if (matrix.rows, matrix.inputs) != (experts.count, dim):
            refuse(f"map of {matrix.inputs} to {matrix.rows} numbers in place of {router}")
        self.add("product", router, source=source, to=RANKS, width=experts.count + dim, matrix=matrix,
                 arrays={"bias": self.vector(f"{router}.bias", experts.count)})
        rows = inner.hidden * (1 + gated)
        maps = [self.read_map(f"{name}.experts.{number}.{one}", *sizes) for number in range(experts.count)
                for one, sizes in (("up", (dim, rows)), ("down", (inner.hidden, dim)))]
        biases = [None if bias is None else np.stack([bias, *(one for _, one in maps[2 + first::2] if one is not None)])
                  for first, (_, bias) in enumerate(maps[:2])]
        for buffer, width in ((HEADS, dim), (HIDDEN, rows), (MIXED, dim)):
            self.widths[buffer] = max(self.widths[buffer], width)
        self.add("experts", name, source=source, to=to, width=dim, adds=int(adds), experts=experts.count, arrays={
            "experts": tuple(matrix for matrix, _ in maps), "bias": biases[0], "second": biases[1]},
            activation=find_activation(inner.activation), gated=int(gated), hidden=inner.hidden,
            top=experts.router.top, renormalized=int(isinstance(experts.router, c.SoftmaxOfTop)),
            capacity=experts.capacity or 0)

    def make_heads(self, attention: c.SelfAttention, name: str, source: int) -> tuple[int, int, int]:
        """Append the map to queries, keys and values; return the heads, those of keys, and their width."""
        if not isinstance(attention.kernel, c.Softmax) or attention.global_maps is not None:
            refuse(f"attention with the kernel {attention.kernel.kind}" if attention.global_maps is None
                   else "maps for global tokens")
        query, key, head = attention.projection.widths(self.config.dim)
        for one in (f"{name}.qkv.bias", f"{name}.qkv.second.bias"):
            bias = None if attention.projection.key_bias else self.weights.vector(one)
            if bias is not None and len(bias) == query + key:  # of queries and values alone
                self.weights.made[one] = np.insert(bias, query, np.zeros(key, np.float32))
        self.product(f"{name}.qkv", (self.config.dim, query + 2 * key), source, HEADS)
        return query // head, key // head, head

    def attend(self, attention: c.SelfAttention, name: str, source: int, to: int, *, adds: bool) -> None:
        """Append an attention: its maps, its positions, the cache, and the output map."""
        heads, groups, head = self.make_heads(attention, name, source)
        query, key, scale = heads * head, groups * head, attention.projection.scale or head**-0.5
        bias, relative = None, None
        match attention.positions:
            case c.NoPositions():
                pass
            case c.Rotary() as rotary:
                self.rotate(rotary, f"{name}.positions", heads + groups * (2 if rotary.values else 1), head)
            case c.Alibi() | c.T5Bias() as biased:
                table = self.weights.vector("decoder.shared.weight")
                bias = self.tables.biases(biased, heads, self.places, table)
                if len(bias) != heads:
                    refuse(f"biases of {len(bias)} heads in place of {heads}")
            case c.Shaw() | c.RelativeVectors() | c.MusicTransformer() as vectors:
                relative = self.read_relative(vectors, f"{name}.positions", head, scale)
            case _:
                refuse(f"attention with positions of kind {attention.positions.kind}")
        window = find_window(visibility := attention.visibility)
        if window is None and visibility not in self.seen:
            self.seen[visibility] = self.tables.visible(visibility, self.places)
        self.add("attend", name, source=HEADS, to=MIXED, width=query, heads=heads, groups=groups, head=head,
                 slot=self.kept, window=window or 0, scale=scale, reach=self.places,
                 arrays={"table": bias, "relative": relative, "seen": self.seen.get(visibility)})
        self.kept += key
        self.product(f"{name}.out", (query, self.config.dim), MIXED, to, adds=adds)

    def rotate(self, rotary: c.Rotary, name: str, heads: int, head: int) -> None:
        """Append the rotation of the first heads of a token. Raises `InputError` beyond what one table can hold."""
        match rotary.scaling:
            case c.DynamicScaling(length=length) | c.LongRope(length=length) if self.places > length:
                raise InputError(f"{self.places} tokens, and with the scaling {rotary.scaling.kind} the frequencies of "
                                 f"texts of more than {length} tokens depend on their length", where="engine",
                                 remedy="write less, or use engine=None")
        width = rotary.width(head)
        self.add("rotate", name, source=HEADS, to=HEADS, width=heads * head, heads=heads, head=head, turned=width,
                 neighbours=int(rotary.pairs.kind == "neighbours"),
                 arrays={"table": self.tables.turns(rotary, self.places, head)})

    def read_relative(self, positions: c.Shaw | c.RelativeVectors | c.MusicTransformer, name: str, head: int,
                      scale: float) -> Relative:
        """Return the vectors of the distances to earlier keys, the nearest first; `scale`: that of the scores.

        Raises `InputError` where there are fewer than places.
        """
        if positions.longest is not None and self.places > positions.longest:
            raise InputError(f"{self.places} tokens, and {name} has {positions.longest} distances",
                             where="max_new_tokens", remedy="write less")
        keys = self.vector(f"{name}.keys" if isinstance(positions, c.Shaw) else f"{name}.weight", head)
        values = self.vector(f"{name}.values", head)
        assert keys is not None, "every kind has vectors"
        match positions:
            case c.Shaw(max_distance=reach):
                assert values is not None, "they have values too"
                first, second = (np.ascontiguousarray(one[reach::-1]) for one in (keys, values))
                return Relative(first[None], scale, second)
            case c.RelativeVectors(length=length):
                return Relative(np.ascontiguousarray(keys[None, length - 1:]), positions.scale or scale,
                                meets_key=positions.kind == "relative_key_query")
            case c.MusicTransformer():
                return Relative(np.ascontiguousarray(keys[:, ::-1]), scale)

    def attend_source(self, attention: c.CrossAttention, name: str, source: int, to: int, *, adds: bool) -> None:
        """Append an attention to a source, and to the steps of the source its keys and values."""
        if self.config.encoder is None:
            refuse("attention to an encoder that is not there")
        query, key, head = attention.projection.widths(self.config.dim)
        if self.source is None:
            self.source = Lowering(self.config, self.weights, self.tables, 0, self.used, self.widths)
            self.widths[STREAM] = max(self.widths[STREAM], self.config.reader_dim)
            if self.config.encoder_dim is not None:
                self.source.product("bridge", (self.config.encoder_dim, self.config.dim), STREAM, NORMED)
        reader, read = self.source, STREAM if self.config.encoder_dim is None else NORMED
        sizes: dict[str, Any] = {"heads": query // head, "groups": key // head, "head": head, "slot": reader.kept}
        reader.product(f"{name}.kv", (self.config.dim, 2 * key), read, HEADS)
        reader.add("keep", name, source=HEADS, to=HEADS, width=2 * key, **sizes)
        reader.key_widths.append((key // head, head))
        reader.kept += key
        self.product(f"{name}.q", (self.config.dim, query), source, HEADS)
        self.add("cross", name, source=HEADS, to=MIXED, width=query, scale=attention.projection.scale or head**-0.5,
                 **sizes)
        self.product(f"{name}.out", (query, self.config.dim), MIXED, to, adds=adds)

def find_activation(name: str) -> int:
    """Return the number of an activation in C. Raises `InputError` for one that is not there."""
    return ACTIVATIONS[name] if name in ACTIVATIONS else refuse(f"activation {name}")


def first_row(places: c.Places) -> tuple[int, int]:
    """Return the row of the first place in a table of positions, and the token that has its own row; -1: none."""
    return (places.padding + 1, places.padding) if isinstance(places, c.SkipPadding) else (places.offset, -1)


def find_window(visibility: c.Visibility) -> int | None:
    """Return how many last keys a query sees, 0: all; None for other patterns. Raises `InputError` for the unknown."""
    match visibility:
        case c.Causal():
            return 0
        case c.Combined(kind="and", terms=(c.Causal(), c.Window(size=size)) | (c.Window(size=size), c.Causal())):
            return int(size)
    if not is_causal(visibility) or not fits_any_length(visibility) or not all(
            isinstance(term, BY_PLACE) or term.kind in ("and", "or") for term in list_terms(visibility)):
        refuse(f"attention with the visibility {visibility.kind}")
    return None
