"""The heads of a model as data: for tokens, labels, spans, choices and text vectors."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.config.counting import Node
from saucier.config.layers import Activation
from saucier.config.norms import LayerNorm, Norm, Probability
from saucier.config.pooling import DenseMap, Pick, PickVector, Pooling
from saucier.config.registry import OpenSlot


class AdaptiveHead(Config):
    """Log probabilities in two steps: one of the first cluster's tokens or a cluster, then a token of that cluster.

    Source: Grave et al. 2017, §4, arXiv:1609.04309; Dai et al. 2019, §4.1, arXiv:1901.02860.
    """

    kind: Literal["adaptive"] = "adaptive"
    cutoffs: tuple[int, ...] = Field(min_length=1)
    """The first token of every cluster but the first."""
    width: int = Field(gt=0)
    """Width of the vectors that meet the first cluster's output matrix."""
    division: int = Field(default=1, gt=0)
    """Each cluster's vectors are narrower than those of the one before by this factor; 1: all are equally wide."""
    tied: bool = True
    """Use the embedding's tables as output matrices. Source: Press and Wolf 2017, arXiv:1608.05859."""
    tied_maps: tuple[bool, ...] = ()
    """Whether each cluster's map to its width is the embedding's, too."""

    def widths(self) -> list[int]:
        """Return the width of each cluster's vectors."""
        return [self.width // self.division**cluster for cluster in range(len(self.cutoffs) + 1)]

    def maps(self, dim: int) -> bool:
        """Say whether hidden vectors of width `dim` pass through a map before they meet an output matrix."""
        return self.division > 1 or self.width != dim


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


class Transform(Config):
    """A dense layer, an activation and a norm before an output map. Source: Devlin et al. 2019, code release."""

    width: int | None = Field(default=None, gt=0)
    """Width of the dense layer's output; None: as wide as its input."""
    activation: Activation = "gelu"
    """What follows the dense layer."""
    norm: Norm | None = None
    """The norm before the output map."""
    bias: bool = True
    """Bias on the dense layer."""
    dropout: Probability = 0.0
    """Dropout on what the dense layer reads."""


class UnmaskedPrediction(Config):
    """Predictions for which no mask token need stand in the place of the next one.

    - next: the logits at a token are those of the token after it. Source: Radford et al. 2018, §3.1;
    - query_stream: the logits at a place are those of its token, read by a query that knows the place and not the
      token; to write, any token stands where the next one will, hidden from all. Source: Yang et al. 2019 (XLNet),
      §2.3, arXiv:1906.08237.
    """

    kind: Literal["next", "query_stream"]


class InPlace(Config):
    """The logits at a token are those of the token itself: to write, a mask token stands where the next one will.

    Source: Lample and Conneau 2019 (XLM), code release, arXiv:1901.07291.
    """

    kind: Literal["in_place"] = "in_place"
    mask: int = Field(ge=0)
    """The token that stands where one is to be written."""
    language: int | None = Field(default=None, ge=0)
    """The language of what is written, where the embedding knows languages; None: none is told."""


class WholeText(Config):
    """The logits at a token are those of the token itself, in a decoder that sees both ways: a text is written whole,
    over mask tokens, and the tokens that are least sure are written again.

    Source: Ghazvininejad et al. 2019 (Mask-Predict), §2 and §3, arXiv:1904.09324.
    """

    kind: Literal["whole_text"] = "whole_text"
    mask: int = Field(ge=0)
    """The token that stands where one is to be written."""


Predicts = Annotated[UnmaskedPrediction | InPlace | WholeText, Field(discriminator="kind")]
"""Which token the logits at a position speak of: how a model with this head writes."""


class LanguageHead(Config):
    """Hidden vectors to one logit for each token of the vocabulary."""

    kind: Literal["language"] = "language"
    tied: bool = True
    """Use the token embedding's table as the output matrix. Source: Press and Wolf 2017, arXiv:1608.05859."""
    columns: int = Field(default=0, ge=0)
    """Trained columns beside those of a tied table that is narrower. Source: Sun et al. 2020, release of MobileBERT."""
    bias: bool = False
    """A trained bias for every token."""
    transform: Transform | None = None
    """What stands before the output matrix (BERT)."""
    scale: float = Field(default=1.0, gt=0)
    """Factor on the hidden vectors before the output matrix (tied T5: one over the square root of `dim`)."""
    predicts: Predicts = UnmaskedPrediction(kind="next")
    """Which token the logits at a position speak of, where the model writes."""


class PretrainingHead(Config):
    """A language head and a classifier of the pooled first token (next sentence, sentence order).

    Source: Devlin et al. 2019, §3.1; Lan et al. 2020 (ALBERT), §3.1, arXiv:1909.11942.
    """

    kind: Literal["pretraining"] = "pretraining"
    language: LanguageHead = LanguageHead()
    """The head that predicts tokens."""
    classes: int = Field(default=2, gt=0)
    """Classes of the sentence pair."""
    dropout: Probability = 0.0
    """Dropout on the pooled vector."""


class LengthHead(Config):
    """A language head of an encoder-decoder that writes whole texts, and a classifier of the target's length.

    The length is read off the source's pooled first token, which stands for nothing else.
    Source: Ghazvininejad et al. 2019 (Mask-Predict), §3.1 "predicting target sequence length", arXiv:1904.09324.
    """

    kind: Literal["length"] = "length"
    language: LanguageHead
    """The head that predicts tokens, each in its own place."""
    longest: int = Field(default=256, gt=0)
    """The longest target, in tokens, that can be predicted."""


class BidirectionalHead(Config):
    """A language head that reads the first half of each vector for the next token, the second half for the one before.

    Source: Peters et al. 2018 (ELMo), §3.1, arXiv:1802.05365: both directions share the softmax layer.
    """

    kind: Literal["bidirectional"] = "bidirectional"
    language: LanguageHead = LanguageHead()
    """The head of both halves."""


class ClassificationHead(Config):
    """One logit a class for a whole input; one class is a regression."""

    kind: Literal["classification"] = "classification"
    pick: Pick = PickVector(kind="pooled")
    """Where the input's vector is taken."""
    transform: Transform | None = None
    """What stands before the output map."""
    classes: int = Field(default=2, gt=0)
    """Number of labels."""
    bias: bool = True
    """Bias on the output map."""
    dropout: Probability = 0.0
    """Dropout on what the output map reads."""


class TokenHead(Config):
    """One logit a class for every token."""

    kind: Literal["token_classification"] = "token_classification"
    transform: Transform | None = None
    """What stands before the output map."""
    classes: int = Field(default=2, gt=0)
    """Number of labels."""
    bias: bool = True
    """Bias on the output map."""
    dropout: Probability = 0.0
    """Dropout on what the output map reads."""


class SpanHead(Config):
    """Two logits for every token: an answer starts here, and ends here.

    Source: Devlin et al. 2019, §4.2.
    """

    kind: Literal["span"] = "span"
    transform: Transform | None = None
    """What stands before the output map."""
    bias: bool = True
    """Bias on the output map."""
    dropout: Probability = 0.0
    """Dropout on what the output map reads."""


class ChoiceHead(Config):
    """One logit for each of several inputs that answer the same question. Source: Radford et al. 2018, §3.3.

    The ids of such a model are [B, choices, L].
    """

    kind: Literal["multiple_choice"] = "multiple_choice"
    pick: Pick = PickVector(kind="pooled")
    """Where the input's vector is taken."""
    transform: Transform | None = None
    """What stands before the output map."""
    bias: bool = True
    """Bias on the output map."""
    dropout: Probability = 0.0
    """Dropout on what the output map reads."""
    activation: Activation = "identity"
    """What follows the output map (GPT's summaries may have one)."""


class ReplacedTokenHead(Config):
    """One logit for every token: it was replaced. Source: Clark et al. 2020 (ELECTRA), §3.1, arXiv:2003.10555."""

    kind: Literal["replaced_token"] = "replaced_token"
    transform: Transform | None = Transform()
    """What stands before the output map."""


class DoubleHead(Config):
    """A language head, and one logit for each of several inputs. Source: Radford et al. 2018, §3.2, eq 5.

    The ids of such a model are [B, choices, L].
    """

    kind: Literal["double"] = "double"
    language: LanguageHead = LanguageHead()
    """The head that predicts tokens."""
    choice: ChoiceHead = ChoiceHead(pick=PickVector(kind="chosen"))
    """The head that scores the inputs."""


class EmbeddingHead(Config):
    """One vector for a text, by which texts are compared.

    Where the batch holds candidates (`candidate_input_ids`), they get vectors too, and each a score, the inner product.
    Source: Reimers and Gurevych 2019, §3, arXiv:1908.10084; Karpukhin et al. 2020 (DPR), §3.1, arXiv:2004.04906;
    Guu et al. 2020 (REALM), §3.2, arXiv:2002.08909.
    """

    kind: Literal["embedding"] = "embedding"
    pooling: tuple[Pooling, ...] = Field(default=(Pooling(kind="mean"),), min_length=1)
    """Each gives a vector; several stand side by side."""
    maps: tuple[DenseMap, ...] = ()
    """Maps of the pooled vector, in order."""
    norm: Norm | None = None
    """The norm after the maps."""
    normalize: bool = True
    """Scale the vector to length one."""
    length: int | None = Field(default=None, gt=0)
    """Longest text, in tokens, that the head was trained on; `embed` cuts longer ones."""
    language: LanguageHead | None = None
    """A language head that stands beside it for pretraining, and takes no part in the vector."""

    def widths(self, dim: int) -> list[int]:
        """Return the widths of the vector: pooled, and after each map."""
        return [dim * len(self.pooling), *(one.width for one in self.maps)]


class ReaderHead(Config):
    """Two logits for every token, an answer starts here and ends here, and one for the text: it holds the answer.

    Source: Karpukhin et al. 2020 (DPR), §6.1, eq 3–5, arXiv:2004.04906.
    """

    kind: Literal["reader"] = "reader"
    pick: Pick = PickVector(kind="first")
    """Where the text's vector is taken."""


class JointSpanHead(Config):
    """One logit for every span of tokens, by a feed-forward over the vectors of its first and its last token.

    Source: Lee et al. 2019 (ORQA), §3 (eq 67–69), arXiv:1906.00300; its layers, and what is 10 and 256, by the code
    release.
    """

    kind: Literal["joint_span"] = "joint_span"
    longest: int = Field(default=10, gt=0)
    """Most tokens of a span."""
    hidden: int = Field(default=256, gt=0)
    """Width between the two maps of the feed-forward."""
    activation: Activation = "relu"
    """What follows the first map."""
    norm: Norm = LayerNorm(eps=1e-3)
    """The norm after the activation."""
    dropout: Probability = 0.0
    """Dropout on what the first map reads."""


class CustomHead(Config):
    """The slot of a head from outside: what it refuses, what it costs, and what it reads and gives.

    A new one is a subclass with its own `kind`, registered with what builds, from (config, dim, the embedding's
    table), a module with a method `answer(reading)` that returns fields of `Output` by name; any other name stands in
    `Output.more`.
    """

    slot: ClassVar[str] = "head"
    """What `register` knows the slot by."""
    kind: str
    token_logits: ClassVar[bool] = False
    """Whether its `logits` are of the next token at each place: called with vectors [..., D], it gives [..., V]."""

    @property
    def picks(self) -> tuple[Pick | Pooling, ...]:
        """Where it looks for one vector of a text, so that a pooler is asked for, and padding left in its place."""
        return ()

    def check(self, dim: int, vocab: int) -> None:
        """Raise `InputError` for a width, or settings, that it cannot work with."""

    def nodes(self, dim: int, vocab: int) -> list[Node]:
        """Return its weights, and its work for each token."""
        return []


Head = Annotated[
    LanguageHead | PretrainingHead | LengthHead | BidirectionalHead | ClassificationHead | TokenHead | SpanHead
    | ChoiceHead | ReplacedTokenHead | DoubleHead | AdaptiveHead | EmbeddingHead | QuestionSpanHead | ReaderHead
    | JointSpanHead | CustomHead,
    OpenSlot("head")]
