"""GPTQ against the plain algorithm in float64, AWQ's scales as no change, and both better than rounding."""

from __future__ import annotations

import pytest
import torch
from tests.laws.zoo import FAMILY_OPTIONS, family
from tests.tolerances import PART, assert_close

from saucier import InputError
from saucier.adaptation.quantization.awq import Read, find_feeds, find_scales, fold_scales, round_narrowed
from saucier.adaptation.quantization.calibration import cut_rows
from saucier.adaptation.quantization.formats import (
    Grid,
    decode,
    encode,
    find_grid,
    read_codes,
    split_groups,
)
from saucier.adaptation.quantization.gptq import compensate, output_error
from saucier.adaptation.quantization.maps import QuantizedLinear
from saucier.adaptation.quantization.quantize import quantize_and_report, quantize_model
from saucier.adaptation.quantization.schemes import (
    Awq,
    Gptq,
    Integers,
    LearnedBasis,
    Method,
    NormalFloat,
    Override,
    Quantization,
    StaticInt8,
    ZeroPoint,
)
from saucier.model import Transformer, build

IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 3, 2, 4, 1]])
FORMS = [Integers(bits=4), Integers(bits=4, group=8), Integers(bits=3, group=7, range=ZeroPoint()), Integers(bits=2)]


def correlated(inputs: int, rows: int = 200) -> torch.Tensor:
    """Rows of inputs that depend on each other and differ in size, as those of a model do."""
    random = torch.Generator().manual_seed(5)
    mixing = torch.eye(inputs) + 0.2 * torch.randn(inputs, inputs, generator=random)
    return torch.randn(rows, inputs, generator=random) * torch.rand(inputs, generator=random)**2 @ mixing


def rounded_one_by_one(weight: torch.Tensor, hessian: torch.Tensor, form: Integers, damping: float) -> torch.Tensor:
    """The plain algorithm: the inverse of what is left of the Hessian, a column taken out at a time.

    Frantar et al. 2022, §3.1, eq 2 and 3 (Optimal Brain Quantization), with the columns in order; in float64.
    """
    weight, inputs = weight.double().clone(), weight.shape[1]
    size = min(form.group or inputs, inputs)
    hessian = hessian + damping * hessian.diagonal().mean() * torch.eye(inputs)
    inverse, found = torch.linalg.inv(hessian), torch.zeros_like(weight)
    for column in range(inputs):
        if column % size == 0:
            grid = find_grid(weight[:, None, column:column + size], form)
        one = Grid(grid.scales[:, 0], grid.zeros[:, 0], grid.lowest, grid.highest)
        found[:, column] = one.values(one.round(weight[:, column]))
        step = (weight[:, column] - found[:, column]) / inverse[column, column]
        weight -= step[:, None] * inverse[column]
        inverse = inverse - inverse[:, column, None] * inverse[column] / inverse[column, column]
        inverse[column, column] = 1.0  # of what was taken out nothing is read any more
    return found


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("block", [5, 16, 128])
def test_gptq_is_the_plain_algorithm(form: Integers, block: int) -> None:
    weight, inputs = torch.randn(6, 22, generator=torch.Generator().manual_seed(1)), correlated(22).double()
    hessian = inputs.T @ inputs
    found = decode(compensate(weight.double(), hessian, Gptq(block=block), form), (6, 22), form)
    torch.testing.assert_close(found.double(), rounded_one_by_one(weight, hessian, form, 0.01), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("order", ["inputs", "largest_first"])
def test_gptq_loses_less_than_rounding(form: Integers, order: str) -> None:
    weight, inputs = torch.randn(24, 64, generator=torch.Generator().manual_seed(2)), correlated(64, 500).double()
    hessian = inputs.T @ inputs
    errors = [float(output_error(weight, decode(parts, (24, 64), form), hessian)) for parts in
              (encode(weight, form), compensate(weight.double(), hessian, Gptq(order=order), form))]
    assert errors[1] < 0.7 * errors[0]
    direct = ((weight - decode(encode(weight, form), (24, 64), form)).double() @ inputs.T).square().sum()
    assert errors[0] == pytest.approx(float(direct))


def test_an_input_that_is_always_zero_gets_no_weight() -> None:
    inputs = correlated(10).double()
    inputs[:, 3] = 0
    parts = compensate(torch.randn(4, 10).double(), inputs.T @ inputs, Gptq(), Integers(bits=4))
    assert decode(parts, (4, 10), Integers(bits=4))[:, 3].abs().max() == 0


def test_scales_and_narrow_ranges_are_never_worse_on_what_they_were_found_on() -> None:
    weight, rows = torch.randn(16, 48, generator=torch.Generator().manual_seed(3)), correlated(48)
    rows[:, 5] *= 40  # an input that matters
    form = Integers(bits=3, group=16)
    read = Read(rows.abs().sum(0, dtype=torch.float64), len(rows), [rows])

    def error(rounded: torch.Tensor) -> float:
        return float((rows @ (rounded - weight).T).square().sum())

    scales = find_scales(weight, read, Awq(), form)
    plain = error(decode(encode(weight, form), (16, 48), form))
    scaled = error(decode(encode(weight * scales, form), (16, 48), form) / scales)
    assert scaled < 0.7 * plain and scales[5] > scales.median()
    groups = split_groups(rows, form).transpose(0, 1)

    def error_of_groups(parts: dict[str, torch.Tensor]) -> torch.Tensor:
        gap = split_groups(decode(parts, (16, 48), form) - weight, form).transpose(0, 1)
        return (groups @ gap.mT).square().sum()

    narrowed = round_narrowed(weight, rows, Awq(), form)
    assert float(error_of_groups(narrowed)) < float(error_of_groups(encode(weight, form)))
    assert bool((narrowed["scales"] <= encode(weight, form)["scales"]).all())
    assert all(torch.equal(one, encode(weight, form)[name])
               for name, one in round_narrowed(weight, rows, Awq(clip=0), form).items())


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted(FAMILY_OPTIONS))
def test_folded_scales_change_no_output(name: str) -> None:
    """In every family, for every map that has something to fold them into."""
    model = build(family(name), seed=3).eval()
    inputs = {"decoder_input_ids": IDS.flip(1)} if model.paired else {}
    expected = model(IDS, **inputs).last_hidden_state
    for target, feed in find_feeds(model).items():
        width = model.get_submodule(target).in_features
        scales = torch.rand(width, generator=torch.Generator().manual_seed(1)) * 3 + 0.2  # type: ignore[arg-type]
        with torch.no_grad():
            fold_scales(model, target, feed, scales)
    assert_close(model(IDS, **inputs).last_hidden_state, expected, PART)


