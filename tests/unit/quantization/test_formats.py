"""Number formats: dense bits, the nearest number, sizes, and products of whole numbers, against their definitions."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.unit.quantization.packed_folders import count_bytes

from saucier import InputError
from saucier.adaptation.quantization.formats import (
    CODECS,
    decode,
    encode,
    find_grid,
    read_codes,
    split_groups,
)
from saucier.adaptation.quantization.learned_basis import multiply_bits, sign_table
from saucier.adaptation.quantization.maps import QuantizedLinear, QuantizedTable
from saucier.adaptation.quantization.packing import pack, row_bytes, unpack
from saucier.adaptation.quantization.schemes import (
    Activations,
    DynamicInt8,
    Integers,
    LearnedBasis,
    NormalFloat,
    NumberFormat,
    ScaleFormat,
    StaticInt8,
    Symmetric,
    ZeroPoint,
)
from saucier.parts.linear import Linear, PartlyBiased, Table

SHAPES = [(3, 5), (1, 1), (7, 64), (9, 130)]
GRIDS = [Integers(bits=bits, group=group, range=kind) for bits, group, kind
         in itertools.product((2, 3, 4, 5, 8), (None, 16, 7), (Symmetric(), ZeroPoint()))]
OTHERS: list[NumberFormat] = [NormalFloat(), LearnedBasis(bits=2), Integers(bits=4, group=32, scales="float16"),
                              Integers(bits=6, group=32, range=ZeroPoint(), scales="bfloat16")]


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("count", [1, 7, 8, 13, 64])
def test_codes_follow_each_other_without_gaps(bits: int, count: int) -> None:
    """Against a string of bits, the lowest of each code and of each byte first."""
    codes = torch.randint(0, 2**bits, (3, count), generator=torch.Generator().manual_seed(bits))
    packed = pack(codes, bits)
    assert packed.dtype == torch.uint8 and packed.shape == (3, row_bytes(count, bits))
    for row, found in zip(codes.tolist(), packed.tolist(), strict=True):
        string = "".join(f"{code:0{bits}b}"[::-1] for code in row)
        string += "0" * (-len(string) % 8)
        assert found == [int(string[start:start + 8][::-1], 2) for start in range(0, len(string), 8)]
    assert torch.equal(unpack(packed, count, bits).long(), codes)


@pytest.mark.sampled
@pytest.mark.parametrize("form", GRIDS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_weight_is_off_by_half_a_step_at_most(form: Integers, shape: tuple[int, int]) -> None:
    weight = drawn(*shape)
    parts = encode(weight, form)
    codes, grid = read_codes(parts, shape[1], form)
    found = decode(parts, shape, form)
    assert int(codes.min()) >= grid.lowest and int(codes.max()) <= grid.highest
    error, steps = split_groups((found - weight).abs(), form), grid.scales[..., None]
    assert bool((error <= steps * (0.5 + 1e-4) * (1 if isinstance(form.range, Symmetric) else 2)).all())
    if isinstance(form.range, Symmetric):  # the largest value is met
        largest = split_groups(weight, form).abs().amax(-1)
        torch.testing.assert_close(grid.scales, largest / (2**(form.bits - 1) - 1))


@pytest.mark.parametrize("form", [*GRIDS, OTHERS[2], OTHERS[3]], ids=str)
def test_the_definition_in_float64(form: NumberFormat) -> None:
    """`scale * (code - zero)` with codes taken out of the bytes one by one."""
    weight = drawn(4, 24, seed=3)
    parts = encode(weight, form)
    found = decode(parts, (4, 24), form)
    assert isinstance(form, Integers)
    symmetric, size = isinstance(form.range, Symmetric), form.group or 24
    for row, place in itertools.product(range(4), range(24)):
        whole = int.from_bytes(bytes(parts["codes"][row].tolist()), "little")
        code = whole >> place * form.bits & 2**form.bits - 1
        zero = 2**(form.bits - 1) if symmetric else int.from_bytes(
            bytes(parts["zeros"][row].tolist()), "little") >> place // size * form.bits & 2**form.bits - 1
        expected = float(parts["scales"][row, place // size]) * (code - zero)
        assert float(found[row, place]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.sampled
@pytest.mark.parametrize("form", [*GRIDS, *OTHERS], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_layouts_rows_and_sizes(form: NumberFormat, shape: tuple[int, int]) -> None:
    """The tensors are those that the layout says; rows alone are the rows of all; zeros stay zero."""
    codec = CODECS[type(form)]
    parts = encode(drawn(*shape), form)
    assert {name: (tuple(one.shape), one.dtype) for name, one in parts.items()} == codec.layout(shape, form)
    assert count_bytes(shape, form) == sum(one.nbytes for one in parts.values())
    assert codec.fault(parts, shape, form) == ""
    rows = torch.tensor([shape[0] - 1, 0])
    assert torch.equal(codec.take(parts, rows, shape, form), decode(parts, shape, form)[rows])
    if not isinstance(form, LearnedBasis):
        assert decode(encode(torch.zeros(shape), form), shape, form).abs().max() == 0


def test_int8_rows_against_torch() -> None:
    """The same codes as torch's own quantizer of rows."""
    weight = drawn(6, 40)
    parts = encode(weight, Integers())
    codes, grid = read_codes(parts, 40, Integers())
    scales = grid.scales[:, 0]
    found = torch.quantize_per_channel(weight, scales.double(), torch.zeros(6, dtype=torch.long), 0, torch.qint8)
    assert torch.equal(found.int_repr().int(), codes)


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_a_learned_basis_loses_less_than_a_uniform_grid(bits: int) -> None:
    """On the weights of a normal distribution, at equal bits, with a grid of as many levels (Zhang et al., §3.1)."""
    weight = drawn(32, 512)
    learned = (decode(encode(weight, LearnedBasis(bits=bits)), (32, 512), LearnedBasis(bits=bits)) - weight).square()
    uniform = (decode(encode(weight, Integers(bits=bits)), (32, 512), Integers(bits=bits)) - weight).square()
    zero = Integers(bits=bits, range=ZeroPoint())
    filled = (decode(encode(weight, zero), (32, 512), zero) - weight).square()
    assert learned.mean() < 0.85 * min(uniform.mean(), filled.mean())


