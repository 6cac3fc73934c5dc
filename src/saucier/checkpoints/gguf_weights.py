"""A GGUF file as the published folder that it was made from, and a published model as tensors and metadata of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from saucier.checkpoints.gguf import U32, GgufFile, StoredTensor, Typed
from saucier.checkpoints.gguf_blocks import BLOCKS, KINDS
from saucier.checkpoints.gguf_layouts import ARCHITECTURE, FAMILIES, SPECIAL, Document, Entry, GgufFamily
from saucier.checkpoints.weight_files import check_shape
from saucier.checkpoints.weight_names import Rule, Rules, compile_pattern
from saucier.errors import InputError, suggest_name

MOST_EXPERTS = 10_000
KNOWN_AS = {one.architecture: name for name, one in FAMILIES.items() if one.is_of is not None}
"""GGUF's name of an architecture -> a published one."""


def read_document(file: GgufFile) -> Document:
    """Return the published config of a file. Raises `InputError` for an architecture that is not known, and for
    metadata that lack something.
    """
    architecture, where = file.metadata.get(ARCHITECTURE), str(file.path)
    found = [(name, one) for name, one in FAMILIES.items() if one.architecture == architecture and one.is_of is not None
             and one.is_of(file)]
    if not found:
        raise InputError(f"{ARCHITECTURE} {str(architecture)[:40]!r} is not known", where=where,
                         remedy=suggest_name(str(architecture)[:40], sorted(KNOWN_AS)))
    model_type, family = found[0]
    table = file.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise InputError("token_embd.weight is missing, or no table", where=where, remedy="copy the file again")
    document: Document = {"model_type": model_type, "architectures": [family.published], "vocab_size": table.shape[0],
                          "tie_word_embeddings": True}  # an output layer that differs is found when weights are read
    for name, entry in family.entries.items():
        document[entry.published] = read_entry(file, f"{architecture}.{name}", entry, document)
    if document.get("num_local_experts", 0) > MOST_EXPERTS:
        raise InputError(f"expert_count is {document['num_local_experts']:,}", where=where,
                         remedy="copy the file again")
    document |= family.more(file, document)
    named = {field: file.count(f"tokenizer.ggml.{word}_token_id") for field, word in SPECIAL.items()}
    return document | {field: number for field, number in named.items() if number is not None}


def read_entry(file: GgufFile, name: str, entry: Entry, document: Document) -> Any:
    """Return the value of a field. Raises `InputError` where a file must say it and does not, or says nonsense."""
    default = document.get(entry.default) if isinstance(entry.default, str) else entry.default
    if entry.kind is None:
        value = file.metadata.get(name, default)
        if not isinstance(value, bool):
            raise InputError(f"{name} is {str(value)[:40]!r}, and must be true or false", where=str(file.path),
                             remedy="copy the file again")
        return value
    found = file.count(name, default) if entry.kind == U32 else file.number(name, default)
    if found is None:
        raise InputError(f"the metadata have no {name}", where=str(file.path), remedy="copy the file again")
    return found