@pytest.mark.parametrize(("name", "maps"), [
    ("bert", {"attention.inner.out"}),
    ("gpt2", {"attention.inner.qkv", "attention.inner.out", "feed_forward.inner.up"}),
    ("llama", {"attention.inner.qkv", "feed_forward.inner.up", "feed_forward.inner.down"}), ("deberta", set()),
    ("gptj", {"attention.inner.out"})])
def test_which_maps_can_be_scaled(name: str, maps: set[str]) -> None:
    """Not behind norms that the stream reads too, not behind GELU, not where keys and values are fewer than queries."""
    found = find_feeds(build(family(name), seed=0))
    assert {one.split(".", 3)[-1] for one in found} == maps


def drift(model: Transformer, exact: torch.Tensor, batch: dict[str, torch.Tensor]) -> float:
    return float((model(**batch).last_hidden_state - exact).square().mean())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "llama", "albert"])
def test_both_methods_keep_a_model_closer_than_rounding(name: str) -> None:
    """On other text than that of the calibration; a layer that is called twice (ALBERT) counts all of its inputs."""
    random = torch.Generator().manual_seed(0)
    batches = [{"input_ids": torch.randint(5, 37, (8, 24), generator=random)} for _ in range(6)]
    other = {"input_ids": torch.randint(5, 37, (8, 24), generator=random)}
    exact = build(family(name), seed=3).eval()(**other).last_hidden_state.detach()
    errors = {}
    for method in (Awq(), Gptq(), Gptq(order="largest_first")):
        for one in (Quantization(format=Integers(bits=4, group=8), embeddings=None),
                    Quantization(format=Integers(bits=4, group=8), embeddings=None, method=method)):
            model = quantize_model(build(family(name), seed=3), one, batches=batches)
            errors[one.method] = drift(model, exact, other)
    plain = errors.pop(Quantization().method)
    assert all(error < plain for error in errors.values()), (plain, errors)


def test_static_ranges_are_the_largest_inputs() -> None:
    model = build(family("bert"), seed=3).eval()
    seen: dict[str, float] = {}
    for name, one in model.named_modules():
        if isinstance(one, torch.nn.Linear) and name.startswith("encoder"):
            one.register_forward_pre_hook(lambda _, given, name=name: seen.__setitem__(
                name, max(seen.get(name, 0.0), float(given[0].abs().max()))))
    batches = [{"input_ids": IDS}, {"input_ids": IDS.flip(1)}]
    plain = quantize_model(build(family("bert"), seed=3), Quantization(format=Integers(bits=8)))
    for name, one in plain.named_modules():
        if isinstance(one, QuantizedLinear):
            one.register_forward_pre_hook(lambda _, given, name=name: seen.__setitem__(
                name, max(seen.get(name, 0.0), float(given[0].abs().max()))))
    for batch in batches:
        plain(**batch)
    by = Quantization(where=("linear",), activations=StaticInt8())
    found = quantize_model(build(family("bert"), seed=3), by, batches=batches)
    maps = {name: one for name, one in found.named_modules() if isinstance(one, QuantizedLinear)}
    assert maps and all(float(one.input_scale) == pytest.approx(seen[name] / 127)  # type: ignore[arg-type]
                        for name, one in maps.items())


