"""The programs that open exports: llama.cpp, CTranslate2 and ONNX Runtime, each through its Python package, where that
is installed.

Letters: L tokens, V vocabulary, D dim.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saucier import config as c
from saucier.errors import InputError
from saucier.folders.load import load
from saucier.generation.generate import generate
from saucier.jobs.export.proof import Engine, run
from saucier.machine import count_cores
from saucier.text.tokenizer.tokenizer import Tokenizer, load_tokenizer

PACKAGES = {"gguf": "llama-cpp-python", "ctranslate2": "ctranslate2", "onnx": "onnxruntime"}
"""Kind of export -> the package whose engine opens it."""
MODULES = {"llama-cpp-python": "llama_cpp"}
SILENT: list[Any] = []
"""What llama.cpp calls instead of writing to the terminal: it must live as long as the process."""
THREADS = max(1, count_cores() // 2)
"""Of llama.cpp, which spin while they wait: as many as there are cores would wait for each other on a busy machine."""
CONTEXT = 128
"""Tokens that llama.cpp makes room for."""


def open_engine(kind: str, place: Path, config: c.Transformer, tokenizer: Tokenizer | None) -> Engine | None:
    """Open an export in the engine that it is for; None where that is not installed."""
    package = PACKAGES[kind]
    if find_spec(MODULES.get(package, package)) is None:
        return OwnReader(place) if kind == "gguf" else None
    match kind:
        case "gguf":
            return LlamaCpp(place, config)
        case "ctranslate2":
            return CTranslate2(place, config, tokenizer)
        case _:
            return OnnxRuntime(place, config)


class OwnReader:
    """Our own reader of GGUF files, where llama.cpp is not there."""

    name = "our own reader"

    def __init__(self, place: Path) -> None:
        """Open a file."""
        self.model = load(place, dtype="float32", device="cpu")
        self.tokenizer = load_tokenizer(place) if self.model.provenance.origin is not None and \
            self.model.provenance.origin.tokenizer is not None else None

    def ids(self, text: str) -> list[int] | None:
        """Split a text."""
        return None if self.tokenizer is None else self.tokenizer.encode(text)

    def outputs(self, ids: Sequence[int]) -> Tensor | None:
        """Run the model."""
        return run(self.model, ids)

    def write(self, ids: Sequence[int], count: int) -> list[int] | None:
        """Write greedily."""
        row = generate(self.model, torch.tensor([list(ids)]), max_new_tokens=count, do_sample=False, num_beams=1)[0]
        return row.tolist()[1 if self.model.config.encoder is not None else len(ids):]

    def close(self) -> None:
        """Do nothing: Python frees it."""


class LlamaCpp:
    """llama.cpp through llama-cpp-python."""

    def __init__(self, place: Path, config: c.Transformer) -> None:
        """Open a file. Raises `InputError` where llama.cpp does not."""
        self.api: Any = import_module("llama_cpp")
        self.name = f"llama.cpp (llama-cpp-python {version('llama-cpp-python')})"
        SILENT.append(self.api.llama_log_callback(lambda level, text, data: None))
        self.api.llama_log_set(SILENT[-1], ctypes.c_void_p(0))
        self.pair, self.encoder = config.encoder is not None and config.decoder is not None, config.decoder is None
        pooling = {"pooling_type": self.api.LLAMA_POOLING_TYPE_NONE} if self.encoder else {}
        try:
            self.model: Any = self.api.Llama(str(place), n_ctx=CONTEXT, logits_all=True, embedding=self.encoder,
                                             verbose=False, n_threads=THREADS, n_threads_batch=THREADS, **pooling)
        except (ValueError, RuntimeError) as error:
            raise InputError(f"llama.cpp does not open it ({error})", where=str(place),
                             remedy="report this: the file was written from what this version of llama.cpp reads"
                             ) from error
        self.vocab = int(self.model.n_vocab())

    def ids(self, text: str) -> list[int] | None:
        """Split a text."""
        return list(self.model.tokenize(text.encode(), add_bos=True, special=False))

    def outputs(self, ids: Sequence[int]) -> Tensor | None:
        """Run the model."""
        if self.encoder:
            found = self.vectors(ids)
        elif self.pair:
            self.encode(ids)
            found = self.decode(ids)
        else:
            self.model.reset()
            self.model.eval(list(ids))
            found = np.array(self.model.scores[:len(ids)])
        return torch.from_numpy(found).float()

    def write(self, ids: Sequence[int], count: int) -> list[int] | None:
        """Write greedily, until an end."""
        found: list[int] = []
        if self.pair:
            self.encode(ids)
        else:
            self.model.reset()
            self.model.eval(list(ids))
        written = [max(int(self.api.llama_model_decoder_start_token(self.model._model.model)), 0)]
        while len(found) < count:
            scores = self.decode(written)[-1] if self.pair else self.model.scores[self.model.n_tokens - 1]
            found.append(int(np.argmax(scores)))
            if found[-1] == self.model.token_eos():
                break
            if self.pair:
                written.append(found[-1])
            else:
                self.model.eval(found[-1:])
        return found

    def close(self) -> None:
        """Free its memory."""
        self.model.close()

    def encode(self, ids: Sequence[int]) -> None:
        """Let the encoder read."""
        context = self.model._ctx.ctx
        self.api.llama_memory_clear(self.api.llama_get_memory(context), True)
        batch = self.fill(ids)
        self.api.llama_encode(context, batch)
        self.api.llama_batch_free(batch)

    def decode(self, ids: Sequence[int]) -> np.ndarray[Any, Any]:
        """Return the logits of all tokens, read anew. Shapes: -> [L, V]."""
        context = self.model._ctx.ctx
        self.api.llama_memory_clear(self.api.llama_get_memory(context), True)
        batch = self.fill(ids)
        self.api.llama_decode(context, batch)
        rows = [np.ctypeslib.as_array(self.api.llama_get_logits_ith(context, place), (self.vocab,)).copy()
                for place in range(len(ids))]
        self.api.llama_batch_free(batch)
        return np.stack(rows)

    def vectors(self, ids: Sequence[int]) -> np.ndarray[Any, Any]:
        """Return the vectors of all tokens. Shapes: -> [L, D]."""
        context = self.model._ctx.ctx
        batch = self.fill(ids)
        self.api.llama_encode(context, batch)
        rows = [np.ctypeslib.as_array(self.api.llama_get_embeddings_ith(context, place),
                                      (int(self.model.n_embd()),)).copy() for place in range(len(ids))]
        self.api.llama_batch_free(batch)
        return np.stack(rows)

    def fill(self, ids: Sequence[int]) -> Any:
        """Return a batch of one row of which every token gives an output."""
        batch = self.api.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for place, number in enumerate(ids):
            batch.token[place], batch.pos[place], batch.logits[place] = number, place, 1
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, 0
        return batch


class CTranslate2:
    """CTranslate2."""

    def __init__(self, place: Path, config: c.Transformer, tokenizer: Tokenizer | None) -> None:
        """Open a folder."""
        api: Any = import_module("ctranslate2")
        self.api, self.name = api, f"CTranslate2 {version('ctranslate2')}"
        self.pair, self.encoder = config.encoder is not None and config.decoder is not None, config.decoder is None
        kind = api.Translator if self.pair else api.Encoder if self.encoder else api.Generator
        self.model: Any = kind(str(place), device="cpu", intra_threads=count_cores())
        self.tokenizer = tokenizer

    def ids(self, text: str) -> list[int] | None:
        """Say nothing: the engine does not split texts."""
        return None

    def outputs(self, ids: Sequence[int]) -> Tensor | None:
        """Run the model; an encoder-decoder gives no logits."""
        if self.pair:
            return None
        found = self.model.forward_batch([list(ids)])
        found = found.last_hidden_state if self.encoder else found
        return torch.from_numpy(np.array(found))[0].float()

    def write(self, ids: Sequence[int], count: int) -> list[int] | None:
        """Write greedily."""
        if self.tokenizer is None:
            return None
        names = [str(self.tokenizer.id_to_token(number)) for number in ids]
        if self.pair:
            found = self.model.translate_batch([names], max_decoding_length=count, beam_size=1)[0].hypotheses[0]
        else:
            found = self.model.generate_batch([names], max_length=count, sampling_topk=1,
                                              include_prompt_in_result=False)[0].sequences[0]
        numbers = [self.tokenizer.target.token_to_id(name) for name in found]
        return [number for number in numbers if number is not None]

    def close(self) -> None:
        """Do nothing: Python frees it."""


class OnnxRuntime:
    """ONNX Runtime."""

    def __init__(self, place: Path, config: c.Transformer) -> None:
        """Open a folder with `model.onnx`."""
        api: Any = import_module("onnxruntime")
        self.name = f"ONNX Runtime {version('onnxruntime')}"
        self.session: Any = api.InferenceSession(str(place / "model.onnx"), providers=["CPUExecutionProvider"])
        self.inputs = [one.name for one in self.session.get_inputs()]
        self.writes = config.encoder is None and config.language_head is not None

    def ids(self, text: str) -> list[int] | None:
        """Say nothing: the graph does not split texts."""
        return None

    def outputs(self, ids: Sequence[int]) -> Tensor | None:
        """Run the graph."""
        row = np.array([list(ids)], dtype=np.int64)
        values = {"attention_mask": np.ones_like(row), "token_type_ids": np.zeros_like(row)}
        found = self.session.run(None, {name: values.get(name, row) for name in self.inputs})[0]
        tensor = torch.from_numpy(found).float()
        return tensor[0] if tensor.dim() == 3 else tensor

    def write(self, ids: Sequence[int], count: int) -> list[int] | None:
        """Write greedily, reading all again for each token."""
        if not self.writes:
            return None
        row = list(ids)
        for _ in range(count):
            found = self.outputs(row)
            assert found is not None, "the graph gives logits"
            row.append(int(found[-1].argmax()))
        return row[len(ids):]

    def close(self) -> None:
        """Do nothing: Python frees it."""
