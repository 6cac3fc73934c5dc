"""`prune_model`: a model without what it can do without; `prune`: the same, with what went and what that saved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

from saucier import config as c
from saucier.adaptation.pruning import methods as p
from saucier.adaptation.pruning.choice import Ranks, choose_kept, choose_layers, choose_ranks
from saucier.adaptation.pruning.scores import SCORES, Evidence, LossOfBatch, Places, count_units
from saucier.adaptation.pruning.sparsity import Sparsity, find_smallest, measure_sparsity, zero_weights
from saucier.adaptation.starting_weights import rebuild_model
from saucier.adaptation.surgery.factors import find_maps, list_maps, list_whole_maps
from saucier.adaptation.surgery.operate import operate
from saucier.adaptation.surgery.operations import Factorize, Heads, Layers, Neurons, Tokens
from saucier.adaptation.surgery.tables import ModelState
from saucier.adaptation.surgery.units import Attention, Feeding, find_places, list_places
from saucier.checkpoints.fields import put
from saucier.config.counting.model import parameters
from saucier.config.positions import SkipPadding
from saucier.errors import InputError, suggest_name
from saucier.model import Transformer
from saucier.text.reading.documents import read_documents
from saucier.text.tokenizer.tokenizer import Tokenizer
from saucier.text.tokenizer.vocabulary import trim_tokenizer


@dataclass(frozen=True, slots=True)
class Pruned:
    """A pruned model, and what it lost."""

    model: Transformer
    removed: Mapping[str, tuple[int, ...]]
    """Heads and neurons by the place of their sublayer, layers by their stack, ranks by their map with the largest
    singular value first, all from 0; tokens by their old ids under `tokens`. Empty for single weights."""
    before: int
    """Parameters."""
    after: int
    sparsity: Sparsity | None = None
    """Of single weights: what is zero."""
    tokenizer: Tokenizer | None = None
    """The tokenizer that belongs to a trimmed vocabulary; None: the one that there was."""

    def summary(self) -> list[str]:
        """Say how much went of sublayers of a kind, and how many parameters there were and are."""
        sums = Counter[str]()
        for place, numbers in self.removed.items():
            sums[".".join("*" if word.isdigit() else word for word in place.split("."))] += len(numbers)
        return [*(f"{place}: {count:,} gone" for place, count in sums.items() if count), self.lines()[-1]]

    def lines(self) -> list[str]:
        """Say what went."""
        gone = [f"{place}: {len(numbers)} gone ({', '.join(map(str, numbers[:12]))}"
                f"{', …' if len(numbers) > 12 else ''})" for place, numbers in self.removed.items() if numbers]
        return [*gone, describe_sizes(self.before, self.after), *([self.sparsity.line()] if self.sparsity else [])]


def describe_sizes(before: int, after: int) -> str:
    """Say how many parameters there were and are."""
    return f"{before:,} → {after:,} parameters, {after / before:.1%}"


def prune_model(model: Transformer, by: p.Pruning, *, batches: Sequence[Mapping[str, Tensor]] = (),
                loss: LossOfBatch | None = None, tokenizer: Tokenizer | None = None) -> Transformer:
    """Return a model without what it can do without. Arguments and errors as `prune`."""
    return prune(model, by, batches=batches, loss=loss, tokenizer=tokenizer).model


def prune(model: Transformer, by: p.Pruning, *, batches: Sequence[Mapping[str, Tensor]] = (),
          loss: LossOfBatch | None = None, tokenizer: Tokenizer | None = None) -> Pruned:
    """Return a pruned model with what it lost; the model that is given stays as it is.

    `batches`: the model's inputs by name, with what the loss reads beside them; `loss`: of (model, batch), the mean
    over the batch's rows. Scores by gradients and losses need both, other scores of texts the batches alone.
    `tokenizer`: for a vocabulary. Raises `InputError` where something needed is missing, for a place that the model
    has not, for weights that layers share, and for a model with an adapter.
    """
    model.restore_stored()
    if model.provenance.rewrites:
        raise InputError("the model has an adapter beside its weights", where="model",
                         remedy="merge it first, with saucier merge")
    return PRUNERS[type(by)](model, by, Evidence(batches, loss), tokenizer)


def report(model: Transformer, made: Transformer, removed: Mapping[str, tuple[int, ...]],
           tokenizer: Tokenizer | None = None) -> Pruned:
    """Return a smaller model with what it lost."""
    return Pruned(made, removed, parameters(model.config), parameters(made.config), tokenizer=tokenizer)


def prune_units(model: Transformer, by: p.HeadPruning | p.NeuronPruning, evidence: Evidence,
                tokenizer: Tokenizer | None) -> Pruned:
    """Leave out heads or neurons, round by round, each time the least of those that are left."""
    heads = isinstance(by, p.HeadPruning)
    places = select_places(model.config, by.where, "heads" if heads else "neurons")
    had = {path: count_units(place) for path, place in places.items()}
    alive = {path: tuple(range(count)) for path, count in had.items()}
    made = model
    for turn in range(1, by.rounds + 1):
        now = {path: place for path, place in list_places(made.config).items() if path in places}
        scores = SCORES[type(by.score)](made, now, by.score, evidence)
        together = {path: size for path, place in now.items() if (size := heads_together(place.inner)) > 1}
        kept = choose_kept(scores, Ranks(by.scope, by.share * turn / by.rounds, had, together,
                                         by.multiple if isinstance(by, p.NeuronPruning) else 1))
        alive = {path: tuple(alive[path][one] for one in numbers) for path, numbers in kept.items()}
        made, _ = operate(model, by=[Heads(kept=alive) if heads else Neurons(kept=alive)])
    return report(model, made, {path: tuple(sorted(set(range(count)) - set(alive[path])))
                                for path, count in had.items() if len(alive[path]) < count})


def select_places(config: c.Transformer, where: Sequence[str], what: str) -> Places:
    """Return the sublayers with `heads` or `neurons` that patterns meet. Raises `InputError` for one that meets none.
    """
    kinds = UNITS[what]
    known = [path for path, one in list_places(config).items() if isinstance(one.inner, kinds)]
    for pattern in where if known else ():
        if not any(fnmatchcase(path, pattern) for path in known):
            raise InputError(f"{pattern!r} meets no sublayer with {what}", where="where",
                             remedy=suggest_name(pattern, known))
    met = [path for path in known if any(fnmatchcase(path, pattern) for pattern in where)]
    return find_places(ModelState(config, {}), dict.fromkeys(met, ()), kinds, what)


UNITS: Mapping[str, Any] = {"heads": Attention, "neurons": Feeding}
"""What can go of a sublayer -> the kinds of those that have it."""


def heads_together(inner: c.Config) -> int:
    """Return how many heads read the same keys and values, and so go together; 1 where one alone can go."""
    if not isinstance(inner, Attention):
        return 1
    projection = inner.projection
    groups = projection.kv_heads or projection.heads
    return 1 if groups == 1 else projection.heads // groups


def prune_layers(model: Transformer, by: p.LayerPruning, evidence: Evidence, tokenizer: Tokenizer | None) -> Pruned:
    """Leave out whole layers; no more are dropped when what is left is trained."""
    gone = choose_layers(model, by, evidence)
    stack = "decoder" if by.decoder or model.encoder is None else "encoder"
    count = len(getattr(model.config, stack).blocks())
    order = tuple(layer for layer in range(count) if layer + 1 not in gone)
    made, _ = operate(model, by=[Layers(order=order, decoder=by.decoder)])
    made = rebuild_model(made, put(made.config, {f"{stack}.layer_drop": None}))
    return report(model, made, {stack: tuple(sorted(layer - 1 for layer in gone))})


def prune_vocabulary(model: Transformer, by: p.VocabularyPruning, evidence: Evidence,
                     tokenizer: Tokenizer | None) -> Pruned:
    """Leave out tokens that the texts do not use. Raises `InputError` without a tokenizer."""
    if tokenizer is None:
        raise InputError("a vocabulary is trimmed with its tokenizer, and there is none", where="tokenizer",
                         remedy="give the model's tokenizer")
    fewer, change = trim_vocabulary(model.config, tokenizer, by.texts)
    pad = model.provenance.document.get("pad_token_id")
    made, _ = operate(model, by=[change], pad=int(pad or 0))
    gone = tuple(sorted(set(range(model.config.embed.vocab)) - set(change.kept)))
    return report(model, made, {"tokens": gone}, fewer)


def trim_vocabulary(config: c.Transformer, tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[Tokenizer, Tokens]:
    """Return a tokenizer with the tokens that files of text use, and what that does to a model."""
    places = getattr(config.embed.positions, "places", None)
    # positions that are counted from the id after the padding depend on the ids up to it
    fixed = places.padding + 1 if isinstance(places, SkipPadding) else 0
    fewer, kept = trim_tokenizer(tokenizer, (one.text for one in read_documents(texts)), keep_first=fixed)
    return fewer, Tokens(kept=kept)


def prune_weights(model: Transformer, by: p.MagnitudePruning, evidence: Evidence,
                  tokenizer: Tokenizer | None) -> Pruned:
    """Set the smallest weights of a copy to zero."""
    made = deepcopy(model)
    made.provenance = replace(model.provenance, stored=None, saved=None)
    zero_weights(made, find_smallest(made, by))
    count = parameters(model.config)
    return Pruned(made, {}, count, count, measure_sparsity(made))


def prune_ranks(model: Transformer, by: p.RankPruning, evidence: Evidence, tokenizer: Tokenizer | None) -> Pruned:
    """Make maps products of a lower rank, the nearest ones.

    Raises `InputError` for a pattern that meets no map, for a model without any, and where no map gets smaller.
    """
    known = list_whole_maps(model.config)
    for pattern in by.where:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise InputError(f"{pattern!r} meets no map that is one matrix", where="where",
                             remedy=suggest_name(pattern, [*known]))
    met = [name for name in known if any(fnmatchcase(name, pattern) for pattern in by.where)]
    found = find_maps(ModelState(model.config, {}), dict.fromkeys(met), "where")
    sizes = {one: list_maps(place)[name] for one, (place, name) in found.items()}
    weights = {name: model.get_parameter(f"{name}.weight").detach().double() for name in met}
    ranks = choose_ranks({name: torch.linalg.svdvals(one) for name, one in weights.items()}, sizes, by)
    if not ranks:
        raise InputError("no map is smaller as a product of two matrices", where="share", remedy="give a larger share")
    made, _ = operate(model, by=[Factorize(ranks=ranks)])
    return report(model, made, {name: tuple(range(rank, known[name])) for name, rank in ranks.items()})


PRUNERS: Mapping[type, Callable[[Transformer, Any, Evidence, Tokenizer | None], Pruned]] = {
    p.HeadPruning: prune_units, p.NeuronPruning: prune_units, p.LayerPruning: prune_layers,
    p.VocabularyPruning: prune_vocabulary, p.MagnitudePruning: prune_weights, p.RankPruning: prune_ranks}
"""Kind of pruning -> what does it."""
