"""Backends from SentencePiece models, with each class's normalization and order of ids, also where the ids are in a
`vocab.json` (Marian, M2M-100): pieces without an id there are unknown, tokens that the model never gives are
marked.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from saucier.errors import InputError
from saucier.text.tokenizer.legacy_files import TokenizerSettings, read_vocab
from saucier.text.tokenizer.sentencepiece_model import BPE, CONTROL, UNIGRAM, USER_DEFINED, Pieces, read_pieces

SPACE = "▁"
Scores = list[tuple[str, float]]
Order = Callable[[Scores, TokenizerSettings], Scores]
Normal = Callable[[TokenizerSettings, Pieces], list[normalizers.Normalizer]]
Build = Callable[[TokenizerSettings], tuple[Backend, list[AddedToken]]]
Unknown = Callable[[Scores, TokenizerSettings, Pieces], int]
FILES = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "source.spm", "spm.model")


def find_model_file(folder: Path) -> Path:
    """Return the SentencePiece model of a folder. Raises `InputError` where there is none."""
    found = [folder / name for name in FILES if (folder / name).is_file()]
    if not found:
        raise InputError("has no SentencePiece model", where=str(folder), remedy=f"known names: {', '.join(FILES)}")
    return found[0]


def keep_order(scores: Scores, _: TokenizerSettings) -> Scores:
    """Keep the model's own ids."""
    return scores


def order_fairseq(*last: str) -> Order:
    """Put `<s> <pad> </s> <unk>` first, in place of the model's first three, and further tokens last."""
    def order(scores: Scores, settings: TokenizerSettings) -> Scores:
        names = settings.names
        first = [names["bos"], names["pad"], names["eos"], names["unk"]]
        return [*((name, 0.0) for name in first), *scores[3:], *((name.format(**names), 0.0) for name in last)]

    return order


def order_camembert(scores: Scores, settings: TokenizerSettings) -> Scores:
    """Put CamemBERT's five placeholders before the model's pieces."""
    names = settings.names
    first = [("<s>NOTUSED", 0.0), (names["pad"], 0.0), ("</s>NOTUSED", 0.0), (names["unk"], 0.0),
             ("<unk>NOTUSED", -100.0)]
    return [*first, *scores[1:], (names["mask"], 0.0)]


def order_sentinels_last(scores: Scores, settings: TokenizerSettings) -> Scores:
    """Put T5's sentinels after the model's pieces, the first one last."""
    return scores + [(name, 0.0) for name in reversed(list_sentinels(settings))]


def list_sentinels(settings: TokenizerSettings) -> list[str]:
    """Name T5's sentinels."""
    return [f"<extra_id_{number}>" for number in range(settings.number("extra_ids", 100))]


def order_pegasus(scores: Scores, settings: TokenizerSettings) -> Scores:
    """Put the masks and the unused tokens of Pegasus before the model's pieces."""
    names, (sentence, *unused) = settings.names, list_pegasus_tokens(settings)
    first = [(name, 0.0) for name in (names["pad"], names["eos"], names["mask"], sentence)]
    return [*first, *((name, -100.0) for name in unused), *scores[2:]]


def list_pegasus_tokens(settings: TokenizerSettings) -> list[str]:
    """Name the mask of whole sentences and the unused tokens."""
    unused = range(2, settings.number("offset", 103))
    return [settings.text("mask_token_sent", "<mask_1>"), *(f"<unk_{number}>" for number in unused)]


def build_normalizer(_: TokenizerSettings, model: Pieces) -> list[normalizers.Normalizer]:
    """Normalize as the model says."""
    if not model.charsmap:
        return []
    try:
        return [normalizers.Precompiled(model.charsmap)]
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"its normalization is broken ({error})", where="SentencePiece model",
                         remedy="fetch it again") from error


def normalize_spaces(settings: TokenizerSettings, model: Pieces) -> list[normalizers.Normalizer]:
    """Normalize as the model says, then join spaces."""
    return [*build_normalizer(settings, model), normalizers.Replace(Regex(" {2,}"), " ")]


