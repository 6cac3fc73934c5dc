"""The algebra of visibilities, counted against brute force, and the combinations that are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from saucier import config as c
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.parts.masks import Span
from saucier.parts.visibility import evaluate_visibility

VISIBILITIES = [c.Full(), c.Causal(), c.Window(3), c.Window(50), c.Causal() & c.Window(4),
                c.Window(4) & c.Causal() & c.Window(2)]


@pytest.mark.parametrize("visibility", VISIBILITIES, ids=str)
@pytest.mark.parametrize("length", [1, 2, 5, 16])
def test_average_visible_keys_are_those_of_the_mask(visibility: c.Visibility, length: int) -> None:
    mask = evaluate_visibility(visibility, Span(length, length, 0, torch.device("cpu")))
    counted = float(length) if mask is None else float(mask.sum()) / length
    assert c.visible_keys(visibility, length) == pytest.approx(counted)


def test_causal_is_known_through_the_algebra() -> None:
    assert c.is_causal(c.Causal() & c.Window(3))
    assert c.is_causal((c.Causal() & c.Window(3)) | c.Causal())
    assert not c.is_causal(c.Causal() | c.Window(3))
    assert not c.is_causal(c.Prefix())


def decoder(**attention: object) -> c.Transformer:
    part = c.SelfAttention(projection=c.Projection(heads=4, **attention.pop("projection", {})),
                           **attention)  # type: ignore[arg-type]
    stack = c.Stack(layers=c.Repeat(block=c.Block(sublayers=(c.PreNorm(inner=part),)), times=2))
    return c.Transformer(dim=24, embed=c.Embedding(vocab=10), decoder=stack)


REFUSED: dict[str, tuple[Callable[[], c.Transformer], str]] = {
    "heads": (lambda: decoder().model_copy(update={"dim": 25}),
              r"decoder\.blocks\.0\.attention\.projection: dim 25 does not divide into 4 heads"),
    "kv heads": (lambda: decoder(projection={"kv_heads": 3}), r"projection\.kv_heads: 4 heads do not divide into 3"),
    "rotary": (lambda: decoder(projection={"head_dim": 3}, positions=c.Rotary()),
               r"attention\.positions: rotary turns pairs"),
    "skew": (lambda: decoder(positions=c.MusicTransformer(length=8)), r"know only the past; use visibility causal"),
    "t5": (lambda: decoder(positions=c.T5Bias(), visibility=c.Causal()), r"use bidirectional: false"),
    "t5 distance": (lambda: decoder(positions=c.T5Bias(buckets=32, max_distance=8)),
                    r"max_distance 8 is within the 8 exact buckets"),
    "nothing": (lambda: c.Transformer(dim=8, embed=c.Embedding(vocab=4)), r"needs an encoder, a decoder or both"),
    "blind decoder": (lambda: decoder().model_copy(update={"encoder": decoder().decoder}),
                      r"never looks at the encoder"),
    "cross alone": (lambda: FAMILIES["t5"]().model_copy(update={"encoder": FAMILIES["t5"]().decoder, "decoder": None}),
                    r"no encoder output to read"),
    "no pooler": (lambda: FAMILIES["bert"]().model_copy(update={"pooler": None}), r"the model has no pooler"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_illegal_combinations_are_refused_with_path_and_remedy(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(InputError, match=message) as caught:
        c.check(make())
    assert caught.value.remedy and "\n" not in str(caught.value)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tree_survives_json(family: str) -> None:
    tree = FAMILIES[family]()
    assert c.Transformer.model_validate_json(tree.model_dump_json()) == tree


def test_published_sizes() -> None:
    sizes = {(768, 12, 12): 124_439_808, (1024, 24, 16): 354_823_168, (1280, 36, 20): 774_030_080,
             (1600, 48, 25): 1_557_611_200}
    for (dim, layers, heads), count in sizes.items():
        assert c.parameters(FAMILIES["gpt2"](dim, layers, heads=heads)) == count
    assert c.parameters(FAMILIES["bert"]().model_copy(update={"head": None})) == 109_482_240
    assert c.parameters(FAMILIES["llama"]()) == 6_738_415_616
    assert c.parameters(FAMILIES["t5"]()) == 222_903_552
    assert c.parameters(FAMILIES["t5"](512, 6, heads=8, hidden=2048)) == 60_506_624


def test_training_flops_are_six_a_parameter_for_a_large_model_at_short_context() -> None:
    """Source: Kaplan et al. 2020, §2.1: forward 2·N, backward twice that."""
    tree = FAMILIES["gpt2"](1600, 48, heads=25)
    without_tables = c.parameters(tree) - tree.embed.vocab * tree.dim - 1024 * tree.dim
    output = tree.embed.vocab * tree.dim
    assert c.flops_per_token(tree, 1) == pytest.approx(2 * (without_tables + output), rel=0.01)


def test_hostile_sizes_are_refused_before_anything_is_built() -> None:
    tree = FAMILIES["gpt2"]().model_dump()
    tree["decoder"]["layers"]["times"] = 10**12
    with pytest.raises(ValueError, match="less than or equal to 10000"):
        c.Transformer.model_validate(tree)


@pytest.mark.parametrize(("attention", "where", "message"), [
    (c.SelfAttention(projection=c.Projection(heads=4), visibility=c.Combined(kind="by_head", terms=(c.Causal(),) * 3)),
     "decoder.blocks.0.attention.visibility.terms", "4 heads do not divide into 3 visibilities"),
    (c.SelfAttention(projection=c.Projection(heads=4), positions=c.GlobalLocal(globals=3),
                     visibility=c.Window(4) | c.Global(otherwise=c.FirstTokens(count=2))),
     "decoder.blocks.0.attention.positions.globals", "labels for 3 global tokens, and 2 are global")])
def test_patterns_that_do_not_fit_are_refused(attention: c.SelfAttention, where: str, message: str) -> None:
    """Terms by head that heads cannot share, and labels for another number of global tokens."""
    block = c.Block(sublayers=(c.PreNorm(inner=attention, norm=c.LayerNorm()),))
    config = c.Transformer(dim=8, embed=c.Embedding(vocab=9), decoder=c.Stack(layers=c.Repeat(block=block, times=1)))
    with pytest.raises(InputError, match=message) as caught:
        c.check(config)
    assert where in str(caught.value)


@pytest.mark.parametrize("changes", ["factors.stride=0", "factors.kind=diagonal", "form.kind=woven"])
def test_patterns_of_nothing_are_refused_by_their_path(changes: str) -> None:
    """A stride of nothing, and factors and forms that are none."""
    from saucier.recipes import recipe

    with pytest.raises(InputError, match=r"model\.(factors|form)"):
        recipe("sparse-transformer-nano", [f"model.{changes}"])
