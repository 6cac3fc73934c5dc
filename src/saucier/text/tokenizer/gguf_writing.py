"""A tokenizer of ours as the metadata of a GGUF file, where llama.cpp splits texts as it does; else it is refused.

Source: llama-vocab.cpp and convert_hf_to_gguf.py of llama.cpp.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer as Backend

from saucier.checkpoints.gguf import F32, I32, U32, Typed
from saucier.errors import InputError
from saucier.text.tokenizer.gguf_vocabulary import (
    BYTE,
    CONTROL,
    GPT2_WORDS,
    INSIDE,
    KEY,
    NORMAL,
    ROLES,
    SPLITTINGS,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
)
from saucier.text.tokenizer.sentencepiece import SPACE, find_merges


def express_tokenizer(backend: Backend, names: Mapping[str, str], rows: int, chat: Mapping[str, str],
                      frame: tuple[Sequence[int], Sequence[int]]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a tokenizer as metadata, for a table of so many rows, and in words what is otherwise in llama.cpp.

    `frame`: the ids before and after a text.

    Raises `InputError` for what llama.cpp would split otherwise.
    """
    said = json.loads(backend.to_str())
    kind = said["model"]["type"]
    if kind not in WRITERS:
        raise refuse(f"its kind {kind}")
    tokens = {number: token for token, number in backend.get_vocab(with_added_tokens=True).items()}
    if tokens and max(tokens) >= rows:
        raise InputError(f"the tokenizer has {max(tokens) + 1:,} ids, and the model {rows:,} rows for them",
                         where="tokenizer", remedy="put the model's own tokenizer into its folder")
    added = {one["id"]: CONTROL if one["special"] else USER_DEFINED for one in said["added_tokens"]}
    unknown = names.get("unk")
    kinds = [added.get(number, NORMAL if number in tokens else UNUSED) for number in range(rows)]
    spelled = [tokens.get(number, f"[PAD{number}]") for number in range(rows)]
    found = WRITERS[kind](said, spelled, kinds)
    if found[f"{KEY}model"] in ("llama", "t5") and unknown in spelled:
        kinds[spelled.index(unknown)] = UNKNOWN
    if len(set(spelled)) != len(spelled):
        raise refuse("two of its tokens, which would have one spelling,")
    ids = {f"{KEY}{keys[0]}": Typed(spelled.index(names[role]), U32) for role, keys in ROLES.items()
           if names.get(role) in spelled}
    templates = {f"tokenizer.chat_template{'' if name == 'default' else f'.{name}'}": text
                 for name, text in chat.items()}
    metadata = {**found, f"{KEY}tokens": spelled, f"{KEY}token_type": Typed(kinds, I32), **ids,
                **express_frame(found[f"{KEY}model"], spelled, names, frame), **templates}
    return metadata, tuple(note for kind, told, note in DIFFERENCES if found[f"{KEY}model"] == kind and told(found))


COMPOSED = ["NFKC", "Replace"]
"""Normalization of the Unigram tokenizers that are trained here."""
DIFFERENCES: tuple[tuple[str, Callable[[Mapping[str, Any]], bool], str], ...] = (
    ("t5", lambda said: bool(said[f"{KEY}remove_extra_whitespaces"]) and f"{KEY}precompiled_charsmap" not in said,
     "llama.cpp takes tabs and line breaks for letters, where this tokenizer takes them for spaces, and does not "
     "compose letters (NFKC)"),
    ("gpt2", lambda said: SPLITTINGS[said[f"{KEY}pre"]].composed,
     "llama.cpp does not compose letters with their accents (NFC) before it splits a text, and this tokenizer does"),
)
"""Kind of tokenizer, whether it is one of those that llama.cpp reads in another way, and in which."""


def refuse(what: str) -> InputError:
    """Return the error of a tokenizer that has no place in a file."""
    return InputError(f"llama.cpp has nothing for {what} in this tokenizer", where="tokenizer",
                      remedy="export the model as onnx or ctranslate2, or save it with tokenizer.json")


