"""Text from a masked language model by Markov chains, whose steps hide one token and draw it again given all others.

Every row is a chain of its own. Letters: R rows, L length, V vocab, F places that are written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from saucier import config as c
from saucier.errors import InputError
from saucier.generation.decoding import (
    ChainStrategy,
    Gibbs,
    LogProbabilities,
    MarkovChains,
    MetropolisHastings,
    RandomOrder,
    RawScores,
    Sampling,
    SequentialOrder,
)
from saucier.generation.options import GenerationOptions, resolve_options
from saucier.generation.packed_weights import inference_view
from saucier.generation.processors import Processor, Suppress, TopK
from saucier.generation.prompt import check_mask, check_tokens, make_distribution
from saucier.generation.search import Sample, Step, TokenSelection, apply_processors, decode, pick_likeliest
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
class MaskedModel:
    """A masked language model that is read for one hidden place of each row at a time."""

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
        """Hide the token at one place of each row and score what may be there. Shapes: [R, L], [R] -> [R, V]."""
        hidden = ids.scatter(1, places[:, None], self.token)
        output = self.model(hidden, padding, compute_logits=False)
        rows = torch.arange(len(ids), device=ids.device)
        head = self.model.head
        assert head is not None, "check_masked refuses a model without a head"
        scores: Tensor = head(output.last_hidden_state[rows, places]).float()
        return apply_processors([Suppress(self.suppressed)] if self.suppressed else [], ids, scores)

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


@dataclass(frozen=True, slots=True)
class HiddenFeed:
    """A masked language model as a search sees it: a text and one of its places in, scores of that place out."""

    masked: MaskedModel
    start: Step
    """The places that are read first."""

    def first(self) -> Tensor:
        """Ask for the first place of each row. Shapes: -> [R, V], float32."""
        return self.next(self.start)

    def next(self, step: Step) -> Tensor:
        """Hide a place of each row, and score the tokens that may be there. Shapes: -> [R, V], float32."""
        assert step.places is not None, "chains ask for places"
        return self.masked.logits(step.tokens, step.places, self.masked.padding)


class ChainSearch:
    """Texts on their way, and the place of each that is drawn next: what the searches of all strategies share."""

    def __init__(self, masked: MaskedModel, ids: Tensor, drawn: Sampling, strategy: ChainStrategy) -> None:
        """Begin at texts [R, L]; `drawn` shapes the distribution that tokens are drawn from."""
        self.masked, self.ids, self.order, self.steps = masked, ids, strategy.order, strategy.steps
        self.draw = Sample.seeded(drawn.seed, ids.device)
        self.processors: tuple[Processor, ...] = tuple(make_distribution(drawn))
        self.places = ids[:, 0]
        self.done = 0

    def begin(self) -> Step:
        """Choose the first places."""
        return self.choose_places(self.done, self.order)

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        return self.done == self.steps

    def choose_places(self, step: int, order: RandomOrder | SequentialOrder) -> Step:
        """Choose the place of each row that comes at a step."""
        free = self.masked.free
        match order:
            case RandomOrder():
                chances = torch.rand(free.shape, generator=self.draw.generator, device=free.device)
                self.places = chances.masked_fill(~free, -1.0).argmax(1)
            case SequentialOrder():
                wanted = step % free.sum(1) + 1
                self.places = ((free.cumsum(1) == wanted[:, None]) & free).int().argmax(1)
        return Step(self.ids, places=self.places)

    def redraw(self, logits: Tensor, processors: tuple[Processor, ...], choice: TokenSelection) -> None:
        """Write what is chosen into the places. Shapes: logits [R, V]."""
        scores = apply_processors(processors, self.ids, logits)
        self.ids = self.ids.scatter(1, self.places[:, None], choice(scores, 1))

    def result(self) -> Tensor:
        """The texts. Shapes: -> [R, L]."""
        return self.ids

    def chains(self) -> Chains:
        """Where the chains have come to."""
        return Chains(self.ids.clone())


class GibbsSearch(ChainSearch):
    """Takes every draw."""

    def __init__(self, masked: MaskedModel, ids: Tensor, drawn: Sampling, strategy: Gibbs) -> None:
        """Begin at texts [R, L]."""
        super().__init__(masked, ids, drawn, strategy)
        self.burn_in = strategy.burn_in
        self.whole = tuple(one for one in self.processors if not isinstance(one, TopK))

    def advance(self, logits: Tensor) -> Step:
        """Draw the tokens of this step. Shapes: logits [R, V]."""
        cut = len(self.whole) < len(self.processors)
        if self.burn_in is not None and self.done < self.burn_in:
            self.redraw(logits, self.whole, self.draw)
        else:
            self.redraw(logits, self.processors, self.draw if self.burn_in is None or cut else pick_likeliest)
        self.done += 1
        return self.choose_places(self.done, self.order)


class MetropolisSearch(ChainSearch):
    """Writes every place once, then takes a draw as the energies of both texts say."""

    def __init__(self, masked: MaskedModel, ids: Tensor, drawn: Sampling, strategy: MetropolisHastings) -> None:
        """Begin at texts [R, L]."""
        super().__init__(masked, ids, drawn, strategy)
        self.kind, self.proposed, self.accepted = strategy.energy, 0, 0
        self.sweep = int(masked.free.sum(1).max())
        self.done = -self.sweep
        self.energy = torch.zeros(len(ids), device=ids.device)

    def begin(self) -> Step:
        """Choose the first places, from the left."""
        return self.choose_places(0, SequentialOrder())

    def advance(self, logits: Tensor) -> Step:
        """Draw a token of each row, and take it or not. Shapes: logits [R, V]."""
        if self.done < 0:
            self.redraw(logits, self.processors, self.draw)
        else:
            self.propose(apply_processors(self.processors, self.ids, logits).log_softmax(-1))
        self.done += 1
        if self.done < 0:
            return self.choose_places(self.done + self.sweep, SequentialOrder())
        if self.done == 0:
            self.energy = self.masked.energy(self.ids, self.kind)
        return self.choose_places(self.done, self.order)

    def propose(self, scores: Tensor) -> None:
        """One step of Metropolis-Hastings. Shapes: scores [R, V], log probabilities."""
        places = self.places[:, None]
        old, new = self.ids.gather(1, places), self.draw(scores, 1)
        log_uniform = torch.rand(len(self.ids), generator=self.draw.generator, device=self.ids.device).log()
        moved = (old != new)[:, 0].nonzero()[:, 0]
        self.proposed += len(moved)
        if not len(moved):
            return
        other = self.ids.scatter(1, places, new)[moved]
        costs = self.masked.energy(other, self.kind, moved)
        back = (scores.gather(1, old) - scores.gather(1, new))[moved, 0]
        taken = log_uniform[moved] < self.energy[moved] - costs + back
        self.accepted += int(taken.sum())
        self.ids = self.ids.index_copy(0, moved[taken], other[taken])
        self.energy = self.energy.index_copy(0, moved[taken], costs[taken])

    def chains(self) -> Chains:
        """Where the chains have come to."""
        return Chains(self.ids.clone(), self.proposed, self.accepted, self.energy.clone())


def walk(model: Transformer, input_ids: Tensor | None, attention_mask: Tensor | None = None, **options: Any) -> Chains:
    """Write by `strategy` as `generate` does, and say how many proposals were taken.

    Shapes: input_ids and attention_mask [B, L] -> Chains of R = B·num_return_sequences rows.
    Raises `InputError` for a model that fills in no hidden tokens, and for a text without a mask token.
    """
    return run_chains(model, input_ids, attention_mask, resolve_options(options, model.provenance.generation))


def run_chains(model: Transformer, ids: Tensor | None, mask: Tensor | None, options: GenerationOptions) -> Chains:
    """Run the chains that the options ask for. Shapes: ids and mask [B, L]."""
    check_masked_model(model.config)
    check_tokens(options, model.config.embed.vocab)
    chains = options.decoding
    if not isinstance(chains, MarkovChains) or ids is None:
        raise InputError("chains need a strategy, and a text with mask tokens to begin with",
                         where="input_ids" if ids is None else "strategy",
                         remedy="give strategy=Gibbs(mask=...) and ids [batch, length]")
    ids = ids.to(model.embed.tokens.weight.device)
    mask = check_mask(model.config.embed, ids, mask, padding=options.padding)
    copies = chains.drawn.texts
    ids, mask = ids.repeat_interleave(copies, 0), None if mask is None else mask.repeat_interleave(copies, 0)
    with torch.inference_mode():
        masked = find_masked_places(inference_view(model), ids, mask, chains.strategy.mask, options.suppress_tokens)
        match chains.strategy:
            case Gibbs() as strategy:
                search: GibbsSearch | MetropolisSearch = GibbsSearch(masked, ids, chains.drawn, strategy)
            case MetropolisHastings() as strategy:
                search = MetropolisSearch(masked, ids, chains.drawn, strategy)
        decode(HiddenFeed(masked, search.begin()), search)
    return search.chains()


def find_masked_places(model: Transformer, ids: Tensor, mask: Tensor | None, token: int,
                       suppressed: tuple[int, ...]) -> MaskedModel:
    """Find the places to be written. Shapes: ids and mask [R, L]. Raises `InputError` for a row without one."""
    free = ids == token
    if (empty := (~free.any(1)).nonzero().flatten().tolist()):
        raise InputError(f"row {empty[0]} has no mask token ({token}), so nothing is to be written",
                         where="input_ids", remedy="put mask tokens where words are wanted")
    return MaskedModel(model, token, free, mask, (token, *suppressed))


def check_masked_model(config: c.Transformer) -> None:
    """Refuse a model that does not give the scores of a hidden token in its place."""
    head = config.head
    if config.encoder is None or config.decoder is not None or not isinstance(head, c.LanguageHead | c.PretrainingHead):
        raise InputError("this model fills in no hidden tokens", where="strategy",
                         remedy="use a masked language model, such as BERT with its language head")
    language = head if isinstance(head, c.LanguageHead) else head.language
    if language.predicts.kind == "query_stream":
        raise InputError("the model tells tokens by a second stream, and not in the place of a mask token",
                         where="strategy", remedy="leave it out: this model writes from left to right")
