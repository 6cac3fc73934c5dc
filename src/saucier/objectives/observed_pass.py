"""One forward pass as a distillation sees it: what the model read and gave, the scores of its attentions, and what
these are made of. A pass that nobody observes is not changed.

Letters: B batch, L length, H heads, E head width, D dim.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from saucier.errors import InputError
from saucier.parts.attention import SelfAttention
from saucier.parts.context import Context
from saucier.parts.output import Output

SIDES = ("encoder", "decoder")
"""The stacks of a model, in the order in which they run."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is recorded of a pass."""

    hidden: bool = False
    """The vectors that every layer gives."""
    attentions: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """The self-attentions of each stack, by the numbers of their layers, from 1."""

    @property
    def switches(self) -> dict[str, bool]:
        """The arguments of the model by which it gives them."""
        more = {"output_hidden_states": self.hidden, "output_attentions": any(self.attentions.values())}
        return {name: True for name, wanted in more.items() if wanted}


@dataclass(slots=True)
class ObservedAttention:
    """One self-attention of a pass."""

    vectors: dict[str, Tensor]
    """`queries`, `keys`, `values` as the maps give them. Shapes: [B, L, H·E] each."""
    visible: Tensor
    """Which real key a real query may see. Shapes: [B or 1, H or 1, L, L], boolean."""
    scores: Tensor | None = None
    """[B, H, L, L] before the softmax, with what positions add."""


@dataclass(slots=True)
class ObservedPass:
    """What a model read, and what it gave."""

    inputs: dict[str, Any]
    output: Output
    attentions: dict[tuple[str, int], ObservedAttention]
    """By stack and layer, from 1."""
    largest: dict[str, Tensor] = field(default_factory=dict)
    """The most likely tokens of each place, as losses of answers keep them in a store."""

    def states(self, stack: str) -> tuple[Tensor, ...]:
        """Return what each layer of a stack gave, what the first one reads being number 0. Shapes: [B, L, D] each."""
        states = self.output.hidden_states or getattr(self.output, f"{stack}_hidden_states")
        assert states is not None, "they are wanted"
        return tuple(states)


@dataclass(slots=True)
class Recorder:
    """Hooks into the self-attentions of a model, for one pass."""

    wanted: Mapping[str, frozenset[int]]
    found: dict[tuple[str, int], ObservedAttention] = field(default_factory=dict)
    stack: str = SIDES[0]
    counts: dict[str, int] = field(default_factory=dict)
    now: tuple[str, int] | None = None
    """The attention that runs, if it is wanted."""
    context: Context | None = None

    def enter_stack(self, name: str) -> Any:
        """Return a hook that notes which stack runs."""
        def note(*_: object) -> None:
            self.stack = name

        return note

    def enter(self, _: nn.Module, given: tuple[Tensor, Context]) -> None:
        """Let an attention show its scores, if it is wanted."""
        self.counts[self.stack] = layer = self.counts.get(self.stack, 0) + 1
        self.context = given[1]
        self.now = (self.stack, layer) if layer in self.wanted.get(self.stack, ()) else None
        self.context.observe = None if self.now is None else self.observe

    def leave(self, _: nn.Module, given: tuple[Tensor, Context], __: Tensor) -> None:
        """Look away: what follows in the pass, such as a cross-attention, is not asked for."""
        given[1].observe = self.now = None

    def take_rows(self, part: SelfAttention, rows: Tensor) -> None:
        """Take what the maps of an attention give. Shapes: rows [B, L, all queries, keys and values]."""
        if self.now is not None and self.context is not None:
            query, key, _ = part.widths
            vectors = dict(zip(("queries", "keys", "values"), rows.split([query, key, key], dim=-1), strict=True))
            self.found[self.now] = ObservedAttention(vectors, find_visible_pairs(part, self.context))

    def observe(self, _: Tensor, __: Tensor, scores: Tensor) -> None:
        """Take what enters a softmax."""
        assert self.now is not None, "enter() asks for it only then"
        self.found[self.now].scores = scores


def find_visible_pairs(part: SelfAttention, context: Context) -> Tensor:
    """Return which real keys the real queries of an attention may see. Shapes: -> [B or 1, H or 1, L, L]."""
    span = context.span
    mask = context.mask(part.config.visibility, heads=part.mask_heads)
    seen = mask.allowed
    if seen is None:
        seen = torch.ones(1, 1, span.queries, span.keys, dtype=torch.bool, device=span.device)
        seen = seen.tril() if mask.causal else seen
    real = context.real_keys()
    return seen if real is None else seen & real[:, None, None, :].bool() & real[:, None, :, None].bool()


