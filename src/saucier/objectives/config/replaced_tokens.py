"""Replaced-token detection, as data, and the generator's architecture, which is derived from the model's: the same
parts, narrower and shallower, with a language head. Needs no torch. Letters: D dim.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from saucier import config as c
from saucier.config.base import Config
from saucier.errors import InputError
from saucier.objectives.config.masked import Masked, check_inner_masking
from saucier.objectives.config.single_objective import Mismatch, ObjectiveSetting, SingleObjective
from saucier.text.rows.kinds import RowRequest

Share = Annotated[float, Field(gt=0, le=1)]


class OwnTables(Config):
    """Generator and model have nothing in common."""

    kind: Literal["none"] = "none"


class SharedTables(Config):
    """Both read the same tables of tokens, positions and segments. Source: Clark et al. 2020, §3.2."""

    kind: Literal["tables"] = "tables"


class SharedAll(Config):
    """Both have one embedding and one encoder; only the heads differ. Source: Clark et al. 2020, §3.2."""

    kind: Literal["all"] = "all"


class Disentangled(Config):
    """The model's tables are the generator's plus a difference, which alone learns from the model's loss.

    Source: He et al. 2023 (DeBERTa-v3), §3.3 (gradient-disentangled embedding sharing), arXiv:2111.09543.
    """

    kind: Literal["disentangled"] = "disentangled"


class Generator(Config):
    """The small model that fills tokens in: the model's own parts, narrower and shallower."""

    width: Share = 0.25
    """Its width (vectors, heads and feed-forward layers), as a share of the model's."""
    depth: Share = 1.0
    """Its layers, as a share of the model's."""
    sharing: Annotated[OwnTables | SharedTables | SharedAll | Disentangled, Field(discriminator="kind")] = (
        SharedTables())
    """What it has in common with the model."""


class EveryToken(Config):
    """Was this token replaced? Asked of every real token. Source: Clark et al. 2020, §2."""

    kind: Literal["every_token"] = "every_token"


class ChosenTokens(Config):
    """Was this token replaced? Asked of the chosen ones alone. Source: Clark et al. 2020, §3.4, "ELECTRA 15%"."""

    kind: Literal["chosen_tokens"] = "chosen_tokens"


class Originals(Config):
    """What was this token? Asked of the chosen ones, by a language head. Source: same, §3.4, "Replace MLM"."""

    kind: Literal["originals"] = "originals"


class Together(Config):
    """Generator and model learn in every update. Source: Clark et al. 2020, §2."""

    kind: Literal["together"] = "together"


