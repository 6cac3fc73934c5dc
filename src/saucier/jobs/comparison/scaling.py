"""Scaling laws: the loss as a power law of size, data or work, fitted to finished runs; it predicts those left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field
from rich.console import Group, RenderableType
from rich.text import Text

from saucier.config import parameters
from saucier.config.base import Config
from saucier.errors import InputError, report_missing
from saucier.jobs.comparison.budget import count_step_tokens, read_run_batches
from saucier.jobs.run.passport import read_passport
from saucier.opened import RunFolder, find_run
from saucier.plain import first_difference, format_quantity
from saucier.report.results import EVALUATION_FILE, read_results
from saucier.result import Result
from saucier.table import Table
from saucier.tasks.metrics.statistics import Floats
from saucier.text.rows.batch import Ints, make_generator

DRAWS = 200
"""Fits to runs drawn with replacement, for the intervals."""
HUBER = 1e-3
"""Differences of log losses above this count by their size, not its square: one bad run does not bend the law.

Source: Hoffmann et al. 2022, §3.3 and appendix D.3, arXiv:2203.15556.
"""
STARTS = (0.1, 0.3, 0.6, 1.0)
"""Exponents that a fit begins with; the best end is taken."""


class BySize(Config):
    """L(N) = E + A / N^a. Source: Kaplan et al. 2020, eq 1.1, arXiv:2001.08361 (there without E)."""

    kind: Literal["parameters"] = "parameters"
    quantities: ClassVar[tuple[str, ...]] = ("parameters",)
    """What the loss is a law of."""


class ByData(Config):
    """L(D) = E + B / D^b. Source: Kaplan et al. 2020, eq 1.2 (there without E)."""

    kind: Literal["tokens"] = "tokens"
    quantities: ClassVar[tuple[str, ...]] = ("tokens",)
    """What the loss is a law of."""


class ByWork(Config):
    """L(C) = E + G / C^g, by our count of FLOPs. Source: Kaplan et al. 2020, eq 1.3 (there without E)."""

    kind: Literal["flops"] = "flops"
    quantities: ClassVar[tuple[str, ...]] = ("flops",)
    """What the loss is a law of."""


class BySizeAndData(Config):
    """L(N, D) = E + A / N^a + B / D^b. Source: Hoffmann et al. 2022, eq 2, arXiv:2203.15556."""

    kind: Literal["both"] = "both"
    quantities: ClassVar[tuple[str, ...]] = ("parameters", "tokens")
    """What the loss is a law of."""


Law = Annotated[BySize | ByData | ByWork | BySizeAndData, Field(discriminator="kind")]


LAWS: dict[str, Law] = {law.kind: law for law in (BySizeAndData(), BySize(), ByData(), ByWork())}


class Point(Config):
    """A finished run."""

    name: str
    """Its folder."""
    parameters: int
    """Tied ones counted once."""
    tokens: int
    """Tokens of text that it read, with repetitions."""
    flops: float
    """Of training, by our count."""
    six: float
    """6 · parameters · tokens. Source: Kaplan et al. 2020, §2.1."""
    loss: float
    """On held-out text, nats a token."""


class Term(Config):
    """One term of a law, with 95 % intervals."""

    quantity: str
    """What it falls with."""
    factor: float
    """A: the loss is A / x^a for this term."""
    exponent: float
    """a."""
    low: float
    """Lower end of the exponent's interval."""
    high: float
    """Upper end."""


class Prediction(Config):
    """What the law says of a run that it was not fitted to."""

    run: Point
    """The run."""
    predicted: float
    """The loss that the law gives."""
    low: float
    """Lower end of the 95 % interval of the fit; the noise of a single run comes on top."""
    high: float
    """Upper end."""


class Fit(Config, Result):
    """A fitted law."""

    law: Law
    """Its form."""
    runs: tuple[Point, ...]
    """What it was fitted to."""
    irreducible: float
    """E."""
    terms: tuple[Term, ...]
    """One for each quantity."""
    error: float
    """Root mean square of the differences of log losses, fitted runs."""
    predictions: tuple[Prediction, ...]
    """The runs that were left out."""

    def view(self) -> RenderableType:
        """Return what `saucier scaling` prints."""
        return render_fit(self)


@dataclass(frozen=True, slots=True)
class Coefficients:
    """A law's numbers in the logarithms in which it is fitted. Shapes: factors, exponents [P]."""

    floor: float
    factors: Floats
    exponents: Floats

    def loss(self, scales: Floats) -> Floats:
        """Return the losses that the law gives. Shapes: [R, P] -> [R]."""
        found: Floats = np.exp(self.floor) + np.exp(self.factors - self.exponents * np.log(scales)).sum(axis=1)
        return found


