"""From text to numbers: read, train the tokenizer, pack. Each is done once for a run, and found when it goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from saucier.errors import InputError
from saucier.files import read_object, write_json
from saucier.inspection.results import DataCounts, LanguageCounts, TextCounts
from saucier.inspection.units import bytes_text
from saucier.objectives.config import singles
from saucier.objectives.fit import reminders
from saucier.objectives.material import materials
from saucier.recipes import Recipe
from saucier.runs.collocations import counted
from saucier.runs.folder import RunFolder
from saucier.runs.passport import Digest, file_digest
from saucier.runs.told import check_told, direction_counts, with_told
from saucier.runs.voice import Voice
from saucier.runs.warmed import warm_tokenizer
from saucier.text import material
from saucier.text.collocations import Collocations
from saucier.text.config import LanguageData, PairData, Ready, TextData, TokenizerConfig, languages_of
from saucier.text.corpus import PairCorpus, TextCorpus
from saucier.text.encode import frame as frame_ids
from saucier.text.encode import write_documents, write_pairs
from saucier.text.extension import extended
from saucier.text.languages import LanguageCorpus, LanguageStore, sampling_shares, write_language_store
from saucier.text.material import Frame, Pairs, keeping
from saucier.text.read import Document
from saucier.text.split import Part
from saucier.text.store import PairStore, TokenStore
from saucier.text.tokenizer import Tokenizer, load_tokenizer
from saucier.text.tokenizer_files import TARGET
from saucier.text.train_tokenizer import train_tokenizer

Store = TokenStore | PairStore | LanguageStore
Corpus = TextCorpus | PairCorpus | LanguageCorpus
SHOWN = 5
"""New tokens that are told to a person."""
LEFT_OUT = {"empty": "empty", "duplicates": "seen before", "shared": "with a text that is held out",
            "repaired": "lone surrogates replaced", "unreadable": "unreadable modules"}
"""What reading counts beside the documents that it gives out, and how it is said."""


@dataclass(frozen=True, slots=True)
class Pantry:
    """Everything that training and measuring need of the text."""

    corpus: Corpus
    tokenizer: Tokenizer
    train: Store
    held_out: Store
    counts: DataCounts
    digests: dict[str, str]
    collocations: Collocations | None = None
    """The n-grams that PMI masking hides whole."""


def open_corpus(recipe: Recipe) -> Corpus:
    """Find the text of a recipe and how it is cut. Raises `InputError` where there is none."""
    seed = recipe.training.seed
    match recipe.data:
        case PairData() as data:
            whole = any(isinstance(one, Pairs) and one.whole for one in materials(recipe.objective))
            return PairCorpus(data, seed=seed, whole=whole)
        case LanguageData() as data:
            return LanguageCorpus(data, seed=seed)
        case TextData() as data:
            return TextCorpus(data, seed=seed)


def open_store(recipe: Recipe, path: Path) -> Store:
    """Open what `packed` wrote."""
    match recipe.data:
        case PairData():
            return PairStore(path)
        case LanguageData():
            return LanguageStore(path)
        case TextData():
            return TokenStore(path)


def stock(recipe: Recipe, folder: RunFolder, voice: Voice, start: Path | None = None) -> Pantry:
    """Read, train the tokenizer and pack; what a run has already is taken from its folder.

    `start` is a model or run to begin with; its tokenizer is used.
    Raises `InputError` for text that cannot be read, or that is too little for the recipe.
    """
    with voice.stage("read"):
        corpus = open_corpus(recipe)
        voice.say(f"{source_of(recipe)}; held out: {corpus.how}")
    with voice.stage("tokenizer"):
        tokenizer = made_tokenizer(recipe, folder, corpus, voice, start)
    with voice.stage("pack"):
        train, held_out, data = packed(recipe, folder, corpus, tokenizer)
        counts, digests = data_told(data, str(folder.data_file))
        for line in packed_lines(counts, recipe):
            voice.say(line)
    found = counted(recipe, folder, tokenizer, train, voice)
    return Pantry(corpus, tokenizer, train, held_out, counts, digests, found)


def data_told(data: dict[str, Any], where: str) -> tuple[DataCounts, dict[str, str]]:
    """Read what `packed` wrote of the text: counts and digests. Raises `InputError` for a damaged file."""
    try:
        return (DataCounts.model_validate(data.get("counts")),
                TypeAdapter(dict[str, str]).validate_python(data.get("digests")))
    except ValidationError as error:
        raise InputError("does not say what was read", where=where,
                         remedy="remove the folder store; it is made again from the text") from error


def source_of(recipe: Recipe) -> str:
    """Say where the text comes from."""
    files = recipe.data.files
    if not files:
        return "Python's own functions and documentation" if languages_of(recipe.data) else "Python's own documentation"
    told = listed(files)
    made = recipe.data.synthetic if isinstance(recipe.data, PairData) else None
    if made is None:
        return told
    times = "" if made.real == 1 else f", {made.real} times"
    return f"{told}{times}, beside synthetic pairs of {listed(made.files)}"


def listed(files: Iterable[str]) -> str:
    """Name files, the first three of many."""
    names = [Path(name).name for name in files]
    return ", ".join(names if len(names) <= 3 else [*names[:3], f"and {len(names) - 3} more"])


def made_tokenizer(recipe: Recipe, folder: RunFolder, corpus: Corpus, voice: Voice,
                   start: Path | None) -> Tokenizer:
    """Train the tokenizer, or load the one that this run has, or begins with.

    Raises `InputError` for one that the recipe's model or the text's languages do not go with.
    """
    if (folder.tokenizer / "tokenizer_config.json").is_file():
        tokenizer, words = load_tokenizer(folder.tokenizer), ", as trained before"
    else:
        tokenizer, words = new_tokenizer(recipe, corpus, start)
        check_told(tokenizer, corpus)
        tokenizer.save(folder.tokenizer)
    voice.say(f"{recipe.tokenizer.kind}, {tokenizer.vocab_size:,} tokens{words}")
    if recipe.target_tokenizer is not None:
        voice.say(f"of targets: {recipe.target_tokenizer.kind}, {tokenizer.target.vocab_size:,} tokens")
    known = recipe.model_for(tokenizer.vocab_size).input_embed.vocab
    if known < tokenizer.vocab_size:
        raise InputError(f"the text needs {tokenizer.vocab_size} tokens, and the model has vectors for {known}",
                         where="model.vocab",
                         remedy=f"use {tokenizer.vocab_size} or more, or leave it out")
    return tokenizer


def new_tokenizer(recipe: Recipe, corpus: Corpus, start: Path | None) -> tuple[Tokenizer, str]:
    """Return the tokenizer of a run that begins, with that of targets beside it, and words that say whose it is."""
    if recipe.warm_start is not None:
        return warm_tokenizer(recipe.warm_start), ", as the model has it"
    if recipe.target_tokenizer is not None and isinstance(corpus, PairCorpus):
        known = None if start is None else load_tokenizer(start)
        source = side_tokenizer(recipe.tokenizer, known, corpus.sources)
        return source.beside(side_tokenizer(recipe.target_tokenizer, known and known.target, corpus.targets)), ""
    return (train_tokenizer(with_told(recipe.tokenizer, corpus), corpus.texts), "") if start is None else \
        taken_tokenizer(recipe, corpus, start)


def side_tokenizer(config: TokenizerConfig, known: Tokenizer | None, texts: Iterable[str]) -> Tokenizer:
    """Return the tokenizer of one side: that of the model to begin with, where it is ready, or one of the side's texts.
    """
    return known if known is not None and isinstance(config, Ready) else train_tokenizer(config, texts)


def taken_tokenizer(recipe: Recipe, corpus: Corpus, start: Path) -> tuple[Tokenizer, str]:
    """Load the tokenizer to begin with, and teach it words of the text where the recipe says so."""
    tokenizer = load_tokenizer(start)
    extend = recipe.tokenizer.extend if isinstance(recipe.tokenizer, Ready) else 0
    if not extend:
        return tokenizer, f", from {start}"
    more = extended(tokenizer, corpus.texts, extend)
    shown = [more.id_to_token(number) for number in range(more.vocab_size - extend, more.vocab_size)][:SHOWN]
    return more, f", from {start} and {extend:,} more: {', '.join(token for token in shown if token)}, ..."


def packed(recipe: Recipe, folder: RunFolder, corpus: Corpus,
           tokenizer: Tokenizer) -> tuple[Store, Store, dict[str, Any]]:
    """Write both stores, or open those that this run has. `data.json` is written last: with it they are whole."""
    if not folder.data_file.is_file():
        digests: dict[str, str] = {}
        stores: dict[str, Store] = {}
        parts: dict[Part, Path] = {"train": folder.train_store, "held_out": folder.held_out_store}
        for name, path in parts.items():
            stores[name], digests[name] = written(recipe, corpus, name, path, tokenizer)
        digests["tokenizer"] = file_digest(folder.tokenizer / "tokenizer.json")
        if tokenizer.has_own_target:
            digests["target_tokenizer"] = file_digest(folder.tokenizer / TARGET / "tokenizer.json")
        counts = data_counts(recipe, stores["train"], stores["held_out"], corpus, tokenizer=tokenizer)
        write_json(folder.data_file, {"counts": counts.model_dump(mode="json"), "digests": digests})
    train, held_out = (open_store(recipe, path) for path in (folder.train_store, folder.held_out_store))
    return train, held_out, read_object(folder.data_file)


def written(recipe: Recipe, corpus: Corpus, part: Part, path: Path, tokenizer: Tokenizer) -> tuple[Store, str]:
    """Encode one part of the text into a store; return it with the digest of the text."""
    digest = Digest()

    def of_text(text: TextCorpus, path: Path) -> TokenStore:
        return kept(recipe, tokenizer, digest.over(text.part(part), "text"), path)

    match corpus:
        case PairCorpus():
            fields = ("source", "target", *(("way",) if corpus.data.languages else ()))
            return write_pairs(path, digest.over(corpus.part(part), *fields), tokenizer), digest.text()
        case LanguageCorpus():
            return write_language_store(path, corpus, of_text), digest.text()
        case TextCorpus():
            return of_text(corpus, path), digest.text()


def kept(recipe: Recipe, tokenizer: Tokenizer, documents: Iterable[Document], path: Path) -> TokenStore:
    """Encode documents into a store as the recipe's objective wants them."""
    how = keeping(materials(recipe.objective))
    begin, end = ends(how.frame, tokenizer)
    return write_documents(path, documents, tokenizer, begin=begin, end=end, sentences=how.sentences)


