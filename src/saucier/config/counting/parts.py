"""The anatomy of a model's parts: what embeddings, heads, attentions and recurrent layers hold and cost.

FLOPs are forward, per token, one multiply-add = 2, matrix products alone.
"""

from __future__ import annotations

from dataclasses import replace

from saucier.config.counting import Node, group_nodes, linear, norm_node
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
from saucier.config.heads import (
    AdaptiveHead,
    BidirectionalHead,
    ChoiceHead,
    ClassificationHead,
    DoubleHead,
    EmbeddingHead,
    Head,
    LanguageHead,
    LengthHead,
    PretrainingHead,
    QuestionSpanHead,
    ReaderHead,
    ReplacedTokenHead,
    SpanHead,
    TokenHead,
    Transform,
)
from saucier.config.layers import SelfAttention
from saucier.config.positions import Axial, Learned
from saucier.config.recurrent import (
    Bahdanau,
    ConcatScore,
    InnerProduct,
    LocalPredictive,
    Luong,
    Readout,
    Recurrent,
)


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


def head_node(head: Head, dim: int, vocab: int) -> Node:
    """Return the anatomy of a head that reads vectors of width `dim`."""
    match head:
        case LanguageHead():
            return group_nodes("head", head.kind, language_nodes(head, dim, vocab))
        case PretrainingHead():
            language = group_nodes("language", head.language.kind, language_nodes(head.language, dim, vocab))
            return group_nodes("head", head.kind,
                               [language, count_once(linear("sentence", dim, head.classes, bias=True))])
        case LengthHead():
            language = group_nodes("language", head.language.kind, language_nodes(head.language, dim, vocab))
            return group_nodes("head", head.kind,
                               [language, count_once(linear("lengths", dim, head.longest + 1, bias=True))])
        case BidirectionalHead():
            halves = [replace(node, flops=2 * node.flops) for node in language_nodes(head.language, dim // 2, vocab)]
            return group_nodes("head", head.kind, halves, detail="over each half")
        case DoubleHead():
            language = group_nodes("language", head.language.kind, language_nodes(head.language, dim, vocab))
            choice = group_nodes("choice", head.choice.kind,
                                 once_nodes(head.choice.transform, dim, 1, bias=head.choice.bias))
            return group_nodes("head", head.kind, [language, choice])
        case ClassificationHead():
            return group_nodes("head", head.kind, once_nodes(head.transform, dim, head.classes, bias=head.bias))
        case ChoiceHead():
            return group_nodes("head", head.kind, once_nodes(head.transform, dim, 1, bias=head.bias))
        case TokenHead():
            return group_nodes("head", head.kind, output_nodes(head.transform, dim, head.classes, bias=head.bias))
        case SpanHead():
            return group_nodes("head", head.kind, output_nodes(head.transform, dim, 2, bias=head.bias))
        case QuestionSpanHead(hidden=hidden):
            maps = [linear("up", dim, hidden, bias=True), linear("down", hidden, dim, bias=True)]
            return group_nodes("head", head.kind, [*maps, norm_node("norm", head.norm, dim),
                                                   linear("output", dim, 2, bias=True)])
        case ReaderHead():
            relevance = count_once(linear("relevance", dim, 1, bias=True))
            return group_nodes("head", head.kind, [*output_nodes(None, dim, 2, bias=True), relevance])
        case ReplacedTokenHead():
            return group_nodes("head", head.kind, output_nodes(head.transform, dim, 1, bias=True))
        case AdaptiveHead():
            return group_nodes("head", head.kind, adaptive_nodes(head, dim, vocab))
        case EmbeddingHead():
            return group_nodes("head", head.kind, embedding_nodes(head, dim, vocab))


def adaptive_nodes(head: AdaptiveHead, dim: int, vocab: int) -> list[Node]:
    """Return the parts of a head that scores by cluster, as if every token were scored by all clusters."""
    nodes = [linear("clusters", head.width, len(head.cutoffs), bias=True), Node("bias", "bias", "", str(vocab), vocab)]
    own = [not tied for tied in head.tied_maps] or [True] * (len(head.cutoffs) + 1)
    for size, width, mine in zip(cluster_sizes(head.cutoffs, vocab), head.widths(), own, strict=True):
        output = linear("output", width, size, bias=False)
        nodes.append(replace(output, parameters=0, detail="tied to the token embedding") if head.tied else output)
        if head.maps(dim):
            project = linear("map", dim, width, bias=False)
            nodes.append(project if mine else replace(project, parameters=0, detail="tied to the embedding's"))
    return nodes


def language_nodes(head: LanguageHead, dim: int, vocab: int) -> list[Node]:
    """Return the parts of a language head."""
    nodes, width = transform_nodes(head.transform, dim)
    output = linear("output", width, vocab, bias=False)
    tied = replace(output, parameters=head.columns * vocab, detail="tied to the token embedding")
    nodes.append(tied if head.tied else output)
    return [*nodes, Node("bias", "bias", "", str(vocab), vocab)] if head.bias else nodes


def embedding_nodes(head: EmbeddingHead, dim: int, vocab: int) -> list[Node]:
    """Return the parts of a head that gives one vector; a language head next to it does no work."""
    widths = head.widths(dim)
    nodes = [count_once(linear("map", width, one.width, bias=one.bias))
             for one, width in zip(head.maps, widths, strict=False)]
    if head.norm:
        nodes.append(norm_node("norm", head.norm, widths[-1]))
    if head.language:
        beside = [replace(node, flops=0.0) for node in language_nodes(head.language, dim, vocab)]
        nodes.append(group_nodes("language", head.language.kind, beside))
    return nodes


def transform_nodes(transform: Transform | None, dim: int) -> tuple[list[Node], int]:
    """Return the parts of a transform, and the width that it gives."""
    if transform is None:
        return [], dim
    width = transform.width or dim
    nodes = [linear("transform", dim, width, bias=transform.bias)]
    return [*nodes, norm_node("norm", transform.norm, width)] if transform.norm else nodes, width


def output_nodes(transform: Transform | None, dim: int, classes: int, *, bias: bool) -> list[Node]:
    """Return the parts of a head with one output map."""
    nodes, width = transform_nodes(transform, dim)
    return [*nodes, linear("output", width, classes, bias=bias)]


def once_nodes(transform: Transform | None, dim: int, classes: int, *, bias: bool) -> list[Node]:
    """Return the same for a head that reads one vector of an input."""
    return [count_once(node) for node in output_nodes(transform, dim, classes, bias=bias)]


def count_once(node: Node) -> Node:
    """Count nothing per token for a map that runs once a sequence."""
    return replace(node, flops=0.0, detail="once a sequence")


def attention_nodes(part: SelfAttention, dim: int, length: int) -> list[Node]:
    """Return the parts of a self-attention in a sequence of `length` tokens."""
    query, key, _ = part.projection.widths(dim)
    nodes = [*part.kernel.map_nodes(part, dim), *part.positions.nodes(part.projection, dim)]
    if part.global_maps:  # their keys and values are made of all tokens, their queries of few
        maps = linear("global_qkv", dim, query + 2 * key, bias=part.global_maps.bias)
        nodes.append(replace(maps, flops=4.0 * dim * key))
    return [*nodes, *part.kernel.nodes(part, dim, length),
            linear("out", query, dim, bias=part.projection.output_bias)]


def recurrent_nodes(part: Recurrent, dim: int, length: int) -> list[Node]:
    """Return the parts of a recurrent sublayer of width `dim` for a source of `length` tokens."""
    first = cell_node(part, dim, fed=dim if part.fed else 0)
    nodes = [group_nodes("layer 1", part.direction.kind, [first], times=len(part.ways))]
    if part.layers > 1:
        rest = group_nodes("layer", part.direction.kind, [cell_node(part, dim)], times=len(part.ways))
        nodes.append(group_nodes("layers above", part.direction.kind, [rest], times=part.layers - 1))
    if part.start.kind in ("last_layer", "mean"):
        begin = linear("begin", dim, sum(part.all_states(dim)), bias=True)
        nodes.append(replace(begin, flops=0.0, detail="once a sequence"))
    return nodes + (alignment_nodes(part.attention, dim, length) if part.attention else [])


def cell_node(part: Recurrent, dim: int, fed: int = 0) -> Node:
    """Return one cell; `fed`: width of what enters in addition to the token."""
    width, gates, bias = part.width(dim), part.gates(dim), part.cell.bias
    maps = [linear("input", part.inputs(dim), gates, bias=bias),
            linear("hidden", width, gates, bias=bias and part.cell.kind == "gru")]
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
        case InnerProduct(kind="general"):
            nodes += [linear("query", dim, dim, bias=False), score_node(dim, length)]
        case _:
            nodes.append(score_node(dim, length))
    nodes.append(Node("mix", attention.kind, f"{length} places a token", flops=2.0 * length * dim))
    match attention:
        case Bahdanau(readout=Readout(kind="deep")):
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
