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
PROFILED = ("bert-base", "distilbert", *QUICK_SHAPES)
"""Those of which is told what the time goes to."""
PRODUCTS = ("addmm", "mm", "bmm", "_linear_pointwise", "_scaled_dot_product_flash_attention_for_cpu")
"""Operators that are matrix products, and attention, which is the same kernel of torch on both sides."""
PASSES = 3
"""Passes that are profiled."""


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


def settings_of(name: str, folder: Path, dtype: str) -> dict[str, Any]:
    """Return what a contender is told."""
    return BATCH | {"folder": str(folder), "dtype": dtype, "model": SHAPES[name][1],
                    "both": "Conditional" in SHAPES[name][1]}


def share_of_products(turn: Turn) -> float:
    """Return the share of products and attention in the time of a pass, on one thread."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        turn()
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            for _ in range(PASSES):
                turn()
    finally:
        torch.set_num_threads(threads)
    spent = {event.key.split("::")[-1]: event.self_cpu_time_total for event in seen.key_averages()}
    return float(sum(spent.get(name, 0.0) for name in PRODUCTS) / sum(spent.values()))


def profiled(name: str, folder: Path) -> str:
    """Tell the shares of both sides, of a folder that was written."""
    told = []
    for dtype in ("float32", "bfloat16"):
        settings = settings_of(name, folder, dtype)
        ours, theirs = (share_of_products(prepare(settings)) for prepare in CONTENDERS.values())
        told.append(f"in {dtype} {ours:.1%} of our time and {theirs:.1%} of theirs")
    return f"{name}: matrix products and attention are {'; '.join(told)} (one thread, `torch.profiler`)."


def compared(name: str, folder: Path, quick: bool) -> list[Row]:
    """Return one row for each number format."""
    write(name, folder)
    rows = []
    for dtype in ("float32", "bfloat16"):
        settings = settings_of(name, folder, dtype)
        found = race("benchmarks.families", dict.fromkeys(CONTENDERS, settings), TRIED if quick else 5)
        ours, theirs = found["saucier"], found["transformers"]
        rows.append(at_least(f"{name}, {dtype}", f"{ours:,.0f}", f"{theirs:,.0f}", ours / theirs, 1.0))
    return rows


def measure(quick: bool) -> Section:
    """Compare every shape."""
    rows, notes = [], []
    for name in QUICK_SHAPES if quick else SHAPES:
        with tempfile.TemporaryDirectory() as place:
            rows += compared(name, Path(place) / "model", quick)
            if name in PROFILED:
                notes.append(profiled(name, Path(place) / "model"))
    about = (f"Published shapes with random weights, saved by `transformers` and opened by both; {BATCH['texts']} "
             f"texts of {BATCH['length']} tokens without padding, forward with the head. Tokens a second.")
    return Section("One forward pass, family by family", about, rows, notes)
