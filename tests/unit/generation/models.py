"""Small models for the tests of generation: of our own, and pairs of the reference library's with ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import saucier
from saucier.families import FAMILIES
from saucier.model import Transformer, build

VOCAB = 40
SIZES: dict[str, Any] = {"dim": 32, "layers": 2, "heads": 4, "vocab": VOCAB}
OPTIONS: dict[str, dict[str, Any]] = {
    "gpt2": {"length": 48},
    "llama": {"kv_heads": 2, "hidden": 48},
    "t5": {"head_dim": 8, "hidden": 48},
    "transformer": {"hidden": 48},
}
START = {"decoder_start_token_id": 0}


def shaken(model: Any) -> Any:
    """Move every weight, so that tokens differ from row to row and from step to step."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.25)
    return model.eval()


def small(family: str, **options: Any) -> Transformer:
    """Return a small model of a family."""
    return shaken(build(FAMILIES[family](**SIZES | OPTIONS[family] | options)))  # type: ignore[no-any-return]


def reference(family: str) -> Any:
    """Return a small model of the reference library, without end tokens of its own."""
    import transformers as hf

    torch.manual_seed(0)
    none: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    match family:
        case "gpt2":
            return shaken(
                hf.GPT2LMHeadModel(
                    hf.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=VOCAB, n_positions=48, **none)
                )
            )
        case "llama":
            return shaken(
                hf.LlamaForCausalLM(
                    hf.LlamaConfig(
                        hidden_size=32,
                        num_hidden_layers=2,
                        num_attention_heads=4,
                        num_key_value_heads=2,
                        vocab_size=VOCAB,
                        intermediate_size=48,
                        **none,
                    )
                )
            )
        case _:
            config = hf.T5Config(
                d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, vocab_size=VOCAB, **none | START
            )
            return shaken(hf.T5ForConditionalGeneration(config))


def pair(family: str, folder: Path) -> tuple[Transformer, Any]:
    """Return ours and the reference library's model with the same weights, by way of a folder."""
    other = reference(family)
    other.save_pretrained(folder)
    ours = saucier.load(folder, dtype="float32", device="cpu")
    ours.generation = {}
    return ours, other


def prompt(rows: int = 3, length: int = 7, *, seed: int = 0) -> Tensor:
    """Return random ids without 0, which is the padding of these tests."""
    return torch.randint(1, VOCAB, (rows, length), generator=torch.Generator().manual_seed(seed))


def left_mask(rows: int = 3, length: int = 7) -> Tensor:
    """Return a mask with 0, 3 and 5 tokens of padding at the left, over and over."""
    padding = torch.tensor([0, 3, 5]).repeat(rows)[:rows, None]
    return (torch.arange(length) >= padding).long()
