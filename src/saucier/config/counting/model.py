"""Counting a model from its config, without building it: parameters, FLOPs, memory, and the anatomy of `saucier show`.

Letters: B batch, L length, D dim. FLOPs are forward, per token, one multiply-add = 2; a backward pass costs twice as
much. Only matrix products are counted, as is usual (Kaplan et al. 2020, §2.1, arXiv:2001.08361). Memory is that
of our own training loop: 32-bit master weights, activations in the chosen number format.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from saucier.config.attention_slots import Projection
from saucier.config.blocks import Block, Bottleneck
from saucier.config.counting import Node, group_nodes, linear, mark_as_shared, norm_node
from saucier.config.counting.parts import attention_nodes, embedding_node, head_node, recurrent_nodes
from saucier.config.disentangled import Disentangled
from saucier.config.layers import (
    CrossAttention,
    Experts,
    FeedForward,
    FourierMixing,
    GatedFeedForward,
    SelfAttention,
    Sublayer,
)
from saucier.config.model import Transformer
from saucier.config.questions import find_shared_biases, find_shared_positions, list_layerwise_kernels, sublayer_name
from saucier.config.recurrent import Recurrent
from saucier.config.relative_positions import T5Bias
from saucier.config.stack import Activations, Convolution, Stack


def sublayer_nodes(part: Sublayer, dim: int, length: int) -> list[Node]:
    """Return the parts of a sublayer of width `dim` in a sequence of `length` tokens."""
    match part:
        case SelfAttention():
            return attention_nodes(part, dim, length)
        case CrossAttention(projection=projection):
            query, key, _ = projection.widths(dim)
            return [linear("q", dim, query, bias=projection.bias), linear("kv", dim, 2 * key, bias=projection.bias),
                    Node("scores", part.kernel.kind, f"{length} keys a query", flops=4.0 * length * query),
                    linear("out", query, dim, bias=projection.output_bias)]
        case FeedForward(hidden=hidden, bias=bias):
            return [linear("up", dim, hidden, bias=bias), Node("activation", part.activation),
                    linear("down", hidden, dim, bias=bias)]
        case GatedFeedForward(hidden=hidden, bias=bias):
            return [linear("up", dim, 2 * hidden, bias=bias), Node("activation", f"gated {part.activation}"),
                    linear("down", hidden, dim, bias=bias)]
        case Experts(router=router, count=count):
            share = router.top / count  # each expert sees so much of the tokens
            inner = [replace(node, flops=node.flops * share) for node in sublayer_nodes(part.inner, dim, length)]
            experts = group_nodes("experts", part.inner.kind, inner, detail=f"{router.top} for each token", times=count)
            return [linear("router", dim, count, bias=part.router_bias), experts]
        case FourierMixing():
            return [Node("transform", "fourier", "over width and tokens")]
        case Recurrent():
            return recurrent_nodes(part, dim, length)


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


def mark_shared_sublayers(nodes: list[Node], lender: Stack | None, block: int) -> list[Node]:
    """Return sublayers of a stack, those without parameters that use the weights of another stack's block."""
    names = {sublayer_name(one.inner) for one in lender.blocks()[block].sublayers} if lender else set()
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
    children.append(stack.layers.nodes(lambda block, number, length: mark_shared_sublayers(
        block_nodes(block, dim, length), lender, number), length))
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
        layers = sum(len(stack.blocks()) for stack in (config.encoder, config.decoder) if stack)  # check(): one stack
        scalars = Node("weights", "mix", "and a scale", f"{layers + 1} + 1", layers + 2)
        norms = [norm_node("norm", config.mix.norm, config.width)] if config.mix.norm else []
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
    return batch * (values * bytes_per_value + sums)


KEEP_ACTIVATIONS = Activations(kind="keep")


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes by purpose."""

    weights: int
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    cache: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.cache


def stack_activations(stack: Stack, dim: int, activations: Activations = KEEP_ACTIVATIONS) -> int:
    """Return how many values a token leaves behind in a stack for the backward pass, at most at one time."""
    every = [block_activations(block, dim) for block in stack.blocks()]
    if stack.residual.kind == "reversible":
        return 2 * dim + max(every)
    if activations.kind == "recompute":
        return len(every) * dim + max(every)
    return sum(every)


def block_activations(block: Block, wide: int) -> int:
    """Return the same for a block that reads vectors of width `wide`."""
    dim = block.width(wide)
    total = 0 if block.bottleneck is None else 2 * wide + 2 * dim
    for residual in block.sublayers:
        total += 2 * dim  # the norm's input, and its output which the next map reads
        match residual.inner:
            case SelfAttention(projection=projection) | CrossAttention(projection=projection):
                query, key, _ = projection.widths(dim)
                total += 2 * query + 2 * key
            case FeedForward(hidden=hidden):
                total += 2 * hidden
            case GatedFeedForward(hidden=hidden):
                total += 3 * hidden
            case Recurrent() as part:  # the sums of the gates, what became of them, and the states
                total += len(part.ways) * part.layers * (2 * part.gates(dim) + 3 * part.cells(dim))
            case Experts(inner=expert, router=router):
                total += router.top * (2 * dim + (2 if isinstance(expert, FeedForward) else 3) * expert.hidden)
    return total


def estimate_memory(
    config: Transformer, *, batch: int, length: int, training: bool, optimizer_states: int = 2, value_bytes: int = 4,
    activations: Activations = KEEP_ACTIVATIONS,
) -> MemoryEstimate:
    """Estimate the bytes needed for `batch` sequences of `length` tokens, in training or in generation.

    `optimizer_states` is the number of 32-bit values that the optimizer keeps for a parameter (AdamW 2, Muon 1).
    """
    count = parameters(config)
    if not training:
        cache = cache_bytes(
            config,
            batch=batch,
            length=length,
            source_length=length if config.encoder else 0,
            bytes_per_value=value_bytes,
        )
        return MemoryEstimate(weights=count * value_bytes, cache=cache)
    stacks = [stack for stack in (config.encoder, config.decoder) if stack]
    values = sum(stack_activations(stack, config.dim, activations) for stack in stacks)
    copies = 4 * count + (
        value_bytes * count if value_bytes < 4 else 0
    )  # a low-precision copy beside the master weights
    return MemoryEstimate(weights=copies, gradients=4 * count, optimizer=4 * optimizer_states * count,
                          activations=values * value_bytes * batch * length)
