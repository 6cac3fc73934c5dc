"""Illegal combinations inside a stack: its layout, what its layers share, its streams, its memory, and tied stacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from saucier.config.blocks import Block
from saucier.config.checks.layers import check_attention, check_projection
from saucier.config.disentangled import Disentangled, SharedMaps
from saucier.config.layers import (
    CrossAttention,
    Experts,
    FromNorm,
    Parallel,
    PreNorm,
    Residual,
    SelfAttention,
    Sublayer,
)
from saucier.config.model import Transformer
from saucier.config.positions import NoPositions, Rotary
from saucier.config.questions import hides_keys, list_layerwise_kernels, list_recurrent_parts, mixes_padding
from saucier.config.relative_positions import T5Bias, TransformerXL
from saucier.config.stack import Stack
from saucier.config.visibility import Full
from saucier.errors import InputError


def check_stack(name: str, stack: Stack, config: Transformer) -> None:
    """Check every sublayer, what the layers share, and that a decoder with an encoder looks at it."""
    width = config.reader_dim if name == "encoder" else config.dim
    check_layout(name, stack, width)
    for index, block in enumerate(stack.layers.distinct()):
        check_bottleneck(f"{name}.blocks.{index}.bottleneck", name, stack, block)
    found = {path: inner for path, inner, _ in iterate_sublayers(name, stack, width)}
    for path, inner, dim in iterate_sublayers(name, stack, width):
        check_sublayer(path, name, inner, dim)
    check_shared_scores({path: inner for path, inner in found.items() if isinstance(inner, SelfAttention)})
    crossed = any(isinstance(inner, CrossAttention) for inner in found.values())
    if name == "decoder" and config.encoder and not crossed and not any(
            part.reads_encoder for part in list_recurrent_parts(stack)):
        raise InputError("this decoder never looks at the encoder", where="decoder",
                         remedy="add a cross_attention sublayer, or remove the encoder")


def iterate_sublayers(name: str, stack: Stack, dim: int) -> Iterator[tuple[str, Sublayer, int]]:
    """Yield (path, sublayer, width of the vectors that it reads) for every sublayer that may differ."""
    for index, block in enumerate(stack.layers.distinct()):
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
    stack.layers.check(f"{name}.layers")
    check_plain(name, stack)
    check_shared_map(name, stack)
    check_convolution(name, stack, dim)
    if name == "decoder" and mixes_padding(stack):
        raise InputError("a transform over all tokens sees the future", where=f"{name}.layers",
                         remedy="use it in an encoder")
    check_parallel(name, stack)


def check_plain(name: str, stack: Stack) -> None:
    """What a stack has besides its blocks goes with blocks that each read one vector for every token."""
    other = (stack.memory, stack.queries, stack.convolution, stack.layer_positions, stack.zero_padding)
    if not stack.layers.plain and (any(other) or stack.residual.kind != "one" or name != "encoder"):
        raise InputError(f"layers of kind {stack.layers.kind} are those of a plain encoder", where=f"{name}.layers",
                         remedy="leave out memory, queries, convolution, layer_positions, zero_padding and streams")


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


def check_shared_map(name: str, stack: Stack) -> None:
    """The map that all layers share has one size."""
    sizes = {(kernel.length, kernel.rank) for kernel in list_layerwise_kernels(stack)}
    if len(sizes) > 1:
        raise InputError("the layers of a stack share one map along the text, and these differ", where=name,
                         remedy="give them the same length and rank")


def check_bottleneck(where: str, name: str, stack: Stack, block: Block) -> None:
    """Inside a bottleneck attention has plain maps, and no cache; the stack has one plain stream."""
    if block.bottleneck is None:
        return
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
    if not attention.kernel.exact:
        raise InputError(f"no {attention.kernel.kind} kernel in a bottleneck", where=where, remedy="use kind: softmax")


def check_tied(config: Transformer) -> None:
    """Raise `InputError` where the stacks have no weights that they could share."""
    if config.encoder and config.encoder.tied:
        raise InputError("the encoder has no weights to be tied to", where="encoder.tied",
                         remedy="use tied: true in the decoder only")
    if config.decoder is None or not config.decoder.tied:
        return
    if config.encoder is None:
        raise InputError("there is no encoder whose weights could be used", where="decoder.tied",
                         remedy="use tied: false, or add an encoder")
    if describe_layout(config.encoder) != describe_layout(config.decoder):
        raise InputError("the blocks of the stacks are laid out in different ways", where="decoder.tied",
                         remedy="give both stacks the same kind of layers and the same number of them")
    pairs = zip(config.encoder.blocks(), config.decoder.blocks(), strict=True)
    for number, (lender, borrower) in enumerate(dict.fromkeys(pairs)):
        check_blocks(f"decoder.blocks.{number}", lender, borrower)


def describe_layout(stack: Stack) -> dict[str, object]:
    """Return how the blocks of a stack stand, without what is in them."""
    plain: dict[str, object] = stack.layers.model_dump(exclude={"block", "blocks"})
    return plain | {"turn": len(stack.blocks())}


def check_blocks(where: str, lender: Block, borrower: Block) -> None:
    """What both blocks have is of the same shape."""
    if lender.bottleneck or borrower.bottleneck:
        raise InputError("blocks with a bottleneck do not share weights between stacks", where=where,
                         remedy="use tied: false")
    own = [strip_untied_choices(one) for one in borrower.sublayers]
    if sum(own.count(strip_untied_choices(one)) for one in lender.sublayers) != len(lender.sublayers):
        raise InputError("the decoder has not just the sublayers of the encoder, each once", where=where,
                         remedy="give it the encoder's with the same widths and norms, and cross_attention beside them")


def strip_untied_choices(residual: Residual) -> Residual | FromNorm:
    """Return a sublayer without what may differ where the weights are the same: who sees whom, positions, dropout."""
    inner = residual.inner
    if isinstance(inner, SelfAttention):
        kernel = inner.kernel.model_copy(update={"dropout": 0.0})
        inner = inner.model_copy(update={"positions": NoPositions(), "visibility": Full(), "kernel": kernel})
    return residual.model_copy(update={"inner": inner, "dropout": 0.0})


def check_streams(config: Transformer) -> None:
    """Two streams need sublayers in pairs that add to what they read; only heads read the wide vectors they give."""
    for name, stack in (("encoder", config.encoder), ("decoder", config.decoder)):
        if stack is None or stack.residual.kind != "reversible":
            continue
        for index, block in enumerate(stack.blocks()):
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


def check_segment_memory(name: str, stack: Stack, config: Transformer) -> None:
    """Raise `InputError` where a memory, a second stream or shared biases of a stack cannot work."""
    if (stack.memory or stack.queries) and config.encoder and config.decoder:
        raise InputError("a memory or a second stream works in one stack, and this model has two", where=name,
                         remedy="remove one stack, or memory and queries")
    if stack.memory:
        check_memory(name, stack, config)
    attentions = [residual.inner for block in stack.blocks() for residual in block.sublayers
                  if isinstance(residual.inner, SelfAttention)]
    if stack.queries:
        check_second_stream(name, attentions)
    shared = {attention.projection.widths(config.dim)[::2] for attention in attentions
              if isinstance(attention.positions, TransformerXL) and attention.positions.shared_biases}
    if len(shared) > 1:
        raise InputError("the layers of a stack share one pair of biases, and their heads differ", where=name,
                         remedy="use shared_biases: false, or equal heads")


def check_memory(name: str, stack: Stack, config: Transformer) -> None:
    """A memory is read by the one attention that every block begins with, and positions count from any place."""
    assert stack.memory is not None, "asked where there is one"
    if stack.memory.start.kind == "zeros" and stack.memory.length is None:
        raise InputError("a memory of zeros needs a length", where=f"{name}.memory.length",
                         remedy="give it, or use start: {kind: nothing}")
    if not isinstance(config.embed.positions, NoPositions) or stack.layer_positions:
        raise InputError("positions of the tokens begin anew in every segment, and a memory would repeat them",
                         where=f"{name}.layer_positions" if stack.layer_positions else "embed.positions",
                         remedy="use relative positions: kind: transformer_xl")
    for index, block in enumerate(stack.blocks()):
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
