"""How much a model needs each of its heads and neurons: scores by masks, by weights of attention, by relevance.

Letters: B rows, L length, H units (heads or neurons), E width of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.adaptation.pruning import methods as p
from saucier.adaptation.pruning.relevance import constant_ratios
from saucier.adaptation.surgery.units import Attention, Place, list_places
from saucier.errors import InputError
from saucier.model import Transformer
from saucier.parts.linear import whole_weight
from saucier.parts.output import Output

LossOfBatch = Callable[[Transformer, Mapping[str, Tensor]], Tensor]
"""The mean over the rows of a batch of what a model is to be good at."""
Places = Mapping[str, Place]
Scores = dict[str, Tensor]
"""Place of a sublayer -> the scores of its heads or neurons [H]; the least goes first."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The texts that a model is judged by."""

    batches: Sequence[Mapping[str, Tensor]] = ()
    """The model's inputs by name, with what the loss reads beside them."""
    loss: LossOfBatch | None = None

    def need(self, score: str, *, loss: bool = True) -> Evidence:
        """Return this. Raises `InputError` where a score has no texts, or no loss, to be computed from."""
        if not self.batches or (loss and self.loss is None):
            raise InputError(f"the score {score} is of {'a loss on some' if loss else 'some'} texts, and there "
                             f"{'are none' if not self.batches else 'is no loss'}", where="batches" if not self.batches
                             else "loss", remedy="give batches and a loss" if loss else "give batches")
        return self

    def mean_loss(self, model: Transformer) -> float:
        """Return the mean loss over all rows."""
        assert self.loss is not None, "need() has looked"
        with torch.no_grad():
            sums = [(count_rows(one), float(self.loss(model, one))) for one in self.batches]
        return sum(rows * loss for rows, loss in sums) / sum(rows for rows, _ in sums)


def count_rows(batch: Mapping[str, Tensor]) -> int:
    """Return how many texts, or groups of texts that are compared, a batch has."""
    return len(batch["input_ids"] if "input_ids" in batch else next(iter(batch.values())))


def find_width(place: Place) -> int:
    """Return how many values of the last map's input belong to one head or neuron."""
    return place.inner.projection.widths(place.dim)[2] if isinstance(place.inner, Attention) else 1


def count_units(place: Place) -> int:
    """Return how many heads or neurons a sublayer has."""
    inner = place.inner
    if isinstance(inner, Attention):
        return inner.projection.heads
    assert isinstance(inner, c.FeedForward | c.GatedFeedForward), "there are no other units"
    return inner.hidden


@dataclass(slots=True)
class Masks:
    """Factors on what each head or neuron gives to the last map of its sublayer (ξ of C eq 53)."""

    fixed: dict[str, Tensor] = field(default_factory=dict)
    """Place -> factors [H], where they are not 1."""
    drawn: dict[str, list[Tensor]] | None = None
    """Place -> factors of every pass [B, H], to be differentiated by; None: no gradient is asked for."""

    def apply(self, path: str, width: int, given: Tensor) -> Tensor:
        """Shapes: [B, L, H·E] -> the same."""
        parts: Tensor = given.unflatten(-1, (-1, width))
        if self.drawn is not None:
            mask = given.new_ones(len(given), parts.shape[-2], requires_grad=True)
            self.drawn.setdefault(path, []).append(mask)
            parts = parts * mask.view(len(given), *[1] * (parts.dim() - 3), -1, 1)
        if path in self.fixed:
            parts = parts * self.fixed[path].to(given)[:, None]
        joined: Tensor = parts.flatten(-2)
        return joined


@contextmanager
def mask_units(model: Transformer, places: Places) -> Iterator[Masks]:
    """Let a model's heads or neurons be multiplied by masks, in evaluation and without packing rows, meanwhile."""
    masks, training, packs = Masks(), model.training, model.packs

    def hook_for(path: str, width: int) -> Callable[[nn.Module, Any], tuple[Any, ...]]:
        return lambda module, given: (masks.apply(path, width, given[0]), *given[1:])

    with ExitStack() as stack:
        for path, place in places.items():
            last = model.get_submodule(f"{path}.inner.{'out' if isinstance(place.inner, Attention) else 'down'}")
            stack.callback(last.register_forward_pre_hook(hook_for(path, find_width(place))).remove)
        model.eval()
        model.packs = False
        try:
            yield masks
        finally:
            model.packs = packs
            model.train(training)


