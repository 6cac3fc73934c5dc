"""Beam search: several hypotheses for each prompt, grown together, the best finished ones kept.

Letters: B prompts, N beams, C candidates (a few times N), L length, V vocab.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from saucier.generation.native_model import kernel_threads
from saucier.generation.options import GenerationOptions
from saucier.generation.processors import without_threads
from saucier.generation.search import SearchRules, Step, TokenSelection, apply_processors, find_ended_rows
from saucier.native.session import log_softmax
from saucier.plain import library_of

OUT = -1.0e9
"""Added to a score that must not win; finite, so that it can be compared."""


@dataclass(slots=True)
class Hypotheses:
    """Some texts for each prompt, with what is known of them."""

    ids: Tensor
    """[B, C, limit]."""
    scores: Tensor
    """[B, C], sums of log probabilities, or what `BeamSearch.score` made of them."""
    lengths: Tensor
    """[B, C], new tokens."""
    done: Tensor
    """[B, C], True where the text has ended."""

    def best(self, count: int) -> tuple[Hypotheses, Tensor]:
        """Return the `count` of highest score, and their places [B, count]."""
        places = self.scores.topk(count).indices
        ids = self.ids.take_along_dim(places[..., None], 1)
        return Hypotheses(ids, self.scores.gather(1, places), self.lengths.gather(1, places),
                          self.done.gather(1, places)), places

    def with_others(self, other: Hypotheses) -> Hypotheses:
        """Put two sets together, these first."""
        return Hypotheses(*(torch.cat([getattr(self, name), getattr(other, name)], 1)
                            for name in ("ids", "scores", "lengths", "done")))


def log_softmax_by_kernels(scores: Tensor) -> Tensor:
    """Make log probabilities of scores on the CPU, where they are, and return them. Shapes: [R, V] -> [R, V]."""
    log_softmax(scores.numpy(), kernel_threads())
    return scores


class BeamSearch:
    """Beam search with the rules of transformers' GenerationMixin, so that the ids are the same.

    Source: Sutskever et al. 2014, §3.2, arXiv:1409.3215; finished hypotheses as in Stahlberg and Byrne 2019, §2. Where
    a hypothesis ends among the best `width` candidates it is kept separately, its score divided by its length, and the
    best unfinished candidates go on.
    """

    def __init__(self, prompt: Tensor, rules: SearchRules, choice: TokenSelection, options: GenerationOptions) -> None:
        """Begin at the prompt [B, L], every beam of a row the same."""
        self.rules, self.choice, self.options = rules, choice, options
        self.log_softmax = partial(F.log_softmax, dim=-1) if options.engine is None else log_softmax_by_kernels
        self.candidates = max(2, 1 + len(options.ends)) * options.num_beams
        """How many continuations are looked at, so that as many as there are beams go on whatever ends."""
        self.start = self.length = prompt.shape[1]
        rows, width = prompt.shape[0], options.num_beams
        ids = prompt.new_full((rows, width, rules.limit), rules.fill)
        ids[:, :, :self.length] = prompt[:, None]
        scores = torch.full((rows, width), OUT, device=prompt.device)
        none = torch.zeros(rows, width, dtype=torch.bool, device=prompt.device)
        self.kept = Hypotheses(ids, scores, none.long(), none)
        # Only the first beam counts at the first step: the others are the same.
        first = scores.index_fill(1, torch.zeros(1, dtype=torch.long, device=prompt.device), 0.0)
        self.running = Hypotheses(ids.clone(), first, none.long(), none)
        self.hopeful = none.new_ones(rows, 1)
        self.finished = False

    def advance(self, logits: Tensor) -> Step:
        """Extend all beams and keep the best. Shapes: logits [B·N, V]."""
        candidates, beams = self.extended(logits)
        self.running, places = replace(candidates, scores=candidates.scores + candidates.done * OUT).best(
            self.options.num_beams)
        self.keep(candidates)
        self.length += 1
        self.finished = not self.may_go_on(bool(candidates.done.all()))
        rows = beams.gather(1, places) + torch.arange(len(beams), device=beams.device)[:, None] * self.options.num_beams
        return Step(self.running.ids[:, :, self.length - 1].flatten(), rows.flatten())

    def extended(self, logits: Tensor) -> tuple[Hypotheses, Tensor]:
        """Return the best continuations over all beams, and the beam that each continues [B, C]."""
        rows, width = self.running.scores.shape
        so_far = self.running.ids[:, :, :self.length].flatten(0, 1)
        logs = self.log_softmax(logits)
        scores, vocab = apply_processors(self.rules.processors, so_far, logs), logits.shape[-1]
        # The sums take the place of the log probabilities, which nobody else holds: 32 rows of 58,101 are 7 MB.
        total = logs.view(rows, -1)
        new, before, sums = (without_threads(one) for one in (
            scores.view(rows, width, vocab), self.running.scores[..., None], logs.view(rows, width, vocab)))
        library_of(sums).add(new, before, out=sums)
        picked = self.choice(total, self.candidates)
        beams = picked // vocab
        texts = self.running.ids.take_along_dim(beams[..., None], 1)
        texts[:, :, self.length] = picked % vocab
        done = find_ended_rows(self.rules.stops, texts[:, :, :self.length + 1].flatten(0, 1)).view(rows, -1)
        done = done | (self.length + 1 >= self.rules.limit)
        lengths = torch.full_like(picked, self.length + 1 - self.start)
        return Hypotheses(texts, total.gather(1, picked), lengths, done), beams

    def keep(self, candidates: Hypotheses) -> None:
        """Let ended hypotheses among the best `width` candidates take the places of worse ones."""
        among_best = torch.arange(self.candidates, device=candidates.done.device) < self.options.num_beams
        ends = candidates.done & among_best
        full = self.kept.done.all(1, keepdim=True) & (self.options.early_stopping is True)
        scores = self.score(candidates.scores, self.length + 1 - self.start)
        for out in (full, ~self.hopeful, ~ends):
            scores = scores + out * OUT
        ending = Hypotheses(candidates.ids, scores, candidates.lengths, ends)
        self.kept, _ = self.kept.with_others(ending).best(self.options.num_beams)

    def score(self, total: Tensor, new: int) -> Tensor:
        """Divide a sum of log probabilities by the number of new tokens to the power of the penalty.

        Source: Murray and Chiang 2018, §3, arXiv:1808.10006, for the exponent 1. Not the formula of Wu et al. 2016, eq
        14.
        """
        return total / math.pow(new, self.options.length_penalty)

    def may_go_on(self, all_ended: bool) -> bool:
        """Say whether a running beam can go on and may still beat a kept hypothesis."""
        eventual = self.length - self.start
        if self.options.early_stopping == "never" and self.options.length_penalty > 0:
            eventual = self.rules.limit - self.start
        possible = self.score(self.running.scores[:, :1], eventual)
        worst = torch.where(self.kept.done, self.kept.scores.amin(1, keepdim=True), OUT)
        self.hopeful = self.hopeful & (possible > worst).any(1, keepdim=True)
        enough = self.options.early_stopping is True and bool(self.kept.done.all())
        return bool(self.hopeful.any()) and not enough and not all_ended

    def result(self) -> Tensor:
        """The best hypotheses of each prompt, the best first. Shapes: -> [B·returned, L]."""
        count = self.options.num_return_sequences
        longest = int(self.kept.lengths[:, :count].max())
        return self.kept.ids[:, :count, :self.start + longest].flatten(0, 1)
