"""The data of a pretraining job: read, tokenizer, tokens on disk, n-grams for PMI masking.

Each is done once for a run, and found when it is resumed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from saucier.errors import InputError
from saucier.files import read_object, write_json
from saucier.jobs.pretraining.initialization import add_target_tokens
from saucier.jobs.run.console import Console
from saucier.jobs.run.language_pairs import check_language_tokens, count_directions, with_language_tokens
from saucier.jobs.run.passport import add_to_digest, file_digest
from saucier.objectives import config as c
from saucier.objectives.config import find_pmi_masking, list_single_objectives
from saucier.opened import RunFolder
from saucier.plain import format_bytes
from saucier.recipes import Recipe
from saucier.report.results import DataCounts, LanguageCounts, TextCounts
from saucier.text.collocations import Collocation, Collocations, find_collocations
from saucier.text.config import LanguageData, PairData, Ready, TextData, TokenizerConfig, list_languages
from saucier.text.languages import LanguageCorpus, LanguageStore, compute_sampling_shares, write_language_store
from saucier.text.reading.corpus import PairCorpus, Part, TextCorpus
from saucier.text.reading.documents import Document
from saucier.text.reading.sources import find_sources
from saucier.text.reading.tables import describe_form
from saucier.text.rows.store import PairStore, TokenStore, get_document_frame, write_documents, write_pairs
from saucier.text.tokenizer.folder import TARGET
from saucier.text.tokenizer.tokenizer import Tokenizer, load_tokenizer
from saucier.text.tokenizer.training import train_tokenizer
from saucier.text.tokenizer.vocabulary import extend_tokenizer
from saucier.text.tokenizer.word_boundaries import parse_marks

COLLOCATIONS_FILE = "collocations.json"


def prepare_collocations(recipe: Recipe, folder: RunFolder, tokenizer: Tokenizer, store: object,
                         console: Console) -> Collocations | None:
    """Count the n-grams that the recipe's objective hides whole, or read what this run has; None where it needs none.

    Raises `InputError` where none is frequent enough, and where the tokenizer does not show words.
    """
    how = find_pmi_masking(recipe.objective)
    if how is None or not isinstance(store, TokenStore):
        return None
    path = folder.path / COLLOCATIONS_FILE
    with console.stage("n-grams"):
        if not path.is_file():
            write_json(path, {"n_grams": [{"text": tokenizer.decode(one.ids), "ids": list(one.ids), "words": one.words,
                                           "count": one.count, "pmi": round(one.measure, 4)}
                                          for one in count_collocations(how, tokenizer, store).kept]})
        found = read_collocations(path)
        lengths = [one.words for one in found.kept]
        each = ", ".join(f"{lengths.count(words):,} of {words} words" for words in sorted(set(lengths)))
        console.say(f"{len(lengths):,} that keep company: {each}")
    return found


def count_collocations(how: c.PMIMasking, tokenizer: Tokenizer, store: TokenStore) -> Collocations:
    """Count over the whole store."""
    special = np.array(tokenizer.special_ids, dtype=np.int64)
    if not tokenizer.word_marks:
        raise InputError("the tokenizer's tokens do not tell where words begin, which pmi needs",
                         where="tokenizer.kind", remedy="use wordpiece, byte_bpe, bpe or unigram")
    found = tuple(find_collocations(store, special, parse_marks(tokenizer.word_marks),
                                    longest=how.longest, least=how.least, each=how.each))
    if not found:
        raise InputError(f"no n-gram of this text occurs {how.least} times and more often than its parts would",
                         where="objective.choice.least", remedy="lower it, or give more text")
    return Collocations(found)


def read_collocations(path: Path) -> Collocations:
    """Read them back. Raises `InputError` for a file that is missing or broken."""
    try:
        return Collocations(tuple(Collocation(tuple(one["ids"]), one["words"], one["count"], one["pmi"])
                                  for one in read_object(path)["n_grams"]))
    except (KeyError, TypeError) as error:
        raise InputError("does not hold the n-grams that PMI masking needs", where=str(path),
                         remedy="delete it and start the run again: they are counted anew") from error


Store = TokenStore | PairStore | LanguageStore
Corpus = TextCorpus | PairCorpus | LanguageCorpus
STORES: dict[type, Callable[[Path], Store]] = {PairData: PairStore, LanguageData: LanguageStore, TextData: TokenStore}
"""How each kind of data is stored on the disk."""
SHOWN_TOKENS = 5
"""New tokens that are shown to a person."""
DROPPED_REASONS = {"empty": "empty", "duplicates": "seen before", "shared": "with a text that is held out",
                   "repaired": "lone surrogates replaced", "unreadable": "unreadable modules"}
"""What reading counts in addition to the documents that it gives out, and how it is printed."""


@dataclass(frozen=True, slots=True)
class PreparedData:
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
            whole = any(one.rows_read.whole for one in list_single_objectives(recipe.objective))
            return PairCorpus(data, seed=seed, whole=whole)
        case LanguageData() as data:
            return LanguageCorpus(data, seed=seed)
        case TextData() as data:
            return TextCorpus(data, seed=seed)


def open_store(recipe: Recipe, path: Path) -> Store:
    """Open what `packed` wrote."""
    return STORES[type(recipe.data)](path)


def prepare_data(recipe: Recipe, folder: RunFolder, console: Console, start: Path | None = None) -> PreparedData:
    """Read, train the tokenizer and pack; what a run has already is taken from its folder.

    `start` is a model or run to begin with; its tokenizer is used.
    Raises `InputError` for text that cannot be read, or that is too little for the recipe.
    """
    with console.stage("read"):
        corpus = open_corpus(recipe)
        console.say(f"{describe_source(recipe)}; held out: {corpus.how}", *describe_forms(recipe))
    with console.stage("tokenizer"):
        tokenizer = load_or_train_tokenizer(recipe, folder, corpus, console, start)
    with console.stage("pack"):
        if not folder.data_file.is_file():
            write_stores(recipe, folder, corpus, tokenizer)
        train, held_out = open_stores(recipe, folder)
        data = read_object(folder.data_file)
        try:
            counts = DataCounts.model_validate(data.get("counts"))
            digests = TypeAdapter(dict[str, str]).validate_python(data.get("digests"))
        except ValidationError as error:
            raise InputError("does not say what was read", where=str(folder.data_file),
                             remedy="remove the folder store; it is made again from the text") from error
        console.say(*describe_data(counts, recipe))
    return PreparedData(corpus, tokenizer, train, held_out, counts, digests,
                        prepare_collocations(recipe, folder, tokenizer, train, console))


def describe_source(recipe: Recipe) -> str:
    """Say where the text comes from."""
    files = recipe.data.files
    if not files:
        return f"Python's own {'functions and ' if list_languages(recipe.data) else ''}documentation"
    named = list_file_names(files)
    made = recipe.data.synthetic if isinstance(recipe.data, PairData) else None
    if made is None:
        return named
    times = "" if made.real == 1 else f", {made.real} times"
    return f"{named}{times}, beside synthetic pairs of {list_file_names(made.files)}"


def describe_forms(recipe: Recipe) -> list[str]:
    """Say how files are read that are not UTF-8, or not divided as their names promise."""
    held_out = getattr(recipe.data.held_out, "files", ())
    found = map(describe_form, find_sources([*recipe.data.files, *held_out], recipe.data.read_options))
    return [line for line in found if line]


def list_file_names(files: Iterable[str]) -> str:
    """Name files, the first three of many."""
    names = [Path(name).name for name in files]
    return ", ".join(names if len(names) <= 3 else [*names[:3], f"and {len(names) - 3} more"])


def load_or_train_tokenizer(recipe: Recipe, folder: RunFolder, corpus: Corpus, console: Console,
                            start: Path | None) -> Tokenizer:
    """Train the tokenizer, or load the one that this run has, or begins with.

    Raises `InputError` for one that the recipe's model or the text's languages do not go with.
    """
    if (folder.tokenizer / "tokenizer_config.json").is_file():
        tokenizer, words = load_tokenizer(folder.tokenizer), ", as trained before"
    else:
        tokenizer, words = make_tokenizer(recipe, corpus, start)
        check_language_tokens(tokenizer, corpus)
        tokenizer.save(folder.tokenizer)
    console.say(f"{recipe.tokenizer.kind}, {tokenizer.vocab_size:,} tokens{words}")
    if recipe.target_tokenizer is not None:
        console.say(f"of targets: {recipe.target_tokenizer.kind}, {tokenizer.target.vocab_size:,} tokens")
    known = recipe.model_for(tokenizer.vocab_size).input_embed.vocab
    if known < tokenizer.vocab_size:
        raise InputError(f"the text needs {tokenizer.vocab_size} tokens, and the model has vectors for {known}",
                         where="model.vocab",
                         remedy=f"use {tokenizer.vocab_size} or more, or leave it out")
    return tokenizer


def make_tokenizer(recipe: Recipe, corpus: Corpus, start: Path | None) -> tuple[Tokenizer, str]:
    """Return the tokenizer of a run that begins, with that of targets, and words that say whose it is."""
    if recipe.warm_start is not None:
        first, other = load_tokenizer(recipe.warm_start.tokenizer), recipe.warm_start.target_tokenizer
        return add_target_tokens(first) if other is None else \
            first.with_target(add_target_tokens(load_tokenizer(other))), ", as the model has it"
    if recipe.target_tokenizer is not None and isinstance(corpus, PairCorpus):
        known = None if start is None else load_tokenizer(start)
        source = make_side_tokenizer(recipe.tokenizer, known, corpus.sources)
        target = make_side_tokenizer(recipe.target_tokenizer, known and known.target, corpus.targets)
        return source.with_target(target), ""
    return (train_tokenizer(with_language_tokens(recipe.tokenizer, corpus), corpus.texts), "") if start is None else \
        extend_start_tokenizer(recipe, corpus, start)


def make_side_tokenizer(config: TokenizerConfig, known: Tokenizer | None, texts: Iterable[str]) -> Tokenizer:
    """Return the tokenizer of one side: that of the model to begin with, where it is ready, or one of the side's texts.
    """
    return known if known is not None and isinstance(config, Ready) else train_tokenizer(config, texts)


def extend_start_tokenizer(recipe: Recipe, corpus: Corpus, start: Path) -> tuple[Tokenizer, str]:
    """Load the tokenizer to begin with, and teach it words of the text where the recipe says so."""
    tokenizer = load_tokenizer(start)
    extend = recipe.tokenizer.extend if isinstance(recipe.tokenizer, Ready) else 0
    if not extend:
        return tokenizer, f", from {start}"
    more = extend_tokenizer(tokenizer, corpus.texts, extend)
    shown = [more.id_to_token(number) for number in range(more.vocab_size - extend, more.vocab_size)][:SHOWN_TOKENS]
    return more, f", from {start} and {extend:,} more: {', '.join(token for token in shown if token)}, ..."


def open_stores(recipe: Recipe, folder: RunFolder) -> tuple[Store, Store]:
    """Open what a run learns from, and what it is measured with."""
    return open_store(recipe, folder.train_store), open_store(recipe, folder.held_out_store)


def write_stores(recipe: Recipe, folder: RunFolder, corpus: Corpus, tokenizer: Tokenizer) -> None:
    """Write both stores. `data.json` is written last: with it they are whole."""
    parts: dict[Part, Path] = {"train": folder.train_store, "held_out": folder.held_out_store}
    digests: dict[str, str] = {part: write_part_store(recipe, corpus, part, path, tokenizer)
                               for part, path in parts.items()}
    digests["tokenizer"] = file_digest(folder.tokenizer / "tokenizer.json")
    if tokenizer.has_own_target:
        digests["target_tokenizer"] = file_digest(folder.tokenizer / TARGET / "tokenizer.json")
    counts = count_data(recipe, *open_stores(recipe, folder), corpus, tokenizer=tokenizer)
    write_json(folder.data_file, {"counts": counts.model_dump(mode="json"), "digests": digests})


def write_part_store(recipe: Recipe, corpus: Corpus, part: Part, path: Path, tokenizer: Tokenizer) -> str:
    """Encode one part of the text into a store; return the digest of the text."""
    digest = hashlib.sha256()

    def of_text(text: TextCorpus, path: Path) -> TokenStore:
        return write_token_store(recipe, tokenizer, add_to_digest(digest.update, text.part(part), "text"), path)

    match corpus:
        case PairCorpus():
            fields = ("source", "target", *(("direction",) if corpus.data.languages else ()))
            write_pairs(path, add_to_digest(digest.update, corpus.part(part), *fields), tokenizer)
        case LanguageCorpus():
            write_language_store(path, corpus, of_text)
        case TextCorpus():
            of_text(corpus, path)
    return digest.hexdigest()


def write_token_store(recipe: Recipe, tokenizer: Tokenizer, documents: Iterable[Document], path: Path) -> TokenStore:
    """Encode documents into a store as the recipe's objective wants them."""
    requests = [one.rows_read for one in list_single_objectives(recipe.objective)]
    begin, end = {"document": get_document_frame(tokenizer), "segment": (tokenizer.cls_id, tokenizer.sep_id),
                  "none": (None, None)}[requests[0].frame]  # of a mixture, that of the first part
    return write_documents(path, documents, tokenizer, begin=begin, end=end,
                           sentences=any(one.needs_sentences for one in requests))


