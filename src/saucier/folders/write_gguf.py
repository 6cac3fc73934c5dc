"""A model and its tokenizer as one GGUF file, which is read again before it counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saucier import config as c
from saucier.adaptation.quantization.maps import is_quantized
from saucier.adaptation.quantization.storage import dequantize_model
from saucier.checkpoints.fields import SPECIAL_IDS, put
from saucier.checkpoints.gguf import U32, Typed, open_gguf, write_gguf
from saucier.checkpoints.gguf_layouts import FAMILIES
from saucier.checkpoints.gguf_names import HOLDS_OUTPUT
from saucier.checkpoints.gguf_weights import FORMATS, GgufWeights, express_tensors, read_document
from saucier.checkpoints.layout import describe_difference
from saucier.checkpoints.own_folder import stored_weights
from saucier.checkpoints.published_folder import express_model, list_published_tensors
from saucier.checkpoints.published_names import PublishedNames
from saucier.errors import InputError, suggest_name
from saucier.families import LAYOUTS
from saucier.files import write_atomically
from saucier.model import Transformer
from saucier.text.tokenizer.gguf_writing import express_tokenizer
from saucier.text.tokenizer.tokenizer import Tokenizer

ELSE = "export it as onnx, or keep its own folder"
NO_TOKENIZER: dict[str, Any] = {"tokenizer.ggml.model": "none"}
"""What llama.cpp reads of a file without tokens, beside the size of the vocabulary."""


@dataclass(frozen=True, slots=True)
class Written:
    """What was written."""

    family: str
    """`model_type` of the published layout."""
    parameters: int
    formats: Mapping[str, int]
    """Number format -> tensors in it."""
    notes: tuple[str, ...]
    """What the file has otherwise than the model, in words."""


def write_gguf_model(model: Transformer, path: Path, *, form: str = "stored",
                     tokenizer: Tokenizer | None = None) -> Written:
    """Write a model atomically. `form`: a key of `FORMATS`, or "stored".

    A model in few bits is widened first, in place. Raises `InputError` for a family, a head or a tokenizer that
    llama.cpp has not, and for an unknown format.
    """
    if form != "stored" and form not in FORMATS:
        raise InputError(f"unknown format {form!r}", where="format", remedy=suggest_name(form, ["stored", *FORMATS]))
    notes = ("its matrices in few bits were widened first",) if is_quantized(model) else ()
    model = dequantize_model(model) if notes else model
    names, document = choose_family(model)
    base = names.layout.base_of(names.published)
    published = {name.removeprefix(base): tensor for name, tensor
                 in list_published_tensors(stored_weights(model), names, model.config).items()}
    document |= {name: value for name, value in model.provenance.generation.items() if name in SPECIAL_IDS}
    if document.get("scale_decoder_outputs") and document.get("tie_word_embeddings"):
        published["lm_head.weight"] = published["shared.weight"] * document["d_model"] ** -0.5
    elif document["model_type"] in ("t5", "mt5") and "lm_head.weight" not in published:
        published["lm_head.weight"] = published["shared.weight"]
    found = express_tensors(published, document, form)
    pooling = find_pooling(model.config)
    rows = model.config.input_embed.vocab
    architecture = FAMILIES[document["model_type"]].architecture
    said, more = (
        {**NO_TOKENIZER, f"{architecture}.vocab_size": Typed(rows, U32)},
        ("there is no tokenizer in the source, so none is in the file",)) if tokenizer is None else express_tokenizer(
        tokenizer.backend, tokenizer.names, rows, tokenizer.handling.chat, find_frame(tokenizer))
    metadata = {"general.architecture": architecture, "general.type": "model",
                "general.name": path.stem, **found.metadata, **pooling, **said}

    def write(temporary: Path) -> None:
        write_gguf(temporary, metadata, found.tensors)
        refuse_another_model(temporary, names, FAMILIES[document["model_type"]].reduce(document)[0])

    write_atomically(path, write)
    return Written(document["model_type"], sum(one.numel() for one in model.parameters()),
                   dict(Counter(found.kinds.values())), (*notes, *found.notes, *more))


def choose_family(model: Transformer) -> tuple[PublishedNames, dict[str, Any]]:
    """Return the published names and the config of a model in a family that llama.cpp knows.

    Raises `InputError` where none can express it.
    """
    came_from = model.provenance.model_type
    refusals: dict[str, InputError] = {}
    another_head: list[InputError] = []
    for model_type in sorted(FAMILIES, key=lambda one: one != came_from):
        family = FAMILIES[model_type]
        try:
            names, document = express_model(model, LAYOUTS[model_type])
        except InputError as error:
            refusals[model_type] = error
            continue
        if names.published == family.published:
            return names, document
        another_head.append(InputError(
            f"{names.published} has no place in a GGUF file, which holds {family.published}", where="model",
            remedy=f"give --head {'none' if model_type == 'bert' else family.published}; {ELSE}"))
    raise another_head[0] if another_head else refusals[came_from] if came_from in refusals else InputError(
        f"no family of llama.cpp can express this model ({came_from})", where="model",
        remedy=f"{ELSE}; known: {', '.join(FAMILIES)}")


POOLINGS = {"mean": 1, "cls": 2, "first": 2}
"""How the vectors of a text's tokens become one -> llama.cpp's number for it."""


def find_pooling(config: c.Transformer) -> dict[str, Any]:
    """Return the metadata of how a text gets a vector; none for a body alone.

    Raises `InputError` for what llama.cpp does not compute.
    """
    if not isinstance(config.head, c.EmbeddingHead):
        return {}
    kinds = [one.kind for one in config.head.pooling]
    if len(kinds) > 1 or kinds[0] not in POOLINGS or config.head.maps or config.head.norm is not None:
        raise InputError(f"llama.cpp does not make a text's vector like this ({', '.join(kinds)}, "
                         f"{len(config.head.maps)} maps)", where="model", remedy=f"give --head none; {ELSE}")
    return {"bert.pooling_type": Typed(POOLINGS[kinds[0]], U32)}


def find_frame(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Return the ids that a tokenizer puts before and after a text."""
    bare, framed = tokenizer.encode("a", add_special_tokens=False), tokenizer.encode("a")
    before = next((at for at in range(len(framed)) if framed[at:at + len(bare)] == bare), 0)
    return framed[:before], framed[before + len(bare):]


