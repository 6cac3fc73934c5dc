"""Letting a masked language model write: the mask tokens of a text become words, by a chain of single changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import yaml
from pydantic import TypeAdapter, ValidationError

from saucier.errors import InputError
from saucier.generation.chains import walk
from saucier.generation.strategies import ChainStrategy, Strategy
from saucier.runs.opened import Opened
from saucier.runs.writing import Manner
from saucier.text.tokenizer import Tokenizer

CHAINS = ("gibbs", "metropolis_hastings")
"""Strategies that fill in the mask tokens of a text."""


@dataclass(frozen=True, slots=True)
class Filled:
    """Texts, and how the chains went."""

    texts: list[str]
    proposed: int
    accepted: int

    @property
    def words(self) -> str | None:
        """Say how many proposals were taken; None where the strategy proposes nothing."""
        if not self.proposed:
            return None
        return f"took {self.accepted:,} of {self.proposed:,} proposals ({self.accepted / self.proposed:.0%})"


def read_strategy(said: str, tokenizer: Tokenizer) -> Strategy:
    """Understand `gibbs steps=200 order=sequential`: a kind, and its settings. Raises `InputError`."""
    kind, *settings = said.split() or [""]
    values: dict[str, Any] = {"kind": kind}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise InputError(f"{setting!r} is no setting", where="--strategy", remedy="write name=value")
        values[name] = yaml.safe_load(value)
    if kind in CHAINS and tokenizer.mask_id is None:
        raise InputError("the tokenizer has no mask token", where="--strategy",
                         remedy="leave it out, or use a masked language model")
    known = {"mask": tokenizer.mask_id} if kind in CHAINS else {}
    try:
        adapter: TypeAdapter[Strategy] = TypeAdapter(Strategy)
        return adapter.validate_python(known | values)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = " ".join(str(part) for part in fault["loc"][1:])
        raise InputError(f"{place}: {fault['msg']}".removeprefix(": "), where="--strategy",
                         remedy="docs/masked-generation.md lists the kinds and their settings") from error


def open_text(prompt: str, masks: int, tokenizer: Tokenizer) -> list[int]:
    """Return the ids of a text in its frame, with so many open places behind it. Raises `InputError` without any."""
    token = tokenizer.mask_id
    assert token is not None, "read_strategy refuses such a tokenizer"
    name = str(tokenizer.id_to_token(token))
    ids = tokenizer.encode(" ".join(part for part in (prompt, *[name] * masks) if part))
    if token not in ids:
        raise InputError(f"there is no {name} in the text, so nothing is to be written", where="prompt",
                         remedy=f"write {name} where words are wanted, or --masks 12 for so many behind the text")
    return ids


def fill_in(opened: Opened, prompt: str, manner: Manner, *, strategy: ChainStrategy, masks: int = 0) -> Filled:
    """Let an opened model write where the prompt has mask tokens. Raises `InputError`."""
    tokenizer = opened.tokenizer
    ids = torch.tensor([open_text(prompt, masks, tokenizer)], device=next(opened.model.parameters()).device)
    done = walk(opened.model, ids, torch.ones_like(ids), strategy=strategy, num_return_sequences=manner.samples,
                seed=manner.seed, top_k=manner.top_k, top_p=manner.top_p,
                temperature=manner.temperature or None, suppress_tokens=tuple(tokenizer.special_ids))
    return Filled([tokenizer.decode(row) for row in done.ids.tolist()], done.proposed, done.accepted)
