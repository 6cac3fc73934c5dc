"""What a stack asks of a batch, beside tokens."""

from __future__ import annotations

from saucier.config.model import Stack
from saucier.config.visibility import has_prefix


def sees_prefix(stack: Stack | None) -> bool:
    """Say whether a batch must name the first tokens of its rows that all may see."""
    return stack is not None and any(has_prefix(one.visibility) for one in dict.fromkeys(stack.attentions()))