def refuse_another_model(path: Path, names: PublishedNames, document: Mapping[str, Any]) -> None:
    """Raise `InputError` where a file would come back as another model than was meant."""
    file = open_gguf(path)
    again = read_document(file) | {}
    GgufWeights(file, again)
    if "tie_word_embeddings" not in document or HOLDS_OUTPUT in file.tensors:
        again["tie_word_embeddings"] = document.get("tie_word_embeddings", True)
    meant = bare_tree(names.layout.tree(dict(document), names.published, "model"), names)
    layout = LAYOUTS[again["model_type"]]
    found = bare_tree(layout.tree(again, again["architectures"][0], "model"), names)
    if meant != found:
        raise InputError(f"llama.cpp has no place for this: {describe_difference(meant, found)}", where="model",
                         remedy=ELSE)


def bare_tree(tree: c.Transformer, names: PublishedNames) -> c.Transformer:
    """Return a tree without what computes nothing once a model is trained: dropout, noise, how weights begin."""
    optional = names.layout.classes[names.published].optional
    tree = put(tree, dict.fromkeys(optional, None))
    plain = still(tree.model_dump(mode="python", warnings=False))
    usual = c.Transformer.model_fields["initialization"].default
    return c.Transformer.model_validate({**plain, "initialization": usual})


def still(value: Any) -> Any:
    """Return plain values of a tree with all dropouts at 0."""
    if isinstance(value, dict):
        return {key: 0.0 if ("dropout" in key or key == "noise") and isinstance(one, float) else still(one)
                for key, one in value.items()}
    return type(value)(still(one) for one in value) if isinstance(value, list | tuple) else value