def count_data(recipe: Recipe, train: Store, held_out: Store, corpus: Corpus, *, tokenizer: Tokenizer) -> DataCounts:
    """Say what was read and what became of it."""
    corpora = tuple(corpus.members.values()) if isinstance(corpus, LanguageCorpus) else (corpus,)
    dropped = {words: sum(getattr(one.train.counts, name) for one in corpora)
               for name, words in DROPPED_REASONS.items()}
    return DataCounts(source=describe_source(recipe), train=count_store(train), held_out=count_store(held_out),
                      dropped={words: count for words, count in dropped.items() if count},
                      languages=count_languages(recipe, train, held_out),
                      directions=count_directions(recipe, train, held_out, tokenizer))


def iterate_held_out(corpus: Corpus) -> Iterable[Any]:
    """Return the held-out documents or pairs; of several languages, in turns."""
    return corpus.documents("held_out") if isinstance(corpus, LanguageCorpus) else corpus.held_out


def count_store(store: Store) -> TextCounts:
    """Count one part of the text."""
    match store:
        case PairStore(source=source, target=target):
            parts: tuple[TokenStore, ...] = (source, target)
        case LanguageStore(members=members):
            parts = tuple(members.values())
        case TokenStore():
            parts = (store,)
    return TextCounts(documents=len(store), tokens=sum(len(part.tokens) for part in parts),
                      bytes=sum(part.bytes for part in parts))


