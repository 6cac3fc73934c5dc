"""Tagging: one tag for each word. A word's tag is learned and read at its first piece, in one window.

Letters: L length, C tags.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from tokenizers import Encoding as Pieces

from saucier import config as c
from saucier.errors import InputError
from saucier.objectives.token_ids import IGNORED
from saucier.tasks.definitions import Tagging
from saucier.tasks.encoded_examples import (
    EncodedExamples,
    Frame,
    Ragged,
    TokenCharacters,
    Truncation,
    assign_owners,
    split_windows,
)
from saucier.tasks.examples import (
    Cells,
    Column,
    Example,
    Place,
    Tally,
    number_labels,
    read_cells,
    read_each,
    requested_columns,
)
from saucier.tasks.file_formats import read_sentences, take_column
from saucier.tasks.tag_schemes import OUTSIDE, Tags, all_tags, are_entities, read_lenient, rewrite_tags, scheme_remarks
from saucier.tasks.task import NEW_HEAD_DROPOUT, Answer, Encoding, Json, Predictor, RequiredHead, Task
from saucier.text.reading.sources import SourceFile
from saucier.text.rows.batch import Ints
from saucier.text.tokenizer.model_inputs import EncodedRow
from saucier.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from saucier.objectives.base import Objective

WORDS = Column("words", ("tokens", "words", "text", "sentence"))
TAGS = Column("tags", ("tags", "ner_tags", "pos_tags", "upos", "labels", "label"))
COLUMN_FILES = ("txt", "tsv")
"""Formats that are read as column files."""
NO_WORD = -1
"""The word of a place that tells no tag."""


@dataclass(frozen=True, slots=True)
class Sentence(Example):
    """The words of a sentence, and their tags where they are known."""

    words: tuple[str, ...]
    tags: Tags | None

    @property
    def texts(self) -> tuple[str, ...]:
        """The words."""
        return (" ".join(self.words),)


@dataclass(frozen=True, slots=True)
class TaggingTask(Task):
    """A tag for each word."""

    config: Tagging
    scored_as = "tags"

    @property
    def objective(self) -> Objective:
        """Cross-entropy at the first piece of each word."""
        from saucier.objectives.labels import ClassLabels

        return ClassLabels()

    def read(self, source: SourceFile, tally: Tally, *, labelled: bool) -> Iterator[Sentence]:
        """Yield the sentences of a column file or a table, with their tags in the task's scheme."""
        reader = read_column_sentences if source.format in COLUMN_FILES else read_table_sentences
        found = list(reader(source, self.config, tally, labelled=labelled))
        known = [one.tags for one in found if one.tags is not None]
        if not are_entities(tag for tags in known for tag in tags):
            yield from found
            return
        tally.update(scheme_remarks(known, self.config.scheme))
        yield from (replace(one, tags=rewrite_tags(one.tags or (), self.config.scheme)) for one in found)

    def from_texts(self, texts: tuple[str, ...], example: Example) -> Sentence:
        """The words of a text, between spaces."""
        return check_sentence(Sentence(example.place, example.name, tuple(" ".join(texts).split()), None))

    def fit_labels(self, examples: Sequence[Sentence]) -> Self:
        """Take the tags from the file, unless they are given; of entities every tag that the scheme has for a type."""
        found = sorted({tag for one in examples for tag in one.tags or ()})
        if len(found) < 2:
            raise InputError(f"has one tag only, {found[0]!r}" if found else "has no tags",
                             where=examples[0].place.file, remedy="give sentences with two tags or more")
        tags = all_tags(found, self.config.scheme) if are_entities(found) else tuple(found)
        return self.with_config(labels=self.config.labels or tags)

    @property
    def required_head(self) -> RequiredHead:
        """A logit for each tag at each token."""
        head = c.TokenHead(classes=len(self.config.labels), dropout=NEW_HEAD_DROPOUT)
        return RequiredHead("token_classification", head, self.config.labels)

    def encode(self, examples: Sequence[Sentence], encoding: Encoding) -> EncodedExamples:
        """Encode sentences; what is too long is read in windows, and each word tagged in one of them."""
        tokenizer, known = encoding.tokenizer, bool(examples) and all(one.tags is not None for one in examples)
        frame = Frame.of(tokenizer, examples[0].words[0], 1)
        room = frame.room(encoding.length, what="for a word", where=str(examples[0].place),
                          remedy="give more with training.length")
        windows = [(number, row, words) for number, found in enumerate(encode_words(examples, tokenizer))
                   for row, words in frame_windows(found, frame, room)]
        sequences = encoding.inputs([row for _, row, _ in windows])
        if known:
            numbers = [number_labels(one.tags or (), self.config.labels).tolist() for one in examples]
            sequences["labels"] = Ragged.of([[IGNORED if word == NO_WORD else numbers[number][word] for word in words]
                                             for number, _, words in windows], IGNORED)
        owners = np.array([number for number, _, _ in windows])
        words = Ragged.of([numbers for _, _, numbers in windows], NO_WORD)
        return EncodedExamples(sequences, {}, owners, Truncation(what="tags"), {"words": words},
                               characters=token_characters(examples, owners, sequences["input_ids"], words, encoding))

    def predict(self, predictor: Predictor, examples: Sequence[Sentence], encoded: EncodedExamples) -> list[Answer]:
        """The likeliest tag of each word; entities are written in the scheme."""
        labels = self.config.labels
        said = [[0] * len(one.words) for one in examples]
        sure = [1.0] * len(examples)
        for units, _, output in predictor.outputs(encoded):
            assert output.logits is not None, "the head gives logits"
            chances, tags = output.logits.float().softmax(-1).max(-1)
            for unit, row_chances, row in zip(units.tolist(), chances.tolist(), tags.tolist(), strict=True):
                number = int(encoded.example_numbers[unit])
                for place, word in enumerate(encoded.position_data["words"].row(unit).tolist()):
                    if word != NO_WORD:
                        said[number][word] = row[place]
                        sure[number] = min(sure[number], row_chances[place])
        entities = are_entities(labels)
        tagged = [tuple(labels[tag] for tag in tags) for tags in said]
        return [Answer(list(rewrite_tags(tags, self.config.scheme) if entities else tags), least)
                for tags, least in zip(tagged, sure, strict=True)]

    def gold(self, example: Sentence) -> Json:
        """The tags."""
        return None if example.tags is None else list(example.tags)

    def classes(self, example: Sentence) -> Sequence[str]:
        """The tags."""
        return example.tags or ()

    def format_prediction(self, example: Sentence, said: Any) -> str:
        """The entities, each with its words; of other tags each with its word."""
        if are_entities(self.config.labels):
            found = [f"{one.type}: {' '.join(example.words[one.first:one.last + 1])}" for one in read_lenient(said)]
            return "; ".join(found) or "nothing"
        return " ".join(f"{word}/{tag}" for word, tag in zip(example.words, said, strict=True))

    def describe_target(self, target: int, tokenizer: Tokenizer) -> str:
        """The tag."""
        return self.config.labels[target]


