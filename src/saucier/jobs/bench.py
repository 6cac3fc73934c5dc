"""`bench`: every number format of a model on this machine: how fast, beside what memory allows, and what it loses.

Rounds are interleaved, so that a machine that slows down slows all formats down; the best round counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import torch
from rich.console import Group
from torch import Tensor

from saucier.errors import InputError, WorkError
from saucier.generation.decoding import Native
from saucier.generation.formats import prepare, write_choice, writes_tokens
from saucier.generation.generate import generate
from saucier.generation.native_encoder import name_side
from saucier.generation.native_feed import lower_model, score_texts
from saucier.generation.packed_weights import inference_view
from saucier.jobs.evaluation.evaluate import evaluate, identify_model
from saucier.jobs.evaluation.likelihood import NextTokenModel, cut_windows, read_measured_texts, read_texts
from saucier.jobs.evaluation.measurement import EvaluationOptions
from saucier.jobs.run.console import show_progress
from saucier.jobs.writing.writer import Writer
from saucier.model import Transformer
from saucier.native.library import load_library
from saucier.native.matrices import Format
from saucier.native.packed import OWN_PARTS
from saucier.opened import OpenModel, open_model, room
from saucier.plain import format_bytes
from saucier.report.page import ACCENT, SECOND, draw_or_explain, write_page
from saucier.result import Result
from saucier.table import Table
from saucier.tasks.written.task import pad_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROUNDS, PROMPT, LENGTH, BATCHES = 3, 16, 128, (1, 8)
MOST_WINDOWS = 32
"""Windows of `LENGTH` tokens of the user's text that formats are compared on."""
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
    """Mean over the tokens of the text of the Kullback–Leibler divergence to float32, nats."""
    flips: float | None = None
    """Share of tokens whose likeliest successor is another one than in float32."""
    perplexity: float | None = None
    score: float | None = None
    """Of a model that answers: its first score on the labelled rows."""

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
        return f"--format auto takes {self.chosen}, the fastest that loses at most {self.loss:g}{drawn}"

    def table(self) -> Table:
        """Return the figures of the formats that run."""
        ran = [one for one in self.formats if not one.fault]
        columns: dict[str, Callable[[FormatFigures], str]] = {"format": lambda one: one.format}
        for rows in ran[0].speeds:
            columns[f"{self.unit} ×{rows}"] = lambda one, rows=rows: f"{one.speeds[rows]:.1f}"  # type: ignore[misc]
        columns["matrices"] = lambda one: format_bytes(one.bytes) if one.bytes else "–"
        numbers: dict[str, tuple[str, str]] = {"floor": ("floor", ".1f"), "of it": ("share", ".0%"),
                                               "KL, nats": ("kl", ".5f"), "flips": ("flips", ".2%"),
                                               "perplexity": ("perplexity", ".3f"), self.metric: ("score", ".4f")}
        for heading, (name, form) in numbers.items():
            if any(getattr(one, name) is not None for one in ran):
                columns[heading] = lambda one, name=name, form=form: (  # type: ignore[misc]
                    "–" if getattr(one, name) is None else format(getattr(one, name), form))
        return Table(tuple(columns), [[cell(one) for cell in columns.values()] for one in ran],
                     numbers=range(1, len(columns)),
                     bold=[place for place, one in enumerate(ran) if one.format == self.chosen])


@dataclass(frozen=True, slots=True)
class Contender:
    """One format that runs."""

    name: str
    engine: Native | None
    view: Transformer
    """What is called; a model that writes is itself, and told the engine."""


def bench(path: Path, files: Sequence[str] = (), *, loss: float = 0.0, tokens: int = 32, out: Path | None = None,
          options: EvaluationOptions | None = None) -> Bench:
    """Measure every format of a model, and keep which is the fastest that loses no more than `loss`.

    The loss is the mean KL to float32 in nats of a language model, of any other the share by which its score differs.
    Without files it is not known, so that only float32 may be chosen. Raises `InputError`.
    """
    options = options or EvaluationOptions()
    opened = open_model(path, dtype="float32", device="cpu", base=options.base)
    model = opened.model
    runs, faults = list_contenders(model)
    special = Writer(opened, tokens).special_tokens if writes_tokens(model) else {}
    speeds = {one.name: dict[int, float]() for one in runs}
    for batch, _, one in show_progress([(batch, turn, one) for batch in BATCHES for turn in range(ROUNDS)
                                        for one in runs], "measuring speed"):
        found = time_turn(one, batch, tokens, special)
        best = max if writes_tokens(model) else min
        speeds[one.name][batch] = best(found, speeds[one.name].get(batch, found))
    lost, count, metric = measure_loss(opened, runs, files, options)
    measured = [replace(FormatFigures(one.name, "", speeds[one.name], *measure_floor(one)),
                        **lost.get(one.name, {})) for one in runs]
    chosen = choose(measured, loss, find_lossless(model), writes=writes_tokens(model))
    write_choice(model, {"format": chosen, "loss": loss, "measured": {one: speeds[one] for one in speeds}})
    counted = "rows" if metric and not metric.endswith("perplexity") else "tokens"
    result = Bench(str(path), "tokens/s" if writes_tokens(model) else "ms", (*measured, *faults), chosen, loss,
                   torch.get_num_threads(), count, counted, metric, None if out is None else out / PAGE)
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


