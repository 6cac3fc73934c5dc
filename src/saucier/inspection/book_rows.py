"""The Book as data: every system that this project owes, the tests that show it, and how far it has come.

Which recipes serve a row is written in the recipes (`book:`), not here. A test checks that the tests named here exist.
"""

from __future__ import annotations

from saucier.inspection.book_models import FOUNDATIONS, GENERATION, UNDERSTANDING
from saucier.inspection.book_uses import ADAPTING, KNOWLEDGE, LONGER, SMALLER, WHOLE

CHAPTERS = (FOUNDATIONS, UNDERSTANDING, GENERATION, ADAPTING, SMALLER, KNOWLEDGE, LONGER, WHOLE)
"""All of it, in order."""
