"""What the folders of sentence-transformers say: `modules.json` names a body, a pooling, maps and a normalization, in
order. No torch.

Only the names are read; none of the classes that a file names is ever imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saucier import config as c
from saucier.errors import InputError
from saucier.files import parse_json, read_json, read_object

MODULES = "modules.json"
POOLINGS: dict[str, c.Pooling] = {
    "cls_token": c.Pooling(kind="cls"), "max_tokens": c.Pooling(kind="max"), "mean_tokens": c.Pooling(kind="mean"),
    "mean_sqrt_len_tokens": c.Pooling(kind="mean_sqrt_len"), "weightedmean_tokens": c.Pooling(kind="weighted_mean"),
    "lasttoken": c.Pooling(kind="last"),
}
"""Ends of the fields `pooling_mode_...` -> ours, in the order in which their vectors are joined."""
MODES = {"cls": "cls_token", "max": "max_tokens", "mean": "mean_tokens", "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
         "weightedmean": "weightedmean_tokens", "lasttoken": "lasttoken"}
"""The field `pooling_mode` of newer files -> the end of the older field."""
ACTIVATIONS = {"Tanh": "tanh", "Identity": "identity", "ReLU": "relu", "GELU": "gelu", "SiLU": "silu"}


def is_sentence_folder(folder: Path) -> bool:
    """Say whether a folder is one of sentence-transformers."""
    return (folder / MODULES).is_file()


def is_classifier_folder(folder: Path) -> bool:
    """Say whether the modules are a classifier: the mean, one map, and as many names of labels as it has outputs."""
    if not is_sentence_folder(folder):
        return False
    body, head, _ = read_modules(folder)
    named = read_object(body / "config.json").get("id2label")
    return (isinstance(named, dict) and head.pooling == (c.Pooling(kind="mean"),) and not head.normalize
            and [(one.width, one.activation) for one in head.maps] == [(len(named), "identity")])


def read_modules(folder: Path) -> tuple[Path, c.EmbeddingHead, list[Path]]:
    """Return the body's folder, the head that the other modules make, and the folders of its maps' weights.

    Raises `InputError` for a module that is not known, and for an order that no head has.
    """
    where, listed = str(folder / MODULES), list_modules(folder)
    kinds = [kind for kind, _ in listed]
    maps = [place for kind, place in listed if kind == "Dense"]
    order = ["Transformer", "Pooling", *["Dense"] * len(maps), *(["Normalize"] if "Normalize" in kinds else [])]
    if kinds != order:
        raise InputError(f"modules {', '.join(kinds)[:200]}", where=where,
                         remedy="known: Transformer, Pooling, then any Dense, then Normalize or not")
    body, pooling = listed[0][1], read_json(listed[1][1] / "config.json")
    head = c.EmbeddingHead(pooling=read_poolings(pooling, str(listed[1][1] / "config.json")),
                           maps=tuple(read_dense(place) for place in maps), normalize="Normalize" in kinds,
                           length=read_max_length(body))
    return body, head, maps


def list_modules(folder: Path) -> list[tuple[str, Path]]:
    """Read the kinds and folders of the modules."""
    path = folder / MODULES
    try:
        listed = [(str(one["type"]).rsplit(".", 1)[-1], str(one["path"])) for one in parse_json(path.read_bytes())]
    except (ValueError, TypeError, KeyError) as error:
        raise InputError("is no list of modules", where=str(path), remedy="fetch the folder again") from error
    for _, place in listed:
        if place and (Path(place).name != place or len(place) > 200 or "\0" in place):
            raise InputError(f"the module {place[:80]!r} is outside the folder", where=str(path),
                             remedy="do not use this folder")
    return [(kind, folder / place) for kind, place in listed]


def read_poolings(options: Mapping[str, Any], where: str) -> tuple[c.Pooling, ...]:
    """Read how token vectors become one."""
    mode = options.get("pooling_mode")
    named = [MODES.get(str(one), str(one)) for one in ([mode] if isinstance(mode, str) else mode or [])]
    named = named or [name.removeprefix("pooling_mode_") for name, on in options.items()
                        if name.startswith("pooling_mode_") and on is True]
    if not named or not set(named) <= set(POOLINGS):
        raise InputError(f"pooling {', '.join(named)[:100] or 'none'}", where=where,
                         remedy=f"known: {', '.join(POOLINGS)}")
    return tuple(pooling for name, pooling in POOLINGS.items() if name in named)


def read_dense(folder: Path) -> c.DenseMap:
    """Read a Dense module's shape."""
    path = folder / "config.json"
    options = read_json(path)
    activation = str(options.get("activation_function", "Tanh")).rsplit(".", 1)[-1]
    width = options.get("out_features")
    if activation not in ACTIVATIONS or not isinstance(width, int) or not 0 < width <= 2**20:
        raise InputError(f"a map to {str(width)[:20]} with {activation[:40]}", where=str(path),
                         remedy=f"known: {', '.join(ACTIVATIONS)}")
    return c.DenseMap(width=width, bias=options.get("bias", True) is True,
                      activation=ACTIVATIONS[activation])


def read_max_length(body: Path) -> int | None:
    """Read the longest text, and refuse what the vectors would change by."""
    path = body / "sentence_bert_config.json"
    options = read_object(path)
    if options.get("do_lower_case"):
        raise InputError("do_lower_case true cannot be expressed", where=str(path),
                         remedy="lower the texts yourself, and set it to false")
    if read_object(body / "config_sentence_transformers.json").get("default_prompt_name"):
        raise InputError("default_prompt_name puts words before every text, which cannot be expressed",
                         where=str(body / "config_sentence_transformers.json"),
                         remedy="put the prompt before the texts yourself, and remove it")
    length = options.get("max_seq_length")
    if length is not None and not (isinstance(length, int) and 0 < length < 2**31):
        raise InputError(f"max_seq_length is {str(length)[:20]!r}", where=str(path), remedy="write a number of tokens")
    return length
