"""Questions that a config answers about itself: what its batches must tell, what its head reads, what sees what."""

from __future__ import annotations

from saucier.config.heads import (
    ChoiceHead,
    Chosen,
    ClassificationHead,
    DoubleHead,
    EmbeddingHead,
    Last,
    LastToken,
    LengthHead,
    MeanAll,
    PretrainingHead,
    ReaderHead,
)
from saucier.config.layers import Chain, CrossAttention, FeedForward, SelfAttention, Skip, Softmax
from saucier.config.mixing import FourierMixing
from saucier.config.model import Stack, Transformer
from saucier.config.pooling import First, Pooled
from saucier.config.recurrent import Apart, Recurrent
from saucier.config.visibility import And, Causal, Full, Or, Prefix, Visibility, Window, has_prefix


def sees_prefix(stack: Stack | None) -> bool:
    """Say whether a batch must name the first tokens of its rows that all may see."""
    return stack is not None and any(has_prefix(one.visibility) for one in dict.fromkeys(stack.attentions()))


def by_order(visibility: Visibility) -> bool:
    """Say whether what a query sees follows from the order of places alone."""
    match visibility:
        case And(terms=terms) | Or(terms=terms):
            return all(by_order(term) for term in terms)
        case _:
            return isinstance(visibility, Full | Causal | Window | Prefix)


def packs_pairs(config: Transformer) -> bool:
    """Say whether pairs that share their rows give an encoder-decoder the numbers that they give alone.

    They do where softmax attention alone looks from token to token, by the order of places.
    """
    stacks = [config.encoder, config.decoder, config.source.stack if config.source else config.encoder]
    blocks = [block for stack in stacks if stack is not None for block in stack.blocks()]
    inner = dict.fromkeys(residual.inner for block in blocks for residual in block.sublayers)
    return config.encoder is not None and config.decoder is not None and all(
        isinstance(one, CrossAttention | FeedForward) or (
            isinstance(one, SelfAttention) and isinstance(one.kernel, Softmax) and by_order(one.visibility))
        for one in inner)


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
    """Say whether the head reads a row's last position, or all, even where padding stands there."""
    match config.head:
        case ClassificationHead(pick=pick) | ChoiceHead(pick=pick) | DoubleHead(choice=ChoiceHead(pick=pick)):
            return isinstance(pick, Last | MeanAll | Chosen) or (isinstance(pick, LastToken) and pick.padding is None)
        case _:
            return False


def mixes_padding(stack: Stack) -> bool:
    """Say whether some sublayer mixes a row with its padding, as its published models do."""
    return any(isinstance(residual.inner, FourierMixing) for block in stack.blocks() for residual in block.sublayers)


def keeps_apart(config: Transformer) -> bool:
    """Say whether nothing in a model lets one half of its vectors see what the other saw."""
    stack = config.encoder
    if stack is None or config.decoder is not None or stack.final_norm or stack.narrow or stack.convolution:
        return False
    sublayers = [one for block in stack.blocks() for one in block.sublayers]
    return all(isinstance(one, Chain | Skip) and isinstance(one.inner, Recurrent)
               and isinstance(one.inner.direction, Apart) for one in sublayers)
