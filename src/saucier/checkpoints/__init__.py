"""Reading and writing models: folders of config.json, model.safetensors and generation_config.json."""

from saucier.checkpoints.loading import load

__all__ = ["load"]
