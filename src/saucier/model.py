"""`Transformer`, the only model class, its `Output`, and `build`.

The model turns ids into hidden vectors and logits. It knows no labels, no loss and no optimizer.
Letters: B batch, L length, S source length, D dim, V vocab, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Unpack, cast

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.config.questions import list_key_widths, reads_padding
from saucier.errors import InputError, suggest_name
from saucier.parts.adaptive import AdaptiveHead
from saucier.parts.context import Context
from saucier.parts.embedding import Embedding
from saucier.parts.global_attention import prepend_global_input
from saucier.parts.heads import build_head
from saucier.parts.initialization import allocate_weights, initialize_weights
from saucier.parts.input_checks import check_build, check_inputs, list_tables, refuse_unread_inputs
from saucier.parts.inputs import (
    EncoderMemory,
    Inputs,
    Side,
    as_boolean_mask,
    build_first_side,
    build_second_side,
    derive_target,
    flatten_choices,
    known_ids,
    resolve_mask,
)
from saucier.parts.linear import Linear
from saucier.parts.masks import Ragged, find_ragged, is_worth_packing
from saucier.parts.output import Cache, Output
from saucier.parts.pooling import LayerMix, Pooler, Reading
from saucier.parts.prefix import VirtualTokens, drop_prompt, fill_cache_with_prefix, prepend_to_side, prepend_to_sides
from saucier.parts.provenance import Provenance, Saved
from saucier.parts.segment_memory import begin_segment
from saucier.parts.stack import SourceEncoder, Stack, tie_blocks
from saucier.plain import HANDED_IN

__all__ = ["Output", "Transformer", "allocate_model", "build", "build_on_meta", "retie_head"]


@dataclass(slots=True)
class PassOptions:
    """What to record on the way."""

    hidden: bool = False
    weights: bool = False
    logits: bool = True
    """Apply the head."""
    last_only: bool = False
    """Apply it to the last position alone."""


@dataclass(slots=True)
class StackResult:
    """One stack's result: hidden vectors still packed, if they were, and the records unpacked."""

    hidden: Tensor
    layout: Ragged | None
    states: tuple[Tensor, ...] | None
    attentions: tuple[Any, ...] | None
    cross: tuple[Tensor, ...] | None
    globals: tuple[Tensor, ...] | None = None
    routers: tuple[Tensor, ...] | None = None
    mems: list[Tensor] | None = None
    finals: tuple[tuple[Tensor, ...], ...] = ()
    """In which the recurrent layers ended."""

    def unpacked(self) -> Tensor:
        """The hidden vectors as [B, L, D]."""
        return self.hidden if self.layout is None else self.layout.unpack_alone(self.hidden)


