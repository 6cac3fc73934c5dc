"""Number formats: sign, exponent and fraction of a value in float32, bfloat16 and float16. No torch."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from saucier.errors import InputError
from saucier.result import Result
from saucier.table import Table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

Kind = Literal["normal", "subnormal", "zero", "infinity", "not a number"]
STYLES = {"sign": "red", "exponent": "green", "fraction": "blue"}
HINT = "write it as 0.1, 1e-3, 1/3, inf or nan"


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating-point format."""

    name: str
    exponent_bits: int
    fraction_bits: int

    @property
    def bias(self) -> int:
        """What is subtracted from the stored exponent."""
        return (1 << self.exponent_bits - 1) - 1

    @property
    def infinity(self) -> int:
        """The bits of +infinity: one more than those of the largest number."""
        return ((1 << self.exponent_bits) - 1) << self.fraction_bits

    @property
    def largest(self) -> float:
        """The largest number."""
        return StoredNumber(self, self.infinity - 1).value

    @property
    def smallest_normal(self) -> float:
        """The smallest positive number with a full fraction."""
        return math.ldexp(1.0, 1 - self.bias)

    @property
    def step(self) -> float:
        """The distance from 1 to the next larger number."""
        return math.ldexp(1.0, -self.fraction_bits)


FLOAT32, BFLOAT16, FLOAT16 = Format("float32", 8, 23), Format("bfloat16", 8, 7), Format("float16", 5, 10)
FORMATS = (FLOAT32, BFLOAT16, FLOAT16)


@dataclass(frozen=True, slots=True)
class StoredNumber:
    """A value as a format stores it, in parts."""

    format: Format
    bits: int

    @property
    def sign(self) -> int:
        """1 for a negative number."""
        return self.bits >> self.format.exponent_bits + self.format.fraction_bits

    @property
    def exponent(self) -> int:
        """The exponent as it is stored, with the bias."""
        return self.bits >> self.format.fraction_bits & (1 << self.format.exponent_bits) - 1

    @property
    def fraction(self) -> int:
        """The bits after the point."""
        return self.bits & (1 << self.format.fraction_bits) - 1

    @property
    def value(self) -> float:
        """The number that the bits mean, exactly (every one fits into a float64)."""
        sign = -1.0 if self.sign else 1.0
        if self.kind in ("infinity", "not a number"):
            return sign * math.inf if self.kind == "infinity" else math.nan
        lead = 1 << self.format.fraction_bits if self.exponent else 0
        return sign * math.ldexp(lead + self.fraction,
                                 max(self.exponent, 1) - self.format.bias - self.format.fraction_bits)

    @property
    def kind(self) -> Kind:
        """What sort of number it is."""
        if self.exponent == (1 << self.format.exponent_bits) - 1:
            return "not a number" if self.fraction else "infinity"
        if self.exponent:
            return "normal"
        return "subnormal" if self.fraction else "zero"

    @property
    def formula(self) -> str:
        """The number, put together from its parts: `-1 × 2^-4 × 1.60000002384`."""
        if self.kind in ("infinity", "not a number", "zero"):
            return self.kind
        lead = 0 if self.kind == "subnormal" else 1
        power = max(self.exponent, 1) - self.format.bias
        parts = f"2^{power} × {lead + self.fraction * self.format.step:.12g}"
        return ("−" * self.sign + parts).replace("^-", "^−")


def encode_value(value: float, form: Format) -> int:
    """Give the bits of the nearest number of a format; of two equally near ones the one with an even last bit.

    Too large a value becomes infinity. This is one rounding; see `store` for what torch does.
    """
    if math.isnan(value):
        return form.infinity | 1 << form.fraction_bits - 1
    negative = int(math.copysign(1.0, value) < 0) << form.exponent_bits + form.fraction_bits
    if math.isinf(value):
        return negative | form.infinity
    power = max(math.frexp(value)[1] - 1, 1 - form.bias) if value else 1 - form.bias
    units = round(math.ldexp(abs(value), form.fraction_bits - power))  # exact, and `round` takes the even neighbour
    # A full fraction counts its leading one as 1 in the exponent; rounding up to the next power of two carries into it.
    return negative | min(form.infinity, (power + form.bias - 1 << form.fraction_bits) + units)


