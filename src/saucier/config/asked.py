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
    PretrainingHead,
    ReaderHead,
)
from saucier.config.layers import Chain, Skip
from saucier.config.mixing import FourierMixing
from saucier.config.model import Stack, Transformer
from saucier.config.pooling import First, Pooled
from saucier.config.recurrent import Apart, Recurrent
from saucier.config.visibility import has_prefix


def sees_prefix(stack: Stack | None) -> bool:
    """Say whether a batch must name the first tokens of its rows that all may see."""
    return stack is not None and any(has_prefix(one.visibility) for one in dict.fromkeys(stack.attentions()))


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
