"""The numbers of a loaded model as they are stored in its folder: read again for saving, and for all that goes on from
the model, since the format to compute in is not the one to store.

A number counts as unchanged where the model has the bits that loading made of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from saucier.adaptation.quantization.published_weights import QuantizedWeights
from saucier.checkpoints.adapter_folder import Source
from saucier.checkpoints.published_folder import PublishedFolder
from saucier.checkpoints.published_names import PublishedNames, find_stored_names
from saucier.checkpoints.sentence_folder import MAP
from saucier.checkpoints.sentence_modules import is_classifier_folder
from saucier.checkpoints.weight_files import SAFE, SafeShard, Weights
from saucier.errors import InputError
from saucier.folders.kinds import AdapterFolder, GgufModel, OwnFolder, SentenceFolder, identify_folder
from saucier.folders.load import merge_if_possible, open_base, open_folder, open_unmerged
from saucier.folders.sentence_classifier import map_of_output
from saucier.model import Transformer
from saucier.parts.provenance import StoredWeights

Read = Callable[[str], Tensor | None]
"""Gives a parameter as it is stored; None for one that is not."""
INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Bytes of a number -> the integer of the same bits."""


def open_stored(stored: StoredWeights) -> Read:
    """Open the folder that a model was loaded from, and return what reads its parameters by our names."""
    kind = identify_folder(Path(stored.state.path), stored.base, modules=stored.head == "auto")
    match kind:
        case OwnFolder():
            shard = SafeShard(kind.path / SAFE)
            known = set(shard.names())
            return lambda name: shard.get(name) if name in known else None
        case GgufModel():
            return read_published(kind.body, kind.open_weights(), stored)
        case PublishedFolder() if kind.quantization is not None:
            return read_published(kind, QuantizedWeights(Weights(kind.path), kind.quantization), stored)
        case PublishedFolder():
            return read_published(kind, Weights(kind.path), stored)
        case SentenceFolder(body=body, maps=folders):
            rest, maps = read_published(body, Weights(body.path), stored), [Weights(folder) for folder in folders]
            classifies = is_classifier_folder(kind.path)

            def read(name: str) -> Tensor | None:
                """Read a weight of a map, or one of the body."""
                match = MAP.fullmatch(map_of_output(name) if classifies else name)
                if match is None:
                    return rest(name)
                number = int(match["number"])  # a head may have been put on since
                return maps[number][f"linear.{match['end']}"] if number < len(maps) else None

            return read
        case AdapterFolder() if not kind.is_own and not kind.learns_inputs:
            _, base, source = open_base(kind)
            if stored.separate:
                source.take_pairs()
            published = read_published(base, source, stored)
            return lambda name: published(name.replace(".base.", "."))  # of a map with a pair next to it
        case AdapterFolder():  # what it is made of is not in one file: it is opened once more
            opened = open_unmerged if stored.separate else open_folder_merged
            parameters = dict(opened(kind, stored.head, stored.widest, torch.device("cpu")).named_parameters())
            return lambda name: parameters[name].detach() if name in parameters else None


def open_folder_merged(kind: AdapterFolder, head: str, dtype: torch.dtype, device: torch.device) -> Transformer:
    """Open an adapter as `load` does."""
    return merge_if_possible(open_folder(kind, head, dtype, device))


def read_published(folder: PublishedFolder, source: Source, stored: StoredWeights) -> Read:
    """Return what reads the parameters of a published folder, in the class as which it was loaded."""
    assert stored.published is not None, "a published folder is loaded as a class"
    layout = folder.layout.choose_layout(folder.layout, folder.document)
    names = PublishedNames(layout, stored.config, stored.published)

    def read(name: str) -> Tensor | None:
        match = names.rules.match(name)
        found = [] if match is None else find_stored_names(names, match, source)
        if match is None or not found or None in found:
            return None
        return match.operation.ours([source[one] for one in found if one is not None])

    return read


