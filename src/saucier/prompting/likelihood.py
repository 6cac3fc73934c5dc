"""How likely a model finds each of several answers behind one prompt; the prompt is read once.

Letters: C answers, L places, V vocab.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from saucier import config as c
from saucier.errors import InputError
from saucier.generation.options import resolve
from saucier.generation.prompt import positions_limit, start_token
from saucier.generation.reread import predicts
from saucier.inspection.doctor_scope import cache_reason
from saucier.model import Transformer
from saucier.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Likelihoods:
    """Of each answer: its log-probability in nats, and how many tokens that is over."""

    nats: tuple[float, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Speaker:
    """A model that can be asked, and its tokenizer."""

    model: Transformer
    tokenizer: Tokenizer

    @property
    def two_sided(self) -> bool:
        """Whether an encoder reads the prompt, and a decoder the answer."""
        return self.model.config.encoder is not None and self.model.config.decoder is not None

    @property
    def begin(self) -> list[int]:
        """What a decoder's text begins with: the begin token, or else the end token, as in training."""
        first = self.tokenizer.bos_id if self.tokenizer.bos_id is not None else self.tokenizer.eos_id
        return [] if first is None else [first]

    @property
    def room(self) -> int | None:
        """How many tokens of a prompt (and, of a decoder, its answer) the model has positions for."""
        known = [self.tokenizer.handling.max_length, positions_limit(self.model.config)]
        return min([one for one in known if one is not None], default=None)

    def encode(self, text: str) -> list[int]:
        """Give the ids of a prompt."""
        return self.tokenizer.encode(text) if self.two_sided else \
            self.begin + self.tokenizer.encode(text, add_special_tokens=False)

    def likelihoods(self, prompt: str, answers: Sequence[str]) -> Likelihoods:
        """Give the log-probability of each answer behind the prompt, whose text it follows directly."""
        with torch.inference_mode():
            return self._of_pairs(prompt, answers) if self.two_sided else self._of_texts(prompt, answers)

    def _of_texts(self, prompt: str, answers: Sequence[str]) -> Likelihoods:
        whole = [self.encode(prompt + answer) for answer in answers]
        start = max(1, shared([self.encode(prompt), *whole]))
        start = min([start, *(len(one) - 1 for one in whole)])
        if start < 1:
            raise InputError("no token stands before the answer", where="template",
                             remedy="write something before it; this tokenizer has no token that begins a text")
        labels = [one[start:] for one in whole]
        first = self.tensor([whole[0][:start]])
        if cache_reason(self.model.config) is not None:
            rows, _ = self.padded(whole)
            return summed(self.model(rows).logits[:, start - 1:-1], labels)
        longest = max(map(len, labels))
        cache = self.model.new_cache(1, start + longest)
        before = self.model(first, cache=cache, last_only=True).logits[:, -1:].expand(len(labels), -1, -1)
        if longest == 1:
            return summed(before, labels)
        cache.reorder(torch.zeros(len(labels), dtype=torch.long, device=first.device))
        rows, _ = self.padded([one[:-1] or one for one in labels])
        return summed(torch.cat([before, self.model(rows, cache=cache).logits], dim=1), labels)

    def _of_pairs(self, prompt: str, answers: Sequence[str]) -> Likelihoods:
        labels = [self.tokenizer.target.encode(answer.strip()) for answer in answers]
        begin = start_token(self.model.config, resolve({}, self.model.generation))
        rows, mask = self.padded([[begin, *one[:-1]] for one in labels])
        source = self.tensor([self.encode(prompt)]).expand(len(rows), -1)
        return summed(self.model(source, decoder_input_ids=rows, decoder_attention_mask=mask).logits, labels)

    def tensor(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Put ids where the model is."""
        return torch.tensor(rows, device=self.model.embed.tokens.weight.device)

    def padded(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Lay rows out with padding behind, which no earlier place sees. Shapes: -> ids, mask [C, L]."""
        filler, longest = self.tokenizer.target.pad_id or 0, max(map(len, rows))
        ids = self.tensor([[*row, *[filler] * (longest - len(row))] for row in rows])
        return ids, self.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])


def shared(rows: Sequence[Sequence[int]]) -> int:
    """Count the first ids that all rows have in common."""
    count = 0
    for column in zip(*rows, strict=False):
        if len({*column}) > 1:
            break
        count += 1
    return count


def summed(logits: Tensor, labels: Sequence[Sequence[int]]) -> Likelihoods:
    """Add the log-probabilities of the labels up. Shapes: logits [C, L, V]."""
    nats = []
    for row, wanted in zip(logits, labels, strict=True):
        chances = row[:len(wanted)].float().log_softmax(-1)
        places = torch.tensor(wanted, device=logits.device)[:, None]
        nats.append(float(chances.gather(1, places).sum()))
    return Likelihoods(tuple(nats), tuple(map(len, labels)))


def check_speaks(model: Transformer) -> None:
    """Raise `InputError` for a model that cannot be asked in this way."""
    config = model.config
    fills = config.decoder is None or not isinstance(predicts(config), c.NextToken)
    if fills and config.language_head is not None:
        raise InputError("this model fills gaps, and gives no probability to a text behind a prompt", where="--model",
                         remedy="use a decoder or an encoder-decoder, or fine-tune this one: saucier finetune")
    if not config.writes:
        raise InputError("this model has no language head on a decoder", where="--model",
                         remedy="use a decoder or an encoder-decoder, or fine-tune this one: saucier finetune")
