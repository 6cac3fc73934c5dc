"""The job of `saucier attention MODEL --text`: a text in, what every head of a trained model attends to out.

As tables for a terminal, a page with views of heads, layers and neurons, or one heat map as a picture.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType

from saucier.errors import InputError
from saucier.files import is_file, write_text
from saucier.jobs.run.language_pairs import Direction, read_direction
from saucier.jobs.writing.writer import BEAMS, Writer
from saucier.lens.attention_weights import (
    AttendedText,
    AttentionWeights,
    Side,
    Tokens,
    find_attention,
)
from saucier.lens.head_roles import HeadRole, describe_heads, roles_table
from saucier.lens.heat_map import SUFFIXES, HeatMap, clean_labels, save_picture
from saucier.model import Transformer
from saucier.opened import OpenModel, open_model, room
from saucier.report.attention_page import render_attention
from saucier.result import Result
from saucier.table import Table
from saucier.text.tokenizer.model_inputs import LengthOptions, encode_rows
from saucier.text.tokenizer.tokenizer import Tokenizer

PAGE = ".html"
COMMON = ("model", "best", "last", "checkpoints")
"""Names of folders that say nothing of the model inside."""
MOST_LAYERS = 6
"""Layers that a table of the terminal shows next to each other."""
STRONGEST = 3
"""Tokens that are named for each token, where one layer is shown."""
BLANK = {"\n": "⏎", "\t": "⇥", "": "␣"}
"""How blanks are shown."""


@dataclass(frozen=True, slots=True)
class Attention(Result):
    """What a model attends to in a text."""

    model: str
    attentions: tuple[AttentionWeights, ...]
    roles: tuple[HeadRole, ...]
    notes: tuple[str, ...] = ()
    """What was cut, left out or written by the model itself."""
    file: Path | None = None
    """The page or picture that was written."""

    def view(self) -> RenderableType:
        """Return where it was written; or for each side what its tokens attend to most, and what its heads do."""
        if self.file is not None:
            heads = sum(len(one.weights) for one in self.attentions)
            kinds = " and ".join(dict.fromkeys(one.side for one in self.attentions))
            return "\n".join([*self.notes, f"{self.file}: {len(self.attentions)} layers, {heads} heads, {kinds}"])
        sides = [[*group] for _, group in groupby(self.attentions, key=lambda one: one.side)]
        return Group(*self.notes, *map(strongest_table, sides), roles_table(self.roles))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: tokens, weights of every head, and what each head does."""
        return {"model": self.model, "attentions": [{
            "side": one.side, "layer": one.layer, "kernel": one.kernel, "heads": list(one.heads),
            "rows": list(one.rows.names), "columns": list(one.columns.names),
            "weights": np.round(one.weights.astype(float), 6).tolist()} for one in self.attentions],
            "heads": [one.as_json() for one in self.roles], "notes": list(self.notes),
            "file": None if self.file is None else str(self.file)}

    def _repr_html_(self) -> str:
        """Return the page, in a frame of its own."""
        page = html.escape(render_attention(self.model, self.attentions, self.roles, self.notes))
        return f'<iframe srcdoc="{page}" style="width:100%;height:52rem;border:0"></iframe>'


@dataclass(frozen=True, slots=True)
class TextRequest:
    """What a person wants to see of a text."""

    text: str
    second: str | None = None
    """The second text of a pair, of an encoder."""
    target: str | None = None
    """What the decoder of an encoder-decoder reads; None: what it writes itself."""
    length: int = 64
    """The most tokens of each side."""
    side: Side | None = None
    layer: int | None = None
    head: int | None = None
    global_tokens: int = 1
    prefix: int | None = None