@dataclass(frozen=True, slots=True)
class StoredNumbers:
    """The parameters of a model as they are to be stored."""

    tensors: dict[str, Tensor]
    """By our names, on the CPU."""
    unchanged: int | None
    """How many have the bits that their folder has; None: there is no such folder any more, or never was."""


def collect_numbers(model: Transformer, dtype: torch.dtype | None) -> StoredNumbers:
    """Return a model's parameters with the stored numbers for all that did not change; `dtype`: in another format.

    Raises `InputError` where loading rounded them, and the folder that has the exact ones was changed or removed.
    """
    stored = model.provenance.stored
    lossy = stored is not None and any(is_narrower(stored, parameter, dtype) for parameter in model.parameters())
    read = find_reader(stored, needed=lossy)
    tensors, unchanged = {}, 0
    for name, parameter in model.named_parameters():
        now = parameter.detach().cpu()
        then = None if read is None else read(name)
        if then is not None and stored is not None and then.shape == now.shape:
            now, same = put_stored_bits(now, then, stored.loaded)
            unchanged += same
        tensors[name] = (now if dtype is None else now.to(dtype)).contiguous()
    for name, buffer in model.named_buffers():  # of few bits: there is nothing to round them to
        tensors[name], then = buffer.detach().cpu().contiguous(), None if read is None else read(name)
        unchanged += then is not None and then.dtype == buffer.dtype and torch.equal(then, tensors[name])
    return StoredNumbers(tensors, None if read is None else unchanged)


def is_narrower(stored: StoredWeights, parameter: Tensor, dtype: torch.dtype | None) -> bool:
    """Say whether a parameter has too few bits for what is to be written."""
    return parameter.is_floating_point() and stored.is_rounded(parameter.dtype) and (
        dtype is None or torch.promote_types(dtype, parameter.dtype) != parameter.dtype)


def find_reader(stored: StoredWeights | None, *, needed: bool) -> Read | None:
    """Open the folder of a model; None where it is not there as it was and nothing `needed` is in it."""
    if stored is not None and stored.state.is_current:
        return open_stored(stored)
    if stored is None or not needed:
        return None
    short = [str(one).removeprefix("torch.") for one in (stored.loaded, stored.widest)]
    raise InputError(f"the model was loaded in {short[0]}, and its {short[1]} numbers are no longer in this folder, "
                     "which was changed or removed", where=stored.state.path,
                     remedy=f"put it back, or keep the rounded ones: save(..., dtype=\"{short[0]}\")")


def put_stored_bits(now: Tensor, then: Tensor, loaded: torch.dtype) -> tuple[Tensor, bool]:
    """Return a parameter with the stored numbers where it did not change, and whether that is everywhere.

    `now`: as it is; `then`: as it is stored; `loaded`: the format in which it was loaded. Shapes: all the same.
    """
    integer = INTEGERS[now.element_size()]
    same = then.to(loaded).to(now.dtype).contiguous().view(integer) == now.contiguous().view(integer)
    if bool(same.all()):
        return then, True
    wide = torch.promote_types(now.dtype, then.dtype)
    return (now if wide == now.dtype else torch.where(same, then.to(wide), now.to(wide))), False


def restore_stored(model: Transformer) -> None:
    """Take the numbers back, in place, that loading rounded, as `Transformer.restore_stored` says."""
    stored = model.provenance.stored
    if stored is None:
        return
    widest = torch.float32 if stored.widest == torch.float64 else stored.widest
    wide = {name: target for name, parameter in model.named_parameters() if parameter.is_floating_point()
            and (target := torch.promote_types(widest, parameter.dtype)) != parameter.dtype}
    if not wide:
        return
    read = find_reader(stored, needed=True)
    assert read is not None, "it is needed"
    for name, parameter in model.named_parameters():
        if name not in wide:
            continue
        then, now = read(name), parameter.detach().cpu()
        if then is not None and then.shape == now.shape:
            now, _ = put_stored_bits(now, then, stored.loaded)
        parameter.data, parameter.grad = now.to(device=parameter.device, dtype=wide[name], copy=True), None
    model.provenance = replace(model.provenance, stored=replace(stored, loaded=widest))
