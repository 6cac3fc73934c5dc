"""The page of `saucier attention --text`: head view, model view and neuron view, in one file that opens offline.

Numbers are packed: weights as whole numbers of 16 bits, queries and keys likewise with a factor for each head, all in
base64. The only script that the page's policy lets run is the one written here. After BertViz (Vig 2019,
arXiv:1906.05714); what it draws comes from `lens.attention_weights`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from saucier.lens.attention_weights import AttentionWeights, Numbers, SoftmaxInput, Tokens
from saucier.lens.head_roles import HeadRole
from saucier.report.page import TEMPLATES, render_page

FULL = 65535
"""What a weight of 1 is packed as."""
HALF = 32767
"""What the largest number of a head is packed as."""


def render_attention(model: str, attentions: Sequence[AttentionWeights], roles: Sequence[HeadRole],
                     notes: Sequence[str]) -> str:
    """Return the page, as text."""
    script = (TEMPLATES / "attention.js").read_text(encoding="utf-8").strip()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    texts = {one.side: one.rows for one in attentions}
    return render_page("attention.html", title=f"attention of {model}", model=model, roles=roles, notes=notes,
                       texts=texts, script=Markup(script),
                       policy=Markup(f"; script-src 'sha256-{digest}'"), data=pack_attentions(attentions))


def pack_attentions(attentions: Sequence[AttentionWeights]) -> dict[str, Any]:
    """Return what the script reads."""
    labels: dict[Tokens, int] = {}
    for one in attentions:
        for tokens in (one.rows, one.columns):
            labels.setdefault(tokens, len(labels))
    return {"tokens": [{"names": one.names, "special": [int(mark) for mark in one.special], "segments": one.segments}
                       for one in labels],
            "attentions": [pack_attention(one, labels[one.rows], labels[one.columns]) for one in attentions]}


def pack_attention(one: AttentionWeights, rows: int, columns: int) -> dict[str, Any]:
    """Return one attention; a weight above zero is never packed as zero, for zero says that a key is not seen."""
    packed = np.clip(np.rint(one.weights * FULL), 0, FULL)
    packed[(one.weights > 0) & (packed == 0)] = 1
    return {"side": one.side, "layer": one.layer, "kernel": one.kernel, "heads": one.heads, "rows": rows,
            "columns": columns, "weights": encode_numbers(packed.astype("<u2")),
            "softmax": None if one.softmax is None else pack_softmax(one.softmax)}


def pack_softmax(entered: SoftmaxInput) -> dict[str, Any]:
    """Return queries, keys and what positions add."""
    bias = entered.bias
    hidden = None if bias is None else np.where(np.isfinite(bias) & (np.abs(bias) < 1e4), bias, 0.0).astype(np.float32)
    return {"width": entered.queries.shape[-1], "scale": entered.scale, "other": entered.other_rows,
            "queries": pack_numbers(entered.queries), "keys": pack_numbers(entered.keys),
            "bias": None if hidden is None else pack_numbers(hidden)}


def pack_numbers(values: Numbers) -> dict[str, Any]:
    """Return numbers with a factor for each head. Shapes: [H, ...]."""
    largest = np.abs(values).reshape(len(values), -1).max(axis=1)
    factors = np.where(largest > 0, largest / HALF, 1.0)
    packed = np.rint(values / factors.reshape(-1, *(1,) * (values.ndim - 1))).astype("<i2")
    return {"factors": [float(one) for one in factors], "values": encode_numbers(packed)}


def encode_numbers(values: np.ndarray[Any, Any]) -> str:
    """Return the bytes of numbers as text."""
    return base64.b64encode(values.tobytes()).decode()
