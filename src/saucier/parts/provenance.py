"""Provenance of a model: where its weights came from, what was published with them, and which rewrites followed."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.plain import format_bytes
from saucier.result import Result


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a model's weights came from."""

    path: str
    """A folder, or a hub id."""
    digest: str
    """Of the weights that are as they were there."""
    unlike: frozenset[str] = frozenset()
    """Parameters that the origin does not have, or has otherwise."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """Of each other parameter, what tells its values from others."""
    tokenizer: str | None = None
    """The folder of the tokenizer that belongs to the model as it is; None: there is none, or the shape was changed."""

    @classmethod
    def of(cls, path: str | Path, model: nn.Module, unlike: Collection[str] = (), *,
           tokenizer: Path | None = None) -> Origin:
        """Return the origin of a model that has its weights from a folder or hub id, all but some."""
        place = str(Path(path).absolute()) if Path(path).is_dir() else str(path)
        return cls(place, digest_weights(model, unlike), frozenset(unlike), mark_parameters(model, unlike),
                   None if tokenizer is None else str(tokenizer.absolute()))


@dataclass(frozen=True, slots=True)
class FolderState:
    """A folder as it was, by size and last change of the files that count."""

    path: str
    files: tuple[tuple[str, int, int], ...]
    """Path, bytes and time of the last change in nanoseconds, of each."""

    @classmethod
    def of(cls, path: Path, files: Collection[Path]) -> Self:
        """Return the state of some files of a folder; all are there."""
        found = ((str(file.absolute()), file.stat()) for file in files)
        return cls(str(path.absolute()), tuple((name, one.st_size, one.st_mtime_ns) for name, one in found))

    @property
    def is_current(self) -> bool:
        """Whether the files are still as they were."""
        paths = [Path(name) for name, _, _ in self.files]
        return all(path.is_file() for path in paths) and self == FolderState.of(Path(self.path), paths)


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """Where a loaded model's weights are stored, with all that is needed to read them from there again."""

    state: FolderState
    """Of the folder that holds them, and of an adapter's base too."""
    config: c.Transformer
    """The model as it was loaded."""
    published: str | None
    """Class of a published layout as which it was loaded."""
    head: str
    base: str | None
    separate: bool
    """Whether an adapter was left separate from its base."""
    loaded: torch.dtype
    """Number format in which they were loaded."""
    widest: torch.dtype
    """Number format that holds all of them exactly."""

    def is_rounded(self, dtype: torch.dtype) -> bool:
        """Say whether numbers of this format may be rounded ones of those that are stored."""
        return torch.promote_types(self.widest, dtype) != dtype


@dataclass(frozen=True, slots=True)
class Applied:
    """One rewrite that was done."""

    by: Any
    """Its config, a member of `saucier.adaptation.tuning.Tuning`."""
    frozen: frozenset[str]
    """Parameters that it stopped from learning."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a model comes from and what was done to it: all that saving needs and no tensor operation reads.

    It is replaced as a whole (`model.provenance = replace(model.provenance, ...)`) and never changed in place, so that
    two models may share one, and a failed change is undone by putting the old one back.
    """

    origin: Origin | None = None
    """Where the weights came from; None: they were drawn, or nobody knows."""
    document: Mapping[str, Any] = field(default_factory=dict)
    """The config that the model was published with, for what changes no number: names of labels, its class."""
    generation: Mapping[str, Any] = field(default_factory=dict)
    """Defaults of `saucier.generate` for this model, as in generation_config.json."""
    unread: Mapping[str, Tensor] = field(default_factory=dict)
    """Tensors of the published file that its reference stores and never reads."""
    rewrites: tuple[Applied, ...] = ()
    stored: StoredWeights | None = None
    """The weights in the folder that the model was loaded from; None: it was built, or has another shape since."""
    saved: FolderState | None = None
    """Where this model was saved last, and what was written there."""

    @property
    def path(self) -> str | None:
        """Folder or hub id of the weights, if they have one."""
        return None if self.origin is None else self.origin.path

    @property
    def unlike(self) -> frozenset[str]:
        """Parameters that the origin does not have, or has otherwise."""
        return frozenset() if self.origin is None else self.origin.unlike

    @property
    def model_type(self) -> str:
        """`model_type` of the published config; "None" where there is none."""
        return str(self.document.get("model_type"))

    @property
    def rewrite_kinds(self) -> set[str]:
        """The kinds of the rewrites that were done."""
        return {one.by.kind for one in self.rewrites}


SAMPLED_VALUES = 64
"""Values of each parameter that a digest reads."""


def digest_weights(model: nn.Module, without: Collection[str] = ()) -> str:
    """Return what tells a model's weights from others: names, shapes, and a sample of the values.

    The values are rounded to bfloat16, so that the number format of a copy does not matter. `without`: names of
    parameters that are left out.
    """
    found = hashlib.sha256()
    for name, parameter in (*model.named_parameters(), *model.named_buffers()):
        if name not in without:
            found.update(sample_parameter(name, parameter))
    return found.hexdigest()[:32]


def digest_values(model: nn.Module) -> str:
    """Return the digest of all values of a model as they are now, whatever files they came from."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def mark_parameters(model: nn.Module, without: Collection[str] = ()) -> dict[str, str]:
    """Return the same for each parameter by itself, in few letters."""
    return {name: hashlib.sha256(sample_parameter(name, parameter)).hexdigest()[:8]
            for name, parameter in model.named_parameters() if name not in without}


def sample_parameter(name: str, parameter: Tensor) -> bytes:
    """Return a parameter's name, shape, and a sample of its values."""
    sample = parameter.detach().flatten()[::max(1, parameter.numel() // SAMPLED_VALUES)].to(torch.bfloat16)
    return f"{name} {tuple(parameter.shape)}\n".encode() + sample.cpu().contiguous().view(torch.uint8).numpy().tobytes()


class Saved(str, Result):
    """The `model_type` of the layout that a model was written in, and what was stored; a string, so that it compares.
    """

    folder: Path
    parameters: int
    formats: Mapping[str, int]
    """Number format -> bytes of the numbers stored in it."""
    size: int
    """Bytes of all files."""
    tensors: int
    """Parameters, as the model has them."""
    unchanged: int | None
    """Those that were copied from the folder that the model was loaded from; None: there is none, or not any more."""
    files: tuple[str, ...]
    """All that was written."""

    def __new__(cls, layout: str, **facts: Any) -> Self:
        """Make one of the layout and the other fields."""
        made = super().__new__(cls, layout)
        vars(made).update(facts)
        return made

    def view(self) -> str:
        """Say what was stored."""
        formats = " and ".join(f"{format_bytes(size)} of {name}" for name, size in self.formats.items())
        copied = "" if self.unchanged is None else f", {self.unchanged} copied unchanged"
        return (f"{self.folder}, layout {self!s}: {self.parameters:,} parameters in {self.tensors} tensors{copied}; "
                f"{formats}; {', '.join(self.files)}")

    def __repr__(self) -> str:
        """Say what was stored."""
        return self.view()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"layout": str(self)} | vars(self) | {"folder": str(self.folder), "files": list(self.files)}
