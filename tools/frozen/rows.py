"""Part `batches`: the first batches of every kind of rows, as each process sees them before and after the corruption.

Everything goes through the stages of a run: the text is read, split, encoded and cut as `saucier cook` does it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from saucier.jobs.pretraining.batching import build_run_objectives, make_evaluator, make_training_data
from saucier.jobs.pretraining.data import PreparedData, prepare_data
from saucier.jobs.run.console import Console
from saucier.opened import RunFolder
from saucier.recipes import Recipe, recipe
from saucier.training.evaluation import Evaluator, MixedEvaluator
from saucier.training.processes import Processes
from saucier.training.update import TrainingData
from tools.frozen.items import Exact, Item, digest

SEEDS = (1, 2)
VIEWS = ((0, 1), (0, 2), (1, 2))
"""(rank, processes)."""
STEPS = 50
MEASURED = 10
"""Batches of held-out text."""
SMALL = ("training.batch=3", "training.length=32", "evaluation.batch=4", "training.optimizer.learning_rate=0.001")
TEXT, PAIRS, LANGUAGES = "data.files=[{place}/text.txt]", "data.files=[{place}/pairs.tsv]", (
    "data.languages={{one: [{place}/eng.txt], two: [{place}/deu.txt]}}")
PARAGRAPHS = "data.document=paragraph"
MANY = "data.files=[{place}/eng-deu.tsv, {place}/eng-fra.tsv]"
VOCAB, FEW, BYTES = (f"tokenizer.vocab={size}" for size in (300, 250, 340))

CAUSAL = ("gpt-nano", TEXT, PARAGRAPHS, BYTES)
MASKED = ("roberta-nano", TEXT, PARAGRAPHS, BYTES, "objective.rows.kind=running")
BERT = ("bert-nano", TEXT, PARAGRAPHS, VOCAB)
T5 = ("t5-nano", TEXT, PARAGRAPHS, VOCAB)
BART = ("bart-nano", TEXT, PARAGRAPHS, BYTES)
XLNET = ("xlnet-nano", TEXT, PARAGRAPHS, VOCAB)
TRANSLATION = ("transformer-nano", PAIRS, VOCAB)
ALONE = "objective.next_sentence=null"

KINDS: dict[str, tuple[str, ...]] = {
    "causal": CAUSAL,
    "causal, whole documents": (*CAUSAL, "objective.rows.kind=documents"),
    "causal, consecutive": ("transformer-xl-nano", TEXT, PARAGRAPHS, BYTES, "model.cutoffs=[100]"),
    "causal, last position": ("deep-char-nano", TEXT, PARAGRAPHS, "objective.positions.kind=last",
                              "objective.deeper=null"),
    "causal, deeper": ("deep-char-nano", TEXT, PARAGRAPHS),
    "causal, the tail held out": (*CAUSAL, "data.held_out.kind=tail", "data.document=file"),
    "causal, files held out": (*CAUSAL, "data.held_out={{kind: files, files: [{place}/more.txt]}}"),
    "causal, lines, without repeats": (*CAUSAL, "data.document=line", "data.deduplicate=true", "data.limit=250"),
    "causal, characters": ("shakespeare", TEXT, PARAGRAPHS),
    "causal, languages": ("gpt-nano", "data.kind=languages", LANGUAGES, PARAGRAPHS, BYTES),
    "bidirectional": ("elmo-nano", TEXT, PARAGRAPHS, VOCAB),
    "bidirectional, characters of words": ("elmo-characters-nano", TEXT, PARAGRAPHS, VOCAB),
    "masked": MASKED,
    "masked, whole words": (*MASKED, "objective.choice.kind=whole_words"),
    "masked, spans": ("spanbert-nano", TEXT, PARAGRAPHS, VOCAB),
    "masked, n-grams": (*BERT, ALONE, "objective.choice.kind=n_grams"),
    "masked, pmi": (*MASKED, "objective.choice={{kind: pmi, least: 3}}"),
    "masked, ten fixed masks": (*MASKED, "objective.dynamic=false", "objective.duplicates=10"),
    "masked, segment pairs": BERT,
    "masked, sentence pairs": (*BERT, "objective.rows.kind=sentence_pairs"),
    "masked, sentence order": ("albert-nano", TEXT, PARAGRAPHS, VOCAB),
    "masked, full sentences": (*MASKED, "objective.rows.kind=full_sentences"),
    "masked, document sentences": (*MASKED, "objective.rows.kind=document_sentences"),
    "masked, languages": ("xlm-roberta-nano", LANGUAGES, PARAGRAPHS, VOCAB),
    "masked, in an encoder-decoder": (*BART, "objective={{kind: masked}}"),
    "replaced": ("electra-nano", TEXT, PARAGRAPHS, VOCAB),
    "replaced, disentangled": ("deberta-v3-nano", TEXT, PARAGRAPHS, VOCAB),
    "permutation": (*XLNET, "objective.rows.memory=null"),
    "permutation, memory": XLNET,
    "permutation, consecutive": (*XLNET, "objective.rows={{kind: consecutive}}"),
    "permutation, two pieces": (*XLNET, "objective.rows={{kind: two_pieces}}"),
    "span corruption": T5,
    "replaced spans": (*T5, "objective={{kind: replace_spans}}"),
    "dropped tokens": (*T5, "objective={{kind: drop_tokens}}"),
    "prefix": (*T5, "objective={{kind: prefix_lm}}"),
    "prefix, in a decoder": ("prefix-lm-nano", TEXT, PARAGRAPHS, VOCAB),
    "mixture of denoisers": ("ul2-nano", TEXT, PARAGRAPHS, VOCAB),
    "denoising": BART,
    **{f"denoising, {kind.replace('_', ' ')}": (*BART, f"objective.noises=[{{{{kind: {kind}}}}}]") for kind in (
        "token_masking", "token_deletion", "text_infilling", "sentence_permutation", "document_rotation",
        "token_shuffling")},
    "denoising, languages": ("mbart-nano", LANGUAGES, PARAGRAPHS, BYTES),
    "pairs": TRANSLATION,
    "pairs, packed": (*TRANSLATION, "objective.packing={{length: 40}}"),
    "pairs, scheduled sampling": ("gru-nano", PAIRS, VOCAB, "objective.truth={{kind: linear, slope: 0.01}}"),
    "pairs, in a decoder": ("prefix-lm-nano", "data={{kind: pairs, files: [{place}/pairs.tsv]}}", FEW,
                            "objective={{kind: sequence_to_sequence}}"),
    "pairs, with synthetic ones": (*TRANSLATION, "tokenizer.special.extra=[<bt>]",
                                   "data.synthetic={{files: [{place}/synthetic.tsv], real: 2, tag: <bt>}}"),
    "pairs, two tokenizers": (*TRANSLATION, "target_tokenizer={{kind: bpe, vocab: 200, special: {{pad: <pad>, "
                              "unk: <unk>, bos: <s>, eos: </s>, single: $A </s>, pair: $A </s> $B </s>}}}}"),
    "pairs, many to many": ("m2m-nano", MANY, FEW),
    "pairs, many to one": ("m2m-nano", MANY, FEW, "data.languages.both_ways=false", "data.languages.alpha=1"),
    "whole targets": ("mask-predict-nano", PAIRS, VOCAB),
    "mixture": ("xlm-nano", PAIRS, FEW),
    "mixture of rows": (*T5, "objective={{kind: mixture, parts: [{{weight: 2, objective: {{kind: span_corruption}}}}, "
                        "{{objective: {{kind: prefix_lm}}}}]}}"),
}
"""Every kind of rows: a recipe, and what is changed in it."""


def wanted(kind: str, place: Path, seed: int) -> Recipe:
    """Return the recipe of a kind."""
    name, *words = KINDS[kind]
    return recipe(name, [*SMALL, f"training.seed={seed}", *(word.format(place=place) for word in words)])


def batches(place: Path, kinds: Sequence[str] = tuple(KINDS),
            seeds: Sequence[int] = SEEDS) -> Iterator[tuple[str, Item]]:
    """Yield the hashes of all kinds. `place`: the folder of the text, in which runs are begun, too."""
    for kind in kinds:
        for seed in seeds:
            folder = place / "runs" / f"{kind}-{seed}"
            yield from of_run(f"batches/{kind}/seed {seed}", wanted(kind, place, seed), folder)


def of_run(name: str, recipe: Recipe, folder: Path) -> Iterator[tuple[str, Item]]:
    """Yield the hashes of one run: what was read, the tokenizer, the batches of every process, what is measured."""
    prepared_data = prepare_data(recipe, RunFolder(folder), Console(silent=True))
    lessons = build_run_objectives(recipe, prepared_data.tokenizer, prepared_data.collocations)
    study = make_training_data(recipe, prepared_data.tokenizer, prepared_data.train, lessons)
    yield f"{name}/text", Exact(digest(prepared_data.digests,
                                       prepared_data.counts.model_dump(mode="json", exclude={"source"})))
    yield f"{name}/steps of an epoch", Exact(str(study.batches.steps_per_epoch))
    for rank, world in VIEWS:
        yield f"{name}/rank {rank} of {world}", Exact(of_process(study, recipe.training.seed, rank, world))
    yield f"{name}/held out", Exact(held_out(recipe, prepared_data))


def of_process(study: TrainingData, seed: int, rank: int, world: int) -> str:
    """Hash what one process learns from: rows, and batches."""
    found = []
    for step in range(STEPS):
        rows = study.batches.rows(step, rank, world)
        batch = study.corruption(rows, seed=seed, step=step) if len(rows) else {}
        found += [*arrays(rows), *tensors(batch)]
    return digest(*found)


def arrays(rows: Any) -> Iterator[Any]:
    """Yield the fields of rows, by name."""
    for one in fields(rows):
        value = getattr(rows, one.name)
        if isinstance(value, np.ndarray):
            yield from (one.name, value)


def tensors(batch: dict[str, Any]) -> Iterator[Any]:
    """Yield the tensors of a batch, by name."""
    for name in sorted(batch):
        yield from (name, batch[name].detach().cpu().numpy())


def held_out(recipe: Recipe, prepared_data: PreparedData) -> str:
    """Hash the first batches that are measured with."""
    lessons = build_run_objectives(recipe, prepared_data.tokenizer, prepared_data.collocations)
    found = make_evaluator(recipe, prepared_data.tokenizer, prepared_data.held_out, lessons, whole=True,
                           processes=Processes())
    return digest(*measured(found))


def measured(found: Any) -> Iterator[Any]:
    """Yield the batches of an evaluation, and of the parts of one."""
    if isinstance(found, MixedEvaluator):
        for part in found.parts:
            yield from measured(part)
        return
    assert isinstance(found, Evaluator), "there is no other"
    for batch in itertools.islice(found.batches(), MEASURED):
        yield from tensors(batch)
