"""What the box of old artifacts holds, as data: each artifact, the command that makes it, where that is stopped.

All paths are as seen from the box itself, which is the folder that every command is run in.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a command is stopped: before the `number`th call of a function, by a signal."""

    number: int
    place: str = "saucier.training.loop:Run.update"
    by: signal.Signals = signal.SIGKILL


@dataclass(frozen=True, slots=True)
class Artifact:
    """One folder or file of the box."""

    name: str
    words: tuple[str, ...]
    """The command, without `saucier`."""
    stop: Stop | None = None
    """None: the command runs to its end."""


def unstopped(one: Artifact) -> Artifact:
    """Return the same command without a stop, beside the others that the box begins with."""
    name = f"made/whole/{one.name}"
    return Artifact(name, tuple(name if word == one.name else word for word in one.words))


def quiet(*words: str) -> tuple[str, ...]:
    """Return settings of a small and silent run, the model's own before them."""
    return (*words, "training.dtype=float32", "training.events=off", "training.log_every=2", "training.batch=4",
            "training.keep=1",
            "evaluation.baselines=[]", "sampling.tokens=8", "sampling.samples=1", "--no-calibrate")


def cooked(name: str, recipe: str, *words: str, stop: Stop | None = None, verb: str = "cook") -> Artifact:
    """Return a run of the recipe, made small."""
    return Artifact(name, (verb, recipe, "--out", name, *words), stop)


TEXT = ("--data", "kitchen.txt", "data.document=line", "data.held_out={kind: fraction, fraction: 0.1}")
STORIES = ("--data", "stories.txt", "data.document=paragraph", "data.held_out={kind: fraction, fraction: 0.1}")
PAIRS = ("--data", "pairs.tsv", "data.held_out={kind: fraction, fraction: 0.1}")
NARROW = ("model.dim=16", "model.heads=2", "model.layers=1")
LONG = ("model.length=64", "training.length=32")
SIX = ("training.steps=6", "training.save_every=2", "training.evaluate_every=4", "training.schedule.warmup=2")
DROPPED = "model.dropout=0.1"
BASE = ("training.steps=40", "training.evaluate_every=40")
BYTES, PIECES = "tokenizer.vocab=290", "tokenizer.vocab=90"

BASES = (
    cooked("made/bert", "bert-nano", *quiet(*STORIES, *NARROW, *LONG, *BASE, PIECES), verb="train"),
    cooked("made/gpt2", "gpt2-nano", *quiet(*TEXT, *NARROW, "model.length=160", "training.length=32", *BASE, BYTES),
           verb="train"),
    cooked("made/gpt", "gpt1-nano", *quiet(*TEXT, *NARROW, *LONG, *BASE, BYTES), verb="train"),
    cooked("made/t5", "t5-nano", *quiet(*TEXT, *NARROW, "model.head_dim=8", "model.hidden=32", "training.length=32",
                                        "tokenizer.special.sentinels=8", *BASE, "tokenizer.vocab=72"), verb="train"),
    cooked("made/translation", "transformer-nano", *quiet(*PAIRS, *NARROW, *BASE, "model.hidden=32",
                                                          "training.length=24", "tokenizer.vocab=110"), verb="train"),
)
"""What the others begin with; their folders are left out of the box, and what is made of them below is in it."""

MODELS = (
    Artifact("models/bert", ("convert", "made/bert", "models/bert")),
    Artifact("models/gpt2", ("convert", "made/gpt2", "models/gpt2")),
    Artifact("models/gpt", ("convert", "made/gpt", "models/gpt")),
    Artifact("models/t5", ("convert", "made/t5", "models/t5")),
    Artifact("models/translation", ("convert", "made/translation", "models/translation")),
    Artifact("models/own", ("convert", "made/gpt2", "models/own", "--to", "own")),
    Artifact("models/bfloat16", ("convert", "made/bert", "models/bfloat16", "--to", "own", "--dtype", "bfloat16")),
)

