"""Passages with vectors that stay as they are: a small index in memory and on the disk, with a passport, and how a
reader's rows are made of what is found in it.

On the disk an index is a folder of three files: `corpus.jsonl` (BEIR's form), `vectors.safetensors`, `passport.json`.
Letters: B questions, K passages of each, P passages, E width of a vector, L length.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator
from torch import Tensor

from saucier.checkpoints.weight_files import read_tensors, write_tensors
from saucier.config.base import Config
from saucier.errors import InputError
from saucier.files import is_folder, write_atomically, write_json
from saucier.folders.save import save
from saucier.model import Transformer
from saucier.objectives.base import MASK_OF_INPUT, Batch, to_int_tensor
from saucier.objectives.contrastive import choose_scale
from saucier.objectives.latent_passages import QUESTION, Joined, Retriever
from saucier.objectives.latent_spans import ANSWER_PLACES
from saucier.retrieval.collection import CORPUS, Passage, read_collection, read_id, read_text
from saucier.retrieval.embed import find_limit
from saucier.retrieval.encoder import EncoderPassport, ModelEncoder, open_encoder
from saucier.retrieval.nearest import find_nearest
from saucier.retrieval.store import read_config
from saucier.tasks.encoded_examples import EncodedExamples, Frame, Ragged
from saucier.tasks.open_questions import PassageLayout
from saucier.tasks.task import Encoding
from saucier.tasks.written.definitions import Retrieval
from saucier.text.reading.sources import find_sources
from saucier.text.reading.tables import read_rows
from saucier.text.tokenizer.model_inputs import EncodedRow, LengthOptions, encode_rows
from saucier.text.tokenizer.tokenizer import Tokenizer

VECTORS, PASSPORT = "vectors.safetensors", "passport.json"


class Passport(Config):
    """What an index was made of: `passport.json`."""

    encoder: EncoderPassport
    """By which the vectors were made."""
    passages: int
    """How many there are."""
    texts: str
    """SHA-256 of their ids, titles and texts, in order."""

    @model_validator(mode="before")
    @classmethod
    def read_earlier(cls, values: Any) -> Any:
        """Take what was stored before encoders had passports: a digest by a sample of the weights, head and width."""
        if not isinstance(values, dict) or not isinstance(values.get("encoder"), str):
            return values
        kept = {name: values.get(name) for name in ("head", "width")}
        return {name: value for name, value in values.items() if name not in kept} | {
            "encoder": {"model": "", "digest": values["encoder"], "length": None, **kept}}


def digest_texts(passages: Sequence[Passage]) -> str:
    """Return the digest of passages: ids, titles, texts, and their order."""
    digest = hashlib.sha256()
    for one in passages:
        digest.update(json.dumps([one.id, one.title, one.text]).encode())
    return digest.hexdigest()


def read_passages(path: str | Path) -> tuple[Passage, ...]:
    """Read the passages of a collection; of a folder in BEIR's form the corpus alone. Raises `InputError`."""
    if not is_folder(path):
        return read_collection(path).passages
    (source,) = find_sources([str(Path(path) / CORPUS)])
    found = tuple(Passage(read_id(row, "_id", source), read_text(row, "title", source, ""),
                          read_text(row, "text", source)) for row in read_rows(source, None))
    names = [one.id for one in found]
    if not found or len(set(names)) < len(names):
        raise InputError("has no passages" if not found else "two passages have one id", where=source.name,
                         remedy="give each passage an id of its own, and at least one passage")
    return found


@dataclass(frozen=True, slots=True)
class PassageIndex:
    """Passages and their vectors."""

    passages: tuple[Passage, ...]
    matrix: Tensor
    """[P, E], float32."""
    passport: Passport

    @classmethod
    def build(cls, passages: Sequence[Passage], encoder: ModelEncoder) -> PassageIndex:
        """Give passages their vectors."""
        return cls(tuple(passages), encoder.embed_tensor([one.whole for one in passages]), Passport(
            encoder=encoder.passport, passages=len(passages), texts=digest_texts(passages)))

    @classmethod
    def read(cls, folder: Path) -> PassageIndex:
        """Read an index. Raises `InputError` for files that do not belong together."""
        passport = read_config(Passport, folder / PASSPORT)
        passages, matrix = read_passages(folder), dict(read_tensors(folder / VECTORS))["vectors"]
        if matrix.shape != (passport.passages, passport.encoder.width) or digest_texts(passages) != passport.texts:
            raise InputError("passages, vectors and passport do not belong together", where=str(folder),
                             remedy="make the index again")
        return cls(passages, matrix, passport)

    def write(self, folder: Path) -> None:
        """Write it, atomically."""
        def write(part: Path) -> None:
            part.mkdir(parents=True, exist_ok=True)
            with (part / CORPUS).open("w", encoding="utf-8", newline="\n") as file:
                for one in self.passages:
                    file.write(json.dumps({"_id": one.id, "title": one.title, "text": one.text}, ensure_ascii=False)
                               + "\n")
            write_tensors({"vectors": self.matrix}, part / VECTORS)
            write_json(part / PASSPORT, self.passport.model_dump(mode="json"))

        write_atomically(folder, write)

    def require(self, encoder: str, where: str) -> None:
        """Raise `InputError` where the vectors are not from the encoder of this digest."""
        found = self.passport.encoder.digest
        if found != encoder:
            raise InputError(f"its vectors are from an encoder with the weights {found[:12]}, and the "
                             f"model was trained with {encoder[:12]}", where=where,
                             remedy="make the index with the passage encoder of the training")


