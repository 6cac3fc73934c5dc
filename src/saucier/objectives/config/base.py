"""What every objective says of itself as data; a new one overrides what is different about it. Needs no torch."""

from __future__ import annotations

from saucier.config.base import Config
from saucier.text.rows.kinds import RowRequest


class SingleObjective(Config):
    """An objective that is learned alone, or as a part of a mixture."""

    @property
    def rows_read(self) -> RowRequest:
        """The rows that it learns from."""
        return RowRequest("running")
