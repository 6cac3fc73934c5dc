"""`MarginalPrediction`: tokens predicted from each of several retrieved texts, their chances weighted by relevance.

Letters: B batch, N texts, L length.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier.objectives.base import IGNORED, Batch, Loss, Objective, Part

TARGETS = ("labels", "mlm_mask", "relevance_score")


@dataclass(frozen=True, slots=True)
class MarginalPrediction(Objective):
    """The chance of a hidden token, summed over the texts that may help to find it.

    The batch holds `input_ids` [B, N, L], `relevance_score` [B, N] and `labels` [B, L]. `mlm_mask` [B, L], 1 at a
    target, may narrow these; each token's chance is marginalized on its own, as in the published code.
    Source: Guu et al. 2020 (REALM), §3.1, eq 1, arXiv:2002.08909.
    """

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of targets."""
        return {"tokens": float(targets(batch).sum())}

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the summed loss."""
        output = model(**{name: value for name, value in batch.items() if name not in TARGETS})
        texts = batch["relevance_score"].shape[1]
        labels, kept = batch["labels"], targets(batch)
        logits = output.logits.float().unflatten(0, (-1, texts))  # [B, N, L, V]
        wanted = labels.clamp(min=0)[:, None].expand(-1, texts, -1)
        known = -F.cross_entropy(logits.flatten(0, 2), wanted.flatten(), reduction="none").view(wanted.shape)
        weighted = known + batch["relevance_score"].float().log_softmax(-1)[..., None]
        chance = weighted.logsumexp(1)
        return Loss({"tokens": Part(-chance[kept].sum(), float(kept.sum()))})


def targets(batch: Batch) -> Tensor:
    """Say which positions are targets. Shapes: -> [B, L]."""
    labels, mask = batch["labels"], batch.get("mlm_mask")
    known = labels != IGNORED
    return known if mask is None else known & mask.to(torch.bool)
