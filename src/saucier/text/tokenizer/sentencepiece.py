"""Backends from SentencePiece models, with each class's normalization and order of ids, also where the ids are in a
`vocab.json` (Marian, M2M-100): pieces without an id there are unknown, tokens that the model never gives are
marked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from saucier.errors import InputError
from saucier.text.tokenizer.legacy_files import TokenizerSettings, add_pieces, read_vocab
from saucier.text.tokenizer.sentencepiece_model import BPE, CONTROL, UNIGRAM, USER_DEFINED, Pieces, read_pieces

SPACE = "▁"
Scores = list[tuple[str, float]]
Order = Callable[[Scores, TokenizerSettings], Scores]
"""Gives the entries of the vocabulary by id, of a model's pieces."""
Normalize = Callable[[TokenizerSettings, Pieces], list[normalizers.Normalizer]]
Build = Callable[[TokenizerSettings], tuple[Backend, list[AddedToken]]]
FILES = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "source.spm", "spm.model")


def find_model_file(folder: Path) -> Path:
    """Return the SentencePiece model of a folder. Raises `InputError` where there is none."""
    found = [folder / name for name in FILES if (folder / name).is_file()]
    if not found:
        raise InputError("has no SentencePiece model", where=str(folder), remedy=f"known names: {', '.join(FILES)}")
    return found[0]


def list_sentinels(settings: TokenizerSettings) -> list[str]:
    """Name T5's sentinels; the last has the lowest id."""
    return [f"<extra_id_{number}>" for number in range(settings.option("extra_ids", 100))]


def list_pegasus_tokens(settings: TokenizerSettings) -> list[str]:
    """Name the mask of whole sentences and the unused tokens."""
    unused = range(2, settings.option("offset", 103))
    return [settings.option("mask_token_sent", "<mask_1>"), *(f"<unk_{number}>" for number in unused)]


def order_pieces(*first: str, replaced: int = 0, last: Sequence[str] = (),
                 names: Callable[[TokenizerSettings], Sequence[str]] = lambda settings: ()) -> Order:
    """Put `first` and the tokens of `names` in the place of the model's `replaced` first pieces, and `last` after them.

    `{unk}` is the token of that role. Placeholders that no text is to have (`<unk_2>`) get a very low score.
    """
    def score(name: str, settings: TokenizerSettings) -> tuple[str, float]:
        return name, -100.0 if name.startswith("<unk") and name != settings.names["unk"] else 0.0

    def order(scores: Scores, settings: TokenizerSettings) -> Scores:
        before = [name.format(**settings.names) for name in first] + [*names(settings)]
        after = [name.format(**settings.names) for name in last]
        return [*(score(name, settings) for name in before), *scores[replaced:], *((name, 0.0) for name in after)]

    return order


def order_sentinels_last(scores: Scores, settings: TokenizerSettings) -> Scores:
    """Put T5's sentinels after the model's pieces, the first one last."""
    return scores + [(name, 0.0) for name in reversed(list_sentinels(settings))]


JOIN_SPACES = normalizers.Replace(Regex(" {2,}"), " ")
PLAIN_QUOTES = (normalizers.Replace("``", '"'), normalizers.Replace("''", '"'))


def normalize_as_model(_: TokenizerSettings, model: Pieces) -> list[normalizers.Normalizer]:
    """Normalize as the model says."""
    if not model.charsmap:
        return []
    try:
        return [normalizers.Precompiled(model.charsmap)]
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"its normalization is broken ({error})", where="SentencePiece model",
                         remedy="fetch it again") from error


def normalize_reformer(settings: TokenizerSettings, model: Pieces) -> list[normalizers.Normalizer]:
    """Normalize as the model says, and join spaces only where it says anything."""
    return [*normalize_as_model(settings, model), JOIN_SPACES] if model.charsmap else []


def normalize_pegasus(settings: TokenizerSettings, model: Pieces) -> list[normalizers.Normalizer]:
    """Normalize as the model says, or else take line feeds for spaces."""
    return normalize_as_model(settings, model) or [normalizers.Replace(Regex(r"\n"), " ")]


def strip_accents(settings: TokenizerSettings, _: Pieces) -> list[normalizers.Normalizer]:
    """Take accents away, unless the folder keeps them."""
    return [] if settings.option("keep_accents", False) else [normalizers.NFKD(), normalizers.StripAccents()]


def lower_case(default: bool) -> Normalize:
    """Lower the case where the folder says so, or else by `default`."""
    return lambda settings, model: [normalizers.Lowercase()] if settings.option("do_lower_case", default) else []


def build_normalizer(steps: Sequence[normalizers.Normalizer | Normalize], settings: TokenizerSettings,
                     model: Pieces) -> normalizers.Normalizer | None:
    """Join the steps of a class, some of which depend on the folder or on the model."""
    found = [one for step in steps
             for one in ([step] if isinstance(step, normalizers.Normalizer) else step(settings, model))]
    return normalizers.Sequence(found) if found else None