class GgufWeights:
    """The tensors of a file under their published names, without the prefix of the body.

    A matrix that was taken into the model is no longer among the names.
    """

    def __init__(self, file: GgufFile, document: Mapping[str, Any]) -> None:
        """Find the names; `document` is what `read_document` gives. Raises `InputError` for unknown tensors."""
        self.file, self.where = file, str(file.path)
        family = FAMILIES[document["model_type"]]
        rules, ignored = Rules(family.names(document)), [compile_pattern(one) for one in family.ignored]
        self.places: dict[str, tuple[Rule, int]] = {}
        self.taken: set[str] = set()
        faults = []
        for name in file.tensors:
            rule = rules.match(name)
            if rule is None and not any(one.match(name) for one in ignored):
                faults.append(f"{name} is unknown")
            for place, published in enumerate(() if rule is None else rule.foreign):
                if published in self.places:
                    faults.append(f"{name} and {self.places[published][0].ours} hold the same")
                elif rule is not None:
                    self.places[published] = rule, place
        if faults:
            more = f", and {len(faults) - 3:,} more" if len(faults) > 3 else ""
            raise InputError(f"{'; '.join(faults[:3])}{more}", where=self.where,
                             remedy="it may change the numbers, so it is not ignored")

    @property
    def size(self) -> int:
        """Bytes of all numbers, were they in two bytes each at least."""
        return sum(max(2 * one.numel, one.nbytes) for one in self.file.tensors.values())

    def dtype(self) -> torch.dtype:
        """Return the number format that holds every weight exactly."""
        found = {one.blocks.decode(torch.zeros(1, one.blocks.nbytes, dtype=torch.uint8).numpy()).dtype
                 for one in self.file.tensors.values()}
        return reduce(torch.promote_types, found)

    def predict_bytes(self, dtype: torch.dtype) -> int:
        """Return what all numbers need in memory in a number format, with the widest tensor once more while it is read.
        """
        sizes = [one.numel * dtype.itemsize for one in self.file.tensors.values()]
        return sum(sizes) + max(sizes, default=0)

    def __contains__(self, name: object) -> bool:
        """Say whether there is a tensor of this name."""
        return name in self.places

    def __iter__(self) -> Iterator[str]:
        """Name the tensors that are not in the model yet."""
        return (name for name in self.places if name not in self.taken)

    def __getitem__(self, name: str) -> Tensor:
        """Return a tensor. Raises `KeyError` for an unknown name and `InputError` for one that does not fit."""
        rule, _ = self.places[name]
        return self.take(name, self.file.read(rule.ours))

    def take(self, name: str, stored: Tensor) -> Tensor:
        """Return what a published name means, of the tensor that holds it; rows may be codes or their scales as well.
        """
        rule, place = self.places[name]
        try:
            return rule.operation.theirs(stored)[place].contiguous()
        except (RuntimeError, ValueError, IndexError) as error:
            raise InputError(f"{rule.ours} is {list(stored.shape)}, which the metadata contradict", where=self.where,
                             remedy="the file is damaged; copy it again") from error

    def write(self, name: str, target: Tensor) -> None:
        """Write a tensor into memory of its shape. Raises as `[]`, and `ValueError` for another shape."""
        target.copy_(check_shape(self[name], target))


def gather_tensors(published: Mapping[str, Tensor], family: GgufFamily, document: Mapping[str, Any]
                   ) -> tuple[dict[str, tuple[Rule, list[Tensor]]], dict[str, Tensor]]:
    """Return what makes each tensor of a file, and those that no rule has; names are without the body's prefix."""
    patterns = [(rule, place, compile_pattern(one)) for rule in family.names(document)
                for place, one in enumerate(rule.foreign)]
    found: dict[str, tuple[Rule, dict[int, Tensor]]] = {}
    rest: dict[str, Tensor] = {}
    for name, tensor in published.items():
        hit = next(((rule, place, match.groupdict()) for rule, place, one in patterns if (match := one.match(name))),
                   None)
        if hit is None:
            rest[name] = tensor
        else:
            rule, place, values = hit
            found.setdefault(rule.ours.format(**values), (rule, {}))[1][place] = tensor
    return {name: (rule, [parts[place] for place in sorted(parts)]) for name, (rule, parts) in found.items()}, rest


WIDE = ("token_types.weight", "position_embd.weight", "_norm.weight", "attn_rel_b.weight", "ffn_gate_inp.weight",
        "rope_freqs.weight")
"""Ends of names of tensors that llama.cpp wants in float32."""
TABLES = ("token_embd.weight", "output.weight")
STORED = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F32"}
"""Number format of a tensor -> GGUF's, where it is written as it is."""
FORMATS = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "q8_0": "Q8_0", "q4_0": "Q4_0"}
"""What a person asks for -> GGUF's number format."""
FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 7, "BF16": 32}
"""Number format of most tensors -> what llama.cpp calls such a file."""