class Transformer(nn.Module):
    """Any model of the family, built from a config."""

    def __init__(self, config: c.Transformer) -> None:
        """Build with empty weights; `build` fills them. Raises `InputError` for an illegal combination."""
        super().__init__()
        c.check(config)
        self.config = config
        self.packs = not reads_padding(config)
        """Whether padding may be left out of the work: the head must not read it."""
        self.paired = config.encoder is not None and config.decoder is not None
        self.tables = list_tables(config)
        self.provenance = Provenance()
        self.front: VirtualTokens | None = None
        self.format: str | None = None  # in which inference reads the matrices: `load(format=)`
        self.embed = Embedding(config.embed, config.reader_dim)
        self.source = SourceEncoder(config.source, config.reader_dim) if config.source else None
        self.encoder = Stack(config.encoder, config.reader_dim) if config.encoder else None
        self.bridge = Linear(config.encoder_dim, config.dim) if config.encoder_dim else None
        self.decoder_embed = Embedding(config.decoder_embed, config.dim) if config.decoder_embed else None
        if self.decoder_embed is not None and config.decoder_embed is not None and config.decoder_embed.tied:
            self.decoder_embed.tokens = self.embed.tokens
        self.decoder = Stack(config.decoder, config.dim) if config.decoder else None
        if self.encoder is not None and self.decoder is not None and self.decoder.config.tied:
            tie_blocks(self.encoder, self.decoder)
        self.mix = LayerMix(config.mix, config.reader_width, 1 + len(config.stacks[0].blocks())) if config.mix else None
        self.pooler = Pooler(config.pooler, config.encoder_dim or config.width) if config.pooler else None
        output_embed = self.decoder_embed or self.embed
        self.head = build_head(config.head, config.width, output_embed.tokens) if config.head else None
        if isinstance(self.head, AdaptiveHead):
            self.head.tie(output_embed)

    def __repr__(self) -> str:
        """Show what the model is, and the tree of its parts, with their sizes."""
        return str(HANDED_IN["draw model"](self))

    def _repr_html_(self) -> str:
        """Return the tree for a notebook."""
        return str(HANDED_IN["draw model"](self, html=True))

    @property
    def generation(self) -> Mapping[str, Any]:
        """Defaults of `saucier.generate` for this model; set as a whole, for it cannot be changed in place."""
        return MappingProxyType(dict(self.provenance.generation))

    @generation.setter
    def generation(self, defaults: Mapping[str, Any]) -> None:
        """Set all of them."""
        self.provenance = replace(self.provenance, generation=dict(defaults))

    def forward(self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, *,
                cache: Cache | None = None, last_only: bool = False, output_hidden_states: bool = False,
                output_attentions: bool = False, compute_logits: bool = True, **inputs: Unpack[Inputs]) -> Output:
        """Run the model.

        Shapes: input_ids [B, L] go to the encoder, or to the decoder of a decoder-only model; a head that compares
        choices takes [B, N, L]. attention_mask: the same, 1 = real token (with a cache it covers the past too:
        [B, past + L]). The other inputs are described in `Inputs`.

        `last_only` applies the head to the last position alone; `compute_logits=False` leaves the head to the caller,
        who applies `model.head` where it is needed. Raises `InputError` for inputs that do not fit the model.
        """
        if unknown := inputs.keys() - Inputs.__annotations__.keys():
            raise InputError(f"unknown input {', '.join(sorted(unknown))}", where="model(...)",
                             remedy=suggest_name(min(unknown), sorted(Inputs.__annotations__)))
        inputs = cast(Inputs, {name: value for name, value in inputs.items() if value is not None})
        options = PassOptions(output_hidden_states, output_attentions, compute_logits, last_only)
        check_inputs(self.tables, input_ids, attention_mask, inputs, cache=cache, front=self.front,
                     switches={"output_hidden_states": output_hidden_states, "output_attentions": output_attentions,
                               "compute_logits": compute_logits, "last_only": last_only})
        choices = input_ids.shape[1] if input_ids is not None and input_ids.dim() == 3 else None
        if input_ids is not None and choices is not None:
            input_ids, attention_mask, inputs = flatten_choices(input_ids, attention_mask, inputs)
        if inputs:
            refuse_unread_inputs(self.config, inputs)
            attention_mask = resolve_mask(attention_mask, input_ids, inputs)
        if attention_mask is None and input_ids is not None and self.tables.read.padding is not None:
            attention_mask = input_ids != self.tables.read.padding
        first = build_first_side(input_ids, attention_mask, inputs, self.embed.first_position)
        if not self.paired:
            output = self.one_stack(first, cache, options, choices)
            return self.compared(output, inputs) if "candidate_input_ids" in inputs else output
        second = build_second_side(self.with_target(inputs, first), cache,
                                   (self.decoder_embed or self.embed).first_position)
        return self.two_stacks(first, second, EncoderMemory(inputs.get("encoder_output"),
                                                            as_boolean_mask(attention_mask), inputs.get("documents"),
                                                            states=tuple(inputs.get("encoder_states") or ())), options)

    def with_target(self, inputs: Inputs, source: Side | None) -> Inputs:
        """Give the decoder the source to read, moved by one place, where the batch gives it nothing."""
        target = self.config.default_target
        if inputs.get("decoder_input_ids") is not None or target is None or source is None or known_ids(source) is None:
            return inputs
        return {**inputs, "decoder_input_ids": derive_target(target, source.ids)}

    def one_stack(self, side: Side | None, cache: Cache | None, options: PassOptions, choices: int | None) -> Output:
        """Run a model that is an encoder or a decoder alone."""
        if side is None:
            raise InputError("the model was called without tokens", where="input_ids", remedy="give input_ids")
        stack = self.encoder or self.decoder
        assert stack is not None, "check() refuses a model without stacks"
        side.cache = cache
        if stack.segmented:
            like = torch.empty(side.ids.shape[0], self.config.dim, dtype=self.dtype, device=self.device)
            side.segment = begin_segment(stack.config, side.inputs, like, cached=cache is not None,
                                         training=self.training, wide=options.weights)
        if self.front is not None:
            prepend_to_side(self.front, side, self.embed)
        if "global_input_ids" in side.inputs:
            prepend_global_input(stack.config, side)
        memory = None
        if self.encoder is None and "encoder_hidden_states" in side.inputs:
            memory = EncoderMemory(side.inputs["encoder_hidden_states"],
                                   as_boolean_mask(side.inputs.get("encoder_attention_mask")), None)
        simple = self.packs and side.cache is None and not options.weights and side.documents is None and stack.packs
        simple &= choices is None or isinstance(self.config.head, c.ChoiceHead)  # words of choices: losses with padding
        if simple and memory is None and side.mask is not None and is_worth_packing(side.mask):
            side.layout = find_ragged(side.mask)
        done = self.run(stack, self.embed, side, options, memory)
        whole = done.unpacked()
        hidden = whole[:, side.prompt:]
        output = Output(last_hidden_state=hidden, hidden_states=drop_prompt(done.states, side.prompt), cache=cache,
                        pooler_output=self.pooled(whole), attentions=done.attentions, mems=done.mems,
                        cross_attentions=done.cross or None, global_attentions=done.globals, router_logits=done.routers)
        head = self.config.head
        read = whole if isinstance(head, c.ClassificationHead) and head.pick.kind == "first" else hidden
        return self.finish(output, Reading(read, None, known_ids(side), None, side.text_mask, side.inputs, choices),
                           options)

    def compared(self, output: Output, inputs: Inputs) -> Output:
        """Give the candidates of each row their vectors, and scores by inner product with the row's own."""
        ids = inputs["candidate_input_ids"]
        if output.embeddings is None or ids is None:
            raise InputError("only a head of kind embedding compares texts", where="candidate_input_ids",
                             remedy="leave them out, or use such a head")
        found = self(ids, inputs.get("candidate_attention_mask"),
                     token_type_ids=inputs.get("candidate_token_type_ids")).embeddings
        output.candidate_embeddings = found.unflatten(0, ids.shape[:2])
        output.relevance_score = torch.einsum("be,bne->bn", output.embeddings, output.candidate_embeddings)
        return output

    def two_stacks(self, source: Side | None, target: Side | None, memory: EncoderMemory,
                   options: PassOptions) -> Output:
        """Run an encoder-decoder; the encoder is skipped where its output is given."""
        assert self.encoder is not None and self.decoder is not None, "forward() sends other models to one_stack"
        if target is None or (source is None and memory.hidden is None):
            raise InputError("an encoder-decoder needs both sides", where="decoder_input_ids",
                             remedy="give input_ids (or encoder_output) and decoder_input_ids")
        if (memory.documents is None) != (target.documents is None):
            raise InputError("packed on one side only, so targets would read every source", where="documents",
                             remedy="give both documents and decoder_documents, or neither")
        output = Output(cache=target.cache)
        if self.front is not None:
            prepend_to_sides(self.front, source, target, memory, embeds=(self.embed, self.decoder_embed or self.embed))
        if memory.hidden is None and source is not None:
            source = self.fed(source)
            self.pack_sides(source, target, options)
            done = self.run(self.encoder, self.embed, source, options)
            memory.hidden, memory.layout, memory.states = done.hidden, done.layout, done.finals
            output.encoder_hidden_states, output.encoder_attentions = done.states, done.attentions
            output.encoder_last_hidden_state, output.encoder_global_attentions = done.unpacked(), done.globals
            output.encoder_router_logits, output.pooler_output = done.routers, self.pooled(done.unpacked())
        else:
            output.encoder_last_hidden_state = memory.hidden
        memory.hidden = memory.hidden if self.bridge is None else self.bridge(memory.hidden)
        output.encoder_states = memory.states or None
        done = self.run(self.decoder, self.decoder_embed or self.embed, target, options, memory)
        output.last_hidden_state = hidden = done.unpacked()[:, target.prompt:]
        output.decoder_hidden_states, output.cross_attentions = (drop_prompt(one, target.prompt)
                                                                 for one in (done.states, done.cross))
        output.decoder_attentions, output.decoder_router_logits = done.attentions, done.routers
        read = None if source is None else known_ids(source)
        return self.finish(output, Reading(hidden, None, known_ids(target), read, target.text_mask, target.inputs),
                           options)

    def fed(self, side: Side) -> Side:
        """Return the encoder's side with the vectors of what feeds it, if anything does. Vectors in a batch go first.
        """
        if self.source is None or side.vectors is not None:
            return side
        given = Side(side.ids, side.mask, side.positions, side.documents)
        read = self.run(self.source.stack, self.source.embed, given, PassOptions()).unpacked()
        return replace(side, vectors=read)

    def pack_sides(self, source: Side, target: Side, options: PassOptions) -> None:
        """Pack both sides of an encoder-decoder, or neither, so that their rows stay matched."""
        simple = target.cache is None and not options.weights and source.documents is None and target.documents is None
        masks = [one.mask for one in (source, target) if one.mask is not None]
        if not simple or not is_worth_packing(*masks):
            return
        layouts = [find_ragged(torch.ones_like(side.ids, dtype=torch.bool) if side.mask is None else side.mask)
                   for side in (source, target)]
        if all(layout is not None for layout in layouts):
            source.layout, target.layout = layouts

    def run(self, stack: Stack, embed: Embedding, side: Side, options: PassOptions,
            memory: EncoderMemory | None = None) -> StackResult:
        """Embed one side and send it through its stack."""
        context = Context(side.span(), side.packed(side.placed()), side.layout, side.cache, memory,
                          want_weights=options.weights, inputs=side.inputs, rows=side.ids.shape[0],
                          segment=side.segment)
        mix = self.mix if stack is (self.encoder or self.decoder) else None
        record: list[Tensor] = []
        hidden = stack(embed(side), context, record if options.hidden or mix is not None else None)
        hidden = hidden if mix is None else mix(record)
        if side.cache is not None:
            side.cache.advance(side.ids.shape[1])
        states = tuple(map(side.unpacked, record)) if options.hidden else None
        segment = side.segment
        done = StackResult(hidden, side.layout, states, None, None, routers=tuple(context.router_logits) or None,
                           mems=None if segment is None else segment.remembered, finals=tuple(context.final_states))
        if options.weights:
            done.attentions = tuple(context.attentions) if segment is None or not segment.query_count else tuple(
                weights.chunk(2, dim=2) for weights in context.attentions)
            done.cross = tuple(context.cross_attentions)
            done.globals = tuple(context.global_attentions) or None
        return done

    def finish(self, output: Output, reading: Reading, options: PassOptions) -> Output:
        """Apply pooler and head; the pooler of an encoder-decoder reads the encoder."""
        if self.paired and output.pooler_output is None and c.reads_pooled(self.config):
            output.pooler_output = self.pooled(output.encoder_last_hidden_state)
        reading.pooled = output.pooler_output
        if self.head is not None and options.logits:
            if options.last_only:
                reading.hidden = reading.hidden[:, -1:]
            for name, value in self.head.answer(reading).items():  # type: ignore[operator]  # every head has it
                if name in Output.__dataclass_fields__:
                    setattr(output, name, value)
                else:
                    output.more[name] = value
        return output

    def pooled(self, hidden: Tensor | None) -> Tensor | None:
        """One vector a text by the pooler, if there is one. Shapes: [B, L, D] -> [B, D]."""
        return None if self.pooler is None else self.pooler(hidden)

    def new_cache(self, batch: int, length: int) -> Cache:
        """Return an empty cache for `batch` rows of up to `length` positions, in the model's number format."""
        assert self.config.decoder is not None, "only a decoder reads a cache"
        widths = list_key_widths(self.config.decoder, self.config.dim)
        ahead = 0 if self.front is None else self.front.length
        cache = Cache.empty(widths, batch=batch, capacity=length + ahead, dtype=self.dtype, device=self.device)
        if self.front is not None:
            fill_cache_with_prefix(cache, self.front, batch)
        return cache

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.embed.like.device

    @property
    def dtype(self) -> torch.dtype:
        """The number format that it computes in: that of its token table."""
        return self.embed.like.dtype

    def restore_stored(self) -> None:
        """Take the numbers back, in place, that loading rounded; what changed since stays as it is.

        All that goes on from a loaded model calls this first: training, surgery, merging, adapters. The model then has
        the format of its folder, float32 at most. Raises `InputError` where the folder was changed or removed.
        """
        HANDED_IN["restore_stored"](self)

    def save(self, folder: str | Path, *, layout: str = "auto", dtype: str | torch.dtype = "stored",
             replace: bool = False) -> Saved:
        """Write a model folder that `saucier.load` reads back: weights, config, tokenizer, settings, a model card.

        Numbers that did not change since loading are written as they were stored, in their format; `dtype` writes all
        in another one. `layout` "auto" is a published one where one can express the model, and our own otherwise; the
        `model_type` of the layout is returned, with what was stored. `replace` lets it take the place of an earlier
        save. A quantized model is written in our own layout, or, where a published one is asked for, as a folder of
        compressed-tensors. Raises `InputError` for a folder that holds something else.
        """
        saved: Saved = HANDED_IN["save"](self, folder, layout=layout, dtype=dtype, replace=replace)
        return saved