def choose_unigram(*normal: normalizers.Normalizer | Normalize, order: Order | None = None, unk: int | None = None,
                   unk_by_name: bool = False, words: bool = True) -> Build:
    """Return the builder of a Unigram tokenizer that takes the steps `normal` before a text is split.

    `order`: the entries by id; None: those of the model. `unk`: the id of the unknown token; None: as the model says.
    `unk_by_name`: look for it by its name first. `words`: cut at every white space first, so that runs of it vanish.
    Source: Kudo 2018, arXiv:1804.10959.
    """
    def build(settings: TokenizerSettings) -> tuple[Backend, list[AddedToken]]:
        path = find_model_file(settings.folder)
        model = read_pieces(path)
        if model.kind != UNIGRAM:
            raise InputError("is a BPE model, where this class has a Unigram one", where=str(path),
                             remedy="give a folder with tokenizer.json")
        scores = order(model.scores, settings) if order else model.scores
        number, named = model.unk if unk is None else unk, (settings.names["unk"], 0.0)
        if unk_by_name and named in scores:
            number = scores.index(named)
        if not 0 <= number < len(scores):
            raise InputError(f"the unknown token has the id {number}, of {len(scores)}", where=str(path),
                             remedy="fetch it again")
        backend = Backend(models.Unigram(scores, unk_id=number))
        backend.normalizer = build_normalizer(normal, settings, model)
        prepend = "always" if settings.option("add_prefix_space", True) else "never"
        space = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=prepend)
        cuts: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.WhitespaceSplit()] if words else []
        if settings.option("split_by_punct", False):
            cuts.append(pre_tokenizers.Punctuation(behavior="isolated"))
        backend.pre_tokenizer = pre_tokenizers.Sequence([*cuts, space])
        backend.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme=prepend)
        return backend, list_own_tokens(model)

    return build


def list_own_tokens(model: Pieces) -> list[AddedToken]:
    """Return the model's own special tokens, and its words that are never split."""
    return [AddedToken(piece.text, normalized=False, special=piece.kind == CONTROL) for piece in model.pieces
            if piece.kind in (CONTROL, USER_DEFINED) and piece.text]


def choose_bpe(*normal: normalizers.Normalizer | Normalize, space: str = "always", split: bool = True) -> Build:
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
        backend.normalizer = build_normalizer(normal, settings, model)
        prefixed = settings.option("add_prefix_space", True)
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
    separate = settings.target and settings.option("separate_vocabs", False)
    vocab = read_vocab(settings.folder / ("target_vocab.json" if separate else "vocab.json"))
    codes = [AddedToken(token, normalized=False, special=False) for token in vocab
             if token.startswith(">>") and token.endswith("<<")]
    return build_renumbered(settings, vocab, plain=[token.content for token in codes]), codes


def build_m2m_100(settings: TokenizerSettings) -> tuple[Backend, list[AddedToken]]:
    """Build M2M-100's tokenizer: its vocabulary, then a token for each language."""
    if settings.option("language_codes", "m2m100") != "m2m100":
        raise InputError("only language_codes m2m100 is known", where=settings.where,
                         remedy="give a folder with tokenizer.json")
    vocab = read_vocab(settings.folder / "vocab.json")
    first = max(vocab.values()) + 1
    languages = {f"__{code}__": first + place for place, code in enumerate(HUNDRED)}
    return build_renumbered(settings, {**vocab, **languages}, plain=[*languages]), []


def build_renumbered(settings: TokenizerSettings, vocab: dict[str, int], plain: list[str]) -> Backend:
    """Build the backend; `plain` are tokens that are in texts as they are. Sets `settings.known`."""
    path = settings.folder / TARGET_PIECES if settings.target else find_model_file(settings.folder)
    model, unk, where = read_pieces(path), settings.names["unk"], settings.folder / "vocab.json"
    scores = dict(model.scores)
    kept = {*plain, *settings.names.values(), *scores}
    names = {token if token in kept else MARK + token: number for token, number in vocab.items()}
    ids = add_pieces(names, scores, where)
    if unk not in vocab:
        raise InputError(f"has no {unk!r}", where=str(where), remedy="fetch it again")
    settings.known = len(vocab)
    if model.kind == UNIGRAM:
        lowest = min(scores.values())  # for tokens that the model never gives
        ordered = sorted(ids, key=lambda token: ids[token])
        backend = Backend(models.Unigram([(token, scores.get(token, lowest)) for token in ordered], unk_id=ids[unk]))
    else:
        order = {piece.text: place for place, piece in enumerate(model.pieces)}
        backend = Backend(models.BPE(ids, find_merges(order), unk_token=unk, fuse_unk=True))
    backend.normalizer = build_normalizer([normalize_as_model, JOIN_SPACES, normalizers.Strip()], settings, model)
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always")
    backend.decoder = decoders.Sequence([decoders.Replace(MARK, ""), decoders.Metaspace(replacement=SPACE)])
    return backend
