"""An adapter merged into its base, after a comparison of both on text.

Letters: B texts, L tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saucier import config as c
from saucier.adaptation.lora import list_named_pairs, refuse_unmergeable
from saucier.adaptation.lora import merge as merge_weights
from saucier.checkpoints.hub import resolve_folder
from saucier.errors import InputError
from saucier.files import refuse_taken, write_atomically
from saucier.folders.kinds import find_model_folder
from saucier.folders.load import load, open_adapter
from saucier.folders.save import save_bare
from saucier.jobs.finetuning.start import name_labels
from saucier.jobs.finetuning.task_folder import copy_task
from saucier.model import Transformer
from saucier.opened import room
from saucier.report.card import find_facts, name_base, write_card
from saucier.result import Result
from saucier.tasks.written.task import pad_rows
from saucier.text.reading.documents import read_documents
from saucier.text.tokenizer.folder import copy_tokenizer
from saucier.text.tokenizer.tokenizer import Tokenizer, load_tokenizer

SENTENCES = (
    "The committee published its report on Monday, three weeks later than promised.",
    "She asked whether the soup was hot enough, and he said that it was.",
    "Prices rose by 4.2 % in March; economists had expected half of that.",
    "In 1905 a clerk in Bern wrote four papers that changed physics.",
)
"""What both are compared on where no text is given."""
MOST, LENGTH = 16, 64
"""Texts that are compared, and tokens of each."""


@dataclass(frozen=True, slots=True)
class Merged(Result):
    """What a merge did."""

    folder: Path
    layout: str
    pairs: int
    """Maps that a pair of matrices changed."""
    texts: int
    tokens: int
    difference: float
    """Largest difference between an output with the adapter separate and one with it merged."""
    size: float
    """Largest output."""
    effect: float | None
    """Largest difference to the base model's outputs; None where these are of another kind."""
    agreeing: float | None
    """Share of the places at which both find the same token likeliest; None for a model that gives no tokens."""

    def view(self) -> str:
        """Say what was compared and written."""
        without = "" if self.effect is None else f"; without the adapter it is {self.effect:.2g}"
        lines = [f"{self.texts} texts, {self.tokens:,} tokens, apart and merged: the largest difference of an output "
                 f"is {self.difference:.2g}, of outputs up to {self.size:.2g}{without}"]
        if self.agreeing is not None:
            lines.append(f"the likeliest token is the same at {self.agreeing:.2%} of the places")
        return "\n".join([*lines, f"merged, {self.pairs} maps changed, layout {self.layout} → {self.folder}"])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self) | {"folder": str(self.folder)}


def merge_adapter(adapter: Path, out: Path, *, base: str | None = None, text: Path | None = None) -> Merged:
    """Merge an adapter into its base, compare, and write the result into a new folder.

    Raises `InputError` for an adapter that is no sum of weights, and for a target that is there already.
    """
    refuse_taken(out)
    folder = find_model_folder(resolve_folder(adapter))
    model = open_adapter(folder, base=base, dtype="float32", device="cpu")
    refuse_unmergeable(model)
    origin = model.provenance.path
    assert origin is not None, "an opened adapter knows its base"
    batch = batch_inputs(model, load_adapter_tokenizer(folder, Path(origin)), text)
    separate = compare_outputs(model, batch)
    pairs = len(list_named_pairs(model))
    merge_weights(model)
    model.provenance = replace(model.provenance, rewrites=())
    merged, mask = compare_outputs(model, batch), predicted_positions(batch)
    bare = compare_outputs(load(base or origin, dtype="float32", device="cpu"), batch)
    name_labels(model, folder)
    layout = ""

    def write(place: Path) -> None:
        nonlocal layout
        layout = str(save_bare(model, place))
        write_card(place, model.config, replace(find_facts(folder), base=name_base(origin)))
        copy_task(folder, place)
        copy_tokenizer(folder, place) or copy_tokenizer(Path(origin), place)

    write_atomically(out, write)
    agreeing = None if model.config.language_head is None else \
        float((separate.argmax(-1) == merged.argmax(-1)).float().mean())
    effect = largest_difference(bare, merged) if bare.shape == merged.shape else None
    return Merged(out, layout, pairs, len(mask), int(mask.sum()), largest_difference(separate, merged),
                  float(merged.abs().max()), effect, agreeing)


def load_adapter_tokenizer(folder: Path, base: Path) -> Tokenizer | None:
    """Return the tokenizer of an adapter or of its base; None where neither has one."""
    for place in (folder, base):
        with suppress(InputError):
            return load_tokenizer(place)
    return None


def batch_inputs(model: Transformer, tokenizer: Tokenizer | None, text: Path | None) -> dict[str, Tensor]:
    """Return texts as a batch; without a tokenizer ids that are drawn. Shapes: [B, L]."""
    lines = SENTENCES if text is None else (line for one in read_documents([str(text)])
                                            for line in one.text.splitlines() if line.strip())
    texts = list(islice(lines, MOST))
    if not texts:
        raise InputError("there is no text to compare on", where=str(text), remedy="give a file with lines of text")
    config = model.config
    ids, mask = batch_ids(texts, tokenizer, config, config.input_embed.vocab)
    if config.encoder is None or config.decoder is None:
        return {"input_ids": ids, "attention_mask": mask}
    written, real = batch_ids(texts, tokenizer and tokenizer.target, config, config.output_embed.vocab)
    return {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": written, "decoder_attention_mask": real}


def batch_ids(texts: Sequence[str], tokenizer: Tokenizer | None, config: c.Transformer,
              vocab: int) -> tuple[Tensor, Tensor]:
    """Return texts as ids, or ids that are drawn, and what of them is real. Shapes: -> [B, L], [B, L]."""
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(vocab, (16,), generator=generator).tolist() if tokenizer is None
            else tokenizer.encode(one)[:room(config, LENGTH)] for one in texts]
    return pad_rows(rows, 0, left=False)


def compare_outputs(model: Transformer, batch: dict[str, Tensor]) -> Tensor:
    """Return what a model gives at the real tokens, or for each text."""
    with torch.inference_mode():
        output: Any = model.eval()(**batch)
    found: Tensor = output.last_hidden_state if output.logits is None else output.logits
    return found[predicted_positions(batch)] if found.dim() == 3 else found


def predicted_positions(batch: dict[str, Tensor]) -> Tensor:
    """Return where a model says something of a real token. Shapes: -> [B, L]."""
    return batch.get("decoder_attention_mask", batch["attention_mask"]).bool()


def largest_difference(one: Tensor, other: Tensor) -> float:
    """Return the largest difference."""
    return float((one - other).abs().max())