def count_languages(recipe: Recipe, train: Store, held_out: Store) -> tuple[LanguageCounts, ...]:
    """Count each language, and say how often it comes."""
    if not (isinstance(recipe.data, LanguageData) and isinstance(train, LanguageStore)
            and isinstance(held_out, LanguageStore)):
        return ()
    drawn = compute_sampling_shares(train.sizes, recipe.data.alpha)
    return tuple(LanguageCounts(name=name, train=count_store(one), held_out=count_store(held_out.members[name]),
                                drawn=float(share)) for (name, one), share in zip(train.members.items(), drawn,
                                                                                  strict=True))


def describe_data(counts: DataCounts, recipe: Recipe) -> Iterator[str]:
    """Say what there is."""
    unit = "pair" if isinstance(recipe.data, PairData) else "document"
    for name, part in (("training", counts.train), ("held out", counts.held_out)):
        density = f", {part.bytes / part.tokens:.2f} bytes a token" if part.tokens else ""
        units = unit if part.documents == 1 else f"{unit}s"
        yield f"{name}: {part.documents:,} {units}, {format_bytes(part.bytes)}, {part.tokens:,} tokens{density}"
    yield from (line for one in list_single_objectives(recipe.objective) for line in one.list_reminders(recipe.model))
    for each, kind in ((counts.languages, "documents"), (counts.directions, "pairs")):
        for one in each:
            yield f"{one.name}: {one.train.documents:,} {kind}, {one.train.tokens:,} tokens, {one.words(counts)}"
    if counts.dropped:
        yield "left out: " + ", ".join(f"{count:,} {words}" for words, count in counts.dropped.items())