def normalize_reformer(settings: TokenizerSettings, model: Pieces) -> list[normalizers.Normalizer]:
    """Normalize as the model says, and join spaces only where it says anything."""
    return normalize_spaces(settings, model) if model.charsmap else []


def normalize_quotes(*, lowercase: bool, accents: bool) -> Normal:
    """Normalize as ALBERT and XLNet do: quotes, accents and case before the model's own. Options: the defaults."""
    def normal(settings: TokenizerSettings, model: Pieces) -> list[normalizers.Normalizer]:
        steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
        if not (accents and settings.flag("keep_accents", False)):
            steps += [normalizers.NFKD(), normalizers.StripAccents()]
        if settings.flag("do_lower_case", lowercase):
            steps.append(normalizers.Lowercase())
        return steps + build_normalizer(settings, model)

    return normal


def normalize_nothing(_: TokenizerSettings, __: Pieces) -> list[normalizers.Normalizer]:
    """Leave the text as it is."""
    return []


def normalize_deberta(settings: TokenizerSettings, _: Pieces) -> list[normalizers.Normalizer]:
    """Normalize as DeBERTa V2: one space for any, and none at the end."""
    lower: list[normalizers.Normalizer] = [normalizers.Lowercase()] if settings.flag("do_lower_case", False) else []
    return [*lower, normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFC(),
            normalizers.Strip(left=False, right=True)]


def normalize_space_runs(_: TokenizerSettings, __: Pieces) -> list[normalizers.Normalizer]:
    """Mark runs of spaces, as Big Bird does."""
    return [normalizers.Replace(Regex(r" {2,}"), SPACE)]


def normalize_pegasus(settings: TokenizerSettings, model: Pieces) -> list[normalizers.Normalizer]:
    """Normalize as the model says, or else take line feeds for spaces; then join spaces."""
    own = build_normalizer(settings, model) or [normalizers.Replace(Regex(r"\n"), " ")]
    return [*own, normalizers.Replace(Regex(" {2,}"), " ")]


def use_unknown_at(place: int) -> Unknown:
    """Say that the unknown token has this id."""
    return lambda scores, settings, model: place


def use_model_unknown(_: Scores, __: TokenizerSettings, model: Pieces) -> int:
    """Take the unknown token that the model names."""
    return model.unk


def use_named_unknown(otherwise: Unknown) -> Unknown:
    """Find the unknown token by its name."""
    def find(scores: Scores, settings: TokenizerSettings, model: Pieces) -> int:
        wanted = (settings.names["unk"], 0.0)
        return scores.index(wanted) if wanted in scores else otherwise(scores, settings, model)

    return find


def choose_unigram(order: Order = keep_order, normal: Normal = build_normalizer, *, unk: Unknown = use_model_unknown,
                   words: bool = True) -> Build:
    """Return the builder of a Unigram tokenizer. `unk`: where the unknown token is.

    `words`: cut at every white space first, so that runs of it vanish. Source: Kudo 2018, arXiv:1804.10959.
    """
    def build(settings: TokenizerSettings) -> tuple[Backend, list[AddedToken]]:
        path = find_model_file(settings.folder)
        model = read_pieces(path)
        if model.kind != UNIGRAM:
            raise InputError("is a BPE model, where this class has a Unigram one", where=str(path),
                             remedy="give a folder with tokenizer.json")
        scores = order(model.scores, settings)
        number = unk(scores, settings, model)
        if not 0 <= number < len(scores):
            raise InputError(f"the unknown token has the id {number}, of {len(scores)}", where=str(path),
                             remedy="fetch it again")
        backend = Backend(models.Unigram(scores, unk_id=number))
        steps = normal(settings, model)
        backend.normalizer = normalizers.Sequence(steps) if steps else None
        prepend = "always" if settings.flag("add_prefix_space", True) else "never"
        space = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=prepend)
        backend.pre_tokenizer = pre_tokenizers.Sequence([*build_pre_tokenizer(settings, words), space])
        backend.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme=prepend)
        return backend, list_own_tokens(model)

    return build


