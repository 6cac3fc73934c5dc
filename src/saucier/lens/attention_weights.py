"""What the attentions of a trained model attend to in a text: weights of every head, and what entered each softmax.

Weights are those that a pass records; where a kernel records them in another form (chunks, hashes), the values are
replaced by marks, and what a head mixes of them is its weights. Letters: H heads, G key heads, Q queries, K keys,
E head width, L length, M memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.config.questions import global_terms, has_prefix
from saucier.errors import InputError
from saucier.lens.attention_patterns import make_marks, mix_marks
from saucier.model import Transformer
from saucier.parts.attention import CrossAttention, SelfAttention
from saucier.parts.context import Context
from saucier.parts.hashing import HashedAttention
from saucier.plain import format_quantity

Numbers = npt.NDArray[np.float32]
Side = Literal["encoder", "decoder", "cross"]
SIDES: tuple[Side, ...] = ("encoder", "decoder", "cross")
MOST_WEIGHTS = 8_000_000
"""Weights that are kept of one text: a page with them has some 20 MB."""
AGREEMENT = 1e-3
"""How far a softmax of the scores may be from the weights."""
VIRTUAL = "[prompt]"
"""What a trained vector in front of a text is called."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one text, as a person reads them."""

    names: tuple[str, ...]
    ids: tuple[int, ...]
    special: tuple[bool, ...]
    segments: tuple[int, ...]
    """0 or 1: of the first or the second text."""


@dataclass(frozen=True, slots=True)
class AttendedText:
    """What a model is given to read. `target` is what a decoder has read, where there are two sides."""

    source: Tokens
    target: Tokens | None = None
    global_tokens: int = 1
    """First tokens that are global, where the model has such tokens."""
    prefix: int = 0
    """First tokens that all may see, where the model has a prefix."""
    seed: int = 0
    """Of what a kernel draws."""

    def inputs(self, config: c.Transformer, rows: int) -> dict[str, Any]:
        """Return what the model is called with: one text, repeated in `rows` rows."""
        ids = torch.tensor([self.source.ids]).expand(rows, -1)
        found: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if config.embed.segments and any(self.source.segments):
            found["token_type_ids"] = torch.tensor([self.source.segments]).expand(rows, -1)
        if self.target is not None:
            found["decoder_input_ids"] = torch.tensor([self.target.ids]).expand(rows, -1)
        every = [part.visibility for stack in config.stacks for part in stack.attentions()]
        if any(global_terms(one) for one in every):
            found["global_attention_mask"] = (torch.arange(ids.shape[1]) < self.global_tokens).long().expand(rows, -1)
        if any(has_prefix(one) for one in every):
            found["prefix_length"] = torch.full((rows,), self.prefix)
        return found


@dataclass(frozen=True, slots=True)
class SoftmaxInput:
    """What entered the softmax of an attention: `scale · q·k`, and a bias where positions add one."""

    queries: Numbers
    """[H, Q, E], after positions turned them."""
    keys: Numbers
    """[G, K, E]; a key head serves H / G heads."""
    scale: float
    bias: Numbers | None
    """[H, Q, K], what positions add; None: nothing."""
    other_rows: tuple[int, ...] = ()
    """Queries whose weights are made otherwise: by maps of their own (global tokens)."""


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """One attention: which token (row) attends to which (column), and how much."""

    side: Side
    layer: int
    """From 0, among those of its side."""
    kernel: str
    rows: Tokens
    columns: Tokens
    weights: Numbers
    """[H, Q, K]"""
    softmax: SoftmaxInput | None = None
    heads: tuple[int, ...] = ()
    """Their numbers in the model."""

    def one_head(self, head: int) -> AttentionWeights:
        """Return the same with one head alone."""
        entered = self.softmax
        if entered is not None:
            group = head * len(entered.keys) // len(entered.queries)
            entered = replace(entered, queries=entered.queries[head:head + 1], keys=entered.keys[group:group + 1],
                              bias=None if entered.bias is None else entered.bias[head:head + 1])
        return replace(self, weights=self.weights[head:head + 1], softmax=entered, heads=(head,))


@dataclass(frozen=True, slots=True)
class TextAttention:
    """All attentions of one text, and what is left out of them."""

    attentions: tuple[AttentionWeights, ...]
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Recording:
    """One attention of a pass, as hooks see it."""

    part: nn.Module
    side: Side
    layer: int
    turn: int
    """How often the module ran before: blocks may share it."""
    weights: Tensor | None = None
    scored: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)
    places: Any = None
    """What a layout that pools says of the rows."""

    def observe(self, query: Tensor, key: Tensor, scores: Tensor) -> None:
        """Keep what enters a softmax."""
        self.scored.append((query, key, scores))


