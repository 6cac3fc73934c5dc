"""Next and previous tokens, as data. Needs no torch."""

from __future__ import annotations

from typing import Literal

from saucier.config.base import Config


class Bidirectional(Config):
    """Predict each token from those before it, and from those behind it; both losses count alike.

    Source: Peters et al. 2018 (ELMo), §3.1, arXiv:1802.05365 (C eq 13–15).
    """

    kind: Literal["bidirectional"] = "bidirectional"
