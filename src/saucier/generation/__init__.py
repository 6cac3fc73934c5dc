"""Writing text: `generate`, its options, and the small objects that it is put together from."""

from saucier.generation.chains import Chains, walk
from saucier.generation.decoding import Gibbs, MaskPredict, MetropolisHastings
from saucier.generation.generate import generate
from saucier.generation.options import GenerationOptions
from saucier.generation.search import TextStream

__all__ = ["Chains", "GenerationOptions", "Gibbs", "MaskPredict", "MetropolisHastings", "TextStream", "generate",
           "walk"]
