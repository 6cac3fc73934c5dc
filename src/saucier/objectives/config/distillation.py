"""What a student learns from a teacher, as data: its losses, which layers are compared, and when. Needs no torch.

Letters: T temperature, M layers of the student, N layers of the teacher, D width.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from saucier.checkpoints.hub import locate_model
from saucier.config.base import Config
from saucier.errors import InputError
from saucier.objectives.config.stored_outputs import StoredOutputs

Pairs = tuple[tuple[int, int], ...]
"""Layers that are compared, (student's, teacher's), each counted from 1 by its block."""
Weight = Annotated[float, Field(gt=0)]
LAYERS = "distillation.layers"


class UniformLayers(Config):
    """Layer m learns from layer m · N / M, the last from the last. Source: Jiao et al. 2020 (TinyBERT), §4.1."""

    kind: Literal["uniform"] = "uniform"

    def choose(self, student: int, teacher: int) -> Pairs:
        """Return the pairs. Raises `InputError` where N is no multiple of M."""
        if teacher % student:
            raise InputError(f"{teacher} layers of the teacher are no multiple of the student's {student}",
                             where=LAYERS, remedy="use kind: listed with pairs, or top, bottom or last")
        step = teacher // student
        return tuple((layer, layer * step) for layer in range(1, student + 1))


class TopLayers(Config):
    """Each layer learns from one of the teacher's last M. Source: Jiao et al. 2020, §4.4 ("top")."""

    kind: Literal["top"] = "top"

    def choose(self, student: int, teacher: int) -> Pairs:
        """Return the pairs. Raises `InputError` for a student that is deeper."""
        require_depth(student, teacher)
        return tuple((layer, teacher - student + layer) for layer in range(1, student + 1))


class BottomLayers(Config):
    """Each layer learns from the layer of its own number. Source: Jiao et al. 2020, §4.4 ("bottom")."""

    kind: Literal["bottom"] = "bottom"

    def choose(self, student: int, teacher: int) -> Pairs:
        """Return the pairs. Raises `InputError` for a student that is deeper."""
        require_depth(student, teacher)
        return tuple((layer, layer) for layer in range(1, student + 1))


class LastLayer(Config):
    """The last learns from the last, whatever the depths. Source: Wang et al. 2020 (MiniLM), §3.1."""

    kind: Literal["last"] = "last"

    def choose(self, student: int, teacher: int) -> Pairs:
        """Return the pair."""
        return ((student, teacher),)


class ListedLayers(Config):
    """Pairs of layers, (student's, teacher's), counted from 1; one layer may stand in several."""

    kind: Literal["listed"] = "listed"
    pairs: Pairs = Field(min_length=1)
    """`[[1, 4], [2, 8]]`: the first learns from the fourth, the second from the eighth."""

    def choose(self, student: int, teacher: int) -> Pairs:
        """Return the pairs. Raises `InputError` for a layer that one of both has not."""
        for pair in self.pairs:
            for layer, depth, whose in zip(pair, (student, teacher), ("student", "teacher"), strict=True):
                if not 1 <= layer <= depth:
                    raise InputError(f"the pair {list(pair)} names layer {layer}, and the {whose} has {depth}",
                                     where=LAYERS, remedy=f"count layers from 1 to {depth}")
        return self.pairs


LayerMap = Annotated[UniformLayers | TopLayers | BottomLayers | LastLayer | ListedLayers, Field(discriminator="kind")]


def require_depth(student: int, teacher: int) -> None:
    """Raise `InputError` for a student that is deeper than its teacher."""
    if student > teacher:
        raise InputError(f"the student has {student} layers, and the teacher has {teacher}", where=LAYERS,
                         remedy="use kind: listed with pairs, or last")


class KullbackLeibler(Config):
    """Σ p · (log p − log q), p the teacher's: 0 where both agree."""

    kind: Literal["kullback_leibler"] = "kullback_leibler"


class CrossEntropy(Config):
    """Σ −p · log q (C eq 37): the divergence and the teacher's entropy, so the gradients are the same."""

    kind: Literal["cross_entropy"] = "cross_entropy"


class SquaredTemperature(Config):
    """T²: the gradients of the soft targets keep their size whatever T is. Source: Hinton et al. 2015, §2."""

    kind: Literal["squared_temperature"] = "squared_temperature"


class NoFactor(Config):
    """1, as TinyBERT's and MiniLM's losses have it."""

    kind: Literal["none"] = "none"


class TargetTokens(Config):
    """Where the objective asks for a token: hidden ones, next ones, those of the target."""

    kind: Literal["targets"] = "targets"


class EveryToken(Config):
    """Every token that is no padding, hidden or not, as in DistilBERT's code; of a single stack alone."""

    kind: Literal["every_token"] = "every_token"


class DistillationLoss(Config):
    """What all losses of a distillation say."""

    kind: str
    weight: Weight = 1.0
    """Factor on its mean."""
    reads_layers: ClassVar[bool] = False
    """Whether it compares layers by a map."""