def test_each_round_of_qem_helps_and_codes_are_the_nearest() -> None:
    weight, errors = drawn(8, 200), []
    for rounds in (1, 2, 5, 30):
        form = LearnedBasis(bits=3, rounds=rounds)
        parts = encode(weight, form)
        found = decode(parts, (8, 200), form)
        errors.append(float((found - weight).square().sum()))
        levels = parts["basis"] @ sign_table(3, weight.device).T
        nearest = (weight[..., None] - levels[:, None]).abs().amin(-1)
        torch.testing.assert_close((found - weight).abs(), nearest)
    assert errors == sorted(errors, reverse=True) and errors[-1] < errors[0]


def test_products_by_bits_are_products_of_the_numbers() -> None:
    """Xnor and popcount (C eq 58) against the dequantized matrices in float64, at a width that fills no byte."""
    left, right = LearnedBasis(bits=2), LearnedBasis(bits=3)
    a, b = encode(drawn(5, 45), left), encode(drawn(7, 45, seed=1), right)
    found = multiply_bits(unpack(a["codes"], 45, 2), a["basis"], unpack(b["codes"], 45, 3), b["basis"])
    expected = decode(a, (5, 45), left).double() @ decode(b, (7, 45), right).double().T
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("activations", [DynamicInt8(), StaticInt8()], ids=["dynamic", "static"])
@pytest.mark.parametrize("form", [Integers(), Integers(bits=4, group=32), Integers(group=48, range=ZeroPoint()),
                                  Integers(bits=3, range=ZeroPoint())], ids=str)
