"""`examine`: every law and check that a model must obey, on real text, with the largest difference of each."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from saucier import config as c
from saucier.errors import InputError
from saucier.generation.prompt import positions_limit
from saucier.inspection.doctor_checks import Finding
from saucier.inspection.doctor_laws import LAWS, Law
from saucier.inspection.doctor_rows import Row
from saucier.model import Transformer
from saucier.text.documentation import topics
from saucier.text.read import read_documents
from saucier.text.tokenizer import Tokenizer

TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Largest difference, beside 1 + the number's size, that another order of the same sums may make."""
LONGEST = 48
"""Tokens of the longest row."""
SHARES = (1.0, 0.55, 0.15)
"""Lengths of the rows, of the longest."""
WORDS = 400
"""Words of a text that are looked at."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that was found of a model."""

    model: str
    dtype: str
    parameters: int
    text: str
    """Where the rows came from."""
    lengths: tuple[int, ...]
    """Tokens of each row."""
    findings: tuple[Finding, ...]

    @property
    def sound(self) -> bool:
        """Whether nothing fails."""
        return all(one.verdict != "fails" for one in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Give everything, with the verdict of the whole."""
        return {**asdict(self), "sound": self.sound}


def texts_of(files: Sequence[str]) -> list[str]:
    """Return a few texts to read: of files, or Python's help topics."""
    texts = (document.text for document in read_documents(list(files))) if files else iter(topics().values())
    found = [" ".join(text.split()) for _, text in zip(range(WORDS), texts, strict=False)]
    return [text for text in sorted(found, key=lambda text: -len(text)) if text][:2 * len(SHARES)]


def text_rows(model: Transformer, tokenizer: Tokenizer, texts: Sequence[str]) -> list[Row]:
    """Cut texts into rows of several lengths, each framed as the tokenizer frames a text."""
    if not texts:
        raise InputError("holds no text", where="--text", remedy="give a file with a few sentences")
    lengths = row_lengths(model)
    read, written = ([fitted(one, texts[place % len(texts)], lengths[place % len(lengths)]) for place in places]
                     for one, places in ((tokenizer, range(len(lengths))),
                                         (tokenizer.target, range(len(lengths), 2 * len(lengths)))))
    return paired_rows(model, [*read, *written], len(lengths))


def fitted(tokenizer: Tokenizer, text: str, length: int) -> tuple[int, ...]:
    """Return the ids of as many words as fit into a length; cut where not even one does."""
    words = text.split()[:WORDS]
    low, high = 1, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(tokenizer.encode(" ".join(words[:middle]))) <= length else (low, middle - 1)
    return tuple(tokenizer.encode(" ".join(words[:low]))[:length])


def drawn_rows(model: Transformer) -> list[Row]:
    """Return rows of random ids, the same ones every time, none of them the padding."""
    generator, lengths = torch.Generator().manual_seed(0), row_lengths(model)
    vocab = model.config.input_embed.vocab
    low = min(5, vocab - 2)
    ids = [tuple(torch.randint(low, vocab, (length,), generator=generator).tolist()) for length in lengths * 2]
    return paired_rows(model, ids, len(lengths))


def paired_rows(model: Transformer, ids: Sequence[tuple[int, ...]], count: int) -> list[Row]:
    """Give an encoder-decoder other texts as targets; ids that it has no vectors for, which the checks tell, change."""
    read = [known(one, model.config.input_embed) for one in ids[:count]]
    if model.config.encoder is None or model.config.decoder is None:
        return [Row(one) for one in read]
    return [Row(source, known(target, model.config.output_embed))
            for source, target in zip(read, ids[count:], strict=True)]


def known(ids: Sequence[int], embed: c.Embedding) -> tuple[int, ...]:
    """Return ids that a table has rows for."""
    return tuple(number % embed.vocab for number in ids)


def row_lengths(model: Transformer) -> list[int]:
    """Return the lengths of the rows: so long that all of them go into one row of the model."""
    limits = [limit for limit in (positions_limit(model.config), room_of_source(model.config)) if limit is not None]
    longest = min([LONGEST, *(int(limit / sum(SHARES)) for limit in limits)])
    return [max(2, int(share * longest)) for share in SHARES]


def room_of_source(config: c.Transformer) -> int | None:
    """Return how many positions the encoder has tables for."""
    if config.encoder is None:
        return None
    room = c.longest_input(config.embed.positions)
    return min([*([] if room is None else [room]), *c.stack_room(config.encoder)], default=None)


def examine(model: Transformer, rows: Sequence[Row]) -> Iterator[Finding]:
    """Hold a model to every law."""
    tolerance = TOLERANCES[model.embed.tokens.weight.dtype]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for law in LAWS:
            yield held(law, model, rows, 0.0 if law.exact else tolerance)


def held(law: Law, model: Transformer, rows: Sequence[Row], tolerance: float) -> Finding:
    """Hold a model to one law."""
    reason = law.reason(model.config)
    if reason is not None:
        return Finding(law.name, "does not apply", reason)
    gap, left_out = law.gap(model, rows), law.text(model.config)
    return Finding(law.name, "holds" if gap <= tolerance else "fails", f"places only: {left_out}" if left_out else "",
                   gap, tolerance)
