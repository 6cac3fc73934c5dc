"""Training tokenizers with the `tokenizers` library: one short function for each kind, the same result in every run.

Every kind ends with exactly the vocabulary requested, or with one clear error. The library's trainers work
in hash order: marked symbols are passed sorted, and Unigram's scores are rounded and sorted.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import IO, Any

from pydantic import TypeAdapter, ValidationError
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Backend

from saucier.errors import InputError, suggest_name
from saucier.text.config import (
    BPE,
    ByteBPE,
    Bytes,
    Characters,
    Ready,
    SpecialTokens,
    TextData,
    TokenizerConfig,
    Unigram,
    WordPiece,
    Words,
)
from saucier.text.reading.corpus import TextCorpus
from saucier.text.tokenizer.legacy_classes import INSIDE, WORD_END
from saucier.text.tokenizer.offsets import BYTES, list_byte_characters, spell_bytes
from saucier.text.tokenizer.tokenizer import ROLES, Tokenizer

DECIMALS = 3
"""Decimals kept of a score (a natural logarithm): far above the noise, far below what matters."""
SPACING = 1e-4


class SpooledTexts:
    """Texts of a one-way iterator, kept in a temporary file, so that they can be read several times."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Read all texts."""
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="saucier-texts-")  # noqa: SIM115 - lives as long as this
        for text in texts:
            data = text.encode("utf-8")
            self._file.write(len(data).to_bytes(8, "little") + data)

    def __iter__(self) -> Iterator[str]:
        self._file.seek(0)
        while size := self._file.read(8):
            yield self._file.read(int.from_bytes(size, "little")).decode("utf-8")


def list_marked_symbols(backend: Backend, texts: Iterable[str], affixed: Callable[[str], set[str]]) -> list[str]:
    """List, sorted, the marked one-character symbols that the trainer will start from.

    `affixed` gives the symbols of one word that carry a mark, such as `w</w>` of `low`.
    """
    known: set[str] = set()
    for text in texts:
        normal = backend.normalizer.normalize_str(text) if backend.normalizer else text
        # Only words that may bring something new go through the slow exact pre-tokenizer.
        new = [word for word in normal.split() if not affixed(word) <= known]
        for word, _ in backend.pre_tokenizer.pre_tokenize_str(" ".join(new)):
            known |= affixed(word)
    return sorted(known)


def round_scores(backend: Backend, special: int) -> Backend:
    """Round a Unigram model's scores and sort its pieces by them, all but the first `special` ones.

    Two runs differ in the 11th decimal, but for the characters that were pruned and put back: the trainer gives these
    the lowest score plus 0, 1, 2, ... times `SPACING`, in hash order. Here they all get the lowest.
    """
    state: dict[str, Any] = json.loads(backend.to_str())
    pieces: list[tuple[str, float]] = [(piece, score) for piece, score in state["model"]["vocab"]]
    lowest = min((score for _, score in pieces[special:]), default=0.0)
    nearly = lowest + SPACING * sum(len(piece) == 1 for piece, _ in pieces)
    settled = [(piece, round(lowest if len(piece) == 1 and score <= nearly else score, DECIMALS))
               for piece, score in pieces[special:]]
    state["model"]["vocab"] = [*pieces[:special], *sorted(settled, key=lambda found: (-found[1], found[0]))]
    return Backend.from_str(json.dumps(state, ensure_ascii=False))




def train_tokenizer(config: TokenizerConfig, texts: Iterable[str]) -> Tokenizer:
    """Train a tokenizer on texts. The same texts give the same tokenizer.

    BPE and WordPiece read the texts twice; those of a one-way iterator are kept in a temporary file.
    Errors: `InputError` where the text cannot give the vocabulary (too large, or too small for its characters).
    """
    if isinstance(config, Ready):
        raise InputError("a tokenizer of kind ready is taken from a model, not trained", where="tokenizer.kind",
                         remedy="say which model with --from FOLDER")
    backend, special = TRAINERS[type(config)](config, texts), config.special
    # T5 numbers its sentinels from the end of the vocabulary backwards
    sentinels = [f"<extra_id_{number}>" for number in reversed(range(special.sentinels))]
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False)
                                for name in [*list_special_tokens(special), *sentinels]])
    _add_template(backend, special)
    names = {role: name for role in ROLES if (name := getattr(special, role)) is not None}
    return Tokenizer(backend, names)


