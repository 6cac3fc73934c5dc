"""The tokenizer inside a GGUF file as one of ours.

llama.cpp knows four kinds: byte-level BPE whose splitting has a name (`gpt2`), BPE of SentencePiece, whose merges
follow from scores (`llama`), Unigram (`t5`) and WordPiece (`bert`), which writes what begins a word with a mark instead
of what goes on. Source: llama-vocab.cpp of llama.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from saucier.checkpoints.gguf import GgufFile
from saucier.errors import InputError, suggest_name
from saucier.text.tokenizer.sentencepiece import SPACE, find_merges

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Kinds of tokens."""
KEY = "tokenizer.ggml."
ROLES = {"bos": ("bos_token_id",), "eos": ("eos_token_id",), "unk": ("unknown_token_id",),
         "sep": ("seperator_token_id", "separator_token_id"), "pad": ("padding_token_id",),
         "cls": ("cls_token_id",), "mask": ("mask_token_id",)}
"""Role of a special token -> its names in the metadata, the one that is written first (misspelled there)."""
GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN_WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
              r"|\s+(?!\S)|\s+")
LLAMA3_WORDS = QWEN_WORDS.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
BLOOM_WORDS = r" ?[^(\s|[.,!?…。，、।۔،])]+"


@dataclass(frozen=True, slots=True)
class Splitting:
    """How a byte-level BPE cuts a text into words."""

    words: tuple[str, ...]
    """Expressions, each of which cuts what those before it have left."""
    composed: bool = False
    """Whether texts are brought to NFC first, as the models' own tokenizers do and llama.cpp does not."""
    ignores_merges: bool = False
    """Whether a word that is a token stays whole, whatever the merges say."""
    bos: bool = False
    """Whether texts begin with a token for it, where the file does not say it."""


GPT2_SPLITTING = Splitting((GPT2_WORDS,))
SPLITTINGS: Mapping[str, Splitting] = {
    "gpt-2": GPT2_SPLITTING,
    "olmo": Splitting((GPT2_WORDS,), composed=True),
    "llama-bpe": Splitting((LLAMA3_WORDS,), ignores_merges=True, bos=True),
    "qwen2": Splitting((QWEN_WORDS,), composed=True),
    "stablelm2": Splitting((QWEN_WORDS,)),
    "bloom": Splitting((BLOOM_WORDS,)),
    "chatglm-bpe": Splitting((LLAMA3_WORDS,)),
    "smollm": Splitting((r"\p{N}", GPT2_WORDS)),
    "default": Splitting((r"[\p{P}\$\+<=>\^\~\|]+", GPT2_WORDS, r"\p{N}+", "[0-9][0-9][0-9]")),
    **dict.fromkeys(("gpt2", "phi-2", "mpt", "jais", "trillion", "modern-bert", "mellum"), GPT2_SPLITTING),
    **dict.fromkeys(("starcoder", "refact", "command-r", "codeshell", "exaone"), Splitting((r"\p{N}", GPT2_WORDS))),
    **dict.fromkeys(("llama3", "llama-v3", "falcon3", "pixtral"),
                    Splitting((LLAMA3_WORDS,), ignores_merges=True, bos=True)),
}
"""Name in the file -> what it means; of several for the same the first is written."""


@dataclass(slots=True)
class Vocabulary:
    """What a file says of its tokens."""

    file: GgufFile
    kind: str
    tokens: list[str]
    kinds: list[int]
    scores: list[float]
    names: dict[str, str] = field(default_factory=dict)
    """Role -> token."""

    def fault(self, what: str, remedy: str = "the file is damaged; copy it again") -> InputError:
        """Return the error of a tokenizer that cannot be read."""
        return InputError(what, where=str(self.file.path), remedy=remedy)

    def flag(self, name: str, default: bool) -> bool:
        """Return a setting. Raises `InputError` for one that is neither true nor false."""
        value = self.file.metadata.get(KEY + name, default)
        if not isinstance(value, bool):
            raise self.fault(f"{KEY}{name} is {str(value)[:40]!r}")
        return value

    def of_kind(self, *kinds: int) -> list[str]:
        """Return the tokens of some kinds, in order."""
        return [token for token, kind in zip(self.tokens, self.kinds, strict=True) if kind in kinds]

    def ids(self, change: Callable[[str, int], str] = lambda token, kind: token) -> dict[str, int]:
        """Return the tokens and their ids, without unused ones. Raises `InputError` for two of one spelling."""
        found: dict[str, int] = {}
        for number, (token, kind) in enumerate(zip(self.tokens, self.kinds, strict=True)):
            spelled = change(token, kind)
            if kind == UNUSED:
                continue
            if spelled in found:
                raise self.fault(f"the tokens {found[spelled]} and {number} are both {spelled[:40]!r}")
            found[spelled] = number
        return found