def build_pre_tokenizer(settings: TokenizerSettings, words: bool) -> list[pre_tokenizers.PreTokenizer]:
    """Say where a text is cut before the pieces are found."""
    found: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.WhitespaceSplit()] if words else []
    if settings.flag("split_by_punct", False):
        found.append(pre_tokenizers.Punctuation(behavior="isolated"))
    return found


def list_own_tokens(model: Pieces) -> list[AddedToken]:
    """Return the model's own special tokens, and its words that are never split."""
    return [AddedToken(piece.text, normalized=False, special=piece.kind == CONTROL) for piece in model.pieces
            if piece.kind in (CONTROL, USER_DEFINED) and piece.text]


def choose_bpe(normal: Normal = normalize_nothing, *, space: str = "always", split: bool = True) -> Build:
    """Return the builder of a BPE tokenizer from a SentencePiece model. `space`: where one is put before the text."""
    def build(settings: TokenizerSettings) -> tuple[Backend, list[AddedToken]]:
        path = find_model_file(settings.folder)
        model = read_pieces(path)
        if model.kind != BPE:
            raise InputError("is a Unigram model, where this class has a BPE one", where=str(path),
                             remedy="give a folder with tokenizer.json")
        vocab = {piece.text: number for number, piece in enumerate(model.pieces)}
        unk = settings.names["unk"]
        backend = Backend(models.BPE(vocab, find_merges(vocab), unk_token=unk, fuse_unk=True,
                                     byte_fallback=not split and model.byte_fallback))
        steps = normal(settings, model)
        backend.normalizer = normalizers.Sequence(steps) if steps else None
        prefixed = settings.flag("add_prefix_space", True)
        scheme = space if prefixed else "never"
        backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=scheme, split=split)
        strip = [decoders.Strip(content=" ", left=1)] if prefixed else []
        backend.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme=scheme) if split else decoders.Sequence(
            [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
        return backend, list_own_tokens(model)

    return build


def find_merges(vocab: dict[str, int]) -> list[tuple[str, str]]:
    """Find the merges that give every piece, the most frequent piece first."""
    found = []
    for piece, number in vocab.items():
        pairs = [(piece[:at], piece[at:]) for at in range(1, len(piece))
                 if piece[:at] in vocab and piece[at:] in vocab]
        pairs.sort(key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
        found += [(number, len(left), len(right), left, right) for left, right in pairs]
    found.sort(key=lambda merge: merge[:3])
    return [(left, right) for *_, left, right in found]


MARK = "\ufdd0"
"""No text holds it: Unicode keeps it for internal use."""
TARGET_PIECES = "target.spm"
"""Where Marian keeps the pieces of the target language."""
HUNDRED = [
    "af", "am", "ar", "ast", "az", "ba", "be", "bg", "bn", "br", "bs", "ca", "ceb", "cs", "cy", "da", "de", "el", "en",
    "es", "et", "fa", "ff", "fi", "fr", "fy", "ga", "gd", "gl", "gu", "ha", "he", "hi", "hr", "ht", "hu", "hy", "id",
    "ig", "ilo", "is", "it", "ja", "jv", "ka", "kk", "km", "kn", "ko", "lb", "lg", "ln", "lo", "lt", "lv", "mg", "mk",
    "ml", "mn", "mr", "ms", "my", "ne", "nl", "no", "ns", "oc", "or", "pa", "pl", "ps", "pt", "ro", "ru", "sd", "si",
    "sk", "sl", "so", "sq", "sr", "ss", "su", "sv", "sw", "ta", "th", "tl", "tn", "tr", "uk", "ur", "uz", "vi", "wo",
    "xh", "yi", "yo", "zh", "zu",
]
"""The languages of M2M-100, in the order of their ids. Source: Fan et al. 2020, arXiv:2010.11125."""


def build_marian(settings: TokenizerSettings) -> tuple[Backend, list[AddedToken]]:
    """Build Marian's tokenizer of the source or the target language. Punctuation is not normalized by Moses scripts.

    The pieces of each language have a model of their own, and in some releases a vocabulary (`separate_vocabs`).
    Source: Junczys-Dowmunt et al. 2018, arXiv:1804.00344.
    """
    separate = settings.target and settings.flag("separate_vocabs", False)
    vocab = read_vocab(settings.folder / ("target_vocab.json" if separate else "vocab.json"))
    codes = [AddedToken(token, normalized=False, special=False) for token in vocab
             if token.startswith(">>") and token.endswith("<<")]
    return build_renumbered(settings, vocab, plain=[token.content for token in codes]), codes


def build_m2m_100(settings: TokenizerSettings) -> tuple[Backend, list[AddedToken]]:
    """Build M2M-100's tokenizer: its vocabulary, then a token for each language."""
    if settings.text("language_codes", "m2m100") != "m2m100":
        raise InputError("only language_codes m2m100 is known", where=settings.where,
                         remedy="give a folder with tokenizer.json")
    vocab = read_vocab(settings.folder / "vocab.json")
    first = max(vocab.values()) + 1
    languages = {f"__{code}__": first + place for place, code in enumerate(HUNDRED)}
    return build_renumbered(settings, {**vocab, **languages}, plain=[*languages]), []


def list_m2m_languages(settings: TokenizerSettings) -> list[str]:
    """Name M2M-100's tokens of languages."""
    return [f"__{code}__" for code in HUNDRED]


def build_renumbered(settings: TokenizerSettings, vocab: dict[str, int], plain: list[str]) -> Backend:
    """Build the backend; `plain` are tokens that are in texts as they are. Sets `settings.known`."""
    path = settings.folder / TARGET_PIECES if settings.target else find_model_file(settings.folder)
    model, unk = read_pieces(path), settings.names["unk"]
    if sorted(vocab.values()) != list(range(len(vocab))):
        raise InputError("its ids leave gaps", where=str(settings.folder / "vocab.json"), remedy="fetch it again")
    if unk not in vocab:
        raise InputError(f"has no {unk!r}", where=str(settings.folder / "vocab.json"), remedy="fetch it again")
    settings.known = len(vocab)
    kept = {*plain, *settings.names.values(), *(piece.text for piece in model.pieces)}
    names = {token if token in kept else MARK + token: number for token, number in vocab.items()}
    backend = (build_renumbered_unigram if model.kind == UNIGRAM else build_renumbered_bpe)(model, names, unk)
    backend.normalizer = normalizers.Sequence([*build_normalizer(settings, model),
                                               normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()])
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always")
    backend.decoder = decoders.Sequence([decoders.Replace(MARK, ""), decoders.Metaspace(replacement=SPACE)])
    return backend


def build_renumbered_unigram(model: Pieces, names: dict[str, int], unk: str) -> Backend:
    """Build a Unigram backend; tokens that the model never gives score as its rarest piece."""
    known = dict(model.scores)
    lowest = min(known.values())
    scores = [(token, known.get(token, lowest)) for token, _ in sorted(names.items(), key=lambda item: item[1])]
    scores += [(token, score) for token, score in known.items() if token not in names]
    return Backend(models.Unigram(scores, unk_id=names[unk]))


def build_renumbered_bpe(model: Pieces, names: dict[str, int], unk: str) -> Backend:
    """Build a BPE backend, whose merges follow the model's own order."""
    order = {piece.text: place for place, piece in enumerate(model.pieces)}
    others = [piece for piece in order if piece not in names]
    vocab = {**names, **{piece: len(names) + place for place, piece in enumerate(others)}}
    return Backend(models.BPE(vocab, find_merges(order), unk_token=unk, fuse_unk=True))
