"""Questions that a config answers about itself: what its batches must hold, what its head reads, what sees what.

Checks, counting and the torch parts ask them; nothing here builds or refuses anything.
"""

from __future__ import annotations

from saucier.config.attention_slots import NoPositions, Projection
from saucier.config.base import Config
from saucier.config.blocks import Block
from saucier.config.disentangled import Disentangled
from saucier.config.heads import (
    ChoiceHead,
    ClassificationHead,
    CustomHead,
    DoubleHead,
    EmbeddingHead,
    LengthHead,
    PretrainingHead,
    ReaderHead,
)
from saucier.config.kernels import LowRank
from saucier.config.layers import Chain, CrossAttention, FeedForward, FourierMixing, Residual, SelfAttention, Skip
from saucier.config.model import Transformer
from saucier.config.pooling import LastToken, Pick, PickVector, Pooling
from saucier.config.positions import CountedPlaces, EmbeddingPositions, SkipPadding
from saucier.config.recurrent import Recurrent
from saucier.config.registry import MARK
from saucier.config.relative_positions import T5Bias, TransformerXL
from saucier.config.stack import Stack
from saucier.config.visibility import (
    Beyond,
    BlockWindow,
    Causal,
    Columns,
    Combined,
    FirstTokens,
    Full,
    Global,
    GlobalBlocks,
    Permutation,
    Prefix,
    RandomBlocks,
    Visibility,
    Window,
)


def global_terms(visibility: Visibility) -> tuple[Global, ...]:
    """Return the terms of a visibility that speak of global tokens."""
    match visibility:
        case Global():
            return (visibility,)
        case Combined(terms=terms):
            return tuple(found for term in terms for found in global_terms(term))
        case _:
            return ()


def sliding_reach(visibility: Visibility) -> int | None:
    """Return how far a sliding window with global tokens reaches to each side; None for another visibility."""
    match visibility:
        case Combined(kind="or", terms=(Window(size=size), Global(otherwise=seen))) if seen.kind != "first_tokens":
            return size - 1
        case _:
            return None


def list_terms(visibility: Visibility) -> list[Visibility]:
    """Return a visibility and everything inside it."""
    match visibility:
        case Combined(terms=terms):
            inner: tuple[Visibility, ...] = terms
        case Beyond(inner=one):
            inner = (one,)
        case _:
            inner = ()
    return [visibility, *(found for term in inner for found in list_terms(term))]


def draws_blocks(visibility: Visibility) -> bool:
    """Say whether some of what is visible is drawn in training."""
    return any(isinstance(term, RandomBlocks) for term in list_terms(visibility))


def differs_by_head(visibility: Visibility) -> bool:
    """Say whether heads see differently."""
    return any(term.kind == "by_head" for term in list_terms(visibility))


def counts_repeats(visibility: Visibility) -> bool:
    """Say whether a key may count more than once for a query."""
    return any(term.kind in ("random_blocks", "plus") for term in list_terms(visibility))


def fits_any_length(visibility: Visibility) -> bool:
    """Say whether what two positions see of each other does not depend on how long the batch is."""
    return not any(isinstance(term, GlobalBlocks | RandomBlocks | Beyond) for term in list_terms(visibility))


def fits_any_place(visibility: Visibility) -> bool:
    """Say whether what two positions see of each other also stays when they are further right in their row."""
    counted = any(isinstance(term, BlockWindow | Columns)
                  or (isinstance(term, Global) and isinstance(term.otherwise, FirstTokens))
                  for term in list_terms(visibility))
    return fits_any_length(visibility) and not counted


def has_prefix(visibility: Visibility) -> bool:
    """Say whether the batch names first tokens that all may see."""
    return any(isinstance(term, Prefix) for term in list_terms(visibility))


def hides_keys(visibility: Visibility) -> bool:
    """Say whether the batch may hide keys from single queries."""
    return any(isinstance(term, Permutation) for term in list_terms(visibility))


def list_length_limits(stack: Stack) -> list[int]:
    """Return the lengths of all tables of positions inside a stack, and of the maps along the length of a text."""
    tables = [stack.layer_positions.length] if stack.layer_positions else []
    parts = stack.attentions()
    tables += [part.kernel.longest for part in parts if part.kernel.longest is not None]
    return tables + [part.positions.longest for part in parts if part.positions.longest is not None]


def remembered_tokens(config: Transformer) -> int | None:
    """Return how many tokens before a segment a model remembers at most; None where that knows no end."""
    memories = [stack.memory for stack in config.stacks if stack.memory]
    return memories[0].length if memories else 0


def sees_prefix(stack: Stack | None) -> bool:
    """Say whether a batch must name the first tokens of its rows that all may see."""
    return stack is not None and any(has_prefix(one.visibility) for one in dict.fromkeys(stack.attentions()))


def depends_on_order(visibility: Visibility) -> bool:
    """Say whether what a query sees follows from the order of places alone."""
    match visibility:
        case Combined(kind="and" | "or", terms=terms):
            return all(depends_on_order(term) for term in terms)
        case _:
            return isinstance(visibility, Full | Causal | Window | Prefix)


def packs_pairs(config: Transformer) -> bool:
    """Say whether pairs that share their rows give an encoder-decoder the numbers that they give alone.

    They do where softmax attention alone looks from token to token, by the order of places.
    """
    stacks = [config.encoder, config.decoder, config.source.stack if config.source else config.encoder]
    inner = dict.fromkeys(one for stack in stacks if stack is not None for one in stack.sublayers())
    return config.encoder is not None and config.decoder is not None and all(
        isinstance(one, CrossAttention | FeedForward) or (
            isinstance(one, SelfAttention) and one.kernel.exact and depends_on_order(one.visibility))
        for one in inner)


