"""`embed`: texts to vectors, by a model with an embedding head."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from saucier import config as c
from saucier.config import learned_length
from saucier.errors import InputError, expect, expect_texts
from saucier.folders.load import load
from saucier.model import Transformer
from saucier.text.tokenizer.model_inputs import LengthOptions, check_tokenizer_fits, encode_rows, pad_rows, warn_of_cuts
from saucier.text.tokenizer.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from saucier.retrieval.store import Floats


def embed(model: Transformer | str | Path, texts: Sequence[str], *, tokenizer: Tokenizer | None = None,
          batch: int = 32, format: str | None = None) -> Tensor:  # noqa: A002  # its public name
    """Return one vector for each text, on the CPU in float32.

    `model` is a model with an embedding head, or the folder or hub id of one, such as sentence-transformers publishes;
    a folder brings its own tokenizer. Texts of similar length go through the model together, `batch` at a time; longer
    ones than the model was trained on are cut, with one warning that counts. `format`: of a folder, as in
    `saucier.load`.
    Shapes: -> [texts, E]; with `normalize` in the head, the product of two rows is their cosine similarity.
    Errors: `InputError` for a model without such a head, for a model given without tokenizer, and for what is no text.
    Source: Reimers and Gurevych 2019, §3, arXiv:1908.10084.
    """
    expect_texts([*texts] if isinstance(texts, Sequence) and not isinstance(texts, str) else texts, "texts")
    if not isinstance(model, Transformer):
        tokenizer = tokenizer or load_tokenizer(model)
        model = load(model, dtype="float32", format=format)
    elif format is not None:
        raise InputError("a model in memory has the format that it was loaded in", where="format",
                         remedy="give the folder, or saucier.load(folder, format=...)")
    require_embedding_head(model, "model")
    if tokenizer is None:
        raise InputError("a model brings no tokenizer", where="tokenizer", remedy="give tokenizer=, or the folder")
    expect(tokenizer, Tokenizer, "tokenizer", "give one that saucier.load_tokenizer gives")
    expect(batch, int, "batch", "give a number of texts")
    if batch < 1:
        raise InputError(f"is {str(batch)[:40]}", where="batch", remedy="give a number of texts")
    check_tokenizer_fits(model.config, tokenizer, "tokenizer")
    found, cut = embed_texts(model, tokenizer, texts, batch)
    warn_of_cuts(cut, find_limit(model, tokenizer))
    return torch.from_numpy(found)


def embed_texts(model: Transformer, tokenizer: Tokenizer, texts: Sequence[str],
                 batch: int) -> tuple[Floats, list[int]]:
    """Return the vectors of texts by a model with an embedding head, and how many tokens of each were left out.

    Texts of similar length go through the model together; the second list is in the order in which they went.
    Shapes: -> [texts, E].
    """
    order = sorted(range(len(texts)), key=lambda place: -len(texts[place]))
    limit = find_limit(model, tokenizer)
    options, cut = LengthOptions(limit, "longest", "longest_first"), list[int]()
    width, device = require_embedding_head(model, "model").widths(model.config.dim)[-1], model.device
    found = np.empty((len(texts), width), np.float32)
    for start in range(0, len(order), batch):
        rows = order[start:start + batch]
        encoded = pad_rows(tokenizer, encode_rows(tokenizer, [texts[row] for row in rows], None, options), options)
        cut += encoded.cut
        with torch.inference_mode():
            vectors = model(**encoded.to(device)).embeddings
        found[rows] = vectors.float().cpu().numpy()
    return found, cut


def require_embedding_head(model: Transformer, where: str) -> c.EmbeddingHead:
    """Return the head that gives vectors. Raises `InputError` for a model without one."""
    if not isinstance(model.config.head, c.EmbeddingHead):
        raise InputError("this model has no embedding head", where=where,
                         remedy="give a folder with modules.json, a DPR encoder, or a config with head: {kind: "
                         "embedding}")
    return model.config.head


def find_limit(model: Transformer, tokenizer: Tokenizer) -> int | None:
    """Return the most tokens of a text, special ones included, that a model with an embedding head reads.

    It is the least of what its folder says and its positions hold; None where neither knows an end.
    """
    head = model.config.head
    said = head.length if isinstance(head, c.EmbeddingHead) else None
    known = (said, tokenizer.handling.max_length, learned_length(model.config))
    return min((length for length in known if length), default=None)
