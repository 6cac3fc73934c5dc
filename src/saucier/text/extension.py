"""Teaching a trained tokenizer more words of a text, so that it spells that text in fewer tokens.

New tokens get the ids behind all others; every old id keeps its meaning.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tokenizers import Tokenizer as Backend

from saucier.errors import InputError
from saucier.text.tokenizer import Tokenizer

RARE = 5
"""A word, or a pair of pieces, that comes less often is not worth a token."""
MOST_WORDS = 2_000_000
"""Distinct words that are counted at a time; beyond it those seen once are forgotten."""
LONGEST = 40
"""Characters of a word; what is longer is no word."""
LETTER = re.compile(r"[^\W\d_]")
State = dict[str, Any]
"""A tokenizer as the `tokenizers` library writes it."""
Pair = tuple[str, str]


@dataclass(slots=True)
class Word:
    """A word of the text, how it is spelled so far, and how often it comes."""

    text: str
    pieces: list[str]
    seen: int

    @property
    def saving(self) -> int:
        """Tokens that are saved where the word becomes one."""
        return self.seen * (len(self.pieces) - 1)


def extended(tokenizer: Tokenizer, texts: Iterable[str], count: int, *, where: str = "tokenizer.extend") -> Tokenizer:
    """Return a tokenizer with `count` more tokens, those that save most in these texts.

    BPE goes on merging where it stopped (Sennrich et al. 2016, §3.2); WordPiece and Unigram learn whole words. The
    same texts give the same tokens. `where`: what asked for it, for errors.
    Errors: `InputError` for a tokenizer of another kind, and where the texts have not so many words worth a token.
    """
    state: State = json.loads(tokenizer.backend.to_str())
    words = spelled(tokenizer.backend, counted_words(tokenizer.backend, texts))
    first = tokenizer.next_id
    extend = KINDS.get(state["model"]["type"])
    if extend is None or tokenizer.handling.known is not None or tokenizer.handling.moses is not None:
        raise InputError("this tokenizer cannot learn more words", where=where, remedy="leave it out")
    keep_ids(state)
    found = extend(state, words, count, first)
    if found < count:
        raise InputError(f"this text has only {found} words that are worth a token", where=where,
                         remedy=f"use {found} or less, or give more text")
    return Tokenizer(Backend.from_str(json.dumps(state, ensure_ascii=False)), tokenizer.names,
                     clean_up=tokenizer.clean_up, handling=tokenizer.handling)


def keep_ids(state: State) -> None:
    """Write added tokens into the vocabulary too: those outside it would be numbered anew, behind its new words."""
    vocab = state["model"]["vocab"]
    if isinstance(vocab, dict):
        for token in state["added_tokens"]:
            vocab.setdefault(token["content"], token["id"])


def spellings(known: Tokenizer, tokenizer: Tokenizer) -> list[list[int]]:
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


def counted_words(backend: Backend, texts: Iterable[str]) -> Counter[str]:
    """Count the words of texts as the tokenizer sees them, in its own spelling (`Ġlow`, `▁low`)."""
    words: Counter[str] = Counter()
    for text in texts:
        normal = backend.normalizer.normalize_str(text) if backend.normalizer else text
        parts = backend.pre_tokenizer.pre_tokenize_str(normal) if backend.pre_tokenizer else [(normal, None)]
        words.update(word for word, _ in parts if len(word) <= LONGEST)
        if len(words) > MOST_WORDS:
            words = Counter({word: seen for word, seen in words.items() if seen > 1})
    return words


def spelled(backend: Backend, words: Counter[str]) -> list[Word]:
    """Spell each word of letters that comes often enough; in the order of the alphabet."""
    chosen = sorted(word for word, seen in words.items() if seen >= RARE and LETTER.search(word))
    return [Word(word, [token.value for token in backend.model.tokenize(word)], words[word]) for word in chosen]


def extend_wordpiece(state: State, words: list[Word], count: int, first: int) -> int:
    """Add the words that save most to the vocabulary. Returns how many there are."""
    vocab: dict[str, int] = state["model"]["vocab"]
    fresh = [word for word in words if len(word.pieces) > 1 and word.text not in vocab]
    best = sorted(fresh, key=lambda word: (-word.saving, word.text))[:count]
    vocab.update({word.text: number for number, word in enumerate(best, start=first)})
    return len(best)


def extend_unigram(state: State, words: list[Word], count: int, first: int) -> int:
    """Add the words that save most, each with the logarithm of its share as score. Returns how many there are."""
    vocab: list[list[Any]] = state["model"]["vocab"]
    scores, total = dict(map(tuple, vocab)), sum(word.seen for word in words)

    def score(word: Word) -> float:
        return math.log(word.seen / total)

    fresh = [word for word in words if len(word.pieces) > 1 and word.text not in scores
             and score(word) > sum(scores.get(piece, -math.inf) for piece in word.pieces)]
    best = sorted(fresh, key=lambda word: (-word.saving, word.text))[:count]
    named = {token["id"]: token["content"] for token in state["added_tokens"]}
    vocab += [[named.get(number, f"<unused {number}>"), 0.0] for number in range(len(vocab), first)]
    vocab += [[word.text, score(word)] for word in best]
    return len(best)


def extend_bpe(state: State, words: list[Word], count: int, first: int) -> int:
    """Merge the commonest pair of pieces, again and again. Returns how many new tokens that gives."""
    vocab, merges = state["model"]["vocab"], state["model"]["merges"]
    pairs, places = counted_pairs(words)
    made = 0
    while made < count and pairs:
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        if pairs[best] < RARE:
            break
        joined = "".join(best)
        merges.append(list(best))
        if joined not in vocab:
            vocab[joined] = first + made
            made += 1
        merge(best, sorted(places.pop(best)), words, pairs, places)
    return made


def counted_pairs(words: list[Word]) -> tuple[Counter[Pair], dict[Pair, set[int]]]:
    """Count neighbouring pieces, and remember the words in which they stand."""
    pairs: Counter[Pair] = Counter()
    places: dict[Pair, set[int]] = defaultdict(set)
    for number, word in enumerate(words):
        for pair in pairwise(word.pieces):
            pairs[pair] += word.seen
            places[pair].add(number)
    return pairs, places


def merge(best: Pair, numbers: list[int], words: list[Word], pairs: Counter[Pair],
          places: dict[Pair, set[int]]) -> None:
    """Join a pair in the words that have it, and count their pairs anew."""
    for number in numbers:
        word = words[number]
        for pair in pairwise(word.pieces):
            pairs[pair] -= word.seen
        word.pieces = joined(word.pieces, best)
        for pair in pairwise(word.pieces):
            pairs[pair] += word.seen
            places[pair].add(number)
    del pairs[best]


def joined(pieces: list[str], pair: Pair) -> list[str]:
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
