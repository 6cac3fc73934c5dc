"""Writing text: what `saucier.generate` is put together from, and the strategies that it takes.

Public names are imported when they are first used, since settings are read where there is no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saucier.generation.chains import Chains as Chains
    from saucier.generation.chains import walk as walk
    from saucier.generation.decoding import Gibbs as Gibbs
    from saucier.generation.decoding import MaskPredict as MaskPredict
    from saucier.generation.decoding import MetropolisHastings as MetropolisHastings
    from saucier.generation.decoding import Native as Native
    from saucier.generation.native_encoder import use_native as use_native
    from saucier.generation.options import GenerationOptions as GenerationOptions
    from saucier.generation.prefix_cache import PrefixCache as PrefixCache
    from saucier.generation.search import TextStream as TextStream
    from saucier.generation.speculation import Draft as Draft
    from saucier.generation.speculation import PromptLookup as PromptLookup
    from saucier.generation.vocabulary_map import VocabularyMap as VocabularyMap
    from saucier.generation.vocabulary_map import build_vocabulary_map as build_vocabulary_map
    from saucier.generation.vocabulary_map import load_vocabulary_map as load_vocabulary_map

MODULES = {"Chains": "chains", "Draft": "speculation", "GenerationOptions": "options", "Gibbs": "decoding",
           "MaskPredict": "decoding", "MetropolisHastings": "decoding", "Native": "decoding",
           "PrefixCache": "prefix_cache", "PromptLookup": "speculation", "TextStream": "search",
           "VocabularyMap": "vocabulary_map", "build_vocabulary_map": "vocabulary_map",
           "load_vocabulary_map": "vocabulary_map", "use_native": "native_encoder", "walk": "chains"}
__all__ = list(MODULES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used. Raises `AttributeError` for any other."""
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
