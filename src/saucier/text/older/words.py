"""Backends from vocabularies of words and merges: WordPiece, byte-level BPE, and the BPE of the first GPT."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from saucier.errors import InputError, nearest
from saucier.text.moses import Moses, scripts
from saucier.text.older.settings import Settings
from saucier.text.older.vocabulary import read_codes, read_merges, read_vocab, read_vocab_lines

WORD_END = "</w>"
GOES_ON = "@@"
"""What CTRL's vocabulary writes behind a piece that does not end its word."""
INSIDE = "##"
SEGMENTED = {"zh": "the Stanford segmenter", "ja": "KyTea", "th": "PyThaiNLP"}
"""Languages without spaces between words, and what cut them for XLM."""


def wordpiece(settings: Settings) -> Backend:
    """Build BERT's tokenizer from `vocab.txt`. Source: Devlin et al. 2018, §3, arXiv:1810.04805."""
    if not settings.flag("do_basic_tokenize", True):
        raise InputError("do_basic_tokenize false cannot be reproduced", where=settings.where,
                         remedy="give a folder with tokenizer.json")
    path = settings.folder / "vocab.txt"
    vocab, unk = read_vocab_lines(path), settings.names["unk"]
    if unk not in vocab:
        raise InputError(f"has no {unk!r}, which stands for unknown words", where=str(path),
                         remedy="name another as unk_token in tokenizer_config.json")
    prefix = settings.text("wordpieces_prefix", INSIDE)
    backend = Backend(models.WordPiece(vocab, unk_token=unk, continuing_subword_prefix=prefix))
    strip = settings.options.get("strip_accents")
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=settings.flag("clean_text", True),
        handle_chinese_chars=settings.flag("tokenize_chinese_chars", True),
        strip_accents=None if strip is None else settings.flag("strip_accents", False),
        lowercase=settings.flag("do_lower_case", True))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix=prefix)
    return backend


def byte_pairs(*, prefix_space: bool = False, normalizer: Callable[[], normalizers.Normalizer] | None = None,
               words: str | None = None) -> Callable[[Settings], Backend]:
    """Return the builder of a byte-level BPE from `vocab.json` and `merges.txt`; options are the class's defaults.

    `words`: the expression that cuts a text into words, where it is not GPT-2's own. Source: Radford et al. 2019, §2.2.
    """
    def build(settings: Settings) -> Backend:
        vocab = read_vocab(settings.folder / "vocab.json")
        merges = read_merges(settings.folder / "merges.txt", vocab)
        backend = Backend(models.BPE(vocab, merges, continuing_subword_prefix="", end_of_word_suffix="",
                                     fuse_unk=False))
        if normalizer is not None:
            backend.normalizer = normalizer()
        space = settings.flag("add_prefix_space", prefix_space)
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space) if words is None else (
            pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(words), behavior="isolated"),
                                     pre_tokenizers.ByteLevel(add_prefix_space=space, use_regex=False)]))
        backend.decoder = decoders.ByteLevel()
        return backend

    return build


def word_pairs(settings: Settings) -> Backend:
    """Build the first GPT's tokenizer: pairs of characters merged inside lower-cased words."""
    vocab = read_vocab(settings.folder / "vocab.json")
    merges = read_merges(settings.folder / "merges.txt", vocab)
    backend = Backend(models.BPE(vocab, merges, unk_token=settings.names["unk"], continuing_subword_prefix="",
                                 end_of_word_suffix=WORD_END, fuse_unk=False))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.BPEDecoder(suffix=WORD_END)
    return backend


