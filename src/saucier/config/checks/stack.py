"""Illegal combinations inside a stack: its layout, its sublayers by each of their slots, what its layers share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from saucier.config.attention_slots import NoPositions, Projection, map_rank
from saucier.config.blocks import Block
from saucier.config.disentangled import Disentangled, SharedMaps
from saucier.config.layers import (
    CrossAttention,
    CustomSublayer,
    Experts,
    FromNorm,
    Parallel,
    PreNorm,
    SelfAttention,
    Sublayer,
)
from saucier.config.model import Transformer
from saucier.config.positions import Rotary
from saucier.config.questions import (
    drops_layers,
    global_terms,
    hides_keys,
    list_layerwise_kernels,
    list_recurrent_parts,
    list_terms,
    mixes_padding,
)
from saucier.config.recurrent import Recurrent
from saucier.config.relative_positions import GlobalLocal, T5Bias, TransformerXL
from saucier.config.stack import Convolution, SegmentMemory, Stack
from saucier.config.visibility import Combined, FirstTokens
from saucier.errors import InputError


def check_stack(name: str, stack: Stack, config: Transformer) -> None:
    """Check the layout, every sublayer, what the layers share, and that a decoder with an encoder looks at it."""
    width = config.reader_dim if name == "encoder" else config.dim
    check_layout(name, stack, width)
    for index, block in enumerate(stack.layers.distinct()):
        if block.bottleneck:
            check_bottleneck(f"{name}.blocks.{index}.bottleneck", name, stack, block)
    sublayers = {path: (inner, dim) for path, inner, dim in iterate_sublayers(name, stack, width)}
    for path, (inner, dim) in sublayers.items():
        check_sublayer(path, name, inner, dim, config)
    attentions = {path: one for path, (one, _) in sublayers.items() if isinstance(one, SelfAttention)}
    check_shared_parts(name, stack, attentions, width)
    parts = list_recurrent_parts(stack)
    mixing = [inner for inner, _ in sublayers.values()
              if isinstance(inner, CustomSublayer) and inner.mixes != "nothing"]
    if (parts or mixing) and (stack.memory or stack.queries or stack.residual.kind != "one"):
        what = "recurrent layers keep" if parts else f"a sublayer of kind {mixing[0].kind} keeps"
        raise InputError(f"{what} {'their' if parts else 'its'} own states, in a plain stack", where=f"{name}.layers",
                         remedy="leave out memory, queries and streams")
    if name == "decoder" and any(part.start.kind == "final" for part in parts):
        check_initial_states(parts, config)
    crossed = any(isinstance(inner, CrossAttention) for inner, _ in sublayers.values())
    if name == "decoder" and config.encoder and not crossed and not any(part.reads_encoder for part in parts):
        raise InputError("this decoder never looks at the encoder", where="decoder",
                         remedy="add a cross_attention sublayer, or remove the encoder")
    if (stack.memory or stack.queries) and config.encoder and config.decoder:
        raise InputError("a memory or a second stream works in one stack, and this model has two", where=name,
                         remedy="remove one stack, or memory and queries")
    if stack.memory:
        check_memory(name, stack, stack.memory, config)
    if stack.queries:
        check_second_stream(name, stack.attentions())
    if stack.residual.kind == "reversible" and name != "source.stack":
        check_streams(name, stack, config)


def iterate_sublayers(name: str, stack: Stack, dim: int) -> Iterator[tuple[str, Sublayer, int]]:
    """Yield (path, sublayer, width of the vectors that it reads) for every sublayer that may differ."""
    for index, block in enumerate(stack.layers.distinct()):
        kinds = [residual.inner.kind for residual in block.sublayers]
        for place, residual in enumerate(block.sublayers):
            before = kinds[:place].count(kinds[place])
            yield (f"{name}.blocks.{index}.{kinds[place]}" + (f"_{before + 1}" if before else ""), residual.inner,
                   dim if isinstance(residual.inner, CrossAttention) else block.width(dim))


def check_sublayer(path: str, stack: str, inner: Sublayer, dim: int, config: Transformer) -> None:
    """What concerns one sublayer."""
    match inner:
        case SelfAttention() as attention:
            check_attention(path, stack, attention, dim)
            check_ranks(path, attention.projection, "q", "kv")
        case Experts(count=count, router=router) if router.top > count:
            raise InputError(f"{router.top} experts for each token, and there are {count}", where=f"{path}.router",
                             remedy="lower router.top, or raise count")
        case Recurrent() as part:
            check_recurrent(path, stack, part, dim, config.encoder if stack == "decoder" else None)
        case CrossAttention(projection=projection):
            check_projection(path, projection, dim)
            check_ranks(path, projection, "qkv")
            if stack == "encoder":
                raise InputError("cross-attention has no encoder output to read here", where=path,
                                 remedy="use it in a decoder beside an encoder")
        case CustomSublayer() as part:
            part.check(path, dim)
            if stack == "decoder" and part.mixes == "all":
                raise InputError(f"a sublayer of kind {part.kind} sees the future", where=path,
                                 remedy="use it in an encoder")


def check_attention(path: str, stack: str, attention: SelfAttention, dim: int) -> None:
    """What concerns one self-attention, by each of its slots."""
    check_projection(path, attention.projection, dim)
    attention.positions.check(path, attention, dim)
    attention.kernel.check(path, attention, dim)
    check_visibility(path, attention)
    if attention.global_maps:
        check_global_maps(path, stack, attention)


def check_projection(path: str, projection: Projection, dim: int) -> None:
    """Heads divide the width, and key-value heads divide the heads."""
    if projection.head_dim is None and dim % projection.heads:
        raise InputError(f"dim {dim} does not divide into {projection.heads} heads", where=f"{path}.projection",
                         remedy="change heads, or give head_dim")
    if projection.heads % (projection.kv_heads or projection.heads):
        raise InputError(f"{projection.heads} heads do not divide into {projection.kv_heads} key-value heads",
                         where=f"{path}.projection.kv_heads", remedy="use a divisor of heads")


def check_ranks(path: str, projection: Projection, *foreign: str) -> None:
    """Maps that this attention does not have, `foreign`, have no rank."""
    for name in foreign:
        if map_rank(projection.ranks, name) is not None:
            raise InputError(f"this attention has no map {name}", where=f"{path}.projection.ranks.{name}",
                             remedy="leave it out")


def check_visibility(path: str, attention: SelfAttention) -> None:
    """Terms by head are shared out evenly among the heads, and labels know of as many global tokens as there are."""
    if isinstance(attention.positions, GlobalLocal):
        named = [term.otherwise for term in global_terms(attention.visibility)]
        counts = {one.count for one in named if isinstance(one, FirstTokens)} or {0}
        if counts != {attention.positions.globals}:
            raise InputError(f"labels for {attention.positions.globals} global tokens, and {max(counts)} are global",
                             where=f"{path}.positions.globals", remedy=f"use globals: {max(counts)}")
    heads = attention.projection.heads
    for term in list_terms(attention.visibility):
        if isinstance(term, Combined) and term.kind == "by_head" and heads % len(term.terms):
            raise InputError(f"{heads} heads do not divide into {len(term.terms)} visibilities",
                             where=f"{path}.visibility.terms", remedy="give as many terms as heads, or a divisor")


def check_global_maps(path: str, stack: str, attention: SelfAttention) -> None:
    """Maps for global tokens need global tokens, an encoder (the cache holds one set of keys), and no positions."""
    if not global_terms(attention.visibility):
        raise InputError("maps for global tokens, and no token is ever global", where=f"{path}.global_maps",
                         remedy="leave them out, or add kind: global to the visibility")
    if stack == "decoder" or attention.positions.kind != "none":
        raise InputError("maps for global tokens work in an encoder, and without positions in the attention",
                         where=f"{path}.global_maps", remedy="leave them out, or use positions of the embedding")


def check_shared_parts(name: str, stack: Stack, attentions: Mapping[str, SelfAttention], dim: int) -> None:
    """What the layers of a stack share must not differ: a T5 bias, a table of distances, a pair of biases, a map."""
    biases = {path: (one.positions.model_copy(update={"kept": None}),
                     one.projection.heads if one.positions.kept is None else one.positions.kept.of)
              for path, one in attentions.items() if isinstance(one.positions, T5Bias)}
    if len(set(biases.values())) > 1:
        raise InputError("the layers of a stack share one T5 bias, and these differ", where=" and ".join(biases),
                         remedy="give them the same buckets, distance and heads")
    tables = {path: (one.positions.distances, one.positions.norm) for path, one in attentions.items()
              if isinstance(one.positions, Disentangled)}
    if len(set(tables.values())) > 1 or (tables and biases):
        raise InputError("the layers of a stack share one table of distances, and these differ",
                         where=" and ".join([*tables, *biases]), remedy="give them the same distances and norm")
    pairs = {one.projection.widths(dim)[::2] for one in attentions.values()
             if isinstance(one.positions, TransformerXL) and one.positions.shared_biases}
    if len(pairs) > 1:
        raise InputError("the layers of a stack share one pair of biases, and their heads differ", where=name,
                         remedy="use shared_biases: false, or equal heads")
    if len({(kernel.length, kernel.rank) for kernel in list_layerwise_kernels(stack)}) > 1:
        raise InputError("the layers of a stack share one map along the text, and these differ", where=name,
                         remedy="give them the same length and rank")


def check_layout(name: str, stack: Stack, dim: int) -> None:
    """What concerns a stack as a whole; blocks that are not plain each read other than one vector for every token."""
    stack.layers.check(f"{name}.layers")
    other = (stack.memory, stack.queries, stack.convolution, stack.layer_positions, stack.zero_padding)
    if not stack.layers.plain and (any(other) or stack.residual.kind != "one" or name != "encoder"):
        raise InputError(f"layers of kind {stack.layers.kind} are those of a plain encoder", where=f"{name}.layers",
                         remedy="leave out memory, queries, convolution, layer_positions, zero_padding and streams")
    if stack.convolution:
        check_convolution(f"{name}.convolution", stack.convolution, dim, decoder=name == "decoder")
    if name == "decoder" and mixes_padding(stack):
        raise InputError("a transform over all tokens sees the future", where=f"{name}.layers",
                         remedy="use it in an encoder")
    if stack.layer_drop and not drops_layers(stack):
        raise InputError("no layer can be left out of reversible or pooled ones", where=f"{name}.layer_drop",
                         remedy="leave it out")
    for index, block in enumerate(stack.layers.distinct()):
        check_parallel(f"{name}.blocks.{index}", block, remembers=bool(stack.memory or stack.queries))


def check_parallel(where: str, block: Block, *, remembers: bool) -> None:
    """A parallel sublayer follows a pre-norm one, whose input is known without a memory or an encoder."""
    for before, residual in zip([None, *block.sublayers], block.sublayers, strict=False):
        if isinstance(residual, Parallel) and not isinstance(before, PreNorm | Parallel):
            raise InputError("a parallel sublayer stands beside a pre-norm one", where=where,
                             remedy="put a sublayer of kind: pre before it")
        parallel = [one for one in (before, residual) if one] if isinstance(residual, Parallel) else []
        if any(isinstance(one.inner, CrossAttention) for one in parallel):
            raise InputError("cross-attention does not stand beside another sublayer", where=where,
                             remedy="use kind: pre for it and for what follows")
        if isinstance(residual, Parallel | FromNorm) and remembers:
            raise InputError(f"a memory or a second stream does not go with {residual.kind} sublayers", where=where,
                             remedy="use kind: pre or post")


def check_convolution(where: str, convolution: Convolution, dim: int, *, decoder: bool) -> None:
    """A convolution is centred, divides the width, and looks ahead, which a decoder must not."""
    if decoder:
        raise InputError("a convolution looks at later tokens", where=where, remedy="use it in an encoder")
    if convolution.size % 2 == 0:
        raise InputError(f"a convolution of size {convolution.size} has no middle", where=where,
                         remedy="use an odd size")
    if dim % convolution.groups:
        raise InputError(f"dim {dim} does not divide into {convolution.groups} groups", where=where,
                         remedy="use a divisor of dim")


def check_bottleneck(where: str, name: str, stack: Stack, block: Block) -> None:
    """Inside a bottleneck attention has plain maps, and no cache; the stack has one plain stream."""
    if name == "decoder":
        raise InputError("a bottleneck has no cache", where=where, remedy="use it in an encoder")
    if stack.memory or stack.queries or stack.residual.kind != "one":
        raise InputError("a bottleneck stands in a plain stack", where=where,
                         remedy="leave out memory, queries and streams")
    for residual in block.sublayers:
        inner = residual.inner
        if residual.kind not in ("post", "pre", "sandwich"):
            raise InputError(f"no {residual.kind} sublayer in a bottleneck", where=where, remedy="use kind: post")
        if isinstance(inner, SelfAttention):
            check_bottleneck_attention(where, inner, residual.kind)


def check_bottleneck_attention(where: str, attention: SelfAttention, residual: str) -> None:
    """The attention reads what the bottleneck gives it, with maps of its own."""
    if residual != "post":
        raise InputError("an attention in a bottleneck reads the block's input, and no norm comes before it",
                         where=where, remedy="use kind: post")
    shared = isinstance(attention.positions, Disentangled) and isinstance(attention.positions.maps, SharedMaps)
    if attention.global_maps or not attention.projection.key_bias or shared:
        raise InputError("an attention in a bottleneck has plain maps of its own", where=where,
                         remedy="leave out global_maps, key_bias and shared maps")
    if map_rank(attention.projection.ranks, "qkv") is not None:
        raise InputError("an attention in a bottleneck has maps of one matrix to queries, keys and values",
                         where=where, remedy="leave out ranks.qkv")
    if not attention.kernel.exact:
        raise InputError(f"no {attention.kernel.kind} kernel in a bottleneck", where=where, remedy="use kind: softmax")


def check_streams(name: str, stack: Stack, config: Transformer) -> None:
    """Two streams need sublayers in pairs that add to what they read; only heads read the wide vectors they give."""
    for index, block in enumerate(stack.layers.distinct()):
        added = all(residual.kind in ("pre", "sandwich") for residual in block.sublayers)
        if len(block.sublayers) % 2 or not added:
            raise InputError("two streams change in turn, each by what a sublayer adds",
                             where=f"{name}.blocks.{index}",
                             remedy="use an even number of sublayers, with pre or sandwich norms")
    if stack.convolution or stack.memory or stack.queries or stack.zero_padding or stack.layer_positions:
        raise InputError("two streams go with plain blocks only", where=f"{name}.residual",
                         remedy="use residual: {kind: one}")
    if name == "encoder" and config.decoder:
        raise InputError("cross-attention reads one stream", where="encoder.residual",
                         remedy="use residual: {kind: one} in the encoder")


def check_memory(name: str, stack: Stack, memory: SegmentMemory, config: Transformer) -> None:
    """A memory is read by the one attention that every block begins with, and positions count from any place."""
    if memory.start.kind == "zeros" and memory.length is None:
        raise InputError("a memory of zeros needs a length", where=f"{name}.memory.length",
                         remedy="give it, or use start: {kind: nothing}")
    if not isinstance(config.embed.positions, NoPositions) or stack.layer_positions:
        raise InputError("positions of the tokens begin anew in every segment, and a memory would repeat them",
                         where=f"{name}.layer_positions" if stack.layer_positions else "embed.positions",
                         remedy="use relative positions: kind: transformer_xl")
    for index, block in enumerate(stack.layers.distinct()):
        places = [place for place, residual in enumerate(block.sublayers)
                  if isinstance(residual.inner, SelfAttention | CrossAttention)]
        attention = block.sublayers[0].inner
        if places != [0] or not isinstance(attention, SelfAttention):
            raise InputError("a block with a memory begins with its only attention", where=f"{name}.blocks.{index}",
                             remedy="put one attention first, or remove memory")
        if not attention.kernel.exact:
            raise InputError(f"kernel {attention.kernel.kind} reads no memory",
                             where=f"{name}.blocks.{index}.attention", remedy="use kernel softmax, or remove memory")
        if isinstance(attention.positions, Rotary) or attention.global_maps:
            raise InputError("a memory goes neither with rotated keys nor with maps for global tokens",
                             where=f"{name}.blocks.{index}.attention", remedy="use kind: transformer_xl")


def check_second_stream(name: str, attentions: list[SelfAttention]) -> None:
    """A second stream asks about places, so positions and visibility must know places."""
    for attention in attentions:
        if not isinstance(attention.positions, TransformerXL | NoPositions) or attention.global_maps:
            raise InputError("these positions do not know where a row of the second stream asks",
                             where=f"{name}.queries", remedy="use kind: transformer_xl, or remove queries")
        if not hides_keys(attention.visibility):
            raise InputError("a second stream would see the tokens that it asks for", where=f"{name}.queries",
                             remedy="use a visibility with kind: permutation")


def check_recurrent(path: str, stack: str, part: Recurrent, dim: int, encoder: Stack | None) -> None:
    """A decoder reads ahead, and begins or looks at what an encoder has; `encoder`: that of a decoder."""
    if dim % len(part.ways):
        raise InputError(f"two directions do not share a width of {dim}", where=f"{path}.direction",
                         remedy="use an even dim, or kind: ahead")
    if stack == "decoder" and part.direction.kind != "ahead":
        raise InputError("a layer that reads backwards sees the future", where=f"{path}.direction",
                         remedy="use kind: ahead in a decoder")
    if part.reads_encoder and encoder is None:
        slot = "start" if part.attention is None else "attention"
        raise InputError("there is no encoder to look at", where=f"{path}.{slot}",
                         remedy="use it in a decoder beside an encoder, or leave it out")
    if encoder is None or part.start.kind not in ("final", "last_layer"):
        return
    if not list_recurrent_parts(encoder):
        raise InputError("the encoder has no recurrent layers whose last states could be taken",
                         where=f"{path}.start", remedy="use kind: mean or zeros")
    if any(block.bottleneck for block in encoder.blocks()):
        raise InputError("the encoder's states are as narrow as its bottleneck", where=f"{path}.start",
                         remedy="use kind: mean or zeros")


def check_initial_states(parts: list[Recurrent], config: Transformer) -> None:
    """States that are copied have the same shape on both sides, layer by layer."""
    given = [shape for part in list_recurrent_parts(config.encoder) for shape in layer_states(part, config.dim)]
    expected = [shape for part in parts if part.start.kind == "final" for shape in layer_states(part, config.dim)]
    if given != expected:
        raise InputError(f"the encoder ends in states of {given}, and the decoder begins in {expected}",
                         where="decoder.layers", remedy="give both the same cell and number of layers, or use "
                         "start: {kind: last_layer}")


def layer_states(part: Recurrent, dim: int) -> list[tuple[int, ...]]:
    """Return the widths of the states of each layer, both directions side by side."""
    return [tuple(len(part.ways) * width for width in part.states(dim))] * part.layers
