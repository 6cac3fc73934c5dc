"""`export`: a model written for llama.cpp (GGUF), CTranslate2 or ONNX Runtime, and compared with what it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from saucier.adaptation.quantization.maps import is_quantized
from saucier.adaptation.quantization.storage import dequantize_model
from saucier.checkpoints.gguf_weights import FORMATS
from saucier.checkpoints.hub import resolve_folder
from saucier.errors import InputError, expect, expect_texts, suggest_name
from saucier.files import refuse_taken, refuse_unwritable, write_json
from saucier.folders.kinds import find_tokenizer, identify_folder
from saucier.folders.load import load
from saucier.folders.write_gguf import write_gguf_model
from saucier.jobs.export.ctranslate2_folder import NUMBER_FORMATS, write_ctranslate2
from saucier.jobs.export.engines import PACKAGES, open_engine
from saucier.jobs.export.graph import write_graph
from saucier.jobs.export.proof import SAME_KL, Proof, prove, read_texts
from saucier.model import Transformer
from saucier.plain import format_bytes
from saucier.result import Result
from saucier.text.tokenizer.tokenizer import Tokenizer, load_tokenizer

PROOF = "proof.json"
"""What was compared, in the folder of an export, or next to its file."""


@dataclass(frozen=True, slots=True)
class Exported(Result):
    """What was written, and how it compares."""

    path: Path
    kind: str
    """gguf, ctranslate2 or onnx."""
    family: str
    """`model_type` of the model's published layout."""
    parameters: int
    size: int
    """Bytes of all files."""
    formats: Mapping[str, int]
    """Number format -> tensors in it, where they are counted."""
    notes: tuple[str, ...]
    """What the export has otherwise than the model, in words."""
    format: str
    """The number format that was asked for."""
    proof: Proof | None
    unproved: str | None
    """Why the engine itself did not say it, and how it can."""

    @property
    def failed(self) -> bool:
        """Whether an export in float32 gives other distributions."""
        return self.format == "float32" and self.proof is not None and (self.proof.divergence or 0.0) > SAME_KL

    def view(self) -> str:
        """Say what was written and compared."""
        formats = ", ".join(f"{count} tensors in {name}" for name, count in self.formats.items())
        lines = [f"{self.kind}: {self.family}, {self.parameters:,} parameters, {format_bytes(self.size)}"
                 f"{f', {formats}' if formats else ''} → {self.path}", *self.notes]
        lines += [*(self.proof.lines() if self.proof else ()), *([self.unproved] if self.unproved else [])]
        return "\n".join([*lines, *(["it is not the same model"] if self.failed else [])])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self) | {"path": str(self.path)}


Write = Callable[[Transformer, Tokenizer | None, Path, str], tuple[str, Mapping[str, int], tuple[str, ...]]]
"""Writes a model into a place in a number format; gives the family, the tensors in each format, and notes."""


def to_gguf(model: Transformer, tokenizer: Tokenizer | None, place: Path, form: str
            ) -> tuple[str, Mapping[str, int], tuple[str, ...]]:
    """Write a GGUF file."""
    found = write_gguf_model(model, place, form=form, tokenizer=tokenizer)
    return found.family, found.formats, found.notes


KINDS: Mapping[str, tuple[Write, tuple[str, ...], str]] = {
    "gguf": (to_gguf, tuple(FORMATS), ".gguf"),
    "ctranslate2": (write_ctranslate2, tuple(NUMBER_FORMATS), "-ctranslate2"),
    "onnx": (write_graph, ("float32",), "-onnx")}
"""Kind -> what writes it, its number formats, and how its name ends."""


def export(source: str | Path, target: Path | None = None, *, to: str, form: str = "stored", head: str = "auto",
           texts: Sequence[str] = ()) -> Exported:
    """Write a model for another engine, and compare.

    `source`: whatever `saucier.load` takes; `target`: a new file (gguf) or folder; None: named after the source, in the
    current folder. `form`: a number format of the kind, or "stored". `texts`: files to compare on.
    Raises `InputError` for a target that is there already, a kind or a format that is unknown, and a model that the
    engine has no place for.
    """
    expect(to, str, "to", f"give {', '.join(KINDS)}")
    expect_texts(texts, "texts")
    if to not in KINDS:
        raise InputError(f"unknown kind {to!r}", where="--to", remedy=suggest_name(to, [*KINDS]))
    write, formats, ending = KINDS[to]
    if form not in ("stored", *formats):
        raise InputError(f"{to} has no number format {form!r}", where="--format",
                         remedy=suggest_name(form, ["stored", *formats]))
    folder = resolve_folder(source)
    place = Path(f"{folder.absolute().name.removesuffix('.gguf')}{ending}") if target is None else Path(target)
    refuse_unwritable(place, folder=to != "gguf")
    refuse_taken(place)
    lines = read_texts(texts)
    tokenizer = load_tokenizer(folder) if find_tokenizer(identify_folder(folder)) is not None else None
    model = load(folder, head=head, dtype="stored", device="cpu")
    family, written, notes = write(model, tokenizer, place, form)
    reference = load(folder, head=head, dtype="float32", device="cpu")
    if is_quantized(reference):
        reference = dequantize_model(reference)
    engine = open_engine(to, place, reference.config, tokenizer)
    proof = None if engine is None else prove(reference, tokenizer, engine, lines)
    if engine is not None:
        engine.close()
    package = PACKAGES[to]
    unproved = None if engine is not None and engine.name != "our own reader" else (
        f"{'' if engine is None else 'llama.cpp itself did not open it; '}to have it compared by its own engine, "
        f"`pip install {package}` and export again")
    found = Exported(place, to, family, sum(one.numel() for one in reference.parameters()), count_bytes(place), written,
                     notes, form, proof, unproved)
    write_json(place.with_name(f"{place.name}.{PROOF}") if place.is_file() else place / PROOF, found.to_dict())
    return found


def count_bytes(place: Path) -> int:
    """Return the bytes of a file, or of all files of a folder."""
    files = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files)
