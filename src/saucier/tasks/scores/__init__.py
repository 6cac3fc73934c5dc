"""Scores of predictions against golds, with counts and intervals, and which metrics each kind of task is scored
by. The metrics are in `metrics`; nothing here reads a file or runs a model.

`scored(metrics_for("classes", golds, predictions), golds, predictions, seed)` is the whole use. What golds and
predictions are, row by row:

| kind | gold | prediction |
|---|---|---|
| `classes`, `choices` | a label | a label |
| `many_labels` | a list of labels, or none | the same |
| `numbers` | a number | a number |
| `tags` | a list of tags | as many tags |
| `spans` | a list of reference answers; empty where there is no answer | an answer, "" for none |
| `texts`, `summaries` | a text, or a list of references | a text |
| `rankings` | a list of relevances, of one query's candidates | a list of scores |
| `ranks` | the rank that is right: 1 | the rank, from 1, that the right candidate has |
| `losses` | the number of targets | the loss in nats |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from pydantic import ValidationError

from saucier.config.registry import explain_missing, find_builder, find_extension, is_outside
from saucier.errors import InputError, suggest_name
from saucier.tasks.definitions import CustomMetric, MetricConfig, NamedMetric
from saucier.tasks.metrics.labels import (
    EXACT_SETS,
    MEAN_ABSOLUTE_ERROR,
    MEAN_AVERAGE_PRECISION,
    MEAN_RECIPROCAL_RANK,
    PEARSON,
    RECIPROCAL_RANKS,
    ROOT_MEAN_SQUARED_ERROR,
    SPEARMAN,
    TAG_ACCURACY,
    ClassScore,
    Count,
    Side,
    accuracy,
    class_outcomes,
    class_scores,
    cut_at,
    entity_statistics,
    entity_types,
    f1_metric,
    macro,
    matthews,
    micro,
    set_outcomes,
)
from saucier.tasks.metrics.metric import TEST_DRAWS, Metric, compare_values, full_value, interval
from saucier.tasks.metrics.statistics import Difference
from saucier.tasks.metrics.texts import (
    BLEU,
    CHRF,
    PARTS,
    PERPLEXITY,
    TEXT_MATCH,
    answerable,
    rouge_metric,
    same_words,
    span_metric,
    word_f1,
)
from saucier.tasks.tag_schemes import SCHEMES, are_entities


@dataclass(frozen=True, slots=True)
class Score:
    """One metric's value. NaN where it is not defined, such as the correlation with a constant."""

    name: str
    value: float
    low: float
    """With `high` the 95 % interval over examples: for these predictions, on other data of this size."""
    high: float
    count: int
    """Examples that the score is about."""
    unit: str
    """What one example is: rows, sentences, questions, texts, queries."""


def scored(metrics: Sequence[Metric], golds: Sequence[Any], predictions: Sequence[Any], seed: int = 0) \
        -> tuple[Score, ...]:
    """Score predictions by some metrics, each with its 95 % interval, which `seed` draws.

    Errors: `InputError` where there is nothing to score, or not one prediction for each gold.
    """
    check_lengths(golds, predictions)
    return tuple(score(metric, golds, predictions, seed) for metric in metrics)


def score(metric: Metric, golds: Sequence[Any], predictions: Sequence[Any], seed: int = 0) -> Score:
    """Score predictions by one metric."""
    measured = metric.measure(golds, predictions)
    low, high = interval(measured, seed=seed)
    return Score(metric.name, full_value(measured), low, high, measured.count, metric.unit)


def score_difference(metric: Metric, golds: Sequence[Any], predictions: tuple[Sequence[Any], Sequence[Any]],
                     *, seed: int = 0, draws: int = TEST_DRAWS) -> Difference:
    """Compare two methods' predictions for the same golds; positive where the first one's score is higher."""
    for one in predictions:
        check_lengths(golds, one)
    first, second = (metric.measure(golds, one) for one in predictions)
    return compare_values(first, second, seed=seed, draws=draws)


def check_lengths(golds: Sequence[Any], predictions: Sequence[Any]) -> None:
    """Raise `InputError` where golds and predictions are not as many, or none."""
    if not golds or len(golds) != len(predictions):
        raise InputError(f"{len(predictions)} predictions for {len(golds)} golds", where="scores",
                         remedy="give one prediction for each gold, and at least one")