class SoftTargets(DistillationLoss):
    """The teacher's answers: the distance of both distributions at temperature T.

    Classes, tags and choices by a softmax (C eq 36–37); labels that are true or false each by a sigmoid; numbers by the
    squared error; spans by the mean over start and end; tokens over the vocabulary.
    Source: Hinton et al. 2015, §2, arXiv:1503.02531.
    """

    kind: Literal["soft_targets"] = "soft_targets"
    temperature: float = Field(default=1.0, gt=0)
    """T, by which the logits of both are divided; that of the hard loss is 1. Numbers have none."""
    divergence: Annotated[KullbackLeibler | CrossEntropy, Field(discriminator="kind")] = KullbackLeibler()
    """How far the student's distribution is from the teacher's."""
    factor: Annotated[SquaredTemperature | NoFactor, Field(discriminator="kind")] = SquaredTemperature()
    """What the loss is multiplied by, beside its weight."""
    places: Annotated[TargetTokens | EveryToken, Field(discriminator="kind")] = TargetTokens()
    """At which tokens a language model is compared."""


class HardTargets(DistillationLoss):
    """The labels of the data: the loss of the task or objective itself, at T = 1 (C eq 38)."""

    kind: Literal["hard_targets"] = "hard_targets"
    others: Weight | None = None
    """Factor on its further parts, such as the next sentence (C eq 48: 1); None: the weight."""


class MeanSquared(Config):
    """The mean over D of squared differences (C eq 42, 46)."""

    kind: Literal["mean_squared"] = "mean_squared"


class CosineDistance(Config):
    """1 − cos of the two vectors. Source: Sanh et al. 2019 (DistilBERT), §3, arXiv:1910.01108."""

    kind: Literal["cosine"] = "cosine"


class HiddenStates(DistillationLoss):
    """The vectors that layers give: H_S · W_h against H_T (C eq 42), feature maps (C eq 46), DistilBERT's cosine.

    W_h, of shape D_S × D_T (the survey prints another), is learned where the widths differ and shared by all layers of
    this loss; it is no part of the model that is saved. The sum over layers of the mean over tokens.
    Source: Jiao et al. 2020 (TinyBERT), §3, eq 8; Sun et al. 2020 (MobileBERT), §3.4.
    """

    kind: Literal["hidden_states"] = "hidden_states"
    distance: Annotated[MeanSquared | CosineDistance, Field(discriminator="kind")] = MeanSquared()
    """How two vectors are compared."""
    layers: LayerMap | None = None
    """Which; None: as the distillation says."""
    reads_layers: ClassVar[bool] = True


class Embeddings(DistillationLoss):
    """What the first layer reads: the mean over tokens of the squared error of E_S · W_e against E_T (C eq 43).

    Source: Jiao et al. 2020 (TinyBERT), §3, eq 9.
    """

    kind: Literal["embeddings"] = "embeddings"


class ScoresError(Config):
    """The mean squared error of the scores before the softmax, pairs that nobody sees counting as equal (C eq 41).

    TinyBERT's own choice: "unnormalized" scores converge faster. Source: Jiao et al. 2020, §3, eq 7.
    """

    kind: Literal["scores"] = "scores"


class MapsError(Config):
    """The mean squared error of the weights after the softmax (C eq 41, read literally)."""

    kind: Literal["maps"] = "maps"


class MapsDivergence(Config):
    """The Kullback-Leibler divergence of the weights, teacher's first, as a mean over queries and heads (C eq 47).

    Source: Sun et al. 2020 (MobileBERT), §3.4; Wang et al. 2020 (MiniLM), §3.1.
    """

    kind: Literal["divergence"] = "divergence"


class EqualHeads(Config):
    """Head i learns from head i; both have as many."""

    kind: Literal["equal"] = "equal"


class GroupedHeads(Config):
    """Each head learns from the mean of as many neighbouring heads of the teacher, who has a multiple of them."""

    kind: Literal["grouped"] = "grouped"


class MeanHeads(Config):
    """The mean of all heads learns from the mean of all heads."""

    kind: Literal["mean"] = "mean"


class Attentions(DistillationLoss):
    """What tokens attend to, layer by layer: the sum over layers of a mean over heads. No weights of its own."""

    kind: Literal["attentions"] = "attentions"
    compare: Annotated[ScoresError | MapsError | MapsDivergence, Field(discriminator="kind")] = ScoresError()
    """What is compared, and how."""
    heads: Annotated[EqualHeads | GroupedHeads | MeanHeads, Field(discriminator="kind")] = EqualHeads()
    """Which head learns from which."""
    layers: LayerMap | None = None
    """Which; None: as the distillation says."""
    reads_layers: ClassVar[bool] = True


Vectors = Literal["queries", "keys", "values"]


