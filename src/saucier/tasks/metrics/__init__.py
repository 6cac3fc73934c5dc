"""Metrics: pure functions from texts or sums of losses to a number, and how sure it is (`intervals`, `statistics`).

Nothing here reads a file or runs a model.
"""

from saucier.tasks.metrics.rouge import Overlap, rouge, rouge_l, rouge_l_summary, rouge_n
from saucier.tasks.metrics.texts import TranslationScore, bits_per_byte, bleu, chrf, perplexity

__all__ = ["Overlap", "TranslationScore", "bits_per_byte", "bleu", "chrf", "perplexity", "rouge", "rouge_l",
           "rouge_l_summary", "rouge_n"]