def labels_of(*sides: Sequence[Any]) -> tuple[Any, ...]:
    """List the labels that any side names: numbers by size, texts by the alphabet."""
    def key(label: Any) -> tuple[int, float, str]:
        is_number = isinstance(label, int | float) or (isinstance(label, str) and label.removeprefix("-").isdecimal())
        return (0, float(label), "") if is_number else (1, 0.0, str(label))

    return tuple(sorted({label for side in sides for label in side if label is not None}, key=key))


Choose = Callable[..., tuple[Metric, ...]]
"""From the golds and the predictions of one or more methods to the metrics."""


def class_metrics(golds: Sequence[Any], *predictions: Sequence[Any]) -> tuple[Metric, ...]:
    """Accuracy and macro F1; of two classes also Matthews' correlation, and F1 of the positive one (the last)."""
    labels = labels_of(golds, *predictions)
    two = (matthews(labels), f1_of(labels[-1])) if len(labels) == 2 else ()
    return accuracy(), f1_metric("macro F1", class_outcomes, labels, macro), *two


def f1_of(label: Any) -> Metric:
    """F1 of one class, such as the positive one."""
    return f1_metric(f"F1 of {label}", class_outcomes, [label], micro("F1"))


def many_label_metrics(golds: Sequence[Any], *predictions: Sequence[Any]) -> tuple[Metric, ...]:
    """Micro and macro F1, and rows that are right altogether."""
    labels = set_labels(golds, *predictions)
    return (f1_metric("micro F1", set_outcomes, labels, micro("F1")),
            f1_metric("macro F1", set_outcomes, labels, macro), EXACT_SETS)


def tag_metrics(golds: Sequence[Any], *predictions: Sequence[Any]) -> tuple[Metric, ...]:
    """Entities' precision, recall and F1; where the gold tags mark none (parts of speech) accuracy."""
    if not are_entities(tag for tags in golds for tag in tags):
        return (TAG_ACCURACY,)
    types = entity_types(golds, *predictions)
    return (*entity_scores(types),
            f1_metric("entity macro F1", entity_statistics, types, macro, "sentences"), TAG_ACCURACY)


SIDES: tuple[Side, ...] = ("F1", "precision", "recall")


def entity_scores(types: Sequence[str], scheme: str = "") -> tuple[Metric, ...]:
    """Score all entities together (micro), as a scheme reads them. Sentences are resampled, not entities."""
    count = partial(entity_statistics, read=SCHEMES[scheme or "lenient"])
    return tuple(f1_metric(f"entity {side}" + f" ({scheme})" * bool(scheme), count, types, micro(side), "sentences")
                 for side in SIDES)


def span_metrics(golds: Sequence[Any], *predictions: Sequence[Any]) -> tuple[Metric, ...]:
    """Exact match and F1; where some questions have no answer, also of either part."""
    split = any(map(answerable, golds)) and not all(map(answerable, golds))
    return tuple(span_metric(name, compare, part) for part in (PARTS if split else [""])
                 for name, compare in (("exact match", same_words), ("F1", word_f1)))


def further_metrics(kind: str, golds: Sequence[Any], *predictions: Sequence[Any]) -> tuple[Metric, ...]:
    """List what there is beyond the usual: F1 of any class, strict schemes of entities, more kinds of ROUGE."""
    match kind:
        case "classes":
            labels = labels_of(golds, *predictions)
            return matthews(labels), *map(f1_of, labels)
        case "numbers":
            return (MEAN_ABSOLUTE_ERROR,)
        case "tags":
            types = entity_types(golds, *predictions)
            return *entity_scores(types, "iob2"), *entity_scores(types, "bioes")
        case "texts":
            return (rouge_metric("ROUGE-Lsum", "rougeLsum"),)
        case _:
            return ()


def always(*metrics: Metric) -> Choose:
    """Return what chooses the same metrics for all golds and predictions."""
    return lambda golds, *predictions: metrics


