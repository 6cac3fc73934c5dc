"""Random legal XLNets."""

from __future__ import annotations

import random

import torch
from tests.parity.batches import batch
from torch import Tensor
from transformers import XLNetConfig


def draw(rng: random.Random) -> tuple[XLNetConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    heads = rng.choice([1, 3, 4])
    width = rng.choice([6, 8])
    direction = rng.choice(["bi", "bi", "uni"])
    projected = rng.random() < 0.7
    config = XLNetConfig(
        vocab_size=rng.choice([61, 97]), d_model=heads * width, n_head=heads, n_layer=rng.choice([1, 2, 3]),
        d_inner=rng.choice([17, 40]), ff_activation=rng.choice(["gelu", "relu", "silu", "gelu_new"]),
        attn_type=direction, same_length=rng.random() < 0.4, clamp_len=rng.choice([-1, 3, 7]),
        mem_len=rng.choice([None, 0, 4, 30]), reuse_len=rng.choice([None, 3]), layer_norm_eps=rng.choice([1e-12, 1e-5]),
        use_mems_eval=rng.random() < 0.8, dropout=rng.choice([0.0, 0.1]),
        bi_data=direction == "bi" and rng.random() < 0.2, summary_use_proj=projected,
        summary_type=rng.choice(["last", "first", "mean", "cls_index"]),
        summary_activation=rng.choice(["tanh", "relu", ""]) if projected else "",
        summary_last_dropout=rng.choice([0.0, 0.1]),
        num_labels=2 if rng.random() < 0.5 else rng.choice([1, 4]), tie_word_embeddings=rng.random() < 0.7)
    classes = ["XLNetModel", "XLNetLMHeadModel", "XLNetForTokenClassification", "XLNetForSequenceClassification"]
    if direction == "bi":
        classes.append("XLNetForMultipleChoice")
    return config, [*classes, "XLNetForQuestionAnsweringSimple"] if config.num_labels == 2 else classes


def inputs(config: XLNetConfig, name: str, rng: random.Random) -> dict[str, Tensor]:
    """Return the common batch with segments, an order of prediction, and a memory, each sometimes.

    The reference takes only even batches of two directions, and a mask beside causal attention only for one row.
    """
    given = batch(config, name, rng)
    if config.bi_data:
        given = {key: torch.cat([value, value[:1]]) for key, value in given.items()}
    elif config.attn_type == "uni" and given["input_ids"].dim() == 2:
        given = {key: value[:1] for key, value in given.items()}
    ids = given["input_ids"]
    if rng.random() < 0.6:
        given["token_type_ids"] = (torch.arange(ids.shape[-1]) > 5).long().expand(ids.shape).contiguous()
    if ids.dim() == 3:
        return given
    rows, length = ids.shape
    if rng.random() < 0.5:
        order = torch.tensor(rng.sample(range(length), length))
        hidden = order[:, None] <= order[None, :]
        hidden[:, order.argmin()] = False  # a query that sees nothing sees everything there, and nothing here
        given["perm_mask"] = hidden.float().expand(rows, -1, -1).contiguous()
    if rng.random() < 0.5 and name in ("XLNetModel", "XLNetLMHeadModel"):
        places = torch.tensor([rng.sample(range(1, 4), 2) for _ in range(rows)])
        given["target_mapping"] = torch.nn.functional.one_hot(places, length).float()
    if rng.random() < 0.5:
        generator = torch.Generator().manual_seed(rng.randrange(2**30))
        past = rng.choice([2, 5])
        given["mems"] = [torch.randn(past, rows, config.d_model, generator=generator)
                         for _ in range(config.n_layer)]  # type: ignore[assignment]  # a list, by nature
    return given
