"""The model as a search sees it: with a key-value cache and one token a row and step, with a memory of earlier
segments, or reading the whole text again at every step.

Letters: B prompts, R rows (prompts times copies), L length, S source length, M memory, D dim, V vocab.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.errors import InputError
from saucier.generation.rules import Prompt
from saucier.generation.search import Feed, Step
from saucier.model import Transformer
from saucier.parts.output import Cache, Output


@dataclass(slots=True)
class State:
    """What has been read so far, for every row."""

    cache: Cache
    mask: Tensor | None = None
    """[R, L], with padding at the left of some row; None: there is none."""
    positions: Tensor | None = None
    """[R], the position of the next token; None: the cache's length."""
    source_mask: Tensor | None = None
    """[R, S]."""
    encoded: Tensor | None = None
    """[R, S, D], what the encoder gave, once; None for a decoder alone."""

    def spread(self, rows: Tensor) -> None:
        """Give every row its copies. Shapes: rows [R]."""
        self.cache.reorder(rows)
        self.mask, self.positions, self.source_mask, self.encoded = (
            None if x is None else x.index_select(0, rows)
            for x in (self.mask, self.positions, self.source_mask, self.encoded))


ReadToken = Callable[[Tensor, State], Tensor]
"""Reads one token a row: ids [R, 1] and the state (mask grown) -> scores of the next token [R, V]; the cache grows."""


def read_token(model: Transformer, tokens: Tensor, state: State) -> Tensor:
    """Read one token a row by the model itself. Shapes: [R, 1] -> [R, V]."""
    if state.encoded is None:
        places = None if state.positions is None else state.positions[:, None]
        output = model(tokens, state.mask, places=places, cache=state.cache, last_only=True)
    else:
        output = model(None, state.source_mask, encoder_output=state.encoded, decoder_input_ids=tokens,
                       cache=state.cache, last_only=True)
    return output.logits[:, -1]  # type: ignore[no-any-return]


class CachedFeed:
    """Feeds a model through its key-value cache. Source: Shazeer 2019, §2.4, arXiv:1911.02150, for what is cached.

    The prompt, and the source, are read once for all copies of a row (beams, samples).
    """

    def __init__(self, model: Transformer, prompt: Prompt, *, read: ReadToken, copies: int, capacity: int) -> None:
        """`copies` rows for each prompt, of up to `capacity` tokens; `read` takes each token after the prompt."""
        self.model, self.prompt, self.read, self.copies = model, prompt, read, copies
        self.state = State(model.new_cache(prompt.ids.shape[0], capacity), prompt.mask,
                           None if prompt.mask is None else prompt.mask.sum(1), prompt.source_mask)
        self.ahead = 0
        """Places of the cache before the text: a learned prompt."""
        self.begun = [0] * prompt.ids.shape[0]
        """How many first tokens of each prompt are in the cache already."""

    def __call__(self, step: Step | None) -> Tensor:
        """Read the prompt, or one more token a row. Shapes: -> [R, V], float32."""
        state = self.state
        if step is None:
            return self.read_prompt()
        if step.rows is not None:  # each row continues another one of the same prompt, so that only the cache moves
            state.cache.reorder(step.rows, same_source=True)
        if state.mask is not None:
            state.mask = append_column(state.mask, 1)
        logits = self.read(step.tokens[:, None], state)
        if state.positions is not None:
            state.positions = state.positions + 1
        return logits.float()

    def read_ahead(self, tokens: Tensor, rows: Tensor, places: Tensor) -> Tensor:
        """Read tokens of the only row, each at its place, which is forgotten from the first of them on.

        Shapes: tokens, rows, places [T] -> scores of what follows each [T, V], float32.
        """
        state, first = self.state, int(places[0])
        state.cache.length = first + self.ahead
        if state.encoded is None:
            output = self.model(tokens[None], cache=state.cache)
        else:
            output = self.model(None, state.source_mask, encoder_output=state.encoded, decoder_input_ids=tokens[None],
                                cache=state.cache)
        scores: Tensor = output.logits[0].float()
        return scores

    def take_row(self, row: int, length: int) -> list[Tensor]:
        """Return copies of keys and values of a row's first `length` tokens."""
        return [one[row, :, :length].clone() for one in (*self.state.cache.keys, *self.state.cache.values)]

    def put_row(self, row: int, kept: Sequence[Tensor], length: int) -> None:
        """Fill the first `length` places of a row."""
        for one, new in zip((*self.state.cache.keys, *self.state.cache.values), kept, strict=True):
            one[row, :, :length] = new[:, :length]

    def read_prompt(self) -> Tensor:
        """Read the prompt, then give every row its copies. Shapes: -> [R, V], float32."""
        prompt, state = self.prompt, self.state
        if self.begun[0]:
            state.cache.length = self.begun[0]
            output = self.model(prompt.ids[:, self.begun[0]:], cache=state.cache, last_only=True)
        elif prompt.source is None:
            places = None if prompt.mask is None else (prompt.mask.cumsum(1) - 1).clamp(min=0)
            output = self.model(prompt.ids, prompt.mask, places=places, cache=state.cache, last_only=True,
                                prefix_length=prompt.prefix)
        elif prompt.sources > 1:
            state.encoded, state.source_mask = join_encoded(self.model, {
                "input_ids": prompt.source, "attention_mask": prompt.source_mask,
                "global_attention_mask": prompt.source_global}, prompt.ids)
            output = self.model(None, state.source_mask, encoder_output=state.encoded, decoder_input_ids=prompt.ids,
                                cache=state.cache, last_only=True)
        else:
            output = self.model(prompt.source, prompt.source_mask, decoder_input_ids=prompt.ids, cache=state.cache,
                                last_only=True, global_attention_mask=prompt.source_global, prefix_length=prompt.prefix)
            state.encoded = output.encoder_last_hidden_state
        self.ahead = state.cache.length - prompt.ids.shape[1]
        logits: Tensor = output.logits[:, -1].float()
        if self.copies == 1:
            return logits
        state.spread(torch.arange(len(logits), device=logits.device).repeat_interleave(self.copies))
        return logits.repeat_interleave(self.copies, 0)


