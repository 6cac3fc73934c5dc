"""Counting a model from its config, without building it: parameters, FLOPs, memory, and the anatomy of `saucier show`.

Letters: B batch, L length, D dim. FLOPs are forward, per token, one multiply-add = 2; a backward pass costs twice as
much. Only matrix products are counted, as is usual (Kaplan et al. 2020, §2.1, arXiv:2001.08361). Memory is that
of our own training loop: 32-bit master weights, activations in the chosen number format.
"""

from __future__ import annotations

from dataclasses import replace

from saucier.config.attention_slots import Projection, map_rank
from saucier.config.blocks import Block, Bottleneck
from saucier.config.counting import Node, group_nodes, linear, mark_as_shared, norm_node
from saucier.config.counting.heads import head_node
from saucier.config.disentangled import Disentangled
from saucier.config.embedding import (
    SYMBOLS,
    CharacterNetwork,
    Embedding,
    FirstSegment,
    ProjectClusters,
    ProjectTwice,
    SegmentTable,
    cluster_sizes,
)
from saucier.config.layers import (
    CrossAttention,
    CustomSublayer,
    Experts,
    FeedForward,
    FourierMixing,
    GatedFeedForward,
    SelfAttention,
    Sublayer,
)
from saucier.config.model import Transformer
from saucier.config.positions import Axial, Learned
from saucier.config.questions import find_shared_biases, find_shared_positions, list_layerwise_kernels, sublayer_name
from saucier.config.recurrent import Recurrent
from saucier.config.relative_positions import T5Bias
from saucier.config.stack import Convolution, Stack


def character_node(network: CharacterNetwork, width: int) -> Node:
    """Return the parts that make a token's vector of `width`."""
    table = Node("characters", "embedding", "bytes and borders", f"{SYMBOLS} × {network.width}",
                 SYMBOLS * network.width)
    filters = []
    for size, count in network.filters:
        places = network.longest - size + 1
        one = linear(f"filters of {size}", size * network.width, count, bias=True)
        filters.append(replace(one, flops=one.flops * places, detail=f"at {places} places"))
    wide = network.features
    highways = [group_nodes("highways", "highway", [linear("highway", wide, 2 * wide, bias=True)],
                            times=network.highways)]
    return group_nodes("tokens", "characters", [table, *filters, *highways[:network.highways],
                                                linear("project", wide, width, bias=True)])


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
        taken = 3 if embed.projection.kind == "trigram" else 1
        children.append(linear("project", taken * embed.projection.width, dim, bias=embed.projection.bias))
    return group_nodes(name, "embedding", children)


def attention_nodes(part: SelfAttention, dim: int, length: int) -> list[Node]:
    """Return the parts of a self-attention in a sequence of `length` tokens."""
    query, key, _ = part.projection.widths(dim)
    nodes = [*part.kernel.map_nodes(part, dim), *part.positions.nodes(part.projection, dim)]
    if part.global_maps:  # their keys and values are made of all tokens, their queries of few
        maps = linear("global_qkv", dim, query + 2 * key, bias=part.global_maps.bias)
        nodes.append(replace(maps, flops=4.0 * dim * key))
    return [*nodes, *part.kernel.nodes(part, dim, length),
            linear("out", query, dim, bias=part.projection.output_bias, rank=map_rank(part.projection.ranks, "out"))]