def round_to_format(value: float, form: Format) -> StoredNumber:
    """Store a Python number as torch does: rounded to float32 first, and from there to a shorter format."""
    single = StoredNumber(FLOAT32, encode_value(value, FLOAT32))
    return StoredNumber(form, encode_value(single.value, form))


@dataclass(frozen=True, slots=True)
class GivenNumber:
    """A number as a person wrote it: exactly, and as the float64 that Python makes of it."""

    text: str
    exact: Fraction | None
    """None for infinities and NaN."""
    value: float

    def error(self, stored: StoredNumber) -> float | None:
        """How far the stored number is from what was written; None where one of them is not finite."""
        if self.exact is None or not math.isfinite(stored.value):
            return None
        return float(Fraction(stored.value) - self.exact)

    def relative_error(self, stored: StoredNumber) -> float | None:
        """The size of the error as a share of the number that was written; None where that is zero, too."""
        if not self.exact or not math.isfinite(stored.value):
            return None
        return float(abs(Fraction(stored.value) / self.exact - 1))


def read_number(text: str) -> GivenNumber:
    """Read a number in decimals, as a fraction, or as `inf` and `nan`.

    Errors: `InputError` where it is no number, or not within the range of a float64.
    """
    where = f"number {text!r}"
    try:
        if "/" in text:
            exact = Fraction(text)
            return GivenNumber(text, exact, float(exact))
        decimal, value = Decimal(text), float(text)
    except (ValueError, InvalidOperation):
        raise InputError("is not a number", where=where, remedy=HINT) from None
    except ZeroDivisionError:
        raise InputError("divides by zero", where=where, remedy=HINT) from None
    except OverflowError:
        raise InputError("is out of the range of a float64", where=where, remedy="write a smaller one") from None
    if decimal.is_finite() and (math.isinf(value) or bool(decimal) != bool(value)):
        raise InputError("is out of the range of a float64", where=where, remedy="write one from 1e-307 to 1e308")
    exact_value = (Fraction(decimal) if value else Fraction(0)) if decimal.is_finite() else None
    return GivenNumber(text, exact_value, value)


def number_as_json(given: GivenNumber) -> list[dict[str, Any]]:
    """Return a number in all formats as plain values, for `--json`; what is not finite is text."""
    return [{"given": given.text, "format": stored.format.name, "bits": format_bits(stored).plain.replace(" ", ""),
             **{name: getattr(stored, name) for name in ("sign", "exponent", "fraction", "kind")},
             "value": stored.value if math.isfinite(stored.value) else str(stored.value),
             "error": given.error(stored), "relative_error": given.relative_error(stored),
             "properties": asdict(stored.format) | {
                 name: getattr(stored.format, name) for name in ("bias", "largest", "smallest_normal", "step")}}
            for stored in (round_to_format(given.value, form) for form in FORMATS)]


@dataclass(frozen=True, slots=True)
class GivenNumbers(Result):
    """Several numbers."""

    found: tuple[GivenNumber, ...]

    def view(self) -> RenderableType:
        """Return a table for each."""
        from rich.console import Group

        return Group(*map(render_number, self.found))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"numbers": self.to_json()}

    def to_json(self) -> list[dict[str, Any]]:
        """Return a value for each number and format."""
        return [row for one in self.found for row in number_as_json(one)]


def render_number(given: GivenNumber) -> Table:
    """Return the table that `saucier number` prints for one number."""
    from rich.text import Text

    rows = []
    for stored in (round_to_format(given.value, form) for form in FORMATS):
        errors = (given.error(stored), given.relative_error(stored))
        rows.append((stored.format.name, format_bits(stored), stored.formula, repr(stored.value),
                     *("" if one is None else "0" if one == 0 else f"{one:.2e}" for one in errors),
                     f"{stored.format.largest:.3g}", f"{stored.format.step:.2g}"))
    headings = ("format", "sign exponent fraction", "that is", "stored", "error", "relative", "largest", "step at 1")
    return Table(headings, rows, numbers=range(3, 8), title=Text(given.text, style="bold"), gap=3)


def format_bits(stored: StoredNumber) -> Text:
    """Write the bits in three colours, with a space between sign, exponent and fraction."""
    from rich.text import Text

    widths = {"sign": 1, "exponent": stored.format.exponent_bits, "fraction": stored.format.fraction_bits}
    pieces = [(f"{getattr(stored, name):0{width}b}", STYLES[name]) for name, width in widths.items()]
    return Text(" ").join(Text(bits, style=style) for bits, style in pieces)
