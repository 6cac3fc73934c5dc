"""Calibration text: rows of it, and what a model's maps read when it runs on them.

Letters: B rows, L length, T tokens, I inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import torch
from torch import Tensor, nn

from saucier.adaptation.quantization.maps import LARGEST_CODE, QuantizedLinear
from saucier.adaptation.quantization.schemes import StaticInt8
from saucier.errors import InputError
from saucier.model import Transformer
from saucier.text.tokenizer.tokenizer import Tokenizer

Batch = Mapping[str, Tensor]
"""Inputs of a model, by the names of its arguments."""


class EnoughRead(Exception):  # noqa: N818  # no error: it ends a pass early
    """All that was to be seen was seen."""


def cut_rows(texts: Iterable[str], tokenizer: Tokenizer, *, rows: int = 128, length: int = 128, batch: int = 8
             ) -> list[dict[str, Tensor]]:
    """Join texts and cut their tokens into rows of one length, as batches of `input_ids` [B, L].

    At most `rows`; a rest that is shorter than a row is left out. Raises `InputError` for texts that are empty or
    shorter than one row.
    """
    ids: list[int] = []
    for text in texts:
        ids += tokenizer.encode(text)
        if len(ids) >= rows * length:
            break
    count = min(rows, len(ids) // length)
    if not count:
        raise InputError("the calibration text is empty" if not ids else
                         f"the calibration text has {len(ids)} tokens, and a row needs {length}", where="calibration",
                         remedy="give more text, or a smaller length")
    table = torch.tensor(ids[:count * length]).view(count, length)
    return [{"input_ids": part} for part in table.split(batch)]


def check_batches(model: Transformer, batches: Sequence[Batch]) -> None:
    """Raise `InputError` for calibration batches that are missing, or hold no tokens."""
    if not len(batches):
        raise InputError("there is no calibration text", where="batches",
                         remedy="give batches of the model's inputs, as calibration.cut_rows makes them")
    for number, batch in enumerate(batches):
        if not isinstance(batch, Mapping) or not all(isinstance(one, Tensor) for one in batch.values()):
            raise InputError(f"batch {number} is no table of tensors by name", where="batches",
                             remedy="give {'input_ids': ...}")
        if "input_ids" not in batch or not batch["input_ids"].numel():
            raise InputError(f"batch {number} has no tokens", where="batches", remedy="give {'input_ids': [B, L]}")


def run_batch(model: Transformer, batch: Batch) -> None:
    """Run a model on a batch, up to what ends it early."""
    with suppress(EnoughRead):
        model(**{name: value.to(model.device) for name, value in batch.items()})


@contextmanager
def watch_inputs(modules: Mapping[str, nn.Module], see: Callable[[str, Tensor], None]) -> Iterator[None]:
    """Call `see` with the name of a module and what it reads, [T, I], each time that it is called meanwhile."""
    handles = [module.register_forward_pre_hook(
        lambda _, given, name=name: see(name, given[0].detach().flatten(0, -2) if given[0].dim() > 1
                                        else given[0].detach()[None]))
        for name, module in modules.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def find_order(model: Transformer, names: Iterable[str], batches: Sequence[Batch]) -> dict[str, list[int]]:
    """Return the maps in the order in which they are first called, with how often each batch calls them.

    Raises `InputError` for a map that the calibration text never reaches.
    """
    wanted, calls = list(names), dict[str, list[int]]()
    for number, batch in enumerate(batches):
        def see(name: str, read: Tensor, number: int = number) -> None:
            """Count a call, unless it is with nothing."""
            if len(read):
                calls.setdefault(name, [0] * len(batches))[number] += 1

        with watch_inputs({name: model.get_submodule(name) for name in wanted}, see):
            run_batch(model, batch)
    if unread := [name for name in wanted if name not in calls]:
        raise InputError(f"nothing of the calibration text reaches {unread[0]}"
                         + (f" and {len(unread) - 1} more" if len(unread) > 1 else ""), where="batches",
                         remedy=f"give other text, or leave it out: where=['*', '!{unread[0]}']")
    return calls


def measure_ranges(model: Transformer, batches: Sequence[Batch]) -> None:
    """Set the static range of every map that has one to its largest input on the batches.

    Maps do not round their inputs meanwhile. Raises `InputError` for a map that no text reaches.
    """
    maps = {name: one for name, one in model.named_modules()
            if isinstance(one, QuantizedLinear) and isinstance(one.activations, StaticInt8)}
    largest: dict[str, Tensor] = {}

    def see(name: str, read: Tensor) -> None:
        if len(read):
            found = read.abs().amax().float()
            largest[name] = torch.maximum(largest[name], found) if name in largest else found

    kept = {name: one.activations for name, one in maps.items()}
    try:
        for one in maps.values():
            one.activations = None
        find_order(model, maps, batches[:1])
        with watch_inputs(maps, see):
            for batch in batches:
                run_batch(model, batch)
    finally:
        for name, one in maps.items():
            one.activations = kept[name]
    for name, one in maps.items():
        one.input_scale = (largest[name] / LARGEST_CODE).to(one.like.device)
