"""From a budget to the changes that make a recipe spend it, by the batches that the recipe will work on."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory

from saucier.config import parameters
from saucier.cost.workload import Workload, count_batch_tokens, make_workload, tokens_per_step, training_flops
from saucier.errors import InputError
from saucier.jobs.comparison.experiment import Budget, Changes, Flops, Parameters, Seconds, Tokens
from saucier.jobs.pretraining.batching import build_run_objectives, make_training_data
from saucier.jobs.pretraining.cook import first_batches
from saucier.jobs.pretraining.data import Store, open_corpus, open_store
from saucier.opened import RunFolder
from saucier.plain import format_quantity
from saucier.recipes import Recipe
from saucier.recipes.recipe import Family
from saucier.text.config import PairData
from saucier.text.reading.corpus import PairCorpus
from saucier.text.rows.batch import Rows
from saucier.text.rows.store import write_pairs
from saucier.text.tokenizer.tokenizer import Tokenizer, load_tokenizer

PAIRS = 8192
"""Pairs that are looked at: their lengths stand for those of the others."""


def rehearse_batches(recipe: Recipe, tokenizer: Tokenizer | None) -> Workload:
    """Return some batches as the recipe will see them; made-up ones where no tokenizer is there yet.

    Raises `InputError` as reading the pairs does.
    """
    if tokenizer is None:
        return make_workload(recipe, recipe.vocab)
    corpus = open_corpus(recipe)
    if not isinstance(corpus, PairCorpus):
        return make_workload(recipe, tokenizer.vocab_size)
    with TemporaryDirectory() as folder:
        return pair_batches(recipe, tokenizer, write_pairs(Path(folder) / "pairs", islice(corpus.train, PAIRS),
                                                           tokenizer))


def read_run_batches(run: RunFolder, recipe: Recipe, vocab: int) -> Workload:
    """Return some batches of a finished run."""
    if not isinstance(recipe.data, PairData):
        return make_workload(recipe, vocab)
    return pair_batches(recipe, load_tokenizer(run.tokenizer), open_store(recipe, run.train_store))


def pair_batches(recipe: Recipe, tokenizer: Tokenizer, store: Store) -> Workload:
    """Return some batches of a store of pairs."""
    return first_batches(recipe, make_training_data(recipe, tokenizer, store, build_run_objectives(recipe, tokenizer)),
                         tokenizer)


Pace = Callable[[Recipe, Workload], float]
"""What measures the seconds of one update."""
WIDTHS = ("dim", "hidden", "width", "head_dim")
"""Hyper-parameters that grow with the width where a recipe gives them."""
WIDEST = 1 << 20
"""More than any model's width."""
SPARE = 1.25
"""Steps of a timed run beyond those that the measured pace foresees, so that its time ends it and not they."""
NEAR = 0.25
"""A model must come so near to the parameters that it is to have."""


def count_step_tokens(recipe: Recipe, work: Workload) -> float:
    """Count the tokens of text that one update reads, on batches as the recipe will see them."""
    # a language model's last token of each row is there again in the next rows
    longer = recipe.training.length + 1
    again = sum(len(one) for one in work.batches if isinstance(one, Rows) and one.tokens.shape[1] == longer)
    return (sum(map(count_batch_tokens, work.batches)) - again) / len(work.batches)


def spend_budget(recipe: Recipe, budget: Budget, *, work: Workload, pace: Pace) -> Changes:
    """Return the changes by which a recipe spends the budget, working on such batches.

    Raises `InputError` for a budget below one step, and where no width gives the parameters.
    """
    match budget:
        case Parameters(amount=amount):
            return choose_widths(recipe, amount, work.ids["vocab"])
        case Tokens(amount=amount):
            return count_steps(recipe, amount, count_step_tokens(recipe, work), "tokens")
        case Flops(amount=amount):
            flops = training_flops(recipe, work.ids["vocab"], tokens_per_step(recipe, work))
            return count_steps(recipe, amount, flops, "FLOPs")
        case Seconds(amount=amount):
            found = count_steps(recipe, amount, pace(recipe, work), "seconds")
            return found | {"training.steps": ceil(SPARE * found["training.steps"]), "training.seconds": amount}


def count_steps(recipe: Recipe, amount: float, cost: float, unit: str) -> Changes:
    """Return as many steps as the amount pays."""
    steps = int(amount / cost * (1 + 1e-9))
    if steps < 1:
        raise InputError(f"{format_quantity(amount)} {unit} do not pay one step of {recipe.name}, which takes "
                         f"{format_quantity(cost)}", where="--budget", remedy="give more, or make the batch smaller")
    return scale_schedule(recipe, steps)


def scale_schedule(recipe: Recipe, steps: int) -> Changes:
    """Return another number of steps, and the schedule's warm-up and cool-down in proportion."""
    ratio, schedule = steps / recipe.training.steps, recipe.training.schedule.model_dump()
    phases = {name: round(ratio * schedule[name]) for name in ("warmup", "cooldown") if schedule.get(name)}
    return {"training.steps": steps} | {f"training.schedule.{name}": max(1, length) for name, length in phases.items()}


def choose_widths(recipe: Recipe, amount: float, vocab: int) -> Changes:
    """Return the widths that bring a family's model nearest to a number of parameters; the depth stays.

    `dim` goes in steps of two for each head; other widths that the recipe gives keep their ratio to it.
    Raises `InputError` for a model that is no family with `dim`, and where the nearest one is not near.
    """
    model = recipe.blueprint
    if not isinstance(model, Family) or "dim" not in type(model).model_fields:
        raise InputError(f"{recipe.name} has no width that could be chosen", where="--budget parameters",
                         remedy="compare models of a family, or give a budget of flops, tokens or seconds")
    unit = 2 * getattr(model, "heads", 1)

    def size(count: int) -> float:
        resized = model.model_copy(update=widths(model, count * unit))
        return float(parameters(recipe.model_copy(update={"blueprint": resized}).model_for(vocab)))

    low, high = 1, WIDEST // unit
    while low < high:  # the first width that reaches the amount
        middle = (low + high) // 2
        low, high = (low, middle) if size(middle) >= amount else (middle + 1, high)
    near = min((max(1, low - 1), low), key=lambda count: abs(size(count) - amount))
    if abs(size(near) - amount) > NEAR * amount:
        raise InputError(f"{recipe.name} has {format_quantity(size(near))} parameters at the nearest width, "
                         f"dim {near * unit}",
                         where="--budget parameters", remedy=f"give about {size(near):.0f}, or change its depth")
    return {f"model.{name}": width for name, width in widths(model, near * unit).items()}


def widths(model: Family, dim: int) -> dict[str, int]:
    """Return the widths of a model at another `dim`."""
    given = {name: value for name in WIDTHS if isinstance(value := getattr(model, name, None), int)}
    return {name: max(1, round(value * dim / given["dim"])) for name, value in given.items()}
