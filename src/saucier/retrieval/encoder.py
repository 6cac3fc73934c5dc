"""The encoder of an index, opened in one way for all, and the passport by which another one is known."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from saucier.config.base import Config
from saucier.errors import InputError
from saucier.files import write_json
from saucier.retrieval.chunks import Chunking
from saucier.retrieval.lexical import Language
from saucier.retrieval.store import Floats, read_config

if TYPE_CHECKING:
    from torch import Tensor

    from saucier.model import Transformer
    from saucier.text.tokenizer.tokenizer import Tokenizer

PASSPORT_FILE = "index.json"


class EncoderPassport(Config):
    """Which encoder made the vectors of an index, whatever its form."""

    model: str
    """Its folder or hub id, from where it is opened again."""
    digest: str
    """Of its weights, config and tokenizer: another model in the same folder has another one."""
    width: int
    """Numbers of a vector."""
    head: dict[str, Any]
    """How it pools, and whether it normalizes."""
    length: int | None
    """The most tokens that it reads, special ones included."""
    format: str | None = None
    """The number format of its matrices, as in `saucier.load`."""


class IndexPassport(Config):
    """What an index was made with; it stays as long as the index."""

    encoder: EncoderPassport
    """By which its vectors were made."""
    chunking: Chunking
    """How its documents were cut."""
    language: Language = "english"
    """Of the stems."""


class Encoder(Protocol):
    """What an index needs of an encoder."""

    @property
    def passport(self) -> EncoderPassport:
        """By which it is known."""

    @property
    def room(self) -> int | None:
        """The most tokens of a text that it reads."""

    def measure(self, texts: Sequence[str]) -> Sequence[int]:
        """Return how many tokens each text has."""

    def embed(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of texts. Shapes: -> [N, E]."""


@dataclass(frozen=True, slots=True)
class ModelEncoder:
    """A model with an embedding head."""

    passport: EncoderPassport
    model: Transformer
    tokenizer: Tokenizer

    @classmethod
    def of(cls, model: Transformer, tokenizer: Tokenizer, place: str, weights: str | None = None) -> ModelEncoder:
        """Take a model in memory, as it is now. `weights`: a digest of them that is known.

        Raises `InputError` for one without an embedding head, and for the tokenizer of another model.
        """
        from saucier.parts.provenance import digest_values
        from saucier.retrieval.embed import find_limit, require_embedding_head
        from saucier.text.tokenizer.model_inputs import check_tokenizer_fits

        head = require_embedding_head(model, place)
        check_tokenizer_fits(model.config, tokenizer, place)
        return cls(EncoderPassport(
            model=place, digest=digest_encoder(model, tokenizer, weights or digest_values(model)),
            width=head.widths(model.config.dim)[-1], head=head.model_dump(mode="json"),
            length=find_limit(model, tokenizer), format=model.format), model, tokenizer)

    @property
    def room(self) -> int | None:
        """The most tokens of a text that it reads."""
        return None if self.passport.length is None else self.passport.length - frame_tokens(self.tokenizer)

    def measure(self, texts: Sequence[str]) -> list[int]:
        """Return how many tokens each text has, without those around it."""
        return [len(one.ids) for one in self.tokenizer.encodings([*texts], False)]

    def embed(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of texts. Shapes: -> [N, E]."""
        vectors: Floats = self.embed_tensor(texts).numpy()
        return vectors

    def embed_tensor(self, texts: Sequence[str], batch: int = 32) -> Tensor:
        """Return them as a tensor on the CPU. Shapes: -> [N, E]."""
        from saucier.retrieval.embed import embed

        return embed(self.model, [*texts], tokenizer=self.tokenizer, batch=batch)


def frame_tokens(tokenizer: Tokenizer) -> int:
    """Return how many tokens are around a text."""
    return int(tokenizer.backend.num_special_tokens_to_add(False))


def open_encoder(place: str | Path, number_format: str | None = None, *, device: str = "auto") -> ModelEncoder:
    """Open a model that gives texts vectors: a folder or hub id. Raises `InputError` for one without embedding head."""
    from saucier.folders.load import load
    from saucier.text.tokenizer.tokenizer import load_tokenizer

    model = load(place, dtype="float32", device=device, format=number_format)
    name = str(Path(place).absolute()) if Path(place).exists() else str(place)
    return ModelEncoder.of(model, load_tokenizer(place), name, digest_loaded(model))


def digest_encoder(model: Transformer, tokenizer: Tokenizer, weights: str) -> str:
    """Return a digest of all that decides about vectors: weights (by their own digest), config and tokenizer."""
    found = hashlib.sha256()
    for one in (weights, model.config.model_dump_json(), tokenizer.backend.to_str()):
        found.update(f"{len(one)} {one}".encode())
    return found.hexdigest()


def digest_loaded(model: Transformer) -> str:
    """Return a digest of the weights of a model that is as it was loaded: of its files, or of all values."""
    from saucier.generation.formats import digest_model
    from saucier.parts.provenance import digest_values

    return digest_model(model) or digest_values(model)


def read_passport(folder: Path) -> IndexPassport | None:
    """Return what an index was made with; None where there is no index. Raises `InputError` for a damaged one."""
    place = folder / PASSPORT_FILE
    return read_config(IndexPassport, place) if place.is_file() else None


def find_passport(folder: Path) -> IndexPassport:
    """Return what an index was made with. Raises `InputError` where there is none."""
    found = read_passport(folder)
    if found is None:
        raise InputError("is no index", where=str(folder), remedy="make one: saucier index DOCS --out IDX --model M")
    return found


def write_passport(folder: Path, passport: IndexPassport) -> None:
    """Write what an index is made with."""
    write_json(folder / PASSPORT_FILE, passport.model_dump(mode="json"))


def check_encoder(folder: Path, passport: IndexPassport, encoder: EncoderPassport) -> None:
    """Raise `InputError` for another encoder than an index was made by."""
    made = passport.encoder
    if (made.digest, made.format) == (encoder.digest, encoder.format):
        return
    what = f"number format {encoder.format or 'none'}, and the index has {made.format or 'none'}" \
        if made.digest == encoder.digest else \
        f"weights, config or tokenizer {encoder.digest[:12]}, and the index has {made.digest[:12]}"
    raise InputError(f"was made by another encoder: {encoder.model} has the {what}", where=str(folder),
                     remedy=f"give the model that it was made by ({made.model}), or make a new index")


def embed_question(encoder: Encoder, question: str) -> tuple[Floats, int]:
    """Return the vector of a question, and how many of its tokens the encoder does not read. Shapes: -> [E].

    Raises `InputError` for an empty question.
    """
    if not question.strip():
        raise InputError("is empty", where="question", remedy="ask for something")
    cut = 0 if encoder.room is None else max(0, encoder.measure([question])[0] - encoder.room)
    return np.ascontiguousarray(encoder.embed([question])[0]), cut
