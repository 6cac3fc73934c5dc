"""Tokenizers with fewer tokens: the text is spelled as before, token by token, and no other text gets unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.text.test_extension import SIZED, trained

from saucier.errors import InputError
from saucier.text.tokenizer.tokenizer import Tokenizer, load_tokenizer
from saucier.text.tokenizer.vocabulary import trim_tokenizer

TEXT = ["the cook tastes the soup", "some more sauce"]
OTHERS = ["the guest stirs a little salt please", "w12 w7 w49", "soup, sauce"]


def named(tokenizer: Tokenizer, text: str) -> list[str | None]:
    """Spell a text inside its frame."""
    return [tokenizer.id_to_token(number) for number in tokenizer.encode(text)]


@pytest.mark.parametrize("config", SIZED, ids=lambda config: config.kind)
def test_the_text_is_spelled_as_before(config: Any, tmp_path: Path) -> None:
    old = trained(config)
    new, kept = trim_tokenizer(old, TEXT)
    place = {number: place for place, number in enumerate(kept)}
    assert new.vocab_size == len(kept) < old.vocab_size
    assert list(kept) == sorted(kept)
    assert all(new.id_to_token(at) == old.id_to_token(number) for number, at in place.items())
    for text in TEXT:
        assert new.encode(text) == [place[number] for number in old.encode(text)]
    for text in OTHERS:
        assert new.decode(new.encode(text)) == old.decode(old.encode(text))
        assert named(new, text).count(new.names.get("unk")) == named(old, text).count(old.names.get("unk"))
    assert (new.pad_id, new.mask_id) == (place.get(old.pad_id, old.pad_id), place.get(old.mask_id, old.mask_id))
    new.save(tmp_path)
    assert load_tokenizer(tmp_path).encode(TEXT[0]) == new.encode(TEXT[0])


@pytest.mark.parametrize("config", SIZED, ids=lambda config: config.kind)
def test_a_trimmed_tokenizer_is_trimmed_already(config: Any) -> None:
    once, _ = trim_tokenizer(trained(config), TEXT)
    again, kept = trim_tokenizer(once, TEXT)
    assert kept == tuple(range(once.vocab_size))
    assert again.backend.to_str() == once.backend.to_str()


def test_the_first_ids_stay_where_a_model_counts_by_them() -> None:
    old = trained(SIZED[2])
    assert trim_tokenizer(old, TEXT, keep_first=60)[1][:60] == tuple(range(60))


def test_a_text_without_tokens_is_refused() -> None:
    with pytest.raises(InputError, match="--vocabulary: the text gives no tokens"):
        trim_tokenizer(trained(SIZED[0]), [])
