"""What a model loses in each number format, on a user's own text or labelled rows, against its own parts in float32.

What is compared is what the model gives: distributions of tokens, vectors, or answers.
Letters: T texts, L tokens, E width of a vector, V vocab.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from saucier.errors import InputError
from saucier.generation.decoding import Native
from saucier.generation.formats import writes_tokens
from saucier.generation.native_feed import score_texts
from saucier.jobs.compression.measurement import agree, divergence, read_probabilities
from saucier.jobs.evaluation.answers import TaskModel, encodable, fit_task, read_labelled
from saucier.jobs.evaluation.evaluate import identify_model
from saucier.jobs.evaluation.likelihood import (
    HIDDEN_TOGETHER,
    HiddenTokenModel,
    NextTokenModel,
    Row,
    cut_windows,
    hide_texts,
    read_bare_texts,
    read_measured_texts,
    read_texts,
)
from saucier.jobs.evaluation.measurement import EvaluationOptions
from saucier.jobs.export.proof import encode_texts
from saucier.jobs.finetuning.predict import PREDICTION_BATCH, RowOptions, encoding_of, lines_are_texts, read_request
from saucier.jobs.finetuning.results import score_answers
from saucier.jobs.run.console import show_progress
from saucier.model import Transformer
from saucier.opened import OpenModel, room
from saucier.retrieval.embed import embed
from saucier.tasks.definitions import Embedding
from saucier.tasks.examples import Tally
from saucier.tasks.task import Answer, Predictor, Task
from saucier.tasks.written.task import pad_rows
from saucier.text.reading.sources import find_sources

LENGTH, MOST_WINDOWS = 128, 32
"""Tokens of a window of the user's text, and windows whose tokens are compared."""
MOST_TEXTS = 2_048
"""Texts whose vectors are compared."""
FEWEST_NEIGHBOURS = 3
"""Of two texts each is the other's nearest, whatever the vectors."""

Figures = dict[str, Any]
"""Field of `FormatFigures` -> its value."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One format that runs."""

    name: str
    engine: Native | None
    view: Transformer
    """What is called; a model that writes is itself, and told the engine."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What was compared, and found."""

    figures: Mapping[str, Figures] = field(default_factory=dict)
    """By format."""
    count: int = 0
    counted: str = "tokens"
    """What there are so many of."""
    metric: str = ""
    """The score of labelled rows."""


def measure_loss(opened: OpenModel, runs: Sequence[Contender], files: Sequence[str],
                 options: EvaluationOptions) -> Loss:
    """Return what each format loses on files; nothing without files. The first of `runs` is what they are held to.

    Raises `InputError` for files that do not suit the model.
    """
    if not files:
        return Loss()
    config = opened.model.config
    if config.head is None and not opened.is_encoder_decoder:
        return compare_bodies(opened, runs, read_lines_of(files, options))
    match identify_model(opened, files, options.read):
        case NextTokenModel():
            return compare_tokens(opened, runs, list(list_windows(opened, files, options)), "tokens")
        case HiddenTokenModel():
            texts = read_bare_texts(opened, read_measured_texts(files, options))
            rows = hide_texts(opened, [one for one in texts if one.ids], length=room(config, LENGTH),
                              every=HIDDEN_TOGETHER)
            return compare_tokens(opened, runs, list(islice(rows, MOST_WINDOWS * HIDDEN_TOGETHER)), "hidden tokens")
        case TaskModel() as subject:
            return compare_answers(subject.changed(options), runs, files, options)


def list_windows(opened: OpenModel, files: Sequence[str], options: EvaluationOptions) -> Iterator[Row]:
    """Yield the first windows of texts: each token but the first of a window is predicted."""
    length = room(opened.model.config, LENGTH)
    texts = read_texts(opened, read_measured_texts(files, options))
    windows = (row.ids for number, text in enumerate(texts)
               for row in cut_windows(text, number, length=length, stride=length))
    yield from (Row(ids, range(len(ids) - 1), ids[1:], 0) for ids in islice(windows, MOST_WINDOWS))


def compare_tokens(opened: OpenModel, runs: Sequence[Contender], rows: Sequence[Row], counted: str) -> Loss:
    """Compare the distributions of tokens: KL, flips, and the perplexity of each format."""
    sums = {one.name: torch.zeros(3, dtype=torch.float64) for one in runs}
    count = sum(len(row.targets) for row in rows)
    if not count:
        raise InputError("has no text of two tokens", where="--data", remedy="give a longer text")
    for row in show_progress(rows, "measuring quality"):
        ids, mask = pad_rows([list(row.ids)], opened.tokenizer.pad_id or 0, left=False)
        targets, expected = torch.tensor(list(row.targets)), None
        for one in runs:
            found = give_scores(one, ids, mask)[list(row.places)].float().log_softmax(-1)
            expected = found if expected is None else expected
            sums[one.name] += torch.tensor([
                float((expected.exp() * (expected - found)).sum()),
                float((expected.argmax(-1) != found.argmax(-1)).sum()),
                -float(found.gather(-1, targets[:, None]).sum())], dtype=torch.float64)
    means = {name: (one / count).tolist() for name, one in sums.items()}
    return Loss({name: {"kl": max(0.0, kl), "flips": flips, "perplexity": float(torch.tensor(nats).exp())}
                 for name, (kl, flips, nats) in means.items()}, count, counted)


def give_scores(one: Contender, ids: Tensor, mask: Tensor) -> Tensor:
    """Return the scores of tokens at each place of one text. Shapes: ids, mask [1, L] -> [L, V]."""
    with torch.inference_mode():
        if one.engine is not None and writes_tokens(one.view):
            return score_texts(one.view, one.engine, ids, mask)[0]
        logits: Tensor = one.view(ids, mask).logits
        return logits[0]


