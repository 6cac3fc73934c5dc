"""What is pruned, by which score, and how much, as data. Needs no torch.

All but `MagnitudePruning` give a really smaller model. Those that are learned while a model is trained are in
`saucier.objectives.config.pruning`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config

Share = Annotated[float, Field(gt=0, lt=1)]
Count = Annotated[int, Field(gt=0)]


class Scope(Config):
    """Among what the least important are looked for.

    - model: all heads, or neurons, of the model; the layers get shapes of their own;
    - layer: those of each sublayer, so that all lose as many: published layouts want that of feed-forwards, and of
      heads where they have a width of their own;
    - stack: as in `layer`, and of the same numbers in all sublayers of a stack, by the sum of their scores: what T5's
      published layout holds, whose layers share a table for the heads.
    """

    kind: Literal["model", "layer", "stack"]


class Importance(Config):
    """How much the loss changes with a mask on the head or neuron: the mean over texts of |∂L(x)/∂ξ|.

    Source: Michel et al. 2019, §4.1, eq 2, arXiv:1905.10650 (C eq 54), which by the chain rule is |Att·∂L/∂Att| (C eq
    55). Their code release takes the absolute value token by token; here it is of a whole text, as in the paper.
    """

    kind: Literal["importance"] = "importance"
    normalized: bool = True
    """Divide the scores of each sublayer by their root of squares. Source: Michel et al. 2019, §4.1; Molchanov et al.
    2017, §2.2, arXiv:1611.06440."""


class Confidence(Config):
    """The largest weight that a head gives to a token, averaged over the tokens that ask.

    Source: Voita et al. 2019, §4, arXiv:1905.09418, which leaves out the end of the sentence.
    """

    kind: Literal["confidence"] = "confidence"
    average: Literal["mean", "median"] = "mean"
    """The mean, as published, or the median, as in C VI-B.3-A."""
    excluded: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Ids of tokens whose weights do not count, such as the end of a text."""


class Relevance(Config):
    """The share of a head in the likeliest output, traced back layer by layer (LRP); of a layer they sum to 1.

    Source: Voita et al. 2019, §4 and appendix A, arXiv:1905.09418; weights of attention and the scale of norms count
    as constants: Ali et al. 2022, "XAI for Transformers", §3.2, arXiv:2202.07304. Biases take their part.
    """

    kind: Literal["relevance"] = "relevance"


class Ablation(Config):
    """How much the loss grows without the head alone. Source: Michel et al. 2019, §3.2, arXiv:1905.10650."""

    kind: Literal["ablation"] = "ablation"


class Alone(Config):
    """How low the loss stays with this head as the only one of its layer.

    Source: Michel et al. 2019, §3.3, arXiv:1905.10650.
    """

    kind: Literal["alone"] = "alone"


class Magnitude(Config):
    """The root of squares of all weights that belong to the head or neuron. Needs no data."""

    kind: Literal["magnitude"] = "magnitude"


HeadScore = Annotated[Importance | Confidence | Relevance | Ablation | Alone | Magnitude, Field(discriminator="kind")]
NeuronScore = Annotated[Importance | Magnitude, Field(discriminator="kind")]
Where = Annotated[tuple[str, ...], Field(min_length=1)]
"""Places of sublayers, with `*` for any: `decoder.blocks.*.cross`, `encoder.blocks.0.attention`."""


class HeadPruning(Config):
    """Leave out the least important heads; one stays in every attention.

    Heads that share keys and values go together. Source: Michel et al. 2019, §4, arXiv:1905.10650.
    """

    kind: Literal["heads"] = "heads"
    share: Share
    """The part of the heads that goes, rounded down."""
    score: HeadScore = Importance()
    """What is least of the heads that go."""
    scope: Scope = Scope(kind="model")
    """Among which heads."""
    rounds: int = Field(default=1, gt=0)
    """In how many equal parts they go; the others are scored anew before each."""
    where: Where = ("*",)
    """The attentions that may lose heads."""


class NeuronPruning(Config):
    """Leave out the least important hidden activations of feed-forwards."""

    kind: Literal["neurons"] = "neurons"
    share: Share
    """The part of them that goes, rounded down."""
    score: NeuronScore = Importance()
    """What is least of those that go."""
    scope: Scope = Scope(kind="layer")
    """Among which."""
    rounds: int = Field(default=1, gt=0)
    """In how many equal parts they go; the others are scored anew before each."""
    multiple: int = Field(default=8, gt=0)
    """What stays of a feed-forward is filled up to a multiple of this, as processors multiply faster then."""
    where: Where = ("*",)
    """The feed-forwards that may lose some."""


