"""Counting a model from its config, without building it: parameters, FLOPs, and the anatomy that `saucier show` draws.

Letters: B batch, L length, D dim. FLOPs are forward, per token, one multiply-add = 2; a backward pass costs twice as
much. Only matrix products are counted, as is usual (Kaplan et al. 2020, §2.1, arXiv:2001.08361).
"""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch

from saucier.config.adaptive import ProjectClusters, cluster_sizes
from saucier.config.anatomy import Node, group, lent, linear, norm_node
from saucier.config.base import Config
from saucier.config.bottleneck import Bottleneck, ReadsShared
from saucier.config.checks.low_rank import layerwise
from saucier.config.counting.attention import attention_nodes
from saucier.config.counting.characters import character_node
from saucier.config.counting.heads import head_node, mix_node
from saucier.config.counting.recurrent import kept_values, recurrent_nodes
from saucier.config.disentangled import Disentangled
from saucier.config.favor import Favor
from saucier.config.layers import (
    CrossAttention,
    Experts,
    FeedForward,
    GatedFeedForward,
    Projection,
    SelfAttention,
)
from saucier.config.mixing import FourierMixing
from saucier.config.model import (
    Block,
    Cycle,
    Embedding,
    FirstSegment,
    ProjectTrigram,
    ProjectTwice,
    Repeat,
    SegmentTable,
    Share,
    Stack,
    Transformer,
)
from saucier.config.positions import (
    Axial,
    Learned,
    T5Bias,
    TransformerXL,
)
from saucier.config.recurrent import Recurrent


@singledispatch
def sublayer_nodes(part: Config, dim: int, length: int) -> list[Node]:
    """Return the parts of a sublayer of width `dim` in a sequence of `length` tokens."""
    raise TypeError(type(part))


sublayer_nodes.register(SelfAttention, attention_nodes)


@sublayer_nodes.register
def _cross_attention(part: CrossAttention, dim: int, length: int) -> list[Node]:
    query, key, _ = part.projection.widths(dim)
    bias = part.projection.bias
    return [linear("q", dim, query, bias=bias), linear("kv", dim, 2 * key, bias=bias),
            Node("scores", part.kernel.kind, f"{length} keys a query", flops=4.0 * length * query),
            linear("out", query, dim, bias=part.projection.output_bias)]


@sublayer_nodes.register
def _feed_forward(part: FeedForward, dim: int, length: int) -> list[Node]:
    return [linear("up", dim, part.hidden, bias=part.bias), Node("activation", part.activation),
            linear("down", part.hidden, dim, bias=part.bias)]


@sublayer_nodes.register
def _gated_feed_forward(part: GatedFeedForward, dim: int, length: int) -> list[Node]:
    return [linear("up", dim, 2 * part.hidden, bias=part.bias), Node("activation", f"gated {part.activation}"),
            linear("down", part.hidden, dim, bias=part.bias)]


@sublayer_nodes.register
def _experts(part: Experts, dim: int, length: int) -> list[Node]:
    share = part.router.top / part.count  # each expert sees so much of the tokens
    inner = [replace(node, flops=node.flops * share) for node in sublayer_nodes(part.inner, dim, length)]
    experts = group("experts", part.inner.kind, inner, detail=f"{part.router.top} for each token", times=part.count)
    return [linear("router", dim, part.count, bias=part.router_bias), experts]


@sublayer_nodes.register
def _fourier(part: FourierMixing, dim: int, length: int) -> list[Node]:
    return [Node("transform", "fourier", "over width and tokens")]


sublayer_nodes.register(Recurrent, recurrent_nodes)


def sublayer_name(part: Config) -> str:
    """Return the name that a sublayer has inside its block, in the built model as in the anatomy."""
    kind: str = part.kind  # type: ignore[attr-defined]  # every sublayer is a tagged config
    return {"gated_feed_forward": "feed_forward", "cross_attention": "cross"}.get(kind, kind)


def projection_detail(projection: Projection) -> str:
    """Say in words which heads an attention has."""
    kv = projection.kv_heads or projection.heads
    return f"{projection.heads} heads" + ("" if kv == projection.heads else f", {kv} for keys and values")