@dataclass(frozen=True, slots=True)
class ReaderRows:
    """The passages of an index as the objective sees them: vectors, and rows for one reader."""

    index: PassageIndex
    encoding: Encoding
    """How the reader's rows are made."""
    layout: PassageLayout
    """How a row is made of a question and a passage."""
    frame: Frame
    """What is around the texts of a row."""
    tokens: Ragged
    """Each passage's tokens, without what is around them."""

    @classmethod
    def of(cls, index: PassageIndex, encoding: Encoding, layout: PassageLayout) -> ReaderRows:
        """Encode all passages for a reader. Raises `InputError` where a question leaves no room for one."""
        whole = [layout.join_title(one.title, one.text) for one in index.passages]
        found = encoding.tokenizer.encodings(whole, False)
        rows = [encoding.tokenizer.published_ids(one.ids) for one in found]
        sample = next((one for one, ids in zip(whole, rows, strict=True) if ids), "")
        frame = Frame.of(encoding.tokenizer, sample, layout.texts)
        frame.room(encoding.length, layout.question_length, what="for a passage next to a question",
                   where="training.length", remedy="make it larger, or task.question_length smaller")
        return cls(index, encoding, layout, frame, Ragged.of(rows, encoding.tokenizer.pad_id or 0))

    def find(self, questions: Tensor, count: int) -> Tensor:
        """Return the nearest passages. Shapes: [B, E] -> [B, K]."""
        return find_nearest(questions, self.index.matrix, count)[1]

    def vectors(self, places: Tensor) -> Tensor:
        """Return the vectors of passages. Shapes: [B, K] -> [B, K, E]."""
        return self.index.matrix[places.cpu()]

    def join(self, batch: Batch, places: Tensor) -> Joined:
        """Put each passage, cut to what is left of a row, next to the question; below 0 there is none.

        Shapes: places [B, K].
        """
        mask, rows, spans = batch[MASK_OF_INPUT["input_ids"]], list[EncodedRow](), list[tuple[int, int]]()
        for ids, real, found in zip(batch["input_ids"].tolist(), mask.sum(1).tolist(), places.tolist(), strict=True):
            start = self.layout.start(self.frame, real)
            for place in found:
                room = self.encoding.length - self.frame.size - real
                tokens = self.tokens.row(place)[:room].tolist() if place >= 0 else []
                rows.append(self.layout.row(self.frame, ids[:real], tokens))
                spans.append((start, start + len(tokens)))
        inputs = EncodedExamples(self.encoding.inputs(rows)).batch(np.arange(len(rows)))
        starts, ends = to_int_tensor(np.array(spans).T).view(2, *places.shape)
        return Joined(inputs, starts, ends)


@dataclass(frozen=True, slots=True)
class TokenSearch:
    """All tokens of all passages, by what they are: where a sequence of them stands."""

    tokens: Ragged
    order: NDArray[np.int64]
    """Places of tokens, sorted by the token."""
    sorted: NDArray[np.int64]
    """The tokens in this order."""

    @classmethod
    def of(cls, tokens: Ragged) -> TokenSearch:
        """Sort tokens."""
        order = np.argsort(tokens.values, kind="stable")
        return cls(tokens, order, tokens.values[order])

    def find(self, ids: Sequence[int]) -> NDArray[np.int64]:
        """Return where a sequence stands in one passage: its first token, and the one after its last. Shapes: [M, 2].
        """
        ranges = np.searchsorted(self.sorted, ids, side="left"), np.searchsorted(self.sorted, ids, side="right")
        rarest = int((ranges[1] - ranges[0]).argmin())
        begins = self.order[ranges[0][rarest]:ranges[1][rarest]] - rarest
        begins = begins[(begins >= 0) & (begins + len(ids) <= len(self.order))]
        for number, token in enumerate(ids):
            begins = begins[self.tokens.values[begins + number] == token]
        after = self.tokens.offsets[np.searchsorted(self.tokens.offsets, begins, side="right")]
        begins = np.sort(begins[begins + len(ids) <= after])
        return np.stack([begins, begins + len(ids)], axis=1)