def read_vocabulary(file: GgufFile) -> Vocabulary:
    """Read a file's tokens. Raises `InputError` for a file without, and where the lists do not fit together."""
    metadata, where = file.metadata, str(file.path)
    kind, tokens = metadata.get(f"{KEY}model"), metadata.get(f"{KEY}tokens")
    if kind not in READERS:
        raise InputError(f"{KEY}model is {str(kind)[:40]!r}", where=where,
                         remedy=f"known: {', '.join(READERS)}; put a tokenizer.json next to the file's folder")
    if not isinstance(tokens, list) or not tokens:
        raise InputError(f"{KEY}tokens is missing or no list of texts", where=where, remedy="copy the file again")
    kinds = metadata.get(f"{KEY}token_type", np.full(len(tokens), NORMAL))
    scores = metadata.get(f"{KEY}scores", np.zeros(len(tokens), np.float32))
    for name, values in (("token_type", kinds), ("scores", scores)):
        if not isinstance(values, np.ndarray) or len(values) != len(tokens) or not np.isfinite(values).all():
            raise InputError(f"{KEY}{name} does not have a number for each of {len(tokens):,} tokens", where=where,
                             remedy="the file is damaged; copy it again")
    found = Vocabulary(file, str(kind), tokens, kinds.astype(int).tolist(), scores.astype(float).tolist())
    for role, keys in ROLES.items():
        also = ("bos_token_id",) if (found.kind, role) == ("bert", "cls") else ()  # llama.cpp calls it so
        said = (file.count(KEY + key) for key in (*keys, *also))
        number = next((one for one in said if one is not None), DEFAULTS[found.kind].get(role))
        if number is not None and 0 <= number < len(tokens):
            found.names[role] = tokens[number]
    if found.kind == "bert":
        for role, other in (("bos", "cls"), ("eos", "sep")):
            if found.names.get(role) == found.names.get(other):
                found.names.pop(role, None)
    return found


DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "gpt2": {}, "llama": {"bos": 1, "eos": 2, "unk": 0}, "t5": {"eos": 1, "unk": 2, "pad": 0},
    "bert": {"unk": 100, "sep": 102, "pad": 0, "cls": 101, "mask": 103}}
"""Ids of special tokens where a file does not say them."""


@dataclass(frozen=True, slots=True)
class GgufTokenizer:
    """What a file's tokenizer is made of."""

    backend: Backend
    names: Mapping[str, str]
    max_length: int | None
    chat: Mapping[str, str]
    segments: bool
    """Whether the model knows first and second texts."""


def read_gguf_tokenizer(file: GgufFile) -> GgufTokenizer:
    """Build the tokenizer of a file. Raises `InputError` for a kind or a splitting that is not known."""
    found = read_vocabulary(file)
    try:
        backend = READERS[found.kind](found)
        backend.add_tokens([AddedToken(token, normalized=False, special=False)
                            for token in found.of_kind(USER_DEFINED)])
        backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token
                                    in dict.fromkeys([*found.of_kind(CONTROL), *found.names.values()])])
        add_frame(backend, found)
    except InputError:
        raise
    except Exception as error:  # the library raises nothing narrower
        raise found.fault(f"its tokenizer does not fit together: {str(error)[:200]}") from error
    chat = {name.partition("chat_template")[2].lstrip(".") or "default": text for name, text in file.metadata.items()
            if name.startswith("tokenizer.chat_template") and isinstance(text, str)}
    length = file.count(f"{file.metadata.get('general.architecture')}.context_length")
    limited = "position_embd.weight" in file.tensors and length is not None and length > 0
    return GgufTokenizer(backend, found.names, length if limited else None, chat, found.kind == "bert")


def build_byte_bpe(found: Vocabulary) -> Backend:
    """Build a byte-level BPE by the name of its splitting."""
    name = found.file.metadata.get(f"{KEY}pre", "default")
    splitting = SPLITTINGS.get(str(name))
    if splitting is None:
        raise found.fault(f"{KEY}pre {str(name)[:40]!r} is not known", suggest_name(str(name)[:40], [*SPLITTINGS]))
    merges = found.file.metadata.get(f"{KEY}merges")
    if not isinstance(merges, list):
        raise found.fault(f"{KEY}merges is missing or no list of texts")
    pairs = []
    for merge in merges:
        at = merge.find(" ", 1)
        if at < 0:
            raise found.fault(f"{KEY}merges has {merge[:40]!r}, which is no pair")
        pairs.append((merge[:at], merge[at + 1:]))
    backend = Backend(models.BPE(found.ids(), pairs, fuse_unk=False, ignore_merges=splitting.ignores_merges))
    backend.normalizer = normalizers.NFC() if splitting.composed else None
    backend.pre_tokenizer = build_splitter(splitting, prefix=found.flag("add_space_prefix", False))
    backend.decoder = decoders.ByteLevel()
    return backend