def block_nodes(block: Block, dim: int, length: int) -> list[Node]:
    """Return one node for each sublayer of a block, its norms included."""
    wide, dim = dim, block.width(dim)
    nodes = bottleneck_nodes(block.bottleneck, wide) if block.bottleneck else []
    for residual in block.sublayers:
        inner = residual.inner
        norms = [norm_node("norm", residual.norm, dim)] if residual.norm else []
        if residual.kind == "sandwich":
            norms.append(norm_node("norm_after", residual.norm, dim))
        detail = projection_detail(inner.projection) if isinstance(inner, SelfAttention | CrossAttention) else ""
        plain = residual.kind in ("parallel", "from_norm", "skip", "chain")
        kind = residual.kind.replace("_", " ") if plain else f"{residual.kind}-norm"
        detail = kind + (f", {detail}" if detail else "")
        parts = sublayer_nodes(inner, dim, length)
        if isinstance(inner, SelfAttention) and block.bottleneck:
            parts[0] = split_node(block.bottleneck.attention_inputs(wide), inner.projection, dim)
        nodes.append(group(sublayer_name(inner), inner.kind, [*norms, *parts], detail=detail))
    return nodes


def bottleneck_nodes(bottleneck: Bottleneck, dim: int) -> list[Node]:
    """Return the maps into and out of a narrow block."""
    width, norm = bottleneck.width, bottleneck.norm
    inputs = 2 if isinstance(bottleneck.reads, ReadsShared) else 1
    maps = [linear("down", dim, width, bias=True), norm_node("down_norm", norm, width)] * inputs
    return [group("bottleneck", "bottleneck", [*maps, linear("up", width, dim, bias=True),
                                               norm_node("norm", norm, dim)], detail=f"{width} wide")]


def split_node(inputs: tuple[int, int], projection: Projection, dim: int) -> Node:
    """Return the maps of an attention whose values are made of another input than its queries and keys."""
    query, key, _ = projection.widths(dim)
    maps = [linear("qk", inputs[0], query + key, bias=projection.bias),
            linear("v", inputs[1], key, bias=projection.bias)]
    return group("qkv", "maps", maps)


Shared = T5Bias | Disentangled
"""Positions of which all layers of a stack share a table."""


def stack_positions(stack: Stack) -> tuple[Shared, int] | None:
    """Return the positions that share a table in a stack, and their number of heads, if its attentions have such."""
    for block in stack.blocks():
        for residual in block.sublayers:
            if isinstance(residual.inner, SelfAttention) and isinstance(residual.inner.positions, Shared):
                return residual.inner.positions, residual.inner.projection.heads
    return None


def shared_nodes(stack: Stack, dim: int) -> list[Node]:
    """Return what stands beside the blocks: the table that their positions share."""
    found = stack_positions(stack)
    if found is None:
        return []
    positions, heads = found
    match positions:
        case T5Bias(buckets=buckets):
            return [Node("bias", "t5_bias", "shared by all layers", f"{buckets} × {heads}", buckets * heads)]
        case Disentangled(distances=distances, norm=norm):
            table = Node("distances", "disentangled", "shared by all layers", f"{distances.rows} × {dim}",
                         distances.rows * dim)
            return [table, *([norm_node("distance_norm", norm, dim)] if norm else [])]


def layer_position_nodes(stack: Stack, dim: int) -> list[Node]:
    """Return the tables of positions that the blocks have."""
    if stack.layer_positions is None:
        return []
    rows, blocks = stack.layer_positions.length, len(stack.blocks())
    return [Node("positions", "learned", "one table for each block", f"{blocks} × {rows} × {dim}", blocks * rows * dim)]


def convolution_nodes(stack: Stack, dim: int) -> list[Node]:
    """Return the convolution beside the first block."""
    if stack.convolution is None:
        return []
    size, inputs = stack.convolution.size, dim // stack.convolution.groups
    kernel = Node("convolution", "convolution", "beside the first block", f"{dim} × {inputs} × {size}",
                  dim * inputs * size + dim, 2.0 * dim * inputs * size)
    return [kernel, norm_node("convolution_norm", stack.convolution.norm, dim)]


