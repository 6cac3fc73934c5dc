"""The small model beside the one that learns: the same parts, narrower and shallower, with a language head. No torch.

Letters: D dim.
"""

from __future__ import annotations

from saucier import config as c
from saucier.errors import InputError
from saucier.objectives.config import Generator, SharedAll, TwoStages
from saucier.objectives.config.replaced import Replaced

Layers = c.Repeat | c.Cycle | c.Share


def generator_of(body: c.Transformer, objective: Replaced) -> c.Transformer:
    """Return the generator for a model. Raises `InputError` for a body or a size that gives none.

    The heads keep their width where they can. Its tables are as wide as the model's, so that they can be shared; a map
    takes them to its own width, and the words are told by the table too. Source: Clark et al. 2020, §3.2 and table 6.
    """
    size = objective.generator
    refuse_other_size(objective)
    if body.encoder is None or body.decoder is not None:
        raise InputError("only an encoder has a generator beside it", where="objective.kind",
                         remedy="use the model's encoder alone")
    heads = fewer(first_heads(body), size.width)
    dim = heads * round(body.dim * size.width / heads) if size.width < 1 else body.dim
    found = body.model_copy(update={
        "dim": dim, "embed": narrowed(body.embed, body.embed.widths(body.dim)[0], dim), "pooler": None,
        "encoder": body.encoder.model_copy(update={"layers": smaller_layers(body.encoder.layers, size)})})
    found = found.model_copy(update={"head": telling_words(found)})
    c.check(found)
    return found


def refuse_other_size(objective: Replaced) -> None:
    """Raise `InputError` where a smaller generator cannot have what it should: the model's own weights."""
    size = objective.generator
    whole = isinstance(size.sharing, SharedAll) or isinstance(objective.stages, TwoStages)
    if whole and (size.width, size.depth) != (1, 1):
        where = "objective.generator"
        raise InputError("a generator with all the model's weights is as large as the model", where=where,
                         remedy="use width: 1 and depth: 1")


def telling_words(tree: c.Transformer) -> c.LanguageHead:
    """Return the head that tells words: back to the width of the token table, to which the output is tied."""
    width = tree.embed.widths(tree.dim)[0]
    return c.LanguageHead(bias=True, transform=c.Transform(width=width, norm=tree.embed.norm or c.LayerNorm()))


def first_heads(body: c.Transformer) -> int:
    """Return the heads of the first attention; 1 where there is none."""
    inner = [residual.inner for block in (body.encoder.blocks() if body.encoder else ()) for residual in
             block.sublayers]
    return next((part.projection.heads for part in inner if isinstance(part, c.SelfAttention)), 1)


def fewer(count: int, share: float) -> int:
    """Return a share of a number, one at least."""
    return max(1, round(count * share))


def narrowed(embed: c.Embedding, table: int, dim: int) -> c.Embedding:
    """Return an embedding with tables of this width before a stream of `dim`."""
    if table == dim:
        return embed.model_copy(update={"projection": None})
    return embed if embed.projection else embed.model_copy(update={"projection": c.ProjectNormed(width=table)})


def smaller_layers(layers: Layers, size: Generator) -> Layers:
    """Return fewer and narrower layers."""
    times = fewer(layers.times, size.depth)
    match layers:
        case c.Cycle(blocks=blocks):
            return layers.model_copy(update={"blocks": tuple(smaller_block(one, size) for one in blocks),
                                             "times": times})
        case c.Repeat(block=block) | c.Share(block=block):
            return layers.model_copy(update={"block": smaller_block(block, size), "times": times})


def smaller_block(block: c.Block, size: Generator) -> c.Block:
    """Return a block whose sublayers are narrower."""
    if size.width == 1:
        return block
    if block.bottleneck is not None:
        raise InputError("blocks with a bottleneck cannot be made narrower", where="objective.generator.width",
                         remedy="use width: 1")
    return block.model_copy(update={"sublayers": tuple(
        one.model_copy(update={"inner": smaller_part(one.inner, size.width)}) for one in block.sublayers)})


def smaller_part(part: c.Sublayer, share: float) -> c.Sublayer:
    """Return a sublayer with a share of its heads or hidden units. Raises `InputError` for one of another kind."""
    match part:
        case c.SelfAttention(projection=old):
            kv = None if old.kv_heads is None else fewer(old.kv_heads, share)
            new = old.model_copy(update={"heads": fewer(old.heads, share), "kv_heads": kv})
            return part.model_copy(update={"projection": new})
        case c.FeedForward(hidden=hidden) | c.GatedFeedForward(hidden=hidden):
            return part.model_copy(update={"hidden": fewer(hidden, share)})
        case _:
            raise InputError(f"sublayers of kind {part.kind} cannot be made narrower",
                             where="objective.generator.width", remedy="use width: 1")