def find_word_insides(rows: ReaderRows) -> NDArray[np.bool_]:
    """Say which tokens of all passages begin inside a word, in a script that writes words apart. Shapes: -> [N + 1]."""
    inside = np.zeros(len(rows.tokens.values) + 1, dtype=bool)
    texts = [rows.layout.join_title(one.title, one.text) for one in rows.index.passages]
    for begin, text, found in zip(rows.tokens.offsets.tolist(), texts,
                                  rows.encoding.tokenizer.encode_with_offsets(texts), strict=False):
        for number, ((_, end), (start, _)) in enumerate(pairwise(found.offsets), start=begin + 1):
            inside[number] = start == end and 0 < start < len(text) and is_in_word(text[start - 1]) \
                and is_in_word(text[start])
    return inside


def is_in_word(letter: str) -> bool:
    """Say whether a character is part of a word: a digit, or a letter of a script with words and cases."""
    return letter.isdigit() or letter.islower() or letter.isupper()


@dataclass(frozen=True, slots=True)
class OpenPassages:
    """Passages and a retriever that are open for one reader: a `PassageSource`."""

    retriever: Retriever
    tokenizer: Tokenizer
    """Of the retriever."""
    rows: ReaderRows
    longest: int
    """The most tokens of a passage that a row has room for next to the longest question."""

    @property
    def encoder(self) -> str:
        """The digest of the encoder that the passages' vectors are from."""
        return self.rows.index.passport.encoder.digest

    def encode_questions(self, texts: Sequence[str]) -> Mapping[str, Ragged]:
        """Return what the retriever reads of questions."""
        return {QUESTION + name: value
                for name, value in encode_texts(self.retriever.model, self.tokenizer, texts).items()}

    def find_answers(self, answers: Sequence[Sequence[str]]) -> Mapping[str, Ragged]:
        """Return where the tokens of answers stand in passages: passage, first and last token, each [M] of a question.

        What begins or ends inside a word is no answer, and neither are unknown tokens. Raises `InputError` for a
        tokenizer without offsets.
        """
        tokens, tokenizer = self.rows.tokens, self.rows.encoding.tokenizer
        search, inside = TokenSearch.of(tokens), find_word_insides(self.rows)
        texts = [*{text.strip() for some in answers for text in some}]
        spelled = [[tuple(tokenizer.published_ids(one.ids)) for one in tokenizer.encodings(spellings, False)]
                   for spellings in (texts, [f" {text}" for text in texts])]
        known = dict[str, NDArray[np.int64]]()
        for text, *ids in zip(texts, *spelled, strict=True):
            known[text] = np.concatenate([np.zeros((0, 2), dtype=np.int64), *(
                search.find(one) for one in {*ids} if one and tokenizer.unk_id not in one)])
            begins, ends = known[text].T
            known[text] = known[text][~inside[begins] & ~inside[ends]]
        columns: list[list[list[int]]] = [[], [], []]
        for some in answers:
            found = np.unique(np.concatenate([known[text.strip()] for text in some]), axis=0)
            passages = np.searchsorted(tokens.offsets, found[:, 0], side="right") - 1
            begins = tokens.offsets[passages]
            for column, values in zip(columns, (passages, found[:, 0] - begins, found[:, 1] - 1 - begins), strict=True):
                column.append(values.tolist())
        return dict(zip(ANSWER_PLACES, (Ragged.of(column, -1) for column in columns), strict=True))

    def cut_span(self, place: int, first: int, last: int) -> tuple[int, int]:
        """Return the characters of a passage's text from the first to the last of some of its tokens."""
        text = self.rows.index.passages[place].text
        offsets = self.rows.encoding.tokenizer.encode_with_offsets([text])[0].offsets
        start, end = offsets[first][0], offsets[last][1]
        piece = text[start:end]
        return start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())

    @property
    def mask(self) -> str | None:
        """The retriever's token for what is hidden."""
        return self.tokenizer.names.get("mask")

    def describe(self, place: int) -> dict[str, Any]:
        """Return a passage; below 0 there is none."""
        one = self.rows.index.passages[place] if place >= 0 else Passage("", "", "")
        return {"id": one.id, "title": one.title, "text": one.text}

    def notes(self) -> Sequence[str]:
        """Say how many passages there are, where their vectors are from, and which are cut."""
        lengths, passport = self.rows.tokens.lengths, self.rows.index.passport
        lost = np.maximum(lengths - self.longest, 0)
        cut = f"; {int((lost > 0).sum()):,} are cut next to the longest question, {int(lost.sum()):,} tokens" \
            if lost.any() else ""
        return (f"{passport.passages:,} passages with vectors of {passport.encoder.width} numbers by the weights "
                f"{self.encoder[:12]}, {self.retriever.count} read for a question, inner products times "
                f"{self.retriever.scale:g}{cut}",)

    def digests(self) -> dict[str, str]:
        """Return the digests of the texts and of what gave them vectors, by what they are called."""
        return {"passages": self.rows.index.passport.texts, "passage encoder": self.encoder}

    def write(self, folder: Path) -> None:
        """Write retriever and index next to a reader."""
        save(self.retriever.model, folder / "retriever")
        if not (folder / "retriever" / "tokenizer.json").exists():
            self.tokenizer.save(folder / "retriever")
        self.rows.index.write(folder / "passages")