class Recorder:
    """Hooks into the attentions of a model for one pass. `only`: keep this layer alone."""

    def __init__(self, model: Transformer, only: int | None) -> None:
        self.only, self.found = only, list[Recording]()
        self.stack: Literal["encoder", "decoder"] = "encoder"
        self.counts: dict[str, int] = {}
        self.turns: dict[nn.Module, int] = {}
        self.hooks = [stack.register_forward_pre_hook(self.enter_stack(side))
                      for side in ("encoder", "decoder") if (stack := getattr(model, side)) is not None]
        for part in model.modules():
            if isinstance(part, SelfAttention | CrossAttention | HashedAttention):
                self.hooks += [part.register_forward_pre_hook(self.enter), part.register_forward_hook(self.leave)]

    def enter_stack(self, side: str) -> Callable[..., None]:
        """Return a hook that notes which stack runs."""
        return lambda *_: setattr(self, "stack", side)

    def enter(self, part: nn.Module, given: tuple[Tensor, Context]) -> None:
        """Let an attention show what enters its softmax."""
        side: Side = "cross" if isinstance(part, CrossAttention) else self.stack
        number, turn = self.counts.get(side, 0), self.turns.get(part, 0)
        self.counts[side], self.turns[part] = number + 1, turn + 1
        self.found.append(Recording(part, side, number, turn))
        given[1].observe = self.found[-1].observe

    def leave(self, part: nn.Module, given: tuple[Tensor, Context], _: Tensor) -> None:
        """Take its weights."""
        context, one = given[1], self.found[-1]
        recorded = context.cross_attentions if one.side == "cross" else context.attentions
        one.weights, one.places = recorded[-1] if recorded else None, context.layout_state
        if self.only is not None and one.layer != self.only:
            one.weights = None
            one.scored.clear()

    def remove(self) -> None:
        """Leave the model as it was."""
        for hook in self.hooks:
            hook.remove()


def find_attention(model: Transformer, text: AttendedText, *, layer: int | None = None) -> TextAttention:
    """Return the weights of a model's attentions on one text, layer by layer; of one `layer` alone, if it is named.

    Raises `InputError` for a model without attention to tokens, a layer that it has not, and more weights than are
    kept.
    """
    refuse_too_many(model.config, text, layer)
    recorder = Recorder(model.eval(), layer)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(text.seed)
        try:
            output = model(**text.inputs(model.config, 1), output_attentions=True, compute_logits=False)
        finally:
            recorder.remove()
    found, notes = list[AttentionWeights](), dict[str, None]()
    for one in recorder.found:
        if layer is None or one.layer == layer:
            made = read_recording(model, one, text)
            if isinstance(made, str):
                notes[made] = None
            else:
                found.append(made[0])
                notes.update(dict.fromkeys(made[1]))
    if not any(one.side == "cross" for one in recorder.found) and text.target is not None:
        found += read_alignments(output.cross_attentions or (), text, layer)
    if not found:
        refuse_without_weights(model.config, recorder.counts, layer, [*notes])
    return TextAttention(tuple(sorted(found, key=lambda one: SIDES.index(one.side))), tuple(notes))