def build_splitter(splitting: Splitting, *, prefix: bool) -> pre_tokenizers.PreTokenizer:
    """Build what cuts a text into words, and these into bytes."""
    if splitting.words == (GPT2_WORDS,):
        return pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    cuts = [pre_tokenizers.Split(Regex(one), behavior="isolated") for one in splitting.words]
    return pre_tokenizers.Sequence([*cuts, pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False)])


def build_sentencepiece_bpe(found: Vocabulary) -> Backend:
    """Build BPE whose pieces are joined by the best score, with a token for each byte that has no piece."""
    ids = found.ids()
    pieces = sorted((number for number, kind in enumerate(found.kinds) if kind in (NORMAL, USER_DEFINED)),
                    key=lambda number: -found.scores[number])
    order = {found.tokens[number]: place for place, number in enumerate(pieces)}
    backend = Backend(models.BPE(ids, find_merges(order), unk_token=found.names.get("unk"), fuse_unk=True,
                                 byte_fallback=BYTE in found.kinds))
    prefix = found.flag("add_space_prefix", True)
    marks = [normalizers.Prepend(SPACE)] if prefix else []
    backend.normalizer = normalizers.Sequence([*marks, normalizers.Replace(" ", SPACE)])
    strip = [decoders.Strip(content=" ", left=1)] if prefix else []
    backend.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(),
                                         *strip])
    return backend


def build_unigram(found: Vocabulary) -> Backend:
    """Build a Unigram tokenizer with the normalization of its SentencePiece model."""
    last = max((number for number, kind in enumerate(found.kinds) if kind != UNUSED), default=-1)
    pieces = list(zip(found.tokens, found.scores, strict=True))[:last + 1]
    backend = Backend(models.Unigram(pieces, unk_id=found.tokens.index(found.names["unk"]) if "unk" in found.names
                                     else None))
    charsmap = found.file.metadata.get(f"{KEY}precompiled_charsmap")
    if isinstance(charsmap, np.ndarray) and len(charsmap):
        backend.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap.astype(np.uint8).tobytes())])
    scheme = "always" if found.flag("add_space_prefix", False) else "never"
    mark = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=scheme)
    cut = [pre_tokenizers.WhitespaceSplit()] if found.flag("remove_extra_whitespaces", False) else []
    backend.pre_tokenizer = pre_tokenizers.Sequence([*cut, mark])
    backend.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme=scheme)
    return backend


INSIDE = "##"


def build_wordpiece(found: Vocabulary) -> Backend:
    """Build BERT's tokenizer: what does not begin a word has the mark that BERT's files write."""
    special = {*found.of_kind(CONTROL), *found.names.values()}

    def spell(token: str, kind: int) -> str:
        if token in special or kind in (CONTROL, UNUSED):
            return token
        return token.removeprefix(SPACE) if token.startswith(SPACE) else INSIDE + token

    backend = Backend(models.WordPiece(found.ids(spell), unk_token=found.names.get("unk", "[UNK]"),
                                       continuing_subword_prefix=INSIDE))
    lower = found.flag("normalizer.lowercase", True)
    strips = found.flag("normalizer.strip_accents", lower)
    backend.normalizer = normalizers.BertNormalizer(lowercase=lower, strip_accents=None if strips == lower else strips)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix=INSIDE)
    return backend


READERS: Mapping[str, Callable[[Vocabulary], Backend]] = {
    "gpt2": build_byte_bpe, "llama": build_sentencepiece_bpe, "t5": build_unigram, "bert": build_wordpiece}
"""`tokenizer.ggml.model` -> what builds it."""


def add_frame(backend: Backend, found: Vocabulary) -> None:
    """Put the special tokens around texts and pairs, as the file says or its kind has them."""
    if found.kind == "bert":
        first, last = found.names.get("cls", found.names.get("bos")), found.names.get("sep")
        single = [first, "$A:0", last]
        pair = [*single, "$B:1", None if last is None else f"{last}:1"]
    else:
        splitting = SPLITTINGS.get(str(found.file.metadata.get(f"{KEY}pre")), GPT2_SPLITTING)
        begins = found.flag("add_bos_token", found.kind == "llama" or (found.kind == "gpt2" and splitting.bos))
        first = found.names.get("bos") if begins else None
        last = found.names.get("eos") if found.flag("add_eos_token", found.kind == "t5") else None
        single, pair = [first, "$A", last], [first, "$A", last, first, "$B", last]
    used = dict.fromkeys(one for one in (first, last) if one is not None)
    if used:
        backend.post_processor = processors.TemplateProcessing(
            single=[one for one in single if one], pair=[one for one in pair if one],
            special_tokens=[(one, backend.token_to_id(one)) for one in used])
