"""One forward pass of eight published shapes, each family against `transformers` on the same weights.

Letters: B texts, L length.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.race import TRIED, Contender, Turn, race
from benchmarks.section import Row, Section, at_least

SHAPES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert-base": ("BertConfig", "BertForMaskedLM", {}),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {}),
    "t5-small": ("T5Config", "T5ForConditionalGeneration", {}),
    "bart-base": ("BartConfig", "BartForConditionalGeneration", {
        "d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 12,
        "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072}),
    "distilbert": ("DistilBertConfig", "DistilBertForMaskedLM", {}),
    "electra-small": ("ElectraConfig", "ElectraForPreTraining", {}),
    "albert-base": ("AlbertConfig", "AlbertForMaskedLM", {
        "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}),
    "deberta-v3-small": ("DebertaV2Config", "DebertaV2ForMaskedLM", {
        "vocab_size": 128100, "hidden_size": 768, "num_hidden_layers": 6, "num_attention_heads": 12,
        "intermediate_size": 3072, "relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm",
        "share_att_key": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "type_vocab_size": 0,
        "max_relative_positions": -1}),
}
"""Name -> config class, model class and the fields of the published size that are not the class's defaults."""
BATCH = {"texts": 4, "length": 128}
QUICK_SHAPES = ("electra-small",)


def write(name: str, folder: Path) -> None:
    """Write a model of this shape with random weights, as `transformers` publishes it."""
    import torch
    import transformers as reference

    config, model, fields = SHAPES[name]
    torch.manual_seed(0)
    getattr(reference, model)(getattr(reference, config)(**fields)).save_pretrained(folder)


def timed(model: Any, settings: Mapping[str, Any]) -> Turn:
    """Return a turn: one forward pass, in tokens a second."""
    import torch

    torch.manual_seed(0)
    ids = torch.randint(10, 1000, (settings["texts"], settings["length"]))
    both = {"decoder_input_ids": ids} if settings["both"] else {}

    def turn() -> float:
        begin = time.perf_counter()
        with torch.inference_mode():
            model(ids, **both)
        return ids.numel() / (time.perf_counter() - begin)

    turn()
    return turn


def saucier(settings: dict[str, Any]) -> Turn:
    """Our model of the folder."""
    from saucier import load

    return timed(load(settings["folder"], dtype=settings["dtype"], device="cpu"), settings)


def transformers(settings: dict[str, Any]) -> Turn:
    """Theirs, with the attention that it chooses by itself."""
    import torch
    import transformers as reference

    model = getattr(reference, settings["model"]).from_pretrained(settings["folder"],
                                                                  dtype=getattr(torch, settings["dtype"]))
    return timed(model.eval(), settings)


CONTENDERS: dict[str, Contender] = {"saucier": saucier, "transformers": transformers}


def compared(name: str, folder: Path, quick: bool) -> list[Row]:
    """Return one row for each number format."""
    write(name, folder)
    rows = []
    for dtype in ("float32", "bfloat16"):
        settings = BATCH | {"folder": str(folder), "dtype": dtype, "model": SHAPES[name][1],
                            "both": "Conditional" in SHAPES[name][1]}
        found = race("benchmarks.families", dict.fromkeys(CONTENDERS, settings), TRIED if quick else 5)
        ours, theirs = found["saucier"], found["transformers"]
        rows.append(at_least(f"{name}, {dtype}", f"{ours:,.0f}", f"{theirs:,.0f}", ours / theirs, 1.0))
    return rows


def measure(quick: bool) -> Section:
    """Compare every shape."""
    rows = []
    for name in QUICK_SHAPES if quick else SHAPES:
        with tempfile.TemporaryDirectory() as place:
            rows += compared(name, Path(place) / "model", quick)
    about = (f"Published shapes with random weights, saved by `transformers` and opened by both; {BATCH['texts']} "
             f"texts of {BATCH['length']} tokens without padding, forward with the head. Tokens a second.")
    return Section("One forward pass, family by family", about, rows)
