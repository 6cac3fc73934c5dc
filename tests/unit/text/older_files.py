"""Writes tokenizers in the files of before tokenizer.json: small ones, trained on a text."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
SPECIAL = ("<unk>", "<s>", "</s>")


def varint(value: int) -> bytes:
    """Write a number as protobuf does."""
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def blob(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def sentencepiece(pieces: Iterable[tuple[str, float, int]], *, kind: int, unk: int, charsmap: bytes = b"",
                  byte_fallback: int = 0) -> bytes:
    """Write a SentencePiece model; `kind` 1 is Unigram, 2 BPE."""
    written = b"".join(
        blob(1, blob(1, text.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score) + number(3, sort))
        for text, score, sort in pieces)
    trainer = number(3, kind) + number(35, byte_fallback) + number(40, unk)
    return written + blob(2, trainer) + blob(3, blob(1, b"nmt_nfkc") + (blob(2, charsmap) if charsmap else b""))


def unigram_model(path: Path, texts: Sequence[str], special: Sequence[str] = SPECIAL, *, unk: str = "<unk>",
                  charsmap: bytes = b"", size: int = 300, also: Sequence[str] = ()) -> None:
    """Train a Unigram model and write it; `also` are control pieces behind the special ones."""
    backend = Tokenizer(models.Unigram())
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=size, show_progress=False, unk_token="<u>",
                                                               special_tokens=["<u>"]))
    found = json.loads(backend.to_str())["model"]["vocab"][1:]
    first = [(name, 0.0, UNKNOWN if name == unk else CONTROL) for name in (*special, *also)]
    path.write_bytes(sentencepiece([*first, *((text, score, NORMAL) for text, score in found)], kind=1,
                                   unk=list(special).index(unk), charsmap=charsmap))


def bpe_model(path: Path, texts: Sequence[str], *, size: int = 300, with_bytes: bool = False) -> None:
    """Train a BPE model and write it; a merge made earlier scores higher, as SentencePiece has it."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, show_progress=False))
    vocab = sorted(backend.get_vocab().items(), key=lambda item: item[1])
    merged = [token for token, _ in vocab if len(token) > 1]
    letters = [token for token, _ in vocab if len(token) == 1]
    pieces = [(name, 0.0, UNKNOWN if name == "<unk>" else CONTROL) for name in SPECIAL]
    pieces += [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256 if with_bytes else 0)]
    pieces += [(token, -float(place), NORMAL) for place, token in enumerate([*merged, *letters])]
    path.write_bytes(sentencepiece(pieces, kind=2, unk=0, byte_fallback=int(with_bytes)))


def byte_pairs(folder: Path, texts: Sequence[str], special: Sequence[str], *, size: int = 400) -> None:
    """Train a byte-level BPE and write vocab.json and merges.txt."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), special_tokens=list(special),
        show_progress=False))
    write_pairs(folder, backend)


def word_pairs(folder: Path, texts: Sequence[str], *, size: int = 400) -> None:
    """Train the first GPT's BPE and write vocab.json and merges.txt."""
    backend = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, special_tokens=["<unk>"],
                                                           end_of_word_suffix="</w>", show_progress=False))
    write_pairs(folder, backend)


def continued_pairs(folder: Path, texts: Sequence[str], *, size: int = 500, dropped: int = 40) -> None:
    """Train CTRL's BPE and write it as CTRL is published; `dropped` pieces of its merges are no tokens."""
    backend = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"\S+"), "removed", invert=True)
    backend.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, end_of_word_suffix="</w>",
                                                           show_progress=False))
    model = json.loads(backend.to_str())["model"]
    pieces = [*model["vocab"]][:-2 * dropped] + [*model["vocab"]][-2 * dropped::2] + ["\n</w>"]
    names = [piece[:-4] if piece.endswith("</w>") else f"{piece}@@" for piece in pieces]
    vocab = {name: number for number, name in enumerate(dict.fromkeys([*names, "<unk>"]))}
    (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(pair) for pair in model["merges"])]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def moses_pairs(folder: Path, texts: Sequence[str], *, size: int = 500, dropped: int = 20) -> None:
    """Train XLM's BPE on words with spaces around them; `dropped` pieces of its merges are no tokens."""
    backend = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    backend.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, end_of_word_suffix="</w>",
                                                           show_progress=False))
    model = json.loads(backend.to_str())["model"]
    special = ["<s>", "</s>", "<pad>", "<unk>", *(f"<special{number}>" for number in range(10))]
    pieces = [*model["vocab"]][:-2 * dropped] + [*model["vocab"]][-2 * dropped::2]
    (folder / "vocab.json").write_text(json.dumps({name: number for number, name in enumerate([*special, *pieces])}))
    lines = [f"{first} {second} {9999 - place}" for place, (first, second) in enumerate(model["merges"])]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_pairs(folder: Path, backend: Tokenizer) -> None:
    model = json.loads(backend.to_str())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(pair) for pair in model["merges"])]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def words(folder: Path, texts: Sequence[str], special: Sequence[str], *, size: int = 400) -> None:
    """Train a WordPiece vocabulary and write vocab.txt."""
    backend = Tokenizer(models.WordPiece(unk_token=special[1]))
    backend.normalizer = normalizers.BertNormalizer(lowercase=False)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=size, special_tokens=list(special),
                                                                 show_progress=False))
    tokens = sorted(backend.get_vocab(), key=backend.token_to_id)
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
