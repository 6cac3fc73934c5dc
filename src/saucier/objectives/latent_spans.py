"""Answers that are spans of retrieved passages: which of all spans they are nobody says, and how likely all that match
an answer are together.

Letters: B questions, K passages of each, L length, W longest span, M places where an answer stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from saucier.objectives.base import Batch, Loss, LossPart
from saucier.objectives.latent_passages import Found, Joined, RetrieverObjective
from saucier.objectives.teacher_losses import precise

ANSWER_PLACES = ("answer_passages", "answer_starts", "answer_ends")
"""Where the answers of questions stand, in a batch: the passage, the first and the last token there, [B, M] each."""


@dataclass(frozen=True, slots=True)
class LatentSpans(RetrieverObjective):
    """Spans of retrieved passages that are an answer, nobody knows which: the marginal likelihood of all (ORQA).

    The batch: `input_ids` [B, L], the question as `Passages.join` puts it next to a passage; `question.input_ids` as
    the retriever reads it; `ANSWER_PLACES` [B, M], -1 where a question has fewer. Reader and retriever learn together;
    a question whose answer is not among what was found costs nothing, and is counted with the others.
    Source: Lee et al. 2019, "Learning", arXiv:1906.00300 (eq 66–69, 71).
    """

    early: int | None = None
    """Passages of the early loss, at most all; None: there is none."""

    figures: ClassVar[Mapping[str, str]] = {"found": "answers among the passages of the early loss",
                                            "read": "answers among the passages that are read",
                                            "different": "different first passages, over the questions of a batch"}
    """How much is learned from, and whether all questions find the same."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The spans that are read, and the passages of the early loss."""
        return ("spans",) if self.early is None else ("spans", "passages")

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of questions whose answer stands in some passage."""
        return dict.fromkeys(self.parts, float((batch[ANSWER_PLACES[0]] >= 0).any(-1).sum()))

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the summed negative logarithms of both likelihoods."""
        self.retriever.model.train(model.training)
        found = self.retriever.find(batch, max(self.retriever.count, self.early or 0))
        read = found.first(self.retriever.count)
        joined = self.retriever.read(batch, read)
        scores = score_spans(model, joined, read)
        right = mark_answers(batch, read, joined, scores.shape)
        counts, rows = self.count(batch), float(len(scores))
        chance, hit = marginalize(scores.flatten(1), right.flatten(1))
        parts = {"spans": LossPart(-chance.sum(), counts["spans"])}
        figures = {"read": LossPart(hit.float().sum(), rows), "correct": LossPart(right.flatten(1).gather(
            1, scores.detach().flatten(1).argmax(-1, keepdim=True)).float().sum(), rows)}
        if self.early is not None:
            early, hit = marginalize(found.scores, mark_passages(batch, found))
            parts["passages"] = LossPart(-early.sum(), counts["passages"])
            figures["found"] = LossPart(hit.float().sum(), rows)
        first = found.scores.new_tensor(float(len(found.places[:, 0].unique())))
        return Loss(parts, {**figures, "different": LossPart(first, rows)})


def marginalize(scores: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logarithm of the chance of what is right, by a softmax over all, and where there is something right.

    Where nothing is right it is 0, without a gradient: such a question is left out. Shapes: [B, N] both -> [B], [B].
    """
    hit = right.any(-1)
    scores = scores.masked_fill(~hit[:, None], 0.0)  # where not even a span is, their gradient would be no number
    kept = right | ~hit[:, None]
    return scores.masked_fill(~kept, float("-inf")).logsumexp(-1) - scores.logsumexp(-1), hit


def score_spans(model: nn.Module, joined: Joined, found: Found) -> Tensor:
    """Return S = S_retr + S_read of the span of w + 1 tokens from l on, at [l, w]; -inf where no passage is.

    Shapes: -> [B, K, L, W], float32 or wider. Source: Lee et al. 2019, §3, arXiv:1906.00300 (eq 66–69).
    """
    logits: Tensor = precise(model(**joined.inputs).span_logits).unflatten(0, found.places.shape)
    first = torch.arange(logits.shape[2], device=logits.device)[:, None]
    last = first + torch.arange(logits.shape[3], device=logits.device)
    starts, ends = joined.starts[..., None, None], joined.ends[..., None, None]
    joint = logits + found.scores[..., None, None]
    return joint.masked_fill((first < starts) | (last >= ends), float("-inf"))


def mark_answers(batch: Batch, found: Found, joined: Joined, shape: torch.Size) -> Tensor:
    """Say which spans are an answer. Shapes: -> [B, K, L, W], boolean."""
    passages, starts, ends = (batch[name] for name in ANSWER_PLACES)
    marks = torch.zeros(shape, dtype=torch.bool, device=passages.device)
    row, answer, rank = (passages[:, :, None] == found.places[:, None]).nonzero(as_tuple=True)
    first = joined.starts[row, rank] + starts[row, answer]
    more = ends[row, answer] - starts[row, answer]
    kept = (first + more < joined.ends[row, rank]) & (more < shape[3])
    marks[row[kept], rank[kept], first[kept], more[kept]] = True
    return marks


def mark_passages(batch: Batch, found: Found) -> Tensor:
    """Say which passages hold an answer. Shapes: -> [B, K], boolean."""
    passages = batch[ANSWER_PLACES[0]]
    size = 2 + int(max(passages.max(), found.places.max()))
    marks = torch.zeros(len(passages), size, dtype=torch.bool, device=passages.device)
    marks = marks.scatter(1, passages + 1, True).index_fill(1, passages.new_zeros(1), False)  # 0: there is no passage
    return marks.gather(1, found.places + 1)