def encode_texts(model: Transformer, tokenizer: Tokenizer, texts: Sequence[str]) -> Mapping[str, Ragged]:
    """Return what a retriever reads of texts, cut to what it takes."""
    limit = find_limit(model, tokenizer)
    rows = encode_rows(tokenizer, texts, None, LengthOptions(limit, "longest", "longest_first"))
    return Encoding(tokenizer, limit or max(len(row.ids) for row in rows), model.config).inputs(rows)


def open_passages(retrieval: Retrieval, layout: PassageLayout, encoding: Encoding, *,
                  kept: Path | None = None) -> OpenPassages:
    """Open a retriever and passages for a reader that is to be trained.

    `kept`: a folder where the index may have been written; vectors of other weights or texts are made again.
    Raises `InputError` for models without embedding heads or of two widths, and for what is no collection.
    """
    retriever = open_encoder(retrieval.retriever, device="cpu")
    where = retrieval.passage_encoder
    encoder = retriever if where is None else open_encoder(where, device="cpu")
    passages = read_passages(retrieval.passages)
    index = None
    if kept is not None and (kept / PASSPORT).is_file():
        found = PassageIndex.read(kept)
        same = (encoder.passport.digest, digest_texts(passages)) == (found.passport.encoder.digest,
                                                                     found.passport.texts)
        index = found if same else None
    return assemble(retrieval, layout, encoding, retriever, index or PassageIndex.build(passages, encoder))


def open_trained(retrieval: Retrieval, layout: PassageLayout, encoding: Encoding, folder: Path) -> OpenPassages:
    """Open what was written next to a trained reader. Raises `InputError` for an index by another encoder."""
    for name in ("retriever", "passages"):
        if not is_folder(folder / name):
            raise InputError("this model reads retrieved passages, and the folder has none", where=str(folder / name),
                             remedy="copy the whole folder of the fine-tuning's model")
    index = PassageIndex.read(folder / "passages")
    if retrieval.encoder is not None:
        index.require(retrieval.encoder, str(folder / "passages"))
    retriever = open_encoder(folder / "retriever", device="cpu")
    return assemble(retrieval, layout, encoding, retriever, index)


def assemble(retrieval: Retrieval, layout: PassageLayout, encoding: Encoding, retriever: ModelEncoder,
             index: PassageIndex) -> OpenPassages:
    """Put all together. Raises `InputError` where questions and passages have vectors of two widths, or are too few."""
    if (width := retriever.passport.width) != index.passport.encoder.width:
        raise InputError(f"questions have vectors of {width} numbers, and passages of {index.passport.encoder.width}",
                         where="task.retrieval", remedy="give two encoders that were trained together")
    if retrieval.count > len(index.passages):
        raise InputError(f"{retrieval.count} passages are to be read, and there are {len(index.passages)}",
                         where="task.retrieval.count", remedy="make it smaller")
    rows = ReaderRows.of(index, encoding, layout)
    longest = encoding.length - rows.frame.size - layout.question_length
    scale = choose_scale(retrieval.scale, retriever.model)
    return OpenPassages(Retriever(retriever.model, rows, retrieval.count, scale, retrieval.rate), retriever.tokenizer,
                        rows, longest)
