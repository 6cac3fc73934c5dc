"""Illegal combinations, refused once and with the path, before anything is built."""

from __future__ import annotations

from itertools import pairwise

from saucier.config.check_adaptive import check_adaptive
from saucier.config.check_cells import check_apart, check_cells, check_mix, reads_encoder
from saucier.config.check_characters import check_characters
from saucier.config.check_chunks import check_axial, check_kernel, check_streams
from saucier.config.check_favor import check_favor
from saucier.config.check_low_rank import check_low_rank, check_shared_map
from saucier.config.check_narrow import check_bottleneck, check_trigram
from saucier.config.check_patterns import check_patterns
from saucier.config.check_recurrence import check_asking, check_recurrence
from saucier.config.check_source import check_source
from saucier.config.check_tied import check_tied
from saucier.config.check_whole import check_whole_text
from saucier.config.disentangled import Disentangled, Distances, LogDistances
from saucier.config.heads import (
    BidirectionalHead,
    ChoiceHead,
    Chosen,
    ClassificationHead,
    DoubleHead,
    EmbeddingHead,
    Last,
    LastToken,
    LengthHead,
    PretrainingHead,
    ReaderHead,
)
from saucier.config.layers import CrossAttention, Experts, FromNorm, Parallel, PreNorm, Projection, SelfAttention
from saucier.config.mixing import FourierMixing
from saucier.config.model import (
    AfterToken,
    SegmentTable,
    Share,
    Stack,
    Transformer,
)
from saucier.config.norms import Norm
from saucier.config.pooling import First, Pooled
from saucier.config.positions import MusicTransformer, Rotary, T5Bias
from saucier.config.rotary import DynamicScaling, Llama3Scaling, LongRope, Scaling, Yarn
from saucier.config.visibility import global_terms, is_causal
from saucier.errors import InputError


def check(config: Transformer) -> None:
    """Raise `InputError` with the path of the first combination that cannot work, and what would."""
    if config.encoder is None and config.decoder is None:
        raise InputError(
            "a model needs an encoder, a decoder or both", where="encoder", remedy="give at least one stack"
        )
    if config.decoder_embed and not (config.encoder and config.decoder):
        raise InputError(
            "a decoder embedding of its own needs an encoder and a decoder",
            where="decoder_embed",
            remedy="remove it, or add the missing stack",
        )
    if config.encoder is None and config.embed.padding is not None:
        raise InputError(
            "padding is told from tokens by an encoder alone",
            where="embed.padding",
            remedy="remove it, and give attention_mask",
        )
    if config.encoder and config.decoder and config.encoder.narrow:
        raise InputError("the decoder reads vectors as wide as the model", where="encoder.narrow",
                         remedy="remove it, or give it to the decoder")
    fed = config.source.stack if config.source else None
    for name, stack in (("source.stack", fed), ("encoder", config.encoder), ("decoder", config.decoder)):
        if stack:
            check_stack(name, stack, config)
            check_cells(name, stack, config)
            check_recurrence(name, stack, config)
    check_asking(config)
    check_sides(config)
    check_tied(config)
    check_segments(config)
    check_adaptive(config)
    check_characters(config)
    check_axial(config)
    check_streams(config)
    check_trigram(config)
    check_head(config)
    check_apart(config)
    check_mix(config)
    check_whole_text(config)
    check_source(config)


def check_sides(config: Transformer) -> None:
    """A tied table has a table to be tied to, of the same size, and a default target has a decoder that reads it."""
    source, target = config.embed, config.decoder_embed
    if source.tied:
        raise InputError("the source side's token table has nothing to be tied to", where="embed.tied",
                         remedy="use tied: true in decoder_embed only")
    if target and target.tied and (target.vocab, target.widths(config.dim)[0]) != (
            source.vocab, source.widths(config.dim)[0]):
        raise InputError("two token tables of different sizes cannot be one", where="decoder_embed.tied",
                         remedy="give both sides the same vocab and width, or use tied: false")
    if config.default_target and not (config.encoder and config.decoder):
        raise InputError("only an encoder-decoder reads its source twice", where="default_target",
                         remedy="remove it")


def check_segments(config: Transformer) -> None:
    """Segments told apart by a token are two."""
    for name, embed in (("embed", config.embed), ("decoder_embed", config.decoder_embed)):
        segments = embed.segments if embed else None
        if isinstance(segments, SegmentTable) and isinstance(segments.otherwise, AfterToken) and segments.count < 2:
            raise InputError("tokens before and behind a token need two segments", where=f"{name}.segments",
                             remedy="use count: 2, or otherwise: {kind: one}")