def build(config: c.Transformer, *, seed: int = 0, dtype: torch.dtype | None = None,
          device: torch.device | str | None = None) -> Transformer:
    """Build a model with starting weights drawn from `seed`. Raises `InputError` for an illegal combination."""
    if (place := check_build(config, seed, dtype, device)).type == "meta":
        return build_on_meta(config)
    model = allocate_model(config, dtype=torch.float32, device=place)
    initialize_weights(model, config, int(seed))
    return model if dtype is None else model.to(dtype)


def build_on_meta(config: c.Transformer) -> Transformer:
    """Return the model with shapes alone. Raises `InputError` for an illegal combination."""
    with torch.device("meta"):
        return Transformer(config)


def allocate_model(config: c.Transformer, *, dtype: torch.dtype, device: torch.device | str) -> Transformer:
    """Return the model with weights that are allocated and hold nothing yet.

    `Module.to_empty` would do the same, and load half of torch's compiler for it.
    """
    model = build_on_meta(config)
    if buffers := [name for name, _ in model.named_buffers()]:
        raise InputError(f"the part {buffers[0].rpartition('.')[0]} has a buffer, which no checkpoint holds",
                         where="model", remedy="make it when the part is called, on the device of what it reads")
    allocate_weights(model, dtype=dtype, device=device)
    retie_head(model)
    return model


def retie_head(model: Transformer) -> None:
    """Make a tied head share the token table again, after the tensors were replaced."""
    language = model.config.output_layer
    if language is not None and language.tied and model.head is not None:
        head: Any = getattr(model.head, "language", model.head)
        if "weight" in head._parameters:  # that of a table in few bits is shared as a module
            head.weight = (model.decoder_embed or model.embed).tokens.weight