def list_special_tokens(special: SpecialTokens) -> list[str]:
    """List the special tokens in the order of their ids, without the sentinels. Several roles may share one token."""
    named = [name for role in ROLES if (name := getattr(special, role)) is not None]
    return list(dict.fromkeys([*named, *special.extra]))


def _add_template(backend: Backend, special: SpecialTokens) -> None:
    parts = [re.sub(r":\d+$", "", part) for part in f"{special.single} {special.pair}".split()]
    used = [part for part in parts if not part.startswith("$")]
    for name in used:
        if backend.token_to_id(name) is None:
            raise InputError(f"the template uses {name!r}, which is no special token", where="tokenizer.special",
                             remedy="name it as one of pad, unk, bos, eos, cls, sep, mask, extra")
    backend.post_processor = processors.TemplateProcessing(
        single=special.single, pair=special.pair,
        special_tokens=[(name, backend.token_to_id(name)) for name in dict.fromkeys(used)])


def _byte_bpe(config: ByteBPE, texts: Iterable[str]) -> Backend:
    least = BYTES + len(list_special_tokens(config.special)) + config.special.sentinels
    if config.vocab < least:
        raise _too_small(config.vocab, least, "256 bytes and the special tokens")
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False,
                                  **_list_sizes(config))
    return _train(backend, trainer, config, texts)


def _bpe(config: BPE, texts: Iterable[str]) -> Backend:
    backend = Backend(models.BPE(unk_token=_need_unk(config.special), end_of_word_suffix=WORD_END))
    backend.normalizer = normalizers.Lowercase() if config.lowercase else None
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.BPEDecoder(suffix=WORD_END)

    def affixed(word: str) -> set[str]:
        return {word[-1] + WORD_END}

    trainer = partial(trainers.BpeTrainer, end_of_word_suffix=WORD_END, show_progress=False)
    return _train_sorted(backend, trainer, affixed, config, texts)


def _wordpiece(config: WordPiece, texts: Iterable[str]) -> Backend:
    backend = Backend(models.WordPiece(unk_token=_need_unk(config.special), continuing_subword_prefix=INSIDE))
    backend.normalizer = normalizers.BertNormalizer(lowercase=config.lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix=INSIDE)

    def affixed(word: str) -> set[str]:
        return {INSIDE + character for character in word[1:]}

    trainer = partial(trainers.WordPieceTrainer, continuing_subword_prefix=INSIDE, show_progress=False)
    return _train_sorted(backend, trainer, affixed, config, texts)


def _unigram(config: Unigram, texts: Iterable[str]) -> Backend:
    unk = _need_unk(config.special)
    least = len(list_special_tokens(config.special)) + config.special.sentinels + 1
    if config.vocab < least:
        raise _too_small(config.vocab, least, "a piece and the special tokens")
    backend = Backend(models.Unigram())
    backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " ")])
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    backend.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(unk_token=unk, vocab_size=config.vocab - config.special.sentinels,
                                      special_tokens=list_special_tokens(config.special), show_progress=False)
    try:
        trained = _train(backend, trainer, config, texts)
    except Exception as error:  # the library raises nothing narrower
        if "not large enough to contain all chars" not in str(error):
            raise
        raise InputError(f"a vocabulary of {config.vocab} is too small for the characters of this text",
                         where="tokenizer.vocab", remedy="make it larger, or use kind: byte_bpe") from error
    return round_scores(trained, len(list_special_tokens(config.special)))


