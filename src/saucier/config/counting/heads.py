"""The anatomy of a model's head: its parameters and FLOPs, forward, per token, one multiply-add = 2."""

from __future__ import annotations

from dataclasses import replace

from saucier.config.counting import Node, group_nodes, linear, norm_node
from saucier.config.embedding import cluster_sizes
from saucier.config.heads import (
    AdaptiveHead,
    BidirectionalHead,
    ChoiceHead,
    ClassificationHead,
    CustomHead,
    DoubleHead,
    EmbeddingHead,
    Head,
    JointSpanHead,
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
        case JointSpanHead(hidden=hidden, longest=longest):
            ends = [linear("start", dim, hidden, bias=True), linear("end", dim, hidden, bias=False)]
            scores = [norm_node("norm", head.norm, hidden), linear("output", hidden, 1, bias=True)]
            every = [replace(node, flops=longest * node.flops, detail="for every span") for node in scores]
            return group_nodes("head", head.kind, [*ends, *every])
        case ReaderHead():
            relevance = count_once(linear("relevance", dim, 1, bias=True))
            return group_nodes("head", head.kind, [*output_nodes(None, dim, 2, bias=True), relevance])
        case ReplacedTokenHead():
            return group_nodes("head", head.kind, output_nodes(head.transform, dim, 1, bias=True))
        case AdaptiveHead():
            return group_nodes("head", head.kind, adaptive_nodes(head, dim, vocab))
        case EmbeddingHead():
            return group_nodes("head", head.kind, embedding_nodes(head, dim, vocab))
        case CustomHead():
            return group_nodes("head", head.kind, head.nodes(dim, vocab))


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
        language = [replace(node, flops=0.0) for node in language_nodes(head.language, dim, vocab)]
        nodes.append(group_nodes("language", head.language.kind, language))
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
