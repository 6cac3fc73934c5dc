"""Counting sublayers from their config: attention with its maps, positions and kernel, and recurrent layers.

FLOPs are forward, per token, one multiply-add = 2, matrix products alone.
"""

from __future__ import annotations

from dataclasses import replace

from saucier.config.counting import Node, group_nodes, linear
from saucier.config.disentangled import Disentangled, OwnMaps
from saucier.config.kernels import Chunks, Favor, Hashing, LowRank
from saucier.config.layers import Projection, SelfAttention
from saucier.config.positions import GlobalLocal, MusicTransformer, RelativeKey, RelativeKeyQuery, Shaw, TransformerXL
from saucier.config.questions import is_causal
from saucier.config.recurrent import (
    GRU,
    Bahdanau,
    ConcatScore,
    DeepOutput,
    FromLastLayer,
    FromMean,
    GeneralScore,
    LocalPredictive,
    Luong,
    Recurrent,
)
from saucier.config.visibility import (
    And,
    Beyond,
    Blocks,
    BlockWindow,
    ByHead,
    Causal,
    Full,
    Global,
    GlobalBlocks,
    Or,
    Permutation,
    Plus,
    Prefix,
    RandomBlocks,
    SameLength,
    Visibility,
    Window,
)
from saucier.config.visibility import Columns as Columns
from saucier.config.visibility import Dilated as Dilated
from saucier.config.visibility import Strided as Strided


def visible_keys(visibility: Visibility, length: int) -> float:
    """Return how many keys a query sees on average in a sequence of `length` tokens (for counting FLOPs).

    A prefix is counted as causal, since its length is known only with the batch, and global tokens, few and known
    as late, as one; a conjunction by its narrowest term, with a causal window counted exactly.
    """
    match visibility:
        case Full() | Permutation():
            return float(length)
        case SameLength():
            return 1.0
        case Causal() | Prefix():
            return (length + 1) / 2
        case Global():
            return 1.0
        case Window(size=size):
            reach = min(size, length)
            return 2 * causal_window_keys(reach, length) - 1
        case And(terms=terms):
            terms = flatten_terms(terms)
            past = any(isinstance(term, Causal) for term in terms)
            match [term for term in terms if not isinstance(term, Causal)]:
                case [Columns(stride=step, count=count)] if past:
                    firsts = range(step - min(count, step), step)
                    return sum(sum(range(length - first, 0, -step)) for first in firsts) / length
            narrow = min((visible_keys(term, length) for term in terms if not isinstance(term, Causal)),
                         default=float(length))
            if past and all(isinstance(term, Causal | SYMMETRIC) for term in terms):
                return (narrow + 1) / 2
            return min(narrow, (length + 1) / 2) if past else narrow
        case Or(terms=terms):
            return min(float(length), sum(visible_keys(term, length) for term in terms))
        case Plus(terms=terms):
            return sum(visible_keys(term, length) for term in terms)
        case Beyond(length=limit, inner=inner):
            return visible_keys(inner, length) if length > limit else float(length)
        case BlockWindow() | GlobalBlocks() | RandomBlocks():
            return block_keys(visibility, length)
        case Dilated(size=size, dilation=step):
            return 2 * sum(max(0, length - step * away) for away in range(size)) / length - 1
        case Strided(stride=step):
            return 2 * sum(range(length, 0, -step)) / length - 1
        case Columns(stride=step, count=count):
            whole, rest = divmod(length, step)
            return float(whole * min(count, step) + max(0, rest - max(0, step - count)))
        case ByHead(terms=terms):
            return sum(visible_keys(term, length) for term in terms) / len(terms)


SYMMETRIC = Full | Window | Dilated | Strided | BlockWindow
"""Visibilities in which two positions see each other or not, and every one sees itself."""