ROUGE = (rouge_metric("ROUGE-1", "rouge1"), rouge_metric("ROUGE-2", "rouge2"), rouge_metric("ROUGE-L", "rougeL"))
KINDS: Mapping[str, Choose] = {
    "classes": class_metrics, "choices": always(accuracy("questions")), "many_labels": many_label_metrics,
    "numbers": always(PEARSON, SPEARMAN, ROOT_MEAN_SQUARED_ERROR), "tags": tag_metrics, "spans": span_metrics,
    "texts": always(BLEU, CHRF, *ROUGE, TEXT_MATCH), "summaries": always(*ROUGE, CHRF),
    "rankings": always(MEAN_AVERAGE_PRECISION, MEAN_RECIPROCAL_RANK),
    "ranks": always(RECIPROCAL_RANKS, cut_at(1), cut_at(10)), "losses": always(PERPLEXITY)}
"""The usual metrics of each kind of task; of choices accuracy alone, since their numbers mean nothing."""


def metrics_for(kind: str, golds: Sequence[Any], *predictions: Sequence[Any]) -> tuple[Metric, ...]:
    """Choose the metrics of a kind of task, for the golds and every method's predictions that will be scored.

    Errors: `InputError` for a kind that is none.
    """
    if kind not in KINDS:
        raise InputError(f"no kind of task {kind!r}", where="scores", remedy=suggest_name(kind, list(KINDS)))
    return KINDS[kind](golds, *predictions)


def choose_metric(config: MetricConfig, kind: str, golds: Sequence[Any], *predictions: Sequence[Any],
                  where: str = "metrics") -> Metric:
    """Return one metric for a kind of task: ours by its name, or one from outside.

    Errors: `InputError` for an unknown name, and for one that is for other kinds.
    """
    if isinstance(config, CustomMetric):
        if kind not in config.scores:
            raise InputError(f"{config.kind} scores {', '.join(config.scores)}, and these are {kind}", where=where,
                             remedy="leave it out")
        metric: Metric = find_builder(config)(config)
        return metric
    known = {slug(metric.name): metric for choose in (metrics_for, further_metrics)
             for metric in choose(kind, golds, *predictions)}
    if (name := slug(config.name)) not in known:
        raise InputError(f"no metric {config.name!r} of {kind}", where=where,
                         remedy=suggest_name(name, list(known)))
    return known[name]


def slug(name: str) -> str:
    """Write a metric's name as an option: `entity F1 (iob2)` is entity-f1-iob2; a kind from outside stays as it is."""
    return name if is_outside(name) else re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def read_metric(name: str, where: str) -> MetricConfig:
    """Return the metric that a word names: the kind of one from outside, or a name of ours.

    Errors: `InputError` for a kind that nothing registers.
    """
    if not is_outside(name):
        return NamedMetric(name=name)
    found = find_extension(name)
    if found is None or found.slot != CustomMetric.slot:
        what, remedy = explain_missing(name)
        raise InputError(what if found is None else f"{name!r} is no metric", where=where, remedy=remedy)
    try:
        return cast(MetricConfig, found.validator.validate_python({"kind": name}))
    except ValidationError as error:
        needed = ", ".join(str(one["loc"][-1]) for one in error.errors())
        raise InputError(f"{name} has settings without a default: {needed}", where=where,
                         remedy="give them in the metrics of a fine-tuning") from error


def set_labels(*sides: Sequence[Any]) -> tuple[Any, ...]:
    """List the labels of rows that have any number of them."""
    return labels_of(*([label for labels in side for label in labels] for side in sides))


COUNTED: Mapping[str, tuple[Callable[..., tuple[Any, ...]], Count]] = {
    "classes": (labels_of, class_outcomes), "many_labels": (set_labels, set_outcomes),
    "tags": (entity_types, entity_statistics)}
"""What is on both sides of each kind, and how it is counted."""


def per_class(kind: str, golds: Sequence[Any], predictions: Sequence[Any]) -> tuple[ClassScore, ...]:
    """Give precision, recall and F1 of each class, label or type of entity; nothing for other kinds of task."""
    if kind == "tags" and not are_entities(tag for tags in golds for tag in tags):
        return per_class("classes", *([tag for tags in side for tag in tags] for side in (golds, predictions)))
    if kind not in COUNTED:
        return ()
    list_names, count = COUNTED[kind]
    names = list_names(golds, predictions)
    return class_scores(count(golds, predictions, names), names)