def fit_law(law: Law, runs: Sequence[Point], left_out: Sequence[Point] = (), *, draws: int = DRAWS,
            seed: int = 0) -> Fit:
    """Fit a law to runs and predict those that were left out.

    Raises `InputError` for fewer runs, or fewer values of a quantity, than the law has coefficients to find.
    """
    check_runs(law, runs)
    scales, losses = scales_of(law, runs), np.array([run.loss for run in runs])
    found = least_squares(scales, losses)
    drawn = [least_squares(scales[chosen], losses[chosen], near=found) for chosen in resamples(scales, draws, seed)]
    exponents = np.quantile([one.exponents for one in drawn], [0.025, 0.975], axis=0)
    terms = tuple(Term(quantity=quantity, factor=float(np.exp(found.factors[place])),
                       exponent=float(found.exponents[place]), low=float(exponents[0, place]),
                       high=float(exponents[1, place])) for place, quantity in enumerate(law.quantities))
    error = float(np.sqrt(np.mean((np.log(found.loss(scales)) - np.log(losses)) ** 2)))
    predictions = []
    for run in left_out:
        scale = scales_of(law, [run])
        low, high = np.quantile([one.loss(scale)[0] for one in drawn], [0.025, 0.975])
        predictions.append(Prediction(run=run, predicted=float(found.loss(scale)[0]), low=float(low), high=float(high)))
    return Fit(law=law, runs=tuple(runs), irreducible=float(np.exp(found.floor)), terms=terms, error=error,
               predictions=tuple(predictions))


def scales_of(law: Law, runs: Sequence[Point]) -> Floats:
    """Return what the loss is a law of. Shapes: -> [R, P]."""
    return np.array([[float(getattr(run, quantity)) for quantity in law.quantities] for run in runs])


def check_runs(law: Law, runs: Sequence[Point]) -> None:
    """Raise `InputError` where the runs do not determine the law's coefficients."""
    needed = 1 + 2 * len(law.quantities)
    if len(runs) < needed + 1:
        raise InputError(f"{len(runs)} runs to fit, and a law of {' and '.join(law.quantities)} has {needed} "
                         "coefficients", where="runs", remedy=f"give {needed + 1} runs or more")
    for quantity in law.quantities:
        values = {getattr(run, quantity) for run in runs}
        if len(values) < 3:
            raise InputError(f"the runs have {len(values)} different numbers of {quantity}", where="runs",
                             remedy="give runs of three or more, or fit another law with --by")


def resamples(scales: Floats, draws: int, seed: int) -> list[Ints]:
    """Draw runs with replacement, so that each quantity still has three values. Shapes: [R, P] -> draws of [R]."""
    random = make_generator(seed, 0)
    found: list[Ints] = []
    while len(found) < draws:
        chosen = random.integers(len(scales), size=len(scales))
        if all(len(np.unique(scales[chosen, place])) >= 3 for place in range(scales.shape[1])):
            found.append(chosen)
    return found


def least_squares(scales: Floats, losses: Floats, near: Coefficients | None = None) -> Coefficients:
    """Fit the logarithm of the loss, robustly, from several starts (from `near` alone where that is given).

    Shapes: scales [R, P], losses [R]. Raises `InputError` where scipy is missing.
    """
    with report_missing("scaling laws need scipy, which is not installed", remedy="pip install 'saucier[statistics]'"):
        from scipy.optimize import least_squares as solve
    count = scales.shape[1]
    centre = np.log(scales).mean(axis=0)  # factors are sought at the middle of the runs, where they do not depend
    shifted = np.log(scales) - centre     # on the exponents

    def residuals(x: Floats) -> Floats:
        terms = x[1:1 + count] - x[1 + count:] * shifted
        found: Floats = np.log(np.exp(x[0]) + np.exp(terms).sum(axis=1)) - np.log(losses)
        return found

    lowest = float(np.log(losses.min()))
    starts = [np.concatenate([[lowest + np.log(share)], np.full(count, lowest + np.log((1 - share) / count)),
                              np.full(count, exponent)]) for exponent in STARTS for share in (0.1, 0.5, 0.9)]
    if near is not None:
        starts = [np.concatenate([[near.floor], near.factors - near.exponents * centre, near.exponents])]
    bounds = ([-np.inf] * (1 + count) + [1e-3] * count, [lowest] + [np.inf] * count + [5.0] * count)
    inside = [np.clip(start, *(np.array(bound) for bound in bounds)) for start in starts]
    best = min((solve(residuals, start, bounds=bounds, loss="huber", f_scale=HUBER, x_scale=1.0) for start in inside),
               key=lambda done: float(done.cost))
    exponents = best.x[1 + count:]
    return Coefficients(float(best.x[0]), best.x[1:1 + count] + exponents * centre, exponents)


