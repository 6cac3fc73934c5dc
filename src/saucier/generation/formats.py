"""A loaded model in the number format that inference reads its matrices in: one that is named, or `auto`.

`auto` takes what `saucier bench` chose for this model on this machine; without that, a decoder's format as it is
stored, which loses nothing, and of other models the own parts.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch

from saucier.errors import InputError, WorkError, expect, suggest_name
from saucier.files import write_json
from saucier.generation.decoding import Native
from saucier.generation.feeds import prediction_kind
from saucier.generation.native_encoder import use_native
from saucier.generation.native_model import PartTables, check_lowered, convert_weights, kernel_threads
from saucier.model import Transformer
from saucier.native.encoding import lower_stack
from saucier.native.library import load_library
from saucier.native.lowered import (
    SETTINGS,
    KeptTables,
    LoweredModel,
    Packed,
    count_kept_places,
    remember_lowered,
)
from saucier.native.matrices import Format, Matrix, Panels, Weights, is_in_few_bits
from saucier.native.packed import (
    OWN_PARTS,
    Made,
    digest_files,
    keep_packed,
    name_choice,
    name_packed,
    read_choice,
    read_packed,
)

Choice = Literal["auto"] | Format
CHOICES: tuple[str, ...] = ("auto", *get_args(Format))


def check_format(form: object) -> None:
    """Raise `InputError` for what is no format."""
    expect(form, str, "format", f"give one of {', '.join(CHOICES)}")
    if form not in CHOICES:
        raise InputError(f"unknown format {form!r}", where="format", remedy=suggest_name(str(form), list(CHOICES)))


def writes_tokens(model: Transformer) -> bool:
    """Say whether a model writes texts token by token, so that all of its decoder is one plan."""
    config = model.config
    return config.decoder is not None and config.language_head is not None and prediction_kind(config).kind == "next"


def use_format(model: Transformer, form: str, *, widest: torch.dtype = torch.float32) -> Transformer | None:
    """Return a loaded model as inference reads it in a format; None where `auto` leaves it to the model's own parts.

    A model that writes stays itself, and `saucier.generate` and `evaluate` read it so; any other becomes the view that
    `use_native` gives. `widest`: the format in which it is stored. What `auto` takes is said by one warning where that
    is not a format. Raises `InputError` for a format that the model cannot take, naming the part.
    """
    check_format(form)
    if form != "auto":
        return set_format(model, cast(Format, form))
    place = find_choice(model)
    chosen = None if place is None else read_choice(place)
    if chosen is None and not writes_tokens(model):
        warnings.warn("format auto: not measured on this machine yet, so the model's own parts; `saucier bench` "
                      "measures and chooses", stacklevel=3)
    lossless = "bfloat16" if widest == torch.bfloat16 else "float32"
    chosen = chosen or (lossless if writes_tokens(model) else OWN_PARTS)
    if chosen == OWN_PARTS:
        return None
    try:
        return set_format(model, cast(Format, chosen))
    except InputError as error:
        warnings.warn(f"format auto: the model's own parts, since {error.what}", stacklevel=3)
        return None


def use_few_bits(model: Transformer) -> None:
    """Let kernels read a model that writes, is stored in few bits, and was loaded without a format: its own parts widen
    every matrix for every token. Where they cannot, one warning names the part.
    """
    free = model.format is None and model.device.type == "cpu"
    if free and writes_tokens(model) and is_in_few_bits(model.state_dict()):
        use_format(model, "auto")


def set_format(model: Transformer, form: Format) -> Transformer:
    """Return a model in a named format. Raises `InputError`."""
    try:
        load_library()
        view = prepare(model, Native(format=form))
    except InputError as error:
        raise InputError(error.what, where="format", remedy="leave it out, or use auto") from error
    except WorkError as error:
        raise InputError(error.what, where="format", remedy="pip install ziglang, or leave the format out") from error
    view.format = form
    return view


def prepare(model: Transformer, engine: Native) -> Transformer:
    """Lower a model; its matrices come from the user's cache folder, or go there. Raises `InputError`."""
    check_lowered(model)
    path = find_packed(model, engine.format)
    kept = {} if path is None else read_packed(path)
    if writes_tokens(model):
        prepare_decoder(model, engine, path, kept)
        return model
    made = convert_weights(model, engine, kept)
    view = use_native(model, engine)
    keep_packed(path, engine.format, list_made(made.weights), kept)
    return view


def prepare_decoder(model: Transformer, engine: Native, path: Path | None, kept: Made) -> None:
    """Lower a model that writes; of a decoder alone all that its plan reads is kept, for starts without torch.

    Raises `InputError`.
    """
    weights = convert_weights(model, engine, kept).weights
    alone = path is not None and model.config.encoder is None
    tables = KeptTables(weights.made, PartTables, count_kept_places(model.config)) if alone else PartTables()
    lowered = LoweredModel(model.config, weights, tables, model.generation)
    lowered.plan(1)
    if model.config.encoder is not None:
        with suppress(InputError):  # its own parts then read the sources
            lower_stack(model.config, weights, tables, 1)
    rounded = list_made(weights)
    if keep_packed(path, engine.format, weights.made if alone and rounded else rounded, kept):
        assert path is not None, "there it is kept"
        weights.made.update(read_packed(path))  # from here on the memory that other processes share
    stored = model.provenance.stored
    digest = digest_model(model)
    if path is not None and alone and rounded and stored is not None and digest is not None:
        folder = Path(stored.state.path)
        if (stored.head, stored.base, stored.separate) == ("auto", None, False) and (
                folder.is_file() or (folder / SETTINGS[0]).is_file()):  # of GGUF, or of a folder
            files = [Path(name) for name, _, _ in stored.state.files]
            remember_lowered(folder, files, lowered, Packed(path, digest))


def list_made(weights: Weights) -> dict[str, Any]:
    """Return the matrices that are worth a file: rounded ones, and those in few bits, which are slow to lay out."""
    own: set[int] = {id(array) for array in weights.arrays.values()}

    def is_rounded(key: str, one: Matrix | Panels) -> bool:
        return one.scales is not None or one.format != weights.stored_format(key.partition(" ")[0])

    return {key: one for key, one in weights.made.items()
            if isinstance(one, Matrix | Panels) and id(one.codes) not in own and is_rounded(key, one)}


def digest_model(model: Transformer) -> str | None:
    """Return a digest of the files that a model was loaded from; None where they are not there any more, or were none.
    """
    stored = model.provenance.stored
    return digest_files(stored.state.files) if stored is not None and stored.state.is_current else None


def find_packed(model: Transformer, form: Format) -> Path | None:
    """Return where a model's matrices in a format are kept; None where none is rounded."""
    if (form == "float32" and not is_in_few_bits(model.state_dict())) or (digest := digest_model(model)) is None:
        return None
    return name_packed(digest, model.config.model_dump_json(), form)


def find_choice(model: Transformer) -> Path | None:
    """Return where the choice for a model is kept; None for one that has no files."""
    digest = digest_model(model)
    threads = kernel_threads()
    return None if digest is None else name_choice(digest, model.config.model_dump_json(), threads)


def write_choice(model: Transformer, choice: dict[str, Any]) -> Path | None:
    """Keep the choice for a model, with why; return where."""
    path = find_choice(model)
    if path is not None:
        write_json(path, choice)
    return path

