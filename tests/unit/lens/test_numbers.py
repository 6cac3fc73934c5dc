"""The number formats against torch, bit for bit, and against their definition."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from saucier.cli import VERBS
from saucier.errors import InputError
from saucier.lens.number_formats import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    FORMATS,
    Format,
    StoredNumber,
    encode_value,
    format_bits,
    number_as_json,
    read_number,
    render_number,
    round_to_format,
)

TORCH = {"float32": (torch.float32, torch.int32), "bfloat16": (torch.bfloat16, torch.int16),
         "float16": (torch.float16, torch.int16)}


def torch_bits(value: float, form: Format) -> int:
    """The bits that torch stores for a Python number."""
    kind, integer = TORCH[form.name]
    width = 1 + form.exponent_bits + form.fraction_bits
    return int(torch.tensor(value, dtype=torch.float64).to(kind).view(integer).item()) % (1 << width)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(value=st.floats(allow_nan=False) | st.floats(width=32, allow_nan=False) | st.floats(width=16, allow_nan=False)
       | st.floats(-70000, 70000) | st.floats(-1e-4, 1e-4))
@example(0.0)
@example(-0.0)
@example(65519.99)
@example(65520.0)
@example(3.4028235677973366e38)
@example(2.0**-25)
@example(2.0**-150)
@example(1 + 2.0**-9 + 2.0**-40)
@example(math.inf)
@example(-math.inf)
def test_stored_bits_are_those_of_torch(value: float) -> None:
    for form in FORMATS:
        stored = round_to_format(value, form)
        assert stored.bits == torch_bits(value, form), form.name
        assert stored.value == torch.tensor(value, dtype=torch.float64).to(TORCH[form.name][0]).item()
        assert math.copysign(1, stored.value) == math.copysign(1, value)


@pytest.mark.parametrize("form", FORMATS)
def test_formats_are_those_of_torch(form: Format) -> None:
    want = torch.finfo(TORCH[form.name][0])
    assert (form.largest, form.smallest_normal, form.step) == (want.max, want.smallest_normal, want.eps)
    assert round_to_format(math.nan, form).bits == torch_bits(math.nan, form)


@pytest.mark.parametrize("form", [BFLOAT16, FLOAT16])
def test_all_short_numbers_come_back(form: Format) -> None:
    for bits in range(1 << 16):
        value = StoredNumber(form, bits).value
        assert math.isnan(value) or encode_value(value, form) == bits


@settings(max_examples=200, deadline=None)
@given(value=st.floats(-1e6, 1e6), form=st.sampled_from(FORMATS))
def test_encoding_takes_the_nearest_and_of_two_the_even(value: float, form: Format) -> None:
    bits = encode_value(value, form)
    if math.isinf(StoredNumber(form, bits).value):
        assert abs(value) >= form.largest
        return
    distance = abs(Fraction(StoredNumber(form, bits).value) - Fraction(value))
    for other in (bits - 1, bits + 1):
        near = StoredNumber(form, other).value if other >= 0 else math.nan
        if math.isfinite(near) and (near < 0) == (StoredNumber(form, bits).value < 0):
            further = abs(Fraction(near) - Fraction(value))
            assert distance < further or (distance == further and bits % 2 == 0)


def test_the_parts_make_the_number() -> None:
    stored = round_to_format(-0.15625, FLOAT32)  # the definition, with numbers: -1 * 2^(124 - 127) * 1.25
    assert (stored.sign, stored.exponent, stored.fraction) == (1, 124, 1 << 21)
    assert stored.value == -0.15625
    assert stored.formula == "−2^−3 × 1.25"
    assert format_bits(stored).plain == "1 01111100 01000000000000000000000"


@pytest.mark.parametrize(("bits", "kind"), [(0, "zero"), (1 << 15, "zero"), (1, "subnormal"), (1 << 10, "normal"),
                                            (31 << 10, "infinity"), ((31 << 10) + 1, "not a number")])
def test_kinds(bits: int, kind: str) -> None:
    assert StoredNumber(FLOAT16, bits).kind == kind


def test_the_error_is_that_of_what_was_written() -> None:
    tenth = read_number("0.1")
    error = Fraction(0.10009765625) - Fraction(1, 10)
    assert tenth.error(round_to_format(tenth.value, BFLOAT16)) == pytest.approx(float(error), rel=1e-12)
    assert tenth.relative_error(round_to_format(tenth.value, BFLOAT16)) == pytest.approx(float(error * 10), rel=1e-12)
    third = read_number("1/3")
    assert third.exact == Fraction(1, 3)
    assert read_number("0").relative_error(round_to_format(0.0, FLOAT16)) is None
    assert read_number("1e5").error(round_to_format(1e5, FLOAT16)) is None
    assert read_number("nan").exact is None


@pytest.mark.parametrize(("text", "message"), [
    ("abc", "is not a number; write it as"), ("", "is not a number"), ("1/x", "is not a number"), ("1/0", "by zero"),
    ("1e400", "out of the range"), ("1e-400", "out of the range"), ("1e999999999", "out of the range"),
    (f"{10**400}/1", "out of the range"), ("--jsn", "is not a number")])
def test_wrong_numbers_are_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_number(text)


def test_a_zero_with_a_huge_exponent_is_zero() -> None:
    assert read_number("0e999999999").exact == 0


def test_the_verb_prints_a_table_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    VERBS["number"](values=["0.1", "-2"], as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert [row["format"] for row in rows] == ["float32", "bfloat16", "float16"] * 2
    assert rows[1]["value"] == 0.10009765625
    assert rows[1]["bits"] == "0011110111001101"
    VERBS["number"](values=["0.1"])
    shown = capsys.readouterr().out
    for part in ("0 01111011 1001101", "0.10009765625", "2^−4 × 1.6015625", "0.0078"):
        assert part in shown
    console = Console(width=200, record=True)
    console.print(render_number(read_number("inf")))
    assert "infinity" in console.export_text()
    assert json.loads(json.dumps(number_as_json(read_number("nan")), allow_nan=False))[0]["value"] == "nan"


def test_negative_numbers_are_no_options() -> None:
    from saucier.cli import app

    result = CliRunner().invoke(app, ["number", "-0.5", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)[0]["value"] == -0.5
