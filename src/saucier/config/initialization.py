"""How `build` draws starting weights, as data."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config


class NormalInit(Config):
    """Matrices from a normal distribution, biases zero.

    Source: Radford et al. 2019 (GPT-2), §2.3, for the depth scaling.
    """

    kind: Literal["normal"] = "normal"
    std: float = Field(default=0.02, gt=0)
    """Standard deviation."""
    depth_scaled: bool = False
    """Divide the deviation of the maps that write to the residual by the square root of their number."""


class XavierInit(Config):
    """Matrices from a uniform distribution scaled by fan-in plus fan-out, embeddings normal with dim**-0.5.

    Source: Glorot and Bengio 2010; the usual choice for Vaswani et al. 2017.
    """

    kind: Literal["xavier"] = "xavier"


class FanInInit(Config):
    """Matrices normal with deviation fan_in**-0.5, embeddings with `embedding_std`; T5's choice.

    Where the scores are not scaled by the root of the head's width, the query map starts smaller by that factor.
    Source: Raffel et al. 2020, code release.
    """

    kind: Literal["fan_in"] = "fan_in"
    embedding_std: float = Field(default=1.0, gt=0)


class UniformInit(Config):
    """Matrices and tables from one uniform distribution around zero. Source: Luong et al. 2015, §4.1."""

    kind: Literal["uniform"] = "uniform"
    reach: float = Field(default=0.1, gt=0)
    """The largest value."""


Initialization = Annotated[NormalInit | XavierInit | FanInInit | UniformInit, Field(discriminator="kind")]
