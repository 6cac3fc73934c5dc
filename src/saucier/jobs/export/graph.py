"""A model as a graph of ONNX, whose batch and length are free."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.adaptation.quantization.maps import is_quantized
from saucier.adaptation.quantization.storage import dequantize_model
from saucier.errors import InputError
from saucier.files import write_atomically, write_json
from saucier.folders.save import choose_layout
from saucier.model import Transformer
from saucier.text.tokenizer.tokenizer import Tokenizer

NEEDED = ("onnx", "onnxscript")
FAMILIES = ("albert", "bert", "bert-generation", "bloom", "camembert", "ctrl", "deberta", "deberta-v2", "distilbert",
            "electra", "fnet", "gpt2", "gpt_neo", "gpt_neox", "gptj", "llama", "mistral", "mobilebert", "modernbert",
            "mpnet", "openai-gpt", "opt", "roberta", "roformer", "xlm", "xlm-roberta")
"""`model_type` of the layouts whose models give the same numbers as graphs, with padding and at other lengths. Those
whose attention is another computation for long texts (BigBird, Longformer) are not among them.
"""


class Answer(nn.Module):
    """A model that gives one tensor of its output."""

    def __init__(self, model: Transformer, names: tuple[str, ...], output: str) -> None:
        """`names`: of the inputs, in order."""
        super().__init__()
        self.model, self.names, self.output = model, names, output

    def forward(self, *inputs: Tensor) -> Tensor:
        """Shapes: inputs [B, L] each -> [B, L, V], [B, L, D] or [B, N]."""
        found: Tensor = getattr(self.model(**dict(zip(self.names, inputs, strict=True))), self.output)
        return found


def write_graph(model: Transformer, tokenizer: Tokenizer | None, place: Path, form: str
                ) -> tuple[str, Mapping[str, int], tuple[str, ...]]:
    """Write `model.onnx` in float32 with its tokenizer and `inputs.json`.

    Raises `InputError` without the packages, and for a model that cannot be traced.
    """
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise InputError(f"this needs {' and '.join(missing)}", where="--to onnx",
                         remedy="pip install 'saucier[export]'")
    config = model.config
    if config.encoder is not None and config.decoder is not None:
        raise InputError("a model with two stacks is not written as a graph", where="--to onnx",
                         remedy="export it as ctranslate2, or as gguf where llama.cpp knows its family")
    family = choose_layout(model, "auto")[1]
    if family not in FAMILIES:
        raise InputError(f"{family} is not written as a graph", where="--to onnx",
                         remedy=f"known: {', '.join(FAMILIES)}")
    notes = ("its matrices in few bits were widened first",) if is_quantized(model) else ()
    model = (dequantize_model(model) if notes else model).float().eval()
    names = ("input_ids", "attention_mask", *(("token_type_ids",) if config.embed.segments is not None and
                                              config.encoder is not None else ()))
    output = choose_output(config)
    free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", min=2)}
    ids = torch.arange(2 * 7).reshape(2, 7) % min(config.embed.vocab, 5)
    values = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}

    def write(temporary: Path) -> None:
        temporary.mkdir(parents=True)
        try:
            logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns of packages that it could use
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")  # of the exporter, about itself
                torch.onnx.export(Answer(model, names, output), tuple(values[name] for name in names),
                                  temporary / "model.onnx", input_names=list(names), output_names=[output],
                                  dynamo=True, dynamic_shapes=(tuple(free for _ in names),), verbose=False)
        except Exception as error:  # the exporter raises dozens of kinds
            raise InputError(f"PyTorch's exporter cannot trace this model: {str(error).strip().splitlines()[0][:200]}",
                             where="--to onnx", remedy="export it as ctranslate2 or gguf") from error
        write_json(temporary / "inputs.json", {"inputs": list(names), "output": output})
        if tokenizer is not None:
            tokenizer.save(temporary)

    write_atomically(place, write)
    no_cache = ("the graph keeps no cache: each token reads all before it again",) if config.decoder is not None else ()
    return family, {}, (*notes, *no_cache)


def choose_output(config: c.Transformer) -> str:
    """Return which part of a model's output the graph gives."""
    return "last_hidden_state" if config.head is None else "embeddings" if isinstance(
        config.head, c.EmbeddingHead) else "logits"