def sum_gradients(masks: Masks, places: Places, total: Tensor, rows: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the derivative of a sum over rows by the masks of each row, summed over its passes. Shapes: -> [B, H]."""
    assert masks.drawn is not None, "the caller asked for gradients"
    flat = [(path, mask) for path in places for mask in masks.drawn.get(path, [])]
    found = torch.autograd.grad(total, [mask for _, mask in flat], allow_unused=True) if total.requires_grad else ()
    sums: dict[str, Tensor] = {}
    for (path, mask), gradient in zip(flat, found or [None] * len(flat), strict=True):
        if gradient is not None:
            own = gradient.view(rows, -1, mask.shape[-1]).sum(1)
            sums[path] = sums[path] + own if path in sums else own
    for path in places:
        if path not in sums:
            raise InputError("the loss does not depend on this sublayer", where=path, remedy="give texts that use it")
    yield from sums.items()


def score_importance(model: Transformer, places: Places, by: p.Importance, evidence: Evidence) -> Scores:
    """Return the mean of |∂L(x)/∂ξ| over texts (C eq 54). Source: Michel et al. 2019, §4.1, arXiv:1905.10650."""
    evidence.need(by.kind)
    assert evidence.loss is not None, "need() has looked"
    found = {path: torch.zeros(count_units(place), dtype=torch.float64) for path, place in places.items()}
    with mask_units(model, places) as masks, torch.enable_grad():
        for batch in evidence.batches:
            masks.drawn, rows = {}, count_rows(batch)
            loss = evidence.loss(model, batch)
            for path, gradient in sum_gradients(masks, places, loss, rows):  # of a mean: each row's is 1 / rows of it
                found[path] += rows * gradient.abs().sum(0).double().cpu()
    total = sum(map(count_rows, evidence.batches))
    return {path: (one / one.norm().clamp(min=torch.finfo(torch.float64).tiny) if by.normalized else one / total)
            for path, one in found.items()}


def score_relevance(model: Transformer, places: Places, by: p.Relevance, evidence: Evidence) -> Scores:
    """Return each head's share in the likeliest outputs, by layers. Source: Voita et al. 2019, arXiv:1905.09418."""
    evidence.need(by.kind, loss=False)
    found = {path: torch.zeros(count_units(place), dtype=torch.float64) for path, place in places.items()}
    with mask_units(model, places) as masks, constant_ratios(model), torch.enable_grad():
        for batch in evidence.batches:
            masks.drawn = {}
            logits = model(**batch).logits
            if logits is None:
                raise InputError("the model gives no logits to trace back", where="score",
                                 remedy="use another score, or a model with a head")
            for path, gradient in sum_gradients(masks, places, logits.amax(-1).sum(), count_rows(batch)):
                found[path] += gradient.sum(0).double().cpu()
    return {path: one / one.abs().sum().clamp(min=torch.finfo(torch.float64).tiny) for path, one in found.items()}


def score_confidence(model: Transformer, places: Places, by: p.Confidence, evidence: Evidence) -> Scores:
    """Return the average of the largest weight that each head gives. Source: Voita et al. 2019, arXiv:1905.09418."""
    evidence.need(by.kind, loss=False)
    largest: dict[str, list[Tensor]] = {path: [] for path in places}
    with mask_units(model, {}), torch.no_grad():
        for batch in evidence.batches:
            output = model(**batch, output_attentions=True)
            pair = output.encoder_attentions is not None
            for path, weights in name_weights(model.config, output).items():
                if path in places:
                    written = "decoder_" if pair and path.startswith("decoder") else ""
                    read = "" if isinstance(places[path].inner, c.CrossAttention) else written
                    largest[path].append(find_largest(weights, batch.get(f"{written}attention_mask"),
                                                      batch.get(f"{read}input_ids"), by.excluded))
    if missing := [path for path, found in largest.items() if not found]:
        raise InputError("this attention gives no weights", where=missing[0], remedy="use another score")
    average = torch.Tensor.mean if by.average == "mean" else lambda all_, dim: all_.median(dim).values
    return {path: average(torch.cat(found, dim=1), 1).double().cpu() for path, found in largest.items()}


def name_weights(config: c.Transformer, output: Output) -> Scores:
    """Return the weights of attention of a pass by the places of their sublayers. Shapes: [B, H, Q, K] each."""
    pair, found = output.encoder_attentions is not None, Scores()
    for stack, kind, weights in (
            ("encoder", c.SelfAttention, output.encoder_attentions if pair else output.attentions),
            ("decoder", c.SelfAttention, output.decoder_attentions if pair else output.attentions),
            ("decoder", c.CrossAttention, output.cross_attentions)):
        paths = [path for path, one in list_places(config).items()
                 if one.stack == stack and isinstance(one.inner, kind)]
        if weights is not None and len(paths) == len(weights):
            found |= dict(zip(paths, weights, strict=True))
    return found


def find_largest(weights: Tensor, asking: Tensor | None, ids: Tensor | None, excluded: Sequence[int]) -> Tensor:
    """Return the largest weight of each token that asks.

    Shapes: weights [B, H, Q, K], asking [B, Q], 1 = real token, ids [B, K] -> [H, all real tokens].
    """
    if excluded and ids is not None:
        hidden = torch.isin(ids, torch.tensor(excluded, device=ids.device))
        weights = weights.masked_fill(hidden[:, None, None], 0.0)
    found = weights.amax(-1).transpose(0, 1).flatten(1)
    return found if asking is None else found[:, asking.flatten().bool()]


def score_by_loss(model: Transformer, places: Places, by: p.Ablation | p.Alone, evidence: Evidence) -> Scores:
    """Return what the loss says of each unit left out, or left alone in its sublayer: a pass over all texts for each.

    Source: Michel et al. 2019, §3.2 and §3.3, arXiv:1905.10650.
    """
    evidence.need(by.kind)
    found: Scores = {}
    with mask_units(model, places) as masks:
        whole = evidence.mean_loss(model)
        for path, place in places.items():
            scores = []
            for unit in range(count_units(place)):
                chosen = torch.zeros(count_units(place))
                chosen[unit] = 1.0
                masks.fixed = {path: chosen if isinstance(by, p.Alone) else 1.0 - chosen}
                loss = evidence.mean_loss(model)
                scores.append(-loss if isinstance(by, p.Alone) else loss - whole)
            found[path] = torch.tensor(scores, dtype=torch.float64)
    return found


def score_magnitude(model: Transformer, places: Places, by: p.Magnitude, evidence: Evidence) -> Scores:
    """Return the root of squares of what each unit has in its sublayer's last map, and of a neuron in the first too."""
    found: Scores = {}
    for path, place in places.items():
        inner: Any = model.get_submodule(f"{path}.inner")
        last = inner.out if isinstance(place.inner, Attention) else inner.down
        units = count_units(place)
        squares = whole_weight(last).detach().square().sum(0).unflatten(0, (units, -1)).sum(1)
        if not isinstance(place.inner, Attention):
            squares = squares + whole_weight(inner.up).detach().square().sum(1).unflatten(0, (-1, units)).sum(0)
        found[path] = squares.sqrt().cpu()
    return found


SCORES: Mapping[type, Callable[[Transformer, Places, Any, Evidence], Scores]] = {
    p.Importance: score_importance, p.Confidence: score_confidence, p.Relevance: score_relevance,
    p.Ablation: score_by_loss, p.Alone: score_by_loss, p.Magnitude: score_magnitude}
"""Kind of score -> what computes it."""