def choose_kind(name: str, shape: tuple[int, ...], dtype: torch.dtype, form: str) -> str:
    """Return the number format of a tensor: `form` for matrices, float32 for what llama.cpp wants so.

    `form`: a key of `FORMATS`, or "stored". Tables are in eight bits where maps are in four. Rows that do not divide
    into blocks are in float16.
    """
    if len(shape) < 2 or name.endswith(WIDE):
        return "F32"
    wanted = STORED[dtype] if form == "stored" else FORMATS[form]
    wanted = "Q8_0" if wanted == "Q4_0" and name in TABLES else wanted
    return wanted if shape[-1] % BLOCKS[KINDS[wanted]].count == 0 else "F16"


def store_gathered(name: str, rule: Rule, parts: list[Tensor], form: str) -> tuple[str, StoredTensor]:
    """Return the number format and the tensor of a file that published ones make."""
    with torch.device("meta"):
        made = rule.operation.ours([torch.empty(part.shape) for part in parts])
    kind = choose_kind(name, tuple(made.shape), parts[0].dtype, form)
    encode = BLOCKS[KINDS[kind]].encode
    assert encode is not None, "all that is written can be"
    return kind, StoredTensor(tuple(made.shape), KINDS[kind], lambda: encode(
        rule.operation.ours([part.detach().cpu() for part in parts]).float().contiguous()))


def write_metadata(family: GgufFamily, document: Document) -> dict[str, Any]:
    """Return the metadata of a published config, without the tokenizer."""
    found: dict[str, Any] = {ARCHITECTURE: family.architecture}
    for name, entry in family.entries.items():
        value = document.get(entry.published)
        if value is None:
            value = document.get(entry.default) if isinstance(entry.default, str) else entry.default
        if value is not None:
            found[f"{family.architecture}.{name}"] = value if entry.kind is None else Typed(value, entry.kind)
    return found | family.extra(document)


@dataclass(frozen=True, slots=True)
class Expressed:
    """What goes into a file."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]
    kinds: Mapping[str, str]
    """Tensor -> number format."""
    notes: tuple[str, ...]
    """What the file has otherwise than the model, in words."""


def express_tensors(published: Mapping[str, Tensor], document: Document, form: str) -> Expressed:
    """Return what a file holds of a published model; names are without the body's prefix.

    Raises `InputError` for a tensor that llama.cpp has no place for.
    """
    family = FAMILIES[document["model_type"]]
    reduced, notes = family.reduce(document)
    gathered, rest = gather_tensors(published, family, reduced)
    lost: dict[str, int] = {}
    for name, tensor in rest.items():
        words = next((said for template, said in family.dropped.items() if compile_pattern(template).match(name)), None)
        if words is None:
            raise InputError(f"{name} has no place in a GGUF file of {family.architecture}", where="model",
                             remedy="llama.cpp does not compute it; export it as onnx")
        lost[words] = lost.get(words, 0) + tensor.numel()
    stored = {name: store_gathered(name, rule, parts, form) for name, (rule, parts) in gathered.items()}
    tensors = {name: one for name, (_, one) in stored.items()}
    kinds = {name: kind for name, (kind, _) in stored.items()}
    for name, tensor in family.made(reduced).items():
        kinds[name], tensors[name] = store_gathered(name, Rule(name, name), [tensor], form)
    most = max(FILE_TYPES, key=lambda one: sum(kind == one != "F32" for kind in kinds.values()))
    metadata = {**write_metadata(family, reduced), "general.file_type": Typed(FILE_TYPES[most], U32),
                "general.quantization_version": Typed(2, U32)}
    dropped = tuple(f"left out: {words} ({number:,} numbers)" for words, number in lost.items())
    return Expressed(metadata, tensors, kinds, (*notes, *dropped))
