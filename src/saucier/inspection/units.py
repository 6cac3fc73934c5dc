"""Numbers as a person reads them: counts, bytes, seconds. Decimal units: 1 GB is 10^9 bytes."""

from __future__ import annotations

PREFIXES = ((1e21, "Z"), (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365.25 * 86400


def quantity(value: float) -> str:
    """Return a number with three digits and its prefix: `124 M`, `1.50 G`; small whole numbers stay as they are."""
    for factor, prefix in PREFIXES:
        if abs(value) >= factor * 0.9995:
            return f"{three_digits(value / factor)} {prefix}"
    return f"{value:g}" if value == int(value) else three_digits(value)


def three_digits(value: float) -> str:
    """Return a number below 1000 with three digits: 1.23, 12.3, 123."""
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{decimals}f}"


def bytes_text(count: float) -> str:
    """Return a size in bytes: `0 B`, `1.50 GB`."""
    return f"{count:.0f} B" if abs(count) < 1000 else f"{quantity(count)}B"


def duration(seconds: float) -> str:
    """Return a span of time in its two largest units: `0.31 s`, `3 min 20 s`, `2 d 4 h`."""
    if seconds < MINUTE - 0.5:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.0f} s"
    if seconds < HOUR - 0.5:
        return f"{int(seconds + 0.5) // MINUTE} min {int(seconds + 0.5) % MINUTE:d} s"
    if seconds < DAY - MINUTE / 2:
        minutes = round(seconds / MINUTE)
        return f"{minutes // 60} h {minutes % 60} min"
    if seconds >= 2 * YEAR:
        return f"{seconds / YEAR:,.0f} years"
    hours = round(seconds / HOUR)
    return f"{hours // 24:,} d {hours % 24} h"