def list_picks(config: Transformer) -> tuple[Pick | Pooling, ...]:
    """Return where the head of a model looks for its one answer for a text."""
    match config.head:
        case ClassificationHead(pick=pick) | ChoiceHead(pick=pick) | ReaderHead(pick=pick):
            return (pick,)
        case DoubleHead(choice=choice):
            return (choice.pick,)
        case EmbeddingHead(pooling=pooling):
            return pooling
        case PretrainingHead():
            return (PickVector(kind="pooled"),)
        case CustomHead(picks=picks):
            return picks
        case _:
            return ()


def reads_pooled(config: Transformer) -> bool:
    """Say whether the head reads what the pooler gives."""
    return isinstance(config.head, LengthHead) or any(one.kind == "pooled" for one in list_picks(config))


def reads_padding(config: Transformer) -> bool:
    """Say whether the head reads a row's last position, or all, even where they are padding."""
    return any(one.padding is None if isinstance(one, LastToken) else isinstance(one, PickVector)
               and one.kind in ("last", "mean_all", "chosen") for one in list_picks(config))


def mixes_padding(stack: Stack) -> bool:
    """Say whether some sublayer mixes a row with its padding, as its published models do."""
    return stack.layers.mixes_padding or any(isinstance(one, FourierMixing) for one in stack.sublayers())


def drops_layers(stack: Stack) -> bool:
    """Say whether blocks can be left out of a pass: each reads what the one before it gives, as it is."""
    return stack.layers.plain and stack.residual.kind == "one"


def keeps_directions_apart(config: Transformer) -> bool:
    """Say whether nothing in a model lets one half of its vectors see what the other saw."""
    stack = config.encoder
    if stack is None or config.decoder is not None or stack.final_norm or stack.narrow or stack.convolution:
        return False
    sublayers = [one for block in stack.blocks() for one in block.sublayers]
    return all(isinstance(one, Chain | Skip) and isinstance(one.inner, Recurrent)
               and one.inner.direction.kind == "apart" for one in sublayers)


def longest_input(positions: EmbeddingPositions) -> int | None:
    """Return how many tokens positions of an embedding have room for; None: any number."""
    if isinstance(positions, NoPositions) or positions.length is None:
        return None
    match positions.places:
        case SkipPadding(padding=padding):
            return positions.length - padding - 1
        case CountedPlaces(offset=offset):
            return positions.length - offset


def learned_length(model: Transformer) -> int | None:
    """Return the longest input that a model can take, or None where its positions know no end."""
    rooms = [longest_input(embed.positions) for embed in (model.embed, model.decoder_embed) if embed]
    inside = [room for stack in model.stacks for room in list_length_limits(stack)]
    return min([*(room for room in rooms if room is not None), *inside], default=None)


def list_recurrent_parts(stack: Stack | None) -> list[Recurrent]:
    """Return the recurrent sublayers of a stack in the order they are applied."""
    return [one for one in stack.sublayers() if isinstance(one, Recurrent)] if stack else []


def list_layerwise_kernels(stack: Stack) -> list[LowRank]:
    """Return the kernels of a stack whose map all layers share."""
    return [kernel for attention in stack.attentions() if isinstance(kernel := attention.kernel, LowRank)
            and kernel.sharing.kind == "layerwise"]


def sublayer_name(part: Config) -> str:
    """Return the name that a sublayer has inside its block, in the built model as in the anatomy."""
    kind: str = part.kind  # type: ignore[attr-defined]  # every sublayer is a tagged config
    named = {"gated_feed_forward": "feed_forward", "cross_attention": "cross"}.get(kind, kind)
    return named.rpartition(MARK)[2].replace("-", "_")


def name_sublayers(block: Block) -> dict[str, Residual]:
    """Return the sublayers of a block by their names in the built model; a name used twice gets a number."""
    named: dict[str, Residual] = {}
    for residual in block.sublayers:
        name = sublayer_name(residual.inner)
        taken = sum(key.split("_")[0] == name.split("_")[0] for key in named)
        named[f"{name}_{taken + 1}" if taken else name] = residual
    return named


SharedPositions = T5Bias | Disentangled
"""Positions of which all layers of a stack share a table."""


def find_shared_positions(stack: Stack) -> tuple[SharedPositions, int] | None:
    """Return the positions that share a table in a stack, and the heads that it is for, if its attentions have such."""
    for attention in stack.attentions():
        match attention.positions:
            case T5Bias(kept=kept) as bias:
                return bias, attention.projection.heads if kept is None else kept.of
            case Disentangled() as disentangled:
                return disentangled, attention.projection.heads
    return None


def find_shared_biases(stack: Stack) -> Projection | None:
    """Return the heads whose pair of biases all layers of a stack share, if they do. Source: Dai et al. 2019, §3.3."""
    return next((one.projection if one.positions.shared_biases else None for one in stack.attentions()
                 if isinstance(one.positions, TransformerXL)), None)


def list_key_widths(stack: Stack, dim: int) -> list[tuple[int, int]]:
    """Return (key-value heads, head width) of every self-attention of a stack, in the order they are computed."""
    widths = []
    for block in stack.blocks():
        for residual in block.sublayers:
            if isinstance(residual.inner, SelfAttention):
                _, key, head = residual.inner.projection.widths(block.width(dim))
                widths.append((key // head if residual.inner.kernel.caches_keys else 0, head))
    return widths
