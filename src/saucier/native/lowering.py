"""A decoder lowered to a flat plan of kernel calls: from the parts of its config, and its weights by their names.

Nothing here knows families: each part of the config tree has its arm in a `match`, and the last arm names what the
kernels do not have. Every weight must find its place in the plan, so that nothing is left out silently.
Letters: D dim, E head width, H heads, P places, W rotated width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from saucier import config as c
from saucier.config.questions import find_shared_positions, list_key_widths, name_sublayers
from saucier.errors import InputError
from saucier.native.matrices import Array, Matrix, Panels, Weights, store_matrix
from saucier.native.plan import (
    ACTIVATIONS,
    HEADS,
    HIDDEN,
    MIXED,
    NORMED,
    OTHER,
    RANKS,
    SCORES,
    STREAM,
    Plan,
    Step,
)


class Tables(Protocol):
    """Positions as tables, made by the parts that define them."""

    def turns(self, positions: c.Rotary, places: int, head: int) -> Array:
        """Return cosines, then sines. Shapes: -> [P, W], float32."""

    def biases(self, positions: c.Alibi | c.T5Bias, heads: int, places: int, table: Array | None) -> Array:
        """Return what is added to a score, by the distance to the key. Shapes: -> [H, P], float32."""

    def biases_of_both_sides(self, positions: c.Alibi | c.T5Bias, heads: int, places: int,
                             table: Array | None) -> Array:
        """Return the same by the place of the key less that of the query, 1 - P first. Shapes: -> [H, 2P - 1]."""

    def waves(self, positions: c.Sinusoidal, places: int, dim: int) -> Array:
        """Return what is added to the token vectors. Shapes: -> [P, D], float32."""


def refuse(what: str) -> NoReturn:
    """Raise `InputError` for a part that the kernels do not have."""
    raise InputError(f"the native kernels have no {what}", where="engine", remedy="use engine=None")


def lower(config: c.Transformer, weights: Weights, tables: Tables, places: int) -> Plan:
    """Return the plan of a decoder for rows of up to `places` tokens.

    Raises `InputError` for parts that the kernels do not have, and for weights that the plan has no place for.
    """
    stack, head = config.decoder, config.head
    if stack is None or config.encoder is not None:
        refuse("encoder")
    if not isinstance(head, c.LanguageHead):
        refuse(f"head of kind {head.kind}" if head else "model without a head")
    lowering = Lowering(config, weights, tables, places)
    try:
        lowering.embed(config.embed)
        lowering.run_stack(stack)
        lowering.read_head(head, stack)
    except KeyError as error:
        refuse(f"way to use the model without a plain {error.args[0]}")
    shared = {"decoder.shared.weight"} if find_shared_positions(stack) else set()
    if left := sorted(weights.arrays.keys() - lowering.used - shared):
        refuse(f"place for the weight {left[0]}" + (f" and {len(left) - 1} more" if len(left) > 1 else ""))
    return lowering.plan()


@dataclass
class Lowering:
    """A plan in the making."""

    config: c.Transformer
    weights: Weights
    tables: Tables
    places: int
    steps: list[Step] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    widths: list[int] = field(default_factory=lambda: [0] * 8)
    kept: int = 0
    """Keys of a token that the attentions so far keep."""

    def plan(self) -> Plan:
        """Return what was made."""
        stack = self.config.decoder
        assert stack is not None, "lower() refuses others"
        sharing = max((one.projection.heads // (one.projection.kv_heads or one.projection.heads)
                       for one in stack.attentions()), default=1)
        return Plan(tuple(self.steps), tuple(self.widths), tuple(list_key_widths(stack, self.config.dim)), sharing,
                    self.places, self.config.embed.vocab)

    def add(self, kind: str, what: str, *, source: int, to: int, width: int, matrix: Matrix | None = None,
            arrays: Mapping[str, Array | None] | None = None, panels: Panels | None = None, **numbers: float) -> None:
        """Append a step that leaves `width` numbers in the buffer `to`."""
        self.widths[to] = max(self.widths[to], width)
        self.steps.append(Step(kind, what, {"source": source, "to": to, "width": width} | numbers, matrix,
                               arrays or {}, panels=panels))

    def vector(self, name: str) -> Array | None:
        """Return a gain or a bias, counted as used."""
        self.used.add(name)
        return self.weights.vector(name)

    def norm(self, norm: c.Norm, name: str, source: int, to: int, width: int | None = None) -> None:
        """Append a norm."""
        match norm:
            case c.LayerNorm(eps=eps) | c.PlainLayerNorm(eps=eps):
                kind = 0
            case c.RMSNorm(eps=eps):
                kind = 1
            case _:
                refuse(f"norm of kind {norm.kind}")
        arrays = {"gain": self.vector(f"{name}.weight"), "bias": self.vector(f"{name}.bias")}
        self.add("norm", name, source=source, to=to, width=width or self.config.dim, norm=kind, eps=eps, arrays=arrays)

    def count_used(self, name: str) -> None:
        """Count a matrix as used, however it is stored."""
        self.used |= {f"{name}.{part}" for part in ("weight", "codes", "scales")}

    def product(self, name: str, sizes: tuple[int, int], source: int, to: int, *, activation: str = "identity",
                adds: bool = False) -> None:
        """Append a map from and to these widths, or the two of a map of low rank."""
        inputs, outputs = sizes
        if activation not in ACTIVATIONS:
            refuse(f"activation {activation}")
        if f"{name}.first.weight" in self.weights.arrays:
            rank = len(self.weights.arrays[f"{name}.first.weight"])
            self.product(f"{name}.first", (inputs, rank), source, RANKS)
            name, inputs, source = f"{name}.second", rank, RANKS
        bias = self.vector(f"{name}.bias")
        name = f"{name}.table" if f"{name}.table.codes" in self.weights.arrays else name  # an output layer in few bits
        self.count_used(name)
        matrix = self.weights.matrix(name, inputs)
        if len(matrix.codes) != outputs or matrix.inputs != inputs:
            refuse(f"map of {matrix.inputs} to {len(matrix.codes)} numbers in place of {name}")
        if bias is not None and len(bias) != outputs:
            refuse(f"bias for some rows of {name} alone")
        self.add("product", name, source=source, to=to, width=outputs, matrix=matrix, arrays={"bias": bias},
                 activation=ACTIVATIONS[activation], adds=int(adds))

    def embed(self, embed: c.Embedding) -> None:
        """Append what makes vectors of tokens."""
        match embed.projection:
            case None:
                width = self.config.dim
            case c.ProjectNarrow(kind="tokens", width=width):
                pass
            case _:
                refuse(f"embedding of kind {embed.projection.kind}")
        to = STREAM if embed.projection is None else NORMED
        self.count_used("embed.tokens")
        self.add("embed", "embed.tokens", source=to, to=to, width=width, scale=embed.scale,
                 matrix=self.weights.table("embed.tokens", width))
        if embed.projection is not None:
            self.product("embed.project", (width, self.config.dim), NORMED, STREAM)
        match embed.positions:
            case c.NoPositions():
                pass
            case c.Learned(places=c.CountedPlaces(offset=offset)):
                self.add_places("embed.positions", self.weights.table("embed.positions", self.config.dim), offset)
            case c.Sinusoidal(places=c.CountedPlaces(offset=offset)) as waves:
                table = self.tables.waves(waves, self.places + offset, self.config.dim)
                self.add_places("embed.positions", store_matrix(table, "float32"), offset)
            case _:
                refuse(f"positions of kind {embed.positions.kind} with places of kind "
                       f"{getattr(getattr(embed.positions, 'places', None), 'kind', 'none')} in the embedding")
        if embed.norm is not None:
            self.norm(embed.norm, "embed.norm", STREAM, STREAM)

    def add_places(self, name: str, table: Matrix, offset: int) -> None:
        """Append the addition of a row of a table for the place of each token."""
        self.count_used(name)
        if len(table.codes) < self.places + offset:
            raise InputError(f"{self.places} tokens, and {name} has {len(table.codes) - offset} places",
                             where="max_new_tokens", remedy="write less")
        self.add("places", name, source=STREAM, to=STREAM, width=self.config.dim, matrix=table, offset=offset)

    def run_stack(self, stack: c.Stack) -> None:
        """Append all blocks."""
        for found, what in ((isinstance(stack.layers, c.Funnel), "funnel"),
                            (stack.residual.kind != "one", "two streams"),
                            (stack.convolution is not None, "convolution"), (stack.memory is not None, "memory"),
                            (stack.queries is not None, "second stream")):
            if found:
                refuse(what)
        for number, (block, stored) in enumerate(zip(stack.blocks(), stack.layers.order(), strict=True)):
            if block.bottleneck is not None:
                refuse("bottleneck")
            if stack.layer_positions is not None:
                name = f"decoder.positions.{number}"
                self.add_places(name, self.weights.table(name, self.config.dim), stack.layer_positions.places.offset
                                if isinstance(stack.layer_positions.places, c.CountedPlaces) else refuse("padding"))
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
                self.norm(norm, f"{name}.norm", STREAM, NORMED)
                if len([one for _, one in parallel if one.norm is not None]) > 1:
                    refuse("room for more than one parallel sublayer with a norm of its own")
                for other, one in parallel:
                    if one.norm is not None:
                        self.norm(one.norm, f"{other}.norm", STREAM, OTHER)
                self.run_inner(inner, f"{name}.inner", NORMED, STREAM, adds=True)
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
            case c.FeedForward(hidden=hidden, activation=activation):
                self.product(f"{name}.up", (dim, hidden), source, HIDDEN, activation=activation)
                self.product(f"{name}.down", (hidden, dim), HIDDEN, to, adds=adds)
            case c.GatedFeedForward(hidden=hidden, activation=activation) if activation in ACTIVATIONS:
                self.product(f"{name}.up", (dim, 2 * hidden), source, HIDDEN)
                self.add("gate", name, source=HIDDEN, to=HIDDEN, width=hidden, activation=ACTIVATIONS[activation])
                self.product(f"{name}.down", (hidden, dim), HIDDEN, to, adds=adds)
            case _:
                refuse(f"sublayer of kind {inner.kind}" + (f" with activation {inner.activation}" if isinstance(
                    inner, c.GatedFeedForward) else ""))

    def attend(self, attention: c.SelfAttention, name: str, source: int, to: int, *, adds: bool) -> None:
        """Append an attention: its maps, its positions, the cache, and the output map."""
        if not isinstance(attention.kernel, c.Softmax) or attention.global_maps is not None:
            refuse(f"attention with the kernel {attention.kernel.kind}" if attention.global_maps is None
                   else "maps for global tokens")
        projection = attention.projection
        query, key, head = projection.widths(self.config.dim)
        heads, groups = query // head, key // head
        bias, reach = None, 0
        self.product(f"{name}.qkv", (self.config.dim, query + 2 * key), source, HEADS)
        match attention.positions:
            case c.NoPositions():
                pass
            case c.Rotary(scaling=c.DynamicScaling() | c.LongRope() as scaling):
                refuse(f"rotation with the scaling {scaling.kind}")
            case c.Rotary(values=False) as rotary:
                width = rotary.width(head)
                self.add("rotate", f"{name}.positions", source=HEADS, to=HEADS, width=query + key, heads=heads + groups,
                         head=head, turned=width, neighbours=int(rotary.pairs.kind == "neighbours"),
                         arrays={"table": self.tables.turns(rotary, self.places, head)})
            case c.Alibi() | c.T5Bias() as biased:
                table = self.weights.vector("decoder.shared.weight")
                bias, reach = self.tables.biases(biased, heads, self.places, table), self.places
            case _:
                refuse(f"attention with positions of kind {attention.positions.kind}")
        self.add("attend", name, source=HEADS, to=MIXED, width=query, heads=heads, groups=groups, head=head,
                 slot=self.kept, window=find_window(attention.visibility), scale=projection.scale or head**-0.5,
                 reach=reach, arrays={"table": bias})
        self.kept += key
        self.product(f"{name}.out", (query, self.config.dim), MIXED, to, adds=adds)

    def read_head(self, head: c.LanguageHead, stack: c.Stack) -> None:
        """Append what makes scores of the vectors of the tokens that are asked for."""
        for found, what in ((head.transform is not None, "transform before the output matrix"),
                            (head.columns > 0, "further columns of a tied output matrix"),
                            (head.predicts.kind != "next", "way to predict other than the next token")):
            if found:
                refuse(what)
        width, last = self.config.dim, STREAM
        self.add("select", "the tokens that are asked for", source=STREAM, to=STREAM, width=width)
        if stack.final_norm is not None:
            self.norm(stack.final_norm, "decoder.final_norm", STREAM, STREAM)
        if stack.narrow is not None:
            self.product("decoder.narrow", (width, stack.narrow), STREAM, NORMED)
            width, last = stack.narrow, NORMED
        if head.scale != 1:
            self.add("scale", "head", source=last, to=last, width=width, scale=head.scale)
        self.product("head", (width, self.config.embed.vocab), last, SCORES)


def find_window(visibility: c.Visibility) -> int:
    """Return how many last keys a query sees; 0: all."""
    match visibility:
        case c.Causal():
            return 0
        case c.Combined(kind="and", terms=(c.Causal(), c.Window(size=size)) | (c.Window(size=size), c.Causal())):
            return int(size)
        case _:
            refuse(f"attention with the visibility {visibility.kind}")
