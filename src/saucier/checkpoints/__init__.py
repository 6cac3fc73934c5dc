"""Reading and writing models: folders of config.json, model.safetensors and generation_config.json.

`load` is imported when it is first asked for: `keys` and `rules` are data, which families read where torch is not loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saucier.checkpoints.loading import load as load

__all__ = ["load"]


def __getattr__(name: str) -> Any:
    """Import `load` on first use."""
    if name == "load":
        from saucier.checkpoints.loading import load

        return load
    raise AttributeError(f"module 'saucier.checkpoints' has no attribute {name!r}")