class LayersByPlace(Config):
    """Layers that go by where they are. Source: Sajjad et al. 2020 (Poor Man's BERT), §3.1, arXiv:2004.03844.

    Counted from 1, for 12 layers and a count of 2:
    - top: the last ones, {11, 12};
    - even: every other one from the top, of even number, {10, 12};
    - odd: likewise of odd number, {9, 11}, so that the last one stays;
    - symmetric: those in the middle, {6, 7}; of an odd rest one more stays above them;
    - bottom: the first ones, {1, 2}.
    """

    kind: Literal["top", "even", "odd", "symmetric", "bottom"]
    count: Count
    """How many go (K in the paper)."""


class LeastContribution(Config):
    """The layers whose output is most similar to their input, by the cosine of the vectors on some texts.

    Source: Sajjad et al. 2020, §3.1, arXiv:2004.03844, which compares the first token's vectors.
    """

    kind: Literal["contribution"] = "contribution"
    count: Count
    """How many go."""
    tokens: Literal["first", "all"] = "first"
    """Whose vectors are compared."""


class SimilarLayers(Config):
    """All layers whose output is more similar to their input than a threshold, as `LeastContribution` measures it."""

    kind: Literal["similar"] = "similar"
    above: float = Field(gt=0, lt=1)
    """The cosine; the paper tries 0.95, 0.925 and 0.9."""
    tokens: Literal["first", "all"] = "first"
    """Whose vectors are compared."""


class EveryNth(Config):
    """The layers at a depth d, counted from 1, with d ≡ 0 (mod ⌊1/p⌋): every other one at p = 0.5.

    Source: Fan et al. 2020 (LayerDrop), §3.2, arXiv:1909.11556 (C VI-B.1-A).
    """

    kind: Literal["every_nth"] = "every_nth"
    rate: float = Field(gt=0, le=0.5)
    """The part of the layers that goes (p in the paper)."""


class Searched(Config):
    """The layers without which the held-out loss is lowest, one after the other.

    Source: Fan et al. 2020, §3.2 ("Search on Valid"), arXiv:1909.11556, which tries sets of layers; this is greedy.
    """

    kind: Literal["searched"] = "searched"
    count: Count
    """How many go."""


LayerChoice = Annotated[LayersByPlace | LeastContribution | SimilarLayers | EveryNth | Searched,
                        Field(discriminator="kind")]


class LayerPruning(Config):
    """Leave out whole layers of a stack."""

    kind: Literal["layers"] = "layers"
    choice: LayerChoice
    """Which ones."""
    decoder: bool = False
    """Whether they are the decoder's of a model with two stacks."""


class VocabularyPruning(Config):
    """Leave out all tokens that some texts do not use, but for special ones and single characters."""

    kind: Literal["vocabulary"] = "vocabulary"
    texts: tuple[str, ...] = Field(min_length=1)
    """Files of the texts."""


class MagnitudePruning(Config):
    """Set the weights nearest to zero to zero; the shapes stay, and nothing gets faster.

    Source: Han et al. 2015, §3, arXiv:1506.02626.
    """

    kind: Literal["magnitude"] = "magnitude"
    share: Share
    """The part of the weights that goes, rounded down."""
    scope: Literal["model", "matrix"] = "model"
    """Whether the smallest of all go, or those of every matrix."""
    where: tuple[str, ...] = ("linear",)
    """Which maps, as tunings name them, each matrix whole: `linear` is all of the stacks."""


class RankPruning(Config):
    """Make linear maps of attentions and feed-forwards products of two smaller matrices, the nearest of their rank.

    Nothing is learned; FLOP (gates before ranks) chooses them while the model learns. A map that two matrices would not
    make smaller stays as it is. Source: Eckart and Young 1936 for the nearest.
    """

    kind: Literal["ranks"] = "ranks"
    share: Share
    """The part of the parameters of these maps that goes, at least: no rank more than that takes."""
    scope: Literal["model", "matrix"] = "model"
    """Whether the ranks of the smallest squares of singular values for their parameters go, of all maps, or the same
    part of every map."""
    where: Where = ("*",)
    """The maps, by name, with `*` for any: `encoder.blocks.*.feed_forward.inner.up`."""


Pruning = Annotated[HeadPruning | NeuronPruning | LayerPruning | VocabularyPruning | MagnitudePruning | RankPruning,
                    Field(discriminator="kind")]
"""What a model loses."""
