"""Backends from SentencePiece models, with the normalization and the order of ids that each class has of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from saucier.errors import InputError
from saucier.text.older.sentencepiece import BPE, CONTROL, UNIGRAM, USER_DEFINED, Pieces, read_pieces
from saucier.text.older.settings import Settings

SPACE = "▁"
Scores = list[tuple[str, float]]
Order = Callable[[Scores, Settings], Scores]
Normal = Callable[[Settings, Pieces], list[normalizers.Normalizer]]
Build = Callable[[Settings], tuple[Backend, list[AddedToken]]]
Unknown = Callable[[Scores, Settings, Pieces], int]
FILES = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "source.spm", "spm.model")


def model_file(folder: Path) -> Path:
    """Return the SentencePiece model of a folder. Raises `InputError` where there is none."""
    found = [folder / name for name in FILES if (folder / name).is_file()]
    if not found:
        raise InputError("has no SentencePiece model", where=str(folder), remedy=f"known names: {', '.join(FILES)}")
    return found[0]


def as_is(scores: Scores, _: Settings) -> Scores:
    """Keep the model's own ids."""
    return scores


def fairseq(*last: str) -> Order:
    """Put `<s> <pad> </s> <unk>` first, in place of the model's first three, and further tokens last."""
    def order(scores: Scores, settings: Settings) -> Scores:
        names = settings.names
        first = [names["bos"], names["pad"], names["eos"], names["unk"]]
        return [*((name, 0.0) for name in first), *scores[3:], *((name.format(**names), 0.0) for name in last)]

    return order


def camembert_order(scores: Scores, settings: Settings) -> Scores:
    """Put CamemBERT's five placeholders before the model's pieces."""
    names = settings.names
    first = [("<s>NOTUSED", 0.0), (names["pad"], 0.0), ("</s>NOTUSED", 0.0), (names["unk"], 0.0),
             ("<unk>NOTUSED", -100.0)]
    return [*first, *scores[1:], (names["mask"], 0.0)]


def sentinels_last(scores: Scores, settings: Settings) -> Scores:
    """Put T5's sentinels behind the model's pieces, the first one last."""
    return scores + [(name, 0.0) for name in reversed(sentinels(settings))]


def sentinels(settings: Settings) -> list[str]:
    """Name T5's sentinels."""
    return [f"<extra_id_{number}>" for number in range(settings.number("extra_ids", 100))]


def pegasus_order(scores: Scores, settings: Settings) -> Scores:
    """Put the masks and the unused tokens of Pegasus before the model's pieces."""
    names, (sentence, *unused) = settings.names, pegasus_tokens(settings)
    first = [(name, 0.0) for name in (names["pad"], names["eos"], names["mask"], sentence)]
    return [*first, *((name, -100.0) for name in unused), *scores[2:]]


def pegasus_tokens(settings: Settings) -> list[str]:
    """Name the mask of whole sentences and the unused tokens."""
    unused = range(2, settings.number("offset", 103))
    return [settings.text("mask_token_sent", "<mask_1>"), *(f"<unk_{number}>" for number in unused)]


def compiled(_: Settings, model: Pieces) -> list[normalizers.Normalizer]:
    """Normalize as the model says."""
    if not model.charsmap:
        return []
    try:
        return [normalizers.Precompiled(model.charsmap)]
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"its normalization is broken ({error})", where="SentencePiece model",
                         remedy="fetch it again") from error


def single_spaces(settings: Settings, model: Pieces) -> list[normalizers.Normalizer]:
    """Normalize as the model says, then join spaces."""
    return [*compiled(settings, model), normalizers.Replace(Regex(" {2,}"), " ")]


def reformer_normal(settings: Settings, model: Pieces) -> list[normalizers.Normalizer]:
    """Normalize as the model says, and join spaces only where it says anything."""
    return single_spaces(settings, model) if model.charsmap else []


def quotes(*, lowercase: bool, accents: bool) -> Normal:
    """Normalize as ALBERT and XLNet do: quotes, accents and case before the model's own. Options: the defaults."""
    def normal(settings: Settings, model: Pieces) -> list[normalizers.Normalizer]:
        steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
        if not (accents and settings.flag("keep_accents", False)):
            steps += [normalizers.NFKD(), normalizers.StripAccents()]
        if settings.flag("do_lower_case", lowercase):
            steps.append(normalizers.Lowercase())
        return steps + compiled(settings, model)

    return normal


def nothing(_: Settings, __: Pieces) -> list[normalizers.Normalizer]:
    """Leave the text as it is."""
    return []


