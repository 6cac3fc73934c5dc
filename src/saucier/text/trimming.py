"""`trimmed`: a tokenizer with the tokens alone that a text uses; the text is spelled as before.

Not here: the rows of a model's tables that go with the tokens (adaptation/surgery/vocabulary.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer as Backend

from saucier.errors import InputError
from saucier.text.tokenizer import Tokenizer

State = dict[str, Any]
"""A tokenizer as the JSON of the `tokenizers` library."""
BATCH = 1000
"""Texts that are encoded at once."""


@dataclass(frozen=True, slots=True)
class Trimmed:
    """A tokenizer with fewer tokens."""

    tokenizer: Tokenizer
    kept: tuple[int, ...]
    """The old ids of its tokens, in their order."""


def trimmed(tokenizer: Tokenizer, texts: Iterable[str], keep_first: int = 0) -> Trimmed:
    """Leave out all tokens that the texts do not use, but for special ones and single characters.

    So no other text has unknown characters that it had not. What merges are needed to spell a token stays, too; ids
    close up and keep their order. `keep_first`: so many first ids stay in any case.
    Raises `InputError` for texts without tokens, and for a tokenizer whose vocabulary cannot be told.
    """
    state: State = json.loads(tokenizer.backend.to_str())
    known = vocabulary(state)
    if tokenizer.handling.known is not None or known is None:
        raise InputError("this tokenizer's vocabulary cannot be trimmed", where="--vocabulary", remedy="leave it out")
    used = used_ids(tokenizer, texts)
    if not used:
        raise InputError("the text gives no tokens", where="--vocabulary", remedy="give more text")
    special = {token["id"] for token in state["added_tokens"]}
    single = {number for token, number in known.items() if len(token.removeprefix("##").removesuffix("</w>")) <= 1}
    unknown = {known[name] for name in (state["model"].get("unk_token"),) if name in known}
    unknown |= {one for one in (state["model"].get("unk_id"),) if one is not None}
    kept = used | special | single | unknown | set(range(keep_first))
    kept |= merged_parts(state, known, kept)
    order = tuple(sorted(kept))
    renumber(state, {old: new for new, old in enumerate(order)})
    backend = Backend.from_str(json.dumps(state, ensure_ascii=False))
    return Trimmed(Tokenizer(backend, tokenizer.names, clean_up=tokenizer.clean_up, handling=tokenizer.handling), order)


def used_ids(tokenizer: Tokenizer, texts: Iterable[str]) -> set[int]:
    """Return the ids that the texts are spelled with."""
    found: set[int] = set()
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == BATCH:
            found |= {number for ids in tokenizer.encode_batch(batch, add_special_tokens=False) for number in ids}
            batch = []
    return found | {number for ids in tokenizer.encode_batch(batch, add_special_tokens=False) for number in ids}


def vocabulary(state: State) -> dict[str, int] | None:
    """Return the tokens of a model of any kind and their ids; None for a kind that has no such list."""
    match state["model"]:
        case {"type": "Unigram", "vocab": list(vocab)}:
            return {piece: number for number, (piece, _) in enumerate(vocab)}
        case {"type": "BPE" | "WordPiece" | "WordLevel", "vocab": dict(vocab)}:
            return {str(token): int(number) for token, number in vocab.items()}
    return None


def merged_parts(state: State, known: Mapping[str, int], kept: set[int]) -> set[int]:
    """Return the ids of all tokens that merges put together to one that is kept."""
    names = {number: token for token, number in known.items()}
    wanted = {names[number] for number in kept if number in names}
    found: set[str] = set()
    for first, second in reversed([pair_of(one) for one in state["model"].get("merges", [])]):
        if first + second in wanted | found:
            found |= {first, second}
    return {known[token] for token in found}


def pair_of(merge: Any) -> tuple[str, str]:
    """Return the two parts of a merge, in either way in which files write it."""
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return first, second


def renumber(state: State, new: Mapping[int, int]) -> None:
    """Leave all other ids out of a tokenizer's state, in place, and give those that are left their new numbers."""
    model = state["model"]
    if isinstance(model["vocab"], list):
        model["vocab"] = [entry for number, entry in enumerate(model["vocab"]) if number in new]
        model["unk_id"] = new.get(model.get("unk_id"))
    else:
        model["vocab"] = {token: new[number] for token, number in model["vocab"].items() if number in new}
    if "merges" in model:
        pairs = [(one, pair_of(one)) for one in model["merges"]]
        model["merges"] = [one for one, (first, second) in pairs
                           if {first, second, first + second} <= model["vocab"].keys()]
    for token in state["added_tokens"]:
        token["id"] = new[token["id"]]
    renumber_frame(state["post_processor"], new)
    if state.get("padding"):
        state["padding"]["pad_id"] = new[state["padding"]["pad_id"]]


def renumber_frame(frame: Any, new: Mapping[int, int]) -> None:
    """Do the same in what stands around a text, in place."""
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