def check_head(config: Transformer) -> None:
    """A head that reads the pooled vector needs a pooler, and a tied output matrix the width of the token table."""
    if reads_pooled(config) and config.pooler is None:
        raise InputError(
            "the head reads the pooled first token, and the model has no pooler",
            where="head",
            remedy="add `pooler: {}`, or take the vector elsewhere (pick: {kind: first})",
        )
    language = config.output_layer
    if language is None or not language.tied:
        return
    table, given = config.output_embed.widths(config.dim)[0], config.width
    if isinstance(config.head, BidirectionalHead):
        given //= 2
    if language.transform is not None and language.transform.width is not None:
        given = language.transform.width
    if table + language.columns != given:
        raise InputError(
            f"the output layer reads vectors of {given}, and the token table that it is tied to has {table}",
            where="head",
            remedy=f"use tied: false, or a transform of width {table}, or {max(given - table, 0)} columns more",
        )


def reads_first(config: Transformer) -> bool:
    """Say whether the head labels a text by its first vector."""
    return isinstance(config.head, ClassificationHead) and isinstance(config.head.pick, First)


def reads_pooled(config: Transformer) -> bool:
    """Say whether the head reads what the pooler gives."""
    match config.head:
        case PretrainingHead() | LengthHead():
            return True
        case ClassificationHead(pick=pick) | ChoiceHead(pick=pick) | DoubleHead(choice=ChoiceHead(pick=pick)):
            return isinstance(pick, Pooled)
        case ReaderHead(pick=pick):
            return isinstance(pick, Pooled)
        case EmbeddingHead(pooling=pooling):
            return any(isinstance(one, Pooled) for one in pooling)
        case _:
            return False


def reads_padding(config: Transformer) -> bool:
    """Say whether the head reads the last position of a row even where padding stands there."""
    match config.head:
        case ClassificationHead(pick=pick) | ChoiceHead(pick=pick) | DoubleHead(choice=ChoiceHead(pick=pick)):
            return isinstance(pick, Last | Chosen) or (isinstance(pick, LastToken) and pick.padding is None)
        case _:
            return False


def check_groups(name: str, stack: Stack) -> None:
    """Layers that share weights in groups are no fewer than the groups."""
    if isinstance(stack.layers, Share) and stack.layers.groups > stack.layers.times:
        raise InputError(f"{stack.layers.times} layers do not fill {stack.layers.groups} groups",
                         where=f"{name}.layers.groups", remedy="use at most as many groups as layers")


def mixes_padding(stack: Stack) -> bool:
    """Say whether some sublayer mixes a row with its padding, as its published models do."""
    return any(isinstance(residual.inner, FourierMixing) for block in stack.blocks() for residual in block.sublayers)


def check_mixing(name: str, stack: Stack) -> None:
    """A transform over all tokens sees the future, which a decoder must not."""
    if name == "decoder" and mixes_padding(stack):
        raise InputError("a transform over all tokens sees the future", where=f"{name}.layers",
                         remedy="use it in an encoder")


def check_layout(name: str, stack: Stack, dim: int) -> None:
    """What concerns a stack as a whole."""
    check_groups(name, stack)
    check_shared_map(name, stack)
    check_convolution(name, stack, dim)
    check_mixing(name, stack)
    check_parallel(name, stack)


def check_attention(path: str, stack: str, attention: SelfAttention, dim: int) -> None:
    """What concerns one self-attention, by each of its slots."""
    check_projection(path, attention.projection, dim)
    check_positions(path, attention, dim)
    check_kernel(path, attention)
    check_favor(path, attention, dim)
    check_low_rank(path, attention)
    check_patterns(path, attention)
    check_global_maps(path, stack, attention)


def check_stack(name: str, stack: Stack, config: Transformer) -> None:
    """Check every sublayer, and that a stack has at most one T5 bias, since its layers share it."""
    biases: dict[str, tuple[T5Bias, int]] = {}
    tables: dict[str, tuple[Distances, Norm | None]] = {}
    crossed = False
    check_layout(name, stack, config.dim)
    for index, block in enumerate(stack.blocks()):
        dim = block.width(config.dim)
        check_bottleneck(f"{name}.blocks.{index}.bottleneck", name, stack, block)
        for place, residual in enumerate(block.sublayers):
            before = sum(other.inner.kind == residual.inner.kind for other in block.sublayers[:place])
            path = f"{name}.blocks.{index}.{residual.inner.kind}" + (f"_{before + 1}" if before else "")
            match residual.inner:
                case SelfAttention() as attention:
                    check_attention(path, name, attention, dim)
                    if isinstance(attention.positions, T5Bias):
                        biases[path] = (attention.positions, attention.projection.heads)
                    if isinstance(attention.positions, Disentangled):
                        tables[path] = (attention.positions.distances, attention.positions.norm)
                case Experts(count=count, router=router) if router.top > count:
                    raise InputError(f"{router.top} experts for each token, and there are {count}",
                                     where=f"{path}.router", remedy="lower router.top, or raise count")
                case CrossAttention(projection=projection):
                    crossed = True
                    check_projection(path, projection, config.dim)
                    if name == "encoder":
                        raise InputError(
                            "cross-attention has no encoder output to read here",
                            where=path,
                            remedy="use it in a decoder beside an encoder",
                        )
        if index and stack.layers.kind != "cycle":
            break  # the same block again
    if len(set(biases.values())) > 1:
        raise InputError(
            "the layers of a stack share one T5 bias, and these differ",
            where=" and ".join(biases),
            remedy="give them the same buckets, distance and heads",
        )
    if len(set(tables.values())) > 1 or (tables and biases):
        raise InputError("the layers of a stack share one table of distances, and these differ",
                         where=" and ".join([*tables, *biases]), remedy="give them the same distances and norm")
    if name == "decoder" and config.encoder and not crossed and not reads_encoder(stack):
        raise InputError(
            "this decoder never looks at the encoder",
            where="decoder",
            remedy="add a cross_attention sublayer, or remove the encoder",
        )


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


