"""Writing text: `generate`, its options, and the small objects that it is put together from."""

from saucier.generation.generate import generate
from saucier.generation.options import GenerationOptions
from saucier.generation.streaming import TextStream

__all__ = ["GenerationOptions", "TextStream", "generate"]
