"""The first token's vector, where published families keep its dense layer: in a pooler, or in the head."""

from __future__ import annotations

import torch

from saucier import config as c
from saucier.adaptation.surgery.shape import Shape

POOLER, DENSE = "pooler.dense.", "head.transform.dense."


def with_dense_head(shape: Shape) -> Shape:
    """Move the pooler of a head that labels texts into the head, where RoBERTa and Longformer have it."""
    head, pooler = shape.config.head, shape.config.pooler
    plain = isinstance(head, c.ClassificationHead) and head.transform is None and isinstance(head.pick, c.Pooled)
    if not plain or pooler != c.Pooler():
        return shape
    assert isinstance(head, c.ClassificationHead), "as `plain` says"
    transform = c.Transform(activation="tanh", norm=None, dropout=head.dropout)
    moved = head.model_copy(update={"pick": c.First(), "transform": transform})
    weights = {name.replace(POOLER, DENSE) if name.startswith(POOLER) else name: weight
               for name, weight in shape.weights.items()}
    return shape.put(shape.config.model_copy(update={"head": moved, "pooler": None}), weights)


def with_pooler(shape: Shape) -> Shape:
    """Put a pooler on a body that has none, under a head that does not read it, as BigBird's files hold one.

    It gives the first token's vector as it is, through a tanh.
    """
    if shape.config.pooler is not None or not isinstance(shape.config.head, c.LanguageHead | c.TokenHead | None):
        return shape
    like = shape.weights["embed.tokens.weight"]
    size = shape.config.width
    own = {"pooler.dense.weight": torch.eye(size, dtype=like.dtype, device=like.device),
           "pooler.dense.bias": like.new_zeros(size)}
    return shape.put(shape.config.model_copy(update={"pooler": c.Pooler()}), {**shape.weights, **own})
