"""The model that is prompted: opened, and how likely it finds each of several answers after one prompt.

The prompt is read once. Letters: C answers, L places, V vocab.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from saucier import config as c
from saucier.diagnosis.scope import cache_reason
from saucier.errors import InputError
from saucier.files import is_folder
from saucier.folders.load import check_tokenizer_fits, load
from saucier.generation.feeds import prediction_kind
from saucier.generation.options import resolve_options
from saucier.generation.prompt import find_max_positions, find_start_token
from saucier.model import Transformer
from saucier.opened import load_model_tokenizer, run_folder_of
from saucier.text.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class AnswerLikelihoods:
    """Of each answer: its log-probability in nats, and how many tokens that is over."""

    nats: tuple[float, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PromptedModel:
    """A model that can be asked, and its tokenizer."""

    model: Transformer
    tokenizer: Tokenizer

    @property
    def is_encoder_decoder(self) -> bool:
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
        known = [self.tokenizer.handling.max_length, find_max_positions(self.model.config)]
        return min([one for one in known if one is not None], default=None)

    def encode(self, text: str) -> list[int]:
        """Give the ids of a prompt."""
        return self.tokenizer.encode(text) if self.is_encoder_decoder else \
            self.begin + self.tokenizer.encode(text, add_special_tokens=False)

    def likelihoods(self, prompt: str, answers: Sequence[str]) -> AnswerLikelihoods:
        """Give the log-probability of each answer behind the prompt, whose text it follows directly."""
        with torch.inference_mode():
            return self._of_pairs(prompt, answers) if self.is_encoder_decoder else self._of_texts(prompt, answers)

    def _of_texts(self, prompt: str, answers: Sequence[str]) -> AnswerLikelihoods:
        whole = [self.encode(prompt + answer) for answer in answers]
        start = max(1, count_shared_prefix([self.encode(prompt), *whole]))
        start = min([start, *(len(one) - 1 for one in whole)])
        if start < 1:
            raise InputError("no token stands before the answer", where="template",
                             remedy="write something before it; this tokenizer has no token that begins a text")
        labels = [one[start:] for one in whole]
        first = self.tensor([whole[0][:start]])
        if cache_reason(self.model.config) is not None:
            rows, _ = self.padded(whole)
            return sum_log_probabilities(self.model(rows).logits[:, start - 1:-1], labels)
        longest = max(map(len, labels))
        cache = self.model.new_cache(1, start + longest)
        before = self.model(first, cache=cache, last_only=True).logits[:, -1:].expand(len(labels), -1, -1)
        if longest == 1:
            return sum_log_probabilities(before, labels)
        cache.reorder(torch.zeros(len(labels), dtype=torch.long, device=first.device))
        rows, _ = self.padded([one[:-1] or one for one in labels])
        return sum_log_probabilities(torch.cat([before, self.model(rows, cache=cache).logits], dim=1), labels)

    def _of_pairs(self, prompt: str, answers: Sequence[str]) -> AnswerLikelihoods:
        labels = [self.tokenizer.target.encode(answer.strip()) for answer in answers]
        begin = find_start_token(self.model.config, resolve_options({}, self.model.provenance.generation))
        rows, mask = self.padded([[begin, *one[:-1]] for one in labels])
        source = self.tensor([self.encode(prompt)]).expand(len(rows), -1)
        return sum_log_probabilities(self.model(source, decoder_input_ids=rows, decoder_attention_mask=mask).logits,
                                     labels)

    def tensor(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Put ids where the model is."""
        return torch.tensor(rows, device=self.model.embed.tokens.weight.device)

    def padded(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Lay rows out with padding behind, which no earlier place sees. Shapes: -> ids, mask [C, L]."""
        filler, longest = self.tokenizer.target.pad_id or 0, max(map(len, rows))
        ids = self.tensor([[*row, *[filler] * (longest - len(row))] for row in rows])
        return ids, self.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])


def count_shared_prefix(rows: Sequence[Sequence[int]]) -> int:
    """Count the first ids that all rows have in common."""
    count = 0
    for column in zip(*rows, strict=False):
        if len({*column}) > 1:
            break
        count += 1
    return count


def sum_log_probabilities(logits: Tensor, labels: Sequence[Sequence[int]]) -> AnswerLikelihoods:
    """Add the log-probabilities of the labels up. Shapes: logits [C, L, V]."""
    nats = []
    for row, wanted in zip(logits, labels, strict=True):
        chances = row[:len(wanted)].float().log_softmax(-1)
        places = torch.tensor(wanted, device=logits.device)[:, None]
        nats.append(float(chances.gather(1, places).sum()))
    return AnswerLikelihoods(tuple(nats), tuple(map(len, labels)))


def refuse_unpromptable(model: Transformer) -> None:
    """Raise `InputError` for a model that cannot be asked in this way."""
    config = model.config
    fills = config.decoder is None or not isinstance(prediction_kind(config), c.NextToken)
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
    model = load(path, dtype="fastest" if dtype == "auto" else dtype, base=base)
    refuse_unpromptable(model)
    tokenizer = load_model_tokenizer(run_folder_of(Path(path)) if is_folder(path) else path, base)
    check_tokenizer_fits(model, tokenizer, path)
    return PromptedModel(model, tokenizer)


def read_shots(text: str) -> tuple[int, ...]:
    """Read numbers of shots such as `0,1,4`. Errors: `InputError`."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise InputError(f"{text!r} is no list of numbers", where="--shots", remedy="write 0,1,4")
    return tuple(dict.fromkeys(map(int, parts)))
