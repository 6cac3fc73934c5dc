"""Illegal combinations of recurrent layers and what surrounds them."""

from __future__ import annotations

from saucier.config.asked import keeps_apart
from saucier.config.heads import BidirectionalHead
from saucier.config.model import ProjectTwice, Stack, Transformer
from saucier.config.recurrent import Ahead, FromFinalStates, FromLastLayer, Recurrent
from saucier.config.streams import OneStream
from saucier.errors import InputError


def recurrent_parts(stack: Stack | None) -> list[Recurrent]:
    """Return the recurrent sublayers of a stack in the order they are applied."""
    blocks = stack.blocks() if stack else []
    return [one.inner for block in blocks for one in block.sublayers if isinstance(one.inner, Recurrent)]


def reads_encoder(stack: Stack) -> bool:
    """Say whether a recurrent sublayer of a stack looks at an encoder."""
    return any(part.reads_encoder for part in recurrent_parts(stack))


def check_cells(name: str, stack: Stack, config: Transformer) -> None:
    """Raise `InputError` where recurrent layers cannot work."""
    for index, block in enumerate(stack.blocks()):
        for residual in block.sublayers:
            if isinstance(residual.inner, Recurrent):
                where = f"{name}.blocks.{index}.recurrent"
                check_width(where, residual.inner, block.width(config.dim))
                check_place(where, name, residual.inner, config)
        if index and stack.layers.kind != "cycle":
            break  # the same block again
    if not (parts := recurrent_parts(stack)):
        return
    if stack.memory or stack.queries or not isinstance(stack.residual, OneStream):
        raise InputError("recurrent layers keep their own states, in a plain stack", where=f"{name}.layers",
                         remedy="leave out memory, queries and streams")
    if name == "decoder" and any(isinstance(part.start, FromFinalStates) for part in parts):
        check_copied(parts, config)


def check_width(where: str, part: Recurrent, dim: int) -> None:
    """Two directions share the width."""
    if dim % len(part.ways):
        raise InputError(f"two directions do not share a width of {dim}", where=f"{where}.direction",
                         remedy="use an even dim, or kind: ahead")


def check_place(where: str, name: str, part: Recurrent, config: Transformer) -> None:
    """A decoder reads ahead, and only beside an encoder is there one to look at."""
    if name == "decoder" and not isinstance(part.direction, Ahead):
        raise InputError("a layer that reads backwards sees the future", where=f"{where}.direction",
                         remedy="use kind: ahead in a decoder")
    if part.reads_encoder and not (name == "decoder" and config.encoder):
        slot = "start" if part.attention is None else "attention"
        raise InputError("there is no encoder to look at", where=f"{where}.{slot}",
                         remedy="use it in a decoder beside an encoder, or leave it out")
    if isinstance(part.start, FromFinalStates | FromLastLayer) and not recurrent_parts(config.encoder):
        raise InputError("the encoder has no recurrent layers whose last states could be taken",
                         where=f"{where}.start", remedy="use kind: mean or zeros")
    if isinstance(part.start, FromFinalStates | FromLastLayer) and any(
            block.bottleneck for block in (config.encoder.blocks() if config.encoder else ())):
        raise InputError("the encoder's states are as narrow as its bottleneck", where=f"{where}.start",
                         remedy="use kind: mean or zeros")


def check_copied(parts: list[Recurrent], config: Transformer) -> None:
    """States that are copied have the same shape on both sides, layer by layer."""
    given = [shape for part in recurrent_parts(config.encoder) for shape in layer_states(part, config.dim)]
    wanted = [shape for part in parts if isinstance(part.start, FromFinalStates)
              for shape in layer_states(part, config.dim)]
    if given != wanted:
        raise InputError(f"the encoder ends in states of {given}, and the decoder begins in {wanted}",
                         where="decoder.layers", remedy="give both the same cell and number of layers, or use "
                         "start: {kind: last_layer}")


def layer_states(part: Recurrent, dim: int) -> list[tuple[int, ...]]:
    """Return the widths of the states of each layer, both directions side by side."""
    return [tuple(len(part.ways) * width for width in part.states(dim))] * part.layers


def check_apart(config: Transformer) -> None:
    """A head that predicts both neighbours of a token must not see them; a vector that is there twice has halves."""
    if isinstance(config.head, BidirectionalHead) and not keeps_apart(config):
        raise InputError("one direction would see what the other is to predict", where="head",
                         remedy="use recurrent sublayers alone, with direction: {kind: apart}, in chain or skip")
    for name, embed in (("embed", config.embed), ("decoder_embed", config.decoder_embed)):
        if embed and isinstance(embed.projection, ProjectTwice) and config.dim % 2:
            raise InputError(f"a width of {config.dim} has no halves", where=f"{name}.projection",
                             remedy="use an even dim")


def check_mix(config: Transformer) -> None:
    """The layers of a mix are those of one plain stack, all as wide."""
    if config.mix is None:
        return
    stack = config.encoder or config.decoder
    plain = stack is not None and not (stack.narrow or stack.queries) and isinstance(stack.residual, OneStream)
    if not plain or (config.encoder and config.decoder):
        raise InputError("a mix is of the layers of one plain stack", where="mix",
                         remedy="leave it out, or use a model with one stack, without narrow, queries and streams")
