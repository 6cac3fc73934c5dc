"""Text from a masked language model by Markov chains, whose steps mask one token and sample it again given all others.

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
    MetropolisHastings,
    RandomOrder,
    RawScores,
    SequentialOrder,
)
from saucier.generation.options import GenerationOptions, resolve_options
from saucier.generation.packed_weights import inference_view
from saucier.generation.processors import Processor, forbid_tokens, pick_likeliest
from saucier.generation.prompt import check_call, check_mask
from saucier.generation.rules import check_tokens, make_distribution
from saucier.generation.search import Sample, Step, TokenSelection, apply_processors, decode
from saucier.model import Transformer
from saucier.parts.input_checks import expect_tensor

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
    """A masked language model as a search sees it: texts and a place of each in, scores of the hidden place out."""

    model: Transformer
    token: int
    """The mask token."""
    free: Tensor
    """[R, L], True where a token is written."""
    padding: Tensor | None
    """[R, L], True where there is a real token; None: everywhere."""
    suppressed: tuple[int, ...]
    """Tokens that are never written."""

    def __call__(self, step: Step | None) -> Tensor:
        """Hide a place of each row, and score the tokens that may be there. Shapes: -> [R, V], float32."""
        assert step is not None and step.places is not None, "chains ask for places"
        return self.logits(step.tokens, step.places, self.padding)

    def logits(self, ids: Tensor, places: Tensor, padding: Tensor | None) -> Tensor:
        """Hide the token at one place of each row and score what may be there. Shapes: [R, L], [R] -> [R, V]."""
        hidden = ids.scatter(1, places[:, None], self.token)
        output = self.model(hidden, padding, compute_logits=False)
        rows = torch.arange(len(ids), device=ids.device)
        head = self.model.head
        assert head is not None, "check_masked_model refuses a model without a head"
        scores: Tensor = forbid_tokens(head(output.last_hidden_state[rows, places]).float(),
                                       (self.token, *self.suppressed))
        return scores

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


class ChainSearch:
    """Texts on their way, and the place of each that is drawn next.

    Gibbs sampling takes every draw. Metropolis-Hastings first writes every place once, from the left, then takes a draw
    as the energies of both texts say.
    """

    def __init__(self, masked: MaskedModel, ids: Tensor, options: GenerationOptions, strategy: ChainStrategy) -> None:
        """Begin at texts [R, L]; the options shape the distribution that tokens are drawn from."""
        self.masked, self.ids, self.options, self.strategy = masked, ids, options, strategy
        self.draw = Sample.seeded(options.seed, ids.device)
        self.processors = tuple(make_distribution(options))
        self.without_top_k = tuple(make_distribution(options.model_copy(update={"top_k": None})))
        self.first = 0 if isinstance(strategy, Gibbs) else -int(masked.free.sum(1).max())
        """Steps are counted from here; those below 0 only fill the places."""
        self.done = self.first
        self.places = ids[:, 0]
        self.proposed, self.accepted = 0, 0
        self.energy: Tensor | None = None

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        return self.done == self.strategy.steps

    def choose_places(self) -> Step:
        """Choose the place of each row that is written next."""
        free, step = self.masked.free, self.done if self.done >= 0 else self.done - self.first
        match self.strategy.order if self.done >= 0 else SequentialOrder():
            case RandomOrder():
                chances = torch.rand(free.shape, generator=self.draw.generator, device=free.device)
                self.places = chances.masked_fill(~free, -1.0).argmax(1)
            case SequentialOrder():
                rank = step % free.sum(1) + 1
                self.places = ((free.cumsum(1) == rank[:, None]) & free).int().argmax(1)
        return Step(self.ids, places=self.places)

    def advance(self, logits: Tensor) -> Step:
        """Draw a token of each row, and take it or not. Shapes: logits [R, V]."""
        match self.strategy:
            case MetropolisHastings(energy=kind) if self.done >= 0:
                self.propose(apply_processors(self.processors, self.ids, logits).log_softmax(-1), kind)
            case Gibbs(burn_in=int(burn_in)) if self.done < burn_in:
                self.redraw(logits, self.without_top_k, self.draw)
            case Gibbs(burn_in=int()) if not self.options.top_k:
                self.redraw(logits, self.processors, pick_likeliest)
            case _:
                self.redraw(logits, self.processors, self.draw)
        self.done += 1
        return self.choose_places()

    def redraw(self, logits: Tensor, processors: tuple[Processor, ...], choice: TokenSelection) -> None:
        """Write what is chosen into the places. Shapes: logits [R, V]."""
        scores = apply_processors(processors, self.ids, logits)
        self.ids = self.ids.scatter(1, self.places[:, None], choice(scores, 1))

    def propose(self, scores: Tensor, kind: RawScores | LogProbabilities) -> None:
        """One step of Metropolis-Hastings. Shapes: scores [R, V], log probabilities."""
        self.energy = energy = self.masked.energy(self.ids, kind) if self.energy is None else self.energy
        places = self.places[:, None]
        old, new = self.ids.gather(1, places), self.draw(scores, 1)
        log_uniform = torch.rand(len(self.ids), generator=self.draw.generator, device=self.ids.device).log()
        moved = (old != new)[:, 0].nonzero()[:, 0]
        if not len(moved):
            return
        other = self.ids.scatter(1, places, new)[moved]
        costs = self.masked.energy(other, kind, moved)
        back = (scores.gather(1, old) - scores.gather(1, new))[moved, 0]
        taken = log_uniform[moved] < energy[moved] - costs + back
        self.proposed += len(moved)
        self.accepted += int(taken.sum())
        self.ids = self.ids.index_copy(0, moved[taken], other[taken])
        self.energy = energy.index_copy(0, moved[taken], costs[taken])

    def result(self) -> Tensor:
        """The texts. Shapes: -> [R, L]."""
        return self.ids


def walk(model: Transformer, input_ids: Tensor | None, attention_mask: Tensor | None = None, **options: Any) -> Chains:
    """Write by `strategy` as `generate` does, and say how many proposals were taken.

    Shapes: input_ids and attention_mask [B, L] -> Chains of R = B·num_return_sequences rows.
    Raises `InputError` for a model that fills in no hidden tokens, and for a text without a mask token.
    """
    check_call(model, None, None, False)
    return run_chains(model, input_ids, attention_mask, resolve_options(options, model.provenance.generation))


def run_chains(model: Transformer, ids: Tensor | None, mask: Tensor | None, options: GenerationOptions) -> Chains:
    """Run the chains that the options ask for. Shapes: ids and mask [B, L]."""
    check_masked_model(model.config)
    check_tokens(options, model.config.embed.vocab)
    strategy = options.strategy
    if not isinstance(strategy, ChainStrategy) or ids is None:
        raise InputError("chains need a strategy, and a text with mask tokens to begin with",
                         where="input_ids" if ids is None else "strategy",
                         remedy="give strategy=Gibbs(mask=...) and ids [batch, length]")
    ids = expect_tensor("input_ids", ids).to(model.device)
    mask = check_mask(model.config.embed, ids, mask, padding=options.padding)
    copies = options.num_return_sequences
    ids, mask = ids.repeat_interleave(copies, 0), None if mask is None else mask.repeat_interleave(copies, 0)
    with torch.inference_mode():
        free = ids == strategy.mask
        if (empty := (~free.any(1)).nonzero().flatten().tolist()):
            raise InputError(f"row {empty[0]} has no mask token ({strategy.mask}), so nothing is to be written",
                             where="input_ids", remedy="put mask tokens where words are wanted")
        masked = MaskedModel(inference_view(model), strategy.mask, free, mask, options.suppress_tokens)
        search = ChainSearch(masked, ids, options, strategy)
        texts = decode(masked, search, start=search.choose_places())
    energy = None if search.energy is None else search.energy.clone()  # outside inference mode, like the ids
    return Chains(texts.clone(), search.proposed, search.accepted, energy)


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