class Words:
    """A tokenizer of one id a letter."""

    def encode(self, text: str) -> list[int]:
        return [5 + ord(letter) % 30 for letter in text]


def test_rows_of_calibration_text() -> None:
    rows = cut_rows(["abc", "defgh", "ij"], Words(), rows=2, length=4, batch=1)  # type: ignore[arg-type]
    whole = [token for row in rows for token in row["input_ids"].flatten().tolist()]
    assert [tuple(row["input_ids"].shape) for row in rows] == [(1, 4)] * 2 and whole == Words().encode("abcdefgh")
    for texts, what in (([], "is empty"), ([""], "is empty"), (["abc"], "has 3 tokens, and a row needs 4")):
        with pytest.raises(InputError, match=what):
            cut_rows(texts, Words(), length=4)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", [Gptq(), Awq()], ids=["gptq", "awq"])
@pytest.mark.parametrize(("batches", "what"), [
    ([], "there is no calibration text"), ([{"input_ids": torch.zeros(0, 4, dtype=torch.long)}], "has no tokens"),
    ([{"attention_mask": IDS}], "has no tokens"), ([IDS], "no table of tensors")])
def test_missing_calibration_text_changes_nothing(method: Method, batches: list[dict[str, torch.Tensor]],
                                                  what: str) -> None:
    model = build(family("bert"), seed=0)
    modules = dict(model.named_modules())
    with pytest.raises(InputError, match=what):
        quantize_model(model, Quantization(method=method), batches=batches)
    assert dict(model.named_modules()) == modules and not model.provenance.rewrites


@pytest.mark.parametrize(("by", "what"), [
    (Quantization(where=("query",)), r"only a part of encoder.blocks.0.attention.inner.qkv is meant"),
    (Quantization(where=("nothing",)), "unknown role 'nothing'"),
    (Quantization(where=("encoder.*.nothing",)), "meets no map"),
    (Quantization(format=NormalFloat(), method=Gptq()), "gptq needs whole numbers as weights"),
    (Quantization(format=LearnedBasis(), activations=StaticInt8()), "activations needs whole numbers"),
    (Quantization(where=("attention",), overrides=(Override(where=("down",), format=Integers()),)),
     "down is not among the maps that are quantized")], ids=str)
def test_what_a_model_cannot_be(by: Quantization, what: str) -> None:
    model = build(family("bert"), seed=0)
    modules = dict(model.named_modules())
    with pytest.raises(InputError, match=what):
        quantize_model(model, by, batches=[{"input_ids": IDS}])
    assert dict(model.named_modules()) == modules


def test_a_map_that_no_text_reaches() -> None:
    """The pooler of a model that gives no pooled vector is called; a head that needs other inputs is not."""
    model = build(family("mixtral"), seed=0)
    with pytest.raises(InputError, match=r"nothing of the calibration text reaches .*experts"):
        quantize_model(model, Quantization(method=Gptq()), batches=[{"input_ids": IDS[:1, :1]}])


def test_what_is_said() -> None:
    lines = list(quantize_and_report(build(family("bert"), seed=0), Quantization(method=Awq(), format=Integers(bits=4)),
                                     batches=[{"input_ids": IDS}]))
    assert lines[0].startswith("awq: 2 maps scaled; ") and "others" in lines[0]
    assert "MB instead of" in lines[-1]


def test_overrides_give_maps_other_bits() -> None:
    by = Quantization(format=Integers(bits=8), overrides=(
        Override(where=("feed_forward",), format=Integers(bits=4)), Override(where=("down",), format=Integers(bits=2))))
    model = quantize_model(build(family("bert"), seed=0), by)
    bits = {name.split(".", 3)[-1]: one.store.bits for name, one in model.named_modules()
            if isinstance(one, QuantizedLinear) and isinstance(one.store, Integers) and name.startswith("encoder")}
    assert bits == {"attention.inner.qkv": 8, "attention.inner.out": 8, "feed_forward.inner.up": 4,
                    "feed_forward.inner.down": 2}
    assert all(read_codes(one.parts(), one.in_features, one.store)[0].shape == one.shape
               for one in model.modules() if isinstance(one, QuantizedLinear) and isinstance(one.store, Integers))
