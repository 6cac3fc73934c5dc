"""Random batches for reference models, and which of their outputs are compared where."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

LENGTH, TARGET, ROWS, CHOICES = 13, 7, 3, 2
UNEQUAL = ("past_key_values", "loss")
"""Fields of the reference's outputs that we give in another form, or not at all."""


def batch(config: Any, name: str, rng: random.Random) -> dict[str, Tensor]:
    """Return right-padded ids for a reference class; an end token stands once in every row, where there is one."""
    if "MultipleChoice" in name or "DoubleHeads" in name:
        rows = [source(config, rng) for _ in range(CHOICES)]
        return {key: torch.stack([row[key] for row in rows], dim=1) for key in rows[0]}
    made = source(config, rng)
    if getattr(config, "is_encoder_decoder", False) and "Encoder" not in name:
        made["decoder_input_ids"] = ids(config, (ROWS, TARGET), rng)
    return made


def source(config: Any, rng: random.Random) -> dict[str, Tensor]:
    """Return ids [B, L] and the mask of their right padding."""
    tokens = ids(config, (ROWS, LENGTH), rng)
    mask = torch.ones_like(tokens)
    padding = config.pad_token_id if getattr(config, "pad_token_id", None) is not None else 0
    end = getattr(config, "eos_token_id", None)
    for row in range(ROWS):
        length = LENGTH if row == 0 else rng.randint(4, LENGTH)
        if isinstance(end, int) and 0 <= end < smallest_vocab(config):
            tokens[row, length - 1] = end
        tokens[row, length:], mask[row, length:] = padding, 0
    return {"input_ids": tokens, "attention_mask": mask}


def ids(config: Any, shape: tuple[int, ...], rng: random.Random) -> Tensor:
    """Return random ids that are neither padding nor any other special token."""
    special = {value for name in ("pad", "bos", "eos", "sep", "cls", "mask", "decoder_start")
               if isinstance(value := getattr(config, f"{name}_token_id", None), int)}
    plain = [number for number in range(smallest_vocab(config)) if number not in special]
    count = 1
    for size in shape:
        count *= size
    return torch.tensor([rng.choice(plain) for _ in range(count)]).view(shape)


def smallest_vocab(config: Any) -> int:
    """Return the number of ids that both sides of a model know."""
    parts = [config, *(getattr(config, name, None) for name in ("encoder", "decoder"))]
    found = [getattr(part, name, None) for part in parts for name in ("vocab_size", "decoder_vocab_size")]
    return int(min(size for size in found if size))


def fields(output: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield name and tensor of everything in a reference output, tuples numbered (`hidden_states.0`).

    Hidden states of choices are [B·N, L, D] as ours are; GPT-2 gives its last one as [B, N, L, D].
    """
    for name, value in output.items():
        if name in UNEQUAL:
            continue
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, (tuple, list)):
            parts = [part for part in value if isinstance(part, Tensor)]
            for number, part in enumerate(parts):
                choices = name == "hidden_states" and part.dim() > 3
                yield f"{name}.{number}", part.flatten(0, -3) if choices else part


def real(name: str, value: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """Keep only what belongs to real queries: values at padding depend on how an empty row is treated."""
    if "attention_mask" not in batch:
        return value
    mask = batch["attention_mask"].flatten(0, -2).bool()
    if "decoder" in name or "cross" in name or ("decoder_input_ids" in batch and not name.startswith("encoder")):
        return value
    if value.dim() == 4 and value.shape[0] == len(mask) and value.shape[2] == mask.shape[1]:  # [B, H, Q, K]
        return value.transpose(1, 2)[mask]
    if value.dim() >= 2 and value.shape[:2] == mask.shape:
        return value[mask]
    if value.dim() == 4 and value.shape[:3] == batch["attention_mask"].shape:  # [B, N, L, V]
        return value[batch["attention_mask"].bool()]
    return value