def check_projection(path: str, projection: Projection, dim: int) -> None:
    """Heads divide the width, and key-value heads divide the heads."""
    if projection.head_dim is None and dim % projection.heads:
        raise InputError(
            f"dim {dim} does not divide into {projection.heads} heads",
            where=f"{path}.projection",
            remedy="change heads, or give head_dim",
        )
    if projection.heads % (projection.kv_heads or projection.heads):
        raise InputError(
            f"{projection.heads} heads do not divide into {projection.kv_heads} key-value heads",
            where=f"{path}.projection.kv_heads",
            remedy="use a divisor of heads",
        )


def check_positions(path: str, attention: SelfAttention, dim: int) -> None:
    """Positions that assume something of the visibility or of the head's width."""
    head = attention.projection.widths(dim)[2]
    match attention.positions:
        case Disentangled() as positions:
            check_disentangled(path, positions)
        case Rotary() as rotary if rotary.width(head) % 2 or rotary.width(head) == 0:
            raise InputError(
                f"rotary turns pairs of values, and {rotary.share:g} of a head of {head} is {rotary.width(head)}",
                where=f"{path}.positions",
                remedy="make the rotated part even",
            )
        case Rotary(scaling=scaling) as rotary:
            check_scaling(f"{path}.positions.scaling", scaling, rotary.width(head) // 2)
        case MusicTransformer() if not is_causal(attention.visibility):
            raise InputError(
                "the skewed relative positions know only the past",
                where=f"{path}.positions",
                remedy="use visibility causal, or kind: shaw",
            )
        case T5Bias(bidirectional=True) if is_causal(attention.visibility):
            raise InputError(
                "half of the T5 buckets would be for a future that is never seen",
                where=f"{path}.positions",
                remedy="use bidirectional: false",
            )
        case T5Bias(buckets=buckets, max_distance=distance, bidirectional=both) if distance <= buckets // (
            4 if both else 2
        ):
            raise InputError(
                f"max_distance {distance} is within the {buckets // (4 if both else 2)} exact buckets",
                where=f"{path}.positions",
                remedy="raise max_distance or lower buckets",
            )


def check_global_maps(path: str, stack: str, attention: SelfAttention) -> None:
    """Maps for global tokens need global tokens, an encoder (the cache holds one set of keys), and no positions."""
    if attention.global_maps is None:
        return
    if not global_terms(attention.visibility):
        raise InputError(
            "maps for global tokens, and no token is ever global",
            where=f"{path}.global_maps",
            remedy="leave them out, or add kind: global to the visibility",
        )
    if stack == "decoder" or attention.positions.kind != "none":
        raise InputError(
            "maps for global tokens work in an encoder, and without positions in the attention",
            where=f"{path}.global_maps",
            remedy="leave them out, or use positions of the embedding",
        )


def check_scaling(path: str, scaling: Scaling, pairs: int) -> None:
    """Scalings that assume something of the number of rotated pairs, or whose slope would have no extent."""
    match scaling:
        case LongRope(short=short, long=long) if {len(short), len(long)} != {pairs}:
            raise InputError(
                f"{len(short)} short and {len(long)} long divisors for {pairs} pairs of values",
                where=path,
                remedy="give one divisor for each pair",
            )
        case DynamicScaling() if pairs == 1:
            raise InputError(
                "dynamic scaling keeps the fastest pair and stretches the others, and there is one pair",
                where=path,
                remedy="rotate more of each head, or use kind: linear",
            )
        case Llama3Scaling(low=low, high=high) if low >= high:
            raise InputError(
                f"waves are divided below {low:g} turns and kept above {high:g}",
                where=path,
                remedy="make high larger than low",
            )
        case Yarn(fast=fast, slow=slow) if slow >= fast:
            raise InputError(
                f"waves are divided below {slow:g} turns and kept above {fast:g}",
                where=path,
                remedy="make fast larger than slow",
            )


def check_disentangled(path: str, positions: Disentangled) -> None:
    """Some score reads the distances, and logarithmic ranges begin where exact distances end."""
    if positions.terms == 1:
        raise InputError("disentangled positions without either score", where=f"{path}.positions",
                         remedy="use content_to_position or position_to_content, or kind: none")
    distances = positions.distances
    if isinstance(distances, LogDistances) and distances.reach - 1 <= distances.buckets // 2:
        raise InputError(f"reach {distances.reach} is within the {distances.buckets // 2} exact distances",
                         where=f"{path}.positions", remedy="raise reach or lower buckets")
