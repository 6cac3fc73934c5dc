"""Folders of sentence-transformers: the maps of a head are read from, and written to, folders of their own."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from saucier import config as c
from saucier.checkpoints.sentence_modules import ACTIVATIONS, MODULES, POOLINGS
from saucier.checkpoints.weight_files import Weights, write_tensors
from saucier.errors import InputError
from saucier.model import Transformer
from saucier.parts.heads import EmbeddingHead, build_head

MAP = re.compile(r"head\.maps\.(?P<number>\d+)\.(?P<end>weight|bias)")
"""Our name of a weight of a map."""
TYPES = "sentence_transformers.models."


def is_sentence_head(head: c.Head | None) -> bool:
    """Say whether a head is one that the modules of sentence-transformers express."""
    return (isinstance(head, c.EmbeddingHead) and head.norm is None and head.language is None
            and set(head.pooling) <= {*POOLINGS.values()})


def put_head(model: Transformer, head: c.EmbeddingHead, maps: list[Path]) -> Transformer:
    """Put an embedding head on a body and fill its maps. Raises `InputError` for weights that do not fit."""
    tree = model.config.model_copy(update={"head": head})
    made = build_head(head, tree.dim, model.embed.tokens).to(device=model.device, dtype=model.dtype)
    assert isinstance(made, EmbeddingHead), "what its config builds"
    for map_, folder in zip(made.maps, maps, strict=True):
        source = Weights(folder)
        for name, parameter in map_.named_parameters():
            stored = f"linear.{name}"
            if stored not in source or source[stored].shape != parameter.shape:
                raise InputError(f"{stored} is missing or is not {list(parameter.shape)}", where=str(folder),
                                 remedy="fetch the folder again")
            parameter.data.copy_(source[stored])
    model.config, model.head = tree, made
    return model


def write_modules(config: c.Transformer, folder: Path, weights: Mapping[str, Tensor]) -> None:
    """Write the files, in addition to the body's, that make a folder one of sentence-transformers.

    `weights`: those of the model, under our names.
    """
    head = config.head
    assert isinstance(head, c.EmbeddingHead), "only called for such models"
    listed: list[tuple[str, str]] = [("Transformer", ""), ("Pooling", "1_Pooling")]
    write_module_config(folder / "1_Pooling", {
        "word_embedding_dimension": config.dim,
        **{f"pooling_mode_{name}": pooling in head.pooling for name, pooling in POOLINGS.items()}})
    classes = {ours: f"torch.nn.modules.{'linear' if ours == 'identity' else 'activation'}.{theirs}"
               for theirs, ours in ACTIVATIONS.items()}
    for number, (one, given) in enumerate(zip(head.maps, head.widths(config.dim), strict=False)):
        name = f"{number + 2}_Dense"
        listed.append(("Dense", name))
        write_module_config(folder / name, {"in_features": given, "out_features": one.width, "bias": one.bias,
                                            "activation_function": classes[one.activation]})
        write_tensors({f"linear.{match['end']}": value for key, value in weights.items()
                       if (match := MAP.fullmatch(key)) is not None and int(match["number"]) == number},
                      folder / name / "model.safetensors")
    if head.normalize:
        listed.append(("Normalize", f"{len(listed)}_Normalize"))
        (folder / listed[-1][1]).mkdir()
    (folder / MODULES).write_text(json.dumps(
        [{"idx": place, "name": str(place), "path": path, "type": TYPES + kind}
         for place, (kind, path) in enumerate(listed)], indent=2) + "\n", encoding="utf-8")
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": head.length, "do_lower_case": False}, indent=2) + "\n", encoding="utf-8")


def write_module_config(folder: Path, options: Mapping[str, Any]) -> None:
    """Write the config of a module."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(options, indent=2) + "\n", encoding="utf-8")