def test_rounded_inputs_are_the_definition(form: Integers, activations: Activations) -> None:
    """The product of the dequantized weights and the dequantized inputs in float64."""
    base = Linear(1200, 9)
    torch.nn.init.normal_(base.weight)
    torch.nn.init.normal_(base.bias)
    held = QuantizedLinear(base, form, activations=activations)
    x = drawn(2, 3, 1200, seed=2) * 5
    if isinstance(activations, StaticInt8):
        held.input_scale = torch.tensor(9.0 / 127)
    scale = torch.tensor(9.0 / 127).expand(2, 3, 1) if isinstance(activations, StaticInt8) else \
        x.abs().amax(-1, keepdim=True) / 127
    rounded = (x / scale).round().clamp(-127, 127).double() * scale.double()
    expected = rounded @ held.weight.double().T + base.bias.double()
    found = held(x)
    assert found.shape == (2, 3, 9)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=2e-4)  # of sums of up to a thousand
    assert held(torch.zeros(1200)).allclose(base.bias)
    assert held(x[:0]).shape == (0, 3, 9)


def test_the_gradient_passes_the_rounding() -> None:
    held = QuantizedLinear(torch.nn.Linear(20, 6), Integers(bits=4), activations=DynamicInt8())
    x = drawn(3, 20).requires_grad_()
    change = drawn(3, 6, seed=1)
    held(x).backward(change)
    assert x.grad is not None
    torch.testing.assert_close(x.grad, change @ held.weight)


def test_a_map_of_which_some_rows_have_a_bias() -> None:
    base = PartlyBiased(8, (4, 4, 4), biased=(True, False, True))
    for one in base.parameters():
        torch.nn.init.normal_(one)
    held, x = QuantizedLinear(base, Integers()), drawn(5, 8)
    torch.testing.assert_close(held(x), base(x), rtol=0, atol=0.2)
    torch.testing.assert_close(held.as_ordinary()(x), held(x))


@pytest.mark.parametrize("form", [Integers(), Integers(bits=3, group=8), NormalFloat(), LearnedBasis()], ids=str)
def test_a_table_gives_the_rows_of_its_matrix(form: NumberFormat) -> None:
    table = Table(11, 24)
    torch.nn.init.normal_(table.weight)
    held = QuantizedTable(table.weight, form)
    ids = torch.tensor([[3, 3, 10], [0, 7, 3]])
    assert torch.equal(held(ids), held.weight[ids])
    assert held(ids[:0]).shape == (0, 3, 24)
    for wrong in (11, -1):
        with pytest.raises(IndexError, match="and 11 rows"):
            held(torch.tensor([2, wrong]))


@pytest.mark.parametrize("scales", ["float32", "float16", "bfloat16"])
def test_moving_a_model_rounds_no_number(scales: ScaleFormat) -> None:
    held = QuantizedLinear(torch.nn.Linear(40, 7), Integers(bits=4, group=16, scales=scales))
    before = {name: part.clone() for name, part in held.parts().items()}
    held.to(torch.bfloat16).half().float().double()
    assert all(torch.equal(part, before[name]) and part.dtype == before[name].dtype
               for name, part in held.parts().items())
    assert held.dtype == torch.float64 and held.weight.dtype == torch.float64


def test_a_range_may_be_narrowed() -> None:
    groups = split_groups(drawn(4, 32), Integers(bits=4, group=8))
    whole = find_grid(groups, Integers(bits=4, group=8))
    half = find_grid(groups, Integers(bits=4, group=8), torch.full((4, 4), 0.5))
    torch.testing.assert_close(half.scales, whole.scales / 2)
    assert float(half.round(groups).abs().max()) == 7


@pytest.mark.parametrize("values", [{"bits": 1}, {"bits": 9}, {"group": 0}, {"scales": "int8"}, {"kind": "float"}])
def test_bad_formats(values: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Integers(**values)
