"""Feeds of models without a key-value cache: the text is read again at every step, or a memory stands for most of it.

Letters: B prompts, R rows (prompts times copies), L length, M memory, D dim, V vocab.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from saucier import config as c
from saucier.errors import InputError
from saucier.generation.feed import Prompt
from saucier.generation.search import Step
from saucier.model import Output, Transformer


def predicts(config: c.Transformer) -> c.Predicts:
    """Return which token the logits at a position speak of."""
    return c.NextToken() if config.language_head is None else config.language_head.predicts


def behind(x: Tensor, value: int) -> Tensor:
    """Put one more column behind each row. Shapes: [R, L] -> [R, L + 1]."""
    return torch.cat([x, x.new_full((len(x), 1), value)], dim=1)


def ask(model: Transformer, ids: Tensor, mask: Tensor | None, *, mems: Sequence[Tensor] | None = None,
        prefix: Tensor | None = None) -> Output:
    """Read a text so that the last logits speak of the token behind it.

    Shapes: ids and mask [R, L]; mems [M, R, D]; prefix [R].
    """
    match predicts(model.config):
        case c.InPlace(mask=token, language=language):
            mask, ids = None if mask is None else behind(mask, 1), behind(ids, token)
            places = None if mask is None else (mask.cumsum(1) - 1).clamp(min=0)
            known = model.config.embed.languages is not None and language is not None
            langs = torch.full_like(ids, language) if known else None  # type: ignore[arg-type]  # known says so
            return model(ids, mask, position_ids=places, langs=langs, last_only=True)  # type: ignore[no-any-return]
        case c.QueryStream():
            mask, ids = None if mask is None else behind(mask, 1), behind(ids, 0)
            hidden = torch.zeros(len(ids), ids.shape[1], ids.shape[1], device=ids.device)
            hidden[:, :, -1] = 1
            wanted = hidden[:, :1]
            return model(ids, mask, perm_mask=hidden, target_mapping=wanted, mems=mems,  # type: ignore[no-any-return]
                         last_only=True)
        case _ if model.config.decoder is not None and mask is not None and mems is None:
            return model(ids, mask, position_ids=(mask.long().cumsum(1) - 1).clamp(min=0),  # type: ignore[no-any-return]
                         prefix_length=prefix, last_only=True)
        case _:
            return model(ids, mask, mems=mems, prefix_length=prefix, last_only=True)  # type: ignore[no-any-return]


class RereadFeed:
    """Reads the whole text at every step."""

    def __init__(self, model: Transformer, prompt: Prompt, *, copies: int) -> None:
        """`copies` rows for each prompt."""
        self.model = model
        self.ids = prompt.ids.repeat_interleave(copies, 0)
        self.mask, self.prefix = (None if one is None else one.repeat_interleave(copies, 0)
                                  for one in (prompt.mask, prompt.prefix))

    def read(self) -> Tensor:
        """Shapes: -> [R, V], float32."""
        logits = ask(self.model, self.ids, self.mask, prefix=self.prefix).logits
        assert logits is not None, "read_prompt refuses a model without a language head"
        return logits[:, -1].float()

    def first(self) -> Tensor:
        """Read the prompt. Shapes: -> [R, V], float32."""
        return self.read()

    def next(self, step: Step) -> Tensor:
        """Read everything with one more token a row. Shapes: -> [R, V], float32."""
        ids = self.ids if step.rows is None else self.ids.index_select(0, step.rows)
        self.ids = torch.cat([ids, step.tokens[:, None]], dim=1)
        if self.mask is not None:
            self.mask = behind(self.mask if step.rows is None else self.mask.index_select(0, step.rows), 1)
        return self.read()


class MemoryFeed:
    """Reads the prompt once, then what is new beside the memory of what came before.

    Source: Dai et al. 2019, §3.2, arXiv:1901.02860. A model with two streams reads its last two tokens again, as its
    code release does: the first of them was read before the second was known.
    """

    def __init__(self, model: Transformer, prompt: Prompt, *, copies: int) -> None:
        """`copies` rows for each prompt. Raises `InputError` for prompts of different lengths."""
        if prompt.mask is not None:
            raise InputError("a memory has no padding, so prompts of different lengths cannot be read together",
                             where="attention_mask", remedy="generate from prompts of one length at a time")
        self.model, self.ids, self.copies = model, prompt.ids, copies
        self.again = 2 if isinstance(predicts(model.config), c.QueryStream) else 1
        self.mems: list[Tensor] = []

    def read(self, ids: Tensor, mems: list[Tensor] | None) -> Tensor:
        """Read tokens beside a memory and keep the new one, without what will be read again. Shapes: -> [R, V]."""
        output = ask(self.model, ids, None, mems=mems)
        assert output.logits is not None and output.mems is not None, "chosen for models that give both"
        again = self.again if self.again > 1 else 0
        self.mems = [past[:max(0, len(past) - again)] for past in output.mems]
        return output.logits[:, -1].float()

    def first(self) -> Tensor:
        """Read the prompt, then give every row its copies. Shapes: -> [R, V], float32."""
        logits = self.read(self.ids, None)
        if self.copies > 1:
            self.follow(torch.arange(len(logits), device=logits.device).repeat_interleave(self.copies))
            logits = logits.repeat_interleave(self.copies, 0)
        return logits

    def next(self, step: Step) -> Tensor:
        """Read one more token a row. Shapes: -> [R, V], float32."""
        if step.rows is not None:
            self.follow(step.rows)
        self.ids = torch.cat([self.ids, step.tokens[:, None]], dim=1)
        return self.read(self.ids[:, -self.again:], self.mems)

    def follow(self, rows: Tensor) -> None:
        """Let each row continue another one. Shapes: rows [R]."""
        self.ids = self.ids.index_select(0, rows)
        self.mems = [past.index_select(1, rows) for past in self.mems]
