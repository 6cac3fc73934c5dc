"""Letting a model write: texts continued, translated, or mended, as samples and as translations to be scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from saucier.errors import InputError
from saucier.generation.generate import generate
from saucier.generation.search import Listener
from saucier.generation.streaming import TextStream
from saucier.model import Transformer
from saucier.objectives.base import TokenIds
from saucier.recipes.coherence import learned_length
from saucier.recipes.recipe import Sampling
from saucier.runs.opened import Opened
from saucier.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Writer:
    """A model and its tokenizer."""

    model: Transformer
    tokenizer: Tokenizer
    longest: int
    """The most tokens of a text that it was trained on."""

    @property
    def ids(self) -> TokenIds:
        """The special ids."""
        return TokenIds.of(self.tokenizer)

    def padded(self, rows: Sequence[Sequence[int]], *, left: bool) -> tuple[Tensor, Tensor]:
        """Fill rows up to one length. Shapes: -> ids [B, L], mask [B, L]."""
        width = max(map(len, rows))
        fill = self.ids.filler
        gaps = [width - len(row) for row in rows]
        ids = [[fill] * gap + list(row) if left else list(row) + [fill] * gap for row,
               gap in zip(rows, gaps, strict=True)]
        mask = [[0] * gap + [1] * len(row) if left else [1] * len(row) + [0] * gap for row,
                gap in zip(rows, gaps, strict=True)]
        device = next(self.model.parameters()).device
        return torch.tensor(ids, device=device), torch.tensor(mask, device=device)

    def translate(self, sources: Sequence[str], *, beams: int, length_penalty: float) -> list[str]:
        """Write the likeliest target of each source."""
        rows = [self.tokenizer.encode(text)[: self.longest] for text in sources]
        ids, mask = self.padded(rows, left=False)
        written = generate(self.model, ids, mask, num_beams=beams, length_penalty=length_penalty,
                           early_stopping=beams > 1,
                           max_new_tokens=min(self.longest, 2 * ids.shape[1] + 10), do_sample=False,
                           **special(self.ids))
        return [self.tokenizer.decode(row) for row in written.tolist()]

    def start(self, prompt: str) -> list[int]:
        """Return the ids that a prompt begins with: the mark that a text begins, and the prompt."""
        begin = self.tokenizer.bos_id if self.tokenizer.bos_id is not None else self.tokenizer.eos_id
        return ([] if begin is None else [begin]) + self.tokenizer.encode(prompt, add_special_tokens=False)

    def room(self, used: int, wanted: int) -> int:
        """Return how many tokens can still be written."""
        longest = learned_length(self.model.config)
        return wanted if longest is None else max(1, min(wanted, longest - used))

    def continue_text(self, prompt: str, sampling: Sampling, *, seed: int) -> str:
        """Write on from a prompt; only what is new is returned."""
        manner = Manner(tokens=sampling.tokens, temperature=sampling.temperature, top_k=sampling.top_k,
                        top_p=sampling.top_p,
                        repetition_penalty=sampling.repetition_penalty, seed=seed)
        return self.write(prompt, manner)[0]

    def write(self, prompt: str, manner: Manner, listener: Listener | None = None) -> list[str]:
        """Write on from a prompt, or translate it; only what is new is returned."""
        encoder_decoder = self.model.config.encoder is not None
        ids = self.tokenizer.encode(prompt) if encoder_decoder else self.start(prompt)
        if not ids:
            raise InputError("there is no prompt, and this model has no token that begins a text", where="prompt",
                             remedy="give some text")
        given = torch.tensor([ids], device=next(self.model.parameters()).device)
        used = 1 if encoder_decoder else len(ids)
        written = generate(self.model, given, torch.ones_like(given), tokenizer=self.tokenizer, listener=listener,
                           compile=manner.compile, max_new_tokens=self.room(used, manner.tokens),
                           **manner.options(), **special(self.ids))
        return [self.tokenizer.decode(row[used:]) for row in written.tolist()]


def special(ids: TokenIds) -> dict[str, Any]:
    """Return the special ids under the names that generation knows."""
    found = {"eos_token_id": ids.eos, "pad_token_id": ids.filler, "decoder_start_token_id": ids.decoder_start}
    return {name: number for name, number in found.items() if number is not None}


@dataclass(frozen=True, slots=True)
class Manner:
    """How to write, as a person says it."""

    tokens: int = 200
    temperature: float = 0.8
    """0 takes the likeliest token every time."""
    top_k: int | None = None
    top_p: float | None = None
    beams: int = 1
    length_penalty: float = 1.0
    repetition_penalty: float = 1.0
    no_repeat_ngram: int = 0
    stop: tuple[str, ...] = ()
    samples: int = 1
    seed: int | None = None
    compile: bool = False

    @property
    def streams(self) -> bool:
        """Whether the text is final while it is written, and only one."""
        return self.beams == 1 and self.samples == 1

    def options(self) -> dict[str, Any]:
        """Return all this under the names that generation knows."""
        drawn = self.beams == 1 and self.temperature > 0
        found: dict[str, Any] = {
            "do_sample": drawn, "num_beams": self.beams, "num_return_sequences": self.samples,
            "stop_strings": self.stop,
            "repetition_penalty": self.repetition_penalty, "no_repeat_ngram_size": self.no_repeat_ngram}
        if self.beams > 1:
            found |= {"length_penalty": self.length_penalty, "early_stopping": True}
        return found | ({"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p, "seed": self.seed}
                        if drawn else {})


def write_freely(opened: Opened, prompt: str, manner: Manner, speak: Callable[[str], None] | None = None) -> list[str]:
    """Let an opened model write; `speak` hears a language model's prompt, then the text while it is written."""
    longest = opened.recipe.training.length if opened.recipe else manner.tokens
    writer = Writer(opened.model, opened.tokenizer, longest)
    if speak is None:
        return writer.write(prompt, manner)
    if opened.model.config.encoder is None:
        speak(prompt)
    stream = TextStream(opened.tokenizer, speak)
    written = writer.write(prompt, manner, stream)
    stream.close()
    return written
