"""XLM's tokenizer prepares texts with the Moses scripts, and gives transformers' ids in any language with spaces."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from saucier.errors import InputError
from saucier.text.tokenizer.tokenizer import load_tokenizer

pytest.importorskip("sacremoses", reason="needs the extra moses")
sys.path.insert(0, str(Path(__file__).parent))
from older_files import moses_pairs

ODD = ("Mr. Müller's 1.000,5 % – „so“, ``l'été'' …", "深い。  １２３（四）；「五」",
       "a\x00b\u200bc \ufeffd\x85e\u3000f", "«\u00a0oui\u00a0»", "<special1> and <s>inside</s> it</w>x",
       "  Ünïcode ﬁne ①  ", "", "http://a.b/c?d=e&f @-@ x|y [z]", "〈s〉 <unk>")


@pytest.fixture
def reference() -> Callable[..., list[int]]:
    """Return what gives transformers' ids of a text in a language."""
    transformers = pytest.importorskip("transformers")

    @functools.cache
    def opened(folder: Path, language: str) -> Any:
        theirs = transformers.XLMTokenizer.from_pretrained(folder)
        theirs._tokenize = functools.partial(theirs._tokenize, lang=language)
        return theirs

    def ids(folder: Path, text: str, language: str) -> list[int]:
        found: list[int] = opened(folder, language)(text)["input_ids"]
        return found

    return ids


@pytest.mark.slow
@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("language", ["en", "fr", "de", "ru", "ro", "ar"])
def test_ids_are_the_reference_s(language: str, plain: bool, shared: Path, tmp_path: Path,
                                 reference: Callable[..., list[int]]) -> None:
    files = sorted((shared / "data/multilingual/tatoeba").glob("*"))
    texts = [path.read_text(encoding="utf-8")[:700] for path in files if path.suffix in (".tsv", ".txt")]
    moses_pairs(tmp_path, texts)
    options: dict[str, Any] = {"tokenizer_class": "XLMTokenizer", "src_lang": language,
                               "do_lowercase_and_remove_accent": plain}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(options))
    ours = load_tokenizer(tmp_path)
    ours.save(tmp_path / "saved")
    again = load_tokenizer(tmp_path / "saved")
    assert again.handling == ours.handling and again.names == ours.names
    for text in [*texts, *ODD]:
        ids = reference(tmp_path, text, language)
        assert ours.encode(text) == ours.encode_batch([text])[0] == again.encode(text) == ids
        assert reference(tmp_path / "saved", text, language) == ids
    assert sum(ours.encode(text).count(ours.unk_id or 0) for text in texts) > 10


def test_words_that_are_known_stay_one_word_each(tmp_path: Path) -> None:
    moses_pairs(tmp_path, ["don't look at it now"] * 9)
    (tmp_path / "config.json").write_text('{"model_type": "xlm"}')
    found = load_tokenizer(tmp_path).word_encodings([["Don't", "look", "!"]])[0]
    assert sorted(set(found.word_ids)) == [0, 1, 2] and found.word_ids == sorted(found.word_ids)
    spelled = ["".join(token for token, at in zip(found.tokens, found.word_ids, strict=True) if at == word)
               for word in range(3)]
    assert spelled == ["don</w>'t</w>", "look</w>", "<unk>"]


def test_faults(tmp_path: Path) -> None:
    moses_pairs(tmp_path, ["some text"] * 9)

    def opened(**options: Any) -> Any:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "XLMTokenizer"} | options))
        return load_tokenizer(tmp_path)

    with pytest.raises(InputError, match="'ja' were cut into words by KyTea"):
        opened(src_lang="ja")
    with pytest.raises(InputError, match="knows no language 'fi'"):
        opened(src_lang="fi", lang2id={"fr": 0, "en": 1})
    with pytest.raises(InputError, match=r"character 1 is '\\ud800', half of a surrogate pair"):
        opened().encode("a\ud800")
    with pytest.raises(InputError, match="where its tokens stand is not known"):
        opened().encode_with_offsets(["some text"])


def test_without_sacremoses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from saucier.text.tokenizer import legacy_files

    moses_pairs(tmp_path, ["some text"] * 9)
    (tmp_path / "config.json").write_text('{"model_type": "xlm"}')
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    legacy_files.build_moses_scripts.cache_clear()
    with pytest.raises(InputError, match=r"pip install 'saucier\[moses\]'"):
        load_tokenizer(tmp_path)
