"""`bench`: every number format of a model on this machine: how fast, beside what memory allows, and what it loses.

Rounds are interleaved, so that a machine that slows down slows all formats down; the best round counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import torch
from rich.console import Group

from saucier.errors import InputError, WorkError
from saucier.generation.decoding import Native
from saucier.generation.formats import prepare, write_choice, writes_tokens
from saucier.generation.generate import generate
from saucier.generation.native_encoder import name_side
from saucier.generation.native_feed import lower_model
from saucier.generation.packed_weights import inference_view
from saucier.jobs.evaluation.measurement import EvaluationOptions
from saucier.jobs.format_loss import LENGTH, Contender, measure_loss
from saucier.jobs.run.console import show_progress
from saucier.jobs.writing.writer import Writer
from saucier.model import Transformer
from saucier.native.library import load_library
from saucier.native.matrices import Format
from saucier.native.packed import OWN_PARTS
from saucier.opened import open_model, room
from saucier.plain import format_bytes
from saucier.report.page import ACCENT, SECOND, draw_or_explain, write_page
from saucier.result import Result
from saucier.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROUNDS, PROMPT, BATCHES = 3, 16, (1, 8)
LARGEST_READ, READS, LEAST_SECONDS = 2**29, 10, 1e-9
PAGE = "bench.html"


@dataclass(frozen=True, slots=True)
class FormatFigures:
    """What was measured of one format."""

    format: str
    """Or `own parts`: the model as it runs without a format, in float32."""
    fault: str = ""
    """Why it does not run."""
    speeds: Mapping[int, float] = field(default_factory=dict)
    """By the rows of a batch: new tokens a second of all rows; of a model that does not write, milliseconds a batch."""
    bytes: int = 0
    """What a token, or a batch, reads of matrices; 0: not known."""
    floor: float | None = None
    """Tokens a second at batch 1 if memory alone took time; None where that is no bound."""
    kl: float | None = None
    """Mean Kullback–Leibler divergence of the probabilities of tokens, or of the classes of a row or tag, from those in
    float32, nats."""
    flips: float | None = None
    """Share of places whose likeliest token, or of rows or tags whose answer, is another one than in float32."""
    perplexity: float | None = None
    """Of a masked model that of hidden tokens."""
    cosine: float | None = None
    """Of a model that gives vectors: mean cosine of one with the same in float32."""
    neighbours: float | None = None
    """Share of texts whose nearest other text, by their cosine, is another one than in float32."""
    correlation: float | None = None
    """Of a model that answers with numbers: Pearson's, of its answers with those in float32."""
    score: float | None = None
    """Of a model that answers: its first score on the labelled rows."""

    def lost(self, own: FormatFigures) -> tuple[float, str]:
        """Return what it loses against the model's own parts, and of what; infinite where nobody knows."""
        if self.score is not None and own.score:
            return abs(self.score - own.score) / abs(own.score), "of the score"
        if self.kl is not None:
            return self.kl, "nats of KL divergence"
        if self.neighbours is not None:
            return self.neighbours, "of the nearest neighbours"
        if self.cosine is not None:
            return 1 - self.cosine, "of the cosine"
        if self.correlation is not None:
            return 1 - self.correlation, "of the correlation"
        return (float("inf"), "") if self.flips is None else (self.flips, "of the answers")

    @property
    def share(self) -> float | None:
        """The speed at batch 1 as a share of the floor."""
        return None if self.floor is None or 1 not in self.speeds else self.speeds[1] / self.floor


