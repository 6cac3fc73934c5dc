"""Attention over long inputs: against dense attention and Longformer of `transformers`, its growth, and its memory.

A new kernel is one line in `GROWING`. Letters: B rows, H heads, L length, E head width, D width.
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import long_memory, memories
from benchmarks.race import TRIED, Contender, Turn, race
from benchmarks.section import Row, Section, at_least, at_most

if TYPE_CHECKING:
    from saucier import config as c
    from saucier.config.kernels import Kernel

SHAPE = {"heads": 12, "width": 64, "reach": 256, "globals": 2, "passes": 1}
"""`reach` neighbours on each side: Longformer's `attention_window=512`."""
QUICK = SHAPE | {"heads": 2, "width": 8, "reach": 16}
LENGTHS, QUICK_LENGTHS = (2048, 4096, 8192, 16384, 32768), (256, 512)
MODEL = {"dim": 256, "layers": 4, "heads": 4, "vocab": 1000, "length": 32768, "reach": 256}
QUICK_MODEL = MODEL | {"dim": 32, "length": 2048, "reach": 16}


@dataclass(frozen=True, slots=True)
class Growing:
    """An attention whose time is measured at growing lengths."""

    name: str
    limit: float
    """The largest exponent that was promised."""
    make: Callable[[int], c.SelfAttention]
    """From the length to the attention."""


def attention(length: int, *, visibility: Callable[[int], c.Visibility]) -> c.SelfAttention:
    """Return a softmax attention of four heads over a visibility."""
    from saucier import config as c

    return c.SelfAttention(projection=c.Projection(heads=4), visibility=visibility(length))


def window(length: int) -> c.Visibility:
    """A window of 512 with a global first token."""
    from saucier import config as c

    return c.Window(257) | c.Global(otherwise=c.AtMostFirst(kind="first_token"))


def strided(length: int) -> c.Visibility:
    """Sparse Transformer's strided patterns in one head, the stride the root of the length."""
    from saucier.families.unpublished import Form, StridedFactors

    return Form(kind="merged").turn(StridedFactors(stride=math.isqrt(length)).terms())[0]


def fixed(length: int) -> c.Visibility:
    """Sparse Transformer's fixed patterns in one head, the stride the root of the length."""
    from saucier.families.unpublished import FixedFactors, Form

    return Form(kind="merged").turn(FixedFactors(stride=math.isqrt(length), count=8).terms())[0]


def big_bird(length: int) -> c.Visibility:
    """Blocks of 64: a window, both ends, and three blocks that are drawn."""
    from saucier.config.visibility import build_bigbird_visibility

    return build_bigbird_visibility(64, 3, 32768)


def by_kernel(length: int, *, kernel: Callable[[int], Kernel], causal: bool = False) -> c.SelfAttention:
    """Return an attention of four heads by a kernel of its own."""
    from saucier import config as c

    return c.SelfAttention(projection=c.Projection(heads=4), kernel=kernel(length),
                           visibility=c.Causal() if causal else c.Full())


def mixtures(length: int) -> Kernel:
    """Linformer: 256 mixtures of all keys."""
    from saucier import config as c

    return c.LowRank(length=length, rank=256)


def features(length: int) -> Kernel:
    """Performer: 256 random features."""
    from saucier import config as c

    return c.Favor()


def hashes(length: int) -> Kernel:
    """Reformer: two rounds of hashes, chunks of 64."""
    from saucier import config as c

    return c.Hashing(rounds=2, seed=0)


GROWING = (
    Growing("window of 512, one global token", 1.15, partial(attention, visibility=window)),
    Growing("BigBird, blocks of 64", 1.15, partial(attention, visibility=big_bird)),
    Growing("Sparse Transformer, strided patterns merged", 1.6, partial(attention, visibility=strided)),
    Growing("Sparse Transformer, fixed patterns merged", 1.6, partial(attention, visibility=fixed)),
    Growing("Linformer, 256 mixtures", 1.15, partial(by_kernel, kernel=mixtures)),
    Growing("Performer, 256 features", 1.15, partial(by_kernel, kernel=features)),
    Growing("Performer, 256 features, causal", 1.15, partial(by_kernel, kernel=features, causal=True)),
    Growing("Reformer, two rounds of hashes, causal", 1.3, partial(by_kernel, kernel=hashes, causal=True)),
)
"""What is measured at growing lengths; four heads of 64 over vectors of 256, projections included."""


