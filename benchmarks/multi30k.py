"""Multi30k, English to German, from scratch: BLEU on test_2016_flickr after at most an hour on this machine; then what
a vocabulary map costs and saves where the native engine translates, and what the heads of each attention are worth.
"""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.cooking import cooked, needed, plan_note, saucier
from benchmarks.section import Row, Section, at_most
from benchmarks.tuned import named

NAME = "multi30k.en-de.{}.tsv"
QUICK = ["training.steps=60", "training.evaluate_every=60", "training.schedule.warmup=5", "training.batch=32",
         "evaluation.limit=8", "model.dim=32", "--no-calibrate"]
QUICK_ROWS = 32
TARGET = 33.0
"""BLEU, beam 4."""
ATTENTIONS = {"encoder": "encoder.blocks.*.attention", "decoder": "decoder.blocks.*.attention",
              "cross": "decoder.blocks.*.cross"}
"""Name of an attention -> its places."""
HALF = {name: f"{{kind: heads, share: 0.5, score: {{kind: {name}}}" for name in (
    "importance", "confidence", "relevance", "ablation", "magnitude")}
ONE = {"all but one": "{kind: heads, share: 0.75, scope: {kind: layer}, score: {kind: alone}"}
LEARNED = {"importance, learned again": HALF["importance"],
           "gates": "{kind: gates, aim: {kind: target, share: 0.5}"}
"""Which heads of four go, without and with an epoch of learning: what `by:` of a step begins with."""


def read_texts(path: Path, limit: int | None = None) -> list[tuple[str, str]]:
    """Read the sources and targets of a table."""
    with path.open(encoding="utf-8", newline="") as file:
        return [(row["en"], row["de"]) for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)][:limit]


def compare_maps(run: Path, train: Path, test: Path, *, limit: int | None = None, form: Any = "int8") -> list[Row]:
    """Translate with four beams by the native engine, with all tokens and with candidates from the training pairs."""
    import numpy as np
    import sacrebleu

    from saucier.generation import Native, build_vocabulary_map
    from saucier.jobs.writing.batches import make_batch_writer
    from saucier.opened import open_model

    opened = open_model(run)
    tokenizer, vocab, told = opened.tokenizer, opened.model.config.output_embed.vocab, read_texts(test, limit)
    sides = [tokenizer.encode_batch(texts) for texts in zip(*read_texts(train), strict=True)]
    found = build_vocabulary_map(zip(*sides, strict=True), target_vocab=vocab,
                                 source_vocab=opened.model.config.input_embed.vocab)
    found.save(file := run / "vocabulary_map.safetensors")
    lists = [found.find_candidates(np.array(tokenizer.encode(source))) for source, _ in told]
    known = [np.isin(tokenizer.encode(target), one) for (_, target), one in zip(told, lists, strict=True)]
    told = sorted(told, key=lambda pair: len(pair[0]))  # so that little is padded
    scores, seconds = [], []
    for path in (None, str(file)):
        options = {"num_beams": 4, "engine": Native(format=form, vocabulary_map=path)}
        begin, writer = time.perf_counter(), make_batch_writer(opened)
        texts = [text for start in range(0, len(told), 32)
                 for text in writer.translate([source for source, _ in told[start:start + 32]], options)]
        seconds.append(time.perf_counter() - begin)
        scores.append(sacrebleu.corpus_bleu(texts, [[target for _, target in told]]).score)
    return [Row(f"BLEU, native {form}, all {vocab} tokens", f"{scores[0]:.2f}"),
            Row(f"the same with a vocabulary map, {np.mean([len(one) for one in lists]):.0f} candidates a source",
                f"{scores[1]:.2f}", f"{scores[0]:.2f}"),
            Row("tokens of the references that are candidates", f"{np.concatenate(known).mean():.2%}"),
            Row("seconds to translate, all tokens, against with the map", f"{seconds[1]:.1f}", f"{seconds[0]:.1f}",
                seconds[0] / seconds[1])]