RUNS = (
    cooked("runs/finished", "shakespeare", *quiet(*TEXT, *NARROW, *LONG, *SIX)),
    cooked("runs/interrupted", "gpt2-nano", *quiet(*TEXT, *NARROW, *LONG, *SIX, DROPPED, BYTES),
           stop=Stop(3, by=signal.SIGINT)),
    cooked("runs/killed", "bert-nano", *quiet(*STORIES, *NARROW, *LONG, *SIX, DROPPED, PIECES,
                                              "training.evaluate_every=3"), stop=Stop(6)),
    cooked("runs/electra", "electra-nano", *quiet(
        *TEXT, *NARROW, *LONG, *SIX, DROPPED, PIECES, "model.hidden=32", "model.width=16",
        "objective.generator={width: 0.5, depth: 1.0}"), stop=Stop(4)),
    cooked("runs/transformer-xl", "transformer-xl-nano", *quiet(
        *TEXT, *NARROW, *SIX, DROPPED, "training.length=8", "model.memory=12", "model.hidden=32",
        "model.cutoffs=[100]", BYTES), stop=Stop(6)),
    cooked("runs/translation", "transformer-nano", *quiet(
        *PAIRS, *NARROW, *SIX, DROPPED, "model.hidden=32", "training.length=24", "training.average=2",
        "tokenizer.vocab=110", "evaluation.beams=2", "evaluation.limit=2"), stop=Stop(6)),
    cooked("runs/t5", "t5-nano", *quiet(
        *TEXT, *NARROW, "training.steps=6", "training.save_every=2", "training.evaluate_every=4", DROPPED,
        "model.head_dim=8", "model.hidden=32", "training.length=32", "tokenizer.special.sentinels=8",
        "training.optimizer={kind: adafactor}", "tokenizer.vocab=72"), stop=Stop(4)),
    cooked("runs/performer", "performer-nano", *quiet(
        *TEXT, *NARROW, *LONG, *SIX, "model.kernel={kind: favor, features: 8, redraw: 2}", BYTES), stop=Stop(6)),
    cooked("runs/ul2", "ul2-nano", *quiet(
        *TEXT, *NARROW, *SIX, "model.head_dim=8", "model.hidden=32", "training.length=32",
        "tokenizer.special.sentinels=16", "tokenizer.vocab=84"), stop=Stop(4)),
    cooked("runs/mbart", "mbart-nano", *quiet(
        "data.languages={python: [python.txt], english: [stories.txt]}", "data.document=paragraph",
        "data.held_out={kind: fraction, fraction: 0.1}", *NARROW, *LONG, *SIX, BYTES), stop=Stop(4)),
    Artifact("runs/tuned", ("cook", *quiet(
        "--from", "models/gpt2", "--out", "runs/tuned", *TEXT, *SIX, "training.length=32", "tuning.kind=lora",
        "tuning.rank=2", "tuning.dropout=0.1")), Stop(6)),
)
"""Runs, almost all of them stopped in the middle."""


def tuned(name: str, task: str, model: str, file: str, *words: str, stop: Stop | None = None) -> Artifact:
    """Return a fine-tuning on a file of which there is one to learn from and one to measure with."""
    return Artifact(name, ("finetune", task, "--model", f"models/{model}", "--data", f"train/{file}", "--held-out",
                           f"dev/{file}", "--out", name, "training.epochs=10", "training.batch=8",
                           "training.optimizer.learning_rate=0.02", "training.dtype=float32", *words), stop)


SHORT = ("training.epochs=2", "training.optimizer.learning_rate=0.003")
GPT, BOTH = "task.form.kind=gpt", "task.form.kind=gpt_both_orders"
MIXED = ("task.tasks={tone: {task: {kind: label_to_text, prefix: 'tone: '}, files: ['*/tones.tsv']}, "
         "said: {task: {kind: text_to_text, prefix: 'say: '}, files: ['*/said.tsv']}}")