@contextmanager
def recording(model: nn.Module, wanted: Wanted) -> Iterator[Recorder]:
    """Record the wanted attentions of the passes inside; without any there are no hooks."""
    recorder, hooks = Recorder(wanted.attentions), []
    if any(wanted.attentions.values()):
        hooks += [stack.register_forward_pre_hook(recorder.enter_stack(name))
                  for name in SIDES if (stack := getattr(model, name, None)) is not None]
        for part in (one for one in model.modules() if isinstance(one, SelfAttention)):
            hooks += [part.register_forward_pre_hook(recorder.enter), part.register_forward_hook(recorder.leave),
                      part.qkv.register_forward_hook(lambda _, __, rows, part=part: recorder.take_rows(part, rows))]
    try:
        yield recorder
    finally:
        for hook in hooks:
            hook.remove()


def read_pass(passed: ObservedPass, name: str) -> Tensor:
    """Return a value of a pass: `STACK.states.LAYER`, `STACK.scores.LAYER`, `STACK.queries.LAYER` (keys, values), a
    name of its most likely tokens, or of a field of the output.
    """
    stack, _, rest = name.partition(".")
    if stack not in SIDES:
        found = passed.largest[name] if name in passed.largest else getattr(passed.output, name)
    else:
        kind, _, layer = rest.partition(".")
        if kind == "states":
            return passed.states(stack)[int(layer)]
        attention = passed.attentions[stack, int(layer)]
        found = attention.scores if kind == "scores" else attention.vectors[kind]
    assert isinstance(found, Tensor), "a loss reads what it was checked for"
    return found


def restore_pass(inputs: dict[str, Any], values: Mapping[str, Tensor]) -> ObservedPass:
    """Return a pass that has these values, by the names of `read_pass`, and nothing else."""
    found = ObservedPass(inputs, Output(), {})
    states: dict[str, dict[int, Tensor]] = {}
    for name, value in values.items():
        stack, _, rest = name.partition(".")
        kind, _, layer = rest.partition(".")
        if stack not in SIDES:
            if rest:
                found.largest[name] = value
            else:
                setattr(found.output, name, value)
        elif kind == "states":
            states.setdefault(stack, {})[int(layer)] = value
        else:
            # what is visible is asked of the student alone: both see the same
            attention = found.attentions.setdefault((stack, int(layer)), ObservedAttention({}, value.new_empty(0)))
            if kind == "scores":
                attention.scores = value
            else:
                attention.vectors[kind] = value
    for stack, layers in states.items():
        whole = tuple(layers.get(layer, inputs["input_ids"].new_empty(0)) for layer in range(max(layers) + 1))
        setattr(found.output, f"{stack}_hidden_states", whole)
    return found


class ObservedModel:
    """A model that is called as ever, and whose passes are kept; everything else is the model's own."""

    def __init__(self, model: nn.Module, wanted: Wanted) -> None:
        """Observe a model."""
        self.model, self.wanted = model, wanted
        self.passes: list[ObservedPass] = []

    def __getattr__(self, name: str) -> Any:
        """Return what the model has under this name."""
        return getattr(self.model, name)

    def __call__(self, *given: Tensor, **inputs: Any) -> Output:
        """Run the model, and keep what it read and gave."""
        named = name_inputs(given, inputs)
        with recording(self.model, self.wanted) as recorder:
            output: Output = self.model(**named | self.wanted.switches)
        self.passes.append(ObservedPass(named, output, recorder.found))
        return output


def name_inputs(given: Sequence[Tensor], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a model by name."""
    return {**dict(zip(("input_ids", "attention_mask"), given, strict=False)), **inputs}


class InputsKnown(Exception):  # noqa: N818 - no error: it ends a pass before it begins
    """Raised by an `InputReader` where a model would be run."""

    def __init__(self, inputs: dict[str, Any]) -> None:
        """Keep what the model would read."""
        super().__init__("what a model would read is known")
        self.inputs = inputs


class InputReader:
    """A model that is not run: it says what it would read."""

    def __init__(self, model: nn.Module) -> None:
        """Stand for a model."""
        self.model = model

    def __getattr__(self, name: str) -> Any:
        """Return what the model has under this name."""
        return getattr(self.model, name)

    def __call__(self, *given: Tensor, **inputs: Any) -> Output:
        """Raise `InputsKnown`."""
        raise InputsKnown(name_inputs(given, inputs))


def find_only_pass(passes: Sequence[ObservedPass], objective: str) -> ObservedPass:
    """Return the pass of an objective. Raises `InputError` for one that runs the model several times."""
    if len(passes) != 1:
        raise InputError(f"{objective} runs the model {len(passes)} times in one update, and a teacher reads one pass",
                         where="distillation", remedy="leave distillation out, or use another objective")
    return passes[0]
