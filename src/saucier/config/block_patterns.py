"""What a BigBird sees, put together from its parts."""

from __future__ import annotations

from saucier.config.visibility import Beyond, BlockWindow, GlobalBlocks, RandomBlocks, Visibility


def blocks(size: int, drawn: int, length: int) -> Visibility:
    """Return what a BigBird of at most `length` positions sees; all, as long as the blocks could not leave gaps.

    Source: Zaheer et al. 2020, §2 and appendix D, arXiv:2007.14062; the limit is that of its code release.
    """
    pattern: Visibility = BlockWindow(size=size) | GlobalBlocks(size=size)
    if drawn:
        pattern = pattern + RandomBlocks(size=size, count=drawn, length=length)
    return Beyond(length=(5 + 2 * drawn) * size, inner=pattern)
