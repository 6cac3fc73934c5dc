"""What the decoder of an encoder-decoder reads where a batch gives it nothing: the source again, moved by one place."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config


class ShiftedSource(Config):
    """The start token, then the source without its last token. Source: Lewis et al. 2020, §3.1, arXiv:1910.13461."""

    kind: Literal["shifted_source"] = "shifted_source"
    start: int = Field(ge=0)
    """Id of the token that stands first."""


class RotatedSource(Config):
    """The last real token of the source (its language), then the source without its last token.

    Source: Liu et al. 2020 (mBART), §2.1, arXiv:2001.08210.
    """

    kind: Literal["rotated_source"] = "rotated_source"
    padding: int = Field(default=1, ge=0)
    """Id of the padding token."""


DefaultTarget = Annotated[ShiftedSource | RotatedSource, Field(discriminator="kind")]
