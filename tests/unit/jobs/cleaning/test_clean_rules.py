"""Rules of cleaning, and changes to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from saucier.errors import InputError
from saucier.jobs.cleaning.clean import cleaning


@pytest.mark.parametrize("rules", ["{kind: x}", "text", "7", "null"])
def test_a_change_to_rules_that_are_no_list(rules: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(f"shard: 5\nrules: {rules}\n")
    with pytest.raises(InputError, match=r"rules.yaml:2: is no list of rules; write one"):
        cleaning(str(path), ["short_lines.words=3"])
