"""Values of a published config that make no model: one line that names the file, whichever way the family says so."""

from __future__ import annotations

from typing import Any

import pytest

from saucier.checkpoints.layout import call_family
from saucier.errors import InputError
from saucier.families.longformer import longformer


@pytest.mark.parametrize(("arguments", "told"), [
    ({"window": [4, 3]}, r"make no model \(window: 3 neighbours cannot stand half on each side\); give even"),
    ({"window": [4]}, r"make no model \(window: 1 windows for 2 layers\); give one number for all layers"),
    ({"dim": 0}, r"hidden: Input should be greater than 0"),
    ({"window": "many"}, r"make no model"),
])
def test_values_that_make_no_model(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=r"^config\.json: .*" + told):
        call_family(longformer, {"dim": 24, "heads": 2, "layers": 2} | arguments, "config.json")
