"""The model that is prompted: opened, and how likely it finds each of several answers after one prompt.

The prompt is read once. Letters: C answers, L places, V vocab.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from saucier.diagnosis.scope import cache_reason
from saucier.errors import InputError
from saucier.generation.feeds import prediction_kind
from saucier.generation.options import resolve_options
from saucier.generation.prompt import find_start_token
from saucier.jobs.score import count_shared_prefix
from saucier.model import Transformer
from saucier.opened import OpenModel, open_model, room
from saucier.tasks.written.task import pad_rows


@dataclass(frozen=True, slots=True)
class AnswerLikelihoods:
    """Of each answer: its log-probability in nats, and how many tokens that is over."""

    nats: tuple[float, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PromptedModel:
    """A model that answers prompts."""

    opened: OpenModel

    @property
    def begin(self) -> list[int]:
        """What a decoder's text begins with: the begin token, or else the end token, as in training."""
        known = self.opened.tokenizer.bos_id, self.opened.tokenizer.eos_id
        return [one for one in known if one is not None][:1]

    @property
    def room(self) -> int | None:
        """How many tokens of a prompt (and, of a decoder, its answer) the model has positions for."""
        return room(self.opened.model.config, None, self.opened.tokenizer.handling.max_length, side="written")

    def encode(self, text: str) -> list[int]:
        """Give the ids of a prompt."""
        return self.opened.tokenizer.encode(text) if self.opened.is_encoder_decoder else \
            self.begin + self.opened.tokenizer.encode(text, add_special_tokens=False)

    def likelihoods(self, prompt: str, answers: Sequence[str]) -> AnswerLikelihoods:
        """Give the log-probability of each answer after the prompt, whose text it follows directly."""
        with torch.inference_mode():
            found = self._of_pairs if self.opened.is_encoder_decoder else self._of_texts
            return found(prompt, answers)

    def _of_texts(self, prompt: str, answers: Sequence[str]) -> AnswerLikelihoods:
        whole = [self.encode(prompt + answer) for answer in answers]
        start = max(1, count_shared_prefix([self.encode(prompt), *whole]))
        start = min([start, *(len(one) - 1 for one in whole)])
        if start < 1:
            raise InputError("no token stands before the answer", where="template",
                             remedy="write something before it; this tokenizer has no token that begins a text")
        labels = [one[start:] for one in whole]
        first = self.tensor([whole[0][:start]])
        if cache_reason(self.opened.model.config) is not None:
            return sum_log_probabilities(self.opened.model(self.padded(whole)[0]).logits[:, start - 1:-1], labels)
        longest = max(map(len, labels))
        cache = self.opened.model.new_cache(1, start + longest)
        before = self.opened.model(first, cache=cache, last_only=True).logits[:, -1:].expand(len(labels), -1, -1)
        if longest == 1:
            return sum_log_probabilities(before, labels)
        cache.reorder(torch.zeros(len(labels), dtype=torch.long, device=first.device))
        further = self.opened.model(self.padded([one[:-1] or one for one in labels])[0], cache=cache).logits
        return sum_log_probabilities(torch.cat([before, further], dim=1), labels)

    def _of_pairs(self, prompt: str, answers: Sequence[str]) -> AnswerLikelihoods:
        labels = [self.opened.tokenizer.target.encode(answer.strip()) for answer in answers]
        begin = find_start_token(self.opened.model.config, resolve_options({}, self.opened.model.provenance.generation))
        rows, mask = self.padded([[begin, *one[:-1]] for one in labels])
        source = self.tensor([self.encode(prompt)]).expand(len(rows), -1)
        output = self.opened.model(source, decoder_input_ids=rows, decoder_attention_mask=mask)
        return sum_log_probabilities(output.logits, labels)

    def padded(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Lay rows out with padding after them, which no earlier place sees. Shapes: -> ids, mask [C, L]."""
        ids, mask = pad_rows(rows, self.opened.tokenizer.target.pad_id or 0, left=False)
        return ids.to(self.opened.device), mask.to(self.opened.device)

    def tensor(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Put ids where the model is."""
        return torch.tensor(rows, device=self.opened.device)


def sum_log_probabilities(logits: Tensor, labels: Sequence[Sequence[int]]) -> AnswerLikelihoods:
    """Add the log-probabilities of the labels up. Shapes: logits [C, L, V]."""
    nats = []
    for row, ids in zip(logits, labels, strict=True):
        chances = row[:len(ids)].float().log_softmax(-1)
        places = torch.tensor(ids, device=logits.device)[:, None]
        nats.append(float(chances.gather(1, places).sum()))
    return AnswerLikelihoods(tuple(nats), tuple(map(len, labels)))


def refuse_unpromptable(model: Transformer) -> None:
    """Raise `InputError` for a model that cannot answer in this way."""
    config = model.config
    fills = config.decoder is None or prediction_kind(config).kind != "next"
    if fills and config.language_head is not None:
        raise InputError("this model fills gaps, and gives no probability to a text behind a prompt", where="--model",
                         remedy="use a decoder or an encoder-decoder, or fine-tune this one: saucier finetune")
    if not config.writes:
        raise InputError("this model has no language head on a decoder", where="--model",
                         remedy="use a decoder or an encoder-decoder, or fine-tune this one: saucier finetune")


def open_prompted_model(path: str, dtype: str = "auto", base: str | None = None) -> PromptedModel:
    """Open a model folder, a run or a hub id. `base`: of an adapter, instead of the one that it names.

    Errors: `InputError` for a model that writes no text, and a folder without tokenizer.
    """
    return PromptedModel(open_model(Path(path), dtype=dtype, base=base, check=refuse_unpromptable))


def read_shots(text: str) -> tuple[int, ...]:
    """Read numbers of shots such as `0,1,4`. Errors: `InputError`."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise InputError(f"{text!r} is no list of numbers", where="--shots", remedy="write 0,1,4")
    return tuple(dict.fromkeys(map(int, parts)))
