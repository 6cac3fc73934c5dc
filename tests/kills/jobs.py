"""The smallest job of each verb that writes, and the files that they read."""

from __future__ import annotations

import json
from pathlib import Path

SMALL = ("model.dim=16", "model.heads=2", "model.layers=1")
QUICK = ("training.batch=4", "training.dtype=float32", "training.events=off", "training.log_every=1",
         "training.evaluate_every=1", "training.keep=1")
SPECIAL = "{pad: <pad>, unk: <unk>, bos: <s>, eos: </s>, single: $A </s>}"
JOBS: dict[str, tuple[str, ...]] = {
    "cook": ("cook", "transformer-nano", "--data", "pairs.tsv", "--out", "out", "--no-calibrate", *SMALL, *QUICK,
             "tokenizer.vocab=60", f"target_tokenizer={{kind: bytes, special: {SPECIAL}}}", "training.steps=3",
             "training.average=2",
             "sampling.samples=1", "sampling.tokens=4", "sampling.prompts=[]", "evaluation.baselines=[]"),
    "finetune": ("finetune", "classification", "--model", "bert", "--data", "train.tsv", "--held-out", "dev.tsv",
                 "--out", "out", "training.epochs=1", "training.batch=4", "training.dtype=float32"),
    "search": ("finetune", "classification", "--model", "bert", "--data", "train.tsv", "--held-out", "dev.tsv",
               "--out", "out", "--search", "3", "--find-rate", "range_test.steps=10", "training.epochs=2",
               "training.batch=4", "training.dtype=float32"),
    "compare": ("compare", "gpt-nano", "llama-nano", "--data", "text.txt", "--out", "out", "--seeds", "1", "--budget",
                "tokens=64", "--threads", "1", *SMALL, "llama-nano:model.kv_heads=1", "tokenizer.vocab=290",
                "training.length=16", "training.batch=2", "training.dtype=float32", "data.document=line"),
    "clean": ("clean", "crawl-*.jsonl", "--rules", "c4", "--out", "out"),
    "prompt": ("prompt", "task.yaml", "--model", "gpt2", "--shots", "0,1", "--out", "out"),
    "convert": ("convert", "bert", "out", "--to", "own"),
    "merge": ("merge", "lora", "--base", "gpt2", "--out", "out"),
    "compress": ("compress", "chain.yaml", "--model", "tuned", "--data", "train.tsv", "--held-out", "dev.tsv", "--out",
                 "out", "measure.memory=false", "measure.rounds=3", "measure.rows=4", "measure.batches=[1]"),
    "backtranslate": ("backtranslate", "t5", "text.txt", "--out", "out.tsv", "--limit", "4", "--beams", "2"),
}


def write_inputs(folder: str) -> int:
    """Write all that the jobs read."""
    import torch

    from saucier import finetune, load
    from saucier.adaptation.rewrite import list_trainable, rewrite
    from saucier.adaptation.tuning import Lora
    from saucier.families.bert import bert
    from saucier.families.gpt2 import gpt2
    from saucier.families.t5 import t5
    from saucier.folders.save import save_adapter
    from saucier.model import build
    from saucier.text.config import ByteBPE, Unigram, WordPiece
    from saucier.text.tokenizer.training import train_tokenizer

    torch.manual_seed(0)
    place = Path(folder)
    lines = [f"{who} {does} {what}." for who in ("the cook", "a guest", "the cat")
             for does in ("stirs", "tastes", "spills") for what in ("the sauce", "some soup", "milk")]
    (place / "text.txt").write_text("\n".join(lines) + "\n")
    (place / "pairs.tsv").write_text("there\tback\n" + "".join(f"{one}\t{one[::-1]}\n" for one in lines))
    rows = [("good" if number % 2 else "bad", one) for number, one in enumerate(lines)]
    for name, some in (("train.tsv", rows[:12]), ("dev.tsv", rows[12:20])):
        (place / name).write_text("label\ttext\n" + "".join(f"{label}\t{text}\n" for label, text in some))
    for name in "ab":
        pages = [f"Home\nThe cook of day {number} stirs the sauce in a large pot. He tastes it {number} times. It "
                 f"needs salt, and table {number} waits." for number in range(3)]
        (place / f"crawl-{name}.jsonl").write_text("".join(json.dumps({"text": one}) + "\n" for one in pages))
    (place / "rows.tsv").write_text("who\twhat\nthe cook\tsauce\na guest\tsoup\nthe cat\tmilk\n")
    (place / "task.yaml").write_text(
        'name: kitchen\nevaluate: rows.tsv\ntrain: rows.tsv\ntemplate: "{{ who }} stirs the"\n'
        'answer: " {{ answer }}"\ngold: what\nseparator: "\\n"\nchoices: [sauce, soup, milk]\n')
    for name, kind, family in (("bert", WordPiece(vocab=64), bert), ("gpt2", ByteBPE(vocab=270), gpt2),
                               ("t5", Unigram(vocab=27), t5)):
        known = train_tokenizer(kind, lines)
        more = {"head_dim": 8} if family is t5 else {"length": 48}
        build(family(dim=16, layers=1, heads=2, hidden=32, vocab=known.vocab_size, dropout=0.0, **more),
              seed=1).save(place / name)
        known.save(place / name)
    finetune("classification", ["training.epochs=1", "training.dtype=float32"], model=place / "bert",
             data=place / "train.tsv", held_out=place / "dev.tsv", out=place / "tuned", quiet=True)
    (place / "chain.yaml").write_text(
        "name: chain\nkeep: 0.01\nsteps:\n"
        "  - {kind: distil, layers: [0, 0], training: {epochs: 1, batch: 4, dtype: float32}}\n"
        "  - {kind: prune, by: {kind: neurons, share: 0.5, score: {kind: magnitude}}}\n"
        "  - {kind: prune, by: {kind: gates, aim: {kind: penalty, weight: 0.1}}, training: {epochs: 1, batch: 4}}\n"
        "  - {kind: quantize, by: {kind: quantization_aware}, training: {epochs: 1, batch: 4}}\n")
    tuned = rewrite(load(place / "gpt2", dtype="float32", device="cpu"), by=Lora(rank=2))
    for one in list_trainable(tuned).values():
        torch.nn.init.normal_(one)
    save_adapter(tuned, place / "lora")
    return 0


def be_rank(rank: int, port: str, folder: str, work: str) -> int:
    """Be one of two processes of a group: train for a long time, or wait for the first one."""
    import os
    import time

    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    from tests.unit.training.toy import gpt, recipe, study

    from saucier.training.loop import train
    from saucier.training.processes import join_processes

    if work == "train":
        train(gpt(), study(), recipe(100_000), run_folder=Path(folder) / "run", reporters=[])
        return 0
    with join_processes() as processes:
        (Path(folder) / f"rank-{rank}").touch()
        if processes.first:
            time.sleep(600)  # packs a long text
        processes.wait()
    return 0