def ends(frame: Frame, tokenizer: Tokenizer) -> tuple[int | None, int | None]:
    """Return the ids around a document."""
    match frame:
        case material.Document():
            return frame_ids(tokenizer)
        case material.Segment():
            return tokenizer.cls_id, tokenizer.sep_id
        case material.Bare():
            return None, None


def data_counts(recipe: Recipe, train: Store, held_out: Store, corpus: Corpus, *, tokenizer: Tokenizer) -> DataCounts:
    """Say what was read and what became of it."""
    read = [one.train.counts.as_dict() for one in texts_of(corpus)]
    dropped = {words: sum(int(str(one[name])) for one in read) for name, words in LEFT_OUT.items()}
    return DataCounts(source=source_of(recipe), train=side(train), held_out=side(held_out),
                      dropped={words: count for words, count in dropped.items() if count},
                      languages=language_counts(recipe, train, held_out),
                      directions=direction_counts(recipe, train, held_out, tokenizer))


def texts_of(corpus: Corpus) -> tuple[TextCorpus | PairCorpus, ...]:
    """Return what a corpus is read as: itself, or its languages."""
    return tuple(corpus.members.values()) if isinstance(corpus, LanguageCorpus) else (corpus,)


def held_out_items(corpus: Corpus) -> Iterable[Any]:
    """Return the held-out documents or pairs; of several languages, in turns."""
    return corpus.documents("held_out") if isinstance(corpus, LanguageCorpus) else corpus.held_out