def block_keys(visibility: Blocks, length: int) -> float:
    """Return the average number of keys that a pattern of blocks shows, its last block counted as a whole one."""
    size, blocks = visibility.size, max(1, -(-length // visibility.size))
    match visibility:
        case BlockWindow(reach=reach):
            shown = sum(min(block + reach, blocks - 1) - max(block - reach, 0) + 1 for block in range(blocks)) / blocks
        case GlobalBlocks():
            shown = min(2.0, blocks) * (2 - min(2, blocks) / blocks)
        case RandomBlocks(count=count):
            shown = count * max(blocks - 2, 0) / blocks
    return min(shown * size, max(1.0, shown) * length)


def flatten_terms(terms: tuple[Visibility, ...]) -> tuple[Visibility, ...]:
    """Return the terms of a conjunction with those of conjunctions inside it."""
    return tuple(inner for term in terms for inner in (flatten_terms(term.terms) if isinstance(term, And) else (term,)))


def causal_window_keys(reach: int, length: int) -> float:
    """Average of min(position + 1, reach) over the positions of a sequence."""
    return (reach * (reach + 1) / 2 + (length - reach) * reach) / length


def chunk_keys(kernel: Chunks | Hashing, length: int) -> float:
    """Return how many keys a query meets in an input of this length, those counted that are then hidden."""
    match kernel:
        case Chunks():
            return float(length if length <= kernel.length else kernel.width)
        case Hashing(chunks=chunks, rounds=rounds):
            return float(length if length <= chunks.length else rounds * chunks.width)


def hash_products(kernel: Hashing, length: int) -> float:
    """Return the multiply-adds of hashing for each value of a query."""
    chunks = kernel.chunks
    return kernel.rounds * sum(kernel.factors(chunks.padded(length))) / 2 if length > chunks.length else 0.0


def feature_flops(kernel: Favor, queries: int, keys: int, head: int) -> float:
    """Return the FLOPs of a token for its features, as query and as key of all heads together (so many values).

    A key has one value more, half of its square.
    """
    return 2.0 * (queries + keys + keys // head) * kernel.features


def mixing_flops(kernel: Favor, width: int, head: int, *, length: int, causal: bool) -> float:
    """Return the FLOPs of a token for mixing values in an input of this length; each head has one column of ones more.
    """
    values, heads = width + width // head, width // head
    sums = 4.0 * kernel.features * values
    if not causal:
        return sums
    size = min(kernel.block, length)
    blocks = -(-length // size)
    inside = 2.0 * size * (kernel.features * heads + values)
    return (inside + (sums if blocks > 1 else 0.0)) * blocks * size / length  # the last block is filled up


def attention_nodes(part: SelfAttention, dim: int, length: int) -> list[Node]:
    """Return the parts of a self-attention in a sequence of `length` tokens."""
    if isinstance(part.kernel, Hashing):
        return hashing_nodes(part, part.kernel, dim, length)
    query, key, _ = part.projection.widths(dim)
    keys = chunk_keys(part.kernel, length) if isinstance(part.kernel, Chunks) else visible_keys(part.visibility, length)
    maps = linear("qkv", dim, query + 2 * key, bias=part.projection.bias)
    if part.projection.bias and not part.projection.key_bias:
        maps = replace(maps, detail="keys without bias", parameters=maps.parameters - key)
    nodes = [maps, *position_nodes(part, dim)]
    if part.global_maps:  # their keys and values are made of all tokens, their queries of few
        maps = linear("global_qkv", dim, query + 2 * key, bias=part.global_maps.bias)
        nodes.append(replace(maps, flops=4.0 * dim * key))
    if isinstance(part.kernel, Favor):
        return [*nodes, *feature_nodes(part, part.kernel, dim, length),
                linear("out", query, dim, bias=part.projection.output_bias)]
    if isinstance(part.kernel, LowRank):
        nodes += mixture_nodes(part.kernel, key)
        keys = part.kernel.rank
    nodes.append(
        Node("scores", part.kernel.kind, f"{keys:g} keys a query, {part.visibility.kind}", flops=4.0 * keys * query)
    )
    return [*nodes, linear("out", query, dim, bias=part.projection.output_bias)]


def feature_nodes(part: SelfAttention, kernel: Favor, dim: int, length: int) -> list[Node]:
    """Return the parts of an attention by random features."""
    query, key, head = part.projection.widths(dim)
    mixing = mixing_flops(kernel, query, head, length=length, causal=is_causal(part.visibility))
    return [Node("features", kernel.kind, f"{kernel.features} a head", flops=feature_flops(kernel, query, key, head)),
            Node("sums", kernel.kind, part.visibility.kind, flops=mixing)]


def mixture_nodes(kernel: LowRank, width: int) -> list[Node]:
    """Return the maps along the text that mix keys and values, `width` of each for a token."""
    found = Node("mixtures", kernel.kind, "the stack's map", flops=4.0 * kernel.rank * width)
    if kernel.maps:
        shape = f"{kernel.maps} × {kernel.length} → {kernel.rank}"
        found = replace(found, detail=kernel.sharing.kind.replace("_", " "), shape=shape,
                        parameters=kernel.maps * kernel.length * kernel.rank)
    return [found]


def hashing_nodes(part: SelfAttention, kernel: Hashing, dim: int, length: int) -> list[Node]:
    """Return the parts of an attention by hashes, whose queries and keys are one map."""
    width, keys = part.projection.widths(dim)[0], chunk_keys(kernel, length)
    return [linear("qkv", dim, 2 * width, bias=part.projection.bias),
            Node("hashes", kernel.kind, f"{kernel.rounds} a position",
                 flops=2.0 * width * hash_products(kernel, length)),
            Node("scores", kernel.kind, f"{keys:g} keys a query, {part.visibility.kind}", flops=4.0 * keys * width),
            linear("out", width, dim, bias=part.projection.output_bias)]


def position_nodes(part: SelfAttention, dim: int) -> list[Node]:
    """Return the trained tables of a self-attention's positions; a T5 bias belongs to the stack instead."""
    head = part.projection.widths(dim)[2]
    match part.positions:
        case Shaw(max_distance=reach):
            rows = 2 * reach + 1
            return [Node("positions", "shaw", "keys and values", f"2 × {rows} × {head}", 2 * rows * head)]
        case RelativeKey(kind=kind, length=length) | RelativeKeyQuery(kind=kind, length=length):
            rows = 2 * length - 1
            return [Node("positions", kind, "shared by the heads", f"{rows} × {head}", rows * head)]
        case GlobalLocal(labels=rows):
            return [Node("positions", "global_local", "shared by the heads", f"{rows} × {head}", rows * head)]
        case MusicTransformer(length=rows):
            heads = part.projection.heads
            return [Node("positions", "music_transformer", "", f"{heads} × {rows} × {head}", heads * rows * head)]
        case Disentangled() as positions:
            return disentangled_nodes(positions, part.projection, dim)
        case TransformerXL(shared_biases=shared, segments=segments):
            query = part.projection.widths(dim)[0]
            count = dim * query + (0 if shared else 2 * query) + (3 * query if segments else 0)
            return [Node("positions", "transformer_xl", "", f"{dim} → {query}", count)]
        case other:
            return [] if other.kind == "none" else [Node("positions", other.kind)]


def disentangled_nodes(positions: Disentangled, projection: Projection, dim: int) -> list[Node]:
    """Return the maps from the distance table, and the products of every token with its rows.

    The maps themselves run once a pass, over the table, and are not counted per token.
    """
    width, nodes = projection.widths(dim)[0], []
    if isinstance(positions.maps, OwnMaps):
        if positions.content_to_position:
            nodes.append(linear("distance_key", dim, width, bias=positions.maps.key_bias))
        if positions.position_to_content:
            nodes.append(linear("distance_query", dim, width, bias=True))
    nodes = [replace(node, flops=0.0, detail="once a pass") for node in nodes]
    work = 2.0 * positions.distances.rows * width * (positions.terms - 1)
    return [*nodes, Node("distance scores", "disentangled", f"{positions.distances.rows} rows", flops=work)]


def recurrent_nodes(part: Recurrent, dim: int, length: int) -> list[Node]:
    """Return the parts of a recurrent sublayer of width `dim` beside a source of `length` tokens."""
    first = cell_node(part, dim, fed=dim if part.fed else 0)
    nodes = [group_nodes("layer 1", part.direction.kind, [first], times=len(part.ways))]
    if part.layers > 1:
        rest = group_nodes("layer", part.direction.kind, [cell_node(part, dim)], times=len(part.ways))
        nodes.append(group_nodes("layers above", part.direction.kind, [rest], times=part.layers - 1))
    if isinstance(part.start, FromLastLayer | FromMean):
        begin = linear("begin", dim, sum(part.all_states(dim)), bias=True)
        nodes.append(replace(begin, flops=0.0, detail="once a sequence"))
    return nodes + (alignment_nodes(part.attention, dim, length) if part.attention else [])


def cell_node(part: Recurrent, dim: int, fed: int = 0) -> Node:
    """Return one cell; `fed`: width of what enters beside the token."""
    width, gates, bias = part.width(dim), part.gates(dim), part.cell.bias
    maps = [linear("input", part.inputs(dim), gates, bias=bias),
            linear("hidden", width, gates, bias=bias and isinstance(part.cell, GRU))]
    maps += [linear("feed", fed, gates, bias=False)] if fed else []
    maps += [linear("project", part.cells(dim), width, bias=False)] if part.projected else []
    return group_nodes("cell", part.cell.kind, maps, detail=f"{part.cells(dim)} units")


def alignment_nodes(attention: Bahdanau | Luong, dim: int, length: int) -> list[Node]:
    """Return the attention of a recurrent sublayer; what is made of the source is counted for each of its tokens."""
    nodes: list[Node] = []
    match attention.score:
        case ConcatScore(width=width):
            wide = width or dim
            nodes += [linear("query", dim, wide, bias=False), linear("source", dim, wide, bias=False),
                      Node("weigh", "linear", f"{length} places a token", f"{wide} → 1", wide, 2.0 * length * wide)]
        case GeneralScore():
            nodes += [linear("query", dim, dim, bias=False), score_node(dim, length)]
        case _:
            nodes.append(score_node(dim, length))
    nodes.append(Node("mix", attention.kind, f"{length} places a token", flops=2.0 * length * dim))
    match attention:
        case Bahdanau(readout=DeepOutput()):
            nodes.append(linear("combine", 3 * dim, 2 * dim, bias=True))
        case Luong(reach=reach):
            nodes.append(linear("combine", 2 * dim, dim, bias=False))
            if isinstance(reach, LocalPredictive):
                wide = reach.width or dim
                nodes += [linear("centre up", dim, wide, bias=False), linear("centre down", wide, 1, bias=False)]
    return nodes


def score_node(dim: int, length: int) -> Node:
    """Return inner products with every place of the source."""
    return Node("scores", "dot", f"{length} places a token", flops=2.0 * length * dim)


def kept_values(part: Recurrent, dim: int, source_length: int) -> int:
    """Return how many values a recurrent sublayer keeps for one row while a model writes."""
    read = dim + part.keys(dim) if part.attention else 0
    return sum(part.kept(dim)) + source_length * read