class TwoStages(Config):
    """First the generator learns alone; the model begins with its weights and learns from it as it then is.

    Source: Clark et al. 2020, §3.2.
    """

    kind: Literal["two_stages"] = "two_stages"
    first: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of the training that the generator has."""


class Replaced(SingleObjective):
    """Tell the tokens that a generator has filled in from the true ones. Source: Clark et al. 2020, arXiv:2003.10555.

    The generator learns to fill in hidden tokens; what it draws for them is given to the model.
    """

    kind: Literal["replaced"] = "replaced"
    bodies: ClassVar[tuple[str, ...]] = ("encoder",)
    masking: Masked = Masked(mask=0.85, random=0.0)
    """Which tokens are chosen, and what the generator sees of them; a token that it sees is drawn anew too.

    The paper's text hides all of them, its code 85%.
    """
    generator: Generator = Generator()
    """Its size, and what it shares."""
    learns: Annotated[EveryToken | ChosenTokens | Originals, Field(discriminator="kind")] = EveryToken()
    """What the model is asked."""
    weight: float = Field(default=50.0, gt=0)
    """Factor on the model's loss beside the generator's (λ). Source: Clark et al. 2020, appendix A."""
    stages: Annotated[Together | TwoStages, Field(discriminator="kind")] = Together()
    """Who learns when."""

    @property
    def rows_read(self) -> RowRequest:
        """Those of the masking."""
        return self.masking.rows_read

    def check_parts(self, model: c.Transformer) -> Iterator[Mismatch]:
        """Can there be a generator beside the model, and is all else as replaced-token detection wants it?"""
        try:
            derive_generator(model, self)
        except InputError as error:
            where = error.where or ""
            path = where.split(".") if where.startswith("objective") else ("objective", "generator")
            yield Mismatch(tuple(path), error.what, error.remedy or "change the model")
        for name in ("next_sentence", "sentence_order", "boundary"):
            if getattr(self.masking, name) is not None:
                inside = ("choice", name) if name == "boundary" else (name,)
                yield Mismatch(("masking", *inside), "nothing is learned beside replaced tokens", "set it to null",
                               own=True)

    def check_head(self, model: c.Transformer) -> Iterator[Mismatch]:
        """Does the head answer what the model is asked?"""
        if isinstance(self.learns, Originals):
            yield from super().check_head(model)
        elif not isinstance(model.head, c.ReplacedTokenHead):
            yield Mismatch(("model", "head"), "replaced needs a head that gives one logit for each token",
                           "use head: {kind: replaced_token}")

    def check_tokens(self, setting: ObjectiveSetting) -> Iterator[Mismatch]:
        """As the masking."""
        return self.masking.check_tokens(setting)

    def check_text(self, setting: ObjectiveSetting) -> Iterator[Mismatch]:
        """As the masking, which is a part of it."""
        return check_inner_masking(self.masking, setting)


def derive_generator(body: c.Transformer, objective: Replaced) -> c.Transformer:
    """Return the generator for a model. Raises `InputError` for a body or a size that gives none.

    The heads keep their width where they can. Its tables are as wide as the model's, so that they can be shared; a map
    takes them to its own width, and the words are told by the table too. Source: Clark et al. 2020, §3.2 and table 6.
    """
    size = objective.generator
    alike = isinstance(size.sharing, SharedAll) or isinstance(objective.stages, TwoStages)  # it has all weights
    if alike and (size.width, size.depth) != (1, 1):
        raise InputError("a generator with all the model's weights is as large as the model",
                         where="objective.generator", remedy="use width: 1 and depth: 1")
    if body.encoder is None or body.decoder is not None:
        raise InputError("only an encoder has a generator beside it", where="objective.kind",
                         remedy="use the model's encoder alone")
    attentions = (residual.inner for block in body.encoder.blocks() for residual in block.sublayers
                  if isinstance(residual.inner, c.SelfAttention))
    heads = scale_count(next((one.projection.heads for one in attentions), 1), size.width)
    dim = heads * round(body.dim * size.width / heads) if size.width < 1 else body.dim
    width = body.embed.widths(body.dim)[0]
    projection = None if width == dim else body.embed.projection or c.ProjectNarrow(kind="normed", width=width)
    found = body.model_copy(update={
        "dim": dim, "embed": body.embed.model_copy(update={"projection": projection}), "pooler": None,
        "encoder": body.encoder.model_copy(update={"layers": body.encoder.layers.resized(
            lambda block: shrink_block(block, size), lambda times: scale_count(times, size.depth))})})
    # its words are told at the width of the token table, to which the output is tied
    table = c.Transform(width=found.embed.widths(dim)[0], norm=found.embed.norm or c.LayerNorm())
    found = found.model_copy(update={"head": c.LanguageHead(bias=True, transform=table)})
    c.check(found)
    return found


def scale_count(count: int, share: float) -> int:
    """Return a share of a number, one at least."""
    return max(1, round(count * share))


def shrink_block(block: c.Block, size: Generator) -> c.Block:
    """Return a block whose sublayers are narrower."""
    if size.width == 1:
        return block
    if block.bottleneck is not None:
        raise InputError("blocks with a bottleneck cannot be made narrower", where="objective.generator.width",
                         remedy="use width: 1")
    return block.model_copy(update={"sublayers": tuple(
        one.model_copy(update={"inner": shrink_sublayer(one.inner, size.width)}) for one in block.sublayers)})


def shrink_sublayer(part: c.Sublayer, share: float) -> c.Sublayer:
    """Return a sublayer with a share of its heads or hidden units. Raises `InputError` for one of another kind."""
    match part:
        case c.SelfAttention(projection=old):
            kv = None if old.kv_heads is None else scale_count(old.kv_heads, share)
            new = old.model_copy(update={"heads": scale_count(old.heads, share), "kv_heads": kv})
            return part.model_copy(update={"projection": new})
        case c.FeedForward(hidden=hidden) | c.GatedFeedForward(hidden=hidden):
            return part.model_copy(update={"hidden": scale_count(hidden, share)})
        case _:
            raise InputError(f"sublayers of kind {part.kind} cannot be made narrower",
                             where="objective.generator.width", remedy="use width: 1")