def join_encoded(model: nn.Module, inputs: Mapping[str, Tensor | None], start: Tensor) -> tuple[Tensor, Tensor | None]:
    """Read the K sources of each text alone, and put what the encoder gives of them one after another.

    Shapes: inputs [B·K, S], the sources of a text next to each other; start [B, 1], what the decoder begins with ->
    `encoder_output` [B, K·S, D] and its mask [B, K·S], None where all is real.
    Source: Izacard and Grave 2021 (fusion-in-decoder), §3, arXiv:2007.01282.
    """
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    assert ids is not None and isinstance(model, Transformer), "sources are tokens of a model of ours"
    padding = model.tables.read.padding
    mask = ids != padding if mask is None and padding is not None else mask
    copies = len(ids) // len(start)
    encoded = model(**{**inputs, "attention_mask": mask}, decoder_input_ids=start.repeat_interleave(copies, 0),
                    compute_logits=False).encoder_last_hidden_state
    joined: Tensor = encoded.unflatten(0, (-1, copies)).flatten(1, 2)
    return joined, None if mask is None else mask.unflatten(0, (-1, copies)).flatten(1, 2)


def prediction_kind(config: c.Transformer) -> c.Predicts:
    """Return which token the logits at a position speak of."""
    return c.UnmaskedPrediction(kind="next") if config.language_head is None else config.language_head.predicts


def append_column(x: Tensor, value: int) -> Tensor:
    """Append one more column to each row. Shapes: [R, L] -> [R, L + 1]."""
    return torch.cat([x, x.new_full((len(x), 1), value)], dim=1)


def predict_next(model: Transformer, ids: Tensor, mask: Tensor | None, *, mems: Sequence[Tensor] | None = None,
                 prefix: Tensor | None = None) -> Output:
    """Read a text so that the last logits are those of the token after it.

    Shapes: ids and mask [R, L]; mems [M, R, D]; prefix [R].
    """
    match prediction_kind(model.config):
        case c.InPlace(mask=token, language=language):
            mask, ids = None if mask is None else append_column(mask, 1), append_column(ids, token)
            places = None if mask is None else (mask.cumsum(1) - 1).clamp(min=0)
            known = model.config.embed.languages is not None and language is not None
            langs = torch.full_like(ids, language) if known else None  # type: ignore[arg-type]  # known says so
            return model(ids, mask, position_ids=places, langs=langs, last_only=True)  # type: ignore[no-any-return]
        case c.UnmaskedPrediction(kind="query_stream"):
            mask, ids = None if mask is None else append_column(mask, 1), append_column(ids, 0)
            hidden = torch.zeros(len(ids), ids.shape[1], ids.shape[1], device=ids.device)
            hidden[:, :, -1] = 1
            return model(ids, mask, perm_mask=hidden, target_mapping=hidden[:, :1],  # type: ignore[no-any-return]
                         mems=mems, last_only=True)
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

    def __call__(self, step: Step | None) -> Tensor:
        """Read the prompt, or everything with one more token a row. Shapes: -> [R, V], float32."""
        if step is not None and step.rows is not None:
            self.ids = self.ids.index_select(0, step.rows)
            self.mask = None if self.mask is None else self.mask.index_select(0, step.rows)
        if step is not None:
            self.ids = torch.cat([self.ids, step.tokens[:, None]], dim=1)
            self.mask = None if self.mask is None else append_column(self.mask, 1)
        logits = predict_next(self.model, self.ids, self.mask, prefix=self.prefix).logits
        assert logits is not None, "read_prompt refuses a model without a language head"
        return logits[:, -1].float()


