"""`Tokenizer`: text to token ids and back, over the `tokenizers` library; saved and loaded in the Hugging Face layout.

Training is in `training`, the reading of folders in `folder`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from operator import index, itemgetter
from pathlib import Path
from types import NoneType
from typing import Any

import tokenizers

from saucier.checkpoints.hub import resolve_folder
from saucier.errors import InputError, expect, expect_texts, suggest_name
from saucier.files import write_json, write_text
from saucier.text.reading.documents import SURROGATE
from saucier.text.tokenizer.folder import TARGET, TextHandling, TokenizerFiles, open_tokenizer_folder
from saucier.text.tokenizer.legacy_files import write_vocabulary_and_merges
from saucier.text.tokenizer.model_inputs import (
    Encoded,
    LengthOptions,
    encode_rows,
    frame_has_segments,
    pad_rows,
    warn_of_cuts,
)
from saucier.text.tokenizer.offsets import Token, locate_tokens
from saucier.text.tokenizer.sentencepiece import MARK
from saucier.text.tokenizer.word_boundaries import mark_words

ROLES = ("pad", "unk", "bos", "eos", "cls", "sep", "mask")
SENTINEL = re.compile(r"<extra_id_(\d+)>")
LARGEST_ID = 2**32
"""Ids of the tokenizers library are below this."""
CLEAN_UP = ((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"),
            (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"))


class Tokenizer:
    """Text to ids and back. `names` gives the special tokens by role: pad, unk, bos, eos, cls, sep, mask."""

    def __init__(self, backend: tokenizers.Tokenizer, names: Mapping[str, str], *, clean_up: bool = False,
                 handling: TextHandling | None = None, target: Tokenizer | None = None) -> None:
        """Wrap a `tokenizers.Tokenizer`. `clean_up`: decoding makes `it's.` of `it 's .`, as old BERTs expect it.

        `target`: the tokenizer of the side that writes, where it has its own.
        """
        self.backend = backend
        self._target = target
        self.handling = handling or TextHandling()
        self.names = dict(names)
        self.clean_up = clean_up
        special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
        unmarked = [name for name in dict.fromkeys(self.names.values()) if name not in special]
        backend.add_special_tokens([tokenizers.AddedToken(name, special=True) for name in unmarked])

    def __repr__(self) -> str:
        """Name the kind, the size and the special tokens."""
        kind = f"{'byte-level ' if self.is_byte_level else ''}{type(self.backend.model).__name__}"
        length = "" if self.handling.max_length is None else f", max_length={self.handling.max_length}"
        target = "" if self._target is None else f", target={self._target!r}"
        return f"Tokenizer({kind}, vocab_size={self.vocab_size}{length}, special={self.names}{target})"

    def __len__(self) -> int:
        """Count the ids, special tokens included: `vocab_size`."""
        return self.vocab_size

    @property
    def target(self) -> Tokenizer:
        """The tokenizer of what the model writes: this one, unless the sides of an encoder-decoder have their own."""
        return self._target or self

    @property
    def has_own_target(self) -> bool:
        """Whether the sides of an encoder-decoder have tokenizers of their own."""
        return self._target is not None

    def with_target(self, target: Tokenizer) -> Tokenizer:
        """Return the tokenizers of two sides: this one for what is read, and `target` for what is written."""
        return Tokenizer(self.backend, self.names, clean_up=self.clean_up, handling=self.handling, target=target.target)

    def source_side(self) -> Tokenizer:
        """Return the tokenizer of what is read alone, for a model that writes nothing."""
        return Tokenizer(self.backend, self.names, clean_up=self.clean_up, handling=self.handling)

    def __call__(self, texts: str | Sequence[str], pairs: str | Sequence[str] | None = None, *,
                 max_length: int | None = None, padding: str = "longest", truncation: str = "longest_first",
                 add_special_tokens: bool = True) -> Encoded:
        """Give the tensors that a model takes: `model(**tokenizer(["a text", "another"]))`.

        `pairs` are the second texts of sentence-pair models. Rows longer than `max_length` (by default the model's own
        length, where the tokenizer knows it) are cut, with a warning that counts what is lost, and the counts in
        `Encoded.cut`; `truncation`: longest_first, only_first, only_second or refuse. `padding`: longest (of the
        batch), max_length or none.
        Shapes: every tensor is [texts, longest row].
        Errors: `InputError` for rows that cannot be cut or padded as requested, and as `encode`.
        """
        first = [texts] if isinstance(texts, str) else texts
        second = [pairs] if isinstance(pairs, str) else pairs
        expect_texts(first, "texts")
        expect_texts([] if second is None else second, "pairs")
        expect(max_length, (int, NoneType), "max_length", "give a number of tokens, or None")
        expect(padding, str, "padding", "give longest, max_length or none")
        expect(truncation, str, "truncation", "give longest_first, only_first, only_second or refuse")
        limit = self.handling.max_length if max_length is None else max_length
        options = LengthOptions(limit, padding, truncation)
        found = pad_rows(self, encode_rows(self, first, second, options, special=add_special_tokens), options)
        warn_of_cuts(found.cut, limit)
        return found

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = False,
                            tools: Sequence[Mapping[str, Any]] | None = None, template: str | None = None,
                            **variables: Any) -> str:
        """Write a conversation as the text that a chat model was trained on.

        `messages` are `{"role": ..., "content": ...}`; `template` is the name of one of the tokenizer's templates, or
        a template itself; `variables` are further names that the template knows. The text already holds its special
        tokens: encode it with `add_special_tokens=False`.
        Errors: `InputError` for a tokenizer without a template, and for a template that is broken or wants too much.
        """
        from saucier.text.tokenizer.chat import render_template

        expect_tables(messages, "messages")
        expect_tables([] if tools is None else tools, "tools")
        expect(template, (str, NoneType), "template", "give the name of a template, or one")
        expect(add_generation_prompt, bool, "add_generation_prompt", "give True or False")
        known = self.handling.chat
        named = ("tool_use" if tools and "tool_use" in known else "default") if template is None else template
        if named not in known and (template is None or "{" not in template):
            raise InputError("this tokenizer has no chat template" if not known else f"no chat template {named!r}",
                             where="template", remedy=suggest_name(named, [*known]) if known else "give template=")
        tokens = {f"{role}_token": name for role, name in self.names.items()}
        return render_template(known.get(named, named),
                               {"documents": None, **tokens, "messages": list(messages), "tools": tools,
                                "add_generation_prompt": add_generation_prompt, **variables})

    def encode(self, text: str, add_special_tokens: bool = True, *, pair: str | None = None) -> list[int]:
        """Give the ids of a text (of a text and its `pair`), by default inside the tokenizer's template.

        Errors: `InputError` for half of a surrogate pair, which is not Unicode text.
        """
        expect(text, str, "text", "give a text; encode_batch takes a list of them")
        expect(pair, (str, NoneType), "pair", "give a text, or None")
        return self.published_ids(self.encodings([text if pair is None else (text, pair)], add_special_tokens)[0].ids)

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool = True) -> list[list[int]]:
        """Give the ids of many texts, on all cores. Errors: as `encode`."""
        expect_texts(texts, "texts")
        expect(add_special_tokens, bool, "add_special_tokens", "give True or False")
        found = self._encode(self.backend.encode_batch_fast, texts, add_special_tokens=add_special_tokens)
        return [self.published_ids(one.ids) for one in found]

    def encodings(self, items: Sequence[str | tuple[str, str]], add_special_tokens: bool) -> list[tokenizers.Encoding]:
        """Give the backend's encodings of texts or pairs, whole. Errors: as `encode`."""
        expect(add_special_tokens, bool, "add_special_tokens", "give True or False")
        return self._encode(self.backend.encode_batch, items, add_special_tokens=add_special_tokens)

    def encode_with_offsets(self, texts: Sequence[str], add_special_tokens: bool = False) -> list[tokenizers.Encoding]:
        """Give encodings whose `offsets` tell where in its text a token is.

        Errors: as `encode`, and `InputError` for a tokenizer that rewrites texts before it splits them.
        """
        if self.handling.moses is not None:
            raise InputError("this tokenizer rewrites a text before it splits it (Moses), so where its tokens stand is "
                             "not known", where="tokenizer", remedy="take a model with another tokenizer")
        return self._encode(self.backend.encode_batch, texts, add_special_tokens=add_special_tokens)

    def split(self, text: str, add_special_tokens: bool = False) -> list[Token]:
        """Split a text into tokens that know their id, their name and their characters: `text[one.start:one.end]`.

        Errors: as `encode_with_offsets`.
        """
        expect(text, str, "text", "give a text")
        expect(add_special_tokens, bool, "add_special_tokens", "give True or False")
        found = self.encode_with_offsets([text], add_special_tokens)[0]
        return locate_tokens(self.published_ids(found.ids), [one.removeprefix(MARK) for one in found.tokens],
                             found.offsets)

    def word_encodings(self, sentences: Sequence[Sequence[str]]) -> list[tokenizers.Encoding]:
        """Give the backend's encodings of sentences whose words are known; `word_ids` tells each token's word.

        Every word is spelled as after a space, the first one too. Errors: as `encode`.
        """
        space = " " if self.is_byte_level else ""
        return self._encode(self.backend.encode_batch, [[space + word for word in words] for words in sentences],
                            is_pretokenized=True, add_special_tokens=False)

    def _encode(self, encode: Callable[..., list[tokenizers.Encoding]], items: Sequence[Any],
                **options: bool) -> list[tokenizers.Encoding]:
        try:
            return encode(self._prepare_texts(items), **options)
        except (UnicodeEncodeError, TypeError) as error:
            half = SURROGATE.search("".join("".join(item) for item in items))
            if half is None:
                raise
            raise InputError(f"character {half.start()} is {half[0]!a}, half of a surrogate pair",
                             where="text to encode", remedy="replace it, for example by U+FFFD") from error

    def _prepare_texts(self, items: Sequence[Any]) -> list[Any]:
        moses = self.handling.moses
        if moses is None:
            return list(items)
        kept = [token.content for token in self.backend.get_added_tokens_decoder().values()]
        return [moses.prepare_around(item, kept) if isinstance(item, str) else
                type(item)(moses.prepare_around(text, kept) for text in item) for item in items]

    def published_ids(self, ids: list[int]) -> list[int]:
        """Return ids as the model knows them: those of pieces that its vocabulary has not are unknown."""
        known, unk = self.handling.known, self.unk_id
        if known is None or unk is None:
            return ids
        return [number if number < known else unk for number in ids]

    @property
    def is_byte_level(self) -> bool:
        """Whether tokens are made of bytes, and written in the characters that stand for these."""
        splitter = self.backend.pre_tokenizer
        return splitter is not None and b'"ByteLevel"' in splitter.__getstate__()

    @property
    def has_segments(self) -> bool:
        """Whether the model wants token_type_ids: as the folder or its class says, else as the frame does."""
        if self.handling.inputs:
            return "token_type_ids" in self.handling.inputs
        frame = self.backend.post_processor
        return {"cls", "sep"} <= set(self.names) and frame is not None and frame_has_segments(frame.__getstate__())

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Give the text of ids. What the tokenizer's own normalization took away (case, accents) stays away."""
        expect(skip_special_tokens, bool, "skip_special_tokens", "give True or False")
        return self._cleaned(self.backend.decode(whole_numbers(ids), skip_special_tokens=skip_special_tokens))

    def decode_batch(self, rows: Sequence[Sequence[int]], skip_special_tokens: bool = True) -> list[str]:
        """Give the texts of rows of ids, such as `generate` returns, on all cores. Errors: as `decode`."""
        expect(skip_special_tokens, bool, "skip_special_tokens", "give True or False")
        if not hasattr(rows, "__iter__"):
            raise InputError(f"is {type(rows).__name__} {repr(rows)[:80]}", where="rows", remedy="give rows of ids")
        texts = self.backend.decode_batch([whole_numbers(row) for row in rows], skip_special_tokens=skip_special_tokens)
        return [self._cleaned(text) for text in texts]

    def _cleaned(self, text: str) -> str:
        """Join punctuation as old BERTs expect it."""
        if self.clean_up and not isinstance(self.backend.model, tokenizers.models.BPE):
            for old, new in CLEAN_UP:
                text = text.replace(old, new)
        return text

    def get_vocab(self) -> dict[str, int]:
        """Give all tokens and their ids, special and added ones included, in the order of the ids."""
        found = self.backend.get_vocab(with_added_tokens=True)
        return {token.removeprefix(MARK): number for token, number in sorted(found.items(), key=itemgetter(1))
                if number < self.vocab_size}

    @property
    def vocab_size(self) -> int:
        """Rows that a table of all ids needs, special tokens included: one more than the highest id.

        Ids may have holes (two equal lines of vocab.txt are one token), so there may be fewer tokens.
        """
        return self.handling.known or self.next_id

    @cached_property
    def next_id(self) -> int:
        """The id after all others, also after those that the model does not know."""
        return 1 + max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1)

    def id_to_token(self, number: int) -> str | None:
        """Give the token of an id, as it is in the vocabulary."""
        token: str | None = self.backend.id_to_token(*whole_numbers([number]))
        return None if token is None else token.removeprefix(MARK)

    def token_to_id(self, token: str) -> int | None:
        """Give the id of a token, or None."""
        expect(token, str, "token", "give a token as text")
        if SURROGATE.search(token):
            return None
        found: int | None = self.backend.token_to_id(token)
        number: int | None = self.backend.token_to_id(MARK + token) if found is None else found
        return number

    def _id(self, role: str) -> int | None:
        name = self.names.get(role)
        return None if name is None else self.token_to_id(name)

    @property
    def pad_id(self) -> int | None:
        """Id of the padding token, if there is one."""
        return self._id("pad")

    @property
    def unk_id(self) -> int | None:
        """Id of the unknown token, if there is one."""
        return self._id("unk")

    @property
    def bos_id(self) -> int | None:
        """Id of the token that begins a text, if there is one."""
        return self._id("bos")

    @property
    def eos_id(self) -> int | None:
        """Id of the token that ends a text, if there is one."""
        return self._id("eos")

    @property
    def cls_id(self) -> int | None:
        """Id of BERT's first token, if there is one."""
        return self._id("cls")

    @property
    def sep_id(self) -> int | None:
        """Id of the token that ends BERT's segments, if there is one."""
        return self._id("sep")

    @property
    def mask_id(self) -> int | None:
        """Id of the token that hides another, if there is one."""
        return self._id("mask")

    @property
    def special_ids(self) -> list[int]:
        """Ids of all special tokens, in order."""
        return sorted(number for number, token in self.backend.get_added_tokens_decoder().items() if token.special)

    @property
    def sentinel_ids(self) -> list[int]:
        """Ids of `<extra_id_0>`, `<extra_id_1>`, ... (span corruption), in that order; empty where there are none."""
        found = {int(match[1]): number for number, token in self.backend.get_added_tokens_decoder().items()
                 if (match := SENTINEL.fullmatch(token.content))}
        return [found[place] for place in sorted(found)]

    @property
    def extra_ids(self) -> dict[str, int]:
        """Ids of the special tokens that are neither sentinels nor have a role, by name."""
        roles = set(self.names.values())
        return {token.content: number for number, token in sorted(self.backend.get_added_tokens_decoder().items())
                if token.special and token.content not in roles and not SENTINEL.fullmatch(token.content)}

    @cached_property
    def word_marks(self) -> str:
        """A digit for each id that tells where words begin and end (see `word_marks`); "" where tokens do not tell."""
        return mark_words(self.backend)

    def save(self, folder: Path | str) -> None:
        """Write `tokenizer.json` and `tokenizer_config.json`, as transformers reads them; XLM's in its older files.

        The tokenizer of the side that writes, where it has its own, goes into the folder `target_tokenizer` next to
        them. `tokenizer_config.json` is written last: with it all is there.
        """
        if self._target is not None:
            self._target.save(Path(folder) / TARGET)
        config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
        if self.handling.moses is None:
            write_text(Path(folder) / "tokenizer.json", self.backend.to_str(pretty=True))
        else:
            config = write_vocabulary_and_merges(self.backend, self.handling.known, Path(folder))
        config["clean_up_tokenization_spaces"] = self.clean_up
        config |= {f"{role}_token": name for role, name in self.names.items()} | self.handling.as_options()
        write_json(Path(folder) / "tokenizer_config.json", config)


