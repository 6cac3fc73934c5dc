"""Changing a trained tokenizer's vocabulary: more tokens for a text (old ids stay), or only the tokens that a text
uses.

The rows of a model's tables that belong to the tokens are changed in adaptation/surgery/tables.py.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

from tokenizers import Tokenizer as Backend

from saucier.errors import InputError
from saucier.text.tokenizer.tokenizer import Tokenizer

RARE = 5
"""A word, or a pair of pieces, that occurs less often is not worth a token."""
MOST_WORDS = 2_000_000
"""Distinct words that are counted at a time; beyond it those seen once are forgotten."""
LONGEST = 40
"""Characters of a word; what is longer is no word."""
LETTER = re.compile(r"[^\W\d_]")
TokenizerState = dict[str, Any]
"""A tokenizer as the `tokenizers` library writes it."""
Pair = tuple[str, str]


@dataclass(slots=True)
class CountedWord:
    """A word of the text, how it is spelled so far, and how often it occurs."""

    text: str
    pieces: list[str]
    seen: int

    @property
    def saving(self) -> int:
        """Tokens that are saved where the word becomes one."""
        return self.seen * (len(self.pieces) - 1)


def extend_tokenizer(tokenizer: Tokenizer, texts: Iterable[str], count: int, *,
                     where: str = "tokenizer.extend") -> Tokenizer:
    """Return a tokenizer with `count` more tokens, those that save most in these texts.

    BPE continues merging where it stopped (Sennrich et al. 2016, §3.2); WordPiece and Unigram learn whole words. The
    same texts give the same tokens. `where`: the setting that requests it, for errors.
    Errors: `InputError` for a tokenizer of another kind, and where the texts do not have enough words worth a token.
    """
    state: TokenizerState = json.loads(tokenizer.backend.to_str())
    seen = count_words(tokenizer.backend, texts)
    chosen = sorted(word for word, times in seen.items() if times >= RARE and LETTER.search(word))
    words = [CountedWord(word, [token.value for token in tokenizer.backend.model.tokenize(word)], seen[word])
             for word in chosen]
    first = tokenizer.next_id
    extend = KINDS.get(state["model"]["type"])
    if extend is None or tokenizer.handling.known is not None or tokenizer.handling.moses is not None:
        raise InputError("this tokenizer cannot learn more words", where=where, remedy="leave it out")
    vocab = state["model"]["vocab"]
    if isinstance(vocab, dict):  # added tokens that are not in it would be numbered again, after its new words
        for token in state["added_tokens"]:
            vocab.setdefault(token["content"], token["id"])
    found = extend(state, words, count, first)
    if found < count:
        raise InputError(f"this text has only {found} words that are worth a token", where=where,
                         remedy=f"use {found} or less, or give more text")
    return Tokenizer(Backend.from_str(json.dumps(state, ensure_ascii=False)), tokenizer.names,
                     clean_up=tokenizer.clean_up, handling=tokenizer.handling)


def spell_new_tokens(known: Tokenizer, tokenizer: Tokenizer) -> list[list[int]]:
    """Return the ids by which `known` spells each token that `tokenizer` has learned since; one at least for each.

    A merged token is what its parts are; a whole word is spelled as a text would be.
    """
    old: dict[str, int] = known.backend.get_vocab(with_added_tokens=True)
    merges = json.loads(tokenizer.backend.to_str())["model"].get("merges", [])
    parts = {"".join(pair): pair for pair in merges}

    def ids(token: str) -> list[int]:
        if token in old:
            return [old[token]]
        if token in parts:
            return [number for part in parts[token] for number in ids(part)]
        return [piece.id for piece in known.backend.model.tokenize(token)]

    return [ids(str(tokenizer.backend.id_to_token(number))) for number in range(known.next_id, tokenizer.next_id)]


def count_words(backend: Backend, texts: Iterable[str]) -> Counter[str]:
    """Count the words of texts as the tokenizer sees them, in its own spelling (`Ġlow`, `▁low`)."""
    words: Counter[str] = Counter()
    for text in texts:
        normal = backend.normalizer.normalize_str(text) if backend.normalizer else text
        parts = backend.pre_tokenizer.pre_tokenize_str(normal) if backend.pre_tokenizer else [(normal, None)]
        words.update(word for word, _ in parts if len(word) <= LONGEST)
        if len(words) > MOST_WORDS:
            words = Counter({word: seen for word, seen in words.items() if seen > 1})
    return words


def extend_wordpiece(state: TokenizerState, words: list[CountedWord], count: int, first: int) -> int:
    """Add the words that save most to the vocabulary. Returns how many there are."""
    vocab: dict[str, int] = state["model"]["vocab"]
    fresh = [word for word in words if len(word.pieces) > 1 and word.text not in vocab]
    best = sorted(fresh, key=lambda word: (-word.saving, word.text))[:count]
    vocab.update({word.text: number for number, word in enumerate(best, start=first)})
    return len(best)


def extend_unigram(state: TokenizerState, words: list[CountedWord], count: int, first: int) -> int:
    """Add the words that save most, each with the logarithm of its share as score. Returns how many there are."""
    vocab: list[list[Any]] = state["model"]["vocab"]
    scores, total = dict(map(tuple, vocab)), sum(word.seen for word in words)

    def score(word: CountedWord) -> float:
        return math.log(word.seen / total)

    fresh = [word for word in words if len(word.pieces) > 1 and word.text not in scores
             and score(word) > sum(scores.get(piece, -math.inf) for piece in word.pieces)]
    best = sorted(fresh, key=lambda word: (-word.saving, word.text))[:count]
    named = {token["id"]: token["content"] for token in state["added_tokens"]}
    vocab += [[named.get(number, f"<unused {number}>"), 0.0] for number in range(len(vocab), first)]
    vocab += [[word.text, score(word)] for word in best]
    return len(best)


def extend_bpe(state: TokenizerState, words: list[CountedWord], count: int, first: int) -> int:
    """Merge the commonest pair of pieces, again and again. Returns how many new tokens that gives."""
    vocab, merges = state["model"]["vocab"], state["model"]["merges"]
    pairs, places = count_pairs(words)
    added = 0
    while added < count and pairs:
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        if pairs[best] < RARE:
            break
        joined = "".join(best)
        merges.append(list(best))
        if joined not in vocab:
            vocab[joined] = first + added
            added += 1
        merge_pair(best, sorted(places.pop(best)), words, pairs, places)
    return added


def count_pairs(words: list[CountedWord]) -> tuple[Counter[Pair], dict[Pair, set[int]]]:
    """Count neighbouring pieces, and remember the words that they are in."""
    pairs: Counter[Pair] = Counter()
    places: dict[Pair, set[int]] = defaultdict(set)
    for number, word in enumerate(words):
        for pair in pairwise(word.pieces):
            pairs[pair] += word.seen
            places[pair].add(number)
    return pairs, places


def merge_pair(best: Pair, numbers: list[int], words: list[CountedWord], pairs: Counter[Pair],
               places: dict[Pair, set[int]]) -> None:
    """Join a pair in the words that have it, and count their pairs again."""
    for number in numbers:
        word = words[number]
        for pair in pairwise(word.pieces):
            pairs[pair] -= word.seen
        word.pieces = join_pair(word.pieces, best)
        for pair in pairwise(word.pieces):
            pairs[pair] += word.seen
            places[pair].add(number)
    del pairs[best]


def join_pair(pieces: list[str], pair: Pair) -> list[str]:
    """Join every occurrence of a pair, from the left."""
    result: list[str] = []
    place = 0
    while place < len(pieces):
        both = tuple(pieces[place:place + 2]) == pair
        result.append("".join(pair) if both else pieces[place])
        place += 2 if both else 1
    return result


KINDS = {"BPE": extend_bpe, "WordPiece": extend_wordpiece, "Unigram": extend_unigram}
"""How each kind of tokenizer learns more words."""

BATCH = 1000
"""Texts that are encoded at once."""


def trim_tokenizer(tokenizer: Tokenizer, texts: Iterable[str],
                   keep_first: int = 0) -> tuple[Tokenizer, tuple[int, ...]]:
    """Leave out all tokens that the texts do not use, but for special ones and single characters.

    Returns the tokenizer, and the old ids of its tokens in their order.
    So no other text has unknown characters that it had not. What merges are needed to spell a token stays, too; ids
    close up and keep their order. `keep_first`: the number of first ids that stay in any case.
    Raises `InputError` for texts without tokens, and for a tokenizer whose vocabulary cannot be read.
    """
    state: TokenizerState = json.loads(tokenizer.backend.to_str())
    known = get_vocabulary(state)
    if tokenizer.handling.known is not None or known is None:
        raise InputError("this tokenizer's vocabulary cannot be trimmed", where="--vocabulary", remedy="leave it out")
    used = find_used_ids(tokenizer, texts)
    if not used:
        raise InputError("the text gives no tokens", where="--vocabulary", remedy="give more text")
    special = {token["id"] for token in state["added_tokens"]}
    single = {number for token, number in known.items() if len(token.removeprefix("##").removesuffix("</w>")) <= 1}
    unknown = {known[name] for name in (state["model"].get("unk_token"),) if name in known}
    unknown |= {one for one in (state["model"].get("unk_id"),) if one is not None}
    kept = used | special | single | unknown | set(range(keep_first))
    kept |= find_merged_parts(state, known, kept)
    order = tuple(sorted(kept))
    renumber(state, {old: new for new, old in enumerate(order)})
    backend = Backend.from_str(json.dumps(state, ensure_ascii=False))
    return Tokenizer(backend, tokenizer.names, clean_up=tokenizer.clean_up, handling=tokenizer.handling), order


def find_used_ids(tokenizer: Tokenizer, texts: Iterable[str]) -> set[int]:
    """Return the ids that the texts are spelled with."""
    found: set[int] = set()
    left = iter(texts)
    while batch := list(islice(left, BATCH)):
        found.update(*tokenizer.encode_batch(batch, add_special_tokens=False))
    return found


def get_vocabulary(state: TokenizerState) -> dict[str, int] | None:
    """Return the tokens of a model of any kind and their ids; None for a kind that has no such list."""
    match state["model"]:
        case {"type": "Unigram", "vocab": list(vocab)}:
            return {piece: number for number, (piece, _) in enumerate(vocab)}
        case {"type": "BPE" | "WordPiece" | "WordLevel", "vocab": dict(vocab)}:
            return {str(token): int(number) for token, number in vocab.items()}
    return None


def find_merged_parts(state: TokenizerState, known: Mapping[str, int], kept: set[int]) -> set[int]:
    """Return the ids of all tokens that merges put together to one that is kept."""
    names = {number: token for token, number in known.items()}
    kept_tokens = {names[number] for number in kept if number in names}
    found: set[str] = set()
    for first, second in reversed([parse_merge(one) for one in state["model"].get("merges", [])]):
        if first + second in kept_tokens | found:
            found |= {first, second}
    return {known[token] for token in found}


def parse_merge(merge: Any) -> tuple[str, str]:
    """Return the two parts of a merge, in either way in which files write it."""
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return first, second


def renumber(state: TokenizerState, new: Mapping[int, int]) -> None:
    """Leave all other ids out of a tokenizer's state, in place, and give those that are left their new numbers."""
    model = state["model"]
    if isinstance(model["vocab"], list):
        model["vocab"] = [entry for number, entry in enumerate(model["vocab"]) if number in new]
        model["unk_id"] = new.get(model.get("unk_id"))
    else:
        model["vocab"] = {token: new[number] for token, number in model["vocab"].items() if number in new}
    if "merges" in model:
        pairs = [(one, parse_merge(one)) for one in model["merges"]]
        model["merges"] = [one for one, (first, second) in pairs
                           if {first, second, first + second} <= model["vocab"].keys()]
    for token in state["added_tokens"]:
        token["id"] = new[token["id"]]
    renumber_frame(state["post_processor"], new)
    if state.get("padding"):
        state["padding"]["pad_id"] = new[state["padding"]["pad_id"]]


def renumber_frame(frame: Any, new: Mapping[int, int]) -> None:
    """Do the same in what is around a text, in place."""
    match frame:
        case {"type": "Sequence", "processors": list(parts)}:
            for part in parts:
                renumber_frame(part, new)
        case {"type": "TemplateProcessing", "special_tokens": dict(tokens)}:
            for token in tokens.values():
                token["ids"] = [new[number] for number in token["ids"]]
        case {"sep": [_, int()], "cls": [_, int()]}:
            for name in ("sep", "cls"):
                frame[name][1] = new[frame[name][1]]
