"""A head that finds answers in long texts, as data."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.config.layers import Activation, LayerNorm, Norm, Probability


class QuestionSpanHead(Config):
    """Two logits for every token, after one more feed-forward with its residual; a question cannot hold its answer.

    Rows are a question, the separator, and a text. Tokens up to the separator get logits that are a million lower,
    but for the first, which stands for no answer.
    Source: Zaheer et al. 2020, appendix E.2, arXiv:2007.14062, and its code release.
    """

    kind: Literal["question_span"] = "question_span"
    hidden: int = Field(gt=0)
    """Width between the two maps of the feed-forward."""
    separator: int = Field(ge=0)
    """Id of the token that ends the question."""
    activation: Activation = "gelu_tanh"
    """What is applied between the two maps."""
    norm: Norm = LayerNorm()
    """The norm after the residual."""
    dropout: Probability = 0.0
    """Dropout on what the feed-forward reads and on what it gives."""