def load_tokenizer(folder: Path | str) -> Tokenizer:
    """Read a tokenizer: `tokenizer.json`, or vocab.txt, vocab.json with merges.txt, a SentencePiece model.

    A run folder, which keeps them in `tokenizer/`, will do as well, and the hub id of a repository. Where the sides of
    an encoder-decoder have tokenizers of their own, it is the one for what is read, and its `target` the other one.
    Errors: `InputError` for a folder without one, and for a file that is not a tokenizer.
    """
    return _build_tokenizer(open_tokenizer_folder(resolve_folder(folder, weights=False)))


def _build_tokenizer(opened: TokenizerFiles) -> Tokenizer:
    return Tokenizer(opened.backend, opened.names, clean_up=opened.clean_up, handling=opened.handling,
                     target=None if opened.target is None else _build_tokenizer(opened.target))


def whole_numbers(ids: Any) -> list[int]:
    """Return ids as a list. Raises `InputError` for what are none, rows of ids too."""
    try:
        numbers = [index(one) for one in ids]
    except TypeError as error:
        raise InputError(f"is {type(ids).__name__} {repr(ids)[:80]}", where="ids",
                         remedy="give a list of ids, of one text") from error
    if wrong := [one for one in numbers if not 0 <= one < LARGEST_ID]:
        raise InputError(f"holds the id {str(wrong[0])[:40]}", where="ids", remedy="give ids from 0")
    return numbers


def expect_tables(values: object, name: str) -> None:
    """Raise `InputError` for an argument that is no list of mappings."""
    expect(values, (list, tuple), name, "give a list, such as [{'role': 'user', 'content': 'Hello!'}]")
    for place, one in enumerate(values if isinstance(values, list | tuple) else ()):
        expect(one, Mapping, f"{name}[{place}]", "give a mapping, such as {'role': 'user', 'content': 'Hello!'}")