def measure_loss(opened: OpenModel, runs: Sequence[Contender], files: Sequence[str],
                 options: EvaluationOptions) -> tuple[dict[str, dict[str, Any]], int, str]:
    """Return by format what is lost on files, how many tokens were compared, and the name of the score."""
    if not files:
        return {}, 0, ""
    if isinstance(identify_model(opened, files, options.read), NextTokenModel):
        rows = list(list_windows(opened, files, options))
        found, count = compare_scores(runs, rows, opened.tokenizer.pad_id or 0)
        return found, count, ""
    scores, metric, count = {}, "", 0
    for one in show_progress(runs, "measuring quality"):
        form = None if one.engine is None else one.engine.format
        measured = evaluate(str(opened.path), files, EvaluationOptions(
            changes=options.changes, columns=options.columns, read=options.read, base=options.base,
            limit=options.limit, dtype="float32", format=form))
        metric, count = measured.scores[0].name, measured.amount
        scores[one.name] = {"score": measured.scores[0].value}
    return scores, count, metric


def list_windows(opened: OpenModel, files: Sequence[str], options: EvaluationOptions) -> Iterator[Sequence[int]]:
    """Yield the ids of the first windows of texts."""
    length = room(opened.model.config, LENGTH)
    texts = read_texts(opened, read_measured_texts(files, options))
    windows = (row.ids for number, text in enumerate(texts)
               for row in cut_windows(text, number, length=length, stride=length))
    yield from (ids for _, ids in zip(range(MOST_WINDOWS), windows, strict=False))


def compare_scores(runs: Sequence[Contender], rows: Sequence[Sequence[int]],
                   padding: int) -> tuple[dict[str, dict[str, float]], int]:
    """Return KL, flips and perplexity of each format against the model's own parts in float32, and the tokens read."""
    if not rows:
        raise InputError("has no text of two tokens", where="--data", remedy="give a longer text")
    sums = {one.name: torch.zeros(3, dtype=torch.float64) for one in runs}
    count = 0
    for ids in show_progress(rows, "measuring quality"):
        given, mask = pad_rows([list(ids)], padding, left=False)
        targets = given[0, 1:]
        count += len(targets)
        expected: Tensor | None = None
        for one in runs:
            with torch.inference_mode():
                logits = one.view(given, mask).logits if one.engine is None else \
                    score_texts(one.view, one.engine, given, mask)
            found = logits[0, :-1].float().log_softmax(-1)
            expected = found if expected is None else expected
            sums[one.name] += torch.tensor([
                float((expected.exp() * (expected - found)).sum()),
                float((expected.argmax(-1) != found.argmax(-1)).sum()),
                -float(found.gather(-1, targets[:, None]).sum())], dtype=torch.float64)
    means = {name: (one / count).tolist() for name, one in sums.items()}
    return {name: {"kl": max(0.0, kl), "flips": flips, "perplexity": float(torch.tensor(nats).exp())}
            for name, (kl, flips, nats) in means.items()}, count


def find_lossless(model: Transformer) -> tuple[str, ...]:
    """Return the formats that change no number of a model as it is stored."""
    stored = model.provenance.stored
    half = ("bfloat16",) if stored is not None and stored.widest == torch.bfloat16 else ()
    return OWN_PARTS, "float32", *half


def choose(measured: Sequence[FormatFigures], loss: float, lossless: Sequence[str], *, writes: bool) -> str:
    """Return the fastest format that loses no more than it may: at one row of a model that writes, else at eight."""
    own = measured[0]

    def lost(one: FormatFigures) -> float:
        if one.format in lossless:
            return 0.0
        if one.kl is not None:
            return one.kl
        if one.score is None or own.score is None:
            return float("inf")
        return abs(one.score - own.score) / max(abs(own.score), LEAST_SECONDS)

    allowed = [one for one in measured if lost(one) <= loss]
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