TASKS = (
    tuned("tasks/classification", "classification", "bert", "tones.tsv"),
    tuned("tasks/many_labels", "many_labels", "bert", "labels.tsv"),
    tuned("tasks/regression", "regression", "bert", "similar.tsv"),
    tuned("tasks/ranking", "ranking", "bert", "ranked.tsv"),
    tuned("tasks/tagging", "tagging", "bert", "tagged.conll"),
    tuned("tasks/question_answering", "question_answering", "bert", "questions.jsonl", "training.length=32",
          "task.stride=8"),
    tuned("tasks/multiple_choice", "multiple_choice", "bert", "choices.jsonl"),
    tuned("tasks/embedding", "embedding", "bert", "triplets.tsv"),
    tuned("tasks/text_to_text", "text_to_text", "t5", "said.tsv"),
    tuned("tasks/translation", "translation", "t5", "turned.tsv"),
    tuned("tasks/summarization", "summarization", "t5", "short.tsv"),
    tuned("tasks/label_to_text", "label_to_text", "t5", "tones.tsv"),
    tuned("tasks/number_to_text", "number_to_text", "t5", "scores.tsv"),
    tuned("tasks/step_by_step", "step_by_step", "t5", "reasons.jsonl"),
    tuned("tasks/instruction", "instruction", "gpt2", "talks.jsonl"),
    tuned("tasks/mixture", "mixture", "t5", "tones.tsv", "--data", "train/said.tsv", "--held-out", "dev/said.tsv",
          MIXED),
    tuned("tasks/classification-gpt", "classification", "gpt", "tones.tsv", GPT),
    tuned("tasks/regression-gpt", "regression", "gpt", "similar.tsv", BOTH),
    tuned("tasks/multiple_choice-gpt", "multiple_choice", "gpt", "choices.jsonl", GPT),
    tuned("tasks/killed", "classification", "bert", "tones.tsv", *SHORT, stop=Stop(6)),
    tuned("tasks/killed-lora", "classification", "bert", "tones.tsv", *SHORT, "tuning.kind=lora", "tuning.rank=2",
          "tuning.dropout=0.1", stop=Stop(6)),
)
"""A finished fine-tuning of every kind of task, and two that were stopped in the middle."""


def adapter(kind: str, *words: str) -> Artifact:
    """Return a decoder that was tuned a little."""
    return tuned(f"adapters/{kind}", "text_to_text", "gpt2", "said.tsv", f"tuning.kind={kind}", *words)


ADAPTERS = (
    adapter("lora", "tuning.rank=2", "tuning.where=[qkv]"), adapter("qlora", "tuning.rank=2", "tuning.where=[qkv]"),
    adapter("prefix", "tuning.length=3", "tuning.hidden=4"), adapter("prompt", "tuning.length=3"),
    adapter("adapter", "tuning.width=4"), adapter("bias"),
    Artifact("adapters/own-lora", ("save_adapter", "adapters/lora/model", "adapters/own-lora")),
)
"""In PEFT's layout where it has one, else in ours."""

STUDY = """name: widths
arms:
  - {name: narrow, recipe: shakespeare, changes: {model.dim: 8}}
  - {name: wide, recipe: shakespeare, changes: {model.dim: 16}}
changes:
  data.files: [kitchen.txt]
  data.document: line
  model.heads: 2
  model.layers: 1
  training.length: 32
  training.batch: 4
  training.dtype: float32
budget: {kind: tokens, amount: 512}
seeds: 1
"""
STOPPED_STUDY = STUDY.replace("widths", "stopped")
PROMPTED = """name: kitchen
evaluate: ../dev/tones.tsv
train: ../train/tones.tsv
template: "{{ text }} is"
choices: [fine, sour]
labels: [good, bad]
gold: label
separator: "\\n"
"""
FILES = {"comparisons/finished.yaml": STUDY, "comparisons/stopped.yaml": STOPPED_STUDY,
         "prompts/kitchen.yaml": PROMPTED}

