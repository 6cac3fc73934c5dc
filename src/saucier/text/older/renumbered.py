"""Backends from a SentencePiece model whose pieces have their ids in a `vocab.json`: Marian's and M2M-100's.

The vocabulary may hold tokens that the model never gives (those of the target language): they are marked, so that no
text can match them. The model may give pieces that the vocabulary does not hold: they get ids behind it, which are
unknown.
"""

from __future__ import annotations

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from saucier.errors import InputError
from saucier.text.older.pieces import SPACE, compiled, merges_of, model_file
from saucier.text.older.sentencepiece import UNIGRAM, Pieces, read_pieces
from saucier.text.older.settings import Settings
from saucier.text.older.vocabulary import read_vocab

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


def marian(settings: Settings) -> tuple[Backend, list[AddedToken]]:
    """Build Marian's tokenizer of the source or the target language. Punctuation is not normalized by Moses scripts.

    The pieces of each language have a model of their own, and in some releases a vocabulary (`separate_vocabs`).
    Source: Junczys-Dowmunt et al. 2018, arXiv:1804.00344.
    """
    separate = settings.target and settings.flag("separate_vocabs", False)
    vocab = read_vocab(settings.folder / ("target_vocab.json" if separate else "vocab.json"))
    codes = [AddedToken(token, normalized=False, special=False) for token in vocab
             if token.startswith(">>") and token.endswith("<<")]
    return renumbered(settings, vocab, plain=[token.content for token in codes]), codes


def m2m_100(settings: Settings) -> tuple[Backend, list[AddedToken]]:
    """Build M2M-100's tokenizer: its vocabulary, then a token for each language."""
    if settings.text("language_codes", "m2m100") != "m2m100":
        raise InputError("only language_codes m2m100 is known", where=settings.where,
                         remedy="give a folder with tokenizer.json")
    vocab = read_vocab(settings.folder / "vocab.json")
    first = max(vocab.values()) + 1
    languages = {f"__{code}__": first + place for place, code in enumerate(HUNDRED)}
    return renumbered(settings, {**vocab, **languages}, plain=[*languages]), []


def hundred(settings: Settings) -> list[str]:
    """Name M2M-100's tokens of languages."""
    return [f"__{code}__" for code in HUNDRED]


def renumbered(settings: Settings, vocab: dict[str, int], plain: list[str]) -> Backend:
    """Build the backend; `plain` are tokens that stand in texts as they are. Sets `settings.known`."""
    path = settings.folder / TARGET_PIECES if settings.target else model_file(settings.folder)
    model, unk = read_pieces(path), settings.names["unk"]
    if sorted(vocab.values()) != list(range(len(vocab))):
        raise InputError("its ids leave gaps", where=str(settings.folder / "vocab.json"), remedy="fetch it again")
    if unk not in vocab:
        raise InputError(f"has no {unk!r}", where=str(settings.folder / "vocab.json"), remedy="fetch it again")
    settings.known = len(vocab)
    kept = {*plain, *settings.names.values(), *(piece.text for piece in model.pieces)}
    names = {token if token in kept else MARK + token: number for token, number in vocab.items()}
    backend = (unigram if model.kind == UNIGRAM else pairs)(model, names, unk)
    backend.normalizer = normalizers.Sequence([*compiled(settings, model), normalizers.Replace(Regex(" {2,}"), " "),
                                               normalizers.Strip()])
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always")
    backend.decoder = decoders.Sequence([decoders.Replace(MARK, ""), decoders.Metaspace(replacement=SPACE)])
    return backend


def unigram(model: Pieces, names: dict[str, int], unk: str) -> Backend:
    """Build a Unigram backend; tokens that the model never gives score as its rarest piece."""
    known = dict(model.scores)
    lowest = min(known.values())
    scores = [(token, known.get(token, lowest)) for token, _ in sorted(names.items(), key=lambda item: item[1])]
    scores += [(token, score) for token, score in known.items() if token not in names]
    return Backend(models.Unigram(scores, unk_id=names[unk]))


def pairs(model: Pieces, names: dict[str, int], unk: str) -> Backend:
    """Build a BPE backend, whose merges follow the model's own order."""
    order = {piece.text: place for place, piece in enumerate(model.pieces)}
    others = [piece for piece in order if piece not in names]
    vocab = {**names, **{piece: len(names) + place for place, piece in enumerate(others)}}
    return Backend(models.BPE(vocab, merges_of(order), unk_token=unk, fuse_unk=True))