class MemoryFeed:
    """Reads the prompt once, then what is new next to the memory of what came before.

    Source: Dai et al. 2019, §3.2, arXiv:1901.02860. A model with two streams reads its last two tokens again, as its
    code release does: the first of them was read before the second was known.
    """

    def __init__(self, model: Transformer, prompt: Prompt, *, copies: int) -> None:
        """`copies` rows for each prompt. Raises `InputError` for prompts of different lengths."""
        if prompt.mask is not None:
            raise InputError("a memory has no padding, so prompts of different lengths cannot be read together",
                             where="attention_mask", remedy="generate from prompts of one length at a time")
        self.model, self.ids, self.copies = model, prompt.ids, copies
        self.again = 2 if prediction_kind(model.config).kind == "query_stream" else 1
        self.mems: list[Tensor] = []

    def __call__(self, step: Step | None) -> Tensor:
        """Read the prompt and give every row its copies, or read one more token a row. Shapes: -> [R, V], float32."""
        if step is not None:
            if step.rows is not None:
                self.follow(step.rows)
            self.ids = torch.cat([self.ids, step.tokens[:, None]], dim=1)
            return self.read(self.ids[:, -self.again:], self.mems)
        logits = self.read(self.ids, None)
        if self.copies == 1:
            return logits
        self.follow(torch.arange(len(logits), device=logits.device).repeat_interleave(self.copies))
        return logits.repeat_interleave(self.copies, 0)

    def read(self, ids: Tensor, mems: list[Tensor] | None) -> Tensor:
        """Read tokens next to a memory and keep the new one, without what will be read again. Shapes: -> [R, V]."""
        output = predict_next(self.model, ids, None, mems=mems)
        assert output.logits is not None and output.mems is not None, "chosen for models that give both"
        again = self.again if self.again > 1 else 0
        self.mems = [past[:max(0, len(past) - again)] for past in output.mems]
        return output.logits[:, -1].float()

    def follow(self, rows: Tensor) -> None:
        """Let each row continue another one. Shapes: rows [R]."""
        self.ids = self.ids.index_select(0, rows)
        self.mems = [past.index_select(1, rows) for past in self.mems]


class MixtureFeed:
    """Several sources speak of one text: the chance of each token is a weighted sum over them, at every step anew.

    Rows of the inner feed are those of B texts, of the K sources of each, and of the copies of each source. So beams
    and samples of a text read all of its sources. Source: Lewis et al. 2020, §2.5 (RAG-Token), arXiv:2005.11401.
    """

    def __init__(self, inner: Feed, mixture: Tensor, copies: int) -> None:
        """`mixture`: logarithms of the weights of the sources [B, K]; `copies` rows for each text."""
        self.inner, self.mixture, self.copies = inner, mixture, copies

    def __call__(self, step: Step | None) -> Tensor:
        """Give all sources of a text the same token, and mix what they say. Shapes: -> [B * copies, V], float32."""
        texts, sources = self.mixture.shape
        if step is not None:
            own = step.tokens.view(texts, 1, -1).expand(-1, sources, -1).flatten()
            rows = None
            if step.rows is not None:
                first = torch.arange(texts * sources, device=own.device).view(texts, sources, 1) * self.copies
                rows = (first + (step.rows.view(texts, 1, -1) % self.copies)).flatten()
            step = Step(own, rows)
        logs = self.inner(step).log_softmax(-1).unflatten(0, (texts, sources, self.copies))
        mixed: Tensor = (logs + self.mixture[:, :, None, None]).logsumexp(1)
        return mixed.flatten(0, 1)
