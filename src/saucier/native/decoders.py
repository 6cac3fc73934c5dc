"""A whole decoder lowered: what makes vectors of tokens, the stack, and what makes scores of the last vectors.

Every weight must find its place in the plan, so that nothing is left out silently.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from saucier import config as c
from saucier.config.questions import find_shared_positions
from saucier.native.lowering import Lowering, Tables, first_row, refuse
from saucier.native.matrices import Weights, store_matrix
from saucier.native.plan import NORMED, OTHER, SCORES, STREAM, Plan

WIDENED = {"tokens": 1, "sum": 3, "normed": 4, "undropped": 4}
"""Kind of a projection of narrow tables -> after how many of the stages of `lower_embedding` it stands."""


class Stage(Protocol):
    """A part of an embedding, which is appended to a plan."""

    def __call__(self, lowering: Lowering, embed: c.Embedding, name: str, *, to: int, width: int) -> None:
        """Append it; its vectors of `width` numbers are in the buffer `to`."""


def lower(config: c.Transformer, weights: Weights, tables: Tables, places: int) -> Plan:
    """Return the plan of a decoder for rows of up to `places` tokens.

    Raises `InputError` for parts that the kernels do not have, and for weights that the plan has no place for.
    """
    stack, head = config.decoder, config.language_head
    if stack is None:
        refuse("encoder")
    if head is None:
        refuse(f"head of kind {config.head.kind}" if config.head else "model without a head")
    lowering = Lowering(config, weights, tables, places)
    name = "embed" if config.decoder_embed is None else "decoder_embed"
    try:
        lower_embedding(lowering, config.output_embed, name, add_first_segment)
        lowering.run_stack(stack)
        lower_head(lowering, head, "head" if head is config.head else "head.language", stack=stack)
    except KeyError as error:
        refuse(f"way to use the model without a plain {error.args[0]}")
    if left := sorted(one for one in weights.arrays.keys() - lowering.used if not is_read_elsewhere(one, config)):
        refuse(f"place for the weight {left[0]}" + (f" and {len(left) - 1} more" if len(left) > 1 else ""))
    return lowering.plan()


def is_read_elsewhere(name: str, config: c.Transformer) -> bool:
    """Say whether a weight is no part of what writes: an encoder's, another head's, or in a table made beforehand."""
    found: list[str] = []
    if config.encoder is not None:
        found += ["encoder.", "source.", "mix.", "pooler.", *(["embed."] if config.decoder_embed is not None else [])]
    if config.language_head is not config.head:
        found += ["pooler.", "head."]
    if config.decoder is not None and find_shared_positions(config.decoder):
        found.append("decoder.shared.")
    return name.startswith(tuple(found)) and not name.startswith("head.language.")


def lower_embedding(lowering: Lowering, embed: c.Embedding, name: str, add_segments: Stage) -> None:
    """Append what makes vectors of tokens: their own, what is added to these, the norm; the map is between."""
    if embed.characters is not None:
        refuse("network that reads characters")
    buffer, width = STREAM, lowering.config.dim
    if embed.projection is not None:
        if not isinstance(embed.projection, c.ProjectNarrow) or embed.projection.kind not in WIDENED:
            refuse(f"embedding of kind {embed.projection.kind}")
        buffer, width = NORMED, embed.projection.width
    for number, stage in enumerate((embed_tokens, add_positions, add_segments, embed_norm), 1):
        stage(lowering, embed, name, to=buffer, width=width)
        if embed.projection is not None and WIDENED[embed.projection.kind] == number:
            lowering.product(f"{name}.project", (width, lowering.config.dim), NORMED, STREAM)
            buffer, width = STREAM, lowering.config.dim


def embed_tokens(lowering: Lowering, embed: c.Embedding, name: str, *, to: int, width: int) -> None:
    """Append the look-up of tokens."""
    lowering.add("embed", f"{name}.tokens", source=to, to=to, width=width, scale=embed.scale,
                 matrix=lowering.table(f"{name}.tokens", width, embed.vocab))


def add_positions(lowering: Lowering, embed: c.Embedding, name: str, *, to: int, width: int) -> None:
    """Append the addition of positions."""
    name = f"{name}.positions"
    match embed.positions:
        case c.NoPositions():
            pass
        case c.Learned(places=places):
            lowering.add_places(name, lowering.table(name, width, 1), places, to)
        case c.Sinusoidal(places=places) as waves:
            table = lowering.tables.waves(waves, lowering.places + first_row(places)[0], width)
            lowering.add_places(name, store_matrix(table, "float32"), places, to)
        case c.Axial(places=places):
            rows, columns = (lowering.vector(f"{name}.{one}") for one in ("rows", "columns"))
            assert rows is not None and columns is not None, "the part has both"
            grid = np.concatenate([np.repeat(rows, len(columns), 0), np.tile(columns, (len(rows), 1))], 1)
            if grid.shape[1] != width:
                refuse(f"grid of {grid.shape[1]} numbers in place of {name}")
            lowering.add_places(name, store_matrix(grid, "float32"), places, to)


def add_first_segment(lowering: Lowering, embed: c.Embedding, name: str, *, to: int, width: int) -> None:
    """Append the addition of the vector of the first segment, to which all tokens that are written belong."""
    match embed.segments:
        case None | c.TablelessSegments(kind="tokens"):
            pass
        case c.SegmentTable(otherwise=c.OneSegment()) | c.FirstSegment():
            first = lowering.table(f"{name}.segments", width, 1).values()[0].astype(np.float32)
            lowering.add("shift", f"{name}.segments", source=to, to=to, width=width, arrays={"bias": first})
        case _:
            refuse(f"segments of kind {embed.segments.kind}")


def embed_norm(lowering: Lowering, embed: c.Embedding, name: str, *, to: int, width: int) -> None:
    """Append the norm of the sum."""
    if embed.norm is not None:
        lowering.norm(embed.norm, f"{name}.norm", to, to, width)


def lower_head(lowering: Lowering, head: c.LanguageHead, name: str, *, stack: c.Stack) -> None:
    """Append what makes scores of the vectors of the tokens that are asked for."""
    for found, what in ((head.columns > 0, "further columns of a tied output matrix"),
                        (head.predicts.kind != "next", "way to predict other than the next token")):
        if found:
            refuse(what)
    width, last = lowering.config.dim, STREAM
    lowering.add("select", "the tokens that are asked for", source=STREAM, to=STREAM, width=width)
    if stack.final_norm is not None:
        lowering.norm(stack.final_norm, "decoder.final_norm", STREAM, STREAM)
    if stack.narrow is not None:
        lowering.product("decoder.narrow", (width, stack.narrow), STREAM, NORMED)
        width, last = stack.narrow, NORMED
    if (transform := head.transform) is not None:
        to, made = OTHER if last == NORMED else NORMED, transform.width or width
        lowering.product(f"{name}.transform.dense", (width, made), last, to, activation=transform.activation)
        width, last = made, to
        if transform.norm is not None:
            lowering.norm(transform.norm, f"{name}.transform.norm", last, last, width)
    if head.scale != 1:
        lowering.add("scale", name, source=last, to=last, width=width, scale=head.scale)
    lowering.product(name, (width, lowering.config.output_embed.vocab), last, SCORES)