def list_ways(quick: bool) -> Iterator[str]:
    """Yield the alternatives of a grid: heads of each attention, chosen in each way."""
    training = f"{{epochs: 1, batch: {8 if quick else 64}}}"
    ways = LEARNED if quick else HALF | ONE | LEARNED
    for where, places in ATTENTIONS.items():
        for name, by in ways.items():
            more = f", distillation: null, training: {training}" if name in LEARNED else ", rows: 512"
            yield (f"    - {{name: {where}-{name.replace(', ', '-').replace(' ', '-')}, step: {{kind: prune, by: {by}, "
                   f"where: ['{places}']}}{more}}}}}")


def cut_table(path: Path, target: Path) -> Path:
    """Write the first rows of a table, and return their file."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    target.write_text("".join(lines[:QUICK_ROWS + 1]), encoding="utf-8")
    return target


def prune_heads(run: Path, train: Path, test: Path, out: Path, *, quick: bool = False) -> Iterator[Row]:
    """Take heads from each attention of a model that translates, in each way; yield BLEU, greedy, with intervals."""
    import saucier as library
    from saucier.jobs.compression.outcome import Compressed

    out.mkdir(parents=True, exist_ok=True)
    chain = out / "heads.yaml"
    chain.write_text("\n".join(["name: heads", "keep: 0.001", "measure: {memory: false, rounds: 3, batches: [32]}",
                                "grid:", "  -", *list_ways(quick)]) + "\n", encoding="utf-8")
    if quick:
        train, test = (cut_table(path, out / path.name) for path in (train, test))
    found = library.compress(chain, model=run, data=train, held_out=test, out=out / "heads", quiet=True)
    assert isinstance(found, Compressed), "a chain was given"
    for one in found.steps:
        [bleu, *_], kept, speed = one.splits["held-out"].metrics, one.kept, one.speed(32)
        yield Row(f"heads: {one.name}", f"BLEU {bleu.value:.2f} ({bleu.low:.2f} … {bleu.high:.2f}), "
                  f"{bleu.difference:+.2f} ({bleu.difference_low:+.2f} … {bleu.difference_high:+.2f})",
                  f"keeps {kept.value:.1%} ({kept.low:.1%} … {kept.high:.1%}); {one.size.parameters:,} parameters; "
                  f"{speed.ratio:.2f} × as fast with 32 rows")


def measure(quick: bool) -> Section:
    """Train on `train`, choose the checkpoint by `val`, score `test_2016_flickr` once."""
    files = {part: needed("translation", NAME.format(part)) for part in ("train", "val", "test_2016_flickr")}
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        arguments = ["--data", str(files["train"]), "--held-out", str(files["val"])]
        seconds, results = cooked("transformer-small", run, [*(QUICK if quick else []), *arguments])
        few = ["--limit", "8"] if quick else []
        tested = json.loads(saucier("evaluate", str(run), str(files["test_2016_flickr"]), "--json", *few))
        maps = compare_maps(run, files["train"], files["test_2016_flickr"], limit=8 if quick else None)
        maps += prune_heads(run, files["train"], files["test_2016_flickr"], Path(folder), quick=quick)
        note = plan_note(run, results) if not quick else "A quick look."
    bleu, chrf = named(tested["scores"], "BLEU"), named(tested["scores"], "chrF")
    rows = [Row("BLEU on test_2016_flickr, beam 4", f"{bleu['value']:.2f}", target=f"≥ {TARGET:g}",
                reached=bleu["value"] >= TARGET),
            Row("chrF", f"{chrf['value']:.2f}"),
            Row("BLEU on the validation set", f"{named(results['scores'], 'BLEU')['value']:.2f}"),
            at_most("training, evaluations included", results["cost"]["phases"]["train"] / 60, 60, "minutes"),
            Row("the whole job, tokenizer to report", f"{seconds / 60:.1f} minutes"), *maps]
    about = "`saucier cook transformer-small --data train.tsv --held-out val.tsv`, then `saucier evaluate`."
    return Section("Multi30k", about, rows, [note, f"sacrebleu: {bleu['note']}"])