def timed(once: Callable[[], object], passes: int) -> Turn:
    """Return a turn: so many passes, in passes a second."""
    import torch

    def turn() -> float:
        begin = time.perf_counter()
        with torch.inference_mode():
            for _ in range(passes):
                once()
        return passes / (time.perf_counter() - begin)

    turn()
    return turn


def vectors(settings: dict[str, Any]) -> Any:
    """Return queries, keys or values, as a projection gives them: [B, H, L, E] over memory of [B, L, H·E]."""
    import torch

    shape = (1, settings["length"], settings["heads"], settings["width"])
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(getattr(torch, settings["dtype"]))


def ours(settings: dict[str, Any]) -> Turn:
    """Our attention over a window with global tokens, without projections."""
    import torch

    from saucier import config as c
    from saucier.parts.attention import SelfAttention
    from saucier.parts.context import Context
    from saucier.parts.masks import Span

    config = c.SelfAttention(projection=c.Projection(heads=settings["heads"]),
                             visibility=c.Window(settings["reach"] + 1) | c.Global())
    module = SelfAttention(config, settings["heads"] * settings["width"]).eval()
    query, key, value = (vectors(settings).transpose(1, 2) for _ in range(3))
    named = torch.arange(settings["length"])[None] < settings["globals"]

    def once() -> object:
        span = Span(settings["length"], settings["length"], 0, query.device, named=named)
        return module.attend(query, key, value, Context(span, torch.arange(settings["length"])[None]))

    return timed(once, settings["passes"])


def full(settings: dict[str, Any]) -> Turn:
    """PyTorch's attention over all pairs."""
    import torch

    query, key, value = (vectors(settings).transpose(1, 2) for _ in range(3))
    return timed(lambda: torch.nn.functional.scaled_dot_product_attention(query, key, value), settings["passes"])


def longformer(settings: dict[str, Any]) -> Turn:
    """Longformer's self-attention of `transformers`, its projections taken out."""
    import torch
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    dim = settings["heads"] * settings["width"]
    module = LongformerSelfAttention(LongformerConfig(
        hidden_size=dim, num_attention_heads=settings["heads"], attention_window=[2 * settings["reach"]]), 0).eval()
    for name in ("query", "key", "value", "query_global", "key_global", "value_global"):
        setattr(module, name, torch.nn.Identity())
    x = vectors(settings).flatten(2)
    glob = torch.arange(settings["length"])[None] < settings["globals"]
    mask = glob.to(x.dtype) * 10000.0
    return timed(lambda: module(x, attention_mask=mask, is_index_masked=mask < 0, is_index_global_attn=glob,
                                is_global_attn=True), settings["passes"])


def growing(settings: dict[str, Any]) -> Turn:
    """One attention of `GROWING` at one length."""
    import torch

    from saucier.parts.block import SUBLAYERS
    from saucier.parts.context import Context
    from saucier.parts.masks import Span

    case, length = next(one for one in GROWING if one.name == settings["case"]), settings["length"]
    sublayer = case.make(length)
    module = SUBLAYERS[type(sublayer)](sublayer, 256).eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.02, generator=torch.Generator().manual_seed(0))
    x = torch.randn(1, length, 256, generator=torch.Generator().manual_seed(0))
    return timed(lambda: module(x, Context(Span(length, length, 0, x.device), torch.arange(length)[None])),
                 settings["passes"])


