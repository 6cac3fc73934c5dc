"""Mask-Predict: a whole target at once, over mask tokens, then again where the model is least sure.

Letters: B sources, N lengths tried for each, R = B·N rows, S source length, T target length, V vocab.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from saucier import config as c
from saucier.errors import InputError
from saucier.generation.feed import Prompt, evaluating
from saucier.generation.options import GenerationOptions
from saucier.generation.processors import forbid
from saucier.generation.prompt import read_prompt
from saucier.generation.rules import check_tokens, fill
from saucier.generation.strategies import MaskPredict
from saucier.model import Transformer


@dataclass(frozen=True, slots=True)
class Read:
    """A source that is read once, for all targets that are tried."""

    model: Transformer
    encoded: Tensor
    """[R, S, D]."""
    mask: Tensor | None
    """[R, S]; None: all of the source is real."""
    barred: tuple[int, ...]
    """Tokens that are never written."""

    def best(self, ids: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """Return the likeliest token of each place and its log probability. Shapes: ids, real [R, T] -> two [R, T]."""
        logits = self.model(None, self.mask, encoder_output=self.encoded, decoder_input_ids=ids,
                            decoder_attention_mask=real).logits
        sure = forbid(logits.float().flatten(0, 1), self.barred).log_softmax(-1).max(-1)
        return sure.indices.view_as(ids), sure.values.view(ids.shape)


def mask_predict(model: Transformer, ids: Tensor | None, mask: Tensor | None, options: GenerationOptions) -> Tensor:
    """Write the likeliest targets. Shapes: ids and mask [B, S] -> [B, 1 + T], each behind the start token, then filled.

    `max_new_tokens` bounds the lengths that are tried. Raises `InputError` for a model that tells no lengths, and for
    options that ask for several texts or for chance.
    """
    strategy, head = options.strategy, model.config.head
    assert isinstance(strategy, MaskPredict), "chosen by it"
    if not isinstance(head, c.LengthHead) or not isinstance(head.language.predicts, c.WholeText):
        raise InputError("this model does not write whole texts at once", where="strategy",
                         remedy="use one with a head of kind length, such as that of the recipe mask-predict-nano")
    if options.do_sample or options.num_return_sequences > 1:
        raise InputError("mask_predict takes the likeliest tokens, and writes one text",
                         where="do_sample" if options.do_sample else "num_return_sequences", remedy="leave it out")
    check_tokens(options, model.config.output_embed.vocab)
    token = head.language.predicts.mask
    with evaluating(model):
        prompt = read_prompt(model, ids, mask, options=options)
        read, pooled = encoded(model, prompt, (token, *options.suppress_tokens, *options.ends))
        lengths = likely_lengths(model, pooled, strategy, longest_allowed(options))
        count = lengths.shape[1]
        wide = Read(model, read.encoded.repeat_interleave(count, 0),
                    None if read.mask is None else read.mask.repeat_interleave(count, 0), read.barred)
        texts, scores = written(wide, lengths.flatten(), token, strategy.iterations)
        rows = scores.view(-1, count).argmax(1) + torch.arange(len(lengths), device=scores.device) * count
        kept, ends = texts[rows], lengths.flatten()[rows]
        kept = kept.masked_fill(~places(ends, kept.shape[1]), fill(options))[:, :int(ends.max())]
    return torch.cat([prompt.ids, kept], dim=1).clone()


def encoded(model: Transformer, prompt: Prompt, barred: tuple[int, ...]) -> tuple[Read, Tensor]:
    """Read the sources. Shapes: -> the encoder's output, and its pooled vectors [B, D]."""
    output = model(prompt.source, prompt.source_mask, decoder_input_ids=prompt.ids, compute_logits=False)
    return Read(model, output.encoder_last_hidden_state, prompt.source_mask, barred), output.pooler_output


def longest_allowed(options: GenerationOptions) -> int | None:
    """Return the longest target that the options allow; None: any that the model can tell."""
    told = options.max_new_tokens is not None or options.max_length is not None
    return options.new_tokens(1) if told else None


def likely_lengths(model: Transformer, pooled: Tensor, strategy: MaskPredict, limit: int | None) -> Tensor:
    """Return the likeliest lengths, at least 1 and at most the limit. Shapes: pooled [B, D] -> [B, N]."""
    assert model.head is not None, "looked at by the caller"
    scores: Tensor = model.head.lengths(pooled)[:, 1:][:, :limit]  # type: ignore[operator]
    return scores.topk(min(strategy.length_candidates, scores.shape[1])).indices + 1


def places(lengths: Tensor, width: int) -> Tensor:
    """Say which places are real. Shapes: [R] -> [R, T]."""
    return torch.arange(width, device=lengths.device) < lengths[:, None]


def written(read: Read, lengths: Tensor, token: int, iterations: int) -> tuple[Tensor, Tensor]:
    """Write targets of these lengths; give them and their mean log probabilities. Shapes: [R] -> [R, T], [R].

    In iteration t of T, from 0, the share (T - t) / T of the tokens is hidden, rounded down, at least one; the
    others keep their tokens and their probabilities. Source: Ghazvininejad et al. 2019, §3, eq 1 to 3.
    """
    real = places(lengths, int(lengths.max()))
    ids = torch.full(real.shape, token, device=real.device)
    sure = torch.full(real.shape, float("-inf"), device=real.device)
    for step in range(iterations):
        count = (lengths * (iterations - step) // iterations).clamp(min=1)
        order = sure.masked_fill(~real, float("inf")).argsort(1).argsort(1)
        hidden = (order < count[:, None]) & real
        best, chances = read.best(ids.masked_fill(hidden, token), real)
        ids, sure = torch.where(hidden, best, ids), torch.where(hidden, chances, sure)
    return ids, sure.masked_fill(~real, 0.0).sum(1) / lengths
