"""AWQ: inputs of a map that matter are scaled up before rounding, and what gives them is scaled down.

Scales go into what gives a map its input, so that the float model stays the same function. That is possible where
nothing else reads the input: from a norm in front of a sublayer to its first map, from values to the map after
attention, and from a feed-forward's first map (its values, where it is gated) to its second. Behind a norm after the
sum of a residual nothing is scaled, since the stream reads that norm too.

Letters: O outputs, I inputs, T tokens, G groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.adaptation.quantization.calibration import Batch, find_order, run_batch, watch_inputs
from saucier.adaptation.quantization.formats import Parts, find_grid, split_groups, store_codes
from saucier.adaptation.quantization.schemes import Awq, Integers
from saucier.model import Transformer
from saucier.parts.attention import CrossAttention, SelfAttention
from saucier.parts.block import Parallel, PreNorm, SandwichNorm
from saucier.parts.feed_forward import FeedForward, GatedFeedForward
from saucier.parts.linear import Linear
from saucier.parts.norms import NoNorm

LEAST_SCALE = 1e-4
"""No input is scaled by less before scales are put around 1. Source: code release."""
STEP = 0.05
"""Of the search for the range of a group. Source: code release."""
HOMOGENEOUS: Mapping[str, float] = {"relu": 1.0, "leaky_relu": 1.0, "identity": 1.0, "squared_relu": 2.0}
"""Activations f with f(a·x) = a^n·f(x) for positive a -> n."""


@dataclass(frozen=True, slots=True)
class Feed:
    """What gives a map its inputs."""

    source: str
    """Name of a norm or a map; input i comes from row `start` + i."""
    start: int = 0
    degree: float = 1.0
    """The input changes by this power of what the row is multiplied by."""


@dataclass(slots=True)
class Read:
    """What a map reads on the calibration text."""

    size: Tensor
    """[I], sums of absolute values."""
    count: int = 0
    rows: list[Tensor] = field(default_factory=list)
    """[T, I] of some tokens of each batch."""

    @property
    def sample(self) -> Tensor:
        """Some tokens. Shapes: -> [T, I]."""
        return torch.cat(self.rows)


def round_scaled(model: Transformer, by: Awq, formats: Mapping[str, Integers], batches: Sequence[Batch],
                 put: Callable[[str, Parts], None]) -> Iterator[str]:
    """Scale what can be, narrow ranges, and round; `put` takes the tensors of a map. Says what was left unscaled."""
    find_order(model, formats, batches)
    reads = watch_reads(model, formats, batches, by.tokens)
    feeds = {name: feed for name, feed in find_feeds(model).items() if name in formats}
    for name, feed in feeds.items():
        read = reads[name]
        scales = find_scales(torch.as_tensor(model.get_submodule(name).weight).float(), read, by, formats[name])
        fold_scales(model, name, feed, scales)
        read.rows = [one / scales for one in read.rows]
    for name, form in formats.items():
        weight = torch.as_tensor(model.get_submodule(name).weight).float()
        put(name, round_narrowed(weight, reads[name].sample, by, form))
    left = [name for name in formats if name not in feeds]
    yield f"awq: {len(feeds)} maps scaled" + (
        f"; {len(left)} left as they are, for what gives their input is read by others or is no multiple of it "
        f"({left[0]}{', ...' if len(left) > 1 else ''})" if left else "")


def watch_reads(model: Transformer, names: Mapping[str, object], batches: Sequence[Batch], tokens: int
                ) -> dict[str, Read]:
    """Run the model on all batches and return what each map reads."""
    maps = {name: model.get_submodule(name) for name in names}
    share = max(1, tokens // len(batches))
    reads = {name: Read(torch.zeros(one.in_features, dtype=torch.float64))  # type: ignore[call-overload]
             for name, one in maps.items()}

    def see(name: str, rows: Tensor) -> None:
        one = reads[name]
        one.size += rows.abs().sum(0, dtype=torch.float64).cpu()
        one.count += len(rows)
        places = torch.linspace(0, len(rows) - 1, min(share, len(rows)), device=rows.device).long()
        one.rows.append(rows[places].float())

    with watch_inputs(maps, see):
        for batch in batches:
            run_batch(model, batch)
    return reads


def round_trip(weight: Tensor, form: Integers, shrink: Tensor | float = 1.0) -> Tensor:
    """Return what a matrix becomes by rounding; `shrink` [O, G] narrows the ranges. Shapes: [O, I] -> [O, G, group]."""
    groups = split_groups(weight, form)
    grid = find_grid(groups, form, shrink)
    return grid.values(grid.round(groups))


def find_scales(weight: Tensor, read: Read, by: Awq, form: Integers) -> Tensor:
    """Return the scale of each input with which a map's output changes least. Shapes: weight [O, I] -> [I], float32.

    Source: Lin et al. 2023, §3.2, eq 4–5.
    """
    size, rows = (read.size / max(read.count, 1)).float().to(weight.device), read.sample
    best, least = torch.ones_like(size), float("inf")
    for step in range(by.grid):
        raw = size.pow(step / by.grid).clamp(min=LEAST_SCALE)
        scales = raw / (raw.max() * raw.min()).sqrt()
        changed = round_trip(weight * scales, form).flatten(1)[:, :weight.shape[1]] / scales
        error = float((rows @ (changed - weight).T).square().sum())
        if error < least:
            best, least = scales, error
    return best


def fold_scales(model: nn.Module, name: str, feed: Feed, scales: Tensor) -> None:
    """Multiply the inputs of a map, and divide what gives them: the same function, in float. Shapes: scales [I]."""
    weight, source = torch.as_tensor(model.get_submodule(name).weight), model.get_submodule(feed.source)
    weight.mul_(scales.to(weight.dtype))
    for parameter in source.parameters(recurse=False):  # weight and bias
        rows = parameter[feed.start:feed.start + len(scales)]
        powers = scales.pow(1 / feed.degree).to(parameter.dtype)
        rows.div_(powers[:, None] if rows.dim() > 1 else powers)


def round_narrowed(weight: Tensor, rows: Tensor, by: Awq, form: Integers) -> Parts:
    """Round a matrix, the range of each group as narrow as makes the error of its share of the output least.

    Shapes: weight [O, I], rows [T, I]. Source: Lin et al. 2023, code release (`auto_clip`), which leaves queries and
    keys out.
    """
    groups, inputs = split_groups(weight, form), split_groups(rows, form).transpose(0, 1)  # [G, T, group]
    gram = inputs.mT @ inputs
    shrink = best = torch.ones(groups.shape[:2], device=weight.device)
    least = torch.full_like(best, float("inf"))
    while float(shrink.min()) >= 1 - by.clip - 1e-6:
        gap = (round_trip(weight, form, shrink) - groups).transpose(0, 1)
        error = ((gap @ gram) * gap).sum(-1).T
        best, least = torch.where(error < least, shrink, best), torch.minimum(error, least)
        shrink = shrink - STEP
    grid = find_grid(groups, form, best)
    return store_codes(grid.round(groups).flatten(1)[:, :weight.shape[1]], grid, form)


def find_feeds(model: nn.Module) -> dict[str, Feed]:
    """Return what gives maps their inputs, where only they read it, by the names of the maps."""
    found: dict[str, Feed] = {}
    times = Counter(id(module) for _, module in model.named_modules(remove_duplicate=False))
    for name, module in model.named_modules():
        for target, feed in (*list_norm_feeds(name, module, model), *list_inner_feeds(name, module)):
            pair = [model.get_submodule(one) for one in (target, feed.source)]
            if type(pair[0]) is Linear and all(times[id(one)] == 1 for one in pair):
                found[target] = feed
    return found


def list_norm_feeds(name: str, module: nn.Module, model: nn.Module) -> Iterator[tuple[str, Feed]]:
    """Yield the first map of a sublayer that a norm of its own stands in front of."""
    if type(module) not in (PreNorm, SandwichNorm):
        return
    beside = model.get_submodule(name.rpartition(".")[0]).children()
    norm, inner = module.get_submodule("norm"), module.get_submodule("inner")
    scaled = isinstance(norm, NoNorm) or (isinstance(norm, nn.LayerNorm | nn.RMSNorm) and norm.weight is not None)
    if not scaled or any(isinstance(one, Parallel) for one in beside):
        return
    first = {SelfAttention: "qkv", CrossAttention: "q", FeedForward: "up", GatedFeedForward: "up"}.get(type(inner))
    if first is not None and (not isinstance(inner, SelfAttention) or is_simple(inner)):
        yield f"{name}.inner.{first}", Feed(f"{name}.norm")


def list_inner_feeds(name: str, module: nn.Module) -> Iterator[tuple[str, Feed]]:
    """Yield the last map of a sublayer that gets each input from one row of another map of it."""
    match module:
        case GatedFeedForward() if type(module.up) is Linear:
            yield f"{name}.down", Feed(f"{name}.up", module.up.out_features // 2)
        case FeedForward() if type(module.up) is Linear and module.activation in HOMOGENEOUS:
            yield f"{name}.down", Feed(f"{name}.up", degree=HOMOGENEOUS[module.activation])
        case SelfAttention() if is_simple(module) and type(module.qkv) is Linear:
            query, key, _ = module.widths
            if query == key:
                yield f"{name}.out", Feed(f"{name}.qkv", 2 * query)
        case CrossAttention() if type(module.kv) is Linear:
            if module.kv.out_features == 2 * module.q.out_features:
                yield f"{name}.out", Feed(f"{name}.kv", module.q.out_features)


def is_simple(attention: SelfAttention) -> bool:
    """Say whether an attention reads its input by its one map alone, and its values as they are."""
    positions = attention.config.positions
    plain = positions.kind in ("none", "t5_bias", "alibi") or (isinstance(positions, c.Rotary) and not positions.values)
    return plain and type(attention) is SelfAttention and isinstance(attention.config.kernel, c.Softmax) \
        and attention.global_qkv is None
