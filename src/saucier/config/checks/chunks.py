"""Illegal combinations around chunks, hashes, two streams and position grids."""

from __future__ import annotations

from saucier.config.chunks import Chunks, Hashing
from saucier.config.layers import SelfAttention
from saucier.config.model import Transformer
from saucier.config.positions import Axial, NoPositions, Rotary
from saucier.config.streams import Reversible
from saucier.config.visibility import Causal, Full
from saucier.errors import InputError


def check_streams(config: Transformer) -> None:
    """Two streams need sublayers in pairs that add to what they read; only heads read the wide vectors they give."""
    for name, stack in (("encoder", config.encoder), ("decoder", config.decoder)):
        if stack is None or not isinstance(stack.residual, Reversible):
            continue
        for index, block in enumerate(stack.blocks()):
            added = all(residual.kind in ("pre", "sandwich") for residual in block.sublayers)
            if len(block.sublayers) % 2 or not added:
                raise InputError("two streams change in turn, each by what a sublayer adds",
                                 where=f"{name}.blocks.{index}",
                                 remedy="use an even number of sublayers, with pre or sandwich norms")
        if stack.convolution or stack.memory or stack.queries or stack.zero_padding or stack.layer_positions:
            raise InputError("two streams go with plain blocks only", where=f"{name}.residual",
                             remedy="use residual: {kind: one}")
        if name == "encoder" and config.decoder:
            raise InputError("cross-attention reads one stream", where="encoder.residual",
                             remedy="use residual: {kind: one} in the encoder")


def check_kernel(path: str, attention: SelfAttention) -> None:
    """Chunks are laid out by place alone, and hashes need one map for queries and keys."""
    kernel, projection = attention.kernel, attention.projection
    if not isinstance(kernel, Chunks | Hashing):
        return
    chunks = kernel.chunks if isinstance(kernel, Hashing) else kernel
    causal = isinstance(attention.visibility, Causal)
    if not isinstance(attention.visibility, Full | Causal) or attention.global_maps:
        raise InputError(f"kernel {kernel.kind} has chunks in place of a visibility", where=f"{path}.visibility",
                         remedy="use full or causal")
    if causal and chunks.after:
        place = "kernel.chunks" if isinstance(kernel, Hashing) else "kernel"
        raise InputError("a causal attention has nothing to see in later chunks", where=f"{path}.{place}.after",
                         remedy="use after: 0")
    if (chunks.multiple or chunks.length) % chunks.length:
        raise InputError(f"{chunks.multiple} positions are no whole chunks of {chunks.length}",
                         where=f"{path}.kernel.multiple", remedy="make multiple a multiple of length")
    if projection.kv_heads not in (None, projection.heads) or not projection.key_bias:
        raise InputError(f"kernel {kernel.kind} needs keys like its queries", where=f"{path}.projection",
                         remedy="leave kv_heads and key_bias out")
    if not isinstance(attention.positions, NoPositions) and not (
            isinstance(attention.positions, Rotary) and isinstance(kernel, Chunks)):
        raise InputError(f"kernel {kernel.kind} cannot take positions {attention.positions.kind}",
                         where=f"{path}.positions", remedy="use positions in the embedding, or kernel softmax")
    if isinstance(kernel, Hashing) and projection.scale is not None:
        raise InputError("keys of length 1 have no other scale", where=f"{path}.projection.scale", remedy="remove it")


def check_axial(config: Transformer) -> None:
    """Rows and columns of a grid fill the width together."""
    for name, embed in (("embed", config.embed), ("decoder_embed", config.decoder_embed)):
        if embed and isinstance(embed.positions, Axial) and sum(embed.positions.widths) != embed.widths(config.dim)[1]:
            raise InputError(f"vectors of {' and '.join(map(str, embed.positions.widths))} do not fill "
                             f"{embed.widths(config.dim)[1]}", where=f"{name}.positions.widths",
                             remedy="make them add up to the width")