def shared_biases(stack: Stack) -> Projection | None:
    """Return the heads whose pair of biases all layers of a stack share, if they do. Source: Dai et al. 2019, §3.3."""
    for block in stack.blocks():
        for residual in block.sublayers:
            if isinstance(residual.inner, SelfAttention) and isinstance(residual.inner.positions, TransformerXL):
                return residual.inner.projection if residual.inner.positions.shared_biases else None
    return None


def shared_node(layers: Share, nodes: list[Node]) -> Node:
    """Return layers that share weights: one node for each set of weights, with as many turns as it is applied."""
    order, detail = layers.order(), "one set of weights"
    if layers.groups * layers.inner == 1:
        return group("blocks", "share", nodes, detail=detail, times=len(order), stored=1)
    sets = [group(f"block {number}", "share", nodes, detail=detail, times=order.count(number), stored=1)
            for number in range(layers.groups * layers.inner)]
    return group("blocks", "groups", sets)


def unlent(nodes: list[Node], lender: Stack | None, block: int) -> list[Node]:
    """Return sublayers of a stack, those without parameters that use the weights of another stack's block."""
    names = {sublayer_name(one.inner) for one in lender.blocks()[block].sublayers} if lender else set()
    return [lent(node) if node.name in names else node for node in nodes]


def stack_node(name: str, stack: Stack, dim: int, length: int, lender: Stack | None = None) -> Node:
    """Return the anatomy of an encoder or decoder; `lender`: the stack whose weights it uses too."""
    children = [*layer_position_nodes(stack, dim), *shared_nodes(stack, dim), *convolution_nodes(stack, dim)]
    if projection := shared_biases(stack):
        width = projection.widths(dim)[0]
        children.append(Node("biases", "transformer_xl", "shared by all layers", f"2 × {width}", 2 * width))
    if found := layerwise(stack):
        rank, longest = found[0].rank, found[0].length
        children.append(Node("mixtures", "low_rank", "shared by all layers", f"{longest} → {rank}", rank * longest))
    match stack.layers:
        case Repeat(block=block, times=times):
            children.append(group("blocks", "repeat", unlent(block_nodes(block, dim, length), lender, 0), times=times))
        case Share() as layers:
            children.append(shared_node(layers, unlent(block_nodes(layers.block, dim, length), lender, 0)))
        case Cycle(blocks=blocks, times=times):
            turns = [group(f"block {i}", "block", unlent(block_nodes(block, dim, length), lender, i))
                     for i, block in enumerate(blocks)]
            children.append(group("blocks", "cycle", turns, times=times))
    if stack.final_norm:
        children.append(norm_node("final_norm", stack.final_norm, stack.stream_width(dim)))
    if stack.narrow:
        children.append(linear("narrow", stack.stream_width(dim), stack.narrow, bias=False))
    if stack.queries:
        children.append(Node("queries", "vector", "where the second stream begins", str(dim), dim))
    return group(name, "stack", children)


