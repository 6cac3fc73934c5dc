"""An export held to the model that it was made from: token ids, distributions and greedy tokens, by another engine.

Letters: L tokens, V vocabulary, D dim.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from saucier.errors import InputError
from saucier.generation.generate import generate
from saucier.jobs.merge import SENTENCES
from saucier.model import Transformer
from saucier.opened import room
from saucier.text.reading.documents import read_documents
from saucier.text.tokenizer.tokenizer import Tokenizer

MOST, LENGTH = 16, 64
"""Texts that are compared, and tokens of each."""
PROMPT, NEW = 8, 16
"""Tokens that an engine goes on from, and those that it writes."""
START = "decoder_start_token_id"
"""Where nothing says it, engines begin with token 0."""
SAME_KL = 1e-3
"""Nats a token within which an export in float32 must stay."""


class Engine(Protocol):
    """Another program, or another reader, that has opened an export; what it cannot say is None."""

    name: str
    """With its version."""

    def ids(self, text: str) -> list[int] | None:
        """Return the ids of a text, with the special tokens around it."""

    def outputs(self, ids: Sequence[int]) -> Tensor | None:
        """Return the logits at each token, or the vectors of an encoder. Shapes: -> [L, V] or [L, D].

        An encoder-decoder reads the tokens, and writes them.
        """

    def write(self, ids: Sequence[int], count: int) -> list[int] | None:
        """Return the tokens that follow greedily, or what an encoder-decoder writes of these; an end ends them."""

    def close(self) -> None:
        """Free what it holds."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What both were found to share."""

    engine: str
    texts: int
    tokens: int
    same_ids: int | None
    """Texts that both split into the same tokens; None: the engine does not split."""
    difference: float | None
    """Largest difference of a logit or of a vector's number."""
    divergence: float | None
    """Mean Kullback-Leibler divergence of the next token's distribution, nats a token; None without logits."""
    flips: int | None
    """Places at which the likeliest token is another."""
    same_greedy: int | None
    """Greedy tokens that are the same up to the first that is not."""
    greedy: int | None
    """Those that were compared."""

    def lines(self) -> Iterator[str]:
        """Say it."""
        yield f"compared by {self.engine} on {self.texts} texts, {self.tokens:,} tokens:"
        if self.same_ids is not None:
            yield f"  the same token ids for {self.same_ids} of {self.texts} texts"
        if self.difference is not None:
            yield f"  largest difference {self.difference:.2g}"
        if self.divergence is not None:
            yield (f"  KL divergence {self.divergence:.2g} nats a token, another likeliest token at {self.flips} of "
                   f"{self.tokens:,} places")
        if self.same_greedy is not None:
            yield f"  {self.same_greedy} of {self.greedy} greedy tokens the same"


def read_texts(files: Sequence[str]) -> list[str]:
    """Return texts to compare on: lines of files, or sentences of our own."""
    lines = SENTENCES if not files else (line for one in read_documents(files) for line in one.text.splitlines()
                                         if line.strip())
    found = list(islice(lines, MOST))
    if not found:
        raise InputError("there is no text to compare on", where=str(files[0]), remedy="give a file with lines of text")
    return found


def prove(model: Transformer, tokenizer: Tokenizer | None, engine: Engine, texts: Sequence[str]) -> Proof:
    """Compare a model with what an engine makes of its export."""
    rows = encode_texts(model, tokenizer, texts)
    gaps: list[float] = []
    divergences: list[Tensor] = []
    flips, found, compared = 0, [], 0
    for row in rows:
        theirs = engine.outputs(row)
        if theirs is not None:
            ours = run(model, row, whole=len(theirs) != len(row))
            gaps.append(float((ours - theirs).abs().max()))
            if model.config.language_head is not None:
                log, other = F.log_softmax(ours, -1), F.log_softmax(theirs, -1)
                divergences.append((log.exp() * (log - other)).sum(-1))
                flips += int((ours.argmax(-1) != theirs.argmax(-1)).sum())
        if (pair := compare_greedy(model, engine, row)) is not None:
            found.append(pair[0])
            compared += pair[1]
    split = [engine.ids(text) for text in texts] if tokenizer is not None else [None]
    same = None if tokenizer is None or split[0] is None else sum(
        one == tokenizer.encode(text) for one, text in zip(split, texts, strict=True))
    divergence = max(float(torch.cat(divergences).mean()), 0.0) if divergences else None
    return Proof(engine.name, len(rows), sum(map(len, rows)), same, max(gaps, default=None), divergence,
                 flips if divergences else None, sum(found) if compared else None, compared or None)


def encode_texts(model: Transformer, tokenizer: Tokenizer | None, texts: Sequence[str]) -> list[list[int]]:
    """Return texts as ids; without a tokenizer ids that are drawn."""
    vocab, generator = model.config.input_embed.vocab, torch.Generator().manual_seed(0)
    rows = [torch.randint(vocab, (16,), generator=generator).tolist() if tokenizer is None else tokenizer.encode(text)
            for text in texts]
    return [row[:room(model.config, LENGTH)] for row in rows if row]


def run(model: Transformer, row: Sequence[int], *, whole: bool = False) -> Tensor:
    """Return a model's logits at each token, or its vectors; `whole`: what a head gives of the text.

    Shapes: -> [L, V] or [L, D], of a whole text [1, N].
    """
    ids = torch.tensor([list(row)])
    pair = model.config.encoder is not None and model.config.decoder is not None
    with torch.inference_mode():
        output: Any = model(input_ids=ids, **({"decoder_input_ids": ids} if pair else {}))
    found: Tensor = output.logits if output.logits is not None else output.embeddings if whole else \
        output.last_hidden_state
    return (found[0] if found.dim() == 3 else found).float()


def compare_greedy(model: Transformer, engine: Engine, row: Sequence[int]) -> tuple[int, int] | None:
    """Return how many greedy tokens are the same, and how many were compared; None where nothing is written."""
    config = model.config
    if config.decoder is None or config.language_head is None:
        return None
    given = list(row) if config.encoder is not None else list(row[:PROMPT])
    count = max(min(NEW, room(config, LENGTH) - len(given)), 1) if config.encoder is None else NEW
    theirs = engine.write(given, count)
    if theirs is None:
        return None
    start: dict[str, Any] = {} if config.encoder is None or START in model.provenance.generation else {START: 0}
    made = generate(model, torch.tensor([given]), max_new_tokens=count, do_sample=False, num_beams=1,
                    **start)[0].tolist()
    ours = made[1:] if config.encoder is not None else made[len(given):]
    size = min(len(ours), len(theirs))
    same = next((place for place in range(size) if ours[place] != theirs[place]), size)
    return same, size
