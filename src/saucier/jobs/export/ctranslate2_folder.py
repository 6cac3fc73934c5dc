"""A model as a folder of CTranslate2, by the package's own converter, from the published layout."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from saucier.errors import InputError
from saucier.files import write_atomically
from saucier.folders.save import save_bare
from saucier.model import Transformer
from saucier.text.tokenizer.tokenizer import Tokenizer

NUMBER_FORMATS: Mapping[str, str] = {"float32": "float32", "float16": "float16", "bfloat16": "bfloat16",
                                     "int8": "int8"}
"""What a person asks for -> what CTranslate2 calls it."""
FAMILIES = ("bart", "bert", "bloom", "camembert", "distilbert", "gpt2", "gptj", "llama", "m2m_100", "mistral", "mt5",
            "opt", "roberta", "t5", "xlm-roberta")
"""`model_type` of those of our layouts that its converter opens, and whose tokens are the same after it."""


def write_ctranslate2(model: Transformer, tokenizer: Tokenizer | None, place: Path, form: str
                      ) -> tuple[str, Mapping[str, int], tuple[str, ...]]:
    """Write a folder in a number format; "stored" keeps the model's.

    Raises `InputError` without the packages, without a tokenizer, and for a family that CTranslate2 has not.
    """
    if missing := [name for name in ("ctranslate2", "transformers") if find_spec(name) is None]:
        raise InputError(f"this needs {' and '.join(missing)}", where="--to ctranslate2",
                         remedy="pip install 'saucier[export]'")
    if tokenizer is None:
        raise InputError("there is no tokenizer, whose tokens CTranslate2 writes into its folder", where="--to",
                         remedy="put the model's tokenizer into its folder")
    if model.config.decoder is None and model.config.head is not None:
        raise InputError(f"CTranslate2 gives an encoder's vectors, and has no {model.config.head.kind} head",
                         where="--to ctranslate2", remedy="give --head none, or export it as onnx")
    api: Any = import_module("ctranslate2.converters")
    with TemporaryDirectory(prefix="saucier-export-") as made:
        folder = Path(made) / "model"
        family = str(save_bare(model, folder, layout="published"))
        if family not in FAMILIES:
            raise InputError(f"CTranslate2 has no {family}", where="--to ctranslate2",
                             remedy=f"known: {', '.join(FAMILIES)}; or export it as onnx")
        fill_roles(tokenizer).save(folder)

        def write(temporary: Path) -> None:
            """Convert, without the reference library's own lines on the screen."""
            said: Any = import_module("transformers.utils.logging")
            said.disable_progress_bar()
            said.set_verbosity_error()
            try:
                api.TransformersConverter(str(folder)).convert(str(temporary), quantization=NUMBER_FORMATS.get(form))
            except (ValueError, KeyError, NotImplementedError, AttributeError, RuntimeError) as error:
                raise InputError(f"CTranslate2's converter does not take it: {str(error)[:200]}",
                                 where="--to ctranslate2", remedy="export it as onnx") from error
            tokenizer.save(temporary)

        write_atomically(place, write)
    return family, {}, ()


def fill_roles(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer that has the tokens without which CTranslate2 opens no folder; the end stands for others."""
    names = tokenizer.names
    instead = next((names[role] for role in ("eos", "bos", "unk", "pad") if role in names), None)
    if instead is None:
        return tokenizer
    return Tokenizer(tokenizer.backend, {**dict.fromkeys(("unk", "bos", "eos"), instead), **names},
                     clean_up=tokenizer.clean_up, handling=tokenizer.handling)
