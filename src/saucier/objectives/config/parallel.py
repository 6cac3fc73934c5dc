"""Hidden tokens in the texts of pairs, as data: both sides in one row, or each in a row of its own. Needs no torch."""

from __future__ import annotations

from typing import Literal

from saucier.config.base import Config
from saucier.objectives.config.masked import Masked


class TranslationMasked(Config):
    """Predict tokens hidden in a text and in its translation, which stand in one row: translation language modelling.

    Source: Lample and Conneau 2019 (XLM), §3.4 and figure 1, arXiv:1901.07291.
    """

    kind: Literal["translation_masked"] = "translation_masked"
    masking: Masked = Masked()
    """Which tokens are hidden on both sides, and what stands in their place."""


class MaskedSides(Config):
    """Predict tokens hidden in the texts of pairs, each side a row of its own: what XLM learns in turns with TLM.

    Source: Lample and Conneau 2019 (XLM), §3.3 and §3.5, arXiv:1901.07291; there the texts are not those of the pairs.
    """

    kind: Literal["masked_sides"] = "masked_sides"
    masking: Masked = Masked()
    """Which tokens are hidden, and what stands in their place."""


Parallel = TranslationMasked | MaskedSides
"""Objectives that hide tokens in the texts of pairs."""
