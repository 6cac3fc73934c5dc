"""A decoder that uses the encoder's weights: what is one, what is not, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import saucier
from saucier import config as c
from saucier.checkpoints.fields import put
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.model import build, build_on_meta

SMALL = {"dim": 16, "layers": 2, "heads": 2, "vocab": 50, "head_dim": 8, "hidden": 24, "dropout": 0.0}
SHARED = FAMILIES["t5_shared"](**SMALL)
IDS = {"input_ids": torch.tensor([[5, 6, 7, 8]]), "decoder_input_ids": torch.tensor([[0, 9, 10]])}


def cycled(tree: c.Transformer) -> c.Transformer:
    """The same blocks, written out."""
    for side in ("encoder", "decoder"):
        stack = getattr(tree, side)
        tree = put(tree, {f"{side}.layers": c.Cycle(blocks=tuple(stack.blocks()), times=1)})
    return tree


def shared_layers(tree: c.Transformer) -> c.Transformer:
    """One block in each stack, applied twice."""
    for side in ("encoder", "decoder"):
        tree = put(tree, {f"{side}.layers": c.Share(block=getattr(tree, side).blocks()[0], times=2)})
    return tree


@pytest.mark.parametrize("tree", [SHARED, cycled(SHARED), shared_layers(SHARED)], ids=["repeat", "cycle", "share"])
def test_counted_parameters_are_those_of_the_built_model(tree: c.Transformer) -> None:
    assert c.parameters(tree) == sum(one.numel() for one in build_on_meta(tree).parameters())
    apart = put(tree, {"decoder.tied": False})
    assert c.flops_per_token(tree, 32) == c.flops_per_token(apart, 32)
    both = {part.name: part.parameters for part in c.anatomy(apart).children}
    cross = 2 * 3 * 16 * 16 + 16 * 16 * 2 + 2 * 16  # q, kv and out of two layers, and their norms
    blocks = 1 if isinstance(tree.decoder.layers, c.Share) else 2
    assert c.parameters(apart) - c.parameters(tree) == both["decoder"] - cross * blocks // 2 - 32 * 2 - 16


def test_only_the_cross_attention_is_the_decoders_own() -> None:
    model = build(SHARED)
    for read, written in zip(model.encoder.blocks, model.decoder.blocks, strict=True):
        assert read["attention"].inner.qkv.weight is written["attention"].inner.qkv.weight
        assert read["feed_forward"].norm.weight is written["feed_forward"].norm.weight
    own = {name for name, _ in model.named_parameters() if name.startswith("decoder.")}
    assert all(".cross." in name or name in ("decoder.shared.weight", "decoder.final_norm.weight") for name in own)


def test_a_gradient_comes_from_both_sides() -> None:
    model = build(SHARED, seed=1)
    apart = build(put(SHARED, {"decoder.tied": False}))
    weights = dict(model.named_parameters(remove_duplicate=False))
    for name, parameter in apart.named_parameters():
        parameter.data.copy_(weights[name])
    for one in (model, apart):
        one(**IDS).logits.square().sum().backward()
    found = apart.encoder.blocks[0]["attention"].inner.qkv.weight.grad \
        + apart.decoder.blocks[0]["attention"].inner.qkv.weight.grad
    assert torch.allclose(model.encoder.blocks[0]["attention"].inner.qkv.weight.grad, found, atol=1e-5)
    assert torch.allclose(model(**IDS).logits, apart(**IDS).logits)


def test_queries_start_as_small_as_without_sharing() -> None:
    models = [build(put(SHARED, {"decoder.tied": tied}), seed=2) for tied in (True, False)]
    spread = [float(model.encoder.blocks[0]["attention"].inner.qkv.weight[:16].detach().std()) for model in models]
    assert spread[0] == pytest.approx(spread[1], rel=0.2)


def test_it_comes_back_from_disk_and_is_no_published_layout(tmp_path: Path) -> None:
    model = build(SHARED, seed=3).eval()
    assert model.save(tmp_path / "model") == "saucier"
    again = saucier.load(tmp_path / "model", dtype="float32")
    read, written = again.encoder.blocks[1]["attention"], again.decoder.blocks[1]["attention"]
    assert read.inner.out.weight is written.inner.out.weight
    with torch.no_grad():
        assert torch.equal(again(**IDS).logits, model(**IDS).logits)


def test_it_writes_with_a_cache_as_without() -> None:
    model = build(SHARED, seed=4)
    options = {"max_new_tokens": 6, "eos_token_id": None, "decoder_start_token_id": 0}
    written = saucier.generate(model, IDS["input_ids"], **options)[0]
    ids = [0]
    model.eval()
    with torch.no_grad():
        for _ in range(6):
            logits = model(IDS["input_ids"], decoder_input_ids=torch.tensor([ids])).logits
            ids.append(int(logits[0, -1].argmax()))
    assert written.tolist() == ids


BART = FAMILIES["bart"](dim=16, layers=2, heads=2, vocab=50, length=32)
BAD = {
    "encoder": (put(SHARED, {"encoder.tied": True}), "encoder.tied: the encoder has no weights"),
    "alone": (put(FAMILIES["gpt2"](dim=16, layers=1, heads=2), {"decoder.tied": True}), "there is no encoder"),
    "depth": (put(SHARED, {"decoder.layers.times": 3}), "laid out in different ways"),
    "kind": (put(SHARED, {"decoder.layers": c.Share(block=SHARED.decoder.blocks()[0], times=2)}), "laid out"),
    "width": (put(SHARED, {"decoder.layers.block.sublayers.2.inner.hidden": 32}), "not just the sublayers"),
    "heads": (put(SHARED, {"encoder.layers.block.sublayers.0.inner.projection.heads": 4}), "not just the sublayers"),
}


@pytest.mark.parametrize("name", BAD)
def test_stacks_that_cannot_share_are_refused(name: str) -> None:
    tree, words = BAD[name]
    with pytest.raises(InputError, match=words):
        c.check(tree)


def test_post_norm_stacks_with_biases_share_too() -> None:
    tree = put(BART, {"decoder.tied": True})
    assert c.parameters(tree) == sum(one.numel() for one in build_on_meta(tree).parameters()) < c.parameters(BART)
