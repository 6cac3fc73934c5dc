"""The tokenizers of GGUF files: the same ids after writing and reading, for each kind that llama.cpp knows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Backend

from saucier.checkpoints.gguf import U32, Typed, open_gguf, write_gguf
from saucier.errors import InputError
from saucier.folders.write_gguf import find_frame
from saucier.text.tokenizer.gguf_vocabulary import BLOOM_WORDS, LLAMA3_WORDS
from saucier.text.tokenizer.gguf_writing import express_tokenizer
from saucier.text.tokenizer.sentencepiece import find_merges
from saucier.text.tokenizer.tokenizer import Tokenizer, load_tokenizer

TEXTS = ["the soup was hot, and he said that it's 1234.5 %?  Two  spaces", "Naïve café 东京 🙂", "a\nb\tc", " lead", ""]
LINES = ["the soup was hot, and the stew was not as hot as the soup", "she said that it was", "don't 12 345"] * 4
END = "<|endoftext|>"


def byte_bpe(words: str | None = None, normalizer: normalizers.Normalizer | None = None) -> Tokenizer:
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False) if words is None else \
        pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(words), "isolated"),
                                 pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.decoder = decoders.ByteLevel()
    backend.train_from_iterator(LINES, trainers.BpeTrainer(
        vocab_size=300, special_tokens=[END], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return Tokenizer(backend, {"bos": END, "eos": END})


def pieces_bpe() -> Tokenizer:
    words = sorted({"▁" + word for line in LINES for word in line.split()})
    letters = sorted({letter for word in words for letter in word})
    joined = sorted({word[:end] for word in words for end in range(2, len(word) + 1)}, key=lambda one: (len(one), one))
    bytes_ = [f"<0x{number:02X}>" for number in range(256)]
    tokens = ["<unk>", "<s>", "</s>", *bytes_, *joined, *letters]
    order = {token: place for place, token in enumerate([*joined, *letters])}
    backend = Backend(models.BPE({token: place for place, token in enumerate(tokens)}, find_merges(order),
                                 unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                         decoders.Strip(content=" ", left=1)])
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in tokens[:3]])
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                                           special_tokens=[("<s>", 1)])
    return Tokenizer(backend, {"bos": "<s>", "eos": "</s>", "unk": "<unk>"})


def unigram() -> Tokenizer:
    backend = Backend(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    backend.decoder = decoders.Metaspace()
    backend.train_from_iterator(LINES, trainers.UnigramTrainer(
        vocab_size=60, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>",
                                                           special_tokens=[("</s>", 1)])
    return Tokenizer(backend, {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"})


def wordpiece() -> Tokenizer:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    backend = Backend(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.train_from_iterator(LINES, trainers.WordPieceTrainer(vocab_size=80, special_tokens=special,
                                                                 show_progress=False))
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return Tokenizer(backend, dict(zip(("pad", "unk", "cls", "sep", "mask"), special, strict=True)))


def store(tokenizer: Tokenizer, path: Path) -> tuple[str, ...]:
    """Write a file with nothing but a tokenizer; return what is otherwise in llama.cpp."""
    metadata, notes = express_tokenizer(tokenizer.backend, tokenizer.names, tokenizer.vocab_size + 3, {},
                                        find_frame(tokenizer))
    write_gguf(path, metadata, {})
    return notes


@pytest.mark.parametrize(("make", "kind", "splitting"), [
    (byte_bpe, "gpt2", "gpt-2"), (lambda: byte_bpe(BLOOM_WORDS), "gpt2", "bloom"),
    (lambda: byte_bpe(LLAMA3_WORDS), "gpt2", "chatglm-bpe"),
    (lambda: byte_bpe(normalizer=normalizers.NFC()), "gpt2", "olmo"), (pieces_bpe, "llama", "default"),
    (unigram, "t5", "default"), (wordpiece, "bert", "default"),
])
def test_same_ids(make: Callable[[], Tokenizer], kind: str, splitting: str, tmp_path: Path) -> None:
    tokenizer, path = make(), tmp_path / "t.gguf"
    notes = store(tokenizer, path)
    metadata, again = open_gguf(path).metadata, load_tokenizer(path)
    assert (metadata["tokenizer.ggml.model"], metadata["tokenizer.ggml.pre"]) == (kind, splitting)
    assert bool(notes) == (splitting == "olmo" or kind == "t5")
    assert [again.encode(text) for text in TEXTS] == [tokenizer.encode(text) for text in TEXTS]
    assert again.encode("the soup", pair="was hot") == tokenizer.encode("the soup", pair="was hot")
    assert again.names == tokenizer.names and again.vocab_size == tokenizer.vocab_size
    assert again.decode(again.encode(TEXTS[0])) == tokenizer.decode(tokenizer.encode(TEXTS[0]))
    again.save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").encode(TEXTS[0]) == tokenizer.encode(TEXTS[0])


def test_words_of_bert_are_marked(tmp_path: Path) -> None:
    tokenizer = wordpiece()
    store(tokenizer, tmp_path / "t.gguf")
    tokens = open_gguf(tmp_path / "t.gguf").metadata["tokenizer.ggml.tokens"]
    word, inside = tokenizer.token_to_id("soup"), next(number for token, number in tokenizer.get_vocab().items()
                                                       if token.startswith("##"))
    assert tokens[word] == "▁soup" and not tokens[inside].startswith(("#", "▁")) and tokens[2] == "[CLS]"


def test_the_first_token_of_bert_by_the_name_that_llama_cpp_knows(tmp_path: Path) -> None:
    tokenizer = wordpiece()
    metadata, _ = express_tokenizer(tokenizer.backend, tokenizer.names, 120, {}, find_frame(tokenizer))
    del metadata["tokenizer.ggml.cls_token_id"]
    write_gguf(tmp_path / "t.gguf", metadata, {})
    again = load_tokenizer(tmp_path / "t.gguf")
    assert again.names == tokenizer.names and again.encode(TEXTS[0]) == tokenizer.encode(TEXTS[0])


@pytest.mark.parametrize(("make", "message"), [
    (lambda: byte_bpe(r"\w+|\W+"), "the splitting"),
    (lambda: byte_bpe(normalizer=normalizers.Lowercase()), "Lowercase"),
])
def test_refused(make: Callable[[], Tokenizer], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        store(make(), tmp_path / "t.gguf")


def test_merges_must_follow_from_scores(tmp_path: Path) -> None:
    tokenizer = pieces_bpe()
    swapped = Backend.from_str(tokenizer.backend.to_str())
    merges = [tuple(one) for one in json.loads(swapped.to_str())["model"]["merges"]]
    swapped.model = models.BPE(tokenizer.backend.get_vocab(with_added_tokens=False), merges[:-1],
                               unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    with pytest.raises(InputError, match="do not follow from scores"):
        store(Tokenizer(swapped, tokenizer.names), tmp_path / "t.gguf")


@pytest.mark.parametrize(("change", "message"), [
    ({"tokenizer.ggml.pre": "gpt-3"}, "'gpt-3' is not known"), ({"tokenizer.ggml.model": "plamo2"}, "known: gpt2"),
    ({"tokenizer.ggml.merges": ["ab"]}, "no pair"), ({"tokenizer.ggml.tokens": ["a", "a"]}, "does not have a number"),
    ({"tokenizer.ggml.add_bos_token": Typed(1, U32)}, "add_bos_token"),
])
def test_faults(change: dict[str, object], message: str, tmp_path: Path) -> None:
    tokenizer = byte_bpe()
    metadata, _ = express_tokenizer(tokenizer.backend, tokenizer.names, tokenizer.vocab_size, {}, ([], []))
    write_gguf(tmp_path / "t.gguf", {**metadata, **change}, {})
    with pytest.raises(InputError, match=message):
        load_tokenizer(tmp_path / "t.gguf")
