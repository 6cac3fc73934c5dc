"""How a task's config names a column. No torch."""

from __future__ import annotations

ColumnName = str | None
"""A column of the file; None: found by the names that such columns usually have."""
