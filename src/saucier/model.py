"""`Transformer`, the only model class, its `Output`, and `build`.

The model turns ids into hidden vectors and logits. It knows no labels, no loss and no optimizer.
Letters: B batch, L length, S source length, D dim, V vocab, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.errors import InputError
from saucier.parts.cache import Cache
from saucier.parts.context import Context
from saucier.parts.embedding import Embedding
from saucier.parts.heads import Pooler, build_head
from saucier.parts.initialize import initialize
from saucier.parts.ragged import Ragged, ragged_of, worth_packing
from saucier.parts.stack import Stack
from saucier.parts.visibility import Span


@dataclass(slots=True)
class Output:
    """What a forward pass gives; a field is None where the model or the call has no such thing.

    For one stack the records are `hidden_states` and `attentions`; an encoder-decoder has `encoder_…` and `decoder_…`.
    `hidden_states[0]` is the embedding, the last is the stack's output; `attentions[i]` is [B, H, Q, K].
    """

    logits: Tensor | None = None
    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    sentence_logits: Tensor | None = None
    cache: Cache | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    encoder_last_hidden_state: Tensor | None = None
    encoder_hidden_states: tuple[Tensor, ...] | None = None
    encoder_attentions: tuple[Tensor, ...] | None = None
    decoder_hidden_states: tuple[Tensor, ...] | None = None
    decoder_attentions: tuple[Tensor, ...] | None = None
    cross_attentions: tuple[Tensor, ...] | None = None

    @property
    def prediction_logits(self) -> Tensor | None:
        """The token logits, under the name that BERT's pretraining class has for them."""
        return self.logits

    @property
    def seq_relationship_logits(self) -> Tensor | None:
        """The sentence logits, likewise."""
        return self.sentence_logits


@dataclass(slots=True)
class Side:
    """The input of one stack."""

    ids: Tensor
    mask: Tensor | None = None
    """[B, keys], True where a token is real; None when all are."""
    positions: Tensor | None = None
    documents: Tensor | None = None
    segments: Tensor | None = None
    prefix: Tensor | None = None
    cache: Cache | None = None
    layout: Ragged | None = None
    vectors: Tensor | None = None
    """[B, L, D] in place of the token vectors of `ids`."""

    def span(self) -> Span:
        """Say where queries and keys stand; packed rows have no padding left to mask."""
        start = self.cache.length if self.cache is not None else 0
        length = self.ids.shape[1]
        padding = None if self.layout is not None else self.mask
        return Span(length, start + length, start, self.ids.device, padding, self.documents, self.documents,
                    self.prefix)

    def placed(self) -> Tensor:
        """Return the positions [B or 1, L], counted from the cache's end where none were given."""
        if self.positions is not None:
            return self.positions
        start = self.cache.length if self.cache is not None else 0
        return torch.arange(start, start + self.ids.shape[1], device=self.ids.device)[None]

    def packed(self, x: Tensor) -> Tensor:
        """Drop the padding of ids or positions, where the rows are packed."""
        return x if self.layout is None else self.layout.pack(x.expand(*self.ids.shape))


@dataclass(slots=True)
class Wanted:
    """What to record on the way."""

    hidden: bool = False
    weights: bool = False


@dataclass(slots=True)
class Pass:
    """One stack's result: hidden vectors still packed, if they were, and the records unpacked."""

    hidden: Tensor
    layout: Ragged | None
    states: tuple[Tensor, ...] | None
    attentions: tuple[Tensor, ...] | None
    cross: tuple[Tensor, ...] | None

    def unpacked(self) -> Tensor:
        """The hidden vectors as [B, L, D]."""
        return self.hidden if self.layout is None else self.layout.unpack(self.hidden)


