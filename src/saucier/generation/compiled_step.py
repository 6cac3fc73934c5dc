"""The step of one token, compiled: a static cache written in place, frozen weights, and the compiled code kept on disk.

The step is exported once for each kind of step (one row or several, padded or not, with a source or not) and compiled
ahead of time by PyTorch's inductor with its weights frozen: packed for the processor, and fused with what follows. The
lengths, the number of rows and the cache's capacity stay free, so that one piece of code serves every call. It is in
`$SAUCIER_CACHE` or the user's cache folder under a name that is a digest of all that it was made from: the weights,
the config, our code, torch, the processor and the number of threads. Nothing there is ever out of date.

Letters: R rows, L length with the new token, S source length, D dim, K key-value heads, E head width, V vocab.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import platform
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier import parts as parts_package
from saucier.config.registry import list_outside_kinds
from saucier.errors import InputError, WorkError
from saucier.files import cache_folder
from saucier.generation.feeds import ReadToken, State
from saucier.generation.packed_weights import MadeFromWeights, copy_modules
from saucier.model import Transformer
from saucier.parts.attention import SelfAttention
from saucier.parts.feed_forward import Experts
from saucier.parts.output import Cache
from saucier.parts.recurrent import Recurrent
from saucier.plain import VERSION

KEPT = 8
"""How many compiled steps stay on disk, each with a copy of its weights; the oldest goes first."""
LONGEST = 2**20
"""No text is longer: the compiler wants to know a bound."""

Pair = tuple[Tensor, Tensor]
Run = Callable[[list[Tensor]], Tensor]


@dataclass(frozen=True, slots=True)
class Kind:
    """What a step is compiled for; everything else about it may vary."""

    single: bool
    """One row."""
    padded: bool
    """Some rows begin with padding."""
    source: bool = False
    """There is an encoder."""
    source_padded: bool = False
    single_source: bool = False
    """The source is one token."""

    @classmethod
    def of(cls, state: State) -> Kind:
        """Return the kind of the next step."""
        rows = (state.cache.keys[0] if state.cache.keys else state.cache.cross[0][0]).shape[0]
        encoded = state.encoded
        return cls(rows == 1, state.mask is not None, encoded is not None, state.source_mask is not None,
                   encoded is not None and encoded.shape[1] == 1)


class OneToken(nn.Module):
    """The model as a function of tensors alone, as the compiler wants it."""

    def __init__(self, model: Transformer) -> None:
        """Wrap the model; its parameters stay its own."""
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, visible: Tensor, own: list[Pair], cross: list[Pair], mask: Tensor | None = None,
                positions: Tensor | None = None, source_mask: Tensor | None = None) -> Tensor:
        """Read one token a row; the new keys and values are written into `own`.

        Shapes: tokens [R, 1]; visible [L], only its length is read; own: [R, K, capacity, E] keys and values of each
        self-attention; cross: likewise [R, K, S, E]; mask [R, L]; positions [R, 1]; source_mask [R, S] -> [R, V].
        """
        cache = Cache(
            [key for key, _ in own], [value for _, value in own], LONGEST, visible.shape[0] - 1, dict(enumerate(cross))
        )
        if cross:
            encoded = cross[0][0][:, 0]  # [R, S, E]: only the length is read, as the keys are there already
            output = self.model(
                None, source_mask, encoder_output=encoded, decoder_input_ids=tokens, cache=cache, last_only=True
            )
        else:
            output = self.model(tokens, mask, places=positions, cache=cache, last_only=True)
        return output.logits[:, -1].float()  # type: ignore[no-any-return]


STEPS: MadeFromWeights[Run] = MadeFromWeights()
"""Model -> its compiled steps."""


def make_compiled_reader(model: Transformer) -> ReadToken:
    """Return a reader of one token that runs compiled code, made or fetched when a kind of step is first needed.

    Raises `InputError` for a model that is not on a CPU, and `WorkError` where there is no C++ compiler.
    """
    place = model.device.type
    if place != "cpu":
        raise InputError(
            f"the model is on {place}", where="compile", remedy="compiled decoding is for CPUs; use compile=False"
        )
    modules = list(model.modules())
    keeps_states = any(isinstance(one, Recurrent) or (isinstance(one, SelfAttention)
                                                      and not one.config.kernel.caches_keys) for one in modules)
    custom = [*list_outside_kinds(model.config.model_dump())]
    for found, what in ((model.front is not None, "a prefix or a prompt before the text"),
                        (bool(custom), f"parts from outside ({', '.join(custom[:1])}), which are not compiled"),
                        (any(isinstance(one, Experts) for one in modules), "experts, which are chosen token by token"),
                        (any(True for _ in model.buffers()), "weights in few bits, which are not compiled yet"),
                        (keeps_states, "layers that keep states, which are not compiled")):
        if found:
            raise InputError(f"the model has {what}", where="compile", remedy="use compile=False")
    runs: dict[Kind, Run] = {}

    def read(tokens: Tensor, state: State) -> Tensor:
        kind = Kind.of(state)
        if kind not in runs:
            runs[kind] = STEPS.get(model, (kind, torch.get_num_threads()), lambda: load_step(model, kind, state))
        logits = runs[kind](flatten_arguments(tokens, state))
        state.cache.advance(1)
        return logits

    return read


def flatten_arguments(tokens: Tensor, state: State) -> list[Tensor]:
    """Return the tensors of `OneToken.forward` in order, dense as the compiled code reads them."""
    cache = state.cache
    flat = [tokens.contiguous(), torch.empty(cache.length + 1)]
    flat += [x for pair in zip(cache.keys, cache.values, strict=True) for x in pair]
    flat += [x for pair in cache.cross.values() for x in pair]
    places = None if state.positions is None else state.positions[:, None]
    return flat + [x.contiguous() for x in (state.mask, places, state.source_mask) if x is not None]


def load_step(model: Transformer, kind: Kind, state: State) -> Run:
    """Fetch the compiled step from disk, or compile it and keep it there."""
    from torch._inductor import aoti_load_package

    path = cache_folder("compiled") / f"step-{digest_step(model, kind)}.pt2"
    try:
        os.utime(path)  # the oldest is the one that was not used for longest; other processes remove it
    except FileNotFoundError:
        compile_to(path, model, kind, state)
        discard_oldest(path.parent)
    package, one_at_a_time = aoti_load_package(str(path), run_single_threaded=True), threading.Lock()

    def run(flat: list[Tensor]) -> Tensor:
        with one_at_a_time:  # `run_single_threaded` leaves PyTorch's own lock out
            return package.loader.boxed_run(flat)[0]

    return run


def discard_oldest(folder: Path) -> None:
    """Remove the compiled steps that were not used for longest, beyond those that are kept."""
    found = sorted(folder.glob("step-*.pt2"), key=lambda path: path.stat().st_mtime)
    for path in found[:-KEPT]:
        path.unlink(missing_ok=True)


def digest_step(model: Transformer, kind: Kind) -> str:
    """Return a name for all that the compiled code depends on."""
    code = hashlib.sha256(b"".join(path.read_bytes() for path in list_traced_files())).hexdigest()
    facts = (VERSION, code, torch.__version__, torch.backends.cpu.get_cpu_capability(), platform.machine(),
             torch.get_num_threads(), kind, model.config.model_dump_json())
    found = hashlib.sha256("".join(f"{fact}\n" for fact in facts).encode())
    for name, weight in model.named_parameters():
        found.update(f"{name} {weight.dtype} {tuple(weight.shape)}\n".encode())
        found.update(weight.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:32]


def list_traced_files() -> list[Path]:
    """Return the files of what a step does: the model, its parts with all their folders, and the config they read."""
    folders = [Path(path) for package in (c, parts_package) for path in package.__path__]
    modules = [Path(inspect.getfile(one)) for one in (Transformer, MadeFromWeights)]
    return sorted([*modules, Path(__file__), *(file for folder in folders for file in folder.rglob("*.py"))])


def compile_to(path: Path, model: Transformer, kind: Kind, state: State) -> None:
    """Export the step, compile it with frozen weights, and put it at `path` when it is whole."""
    from torch._inductor import aoti_compile_and_package
    from torch._inductor.utils import fresh_inductor_cache

    if not any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "clang++", "c++")):
        raise WorkError(
            "compiling needs a C++ compiler, and there is none",
            where="compile",
            remedy="install g++, or use compile=False",
        )
    unfinished = path.with_name(f"{path.stem}-{os.getpid()}.unfinished.pt2")
    try:
        with torch.inference_mode(False), torch.no_grad(), fresh_inductor_cache():
            program = export_step(model, kind, state)
            aoti_compile_and_package(program, package_path=str(unfinished), inductor_configs={"freezing": True})
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


Axis = int | tuple[int, torch.export.Dim]
"""A size that is fixed, or an example of one that is free."""


def make_example(*axes: Axis, dtype: torch.dtype = torch.int64) -> tuple[Tensor, dict[int, torch.export.Dim]]:
    """Return a tensor of these sizes, and which of them are free."""
    sizes = [axis if isinstance(axis, int) else axis[0] for axis in axes]
    free = {place: axis[1] for place, axis in enumerate(axes) if not isinstance(axis, int)}
    return torch.ones(sizes, dtype=dtype), free


def export_step(model: Transformer, kind: Kind, state: State) -> torch.export.ExportedProgram:
    """Trace the step on examples of this kind, with every size free that may vary."""
    def free(name: str, size: int) -> Axis:
        return size, torch.export.Dim(name, min=2, max=LONGEST)

    rows, source = 1 if kind.single else free("rows", 4), 1 if kind.single_source else free("source", 24)
    length, capacity = free("length", 17), free("capacity", 128)
    cache, dtype = state.cache, model.dtype

    def stored(like: Tensor, axis: Axis) -> tuple[Any, Any]:
        (key, key_sizes), (value, value_sizes) = (
            make_example(rows, like.shape[1], axis, like.shape[3], dtype=dtype) for _ in ("key", "value"))
        return (key, value), (key_sizes, value_sizes)

    nothing = (None, None)
    own = [stored(key, capacity) for key in cache.keys]
    cross = [stored(key, source) for key, _ in cache.cross.values()]
    given = [
        make_example(rows, 1),
        make_example(length, dtype=torch.float32),
        ([pair for pair, _ in own], [free for _, free in own]),
        ([pair for pair, _ in cross], [free for _, free in cross]),
        make_example(rows, length) if kind.padded else nothing,
        make_example(rows, 1) if kind.padded else nothing,
        make_example(rows, source) if kind.source_padded else nothing,
    ]
    values, sizes = zip(*given, strict=True)
    # Of a copy: tracing puts other tensors in the place of parameters, and other threads may read the model.
    return torch.export.export(OneToken(copy_modules(model)), values, dynamic_shapes=sizes, strict=False)
