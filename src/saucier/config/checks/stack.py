"""What concerns a stack as a whole, and the sublayers beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from saucier.config.asked import mixes_padding
from saucier.config.checks.attention import check_attention, check_projection
from saucier.config.checks.cells import reads_encoder
from saucier.config.checks.low_rank import check_shared_map
from saucier.config.checks.narrow import check_bottleneck
from saucier.config.disentangled import Disentangled
from saucier.config.layers import CrossAttention, Experts, FromNorm, Parallel, PreNorm, SelfAttention, Sublayer
from saucier.config.model import Block, Share, Stack, Transformer
from saucier.config.positions import T5Bias
from saucier.errors import InputError


def check_stack(name: str, stack: Stack, config: Transformer) -> None:
    """Check every sublayer, what the layers share, and that a decoder beside an encoder looks at it."""
    width = config.reader_dim if name == "encoder" else config.dim
    check_layout(name, stack, width)
    for index, block in enumerate(unlike(stack)):
        check_bottleneck(f"{name}.blocks.{index}.bottleneck", name, stack, block)
    found = {path: inner for path, inner, _ in placed(name, stack, width)}
    for path, inner, dim in placed(name, stack, width):
        check_sublayer(path, name, inner, dim)
    check_shared_scores({path: inner for path, inner in found.items() if isinstance(inner, SelfAttention)})
    crossed = any(isinstance(inner, CrossAttention) for inner in found.values())
    if name == "decoder" and config.encoder and not crossed and not reads_encoder(stack):
        raise InputError("this decoder never looks at the encoder", where="decoder",
                         remedy="add a cross_attention sublayer, or remove the encoder")


def unlike(stack: Stack) -> list[Block]:
    """Return the blocks that may differ: all of a cycle, else the first and what is repeated behind it."""
    blocks = list(stack.blocks())
    return blocks if stack.layers.kind == "cycle" else blocks[:2]


def placed(name: str, stack: Stack, dim: int) -> Iterator[tuple[str, Sublayer, int]]:
    """Yield (path, sublayer, width of the vectors that it reads) for every sublayer that may differ."""
    for index, block in enumerate(unlike(stack)):
        kinds = [residual.inner.kind for residual in block.sublayers]
        for place, residual in enumerate(block.sublayers):
            before = kinds[:place].count(kinds[place])
            yield (f"{name}.blocks.{index}.{kinds[place]}" + (f"_{before + 1}" if before else ""), residual.inner,
                   dim if isinstance(residual.inner, CrossAttention) else block.width(dim))


def check_sublayer(path: str, stack: str, inner: Sublayer, dim: int) -> None:
    """What concerns one sublayer."""
    match inner:
        case SelfAttention() as attention:
            check_attention(path, stack, attention, dim)
        case Experts(count=count, router=router) if router.top > count:
            raise InputError(f"{router.top} experts for each token, and there are {count}", where=f"{path}.router",
                             remedy="lower router.top, or raise count")
        case CrossAttention(projection=projection):
            check_projection(path, projection, dim)
            if stack == "encoder":
                raise InputError("cross-attention has no encoder output to read here", where=path,
                                 remedy="use it in a decoder beside an encoder")


def check_shared_scores(attentions: Mapping[str, SelfAttention]) -> None:
    """The layers of a stack share one T5 bias, or one table of distances, so theirs must not differ."""
    biases = {path: (one.positions, one.projection.heads) for path, one in attentions.items()
              if isinstance(one.positions, T5Bias)}
    tables = {path: (one.positions.distances, one.positions.norm) for path, one in attentions.items()
              if isinstance(one.positions, Disentangled)}
    if len(set(biases.values())) > 1:
        raise InputError("the layers of a stack share one T5 bias, and these differ", where=" and ".join(biases),
                         remedy="give them the same buckets, distance and heads")
    if len(set(tables.values())) > 1 or (tables and biases):
        raise InputError("the layers of a stack share one table of distances, and these differ",
                         where=" and ".join([*tables, *biases]), remedy="give them the same distances and norm")


def check_layout(name: str, stack: Stack, dim: int) -> None:
    """What concerns a stack as a whole."""
    check_groups(name, stack)
    check_shared_map(name, stack)
    check_convolution(name, stack, dim)
    check_mixing(name, stack)
    check_parallel(name, stack)


def check_groups(name: str, stack: Stack) -> None:
    """Layers that share weights in groups are no fewer than the groups."""
    if isinstance(stack.layers, Share) and stack.layers.groups > stack.layers.times:
        raise InputError(f"{stack.layers.times} layers do not fill {stack.layers.groups} groups",
                         where=f"{name}.layers.groups", remedy="use at most as many groups as layers")


def check_mixing(name: str, stack: Stack) -> None:
    """A transform over all tokens sees the future, which a decoder must not."""
    if name == "decoder" and mixes_padding(stack):
        raise InputError("a transform over all tokens sees the future", where=f"{name}.layers",
                         remedy="use it in an encoder")


def check_parallel(name: str, stack: Stack) -> None:
    """A parallel sublayer stands beside a pre-norm one, whose input is known without a memory or an encoder."""
    for index, block in enumerate(stack.blocks()):
        where = f"{name}.blocks.{index}"
        for before, residual in pairwise([None, *block.sublayers]):
            if isinstance(residual, Parallel) and not isinstance(before, PreNorm | Parallel):
                raise InputError("a parallel sublayer stands beside a pre-norm one", where=where,
                                 remedy="put a sublayer of kind: pre before it")
            beside = [one for one in (before, residual) if one] if isinstance(residual, Parallel) else []
            if any(isinstance(one.inner, CrossAttention) for one in beside):
                raise InputError("cross-attention does not stand beside another sublayer", where=where,
                                 remedy="use kind: pre for it and for what follows")
            assert residual is not None, "only the first of the list is no sublayer"
            if isinstance(residual, Parallel | FromNorm) and (stack.memory or stack.queries):
                raise InputError(f"a memory or a second stream does not go with {residual.kind} sublayers", where=where,
                                 remedy="use kind: pre or post")


def check_convolution(name: str, stack: Stack, dim: int) -> None:
    """A convolution is centred, divides the width, and looks ahead, which a decoder must not."""
    convolution, where = stack.convolution, f"{name}.convolution"
    if convolution is None:
        return
    if name == "decoder":
        raise InputError("a convolution looks at later tokens", where=where, remedy="use it in an encoder")
    if convolution.size % 2 == 0:
        raise InputError(f"a convolution of size {convolution.size} has no middle", where=where,
                         remedy="use an odd size")
    if dim % convolution.groups:
        raise InputError(f"dim {dim} does not divide into {convolution.groups} groups", where=where,
                         remedy="use a divisor of dim")
