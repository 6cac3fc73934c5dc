"""Import paths that the docs once showed: they lead to the new place, with a warning, until version 0.3.

Nothing of the package imports this; `saucier/__init__` installs the finder, and it acts on the paths below alone.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

MOVED: dict[str, tuple[str, dict[str, str]]] = {
    "saucier.adaptation.config": ("saucier.adaptation.tuning", {}),
    "saucier.adaptation.nf4": ("saucier.adaptation.quantization.normal_float", {
        "QuantizedLinear": "saucier.adaptation.quantization.maps:QuantizedLinear",
        "quantize_maps": "saucier.adaptation.quantization.maps:quantize_maps",
        "held_bytes": "saucier.adaptation.quantization.maps:held_bytes"}),
    "saucier.adaptation.merging": ("saucier.adaptation.lora", {}),
    "saucier.adaptation.surgery.config": ("saucier.adaptation.surgery.operations", {}),
    "saucier.adapters": ("saucier.folders.load", {"save_adapter": "saucier.folders.save:save_adapter"}),
    "saucier.inspection.doctor": ("saucier.diagnosis.doctor", {"examine": "saucier.diagnosis.doctor:examine_model"}),
    "saucier.loading": ("saucier.folders.load", {}),
    "saucier.runs.clean": ("saucier.jobs.cleaning.clean", {"Wishes": "saucier.jobs.cleaning.clean:CleaningOptions"}),
    "saucier.runs.clean_engine": ("saucier.jobs.cleaning.clean", {}),
    "saucier.runs.clean_rules": ("saucier.jobs.cleaning.clean", {}),
    "saucier.runs.diagnosis": ("saucier.diagnosis.doctor", {}),
    "saucier.tasks.metrics.intervals": ("saucier.tasks.metrics.metric", {}),
    "saucier.text.spelling": ("saucier.text.tokenizer.model_inputs",
                              {"spelled": "saucier.text.tokenizer.model_inputs:spell_words"}),
}
"""Old module -> the new one, and the names that have another name or place there, as `module:name`."""
FOLDERS = {"saucier.inspection", "saucier.runs"}
"""Packages that are no more, in which old modules lay."""


class MovedModules:
    """Finds the modules of `MOVED`; each hands out names of the new place.

    A finder and a loader without their base classes, whose import costs `saucier --help` more than all else here.
    """

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
                  ) -> ModuleSpec | None:
        """Claim an old path; any other is somebody else's."""
        if fullname not in MOVED and fullname not in FOLDERS:
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(fullname, cast(Any, self), is_package=fullname in FOLDERS)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leave it to Python to make the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Make the module look names up where they are now."""
        if module.__name__ in MOVED:
            module.__getattr__ = lambda name: look_up(module.__name__, name)  # type: ignore[method-assign]


def look_up(module: str, name: str) -> Any:
    """Return a name of an old module from its new place, with a warning. Raises `AttributeError` as modules do."""
    if name.startswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    import importlib
    import warnings

    place, renamed = MOVED[module]
    place, _, found = renamed.get(name, f"{place}:{name}").partition(":")
    warnings.warn(f"{module}.{name} is now {place}.{found}; the old path goes in version 0.3", DeprecationWarning,
                  stacklevel=3)
    return getattr(importlib.import_module(place), found)


def install() -> None:
    """Let old paths be found, after everything that exists."""
    if not any(isinstance(one, MovedModules) for one in sys.meta_path):
        sys.meta_path.append(MovedModules())
