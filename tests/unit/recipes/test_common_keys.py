"""Any family with any kernel and any starting weights, by one line of a recipe."""

from __future__ import annotations

import pytest

from saucier import config as c
from saucier.errors import InputError
from saucier.model import build
from saucier.recipes import recipe


@pytest.mark.parametrize("name", ["gpt-nano", "bert-nano", "llama-nano", "bart-nano"])
def test_one_line_gives_every_self_attention_a_kernel(name: str) -> None:
    body = recipe(name, ["model.kernel.kind=favor", "model.kernel.features=64"]).model
    stacks = [stack for stack in (body.encoder, body.decoder) if stack]
    assert {attention.kernel for stack in stacks for attention in stack.attentions()} == {c.Favor(features=64)}
    plain = recipe(name).model
    assert c.parameters(body) == c.parameters(plain)
    assert body.head == plain.head


def test_one_line_says_how_the_weights_begin() -> None:
    """The matrices have that deviation; nothing else of the model is another."""
    wide = recipe("linformer-nano", ["model.initialization={kind: normal, std: 0.1}"]).model
    assert wide.initialization == c.NormalInit(std=0.1)
    assert wide.model_copy(update={"initialization": c.NormalInit()}) == recipe("linformer-nano").model
    assert float(build(wide, seed=0).embed.tokens.weight.std()) == pytest.approx(0.1, rel=0.02)


def test_a_kernel_that_does_not_fit_is_refused_with_its_line() -> None:
    with pytest.raises(InputError, match=r"t5-nano.yaml:\d+: .*blocks.0.attention.positions: kernel favor cannot"):
        recipe("t5-nano", ["model.kernel.kind=favor"])


def test_rows_longer_than_the_maps_are_refused_before_anything_is_read() -> None:
    """Linformer's maps end where its kernel's length does."""
    with pytest.raises(InputError, match="128 tokens do not fit into the model's 16"):
        recipe("bert-nano", ["model.kernel.kind=low_rank", "model.kernel.length=16"])