def embedding_node(name: str, embed: Embedding, dim: int) -> Node:
    """Return the anatomy of an embedding."""
    narrow, width = embed.widths(dim)
    children = [character_node(embed.characters, narrow) if embed.characters else
                Node("tokens", "embedding", "tied to the source's" if embed.tied else "", f"{embed.vocab} × {narrow}",
                     0 if embed.tied else embed.vocab * narrow)]
    if isinstance(embed.positions, Learned):
        rows = embed.positions.length
        children.append(Node("positions", "learned", "", f"{rows} × {width}", rows * width))
    elif isinstance(embed.positions, Axial):
        for axis, rows, wide in zip(("rows", "columns"), embed.positions.shape, embed.positions.widths, strict=True):
            children.append(Node(axis, "axial", "", f"{rows} × {wide}", rows * wide))
    elif embed.positions.kind != "none":
        children.append(Node("positions", embed.positions.kind))
    if isinstance(embed.segments, SegmentTable | FirstSegment):
        count = embed.segments.count
        children.append(Node("segments", "embedding", "", f"{count} × {width}", count * width))
    if embed.languages:
        count = embed.languages.count
        children.append(Node("languages", "embedding", "", f"{count} × {width}", count * width))
    if embed.norm:
        children.append(norm_node("norm", embed.norm, embed.norm_width(dim)))
    if isinstance(embed.projection, ProjectClusters):
        sizes = cluster_sizes(embed.projection.cutoffs, embed.vocab)
        count = sum(size * width for size, width in zip(sizes, embed.projection.widths(), strict=True))
        maps = sum(embed.projection.widths())
        children[0] = Node("tokens", "clusters", f"{len(sizes)} tables", f"{embed.vocab} × ≤ {narrow}", count)
        children.append(replace(linear("maps", maps, dim, bias=False), flops=2.0 * narrow * dim, detail="by cluster"))
    elif embed.projection and not isinstance(embed.projection, ProjectTwice):
        taken = 3 if isinstance(embed.projection, ProjectTrigram) else 1
        children.append(linear("project", taken * embed.projection.width, dim, bias=embed.projection.bias))
    return group(name, "embedding", children)


def anatomy(config: Transformer, length: int = 512) -> Node:
    """Return the whole model as a tree of parts, with parameters and forward FLOPs per token at this length.

    In an encoder-decoder a "token" is one source token and one target token, at equal lengths.
    """
    dim, reader = config.dim, config.reader_dim
    parts = [embedding_node("embed", config.embed, reader)]
    if config.source:
        parts.append(group("source", "source", [embedding_node("embed", config.source.embed, reader),
                                                stack_node("stack", config.source.stack, reader, length)]))
    if config.encoder:
        parts.append(stack_node("encoder", config.encoder, reader, length))
    if config.encoder_dim:
        parts.append(linear("bridge", config.encoder_dim, dim, bias=True))
    if config.decoder_embed:
        parts.append(embedding_node("decoder_embed", config.decoder_embed, dim))
    if config.decoder:
        lender = config.encoder if config.decoder.tied else None
        parts.append(stack_node("decoder", config.decoder, dim, length, lender))
    if config.mix:
        layers = sum(len(stack.blocks()) for stack in (config.encoder, config.decoder) if stack)  # check(): one stack
        parts.append(mix_node(config.mix, config.width, layers + 1))
    if config.pooler:
        width = config.encoder_dim or config.width
        pooler = linear("pooler", width, width, bias=True) if config.pooler.dense else Node("pooler", "first token")
        parts.append(replace(pooler, flops=0.0, detail="once a sequence"))
    if config.head:
        parts.append(head_node(config.head, config.width, config.output_embed.vocab))
    return group("model", "transformer", parts)


def parameters(config: Transformer) -> int:
    """Return the number of parameters, tied ones counted once."""
    return anatomy(config, 1).parameters


def flops_per_token(config: Transformer, length: int) -> float:
    """Return the forward FLOPs per token in sequences of this length; training costs three times as much."""
    return anatomy(config, length).flops


def cache_bytes(
    config: Transformer, *, batch: int, length: int, source_length: int = 0, bytes_per_value: int = 2
) -> int:
    """Return the size of the cache that generation needs: keys and values, the encoder's too, and recurrent states."""
    values, sums = 0, 0
    for block in config.decoder.blocks() if config.decoder else ():
        for residual in block.sublayers:
            if isinstance(residual.inner, SelfAttention) and isinstance(residual.inner.kernel, Favor):
                query, _, head = residual.inner.projection.widths(config.dim)
                sums += 4 * residual.inner.kernel.state_values(query, head)
            elif isinstance(residual.inner, SelfAttention):
                values += 2 * length * residual.inner.projection.widths(config.dim)[1]
            elif isinstance(residual.inner, CrossAttention):
                values += 2 * source_length * residual.inner.projection.widths(config.dim)[1]
            elif isinstance(residual.inner, Recurrent):
                values += kept_values(residual.inner, config.dim, source_length)
    return batch * (values * bytes_per_value + sums)
