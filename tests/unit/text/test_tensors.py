"""Texts to tensors: padding, truncation that is counted, pairs; as the golden tokenizers have them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

from saucier.errors import InputError
from saucier.text.tokenizer.tokenizer import Tokenizer, load_tokenizer

GOLDEN = ("tokenizer-byte-bpe", "tokenizer-wordpiece", "tokenizer-unigram-t5")
NAMES = {True: "longest_first", None: "refuse"}


@pytest.fixture(scope="module")
def bert(shared: Path) -> Tokenizer:
    """Return the golden WordPiece tokenizer."""
    return load_tokenizer(shared / "golden/tokenizer-wordpiece")


@pytest.mark.filterwarnings("ignore:.*texts were cut")
@pytest.mark.parametrize("name", GOLDEN)
def test_pairs_and_batches_of_published_tokenizers(shared: Path, name: str) -> None:
    golden = json.loads((shared / "golden" / name / "golden.json").read_text())
    tokenizer, compared = load_tokenizer(shared / "golden" / name), 0
    for case in golden["pairs"]:
        wanted = case["kwargs"]
        cut = wanted.get("truncation")
        found = tokenizer(case["text"], case["text_pair"], max_length=wanted.get("max_length"),
                          padding=wanted.get("padding") or "none", truncation=NAMES.get(cut, cut))
        for key in found.keys():  # noqa: SIM118
            assert found[key][0].tolist() == case[key]
            compared += 1
        assert ("token_type_ids" in case) == (found.token_type_ids is not None)
    batch = golden.get("batch")
    if batch:
        found = tokenizer(batch["texts"], max_length=32)
        assert found.input_ids.tolist() == batch["input_ids"]
        assert found.attention_mask.tolist() == batch["attention_mask"]
    assert compared > 40


def test_what_is_cut_is_counted_and_said(bert: Tokenizer) -> None:
    long = "the method returns a class " * 20
    whole = len(bert.encode(long))
    with pytest.warns(UserWarning, match=rf"1 of 2 texts were cut to 10 tokens; {whole - 10} tokens are left out"):
        found = bert(["the class", long], max_length=10)
    assert found.cut == (0, whole - 10)
    assert found.input_ids[1].tolist() == [*bert.encode(long)[:9], bert.sep_id]
    with pytest.raises(InputError, match=f"has {whole} tokens, more than max_length 10"):
        bert(long, max_length=10, truncation="refuse")


def test_the_models_own_length_is_kept(bert: Tokenizer) -> None:
    with pytest.warns(UserWarning, match="cut to 512 tokens"):
        found = bert("a " * 600)
    assert found.input_ids.shape == (1, 512) and found.cut == (90,)
    assert len(bert.encode("a " * 600)) == 602  # ids alone are never cut


def test_padding_at_the_left(shared: Path) -> None:
    from dataclasses import replace

    opened = load_tokenizer(shared / "golden/tokenizer-wordpiece")
    left = Tokenizer(opened.backend, opened.names, handling=replace(opened.handling, padding_side="left"))
    found = left(["a", "a class here"])
    assert found.attention_mask[0].tolist()[0] == 0 and found.attention_mask[0].tolist()[-1] == 1
    assert found.input_ids[0].tolist()[0] == left.pad_id


def test_faults(bert: Tokenizer, shared: Path) -> None:
    gpt2 = load_tokenizer(shared / "golden/tokenizer-byte-bpe")
    with pytest.raises(InputError, match="no padding token"):
        gpt2(["a", "a longer one"])
    gpt2.names["pad"] = gpt2.names["eos"]
    assert gpt2(["a", "a longer one"]).attention_mask.sum().item() == len(gpt2.encode("a")) + len(
        gpt2.encode("a longer one"))
    with pytest.raises(InputError, match="did you mean 'longest'"):
        bert("a", padding="longst")
    with pytest.raises(InputError, match="2 texts and 1 pairs"):
        bert(["a", "b"], ["c"])
    with pytest.raises(InputError, match="max_length 3 cannot be kept with truncation only_first"):
        bert("a", "b c d e f", max_length=3, truncation="only_first")
    with pytest.raises(InputError, match="max_length 1 cannot be kept"):
        bert("a b", max_length=1)
    with pytest.raises(InputError, match="there are no texts"):
        bert([])
    with pytest.raises(InputError, match="different lengths"):
        bert(["a", "a b"], padding="none")


def test_settings_of_tokenizer_json_cut_nothing_unseen(bert: Tokenizer, tmp_path: Path) -> None:
    """Some published files hold a truncation and a padding of their own."""
    bert.save(tmp_path)
    bert.backend.enable_truncation(4)
    bert.backend.enable_padding(length=4)
    (tmp_path / "tokenizer.json").write_text(bert.backend.to_str())
    bert.backend.no_truncation()
    bert.backend.no_padding()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_tokenizer(tmp_path).encode("a b c d e f g") == bert.encode("a b c d e f g")
