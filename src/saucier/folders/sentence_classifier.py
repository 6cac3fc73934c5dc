"""A classifier on the mean of a text's vectors, in the layout of sentence-transformers: a pooling, and a map to labels.

`transformers` publishes no class of BERT and its kin that reads the mean. The modules of sentence-transformers hold
such a model whole: `SentenceTransformer(FOLDER).encode(texts)` gives its logits. The names of the labels are in
config.json, by which such a folder is told from one of vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from saucier import config as c
from saucier.adaptation.quantization.maps import is_quantized
from saucier.checkpoints.published_folder import express_model, write_published
from saucier.errors import InputError
from saucier.families import LAYOUTS
from saucier.files import read_json, write_json
from saucier.model import Transformer
from saucier.parts.heads import ClassificationHead, EmbeddingHead, build_head

MEAN = c.PickVector(kind="mean")
HEAD_DROPOUT = 0.1
"""On what a head that is read reads, where it is trained again; the layout does not say it."""


def to_classifier(model: Transformer) -> Transformer:
    """Make the one map of an embedding head that of a classifier on the same vector."""
    old = model.head
    assert isinstance(old, EmbeddingHead), "is_classifier_folder says so"
    [only] = old.config.maps
    head = c.ClassificationHead(pick=MEAN, classes=only.width, bias=only.bias, dropout=HEAD_DROPOUT)
    made = build_head(head, model.config.dim, model.embed.tokens)
    assert isinstance(made, ClassificationHead), "what its config builds"
    made.output = old.maps[0]  # type: ignore[assignment]  # a linear map, as it was
    model.config, model.head = model.config.model_copy(update={"head": head}), made
    return model


def map_of_output(name: str) -> str:
    """Return what a parameter of a classifier is called where its output is the map of an embedding head."""
    return name.replace("head.output.", "head.maps.0.", 1) if name.startswith("head.output.") else name


def modules_head(model: Transformer, document: Mapping[str, Any], length: int | None) -> c.EmbeddingHead | None:
    """Return the head of modules that says the same as a model's; None where none does, or no body is published.

    `document`: the config with which the body was published.
    """
    head, layout = model.config.head, LAYOUTS.get(str(document.get("model_type")))
    if layout is None or not isinstance(head, c.ClassificationHead) or head.pick != MEAN or head.transform is not None \
            or model.provenance.rewrites or model.config.mix is not None or is_quantized(model):
        return None
    found = c.EmbeddingHead(maps=(c.DenseMap(width=head.classes, bias=head.bias, activation="identity"),),
                            normalize=False, length=length)
    try:
        with exchanged_head(model, document, found):
            express_model(model, layout)
    except InputError:
        return None
    return found


@contextmanager
def exchanged_head(model: Transformer, document: Mapping[str, Any], head: c.EmbeddingHead) -> Iterator[None]:
    """Let a classifier have the head of modules, with the same map, and its body's config, while it is entered."""
    config, own, provenance = model.config, model.head, model.provenance
    assert isinstance(own, ClassificationHead), "modules_head says so"
    made = build_head(head, config.dim, model.embed.tokens)
    assert isinstance(made, EmbeddingHead), "what its config builds"
    made.maps[0] = own.output
    model.config, model.head = config.model_copy(update={"head": head}), made
    model.provenance = replace(provenance, document=document)
    try:
        yield
    finally:
        model.config, model.head, model.provenance = config, own, provenance


def write_labels(folder: Path, labels: dict[str, object]) -> None:
    """Write the names of a classifier's outputs into the config of its folder."""
    document = read_json(folder / "config.json")
    write_json(folder / "config.json", document | labels)


def write_as_modules(model: Transformer, head: c.EmbeddingHead, folder: Path, weights: Mapping[str, Tensor]) -> None:
    """Write a classifier in the layout of sentence-transformers; `head` is that of `modules_head` for its own document.
    """
    document = model.provenance.document
    with exchanged_head(model, document, head):
        names, written = express_model(model, LAYOUTS[str(document["model_type"])])
        write_published(model, names, written, folder, {map_of_output(name): one for name, one in weights.items()})
    write_labels(folder, {key: document[key] for key in ("id2label", "label2id") if key in document})