def side(store: Store) -> TextCounts:
    """Count one part of the text."""
    parts = stores_of(store)
    return TextCounts(documents=len(store), tokens=sum(len(part.tokens) for part in parts),
                      bytes=sum(part.bytes for part in parts))


def stores_of(store: Store) -> tuple[TokenStore, ...]:
    """Return the stores of tokens that a store is made of."""
    match store:
        case PairStore(source=source, target=target):
            return source, target
        case LanguageStore(members=members):
            return tuple(members.values())
        case TokenStore():
            return (store,)


def language_counts(recipe: Recipe, train: Store, held_out: Store) -> tuple[LanguageCounts, ...]:
    """Count each language, and say how often it comes."""
    if not (isinstance(recipe.data, LanguageData) and isinstance(train, LanguageStore)
            and isinstance(held_out, LanguageStore)):
        return ()
    drawn = sampling_shares(train.sizes, recipe.data.alpha)
    return tuple(LanguageCounts(name=name, train=side(one), held_out=side(held_out.members[name]), drawn=float(share))
                 for (name, one), share in zip(train.members.items(), drawn, strict=True))


def packed_lines(counts: DataCounts, recipe: Recipe) -> Iterator[str]:
    """Say what there is."""
    unit = "pair" if isinstance(recipe.data, PairData) else "document"
    for name, part in (("training", counts.train), ("held out", counts.held_out)):
        density = f", {part.bytes / part.tokens:.2f} bytes a token" if part.tokens else ""
        units = unit if part.documents == 1 else f"{unit}s"
        yield f"{name}: {part.documents:,} {units}, {bytes_text(part.bytes)}, {part.tokens:,} tokens{density}"
    yield from (line for one in singles(recipe.objective) for line in reminders(one, recipe.model))
    for each, kind in ((counts.languages, "documents"), (counts.directions, "pairs")):
        for one in each:
            yield f"{one.name}: {one.train.documents:,} {kind}, {one.train.tokens:,} tokens, {one.words(counts)}"
    if counts.dropped:
        yield "left out: " + ", ".join(f"{count:,} {words}" for words, count in counts.dropped.items())
