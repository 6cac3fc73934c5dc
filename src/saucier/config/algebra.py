"""The operators that put visibilities together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saucier.config.base import Config

if TYPE_CHECKING:
    from saucier.config.visibility import And, Or, Plus, Visibility


class Algebra(Config):
    """Gives every visibility the operators `&` (both must allow) and `|` (one must allow)."""

    def __and__(self, other: Visibility) -> And:
        """Allow what both allow."""
        from saucier.config.visibility import And

        return And(terms=(self, other))

    def __or__(self, other: Visibility) -> Or:
        """Allow what at least one allows."""
        from saucier.config.visibility import Or

        return Or(terms=(self, other))

    def __add__(self, other: Visibility) -> Plus:
        """Allow what at least one allows, and count a key as often as they allow it together."""
        from saucier.config.visibility import Plus

        return Plus(terms=(self, other))