def continued_pairs(settings: Settings) -> Backend:
    """Build CTRL's tokenizer: its merges mark the end of a word, and its vocabulary the pieces before it.

    A line feed belongs to the word before it. A text that is cut inside a word is decoded without the mark at its end,
    which the release shows. Source: Keskar et al. 2019, §3.2, arXiv:1909.05858, and its code release.
    """
    path = settings.folder / "vocab.json"
    tokens, merges = read_vocab(path), read_codes(settings.folder / "merges.txt", heading=True)
    unk = settings.names["unk"]
    pieces = pieces_of(merges)
    special = settings.names.values()
    vocab = {token if token in special else inner_name(token, pieces, str(path)): number
             for token, number in tokens.items()}
    vocab = with_pieces(vocab, pieces, settings)
    backend = Backend(models.BPE(vocab, merges, unk_token=unk, continuing_subword_prefix="",
                                 end_of_word_suffix=WORD_END, fuse_unk=False))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"\S+\n?"), behavior="removed", invert=True)
    backend.decoder = decoders.Sequence([
        decoders.Replace(unk, unk + WORD_END), decoders.BPEDecoder(suffix=WORD_END), decoders.Fuse(),
        decoders.Replace(Regex(r"\A\s+|\s+\z"), "")])
    return backend


def moses_pairs(settings: Settings) -> Backend:
    """Build XLM's tokenizer: pairs of characters merged inside words that the Moses scripts have set apart.

    Sets `settings.moses`. Source: Lample and Conneau 2019 (XLM), §3.1, arXiv:1901.07291, and its code release.
    """
    tokens = read_vocab(settings.folder / "vocab.json")
    merges = read_codes(settings.folder / "merges.txt", heading=False)
    settings.moses = moses_of(settings)
    backend = Backend(models.BPE(with_pieces(tokens, pieces_of(merges), settings), merges, fuse_unk=False,
                                 unk_token=settings.names["unk"], continuing_subword_prefix="",
                                 end_of_word_suffix=WORD_END))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.BPEDecoder(suffix=WORD_END)
    return backend


def moses_of(settings: Settings) -> Moses:
    """Return what prepares the texts of XLM. Raises `InputError` for a language that is not cut into words as there."""
    language, known = settings.text("src_lang", "en"), settings.options.get("lang2id")
    if language in SEGMENTED:
        raise InputError(f"texts in {language!r} were cut into words by {SEGMENTED[language]}, which cannot be "
                         "reproduced exactly", where=settings.where, remedy="choose another language as src_lang")
    if isinstance(known, Mapping) and known and language not in known:
        raise InputError(f"src_lang: the model knows no language {language!r}", where=settings.where,
                         remedy=nearest(language, [*known]))
    scripts(language)
    return Moses(language, settings.flag("do_lowercase_and_remove_accent", True))


def pieces_of(merges: Iterable[tuple[str, str]]) -> dict[str, None]:
    """Return what merges join, and what comes of it, in order."""
    return dict.fromkeys(piece for pair in merges for piece in (*pair, "".join(pair)))


def with_pieces(vocab: Mapping[str, int], pieces: Iterable[str], settings: Settings) -> dict[str, int]:
    """Give pieces that are no tokens ids behind the vocabulary, which are unknown; sets `settings.known`.

    Raises `InputError` for a vocabulary whose ids leave gaps.
    """
    if sorted(vocab.values()) != list(range(len(vocab))):
        raise InputError("its ids leave gaps", where=str(settings.folder / "vocab.json"), remedy="fetch it again")
    others = [piece for piece in pieces if piece not in vocab]
    settings.known = len(vocab) if others else None
    return {**vocab, **{piece: len(vocab) + place for place, piece in enumerate(others)}}


def inner_name(token: str, pieces: Container[str], where: str) -> str:
    """Return what merges call a token of CTRL. Raises `InputError` where two of their pieces have its one id."""
    ends, goes_on = token + WORD_END, token.removesuffix(GOES_ON)
    if not token.endswith(GOES_ON) or not goes_on:
        return ends
    if ends in pieces:
        raise InputError(f"{token!r} is a whole word too, and both have one id", where=where,
                         remedy="give a folder with tokenizer.json")
    return goes_on
