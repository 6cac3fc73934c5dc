"""Passes whose derivatives are relevances: every map hands on what it was given in the shares that its inputs had.

Letters: B rows, L length.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from saucier.model import Transformer
from saucier.parts.attention import CrossAttention, SelfAttention
from saucier.parts.feed_forward import FeedForward, GatedFeedForward


@contextmanager
def constant_ratios(model: Transformer) -> Iterator[None]:
    """Let a value times its derivative be its relevance meanwhile; what the passes give stays as it is.

    Weights of attention, gates, the scales of norms and the ratio of an activation to its input count as constants, so
    that everything between is linear and the derivative gives each input its share (LRP-0).
    Source: Bach et al. 2015, §2.4, doi:10.1371/journal.pone.0130140; Ali et al. 2022, §3.2, arXiv:2202.07304.
    """
    with ExitStack() as stack:
        def hook(module: nn.Module, change: Any) -> None:
            stack.callback(module.register_forward_hook(change).remove)

        for module in model.modules():
            match module:
                case SelfAttention():
                    hook(module.qkv, detach_all_but(module.widths[1]))
                    if module.positions is not None:
                        hook(module.positions, lambda _, given, made: made.detach())
                case CrossAttention():
                    hook(module.q, detach_all_but(0))
                    hook(module.kv, detach_all_but(module.kv.out_features // 2))
                case nn.LayerNorm() | nn.RMSNorm():
                    hook(module, scale_by_constant)
                case GatedFeedForward():
                    hook(module.up, detach_gate)
                case FeedForward():
                    read: dict[str, Tensor] = {}
                    hook(module.up, lambda _, given, made, read=read: read.update(up=made))
                    stack.callback(module.down.register_forward_pre_hook(
                        lambda _, given, read=read: (read["up"] * ratio(given[0], read["up"]),)).remove)
        yield


def detach_all_but(last: int) -> Any:
    """Return a hook that lets no gradient through but that of the last outputs: the values of an attention."""
    return lambda _, given, made: torch.cat([made[..., :made.shape[-1] - last].detach(),
                                             made[..., made.shape[-1] - last:]], dim=-1)


def detach_gate(module: nn.Module, given: Any, made: Tensor) -> Tensor:
    """Let the gate of a gated feed-forward count as a constant. Shapes: [B, L, 2·N] -> the same."""
    gate, value = made.chunk(2, dim=-1)
    return torch.cat([gate.detach(), value], dim=-1)


def ratio(made: Tensor, given: Tensor) -> Tensor:
    """Return what an activation multiplied each value by, as a constant; nothing where that was zero."""
    return torch.where(given == 0, torch.zeros_like(given), made / given).detach()


def scale_by_constant(module: Any, given: tuple[Tensor, ...], made: Tensor) -> Tensor:
    """Return what a norm gave, with its scale as a constant. Shapes: [B, L, D] -> the same."""
    x = given[0]
    eps = torch.finfo(x.dtype).eps if module.eps is None else module.eps
    if isinstance(module, nn.LayerNorm):
        x = x - x.mean(-1, keepdim=True)
    scaled = x * (x.square().mean(-1, keepdim=True) + eps).rsqrt().detach()
    scaled = scaled if module.weight is None else scaled * module.weight
    bias = getattr(module, "bias", None)
    return scaled if bias is None else scaled + bias
