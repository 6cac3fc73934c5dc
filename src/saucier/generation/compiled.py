"""The compiled step of one token (being built)."""

from __future__ import annotations

from saucier.generation.feed import CachedFeed

CompiledFeed = CachedFeed
