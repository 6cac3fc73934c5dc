"""Which rows of running text follow which from step to step, as data. Needs no torch."""

from __future__ import annotations

from typing import Literal

from saucier.config.base import Config


class ShuffledRows(Config):
    """Rows come in a drawn order, and each begins without a memory."""

    kind: Literal["shuffled"] = "shuffled"


class ConsecutiveRows(Config):
    """Each row of a step goes on where the same row of the step before ended, beside the model's memory of it.

    What is remembered was read with the weights of then. Held-out text is measured in the same way.
    Source: Dai et al. 2019 (Transformer-XL), §3.2, arXiv:1901.02860.
    """

    kind: Literal["consecutive"] = "consecutive"