def refuse_too_many(config: c.Transformer, text: AttendedText, layer: int | None) -> None:
    """Raise `InputError` where a text has more weights than are kept."""
    longest = max(len(text.source.ids), 0 if text.target is None else len(text.target.ids))
    heads = [part.inner.projection.heads for stack in config.stacks for block in stack.blocks()
             for part in block.sublayers if isinstance(part.inner, c.SelfAttention | c.CrossAttention)]
    count = (sum(heads) if layer is None else max(heads, default=0)) * longest**2
    if count > MOST_WEIGHTS:
        room = int((MOST_WEIGHTS / max(1, count // longest**2)) ** 0.5)
        raise InputError(f"{format_quantity(count)} weights of {longest:,} tokens, and {format_quantity(MOST_WEIGHTS)} "
                         "are kept", where="length", remedy=f"give {room:,} or fewer tokens, or one layer")


def refuse_without_weights(config: c.Transformer, counts: dict[str, int], layer: int | None, notes: list[str]) -> None:
    """Raise `InputError` that says why nothing can be shown."""
    if notes:
        raise InputError(notes[0], where="model", remedy="give a model whose attention weighs tokens")
    if counts and layer is not None:
        raise InputError(f"there is no layer {layer}", where="layer",
                         remedy=f"layers are 0 to {max(counts.values()) - 1}")
    kinds = sorted({part.inner.kind for stack in config.stacks for block in stack.blocks()
                    for part in block.sublayers} - {"feed_forward", "gated_feed_forward"})
    raise InputError(f"the model has no attention: its tokens are mixed by {' and '.join(kinds) or 'nothing'}",
                     where="model", remedy="give a model whose attention weighs tokens")


def read_recording(model: Transformer, one: Recording, text: AttendedText) -> tuple[AttentionWeights, list[str]] | str:
    """Return what was recorded of one attention, with notes; or why its weights are not of tokens."""
    part: Any = one.part
    kernel, name = part.config.kernel, f"{one.side} layer {one.layer}"
    if isinstance(kernel, c.LowRank):
        return f"kernel {kernel.kind} attends to {kernel.rank} mixtures of keys, not to tokens"
    if isinstance(kernel, c.Nystrom) and not kernel.is_exact(len(text.source.ids)):
        return f"kernel {kernel.kind} attends to {kernel.landmarks} landmarks, not to tokens"
    if isinstance(kernel, c.Chunks | c.Hashing):
        weights = find_effective_weights(model, one, text)
    else:
        assert one.weights is not None, "a pass with weights records those of every other kernel"
        weights = one.weights[0].float().cpu().numpy()
    entered = read_softmax(one, weights) if one.scored else None
    read, asking = (text.source if one.side != "decoder" or text.target is None else text.target,
                    text.source if one.side == "encoder" or text.target is None else text.target)
    memory = 0 if one.side == "cross" or one.places is not None else weights.shape[2] - weights.shape[1]
    notes = []
    if memory > 0:
        notes.append(f"{name}: {weights[..., :memory].sum(-1).mean():.1%} of the weight is on an empty memory of "
                     f"{memory} places, which is not drawn")
        weights = weights[..., memory:]
        entered = entered and replace(entered, keys=entered.keys[:, memory:],
                                      bias=None if entered.bias is None else entered.bias[..., memory:])
    rows, columns = (name_rows(tokens, count, places) for tokens, count, places in (
        (asking, weights.shape[1], one.places and one.places.queries),
        (read, weights.shape[2], one.places and one.places.keys)))
    return AttentionWeights(one.side, one.layer, kernel.kind, rows, columns, weights, entered,
                            tuple(range(len(weights)))), notes


def read_softmax(one: Recording, weights: Numbers) -> SoftmaxInput:
    """Return what entered the softmax, and note the rows whose weights are not made of it."""
    part: Any = one.part
    query, key, scores = (x[0].float().cpu() for x in one.scored[0])
    groups = len(query) // len(key)
    products = part.scale * query @ key.repeat_interleave(groups, dim=0).transpose(1, 2)
    bias = scores - products
    seen = torch.from_numpy(weights) > 0
    made = scores.masked_fill(~seen, -torch.inf).softmax(-1).nan_to_num().numpy()
    wrong = np.abs(made - weights).max(axis=(0, 2)) > AGREEMENT
    added = bool((bias.masked_fill(~seen, 0.0).abs() > 1e-4 * products.abs().clamp(min=1)).any())
    return SoftmaxInput(query.numpy(), key.numpy(), float(part.scale), bias.numpy() if added else None,
                        tuple(np.flatnonzero(wrong).tolist()))


def find_effective_weights(model: Transformer, one: Recording, text: AttendedText) -> Numbers:
    """Return what the heads of an attention mix of each value: its weights, whatever its kernel.

    Shapes: -> [H, Q, K]. The rest of the pass is as it is, since only the values of this attention are replaced.
    """
    part: Any = one.part
    length = len((text.target if one.side == "decoder" and text.target else text.source).ids)
    mixed = mix_marks(model, part, text, make_marks(length, part.head_dim, part.head_dim), flat=1.0)[one.turn]
    heads = mixed.unflatten(-1, (-1, part.head_dim))
    marked = (heads[:-1] - heads[-1:]).permute(2, 1, 0, 3).flatten(2)[:, :, :length]
    found: Numbers = marked.float().clamp(min=0).numpy()
    return found


def name_rows(tokens: Tokens, count: int, places: Any) -> Tokens:
    """Name the rows or columns of an attention: tokens, tokens after trained vectors, or neighbours that are pooled."""
    if places is not None and places.step > 1:
        return pool_names(tokens, count, places)
    front = count - len(tokens.ids)
    if front <= 0:
        return tokens
    return Tokens((VIRTUAL,) * front + tokens.names, (-1,) * front + tokens.ids, (True,) * front + tokens.special,
                  (0,) * front + tokens.segments)


def pool_names(tokens: Tokens, count: int, places: Any) -> Tokens:
    """Name rows that hold several neighbouring tokens each."""
    groups = [range(max(0, first), max(0, min(first + places.step, len(tokens.ids))))
              for first in range(places.first, places.first + count * places.step, places.step)]
    first = [min((group or [len(tokens.ids) - 1])[0], len(tokens.ids) - 1) for group in groups]
    return Tokens(tuple(" ".join(tokens.names[place] for place in group) for group in groups), (-1,) * count,
                  tuple(tokens.special[place] for place in first), tuple(tokens.segments[place] for place in first))


def read_alignments(recorded: tuple[Tensor, ...], text: AttendedText, layer: int | None) -> Iterator[AttentionWeights]:
    """Yield the attention of recurrent decoders to the source."""
    assert text.target is not None, "asked for where there are two sides"
    for number, weights in enumerate(recorded):
        if layer is None or number == layer:
            made = weights[0].float().cpu().numpy()
            yield AttentionWeights("cross", number, "alignment", text.target, text.source, made, None,
                                   tuple(range(len(made))))
