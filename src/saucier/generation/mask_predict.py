"""Mask-Predict: a whole target at once, over mask tokens, then again where the model is least sure.

Letters: B sources, N lengths tried for each, R = B·N rows, S source length, T target length, V vocab.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from saucier import config as c
from saucier.errors import InputError
from saucier.generation.decoding import MaskPredict
from saucier.generation.options import GenerationOptions
from saucier.generation.packed_weights import inference_view
from saucier.generation.processors import forbid_tokens
from saucier.generation.prompt import read_prompt
from saucier.generation.rules import check_tokens, find_fill_token
from saucier.generation.search import Step, decode
from saucier.model import Transformer


def read_targets(step: Step | None, *, model: Transformer, encoded: Tensor, mask: Tensor | None, real: Tensor,
                 token: int) -> Tensor:
    """Read targets with mask tokens in the places to be written, at first everywhere: the feed of Mask-Predict.

    Shapes: encoded [R, S, D], what the source gave, read once; mask [R, S]; real [R, T] -> [R, T, V], float32.
    """
    ids = torch.full(real.shape, token, device=real.device) if step is None else step.tokens
    output = model(None, mask, encoder_output=encoded, decoder_input_ids=ids, decoder_attention_mask=real)
    return output.logits.float()  # type: ignore[no-any-return]


class MaskPredictSearch:
    """Writes what is hidden, then hides the tokens that are least sure, for some iterations.

    In iteration t of T, from 0, the share (T - t) / T of the tokens is hidden, rounded down, at least one; the others
    keep their tokens and their probabilities. Source: Ghazvininejad et al. 2019, §3, eq 1 to 3, arXiv:1904.09324.
    """

    def __init__(self, real: Tensor, *, token: int, barred: tuple[int, ...], iterations: int) -> None:
        """Begin with targets of mask tokens alone; `barred` tokens are never written. Shapes: real [R, T]."""
        self.real, self.token, self.barred, self.iterations = real, token, barred, iterations
        self.lengths = real.sum(1)
        self.ids = torch.full(real.shape, token, device=real.device)
        self.sure = torch.full(real.shape, float("-inf"), device=real.device)
        self.hidden, self.done = real, 0

    @property
    def finished(self) -> bool:
        """Whether all iterations are done."""
        return self.done == self.iterations

    def advance(self, logits: Tensor) -> Step:
        """Write the likeliest tokens into the hidden places, and hide the next ones. Shapes: logits [R, T, V]."""
        best = forbid_tokens(logits.flatten(0, 1), self.barred).log_softmax(-1).max(-1)
        self.ids = torch.where(self.hidden, best.indices.view_as(self.ids), self.ids)
        self.sure = torch.where(self.hidden, best.values.view_as(self.sure), self.sure)
        self.done += 1
        count = (self.lengths * (self.iterations - self.done) // self.iterations).clamp(min=1)
        order = self.sure.masked_fill(~self.real, float("inf")).argsort(1).argsort(1)
        self.hidden = (order < count[:, None]) & self.real
        return Step(self.ids.masked_fill(self.hidden, self.token))

    def result(self) -> Tensor:
        """The targets. Shapes: -> [R, T]."""
        return self.ids

    def scores(self) -> Tensor:
        """The mean log probability of each target. Shapes: -> [R]."""
        return self.sure.masked_fill(~self.real, 0.0).sum(1) / self.lengths


def mask_predict(model: Transformer, ids: Tensor | None, mask: Tensor | None, options: GenerationOptions,
                 strategy: MaskPredict) -> Tensor:
    """Write the likeliest targets. Shapes: ids and mask [B, S] -> [B, 1 + T], each after the start token, then filled.

    `max_new_tokens` bounds the lengths that are tried. Raises `InputError` for a model that tells no lengths, and for
    options that ask for several texts or for chance.
    """
    token = find_mask_token(model.config, options)
    check_tokens(options, model.config.output_embed.vocab)
    model = inference_view(model)
    with torch.inference_mode():
        prompt = read_prompt(model, ids, mask, options=options)
        output = model(prompt.source, prompt.source_mask, decoder_input_ids=prompt.ids, compute_logits=False)
        longest = options.new_tokens(1) if options.max_new_tokens or options.max_length else None
        assert model.head is not None, "find_mask_token refuses any but a LengthHead"
        likely: Tensor = model.head.lengths(output.pooler_output)[:, 1:][:, :longest]  # type: ignore[operator]
        count = min(strategy.length_candidates, likely.shape[1])
        lengths = likely.topk(count).indices + 1  # [B, N]
        real = mark_real_tokens(lengths.flatten(), int(lengths.max()))
        source_mask = None if prompt.source_mask is None else prompt.source_mask.repeat_interleave(count, 0)
        feed = partial(read_targets, model=model, mask=source_mask, real=real, token=token,
                       encoded=output.encoder_last_hidden_state.repeat_interleave(count, 0))
        search = MaskPredictSearch(real, token=token, barred=(token, *options.suppress_tokens, *options.ends),
                                   iterations=strategy.iterations)
        texts = decode(feed, search)
        rows = search.scores().view(-1, count).argmax(1) + torch.arange(len(lengths), device=texts.device) * count
        kept, ends = texts[rows], lengths.flatten()[rows]
        kept = kept.masked_fill(~mark_real_tokens(ends, kept.shape[1]), find_fill_token(options))[:, :int(ends.max())]
    return torch.cat([prompt.ids, kept], dim=1).clone()


def find_mask_token(config: c.Transformer, options: GenerationOptions) -> int:
    """Return the token that is written over. Raises `InputError` as `mask_predict` does."""
    head = config.head
    if not isinstance(head, c.LengthHead) or not isinstance(head.language.predicts, c.WholeText):
        raise InputError("this model does not write whole texts at once", where="strategy",
                         remedy="use one with a head of kind length, such as that of the recipe mask-predict-nano")
    if options.do_sample or options.num_return_sequences > 1:
        raise InputError("mask_predict takes the likeliest tokens, and writes one text",
                         where="do_sample" if options.do_sample else "num_return_sequences", remedy="leave it out")
    return head.language.predicts.mask


def mark_real_tokens(lengths: Tensor, width: int) -> Tensor:
    """Say which places are real. Shapes: [R] -> [R, T]."""
    return torch.arange(width, device=lengths.device) < lengths[:, None]
