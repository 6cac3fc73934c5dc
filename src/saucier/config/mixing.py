"""Mixing of tokens without attention, as data; and which models see where padding stands."""

from __future__ import annotations

from typing import Literal

from saucier.config.base import Config


class FourierMixing(Config):
    """The real part of a Fourier transform over the width and over the tokens. No parameters.

    It mixes all tokens of a row, padding too, as its published models do: a row's numbers depend on how far the batch
    is padded. Source: Lee-Thorp et al. 2022, §3.2, eq 2-3, arXiv:2105.03824.
    """

    kind: Literal["fourier"] = "fourier"