def read_column_sentences(source: SourceFile, config: Tagging, tally: Tally, *, labelled: bool) -> Iterator[Sentence]:
    """Yield the sentences of a column file."""
    def read(sentence: tuple[int, list[list[str]]]) -> Sentence:
        line, rows = sentence
        place = Place(source.name, line)
        tags = tuple(take_column(rows, config.column, str(place))) if labelled else None
        return check_sentence(Sentence(place, place.name, tuple(row[0].strip() for row in rows), tags))

    return read_each(read_sentences(source, tally), read, source)


def read_table_sentences(source: SourceFile, config: Tagging, tally: Tally, *, labelled: bool) -> Iterator[Sentence]:
    """Yield the sentences of a table."""
    def read(row: Cells) -> Sentence:
        return check_sentence(Sentence(row.example.place, row.example.name, read_list(row, "words"),
                                       read_list(row, "tags") if labelled else None))

    requested = requested_columns(config, (WORDS, TAGS))
    return read_each(read_cells(source, (WORDS, TAGS) if labelled else (WORDS,), requested), read, source)


def token_characters(examples: Sequence[Sentence], owners: Ints, ids: Ragged, words: Ragged,
                     encoding: Encoding) -> TokenCharacters | None:
    """Spell what a model reads by its characters; words that its vocabulary has not are spelled as they are."""
    network, tokenizer = encoding.body.embed.characters, encoding.tokenizer
    if network is None:
        return None
    sentences = np.repeat(owners, ids.lengths)
    strange = np.flatnonzero((ids.values == tokenizer.unk_id) & (words.values != NO_WORD)) \
        if tokenizer.unk_id is not None else ()
    unknown = {int(place): examples[sentences[place]].words[words.values[place]] for place in strange}
    return TokenCharacters.of(ids, tokenizer, longest=network.longest, unknown=unknown)