def express_frame(kind: str, tokens: Sequence[str], names: Mapping[str, str],
                  frame: tuple[Sequence[int], Sequence[int]]) -> dict[str, Any]:
    """Return the settings of what is around a text. Raises `InputError` for other tokens than those for it."""
    before, after = ([tokens[number] for number in side] for side in frame)
    if kind == "bert":
        if (before, after) != ([names.get("cls")], [names.get("sep")]):
            raise refuse(f"the frame {before} … {after}")
        return {f"{KEY}bos_token_id": Typed(frame[0][0], U32)}  # llama.cpp reads no other id for the first token
    if before not in ([], [names.get("bos")]) or after not in ([], [names.get("eos")]):
        raise refuse(f"the frame {before} … {after}")
    return {f"{KEY}add_bos_token": bool(before), f"{KEY}add_eos_token": bool(after)}


def write_bpe(said: Mapping[str, Any], tokens: list[str], kinds: list[int]) -> dict[str, Any]:
    """Return the metadata of a BPE: byte-level, or of SentencePiece."""
    model = said["model"]
    if model.get("dropout") or model.get("end_of_word_suffix") or model.get("continuing_subword_prefix"):
        raise refuse("a mark of words or a dropout")
    merges = [tuple(one.split(" ")) if isinstance(one, str) else tuple(one) for one in model["merges"]]
    parts = flatten(said["pre_tokenizer"], "pretokenizers")
    if not parts or parts[-1]["type"] != "ByteLevel":
        return write_sentencepiece_bpe(said, merges, tokens, kinds)
    composed = [one["type"] for one in flatten(said["normalizer"], "normalizers")]
    if composed not in ([], ["NFC"]):
        raise refuse(f"the normalization {composed}")
    words = tuple(word for one in parts for word in list_words(one))
    for name, known in SPLITTINGS.items():
        if (known.words, known.composed, known.ignores_merges) == (words, composed == ["NFC"],
                                                                   bool(model.get("ignore_merges"))):
            return {f"{KEY}model": "gpt2", f"{KEY}pre": name, f"{KEY}merges": [" ".join(one) for one in merges],
                    f"{KEY}add_space_prefix": any(one.get("add_prefix_space") for one in parts)}
    raise refuse(f"the splitting {words}")


def flatten(part: Any, inside: str) -> list[dict[str, Any]]:
    """Return the steps of a part of tokenizer.json, those of a sequence one by one."""
    if part is None:
        return []
    return [step for one in part[inside] for step in flatten(one, inside)] if part["type"] == "Sequence" else [part]


def list_words(step: Mapping[str, Any]) -> list[str]:
    """Return the expressions by which a step cuts. Raises `InputError` for another kind of step."""
    match step:
        case {"type": "ByteLevel", "use_regex": uses}:
            return [GPT2_WORDS] if uses else []
        case {"type": "Digits", "individual_digits": True}:
            return [r"\p{N}"]
        case {"type": "Split", "behavior": "Isolated", "invert": False, "pattern": {"Regex": words}}:
            return [str(words)]
        case _:
            raise refuse(f"the step {step['type']} of splitting")


def write_sentencepiece_bpe(said: Mapping[str, Any], merges: list[tuple[str, ...]], tokens: list[str],
                            kinds: list[int]) -> dict[str, Any]:
    """Return the metadata of SentencePiece's BPE: scores in the order of the merges, which must follow from them."""
    results = list(dict.fromkeys("".join(one) for one in merges))
    plain = dict.fromkeys(token for token, kind in zip(tokens, kinds, strict=True) if kind == NORMAL)
    order = {token: place for place, token in enumerate(dict.fromkeys([*results, *plain]))}
    ranks = [order["".join(one)] for one in merges]
    if ranks != sorted(ranks) or {*merges} != {*find_merges({one: order[one] for one in order if one in plain})}:
        raise refuse("merges that do not follow from scores")
    for number, token in enumerate(tokens):
        if len(token) == 6 and token.startswith("<0x") and token.endswith(">") and kinds[number] == NORMAL:
            kinds[number] = BYTE
    return {f"{KEY}model": "llama", f"{KEY}pre": "default", f"{KEY}add_space_prefix": find_prefix(said),
            f"{KEY}scores": Typed([-float(order.get(token, 0)) for token in tokens], F32)}