def deberta_normal(settings: Settings, _: Pieces) -> list[normalizers.Normalizer]:
    """Normalize as DeBERTa V2: one space for any, and none at the end."""
    lower: list[normalizers.Normalizer] = [normalizers.Lowercase()] if settings.flag("do_lower_case", False) else []
    return [*lower, normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFC(),
            normalizers.Strip(left=False, right=True)]


def marked_spaces(_: Settings, __: Pieces) -> list[normalizers.Normalizer]:
    """Mark runs of spaces, as Big Bird does."""
    return [normalizers.Replace(Regex(r" {2,}"), SPACE)]


def pegasus_normal(settings: Settings, model: Pieces) -> list[normalizers.Normalizer]:
    """Normalize as the model says, or else take line feeds for spaces; then join spaces."""
    own = compiled(settings, model) or [normalizers.Replace(Regex(r"\n"), " ")]
    return [*own, normalizers.Replace(Regex(" {2,}"), " ")]


def at(place: int) -> Unknown:
    """Say that the unknown token has this id."""
    return lambda scores, settings, model: place


def models_own(_: Scores, __: Settings, model: Pieces) -> int:
    """Take the unknown token that the model names."""
    return model.unk


def named(otherwise: Unknown) -> Unknown:
    """Find the unknown token by its name."""
    def find(scores: Scores, settings: Settings, model: Pieces) -> int:
        wanted = (settings.names["unk"], 0.0)
        return scores.index(wanted) if wanted in scores else otherwise(scores, settings, model)

    return find


def unigram(order: Order = as_is, normal: Normal = compiled, *, unk: Unknown = models_own,
            words: bool = True) -> Build:
    """Return the builder of a Unigram tokenizer. `unk`: where the unknown token stands.

    `words`: cut at every white space first, so that runs of it vanish. Source: Kudo 2018, arXiv:1804.10959.
    """
    def build(settings: Settings) -> tuple[Backend, list[AddedToken]]:
        path = model_file(settings.folder)
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
        backend.pre_tokenizer = pre_tokenizers.Sequence([*cuts(settings, words), space])
        backend.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme=prepend)
        return backend, own_tokens(model)

    return build


def cuts(settings: Settings, words: bool) -> list[pre_tokenizers.PreTokenizer]:
    """Say where a text is cut before the pieces are found."""
    found: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.WhitespaceSplit()] if words else []
    if settings.flag("split_by_punct", False):
        found.append(pre_tokenizers.Punctuation(behavior="isolated"))
    return found


def own_tokens(model: Pieces) -> list[AddedToken]:
    """Return the model's own special tokens, and its words that are never split."""
    return [AddedToken(piece.text, normalized=False, special=piece.kind == CONTROL) for piece in model.pieces
            if piece.kind in (CONTROL, USER_DEFINED) and piece.text]


def merged(normal: Normal = nothing, *, space: str = "always", split: bool = True) -> Build:
    """Return the builder of a BPE tokenizer from a SentencePiece model. `space`: where one is put before the text."""
    def build(settings: Settings) -> tuple[Backend, list[AddedToken]]:
        path = model_file(settings.folder)
        model = read_pieces(path)
        if model.kind != BPE:
            raise InputError("is a Unigram model, where this class has a BPE one", where=str(path),
                             remedy="give a folder with tokenizer.json")
        vocab = {piece.text: number for number, piece in enumerate(model.pieces)}
        unk = settings.names["unk"]
        backend = Backend(models.BPE(vocab, merges_of(vocab), unk_token=unk, fuse_unk=True,
                                     byte_fallback=not split and model.byte_fallback))
        steps = normal(settings, model)
        backend.normalizer = normalizers.Sequence(steps) if steps else None
        prefixed = settings.flag("add_prefix_space", True)
        scheme = space if prefixed else "never"
        backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=scheme, split=split)
        backend.decoder = (decoders.Metaspace(replacement=SPACE, prepend_scheme=scheme) if split
                           else bytes_decoder(prefixed))
        return backend, own_tokens(model)

    return build


def bytes_decoder(prefixed: bool) -> decoders.Decoder:
    """Decode pieces of which some are bytes, and take the first space away where one was put."""
    steps: list[decoders.Decoder] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + ([decoders.Strip(content=" ", left=1)] if prefixed else []))


def merges_of(vocab: dict[str, int]) -> list[tuple[str, str]]:
    """Find the merges that give every piece, the most frequent piece first."""
    found = []
    for piece, number in vocab.items():
        pairs = [(piece[:at], piece[at:]) for at in range(1, len(piece))
                 if piece[:at] in vocab and piece[at:] in vocab]
        pairs.sort(key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
        found += [(number, len(left), len(right), left, right) for left, right in pairs]
    found.sort(key=lambda merge: merge[:3])
    return [(left, right) for *_, left, right in found]