class Transformer(nn.Module):
    """Any model of the family, built from a config."""

    def __init__(self, config: c.Transformer) -> None:
        """Build with empty weights; `build` fills them. Raises `InputError` for an illegal combination."""
        super().__init__()
        c.check(config)
        self.config = config
        self.generation: dict[str, Any] = {}
        """Defaults of `saucier.generate` for this model, as in generation_config.json."""
        self.embed = Embedding(config.embed, config.dim)
        self.encoder = Stack(config.encoder, config.dim) if config.encoder else None
        self.decoder_embed = Embedding(config.decoder_embed, config.dim) if config.decoder_embed else None
        self.decoder = Stack(config.decoder, config.dim) if config.decoder else None
        self.pooler = Pooler(config.dim) if config.pooler else None
        output_embed = self.decoder_embed or self.embed
        self.head = build_head(config.head, config.dim, output_embed.tokens) if config.head else None

    def forward(self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, *,
                token_type_ids: Tensor | None = None,
                position_ids: Tensor | None = None, documents: Tensor | None = None,
                prefix_length: Tensor | None = None,
                decoder_input_ids: Tensor | None = None, decoder_attention_mask: Tensor | None = None,
                decoder_position_ids: Tensor | None = None, decoder_documents: Tensor | None = None,
                inputs_embeds: Tensor | None = None, encoder_output: Tensor | None = None, cache: Cache | None = None,
                last_only: bool = False,
                output_hidden_states: bool = False, output_attentions: bool = False,
                compute_logits: bool = True) -> Output:
        """Run the model.

        Shapes: input_ids [B, L] go to the encoder, or to the decoder of a decoder-only model; attention_mask [B, L],
        1 = real token (with a cache it covers the past too: [B, past + L]); documents [B, L], tokens attend only within
        equal numbers; prefix_length [B]; decoder_… likewise for the decoder of an encoder-decoder; inputs_embeds
        [B, L, D] stand in for the token vectors of input_ids; encoder_output [B, S, D] skips the encoder.

        `last_only` applies the head to the last position alone; `compute_logits=False` leaves the head to the caller,
        who applies `model.head` where it is needed. Raises `InputError` for inputs that do not fit the model.
        """
        wanted = Wanted(output_hidden_states, output_attentions)
        if input_ids is None and inputs_embeds is not None:
            input_ids = torch.zeros(inputs_embeds.shape[:2], dtype=torch.long, device=inputs_embeds.device)
        first = None if input_ids is None else Side(input_ids, boolean(attention_mask), position_ids, documents,
                                                    token_type_ids, prefix_length,
                                                    vectors=inputs_embeds)
        second = None if decoder_input_ids is None else Side(decoder_input_ids, boolean(decoder_attention_mask),
                                                             decoder_position_ids,
                                                             decoder_documents, prefix=prefix_length, cache=cache)
        if self.encoder is None or self.decoder is None:
            return self.one_stack(first, cache, wanted, last_only, compute_logits)
        return self.two_stacks(first, second, Memory(encoder_output, boolean(attention_mask), documents), wanted,
                               last_only, compute_logits)

    def one_stack(self, side: Side | None, cache: Cache | None, wanted: Wanted, last_only: bool,
                  compute_logits: bool) -> Output:
        """Run a model that is an encoder or a decoder alone."""
        if side is None:
            raise InputError("the model was called without tokens", where="input_ids", remedy="give input_ids")
        stack = self.encoder or self.decoder
        assert stack is not None, "check() refuses a model without stacks"
        side.cache = cache
        if cache is None and not wanted.weights and side.documents is None and worth_packing(side.mask):
            side.layout = ragged_of(side.mask) if side.mask is not None else None
        done = self.run(stack, self.embed, side, wanted)
        hidden = done.unpacked()
        output = Output(last_hidden_state=hidden, cache=cache, hidden_states=done.states, attentions=done.attentions)
        return self.finish(output, hidden, last_only, compute_logits)

    def two_stacks(self, source: Side | None, target: Side | None, memory: Memory, wanted: Wanted, last_only: bool,
                   compute_logits: bool) -> Output:
        """Run an encoder-decoder; the encoder is skipped where its output is given."""
        assert self.encoder is not None and self.decoder is not None, "forward() sends other models to one_stack"
        if target is None or (source is None and memory.hidden is None):
            raise InputError("an encoder-decoder needs both sides", where="decoder_input_ids",
                             remedy="give input_ids (or encoder_output) and decoder_input_ids")
        if (memory.documents is None) != (target.documents is None):
            raise InputError("packed on one side only, so targets would read every source", where="documents",
                             remedy="give both documents and decoder_documents, or neither")
        output = Output(cache=target.cache)
        if memory.hidden is None and source is not None:
            self.pack_both(source, target, wanted)
            done = self.run(self.encoder, self.embed, source, wanted)
            memory.hidden, memory.layout = done.hidden, done.layout
            output.encoder_hidden_states, output.encoder_attentions = done.states, done.attentions
            output.encoder_last_hidden_state = done.unpacked()
        else:
            output.encoder_last_hidden_state = memory.hidden
        done = self.run(self.decoder, self.decoder_embed or self.embed, target, wanted, memory)
        output.last_hidden_state = hidden = done.unpacked()
        output.decoder_hidden_states, output.decoder_attentions, output.cross_attentions = (
            done.states,
            done.attentions,
            done.cross,
        )
        return self.finish(output, hidden, last_only, compute_logits)

    def pack_both(self, source: Side, target: Side, wanted: Wanted) -> None:
        """Pack both sides of an encoder-decoder, or neither, so that their rows stay matched."""
        simple = target.cache is None and not wanted.weights and source.documents is None and target.documents is None
        if not simple or not worth_packing(source.mask, target.mask):
            return
        layouts = [ragged_of(torch.ones_like(side.ids, dtype=torch.bool) if side.mask is None else side.mask)
                   for side in (source, target)]
        if all(layout is not None for layout in layouts):
            source.layout, target.layout = layouts

    def run(self, stack: Stack, embed: Embedding, side: Side, wanted: Wanted, memory: Memory | None = None) -> Pass:
        """Embed one side and send it through its stack."""
        context = Context(side.span(), side.packed(side.placed()), side.layout, side.cache, want_weights=wanted.weights)
        if memory is not None and memory.hidden is not None:
            context.memory, context.memory_layout = memory.hidden, memory.layout
            context.memory_span = memory.span(side)
        segments = None if side.segments is None else side.packed(side.segments)
        record: list[Tensor] | None = [] if wanted.hidden else None
        vectors = (
            None if side.vectors is None else side.vectors if side.layout is None else side.layout.pack(side.vectors)
        )
        hidden = stack(embed(side.packed(side.ids), context.positions, segments, vectors=vectors), context, record)
        if side.cache is not None:
            side.cache.length += side.ids.shape[1]
        states = None if record is None else tuple(x if side.layout is None else side.layout.unpack(x) for x in record)
        weights = (tuple(context.attentions), tuple(context.cross_attentions)) if wanted.weights else (None, None)
        return Pass(hidden, side.layout, states, *weights)

    def finish(self, output: Output, hidden: Tensor, last_only: bool, compute_logits: bool) -> Output:
        """Apply pooler and head."""
        if self.pooler is not None:
            output.pooler_output = self.pooler(hidden)
        if self.head is not None and compute_logits:
            output.logits = self.head(hidden[:, -1:] if last_only else hidden)
            if isinstance(self.config.head, c.PretrainingHead):
                output.sentence_logits = self.head.sentence(output.pooler_output)  # type: ignore[operator]
        return output

    def new_cache(self, batch: int, length: int) -> Cache:
        """Return an empty cache for `batch` rows of up to `length` positions, in the model's number format."""
        assert self.config.decoder is not None, "only a decoder reads a cache"
        widths = []
        for block in self.config.decoder.blocks():
            for residual in block.sublayers:
                if isinstance(residual.inner, c.SelfAttention):
                    _, key, head = residual.inner.projection.widths(self.config.dim)
                    widths.append((key // head, head))
        weight = self.embed.tokens.weight
        return Cache.empty(widths, batch=batch, capacity=length, dtype=weight.dtype, device=weight.device)

    def save(self, folder: str | Path) -> None:
        """Write config.json, model.safetensors and generation_config.json; `saucier.load` reads them back."""
        from saucier.checkpoints.model_folder import save_model

        save_model(self, Path(folder))


@dataclass(slots=True)
class Memory:
    """What the decoder reads of the encoder."""

    hidden: Tensor | None
    """[B, S, D], or [1, T, D] when packed."""
    mask: Tensor | None
    documents: Tensor | None
    layout: Ragged | None = None

    def span(self, target: Side) -> Span:
        """Say which of the encoder's tokens the decoder's queries may see."""
        assert self.hidden is not None, "two_stacks fills it"
        keys = self.hidden.shape[1] if self.layout is None else self.layout.shape[1]
        padding = None if self.layout is not None else self.mask
        return Span(target.ids.shape[1], keys, 0, target.ids.device, padding, target.documents, self.documents)


def boolean(mask: Tensor | None) -> Tensor | None:
    """Return a mask of 0 and 1 as a boolean one, and None for a mask that hides nothing."""
    if mask is None or (not torch.compiler.is_compiling() and bool(mask.all())):
        return None
    return mask.bool()


def build(config: c.Transformer, *, seed: int = 0, dtype: torch.dtype | None = None,
          device: torch.device | str | None = None) -> Transformer:
    """Build a model with starting weights drawn from `seed`. Raises `InputError` for an illegal combination."""
    with torch.device("meta"):
        model = Transformer(config)
    if torch.device(device or "cpu").type == "meta":
        return model
    model = model.to_empty(device=device or "cpu")
    retie(model)
    initialize(model, config, seed)
    return model if dtype is None else model.to(dtype)


def retie(model: Transformer) -> None:
    """Make a tied head share the token table again, after the tensors were replaced."""
    language = model.config.language_head
    if language is not None and language.tied and model.head is not None:
        head = model.head.language if isinstance(model.config.head, c.PretrainingHead) else model.head
        head.weight = (model.decoder_embed or model.embed).tokens.weight  # type: ignore[union-attr]