def attend_to_text(model: str, request: TextRequest, *, base: str | None = None,
                   languages: tuple[str | None, str | None] = (None, None), out: Path | None = None) -> Attention:
    """Return what a trained model attends to in a text; with `out` as a page, or as a picture of one layer or head.

    Raises `InputError` for a model without weights, a text that is empty, and a layer or head that is not there.
    """
    refuse_request(model, request, out)
    opened = open_model(Path(model), dtype="float32", base=base, check=partial(refuse_unread, model, request))
    text, notes = encode_request(opened, request, read_direction(opened, *languages))
    whole = find_attention(opened.model, text, layer=request.layer)
    chosen = choose_attentions(whole.attentions, request)
    name = name_model(model)
    roles = tuple(role for one in chosen for role in describe_heads(one))
    found = Attention(name, chosen, roles, (*notes, *whole.notes), out)
    if out is not None and out.suffix == PAGE:
        write_text(out, render_attention(name, chosen, found.roles, found.notes))
    elif out is not None:
        save_picture(draw_one(name, chosen, request), out)
    return found


def name_model(path: str) -> str:
    """Return what a page calls a model: the end of its path, and the folder before where that is as in every run."""
    parts = Path(path).absolute().parts if Path(path).exists() else Path(path).parts
    return "/".join(parts[-2:] if parts[-1] in COMMON or not Path(path).exists() else parts[-1:])


def refuse_request(model: str, request: TextRequest, out: Path | None) -> None:
    """Raise `InputError` for what can be seen without opening the model."""
    if not request.text.strip():
        raise InputError("the text is empty", where="text", remedy="give some text")
    if out is not None and out.suffix not in (PAGE, *SUFFIXES):
        raise InputError(f"cannot draw a {out.suffix or 'file without suffix'}", where=str(out),
                         remedy=f"use {PAGE} for a page with all heads, or {', '.join(SUFFIXES)} for a picture of one")
    if "/" not in model and not Path(model).exists():
        from saucier.recipes import names

        if model in names():
            raise InputError("a recipe has no trained weights, so it attends to nothing in a text", where=model,
                             remedy="give a model's folder or a run; or leave out the text, and see the pattern")
    elif is_file(Path(model)):
        raise InputError("is a file, and no model", where=model, remedy="give a model's folder, or a run")


def refuse_unread(name: str, request: TextRequest, model: Transformer) -> None:
    """Raise `InputError` for texts that a model does not read."""
    config = model.config
    paired = config.encoder is not None and config.decoder is not None
    if request.target is not None and not paired:
        raise InputError("only an encoder-decoder reads a target", where="target", remedy="leave it out")
    if request.second is not None and (paired or config.encoder is None):
        raise InputError("a decoder reads one text", where="second",
                         remedy="give the text that it writes as target" if paired else "put both into one text")
    if request.side is not None and not (paired if request.side == "cross" else getattr(config, request.side)):
        raise InputError(f"has no {request.side} attention", where=name,
                         remedy="leave out side, and see what there is")


def encode_request(opened: OpenModel, request: TextRequest, way: Direction | None) -> tuple[AttendedText, list[str]]:
    """Return what the model reads, and notes about what was cut or written."""
    most = room(opened.model.config, request.length)
    source, cut = encode_source(opened, request, way, most)
    notes = [f"the text has {len(source.ids) + cut:,} tokens, of which {len(source.ids):,} are read"] if cut else []
    if not source.ids:
        raise InputError("has no token", where="text", remedy="give another text")
    target = None
    if opened.is_encoder_decoder:
        target, said = encode_target(Writer(opened, opened.trained_length(most), way), request, most)
        notes += said
    return AttendedText(source, target, request.global_tokens, request.prefix or 0), notes


def encode_source(opened: OpenModel, request: TextRequest, way: Direction | None, most: int) -> tuple[Tokens, int]:
    """Return the tokens of what is given, and how many were cut."""
    tokenizer = opened.tokenizer
    if way is not None or opened.model.config.encoder is None:
        ids = Writer(opened, most, way).start(request.text)
        return name_tokens(tokenizer, ids[:most]), max(0, len(ids) - most)
    pairs = None if request.second is None else [request.second]
    [row] = encode_rows(tokenizer, [request.text], pairs, LengthOptions(most, "longest", "longest_first"))
    return name_tokens(tokenizer, row.ids, row.types), row.cut