def check_sentence(sentence: Sentence) -> Sentence:
    """Return a sentence. Raises `InputError` for one without words, and for tags and words of unequal number."""
    if not sentence.words or not all(word.strip() for word in sentence.words):
        raise InputError("has an empty word" if sentence.words else "has no words", where=str(sentence.place),
                         remedy="fill it, or leave the row out")
    if sentence.tags is not None and len(sentence.tags) != len(sentence.words):
        raise InputError(f"{len(sentence.tags)} tags for {len(sentence.words)} words", where=str(sentence.place),
                         remedy="give one tag for each word, or leave the row out")
    if sentence.tags is not None and not all(sentence.tags):
        word = sentence.words[sentence.tags.index("")]
        raise InputError(f"the word {word!r} has no tag", where=str(sentence.place),
                         remedy=f"fill it ({OUTSIDE} is the usual tag of words outside)")
    return sentence


def read_list(row: Cells, role: str) -> tuple[str, ...]:
    """Return a list of words, or the words of a text. Raises `InputError` for anything else."""
    value: Any = row.values.get(role)
    if isinstance(value, str):
        return tuple(value.split())
    if not isinstance(value, list) or not all(isinstance(one, str | int) for one in value):
        raise row.fault(role, f"the {role} are no list of words",
                        'write them as ["a", "list"], or with spaces between')
    return tuple(str(one) for one in value)


def encode_words(examples: Sequence[Sentence], tokenizer: Tokenizer) -> list[Pieces]:
    """Encode words; one that gives no token (a control character, say) is read as the unknown one, with a warning.

    Raises `InputError` for such a word where the tokenizer has no unknown token.
    """
    found, count = tokenizer.word_encodings([one.words for one in examples]), 0
    for number, (one, pieces) in enumerate(zip(examples, found, strict=True)):
        silent = sorted(set(range(len(one.words))) - set(pieces.word_ids))
        if silent:
            unknown = tokenizer.names.get("unk")
            if unknown is None:
                raise InputError(f"the tokenizer makes no token of the word {one.words[silent[0]]!r}",
                                 where=str(one.place), remedy="replace it, or leave the row out")
            words = [unknown if place in silent else word for place, word in enumerate(one.words)]
            found[number] = tokenizer.word_encodings([words])[0]
            count += len(silent)
    if count:
        warnings.warn(f"{count:,} words give no token and are read as the unknown one", stacklevel=3)
    return found


def frame_windows(pieces: Pieces, frame: Frame, room: int) -> Iterator[tuple[EncodedRow, list[int]]]:
    """Yield the rows of a sentence, each with the word that every place tells the tag of (`NO_WORD`: none).

    Windows overlap by half, so that each word has context; it is tagged where it has most.
    """
    words = np.array(pieces.word_ids, dtype=np.int64)
    spans = split_windows(len(words), room, max(1, room // 2))
    first: Ints = np.where(np.diff(words, prepend=NO_WORD) != 0, words, NO_WORD)
    owner = assign_owners(spans)
    for number, (start, stop) in enumerate(spans):
        row = frame.row(pieces.ids[start:stop])
        tagged = np.full(len(row.ids), NO_WORD)
        tagged[frame.start():frame.start() + stop - start] = np.where(owner == number, first, NO_WORD)[start:stop]
        yield row, tagged.tolist()
