"""Starting weights, by the model's `initialization` slot; a built model is a pure function of config and seed."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.parts.attention import CrossAttention, SelfAttention
from saucier.parts.embedding import CharacterTokens
from saucier.parts.feed_forward import Experts, FeedForward
from saucier.parts.hashing import HashedAttention
from saucier.parts.linear import writing_weight
from saucier.parts.norms import NoNorm
from saucier.parts.pooling import LayerMix
from saucier.parts.recurrent_cells import Cell


@runtime_checkable
class OwnStart(Protocol):
    """A module, as a rule of a part from outside, that begins in its own way; called after all others have begun."""

    def start_weights(self) -> None:
        """Fill its parameters in place, the same way every time."""


def allocate_weights(model: nn.Module, *, dtype: torch.dtype, device: torch.device | str) -> None:
    """Give a model of shapes alone weights that hold nothing yet.

    What holds matrices in few bits keeps its formats; those of them that hold numbers already go to the device.
    """
    def allocate(like: Tensor, form: torch.dtype) -> Tensor:
        return torch.empty(tuple(like.shape), dtype=form, device=device)

    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = nn.Parameter(allocate(parameter, dtype))
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = allocate(buffer, buffer.dtype) if buffer.is_meta else buffer.to(device)
        if "like" in vars(module):
            module.like = torch.empty(0, dtype=dtype, device=device)


def initialize_weights(model: nn.Module, config: c.Transformer, seed: int) -> None:
    """Fill every parameter in place. Norms start at gain 1 and bias 0, all other biases at 0."""
    generator = torch.Generator(device=next(model.parameters()).device).manual_seed(seed)
    writers = find_residual_writers(model)
    depth = len(writers) - sum(len(module.experts) - 1 for module in model.modules() if isinstance(module, Experts))
    norms = {id(parameter) for module in model.modules() if isinstance(module, nn.LayerNorm | nn.RMSNorm | NoNorm)
             for parameter in module.parameters()}
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if id(parameter) in norms:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
            elif parameter.dim() < 2 or name.endswith(".bias"):
                parameter.zero_()
            else:
                fill_matrix(parameter, config, generator, table=id(parameter) in tables,
                            writers=depth if id(parameter) in writers else 0)
        for module in model.modules():
            if isinstance(module, Cell | CharacterTokens | LayerMix):
                module.begin()
            elif isinstance(module, OwnStart):
                module.start_weights()
        if isinstance(config.initialization, c.FanInInit):
            fold_scale(model)


def fold_scale(model: nn.Module) -> None:
    """Start query maps smaller where the scores are not scaled. Source: Raffel et al. 2020, code release."""
    done: set[int] = set()
    for module in model.modules():
        if isinstance(module, SelfAttention) and id(module.qkv) not in done:
            done.add(id(module.qkv))  # a decoder may use the encoder's
            writing_weight(module.qkv)[:module.widths[0]] *= module.head_dim**-0.5 / module.scale
        elif isinstance(module, CrossAttention):
            writing_weight(module.q).mul_(module.head_dim**-0.5 / module.scale)


def find_residual_writers(model: nn.Module) -> set[int]:
    """Return the ids of the matrices that write to the residual stream."""
    modules = list(model.modules())
    attentions = (one.out for one in modules if isinstance(one, SelfAttention | CrossAttention | HashedAttention))
    feeds = (one.down for one in modules if isinstance(one, FeedForward))
    return {id(writing_weight(one)) for one in (*attentions, *feeds)}


def fill_matrix(parameter: Tensor, config: c.Transformer, generator: torch.Generator, *, table: bool,
                writers: int) -> None:
    """Draw one matrix.

    `table`: a token or segment table; `writers`: how many maps write to the residual, 0 for other matrices.
    """
    match config.initialization:
        case c.NormalInit(std=std, depth_scaled=scaled):
            parameter.normal_(0.0, std / writers**0.5 if scaled and writers else std, generator=generator)
        case c.XavierInit() if table:
            parameter.normal_(0.0, config.dim**-0.5, generator=generator)
        case c.XavierInit():
            nn.init.xavier_uniform_(parameter, generator=generator)
        case c.UniformInit(reach=reach):
            parameter.uniform_(-reach, reach, generator=generator)
        case c.FanInInit(embedding_std=std):
            parameter.normal_(0.0, std if table else parameter.shape[-1] ** -0.5, generator=generator)