SYMBOLS = {"parameters": "N", "tokens": "D", "flops": "C"}
LETTERS = {"parameters": ("A", "a"), "tokens": ("B", "b"), "flops": ("G", "g")}


def finished_runs(folders: Sequence[Path]) -> list[Path]:
    """Return the run folders among these, and below them. Raises `InputError` for one that holds none."""
    found: list[Path] = []
    for folder in folders:
        here = [folder] if RunFolder(folder).is_run else sorted(
            path.parent for path in folder.rglob(EVALUATION_FILE) if RunFolder(path.parent).is_run)
        if not here or not all(RunFolder(run).is_finished for run in here):
            raise InputError("no such folder" if not folder.exists() else "holds no finished run", where=str(folder),
                             remedy="give run folders, or the folder of a comparison")
        found += here
    return list(dict.fromkeys(found))


def read_points(runs: Sequence[Path]) -> list[Point]:
    """Read runs. Raises `InputError` where their losses are not of the same text, tokens and objective."""
    seen = []
    for run in runs:
        data = read_passport(run).data
        seen.append({"objective": find_run(run).recipe().objective.model_dump(mode="json"),
                     "held-out text": data.get("held_out"), "tokenizer": data.get("tokenizer")})
        found = first_difference(seen[0], seen[-1])
        if found is not None:
            raise InputError(f"has another {found[0].split('.')[0]} than {runs[0]}", where=str(run),
                             remedy="leave it out; losses of one text, one tokenizer and one objective go together")
    return [read_point(run) for run in runs]


def read_point(run: Path) -> Point:
    """Read one run."""
    recipe, results = find_run(run).recipe(), read_results(run)
    vocab = results.vocab or recipe.vocab
    count = parameters(recipe.model_for(vocab))
    tokens = round(results.steps * count_step_tokens(recipe, read_run_batches(find_run(run), recipe, vocab)))
    return Point(name=str(run), parameters=count, tokens=tokens, flops=results.cost.training_flops or 0.0,
                 six=6.0 * count * tokens, loss=results.held_out.loss)


def select_largest_runs(found: Sequence[Point]) -> list[Point]:
    """Return the runs of the most work: all seeds of the largest size and data."""
    top = max(found, key=lambda one: one.six)
    return [one for one in found if (one.parameters, one.tokens) == (top.parameters, top.tokens)]


def format_law(found: Fit) -> str:
    """Write a fitted law as a formula."""
    terms = " + ".join(f"{term.factor:.3g} / {SYMBOLS[term.quantity]}^{term.exponent:.3f}" for term in found.terms)
    names = ", ".join(SYMBOLS[term.quantity] for term in found.terms)
    return f"L({names}) = {found.irreducible:.3f} + {terms}"


def format_exponents(found: Fit) -> list[str]:
    """Say each exponent with its interval."""
    return [f"{LETTERS[term.quantity][1]} = {term.exponent:.3f}, 95 % of the fits to other draws of the runs between "
            f"{term.low:.3f} and {term.high:.3f}" for term in found.terms]


RUN_HEADINGS = ("", "parameters", "tokens", "FLOPs", "6·N·D", "6·N·D / FLOPs", "loss", "law", "off by")


def scaling_table(found: Fit) -> Table:
    """Return a line for each run: those fitted, then those predicted."""
    rows = []
    for run, one in [*((run, None) for run in found.runs), *((one.run, one) for one in found.predictions)]:
        name, law, gap = "/".join(Path(run.name).parts[-2:]), "", ""  # unique in its comparison
        if one is not None:
            name, law = f"{name} (left out)", f"{one.predicted:.4f} ({one.low:.4f} … {one.high:.4f})"
            gap = f"{100 * (one.predicted / run.loss - 1):+.1f} %".replace("-", "−")
        rows.append((name, f"{run.parameters:,}", format_quantity(run.tokens), format_quantity(run.flops),
                     format_quantity(run.six), f"{run.six / run.flops:.2f}" if run.flops else "", f"{run.loss:.4f}",
                     law, gap))
    return Table(RUN_HEADINGS, rows, numbers=range(1, len(RUN_HEADINGS)), folded=(0,), cut_words=True)


def render_fit(found: Fit) -> RenderableType:
    """Lay a fit out for a person."""
    return Group(scaling_table(found), Text(), Text(format_law(found), style="bold"),
                 *map(Text, format_exponents(found)),
                 Text(f"the fitted runs are off by {100 * found.error:.1f} % (root mean square)", style="dim"))