def encode_target(writer: Writer, request: TextRequest, most: int) -> tuple[Tokens, list[str]]:
    """Return what the decoder has read when it predicts each token of a target, and notes."""
    tokenizer, way = writer.opened.tokenizer, writer.direction
    target, notes = request.target, list[str]()
    if target is None:
        target = writer.translate([request.text], {"num_beams": BEAMS})[0]
        notes = [f"the model's own target: {target}"]
    written = tokenizer.target.encode(target) if way is None else way.written(target, tokenizer)
    if len(written) > most:
        notes.append(f"the target has {len(written):,} tokens, of which {most:,} are read")
    start = (writer.special_tokens | writer.target_start)["decoder_start_token_id"]
    return name_tokens(tokenizer.target, [start, *written[:most][:-1]]), notes


def name_tokens(tokenizer: Tokenizer, ids: Sequence[int], segments: Sequence[int] = ()) -> Tokens:
    """Return tokens as a person reads them."""
    special = {*tokenizer.special_ids}
    return Tokens(tuple(name_token(tokenizer, one) for one in ids), tuple(ids), tuple(one in special for one in ids),
                  tuple(segments) or (0,) * len(ids))


def name_token(tokenizer: Tokenizer, number: int) -> str:
    """Return a token's text; its piece of the vocabulary where that is part of a character."""
    text = tokenizer.decode([number], skip_special_tokens=False)
    if "\ufffd" in text:
        return clean_labels([tokenizer.id_to_token(number) or str(number)])[0]
    return text.strip() or BLANK.get(text.strip(" "), BLANK[""])


def choose_attentions(found: Sequence[AttentionWeights], request: TextRequest) -> tuple[AttentionWeights, ...]:
    """Return the side and the head that a person wants to see, or all. Raises `InputError` where there is none."""
    chosen = [one for one in found if request.side in (None, one.side)]
    if not chosen:
        raise InputError(f"there is no {request.side} attention in layer {request.layer}", where="side",
                         remedy="leave out side or layer")
    if request.head is None:
        return tuple(chosen)
    kept = tuple(one.one_head(request.head) for one in chosen if request.head < len(one.weights))
    if not kept:
        raise InputError(f"there is no head {request.head}", where="head",
                         remedy=f"heads are 0 to {max(len(one.weights) for one in chosen) - 1}")
    return kept


def draw_one(model: str, found: Sequence[AttentionWeights], request: TextRequest) -> HeatMap:
    """Return the map of one attention: of one head, or the mean of all; the last layer where none is named."""
    one = found[-1]
    heads = f"head {request.head}" if request.head is not None else f"mean of {len(one.weights)} heads"
    return HeatMap(one.rows.names, one.columns.names, tuple(map(tuple, one.weights.mean(0).tolist())),
                   f"{model}: {one.side}, layer {one.layer}, {heads}")


def strongest_table(found: Sequence[AttentionWeights]) -> Table:
    """Return for each token what it attends to most: by layer, or of one layer its strongest three; means of heads."""
    first, step = found[0], -(-len(found) // MOST_LAYERS)
    alike = [one for one in found if one.rows == first.rows]
    shown = alike[::step]
    names = [f"layer {one.layer}" for one in shown] if len(shown) > 1 else ["looks at", *[""] * (STRONGEST - 1)]
    count = 1 if len(shown) > 1 else STRONGEST
    rows = []
    for place, name in enumerate(first.rows.names):
        cells = [name]
        for one in shown:
            row = one.weights.mean(0)[place]
            best = np.argsort(-row, kind="stable")[:count]
            cells += [f"{one.columns.names[key]} {row[key]:.2f}" for key in best] + [""] * (count - len(best))
        rows.append(cells)
    few = "" if len(shown) == len(found) else f"; {len(shown)} of {len(found)} layers"
    which = f"layer {first.layer}, " if len(shown) == 1 else ""
    heads = f"head {first.heads[0]}" if len(first.heads) == 1 else f"mean of {len(first.heads)} heads"
    return Table((first.side, *names), rows, caption=f"{which}{heads}{few}")