def sublayer_nodes(part: Sublayer, dim: int, length: int) -> list[Node]:
    """Return the parts of a sublayer of width `dim` in a sequence of `length` tokens."""
    match part:
        case SelfAttention():
            return attention_nodes(part, dim, length)
        case CrossAttention(projection=projection):
            (query, key, _), ranks = projection.widths(dim), projection.ranks
            return [linear("q", dim, query, bias=projection.bias, rank=map_rank(ranks, "q")),
                    linear("kv", dim, 2 * key, bias=projection.bias, rank=map_rank(ranks, "kv")),
                    Node("scores", part.kernel.kind, f"{length} keys a query", flops=4.0 * length * query),
                    linear("out", query, dim, bias=projection.output_bias, rank=map_rank(ranks, "out"))]
        case FeedForward(hidden=hidden, bias=bias, ranks=ranks):
            return [linear("up", dim, hidden, bias=bias, rank=map_rank(ranks, "up")),
                    Node("activation", part.activation),
                    linear("down", hidden, dim, bias=bias, rank=map_rank(ranks, "down"))]
        case GatedFeedForward(hidden=hidden, bias=bias, ranks=ranks):
            return [linear("up", dim, 2 * hidden, bias=bias, rank=map_rank(ranks, "up")),
                    Node("activation", f"gated {part.activation}"),
                    linear("down", hidden, dim, bias=bias, rank=map_rank(ranks, "down"))]
        case Experts(router=router, count=count):
            share = router.top / count  # each expert sees so much of the tokens
            inner = [replace(node, flops=node.flops * share) for node in sublayer_nodes(part.inner, dim, length)]
            experts = group_nodes("experts", part.inner.kind, inner, detail=f"{router.top} for each token", times=count)
            return [linear("router", dim, count, bias=part.router_bias), experts]
        case FourierMixing():
            return [Node("transform", "fourier", "over width and tokens")]
        case Recurrent() | CustomSublayer():
            return part.nodes(dim, length)


def block_nodes(block: Block, dim: int, length: int) -> list[Node]:
    """Return one node for each sublayer of a block, its norms included."""
    wide, dim = dim, block.width(dim)
    nodes = bottleneck_nodes(block.bottleneck, wide) if block.bottleneck else []
    for residual in block.sublayers:
        inner = residual.inner
        norms = [norm_node("norm", residual.norm, dim)] if residual.norm else []
        if residual.kind == "sandwich":
            norms.append(norm_node("norm_after", residual.norm, dim))
        plain = residual.kind in ("parallel", "from_norm", "skip", "chain")
        detail = residual.kind.replace("_", " ") if plain else f"{residual.kind}-norm"
        if isinstance(inner, SelfAttention | CrossAttention):
            heads, kv = inner.projection.heads, inner.projection.kv_heads or inner.projection.heads
            detail += f", {heads} heads" + ("" if kv == heads else f", {kv} for keys and values")
        parts = sublayer_nodes(inner, dim, length)
        if isinstance(inner, SelfAttention) and block.bottleneck:
            parts[0] = split_node(block.bottleneck.attention_inputs(wide), inner.projection, dim)
        nodes.append(group_nodes(sublayer_name(inner), inner.kind, [*norms, *parts], detail=detail))
    return nodes


def bottleneck_nodes(bottleneck: Bottleneck, dim: int) -> list[Node]:
    """Return the maps into and out of a narrow block."""
    width, norm = bottleneck.width, bottleneck.norm
    inputs = 2 if bottleneck.reads.kind == "shared" else 1
    maps = [linear("down", dim, width, bias=True), norm_node("down_norm", norm, width)] * inputs
    return [group_nodes("bottleneck", "bottleneck", [*maps, linear("up", width, dim, bias=True),
                                                     norm_node("norm", norm, dim)], detail=f"{width} wide")]


def split_node(inputs: tuple[int, int], projection: Projection, dim: int) -> Node:
    """Return the maps of an attention whose values are made of another input than its queries and keys."""
    query, key, _ = projection.widths(dim)
    maps = [linear("qk", inputs[0], query + key, bias=projection.bias),
            linear("v", inputs[1], key, bias=projection.bias)]
    return group_nodes("qkv", "maps", maps)


def shared_nodes(stack: Stack, dim: int) -> list[Node]:
    """Return what all layers share: the table of their positions, a pair of biases, a map along the text."""
    nodes = []
    match find_shared_positions(stack):
        case T5Bias(buckets=buckets), heads:
            nodes = [Node("bias", "t5_bias", "shared by all layers", f"{buckets} × {heads}", buckets * heads)]
        case Disentangled(distances=distances, norm=norm), _:
            nodes = [Node("distances", "disentangled", "shared by all layers", f"{distances.rows} × {dim}",
                          distances.rows * dim), *([norm_node("distance_norm", norm, dim)] if norm else [])]
    if projection := find_shared_biases(stack):
        width = projection.widths(dim)[0]
        nodes.append(Node("biases", "transformer_xl", "shared by all layers", f"2 × {width}", 2 * width))
    if found := list_layerwise_kernels(stack):
        rank, longest = found[0].rank, found[0].length
        nodes.append(Node("mixtures", "low_rank", "shared by all layers", f"{longest} → {rank}", rank * longest))
    return nodes


