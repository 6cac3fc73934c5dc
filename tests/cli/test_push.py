"""`saucier push`: a dry run from the command line, and what it says where it cannot be."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.cli.conftest import Saucier

OWN = Path(__file__).parents[1] / "frozen/box/models/own"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a saved model with a card."""
    folder = shutil.copytree(OWN, tmp_path / "own")
    (folder / "README.md").write_text("# A model\n", encoding="utf-8")
    return folder


def test_a_dry_run_prints_every_file_and_what_would_be_sent(saucier: Saucier, model: Path) -> None:
    done = saucier("push", model, "cook/own", "--dry-run")
    assert done.code == 0 and done.err == ""
    assert [line.split()[0] for line in done.out.splitlines()[1:-1]] == sorted(path.name for path in model.iterdir())
    assert done.out.splitlines()[-1].endswith("for cook/own; a dry run: nothing was sent")
    told = json.loads(saucier("push", model, "cook/own", "--dry-run", "--json").out)
    assert (told["hub_id"], told["dry_run"], told["address"]) == ("cook/own", True, None)
    assert {one["name"]: one["size"] for one in told["files"]}["README.md"] == 10


def test_what_is_wrong_is_one_line(saucier: Saucier, model: Path) -> None:
    assert saucier("push", model, "own").error.startswith("hub id: 'own' is no id of a repository; write owner/name")
    (model / "README.md").unlink()
    refused = saucier("push", model, "cook/own", "--dry-run")
    assert refused.code == 2 and "README.md: there is no model card" in refused.error
