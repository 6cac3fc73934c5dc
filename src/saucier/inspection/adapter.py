"""`saucier show` of an adapter's folder: what it is, how large, and on which base. Reads sizes only."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from saucier.errors import InputError
from saucier.files import is_there, read_object
from saucier.inspection.units import bytes_text

CONFIG, WEIGHTS, PICKLED, OWN = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin", "SAUCIER"



@dataclass(frozen=True, slots=True)
class Shown:
    """What an adapter is."""

    folder: str
    kind: str
    layout: str
    base: str
    parameters: int
    """Values that it holds."""
    base_parameters: int | None
    """Those of the base model; None where that is not on this machine."""
    bytes: int
    settings: dict[str, Any]
    """What tells one adapter of a kind from another."""

    @property
    def share(self) -> float | None:
        """Values of the adapter for each of the base."""
        return self.parameters / self.base_parameters if self.base_parameters else None


def is_adapter(path: Path) -> bool:
    """Say whether a folder holds an adapter and no model."""
    return (path / CONFIG).is_file() and not (path / "config.json").is_file()


def described(path: Path) -> Shown:
    """Read an adapter's folder. Raises `InputError` for one that cannot be read."""
    document = read_object(path / CONFIG)
    base = str(document.get("base_model_name_or_path"))
    own = document.get("peft_type") == OWN
    rewrites = document.get("rewrites") or []
    if not isinstance(rewrites, list) or not all(isinstance(one, dict) for one in rewrites):
        raise InputError("rewrites is no list of what was changed", where=str(path / CONFIG),
                         remedy="the file was changed; write it again")
    kind = " + ".join(str(one.get("kind")) for one in rewrites) if own else str(document.get("peft_type"))
    chosen = ("r", "lora_alpha", "target_modules", "modules_to_save", "num_virtual_tokens")
    settings = {f"{place}": one for place, one in enumerate(rewrites)} if own else {
        name: document[name] for name in chosen if document.get(name)}
    parameters, size = values_in(path)
    return Shown(str(path), kind, "our own form, which PEFT does not read" if own else "PEFT", base,
                 parameters, base_values(path, base), size, settings)


def values_in(folder: Path) -> tuple[int, int]:
    """Count the values of an adapter's weights, by the header where they are safetensors, and the bytes of the file.

    Raises `InputError` for weights that are missing or broken.
    """
    from math import prod

    if not (folder / WEIGHTS).is_file() and (folder / PICKLED).is_file():
        from saucier.checkpoints.source import PickledShard

        shard = PickledShard(folder / PICKLED)
        return sum(tensor.numel() for tensor in shard.tensors.values()), shard.path.stat().st_size
    from safetensors import SafetensorError, safe_open

    file = folder / WEIGHTS
    if not file.is_file():
        raise InputError("no such file", where=str(file), remedy="fetch the whole folder")
    try:
        with safe_open(file, framework="np") as opened:
            count = sum(prod(opened.get_slice(name).get_shape()) for name in opened.keys())  # noqa: SIM118  # no dict
    except (SafetensorError, OSError) as error:
        raise InputError(f"not a whole safetensors file ({error})", where=str(file), remedy="copy it again") from error
    return count, file.stat().st_size


def base_values(path: Path, base: str) -> int | None:
    """Count the parameters of the base model, where it is on this machine."""
    from saucier.config import parameters
    from saucier.inspection.subject import subject

    found = next((place for place in (path / base, Path(base)) if is_there(place / "config.json")), None)
    return None if found is None else parameters(subject(str(found)).model)


def plain(shown: Shown) -> dict[str, Any]:
    """Return plain values."""
    return asdict(shown) | {"share": shown.share}


def lines(shown: Shown) -> list[str]:
    """Return what a person reads."""
    share = "" if shown.share is None else f", {shown.share:.2%} of the base's {shown.base_parameters:,}"
    return [f"{shown.folder}: an adapter, {shown.kind}, in the layout of {shown.layout}" if shown.layout == "PEFT"
            else f"{shown.folder}: an adapter, {shown.kind}, in {shown.layout}",
            f"{shown.parameters:,} parameters{share}; {bytes_text(shown.bytes)}", f"base model: {shown.base}",
            *(f"{name}: {value}" for name, value in shown.settings.items())]
