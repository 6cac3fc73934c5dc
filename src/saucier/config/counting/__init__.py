"""What a config tree costs, counted without building it: parameters, FLOPs, bytes; `model.anatomy` is the whole.

`Node` is one part of a model with its parameters and FLOPs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from saucier.config.norms import LayerNorm, Norm, PlainLayerNorm, RMSNorm, Unnormed


@dataclass(frozen=True, slots=True)
class Node:
    """One part of a model: its own figures where it is a leaf, the sum of its children otherwise.

    `times` parts like this one follow each other; `parameters` and `flops` are those of all of them together.
    """

    name: str
    kind: str
    detail: str = ""
    shape: str = ""
    parameters: int = 0
    flops: float = 0.0
    times: int = 1
    children: tuple[Node, ...] = field(default=())

    def leaves(self) -> Iterator[Node]:
        """Yield the parts that hold the parameters."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()


def group_nodes(
    name: str, kind: str, children: list[Node], *, detail: str = "", times: int = 1, stored: int | None = None
) -> Node:
    """Sum children into a node that is repeated `times` times, with weights stored `stored` times (None: as often)."""
    copies = times if stored is None else stored
    return Node(name, kind, detail, parameters=copies * sum(child.parameters for child in children),
                flops=times * sum(child.flops for child in children), times=times, children=tuple(children))


def mark_as_shared(node: Node) -> Node:
    """Return a part that uses the weights of another: the same work, and no parameters of its own."""
    detail = f"{node.detail}, the encoder's" if node.detail else "the encoder's"
    return replace(node, parameters=0, detail="" if node.children else detail,
                   children=tuple(map(mark_as_shared, node.children)))


def linear(name: str, inputs: int, outputs: int, *, bias: bool, rank: int | None = None) -> Node:
    """A linear map; with or without bias, one matrix or the product of two."""
    weights = inputs * outputs if rank is None else rank * (inputs + outputs)
    return Node(
        name,
        "linear",
        "with bias" if bias else "",
        f"{inputs} → {outputs}" if rank is None else f"{inputs} → {rank} → {outputs}",
        weights + bias * outputs,
        2.0 * weights,
    )


def norm_node(name: str, norm: Norm, dim: int) -> Node:
    """A norm's gain and, where it has one, bias."""
    size = norm_size(norm)
    return Node(name, norm.kind, "with bias" if size == 2 else "", str(dim), dim * size)


def norm_size(norm: Norm) -> int:
    """Return how many trained values a norm has for each value that it norms."""
    match norm:
        case LayerNorm(bias=bias):
            return 1 + bias
        case RMSNorm():
            return 1
        case PlainLayerNorm():
            return 0
        case Unnormed():
            return 2 if norm.kind == "no_norm" else 0