OTHERS = (
    *(Artifact(f"tokenizers/{kind}", ("tokenizer", "train", "stories.txt", "--kind", kind, "--vocab", str(vocab),
                                      "--out", f"tokenizers/{kind}"))
      for kind, vocab in (("byte_bpe", 290), ("bpe", 110), ("wordpiece", 110), ("unigram", 64), ("bytes", 260),
                          ("characters", 60))),
    Artifact("comparisons/finished", ("compare", "comparisons/finished.yaml", "--out", "comparisons/finished",
                                      "--threads", "1")),
    Artifact("comparisons/stopped", ("compare", "comparisons/stopped.yaml", "--out", "comparisons/stopped",
                                     "--threads", "1"), Stop(7)),
    Artifact("cleanings/finished", ("clean", "raw-1.jsonl", "raw-2.jsonl", "--rules", "c4", "--keep-rejected",
                                    "--out", "cleanings/finished")),
    Artifact("cleanings/stopped", ("clean", "raw-1.jsonl", "raw-2.jsonl", "--rules", "c4", "--keep-rejected",
                                   "--out", "cleanings/stopped"), Stop(2, "saucier.jobs.cleaning.clean:clean_piece")),
    Artifact("prompts/results", ("prompt", "prompts/kitchen.yaml", "--model", "models/gpt2", "--shots", "0,2",
                                 "--draws", "2", "--dtype", "float32", "--out", "prompts/results")),
    Artifact("backtranslations/made.tsv", ("backtranslate", "models/translation", "stories.txt", "--limit", "4",
                                           "--beams", "2", "--out", "backtranslations/made.tsv")),
)
ALL = (*BASES, *MODELS, *RUNS, *TASKS, *ADAPTERS, *OTHERS)

PAGE = """# The box of old artifacts

Everything here was written by Saucier at commit `{commit}` (PyTorch {torch}, x86-64) and trained here, on texts that
`tools/box_texts.py` makes up. It is a promise: **every later version opens all of it, and ends what was begun with the
same bits.** `tests/frozen/test_box.py` holds it. Nothing in this folder is ever changed; what later versions write and
promise stands in a box of its own.

`python tools/box.py write DIR` made it: each command below ran inside the box, in a process of its own, under the
settings of `tools/same_bits.py`. The words `made/...` name models that the others began with; those folders are not
kept, what was converted from them is (`models/`). The writer ended a copy of the box, and every run, fine-tuning,
comparison and cleaning that had been stopped in the middle ended with the same weights, corpora and samples as the same
command without a stop. What came out is `expected.json` (facts, and SHA-256 of every file of tensors, by the names and
values in it) and `expected.safetensors` (the last weights of what was stopped, the outputs of what was finished).

What must hold, of each:

- `runs/`: `saucier cook FOLDER` goes on from the checkpoint and ends with these weights, losses, samples,
  weights of the objective's own modules (ELECTRA's generator), carried memory (Transformer-XL) and state of the
  optimizer; one that is finished is told to be so, is measured as it was, and writes what it wrote.
- `tasks/`: `saucier predict` answers the rows of `dev/` as it did; `saucier finetune FOLDER` ends the two that were
  stopped with these weights, scores and predictions.
- `adapters/`: on their base they give these outputs, merged and apart. `lora`, `qlora`, `prefix` and `prompt` are in
  PEFT's layout; `adapter` (bottlenecks), `bias` and `own-lora` in ours.
- `models/`: these outputs on fixed tokens, and these tokens by greedy decoding: published layouts, ours, and bfloat16.
- `tokenizers/`: these ids, and these texts again.
- `comparisons/`: the same outcome; the one that was stopped in its second run ends it with these weights.
- `cleanings/`: the same corpus, the same reasons; the one that was stopped after its first file goes on after
  that. It knows its raw files by their dates, which the test sets to those that `.work/job.json` has (git keeps none).
- `prompts/`, `backtranslations/`: kept answers are scored as they were; asked again, the models say the same.

What is not as the commands left it:

- `report.html` is left out everywhere: no command reads it.
- Paths of the machine that wrote are replaced by paths as seen from this folder, which is where all commands are run
  (`passport.json`, `finetune.yaml`, `recipe.yaml`, `adapter_config.json`, `state.json` and the sizes that the last one
  notes of changed files). A run that begins with another model (`runs/tuned`), and an adapter, name that model by its
  whole path, and cannot be moved without it.
- Folders without a file in them, such as `2_Normalize` of sentence-transformers, are not kept by git.
- Files were made by `tools/box_texts.py` and given the date 2020-01-01.

What cannot be stopped and ended is here in its finished form alone: `prompt` and `backtranslate` begin again from the
start. A scaling law (`saucier scaling`) keeps nothing of its own: it is a page about finished runs.

| what | command | state |
|---|---|---|
{rows}
"""
"""The page of the box."""