@dataclass(frozen=True, slots=True)
class Bench(Result):
    """All formats of a model on this machine."""

    model: str
    unit: str
    """Of the speeds: `tokens/s` or `ms`."""
    formats: tuple[FormatFigures, ...]
    chosen: str
    """What `--format auto` takes from now on."""
    loss: float
    """The most that it may lose."""
    threads: int
    tokens: int = 0
    """Of the text, or rows, that were compared; 0: none were given."""
    counted: str = "tokens"
    metric: str = ""
    """The score of labelled rows."""
    page: Path | None = None

    def remarks(self) -> list[str]:
        """Say what does not run, and why: a line for each reason."""
        faults = dict.fromkeys(one.fault for one in self.formats if one.fault)
        return [f"{', '.join(one.format for one in self.formats if one.fault == fault)}: {fault}" for fault in faults]

    def view(self) -> Group:
        """Return what `saucier bench` prints."""
        return Group(self.title, self.table(), self.caption)

    @property
    def title(self) -> str:
        """What was measured."""
        text = f", {self.tokens:,} {self.counted} compared" if self.tokens else ""
        return f"{self.model}, threads: {self.threads}{text}"

    @property
    def caption(self) -> str:
        """What `--format auto` takes."""
        drawn = "" if self.page is None else f"; drawn in {self.page}"
        own = next(one for one in self.formats if not one.fault)
        most = f"{self.loss:g} {own.lost(own)[1]}".strip()
        return f"--format auto takes {self.chosen}, the fastest that loses at most {most}{drawn}"

    def table(self) -> Table:
        """Return the figures of the formats that run."""
        ran = [one for one in self.formats if not one.fault]
        columns: dict[str, Callable[[FormatFigures], str]] = {"format": lambda one: one.format}
        for rows in ran[0].speeds:
            columns[f"{self.unit} ×{rows}"] = lambda one, rows=rows: f"{one.speeds[rows]:.1f}"  # type: ignore[misc]
        columns["matrices"] = lambda one: format_bytes(one.bytes) if one.bytes else "–"
        numbers: dict[str, tuple[str, str]] = {"floor": ("floor", ".1f"), "of it": ("share", ".0%"),
                                               "KL, nats": ("kl", ".5f"), "flips": ("flips", ".2%"),
                                               "perplexity": ("perplexity", ".3f"), "cosine": ("cosine", ".5f"),
                                               "other neighbour": ("neighbours", ".2%"),
                                               "correlation": ("correlation", ".5f"), self.metric: ("score", ".4f")}
        for heading, (name, form) in numbers.items():
            if any(getattr(one, name) is not None for one in ran):
                columns[heading] = lambda one, name=name, form=form: (  # type: ignore[misc]
                    "–" if getattr(one, name) is None else format(getattr(one, name), form))
        return Table(tuple(columns), [[cell(one) for cell in columns.values()] for one in ran],
                     numbers=range(1, len(columns)),
                     bold=[place for place, one in enumerate(ran) if one.format == self.chosen])


def bench(path: Path, files: Sequence[str] = (), *, loss: float = 0.0, tokens: int = 32, out: Path | None = None,
          options: EvaluationOptions | None = None) -> Bench:
    """Measure every format of a model, and keep which is the fastest that loses no more than `loss`.

    The loss is what `FormatFigures.lost` says. Without files it is not known, so that only float32 may be chosen.
    Raises `InputError`.
    """
    options = options or EvaluationOptions()
    opened = open_model(path, dtype="float32", device="cpu", base=options.base)
    model = opened.model
    runs, faults = list_contenders(model)
    lost = measure_loss(opened, runs, files, options)
    special = Writer(opened, tokens).special_tokens if writes_tokens(model) else {}
    speeds = {one.name: dict[int, float]() for one in runs}
    for batch, _, one in show_progress([(batch, turn, one) for batch in BATCHES for turn in range(ROUNDS)
                                        for one in runs], "measuring speed"):
        found = time_turn(one, batch, tokens, special)
        best = max if writes_tokens(model) else min
        speeds[one.name][batch] = best(found, speeds[one.name].get(batch, found))
    measured = [replace(FormatFigures(one.name, "", speeds[one.name], *measure_floor(one)),
                        **lost.figures.get(one.name, {})) for one in runs]
    chosen = choose(measured, loss, find_lossless(model), writes=writes_tokens(model))
    write_choice(model, {"format": chosen, "loss": loss, "measured": {one: speeds[one] for one in speeds}})
    result = Bench(str(path), "tokens/s" if writes_tokens(model) else "ms", (*measured, *faults), chosen, loss,
                   torch.get_num_threads(), lost.count, lost.counted, lost.metric, None if out is None else out / PAGE)
    if result.page is not None:
        write_bench_page(result, result.page)
    return result