def memory(settings: dict[str, Any]) -> Turn:
    """One pass of a whole Longformer over a long text; the figure is the most memory of the process, in gigabytes."""
    import torch

    from saucier.families import FAMILIES
    from saucier.model import build

    sizes = {key: settings[key] for key in ("dim", "layers", "heads", "vocab")}
    model = build(FAMILIES["longformer"](**sizes, length=settings["length"] + 2, window=2 * settings["reach"])).eval()
    ids = torch.randint(5, settings["vocab"], (1, settings["length"]), generator=torch.Generator().manual_seed(0))
    named = (torch.arange(settings["length"]) < 1)[None].long()

    def turn() -> float:
        with torch.inference_mode():
            model(ids, global_attention_mask=named)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20

    return turn


CONTENDERS: dict[str, Contender] = {"ours": ours, "full": full, "longformer": longformer, "growing": growing,
                                    "memory": memory}


def against(settings: dict[str, Any], other: str, target: float, rounds: int) -> Row:
    """Return one comparison, in milliseconds a pass."""
    found = race("benchmarks.long_inputs", {"ours": settings, other: settings}, rounds)
    what = (f"window of {2 * settings['reach']}, {settings['globals']} global tokens, {settings['length']} positions, "
            f"{settings['dtype']}, against {'all pairs' if other == 'full' else 'Longformer of transformers'}")
    return at_least(what, f"{1000 / found['ours']:.3g} ms", f"{1000 / found[other]:.3g} ms",
                    found["ours"] / found[other], target)


def exponent(case: Growing, lengths: tuple[int, ...], rounds: int) -> Row:
    """Return the exponent of the time by the length, fitted to the logarithms."""
    contenders = {f"growing: {length}": {"case": case.name, "length": length, "passes": 1} for length in lengths}
    found = race("benchmarks.long_inputs", contenders, rounds)
    seconds = [1 / found[name] for name in contenders]
    slope = float(np.polyfit([math.log(length) for length in lengths], [math.log(one) for one in seconds], 1)[0])
    told = ", ".join(f"{1000 * one:.3g}" for one in seconds)
    return at_most(f"{case.name}: exponent of the time from {lengths[0]} to {lengths[-1]} positions ({told} ms)", slope,
                   case.limit, "")


def measure(quick: bool) -> Section:
    """Compare at 4096 and 16384 positions, fit the growth, and weigh a whole model."""
    shape, rounds = (QUICK, TRIED) if quick else (SHAPE, 3)
    short, long = (128, 256) if quick else (4096, 16384)
    rows = []
    for dtype in ("float32", "bfloat16"):
        rows += [against(shape | {"length": short, "dtype": dtype}, "full", 3, rounds),
                 against(shape | {"length": long, "dtype": dtype}, "full", 10, TRIED if quick else 1)]
    rows.append(against(shape | {"length": short, "dtype": "float32"}, "longformer", 4, rounds))
    rows += [exponent(case, QUICK_LENGTHS if quick else LENGTHS, rounds) for case in GROWING]
    model = QUICK_MODEL if quick else MODEL
    peak = race("benchmarks.long_inputs", {"memory": model}, TRIED if quick else 1)["memory"]
    rows.append(at_most(f"memory of a process that reads {model['length']} tokens with a Longformer of "
                        f"{model['layers']} layers, {model['dim']} wide", peak, 2, "GB"))
    rows += long_memory.rows(quick=quick)
    rows += memories.rows(quick=quick)
    about = (f"Attention of {shape['heads']} heads of {shape['width']} without projections, forward: a window of "
             f"{2 * shape['reach']} with {shape['globals']} global tokens against `scaled_dot_product_attention` over "
             "all pairs and against `LongformerSelfAttention`, its maps taken out. Then the exponent of the time of "
             "one attention over vectors of 256 by the length, maps included; and memory at its peak, the library's "
             "own included. What is to be read is planned once for each length and remembered, as over the layers and "
             "passes of a model. Last, held-out text measured by `Evaluator`, a context before every token: models of "
             "4 layers, 256 wide; Transformer-XL reads segments of 128 tokens beside its memory, GPT-2 the whole "
             "context for each token.")
    return Section("Long inputs", about, rows)