def find_prefix(said: Mapping[str, Any]) -> bool:
    """Say whether SentencePiece's BPE puts a space before a text. Raises `InputError` for other normalizations."""
    steps, cuts = flatten(said["normalizer"], "normalizers"), flatten(said["pre_tokenizer"], "pretokenizers")
    kinds = [one["type"] for one in steps]
    if kinds in (["Prepend", "Replace"], ["Replace"]) and not cuts:
        return "Prepend" in kinds
    if not steps and len(cuts) == 1 and cuts[0]["type"] == "Metaspace" and not cuts[0].get("split", True):
        return bool(cuts[0]["prepend_scheme"] != "never")
    raise refuse(f"the normalization {kinds} with {[one['type'] for one in cuts]}")


def write_unigram(said: Mapping[str, Any], tokens: list[str], kinds: list[int]) -> dict[str, Any]:
    """Return the metadata of a Unigram tokenizer."""
    steps, cuts = flatten(said["normalizer"], "normalizers"), flatten(said["pre_tokenizer"], "pretokenizers")
    marks = [one["type"] for one in cuts]
    kinds_of_steps = [one["type"] for one in steps]
    if kinds_of_steps not in ([], ["Precompiled"], COMPOSED) or marks not in (["WhitespaceSplit", "Metaspace"],
                                                                             ["Metaspace"]):
        raise refuse(f"the normalization {kinds_of_steps} with {marks}")
    scores = dict(said["model"]["vocab"])
    found: dict[str, Any] = {f"{KEY}model": "t5", f"{KEY}pre": "default",
                             f"{KEY}scores": Typed([scores.get(token, -10000.0) for token in tokens], F32),
                             f"{KEY}add_space_prefix": cuts[-1]["prepend_scheme"] != "never",
                             f"{KEY}remove_extra_whitespaces": len(marks) == 2}
    if kinds_of_steps == ["Precompiled"]:
        raw = base64.b64decode(steps[0]["precompiled_charsmap"])
        found[f"{KEY}precompiled_charsmap"] = Typed(list(raw), 0)
    return found


def write_wordpiece(said: Mapping[str, Any], tokens: list[str], kinds: list[int]) -> dict[str, Any]:
    """Return the metadata of BERT's tokenizer, and mark what begins a word."""
    steps, cuts = flatten(said["normalizer"], "normalizers"), flatten(said["pre_tokenizer"], "pretokenizers")
    usual = [one["type"] for one in (*steps, *cuts)] == ["BertNormalizer", "BertPreTokenizer"]
    if not usual or said["model"]["continuing_subword_prefix"] != INSIDE:
        raise refuse("another normalization or mark than BERT's")
    if not steps[0]["clean_text"] or not steps[0]["handle_chinese_chars"]:
        raise refuse("a text that is not cleaned")
    for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True)):
        if kind == NORMAL:
            tokens[number] = token.removeprefix(INSIDE) if token.startswith(INSIDE) else SPACE + token
    lower = bool(steps[0]["lowercase"])
    strips = steps[0]["strip_accents"]
    return {f"{KEY}model": "bert", f"{KEY}pre": "default", f"{KEY}normalizer.lowercase": lower,
            f"{KEY}normalizer.strip_accents": lower if strips is None else bool(strips)}


WRITERS: Mapping[str, Callable[[Mapping[str, Any], list[str], list[int]], dict[str, Any]]] = {
    "BPE": write_bpe, "Unigram": write_unigram, "WordPiece": write_wordpiece}
"""Kind of a tokenizer's model -> what says it in metadata."""