def read_lines_of(files: Sequence[str], options: EvaluationOptions) -> list[str]:
    """Return the first lines of texts. Raises `InputError` where there is none."""
    lines = (line.strip() for text in read_measured_texts(files, options) for line in text.splitlines())
    found = list(islice(filter(None, lines), MOST_TEXTS))
    if not found:
        raise InputError("has no line of text", where="--data", remedy="give a text")
    return found


def compare_bodies(opened: OpenModel, runs: Sequence[Contender], texts: Sequence[str]) -> Loss:
    """Compare the vectors that a model without a head gives at each token of texts."""
    rows = encode_texts(opened.model, opened.tokenizer, texts)[:MOST_WINDOWS]
    sums = dict.fromkeys((one.name for one in runs), 0.0)
    for row in show_progress(rows, "measuring quality"):
        ids, expected = torch.tensor([row]), None
        for one in runs:
            with torch.inference_mode():
                vectors = one.view(ids, torch.ones_like(ids)).last_hidden_state[0].double()
            expected = vectors if expected is None else expected
            sums[one.name] += float(torch.cosine_similarity(vectors, expected, dim=-1).sum())
    count = sum(map(len, rows))
    return Loss({name: {"cosine": total / count} for name, total in sums.items()}, count)


def compare_answers(subject: TaskModel, runs: Sequence[Contender], files: Sequence[str],
                    options: EvaluationOptions) -> Loss:
    """Compare the answers of a model for a task, and their first score where rows are labelled.

    Of classes and tags also their probabilities; of an embedder the vectors instead, for which texts are enough.
    """
    task, opened = subject.task, subject.opened
    labelled = not all(lines_are_texts(task, one) for one in find_sources([*files], options.read))
    vectors = isinstance(task.config, Embedding)
    if vectors and not labelled:
        return compare_vectors(opened, runs, read_lines_of(files, options)[:options.limit])
    if labelled:
        examples = read_labelled(task, files, options, Tally(), [])[:options.limit]
        task, _ = fit_task(subject, examples)
    else:
        examples = read_request(task, files, options=RowOptions(options.read)).examples[:options.limit]
    said = answer_in_formats(task, opened, runs, examples, options)
    found = {name: {} if vectors else compare_pair(task, one, said[runs[0].name]) for name, one in said.items()}
    metric = ""
    for name, one in said.items() if labelled else ():
        score = score_answers(task, "", examples, one.answers).scores[0]
        found[name]["score"], metric = score.value, score.name
    if vectors:
        texts = dict.fromkeys(text for one in examples for text in one.texts)
        for name, figures in compare_vectors(opened, runs, list(islice(texts, MOST_TEXTS))).figures.items():
            found[name] |= figures
    return Loss(found, len(examples), "rows", metric)


@dataclass(frozen=True, slots=True)
class Said:
    """What a model says of rows in one format."""

    answers: list[Answer]
    probabilities: Tensor | None
    """[rows or tags, classes]; None where there are none."""


def answer_in_formats(task: Task, opened: OpenModel, runs: Sequence[Contender], examples: Sequence[Any],
                      options: EvaluationOptions) -> dict[str, Said]:
    """Answer in each format, multiplying in float32 where it is the model's own parts that do it."""
    assert opened.length is not None, "for_task knows it"
    encoding, found = encoding_of(opened, opened.length), dict[str, Said]()
    encoded = task.encode(encodable(task, examples), encoding)
    for one in show_progress(runs, "measuring quality"):
        predictor = Predictor(one.view, encoding, options.batch or PREDICTION_BATCH)
        with written_by(one):
            found[one.name] = Said(task.predict(predictor, examples, encoded),
                                   None if isinstance(task.config, Embedding) else
                                   read_probabilities(task, predictor, encoded))
    return found


@contextmanager
def written_by(one: Contender) -> Iterator[None]:
    """Let a model that writes do so in a format meanwhile, as if it had been loaded in it."""
    before = one.view.format
    if one.engine is not None:
        one.view.format = one.engine.format
    try:
        yield
    finally:
        one.view.format = before


def compare_pair(task: Task, own: Said, theirs: Said) -> Figures:
    """Return how far answers are from those in float32: their correlation where they are numbers, else the flips."""
    found = agree(task, (own.answers, theirs.answers), divergence(own.probabilities, theirs.probabilities))
    if task.scored_as == "numbers":
        return {"correlation": found.value}
    return {"flips": 1 - found.value, **({} if found.divergence is None else {"kl": found.divergence})}


def compare_vectors(opened: OpenModel, runs: Sequence[Contender], texts: Sequence[str]) -> Loss:
    """Compare the vectors of texts: their cosine, and the share whose nearest other text is another one.

    Shapes: vectors [T, E].
    """
    found, first = dict[str, Figures](), None
    for one in show_progress(runs, "measuring quality"):
        vectors = normalize(embed(one.view, texts, tokenizer=opened.tokenizer).double(), dim=-1)
        nearest = (vectors @ vectors.T).fill_diagonal_(-2.0).argmax(-1)  # less than any cosine
        first = first or (vectors, nearest)
        figures = found.setdefault(one.name, {"cosine": float((vectors * first[0]).sum(-1).mean())})
        if len(texts) >= FEWEST_NEIGHBOURS:
            figures["neighbours"] = float((nearest != first[1]).double().mean())
    return Loss(found, len(texts), "texts")
