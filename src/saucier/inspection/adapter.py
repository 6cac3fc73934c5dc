"""`saucier show` of an adapter's folder: what it is, how large, and on which base. Reads sizes only."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from saucier.files import read_object
from saucier.inspection.units import bytes_text

CONFIG, WEIGHTS, OWN = "adapter_config.json", "adapter_model.safetensors", "SAUCIER"


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
    kind = " + ".join(str(one.get("kind")) for one in rewrites) if own else str(document.get("peft_type"))
    chosen = ("r", "lora_alpha", "target_modules", "modules_to_save", "num_virtual_tokens")
    settings = {f"{place}": one for place, one in enumerate(rewrites)} if own else {
        name: document[name] for name in chosen if document.get(name)}
    return Shown(str(path), kind, "our own form, which PEFT does not read" if own else "PEFT", base,
                 values_in(path / WEIGHTS), base_values(path, base), (path / WEIGHTS).stat().st_size, settings)


def values_in(file: Path) -> int:
    """Count the values of a file of weights, by its header."""
    from math import prod

    from safetensors import safe_open

    with safe_open(file, framework="np") as opened:
        return sum(prod(opened.get_slice(name).get_shape()) for name in opened.keys())  # noqa: SIM118  # no dict


def base_values(path: Path, base: str) -> int | None:
    """Count the parameters of the base model, where it is on this machine."""
    from saucier.config import parameters
    from saucier.inspection.subject import subject

    found = next((place for place in (path / base, Path(base)) if (place / "config.json").is_file()), None)
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
