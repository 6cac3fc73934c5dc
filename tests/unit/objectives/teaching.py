"""A small teacher and a smaller student with weights large enough to tell, in float64, and batches for both."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from saucier import config as architecture
from saucier.families import FAMILIES
from saucier.model import Transformer, build
from saucier.objectives.base import Batch, Loss, Objective
from saucier.objectives.config.distillation import Distillation
from saucier.objectives.distillation import Distilled, build_distilled

MASK = torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [1] * 6 + [0]])
IDS = torch.randint(4, 50, (3, 7), generator=torch.Generator().manual_seed(4)) * MASK


def make(family: str = "bert", *, dim: int = 16, layers: int = 2, heads: int = 4, seed: int = 0,
         head: architecture.Head | None = None, **options: Any) -> Transformer:
    """Build a model whose attentions and layers are far from uniform."""
    options = {"vocab": 50, "dropout": 0.0} | options
    config = FAMILIES[family](dim=dim, layers=layers, heads=heads, **options)
    model = build(config if head is None else config.model_copy(update={"head": head}), seed=seed).double()
    random = torch.Generator().manual_seed(seed + 10)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.randn(parameter.shape, generator=random, dtype=torch.float64) * dim**-0.5
    return model


def classes(count: int = 3) -> architecture.ClassificationHead:
    return architecture.ClassificationHead(classes=count)


def both(head: architecture.Head | None = None, **options: Any) -> tuple[Transformer, Transformer]:
    """Return a student of two layers, 16 wide, and a teacher of four, 32 wide, of 4 heads each."""
    return (make(head=head, seed=1, **options), make(dim=32, layers=4, head=head, seed=2, **options))


def bound(inner: Objective, config: Distillation, models: tuple[Transformer, Transformer], **options: Any) -> Distilled:
    """Build a distillation for a student, with its maps."""
    objective = build_distilled(inner, config, models[1], body=models[0].config, **options)
    objective.bind(models[0])
    return objective


def text_batch(**labels: Tensor) -> Batch:
    return {"input_ids": IDS, "attention_mask": MASK, **labels}


def read_layers(model: Transformer, batch: Batch) -> list[dict[str, Tensor]]:
    """Compute each layer's input, queries, keys, values [B, H, L, E] and scores from the weights of a BERT alone."""
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        states = model(**inputs, output_hidden_states=True).hidden_states
        found = []
        for block, read in zip(model.encoder.blocks, states, strict=False):
            part = block["attention"].inner
            rows = read @ part.qkv.weight.T + part.qkv.bias
            query, key, value = (x.unflatten(-1, (-1, part.head_dim)).transpose(1, 2) for x in rows.chunk(3, dim=-1))
            scores = query @ key.transpose(2, 3) / part.head_dim**0.5
            hidden = (batch["attention_mask"] == 0)[:, None, None]
            weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
            found.append({"queries": query, "keys": key, "values": value, "scores": scores, "weights": weights})
    return [{"state": state, **more} for state, more in zip(states[1:], found, strict=True)] + [{"state": states[0]}]


def learned(loss: Loss, objective: Distilled, batch: dict[str, Tensor]) -> dict[str, float]:
    """Return the mean of each part; its weight is the number that was counted before."""
    counted = objective.count(batch)
    for name, part in loss.parts.items():
        assert part.weight == counted[name]
    return {name: float(part.total.detach()) / part.weight for name, part in loss.parts.items()}


def plain(model: Transformer) -> Tensor:
    return model(IDS, MASK).logits.detach()
