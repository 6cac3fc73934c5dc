"""Texts from several sources, each of which may be behind the whole text (RAG-Sequence): hypotheses of every source,
weighed by all of them or by those that wrote them; and how likely each source is behind a text.

Letters: B texts, K sources of each, N hypotheses of a source, H hypotheses, L source length, T tokens of a text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from saucier.errors import InputError
from saucier.generation.decoding import Fast, Thorough
from saucier.generation.generate import generate
from saucier.generation.options import GenerationOptions, resolve_options
from saucier.generation.packed_weights import inference_view, use_packed_weights
from saucier.generation.prompt import check_mixture, read_prompt
from saucier.generation.rules import Prompt, find_fill_token
from saucier.model import Transformer

MOST_ROWS = 64
"""Hypotheses that a decoder scores at once."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A text that some source wrote."""

    ids: tuple[int, ...]
    """Its tokens, the end with them."""
    writers: frozenset[int]
    """The sources that wrote it."""


def generate_by_source(model: Transformer, input_ids: Tensor, attention_mask: Tensor | None = None, *,
                       mixture: Tensor, scoring: Thorough | Fast, **options: Any) -> Tensor:
    """Write one text for K sources, any of which may be behind all of it.

    A search (beams, as a rule) writes hypotheses for each source alone; the text is the hypothesis y of the largest
    Σ_z p(z) p(y | z), as `scoring` counts. No length penalty weighs hypotheses against each other.
    Shapes: input_ids, attention_mask [B·K, L], mixture [B, K], log p(z) -> [B, 1 + T], filled as `generate` does.
    Errors: `InputError` as `generate`, and for texts that are drawn: those of different sources would hardly meet.
    Source: Lewis et al. 2020, §2.5, arXiv:2005.11401 (there beam scores are used where a search found a hypothesis;
    here it is scored by a pass of its own, so that penalties of the search do not count).
    """
    chosen = resolve_options(options, model.provenance.generation)
    if chosen.do_sample:
        raise InputError("hypotheses are searched for, not drawn", where="do_sample",
                         remedy="leave it out, or mix the sources token by token")
    with torch.inference_mode():
        prompt = read_prompt(model, input_ids, attention_mask, options=chosen)
        check_mixture(model.config, prompt, mixture)
        found = generate(model, input_ids, attention_mask,
                         **{**options, "num_return_sequences": chosen.num_beams})
        texts, sources = mixture.shape
        written = found[:, 1:].view(texts, sources, chosen.num_beams, -1)
        best = []
        for number in range(texts):
            hypotheses = gather_hypotheses(written[number], chosen)
            rows = slice(number * sources, (number + 1) * sources)
            logs = score_hypotheses(model, take_sources(prompt, rows), hypotheses)
            if isinstance(scoring, Fast):
                wrote = torch.tensor([[k in one.writers for one in hypotheses] for k in range(sources)],
                                     device=logs.device)
                logs = logs.masked_fill(~wrote, float("-inf"))
            weights = mixture[number].to(logs.device, logs.dtype)
            best.append(hypotheses[int((weights[:, None] + logs).logsumexp(0).argmax())].ids)
        rows_of = found.new_full((texts, 1 + max(map(len, best))), find_fill_token(chosen))
        rows_of[:, 0] = found[0, 0]
        for number, ids in enumerate(best):
            rows_of[number, 1:1 + len(ids)] = rows_of.new_tensor(ids)
    return rows_of.clone()


def gather_hypotheses(written: Tensor, options: GenerationOptions) -> list[Hypothesis]:
    """Return the different texts that the sources of one text wrote, in their order. Shapes: written [K, N, T]."""
    writers: dict[tuple[int, ...], set[int]] = {}
    for source, rows in enumerate(written.tolist()):
        for row in rows:
            writers.setdefault(cut_at_end(row, options.ends), set()).add(source)
    return [Hypothesis(ids, frozenset(found)) for ids, found in writers.items()]


def cut_at_end(ids: list[int], ends: tuple[int, ...]) -> tuple[int, ...]:
    """Return the tokens of a text up to its first end token, which stays; all of them where there is none."""
    place = next((place for place, token in enumerate(ids) if token in ends), len(ids) - 1)
    return tuple(ids[:place + 1])


def take_sources(prompt: Prompt, rows: slice) -> Prompt:
    """Return some rows of a prompt."""
    assert prompt.source is not None, "check_mixture refuses a prompt without a source"
    return Prompt(prompt.ids[rows], source=prompt.source[rows],
                  source_mask=None if prompt.source_mask is None else prompt.source_mask[rows])


def score_hypotheses(model: Transformer, prompt: Prompt, hypotheses: list[Hypothesis]) -> Tensor:
    """Return log p(y | z) of each hypothesis under each source; the sources are read once. Shapes: -> [K, H]."""
    view = inference_view(use_packed_weights(model))
    encoded = view(prompt.source, prompt.source_mask, decoder_input_ids=prompt.ids,
                   compute_logits=False).encoder_last_hidden_state
    size, columns = max(1, MOST_ROWS // len(encoded)), []
    for start in range(0, len(hypotheses), size):
        some = [one.ids for one in hypotheses[start:start + size]]
        longest = max(map(len, some))
        ids = prompt.ids.new_tensor([[*one, *[0] * (longest - len(one))] for one in some])  # [h, T]
        real = torch.arange(longest, device=ids.device) < ids.new_tensor([[len(one)] for one in some])
        before = torch.cat([prompt.ids[:1].expand(len(ids), -1), ids[:, :-1]], 1).repeat(len(encoded), 1)
        mask = None if prompt.source_mask is None else prompt.source_mask.repeat_interleave(len(ids), 0)
        logits = view(None, mask, encoder_output=encoded.repeat_interleave(len(ids), 0),
                      decoder_input_ids=before).logits.float()
        logs = logits.log_softmax(-1).gather(-1, ids.repeat(len(encoded), 1)[..., None])[..., 0]
        columns.append(logs.view(len(encoded), len(ids), -1).masked_fill(~real, 0.0).sum(-1))
    return torch.cat(columns, 1)