class ValueRelations(DistillationLoss):
    """softmax(V Vᵀ / √E) of each head: the divergence, teacher's first, as a mean over queries and heads.

    Widths may differ: relations are L × L. Source: Wang et al. 2020 (MiniLM), §3.2, arXiv:2002.10957.
    """

    kind: Literal["value_relations"] = "value_relations"
    heads: int | None = Field(default=None, gt=0)
    """Pieces that all values of a token are cut into; None: the heads of the values, of which both have as many."""
    layers: LayerMap = LastLayer()
    """Which; MiniLM compares the last alone."""
    reads_layers: ClassVar[bool] = True
    vectors: ClassVar[tuple[Vectors, ...]] = ("values",)
    """What relations are made of."""


class AttentionRelations(DistillationLoss):
    """The same of queries, keys and values each, cut into as many relation heads on both sides; the sum of them.

    They are taken as the maps give them, before positions turn them.
    Source: Wang et al. 2021 (MiniLMv2), §3, arXiv:2012.15828.
    """

    kind: Literal["attention_relations"] = "attention_relations"
    heads: int = Field(default=48, gt=0)
    """Relation heads: pieces that all queries (keys, values) of a token are cut into."""
    vectors: tuple[Vectors, ...] = Field(default=("queries", "keys", "values"), min_length=1)
    """What relations are made of."""
    layers: LayerMap = LastLayer()
    """Which; of a deep teacher MiniLMv2 takes one of the upper layers, as `listed` pairs."""
    reads_layers: ClassVar[bool] = True


class CosineMatrix(Config):
    """The mean squared error of the cosines of all texts of a row's group; widths may differ without a map."""

    kind: Literal["cosine_matrix"] = "cosine_matrix"


class TextVectors(DistillationLoss):
    """The vectors of whole texts by a head of kind embedding. W is learned where their widths differ.

    Source: Reimers and Gurevych 2020, §3, arXiv:2004.09813 (mean squared error).
    """

    kind: Literal["text_vectors"] = "text_vectors"
    distance: Annotated[MeanSquared | CosineDistance | CosineMatrix, Field(discriminator="kind")] = MeanSquared()
    """How they are compared."""


Loss = Annotated[SoftTargets | HardTargets | HiddenStates | Embeddings | Attentions | ValueRelations
                 | AttentionRelations | TextVectors, Field(discriminator="kind")]


class Auxiliary(Config):
    """All losses in every update. Source: Sun et al. 2020 (MobileBERT), §3.5 ("auxiliary knowledge transfer")."""

    kind: Literal["auxiliary"] = "auxiliary"


class Joint(Config):
    """First what is inside, all layers together; then the targets alone. Source: Sun et al. 2020, §3.5."""

    kind: Literal["joint"] = "joint"
    transfer: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of the training that the first stage has."""


class Progressive(Config):
    """First the embeddings and one layer after the other, those below frozen; then the targets alone.

    Each stage is one pair of layers, in the order of the student's; all have the same number of steps. Everything
    learns again with the targets. Source: Sun et al. 2020, §3.5 (there lower layers may keep a small rate; C VI-A.3).
    """

    kind: Literal["progressive"] = "progressive"
    transfer: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of the training that all these stages have together."""


class Distillation(Config):
    """A student learns from a teacher, who stays as it is and is no part of what is saved.

    By default 0.9 of soft targets at T = 2 and 0.1 of the labels (C eq 39: α ≫ β, α + β = 1).
    """

    teacher: str | None = None
    """The folder or run of the teacher; a recipe may leave it to whoever cooks it."""
    losses: tuple[Loss, ...] = Field(default=(SoftTargets(weight=0.9, temperature=2.0), HardTargets(weight=0.1)),
                                     min_length=1)
    """What is learned, added up."""
    layers: LayerMap = UniformLayers()
    """Which layer of the student learns from which of the teacher, where a loss does not say so itself."""
    schedule: Annotated[Auxiliary | Joint | Progressive, Field(discriminator="kind")] = Auxiliary()
    """When each is learned."""
    stored: StoredOutputs | None = None
    """Compute what the teacher gives once, and keep it on the disk; None: the teacher reads every batch again."""

    def named(self) -> Iterator[tuple[str, Loss]]:
        """Yield each loss with its name in reports: its kind, and a number where there are several of it."""
        kinds = [one.kind for one in self.losses]
        for number, one in enumerate(self.losses):
            before = kinds[:number].count(one.kind)
            yield f"{one.kind}_{before + 1}" if before else one.kind, one

    def located(self) -> Distillation:
        """Return it with its teacher, and where outputs are kept, named so that they mean the same from everywhere."""
        found = self if self.teacher is None else self.model_copy(update={"teacher": locate_model(self.teacher)})
        return found if found.stored is None else found.model_copy(update={"stored": found.stored.located()})

    def keep_outputs_in(self, folder: Path) -> Distillation:
        """Return it with a place for what the teacher gives, where that is to be kept and has none."""
        if self.stored is None or self.stored.folder is not None:
            return self
        return self.model_copy(update={"stored": self.stored.model_copy(update={"folder": str(folder.absolute())})})

    def map_of(self, loss: Loss) -> LayerMap:
        """Return which layers a loss compares."""
        found: LayerMap | None = getattr(loss, "layers", None)
        return self.layers if found is None else found