def _bytes(config: Bytes, _: Iterable[str]) -> Backend:
    """The bytes keep their order: byte b has the id b + number of special tokens before."""
    special = list_special_tokens(config.special)
    vocab = {name: number for number, name in enumerate([*special, *list_byte_characters()])}
    backend = Backend(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def _characters(config: Characters, texts: Iterable[str]) -> Backend:
    unk = _need_unk(config.special)
    special = list_special_tokens(config.special)
    found = set(chain.from_iterable(texts))
    if not found:
        raise InputError("the text is empty", where="tokenizer", remedy="give some text")
    vocab = {name: number for number, name in enumerate([*special, *sorted(found)])}
    backend = Backend(models.WordLevel(vocab=vocab, unk_token=unk))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    return backend


def _words(config: Words, texts: Iterable[str]) -> Backend:
    backend = Backend(models.WordLevel(unk_token=_need_unk(config.special)))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _train(backend, trainers.WordLevelTrainer(show_progress=False, **_list_sizes(config)), config, texts)


def _list_sizes(config: ByteBPE | BPE | WordPiece | Words) -> dict[str, Any]:
    return {"vocab_size": config.vocab - config.special.sentinels, "min_frequency": config.min_frequency,
            "special_tokens": list_special_tokens(config.special)}


def _train(backend: Backend, trainer: Any, config: ByteBPE | BPE | WordPiece | Unigram | Words,
           texts: Iterable[str]) -> Backend:
    """Train, and check that the text gave exactly the vocabulary requested."""
    backend.train_from_iterator(_not_empty(texts), trainer)
    size = backend.get_vocab_size() + config.special.sentinels
    if size < config.vocab:
        raise InputError(f"a vocabulary of {config.vocab} is more than this text gives ({size})",
                         where="tokenizer.vocab", remedy=f"set tokenizer.vocab={size} or give more text")
    if size > config.vocab:
        raise _too_small(config.vocab, size, "the characters of this text and the special tokens")
    return backend


def _train_sorted(backend: Backend, trainer: Callable[..., Any], affixed: Callable[[str], set[str]],
                  config: BPE | WordPiece, texts: Iterable[str]) -> Backend:
    """Train with the marked symbols in sorted order (see `repeatable`)."""
    texts = SpooledTexts(texts) if iter(texts) is texts else texts
    special = list_special_tokens(config.special)
    sizes = _list_sizes(config) | {"special_tokens": [*special, *list_marked_symbols(backend, texts, affixed)]}
    state: dict[str, Any] = json.loads(_train(backend, trainer(**sizes), config, texts).to_str())
    # the marked symbols are ordinary tokens again
    state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] in special]
    return Backend.from_str(json.dumps(state, ensure_ascii=False))


def _not_empty(texts: Iterable[str]) -> Iterator[str]:
    text = None
    for text in texts:
        yield text
    if text is None:
        raise InputError("the text is empty", where="tokenizer", remedy="give some text")


def _need_unk(special: SpecialTokens) -> str:
    if special.unk is None:
        raise InputError("this kind of tokenizer needs an unknown token", where="tokenizer.special.unk",
                         remedy="name one, such as <unk>, or use kind: byte_bpe")
    return special.unk


def _too_small(vocab: int, least: int, what: str) -> InputError:
    return InputError(f"a vocabulary of {vocab} is too small: {what} take {least}", where="tokenizer.vocab",
                      remedy=f"set tokenizer.vocab to {least} or more")


TRAINERS: Mapping[type, Callable[[Any, Iterable[str]], Backend]] = {
    ByteBPE: _byte_bpe, BPE: _bpe, WordPiece: _wordpiece, Unigram: _unigram, Bytes: _bytes, Characters: _characters,
    Words: _words,
}
"""The function that builds the backend of each kind."""


CHOSEN_KINDS = ("byte_bpe", "bpe", "wordpiece", "unigram", "bytes", "characters")
FIXED_KINDS = ("bytes", "characters")
"""Kinds whose vocabulary is not chosen."""


def train_tokenizer_on_files(kind: str, vocab: int, files: list[str]) -> Tokenizer:
    """Train a tokenizer of a kind on files, or on Python's documentation.

    Raises `InputError` for an unknown kind, and for text that cannot be read.
    """
    if kind not in CHOSEN_KINDS:
        raise InputError(f"no kind of tokenizer has the name {kind!r}", where="--kind",
                         remedy=suggest_name(kind, list(CHOSEN_KINDS)))
    values = {"kind": kind} | ({} if kind in FIXED_KINDS else {"vocab": vocab})
    try:
        config: TokenizerConfig = TypeAdapter(TokenizerConfig).validate_python(values)
    except ValidationError as error:
        raise InputError(error.errors()[0]["msg"], where="--vocab") from error
    corpus = TextCorpus(TextData(files=tuple(files)))
    return train_tokenizer(config, (document.text for view in (corpus.train, corpus.held_out) for document in view))


def split_text(tokenizer: Tokenizer, text: str) -> list[tuple[int, str]]:
    r"""Return (id, token) of a text; a token is shown as what it spells, or by its own name where that is not whole.

    Bytes of a character that is in several tokens are shown as `\xe9`.
    """
    found = []
    for number in tokenizer.encode(text):
        spelled = tokenizer.decode([number])
        unclear = not spelled or "\N{REPLACEMENT CHARACTER}" in spelled
        name = str(tokenizer.id_to_token(number))
        found.append((number, (spell_bytes(name) if tokenizer.is_byte_level else name) if unclear else spelled))
    return found