def list_contenders(model: Transformer) -> tuple[list[Contender], list[FormatFigures]]:
    """Return the formats that run, the model's own parts first, and why others do not."""
    runs, faults = [Contender(OWN_PARTS, None, inference_view(model))], []
    for form in show_progress(get_args(Format), "preparing formats"):
        engine = Native(format=form)
        try:
            load_library()
            runs.append(Contender(form, engine, prepare(model, engine)))
        except (InputError, WorkError) as error:  # a part that the kernels lack, or no compiler
            faults.append(FormatFigures(form, error.what))
    return runs, faults


def time_turn(one: Contender, rows: int, tokens: int, special: Mapping[str, Any]) -> float:
    """Return new tokens a second, or the milliseconds of a batch of texts, at random tokens.

    `special`: the special ids that generation takes.
    """
    writes, vocab = writes_tokens(one.view), one.view.config.input_embed.vocab
    length = min(room(one.view.config, LENGTH), PROMPT if writes else LENGTH)
    ids = torch.randint(min(5, vocab - 1), vocab, (rows, length), generator=torch.Generator().manual_seed(0))
    if not writes:
        with torch.inference_mode():
            begin = time.perf_counter()
            one.view(ids, torch.ones_like(ids))
            return 1000 * (time.perf_counter() - begin)
    new = max(1, min(tokens, room(one.view.config, tokens, side="written", ahead=length)))
    begin = time.perf_counter()
    generate(one.view, ids, torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new, do_sample=False, num_beams=1,
             stop_strings=(), engine=one.engine, **special)
    return rows * new / max(LEAST_SECONDS, time.perf_counter() - begin)


def measure_floor(one: Contender) -> tuple[int, float | None]:
    """Return the bytes of matrices that a token or a batch reads, and how often memory can be read so in a second."""
    if one.engine is None:
        return 0, None
    if not writes_tokens(one.view):
        plan = getattr(one.view, name_side(one.view)).find_plan(1)
        return int(plan.bytes), None
    size = lower_model(one.view, one.engine, 1).bytes
    held = torch.ones(max(1, min(size, LARGEST_READ) // 4))
    seconds = []
    for _ in range(READS):
        begin = time.perf_counter()
        held.sum()
        seconds.append(time.perf_counter() - begin)
    return size, held.nbytes / max(LEAST_SECONDS, min(seconds)) / max(1, size)


def find_lossless(model: Transformer) -> tuple[str, ...]:
    """Return the formats that change no number of a model as it is stored."""
    stored = model.provenance.stored
    half = ("bfloat16",) if stored is not None and stored.widest == torch.bfloat16 else ()
    return OWN_PARTS, "float32", *half


def choose(measured: Sequence[FormatFigures], loss: float, lossless: Sequence[str], *, writes: bool) -> str:
    """Return the fastest format that loses no more than it may: at one row of a model that writes, else at eight.

    Where nothing may be lost a score that is the same is not enough: only what changes no number is.
    """
    allowed = [one for one in measured if one.format in lossless or (loss > 0 and one.lost(measured[0])[0] <= loss)]
    return max(allowed, key=lambda one: one.speeds[1] if writes else -one.speeds[BATCHES[-1]]).format


def write_bench_page(found: Bench, target: Path) -> None:
    """Write a page with the table and a picture of the speeds."""
    picture = draw_or_explain(lambda figure: draw_speeds(figure, found),
                              caption="Bars: measured. Ticks: what reading the matrices alone would take.")
    write_page(target, "bench.html", title="bench", name=found.title, about=found.caption, picture=picture,
               table=found.table())


def draw_speeds(figure: Figure, found: Bench) -> None:
    """Draw the speed of each format at one row, and its floor."""
    axes = figure.subplots()
    ran = [one for one in found.formats if not one.fault]
    values: list[Any] = [one.speeds[BATCHES[0]] for one in ran]
    axes.barh([one.format for one in ran], values, color=ACCENT, alpha=0.75)
    for place, one in enumerate(ran):
        if one.floor is not None:
            axes.plot([one.floor] * 2, [place - 0.4, place + 0.4], color=SECOND, linewidth=2)
    axes.invert_yaxis()
    axes.set_xlabel(f"{found.unit}, one row")
    axes.grid(axis="x")
