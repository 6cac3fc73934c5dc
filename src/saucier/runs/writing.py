"""Letting a model write: texts continued, translated, or mended, as samples and as translations to be scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from saucier.generation import generate
from saucier.model import Transformer
from saucier.objectives.base import TokenIds
from saucier.recipes.coherence import learned_length
from saucier.recipes.recipe import Sampling
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
        ids = [[fill] * gap + list(row) if left else list(row) + [fill] * gap for row, gap in zip(rows, gaps, strict=True)]
        mask = [[0] * gap + [1] * len(row) if left else [1] * len(row) + [0] * gap for row, gap in zip(rows, gaps, strict=True)]
        device = next(self.model.parameters()).device
        return torch.tensor(ids, device=device), torch.tensor(mask, device=device)

    def translate(self, sources: Sequence[str], *, beams: int, length_penalty: float) -> list[str]:
        """Write the likeliest target of each source."""
        rows = [self.tokenizer.encode(text)[: self.longest] for text in sources]
        ids, mask = self.padded(rows, left=False)
        written = generate(self.model, ids, mask, num_beams=beams, length_penalty=length_penalty, early_stopping=beams > 1,
                           max_new_tokens=min(self.longest, 2 * ids.shape[1] + 10), do_sample=False, **special(self.ids))
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
        ids = self.start(prompt)
        given = torch.tensor([ids], device=next(self.model.parameters()).device)
        written = generate(self.model, given, max_new_tokens=self.room(len(ids), sampling.tokens), seed=seed,
                           **choice(sampling), **special(self.ids))
        return self.tokenizer.decode(written[0, len(ids):].tolist())


def special(ids: TokenIds) -> dict[str, int]:
    """Return the special ids under the names that generation knows."""
    found = {"eos_token_id": ids.eos, "pad_token_id": ids.filler, "decoder_start_token_id": ids.decoder_start}
    return {name: number for name, number in found.items() if number is not None}


def choice(sampling: Sampling) -> dict[str, float | bool | None]:
    """Return how the next token is chosen, under the names that generation knows."""
    common: dict[str, float | bool | None] = {"repetition_penalty": sampling.repetition_penalty}
    if sampling.temperature == 0:
        return common | {"do_sample": False}
    return common | {"do_sample": True, "temperature": sampling.temperature, "top_k": sampling.top_k or 0, "top_p": sampling.top_p or 1.0}
