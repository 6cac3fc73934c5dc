"""Passports: digests that depend on the text alone, and times that add up."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import pytest

from saucier.errors import InputError
from saucier.jobs.pretraining.cook import free_rerun_folder
from saucier.jobs.run.passport import RerunComparison, add_to_digest, code_version, read_passport, start_passport


@dataclass
class Text:
    """Something with a text."""

    text: str


def digest(*texts: str) -> str:
    """Return the digest of some texts."""
    found = hashlib.sha256()
    items = [Text(text) for text in texts]
    assert [item.text for item in add_to_digest(found.update, items, "text")] == list(texts)
    return found.hexdigest()


def test_a_digest_knows_where_texts_end() -> None:
    assert digest("ab", "c") == digest("ab", "c")
    assert len({digest("ab", "c"), digest("a", "bc"), digest("abc"), digest("ab", "c", ""), digest("c", "ab")}) == 5


def test_a_passport_is_written_and_read(tmp_path: Path) -> None:
    passport = start_passport(tmp_path, "gpt-nano", {"training": 1})
    passport = passport.timed("read", 1.5).timed("train", 2.0).timed("read", 0.5)
    assert passport.seconds == {"read": 2.0, "train": 2.0}
    passport.write(tmp_path)
    assert read_passport(tmp_path) == passport
    assert passport.code == code_version()
    assert len(passport.code.sha256) == 64


@pytest.mark.parametrize(("text", "said"), [("", ":1: not JSON"), ("{", ":1: not JSON"), ("[1]", ": not a JSON object"),
                                            ("{}", ": not a passport"), ('{"recipe": 3}', ": not a passport")])
def test_a_broken_passport_is_one_clear_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "passport.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=rf"passport\.json{said}"):
        read_passport(tmp_path)


def test_runs_without_an_outcome_are_not_equal() -> None:
    passport = start_passport(Path("nowhere"), "gpt-nano", {"training": 1})
    assert not RerunComparison(passport, passport).equal
    other = passport.in_environment(threads="77")
    before = passport.environment["threads"]
    assert list(RerunComparison(passport, other).reasons()) == [f"environment: threads was {before}, and is 77"]


def test_a_repetition_has_a_place_of_its_own(tmp_path: Path) -> None:
    assert free_rerun_folder(tmp_path / "run") == tmp_path / "run-again"
    (tmp_path / "run-again").mkdir()
    (tmp_path / "run-again" / "evaluation.json").write_text("{}", encoding="utf-8")
    assert free_rerun_folder(tmp_path / "run") == tmp_path / "run-again-2"
