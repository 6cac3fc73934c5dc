"""Text from a masked language model by Markov chains, whose steps hide one token and draw it anew given all others.

Every row is a chain of its own. Letters: R rows, L length, V vocab, F places that are written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from saucier import config as c
from saucier.errors import InputError
from saucier.generation.choosing import Greedy, Sample
from saucier.generation.feed import evaluating
from saucier.generation.options import GenerationOptions, resolve
from saucier.generation.processors import Processor, Suppress, TopK, process
from saucier.generation.prompt import checked_mask
from saucier.generation.rules import check_tokens, distribution
from saucier.generation.strategies import (
    ChainStrategy,
    Gibbs,
    LogProbabilities,
    MetropolisHastings,
    RandomOrder,
    RawScores,
    SequentialOrder,
)
from saucier.model import Transformer

ROWS = 512
"""Rows of one pass where all places of many texts are hidden in turn."""


@dataclass(frozen=True, slots=True)
class Chains:
    """Where the chains have come to."""

    ids: Tensor
    """[R, L]."""
    proposed: int = 0
    """Proposals of another token than the one that was there (Metropolis-Hastings)."""
    accepted: int = 0
    """Those of them that were taken."""
    energy: Tensor | None = None
    """[R], of each text (Metropolis-Hastings)."""

    @property
    def rate(self) -> float:
        """The share of proposals that were taken; 1 where there was none."""
        return self.accepted / self.proposed if self.proposed else 1.0


@dataclass(frozen=True, slots=True)
class Masked:
    """A masked language model, asked for one hidden place at a time."""

    model: Transformer
    token: int
    """The mask token."""
    free: Tensor
    """[R, L], True where a token is written."""
    padding: Tensor | None
    """[R, L], True where there is a real token; None: everywhere."""
    suppressed: tuple[int, ...] = ()
    """Tokens that are never written."""

    def logits(self, ids: Tensor, places: Tensor, padding: Tensor | None) -> Tensor:
        """Hide the token at one place of each row and score what may stand there. Shapes: [R, L], [R] -> [R, V]."""
        hidden = ids.scatter(1, places[:, None], self.token)
        output = self.model(hidden, padding, compute_logits=False)
        rows = torch.arange(len(ids), device=ids.device)
        head = self.model.head
        assert head is not None, "check_masked refuses a model without a head"
        scores: Tensor = head(output.last_hidden_state[rows, places]).float()
        return process([Suppress(self.suppressed)] if self.suppressed else [], ids, scores)

    def here(self, ids: Tensor, places: Tensor) -> Tensor:
        """The same for the rows of the chains. Shapes: [R, L], [R] -> [R, V]."""
        return self.logits(ids, places, self.padding)

    def energy(self, ids: Tensor, kind: RawScores | LogProbabilities, rows: Tensor | None = None) -> Tensor:
        """Sum what the written tokens cost, each with its own place hidden. Shapes: [R, L] -> [R].

        `rows` names the chains that the texts belong to; None: all, in order.
        """
        chains = torch.arange(len(ids), device=ids.device) if rows is None else rows
        row, place = self.free[chains].nonzero(as_tuple=True)
        costs = torch.zeros(len(ids), device=ids.device)
        for part in torch.arange(len(row), device=ids.device).split(ROWS):
            mine, where = row[part], place[part]
            padding = None if self.padding is None else self.padding[chains[mine]]
            scores = self.logits(ids[mine], where, padding)
            scores = scores if isinstance(kind, RawScores) else scores.log_softmax(-1)
            costs.index_add_(0, mine, -scores.gather(1, ids[mine, where][:, None])[:, 0])
        return costs


@dataclass(slots=True)
class Walk:
    """The chains on their way."""

    masked: Masked
    ids: Tensor
    draw: Sample
    processors: tuple[Processor, ...]
    """What shapes the distribution that tokens are drawn from."""

    def place(self, step: int, order: RandomOrder | SequentialOrder) -> Tensor:
        """Return the place of each row that comes at a step. Shapes: -> [R]."""
        free = self.masked.free
        match order:
            case RandomOrder():
                chances = torch.rand(free.shape, generator=self.draw.generator, device=free.device)
                return chances.masked_fill(~free, -1.0).argmax(1)
            case SequentialOrder():
                wanted = step % free.sum(1) + 1
                return ((free.cumsum(1) == wanted[:, None]) & free).int().argmax(1)

    def sweep(self) -> None:
        """Draw every place once, from left to right, so that no mask is left."""
        for step in range(int(self.masked.free.sum(1).max())):
            self.redraw(self.place(step, SequentialOrder()), self.processors)

    def redraw(self, places: Tensor, processors: tuple[Processor, ...], choice: Sample | Greedy | None = None) -> None:
        """One step of Gibbs sampling. Shapes: places [R]."""
        scores = process(processors, self.ids, self.masked.here(self.ids, places))
        self.ids = self.ids.scatter(1, places[:, None], (choice or self.draw)(scores, 1))

    def gibbs(self, strategy: Gibbs) -> Chains:
        """Run all steps."""
        whole = tuple(one for one in self.processors if not isinstance(one, TopK))
        cut = len(whole) < len(self.processors)
        for step in range(strategy.steps):
            burnt = strategy.burn_in is not None and step >= strategy.burn_in
            wide = strategy.burn_in is not None and not burnt
            self.redraw(self.place(step, strategy.order), whole if wide else self.processors,
                        Greedy() if burnt and not cut else None)
        return Chains(self.ids)

    def metropolis(self, strategy: MetropolisHastings) -> Chains:
        """Run all steps, from a text without masks."""
        self.sweep()
        energy, proposed, accepted = self.masked.energy(self.ids, strategy.energy), 0, 0
        for step in range(strategy.steps):
            places = self.place(step, strategy.order)[:, None]
            scores = process(self.processors, self.ids, self.masked.here(self.ids, places[:, 0])).log_softmax(-1)
            old, new = self.ids.gather(1, places), self.draw(scores, 1)
            luck = torch.rand(len(self.ids), generator=self.draw.generator, device=self.ids.device).log()
            moved = (old != new)[:, 0].nonzero()[:, 0]
            proposed += len(moved)
            if not len(moved):
                continue
            other = self.ids.scatter(1, places, new)[moved]
            costs = self.masked.energy(other, strategy.energy, moved)
            back = (scores.gather(1, old) - scores.gather(1, new))[moved, 0]
            taken = luck[moved] < energy[moved] - costs + back
            accepted += int(taken.sum())
            self.ids = self.ids.index_copy(0, moved[taken], other[taken])
            energy = energy.index_copy(0, moved[taken], costs[taken])
        return Chains(self.ids, proposed, accepted, energy)


def walk(model: Transformer, input_ids: Tensor | None, attention_mask: Tensor | None = None, **options: Any) -> Chains:
    """Write by `strategy` as `generate` does, and say how many proposals were taken.

    Shapes: input_ids and attention_mask [B, L] -> Chains of R = B·num_return_sequences rows.
    Raises `InputError` for a model that fills in no hidden tokens, and for a text without a mask token.
    """
    return chains(model, input_ids, attention_mask, resolve(options, model.generation))


def chains(model: Transformer, ids: Tensor | None, mask: Tensor | None, options: GenerationOptions) -> Chains:
    """Run the chains that the options ask for. Shapes: ids and mask [B, L]."""
    check_masked(model.config)
    check_tokens(options, model.config.embed.vocab)
    strategy = options.strategy
    if not isinstance(strategy, Gibbs | MetropolisHastings) or ids is None:
        raise InputError("chains need a strategy, and a text with mask tokens to begin with",
                         where="input_ids" if ids is None else "strategy",
                         remedy="give strategy=Gibbs(mask=...) and ids [batch, length]")
    ids = ids.to(model.embed.tokens.weight.device)
    mask = checked_mask(model.config.embed, ids, mask, options=options)
    copies = options.num_return_sequences
    ids, mask = ids.repeat_interleave(copies, 0), None if mask is None else mask.repeat_interleave(copies, 0)
    with evaluating(model):
        masked = opened(model, ids, mask, strategy.mask, options.suppress_tokens)
        walk = Walk(masked, ids, Sample.seeded(options.seed, ids.device), tuple(distribution(options)))
        done = run(walk, strategy)
    return Chains(done.ids.clone(), done.proposed, done.accepted, None if done.energy is None else done.energy.clone())


def opened(model: Transformer, ids: Tensor, mask: Tensor | None, token: int, suppressed: tuple[int, ...]) -> Masked:
    """Find the places to be written. Shapes: ids and mask [R, L]. Raises `InputError` for a row without one."""
    free = ids == token
    if (empty := (~free.any(1)).nonzero().flatten().tolist()):
        raise InputError(f"row {empty[0]} has no mask token ({token}), so nothing is to be written",
                         where="input_ids", remedy="put mask tokens where words are wanted")
    return Masked(model, token, free, mask, (token, *suppressed))


def run(walk: Walk, strategy: ChainStrategy) -> Chains:
    """Take all steps."""
    match strategy:
        case Gibbs():
            return walk.gibbs(strategy)
        case MetropolisHastings():
            return walk.metropolis(strategy)


def check_masked(config: c.Transformer) -> None:
    """Refuse a model that does not give the scores of a hidden token in its place."""
    head = config.head
    if config.encoder is None or config.decoder is not None or not isinstance(head, c.LanguageHead | c.PretrainingHead):
        raise InputError("this model fills in no hidden tokens", where="strategy",
                         remedy="use a masked language model, such as BERT with its language head")
    language = head if isinstance(head, c.LanguageHead) else head.language
    if isinstance(language.predicts, c.QueryStream):
        raise InputError("the model tells tokens by a second stream, and not in the place of a mask token",
                         where="strategy", remedy="leave it out: this model writes from left to right")