def convolution_nodes(convolution: Convolution, dim: int) -> list[Node]:
    """Return the convolution next to the first block."""
    size, inputs = convolution.size, dim // convolution.groups
    kernel = Node("convolution", "convolution", "beside the first block", f"{dim} × {inputs} × {size}",
                  dim * inputs * size + dim, 2.0 * dim * inputs * size)
    return [kernel, norm_node("convolution_norm", convolution.norm, dim)]


def mark_shared_sublayers(nodes: list[Node], lender: Stack, block: int) -> list[Node]:
    """Return sublayers of a stack, those without parameters that use the weights of another stack's block."""
    names = {sublayer_name(one.inner) for one in lender.blocks()[block].sublayers}
    return [mark_as_shared(node) if node.name in names else node for node in nodes]


def stack_node(name: str, stack: Stack, dim: int, length: int, lender: Stack | None = None) -> Node:
    """Return the anatomy of an encoder or decoder; `lender`: the stack whose weights it uses too."""
    children = []
    if stack.layer_positions:
        rows, blocks = stack.layer_positions.length, len(stack.blocks())
        children.append(Node("positions", "learned", "one table for each block", f"{blocks} × {rows} × {dim}",
                             blocks * rows * dim))
    children += shared_nodes(stack, dim)
    if stack.convolution:
        children += convolution_nodes(stack.convolution, dim)

    def count(block: Block, number: int, length: int) -> list[Node]:
        nodes = block_nodes(block, dim, length)
        return mark_shared_sublayers(nodes, lender, number) if lender else nodes

    children.append(stack.layers.nodes(count, length))
    if stack.final_norm:
        children.append(norm_node("final_norm", stack.final_norm, stack.stream_width(dim)))
    if stack.narrow:
        children.append(linear("narrow", stack.stream_width(dim), stack.narrow, bias=False))
    if stack.queries:
        children.append(Node("queries", "vector", "where the second stream begins", str(dim), dim))
    return group_nodes(name, "stack", children)


def anatomy(config: Transformer, length: int = 512) -> Node:
    """Return the whole model as a tree of parts, with parameters and forward FLOPs per token at this length.

    In an encoder-decoder a "token" is one source token and one target token, at equal lengths.
    """
    dim, reader = config.dim, config.reader_dim
    parts = [embedding_node("embed", config.embed, reader)]
    if config.source:
        parts.append(group_nodes("source", "source", [embedding_node("embed", config.source.embed, reader),
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
        layers = 1 + len(config.stacks[0].blocks())
        scalars = Node("weights", "mix", "and a scale", f"{layers} + 1", layers + 1,
                       flops=2.0 * layers * config.reader_width)
        norms = [norm_node("norm", config.mix.norm, config.reader_width)] if config.mix.norm else []
        parts.append(group_nodes("mix", "mix", [scalars, *norms]))
    if config.pooler:
        width = config.encoder_dim or config.width
        pooler = linear("pooler", width, width, bias=True) if config.pooler.dense else Node("pooler", "first token")
        parts.append(replace(pooler, flops=0.0, detail="once a sequence"))
    if config.head:
        parts.append(head_node(config.head, config.width, config.output_embed.vocab))
    return group_nodes("model", "transformer", parts)


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
    for part in config.decoder.sublayers() if config.decoder else ():
        if isinstance(part, SelfAttention):
            query, key, head = part.projection.widths(config.dim)
            sums += 4 * part.kernel.state_values(query, head)
            values += 2 * length * key if part.kernel.caches_keys else 0
        elif isinstance(part, CrossAttention):
            values += 2 * source_length * part.projection.widths(config.dim)[1]
        elif isinstance(part, Recurrent):
            read = config.dim + part.keys(config.dim) if part.attention else 0
            values += sum(part.kept(config.dim)) + source_length * read
        elif isinstance(part, CustomSublayer):
            values += part.state_values(config.dim)
    return batch * (values * bytes_per_value + sums)
