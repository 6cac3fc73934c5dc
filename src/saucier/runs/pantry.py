"""From text to numbers: read, train the tokenizer, pack. Each is done once for a run, and found when it goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saucier.errors import InputError
from saucier.files import write_json
from saucier.inspection.results import DataCounts, TextCounts
from saucier.inspection.units import bytes_text
from saucier.objectives.material import materials
from saucier.recipes import Recipe
from saucier.runs.folder import RunFolder
from saucier.runs.passport import Digest, file_digest
from saucier.runs.voice import Voice
from saucier.text import material
from saucier.text.config import PairData
from saucier.text.corpus import PairCorpus, TextCorpus, View
from saucier.text.encode import frame as frame_ids
from saucier.text.encode import write_documents, write_pairs
from saucier.text.material import Frame, keeping
from saucier.text.read import Counts, Document
from saucier.text.store import PairStore, TokenStore
from saucier.text.tokenizer import Tokenizer, load_tokenizer
from saucier.text.train_tokenizer import train_tokenizer

Store = TokenStore | PairStore
LEFT_OUT = {"empty": "empty", "duplicates": "seen before", "repaired": "lone surrogates replaced",
            "unreadable": "unreadable modules"}
"""What reading counts beside the documents that it gives out, and how it is said."""


@dataclass(frozen=True, slots=True)
class Pantry:
    """Everything that training and measuring need of the text."""

    corpus: TextCorpus | PairCorpus
    tokenizer: Tokenizer
    train: Store
    held_out: Store
    counts: DataCounts
    digests: dict[str, str]


def open_corpus(recipe: Recipe) -> TextCorpus | PairCorpus:
    """Find the text of a recipe and how it is cut. Raises `InputError` where there is none."""
    seed = recipe.training.seed
    if isinstance(recipe.data, PairData):
        return PairCorpus(recipe.data, seed=seed)
    return TextCorpus(recipe.data, seed=seed)


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
        counts = DataCounts.model_validate(data["counts"])
        for line in packed_lines(counts, recipe):
            voice.say(line)
    return Pantry(corpus, tokenizer, train, held_out, counts, data["digests"])


def source_of(recipe: Recipe) -> str:
    """Say where the text comes from."""
    files = recipe.data.files
    if not files:
        return "Python's own documentation"
    names = [Path(name).name for name in files]
    return ", ".join(names if len(names) <= 3 else [*names[:3], f"and {len(names) - 3} more"])


def made_tokenizer(recipe: Recipe, folder: RunFolder, corpus: TextCorpus | PairCorpus, voice: Voice,
                   start: Path | None) -> Tokenizer:
    """Train the tokenizer, or load the one that this run has, or begins with."""
    if (folder.tokenizer / "tokenizer_config.json").is_file():
        tokenizer, words = load_tokenizer(folder.tokenizer), ", as trained before"
    elif start is not None:
        tokenizer, words = load_tokenizer(start), f", from {start}"
        tokenizer.save(folder.tokenizer)
    else:
        tokenizer, words = train_tokenizer(recipe.tokenizer, corpus.texts), ""
        tokenizer.save(folder.tokenizer)
    voice.say(f"{recipe.tokenizer.kind}, {tokenizer.vocab_size:,} tokens{words}")
    known = recipe.model_for(tokenizer.vocab_size).embed.vocab
    if known < tokenizer.vocab_size:
        raise InputError(f"the text needs {tokenizer.vocab_size} tokens, and the model has vectors for {known}",
                         where="model.vocab",
                         remedy=f"use {tokenizer.vocab_size} or more, or leave it out")
    return tokenizer


def packed(recipe: Recipe, folder: RunFolder, corpus: TextCorpus | PairCorpus,
           tokenizer: Tokenizer) -> tuple[Store, Store, dict[str, Any]]:
    """Write both stores, or open those that this run has. `data.json` is written last: with it they are whole."""
    if not folder.data_file.is_file():
        digests, stores = {}, {}
        parts = {"train": (corpus.train, folder.train_store), "held_out": (corpus.held_out, folder.held_out_store)}
        for name, (part, path) in parts.items():
            stores[name], digests[name] = written(recipe, part, path, tokenizer)
        digests["tokenizer"] = file_digest(folder.tokenizer / "tokenizer.json")
        counts = data_counts(recipe, stores["train"], stores["held_out"], corpus.train.counts)
        write_json(folder.data_file, {"counts": counts.model_dump(mode="json"), "digests": digests})
    kind = PairStore if isinstance(recipe.data, PairData) else TokenStore
    return kind(folder.train_store), kind(folder.held_out_store), read_json(folder.data_file)


def written(recipe: Recipe, part: View[Any], path: Path, tokenizer: Tokenizer) -> tuple[Store, str]:
    """Encode one part of the text into a store; return it with the digest of the text."""
    digest = Digest()
    if isinstance(recipe.data, PairData):
        return write_pairs(path, digest.over(part, "source", "target"), tokenizer), digest.text()
    store = kept(recipe, tokenizer, digest.over(part, "text"), path)
    return store, digest.text()


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


def data_counts(recipe: Recipe, train: Store, held_out: Store, read: Counts) -> DataCounts:
    """Say what was read and what became of it."""
    found = read.as_dict()
    dropped = {words: int(str(found[name])) for name, words in LEFT_OUT.items() if found[name]}
    return DataCounts(source=source_of(recipe), train=side(train), held_out=side(held_out), dropped=dropped)


def side(store: Store) -> TextCounts:
    """Count one part of the text."""
    parts = (store.source, store.target) if isinstance(store, PairStore) else (store,)
    return TextCounts(documents=len(store), tokens=sum(len(part.tokens) for part in parts),
                      bytes=sum(part.bytes for part in parts))


def packed_lines(counts: DataCounts, recipe: Recipe) -> Iterator[str]:
    """Say what there is."""
    unit = "pair" if isinstance(recipe.data, PairData) else "document"
    for name, part in (("training", counts.train), ("held out", counts.held_out)):
        density = f", {part.bytes / part.tokens:.2f} bytes a token" if part.tokens else ""
        units = unit if part.documents == 1 else f"{unit}s"
        yield f"{name}: {part.documents:,} {units}, {bytes_text(part.bytes)}, {part.tokens:,} tokens{density}"
    if counts.dropped:
        yield "left out: " + ", ".join(f"{count:,} {words}" for words, count in counts.dropped.items())


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object of ours."""
    import json

    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return values
