"""The model that a task begins with: the body of a model that is there, under the head that the task needs.

A published family gets its own class for the task, so that the result can be written in its layout again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from saucier import config as c
from saucier.adaptation.adopt import Adopted, adopt, take_decoder_off
from saucier.checkpoints.keys import Layout
from saucier.checkpoints.published import classes_with, label_names, published_tree
from saucier.config.asked import reads_pooled
from saucier.config.base import Config
from saucier.config.rewriting import rewritten
from saucier.config.visibility import SEPARATORS
from saucier.errors import InputError
from saucier.families.layouts import LAYOUTS
from saucier.finetuning.folder import task_labels
from saucier.hub import folder_of
from saucier.loading import model_folder_of
from saucier.model import Transformer, build
from saucier.parts.changed import Origin
from saucier.spelling import spell
from saucier.tasks.task import Wanted
from saucier.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model that is ready to learn a task."""

    model: Transformer
    adopted: Adopted
    """What of it is new, and what was left behind."""


def prepared(other: Transformer, wanted: Wanted, tokenizer: Tokenizer, *, start: Path | None = None, seed: int = 0,
             fresh_head: bool = False, mix: c.LayerMix | None = None,
             device: torch.device | str = "cpu") -> Prepared:
    """Build the model for a task and give it the weights of another; parameters that are new are drawn from `seed`.

    A head of the same kind that the other has is kept, unless a fresh one is asked for. With a `mix` the head reads all
    layers, for which no family publishes a class; where that is new, so is the head. `start` is where the weights came
    from; None: they were drawn. Raises `InputError` for a head with other labels, and for a body that the head does
    not fit.
    """
    where = "model" if start is None else str(start)
    other.published = told(other.published, other.config, tokenizer)
    trained = () if start is None else task_labels(model_folder_of(folder_of(start)))
    fits = tokenizer.vocab_size <= other.config.input_embed.vocab
    known = saved_labels(other, wanted, trained, where) if fits else None
    if known is not None and known != wanted.labels and not fresh_head:
        raise other_labels(known, wanted.labels, where)
    document = labelled_document(other.published, wanted.labels)
    if known is not None and not fresh_head and mix in (None, other.config.mix):
        other.published = document
        return Prepared(other.to(device), Adopted((), ()))
    published = None if mix else published_config(wanted, document, where)
    name, config = published or (None, own_config(other.config, wanted, tokenizer))
    config = config.model_copy(update={"mix": mix}) if mix else config
    model = build(config, seed=seed, device=device)
    spell(model, tokenizer)
    removed = trimmed(other, config)
    found = adopt(model, other)
    model.generation, model.carried = other.generation, other.carried
    model.origin = None if start is None else Origin.of(start, model, (*found.new, *found.wider))
    model.published = labelled_document({}, wanted.labels) if name is None else document | {"architectures": [name]}
    return Prepared(model, replace(found, left=found.left + removed))


def told(document: dict[str, Any], config: c.Transformer, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return a published config that knows the tokenizer's new tokens and its padding; empty where there is none."""
    if not document:
        return document
    more = {"vocab_size": tokenizer.vocab_size} if tokenizer.vocab_size > config.embed.vocab else {}
    if document.get("pad_token_id") is None and tokenizer.pad_id is not None:
        more["pad_token_id"] = tokenizer.pad_id
    return document | more


def saved_labels(other: Transformer, wanted: Wanted, told: tuple[str, ...] = (),
                 where: str = "model") -> tuple[str, ...] | None:
    """Return the labels of a head of the wanted kind that a model has already; None where it has none.

    `told`: the labels of the task that it was trained on, for a model whose config has no names.
    """
    head = other.config.head
    if head is None or head.kind != wanted.kind:
        return None
    classes = getattr(head, "classes", None)
    if classes is None:
        return wanted.labels
    names = label_names(other.published, classes, where) or tuple(f"LABEL_{one}" for one in range(classes))
    if not unnamed(names):
        return names
    if told and len(told) == classes:
        return told
    return wanted.labels if len(wanted.labels) == classes else names


def name_labels(model: Transformer, folder: Path) -> None:
    """Give a model the names of its outputs that stand beside it in a folder, where they are as many."""
    labels = task_labels(folder)
    if labels and len(labels) == getattr(model.config.head, "classes", None):
        model.published = labelled_document(model.published, labels)


def unnamed(labels: tuple[str, ...]) -> bool:
    """Say whether labels are only the numbers that a config has without names."""
    return labels == tuple(f"LABEL_{number}" for number in range(len(labels)))


def other_labels(known: tuple[str, ...], wanted: tuple[str, ...], where: str) -> InputError:
    """Return the error for a head that knows other labels."""
    def listed(labels: tuple[str, ...]) -> str:
        return f"{len(labels)} labels ({', '.join(labels[:4])}{', ...' if len(labels) > 4 else ''})"

    return InputError(f"its head knows {listed(known)}, and the data have {listed(wanted)}", where=where,
                      remedy="begin with a new head: fresh_head=true, or give task.labels in the head's order")


def labelled_document(document: dict[str, Any], labels: tuple[str, ...]) -> dict[str, Any]:
    """Return a published config with other labels; the labels alone where there is none."""
    if not labels:
        return dict(document)
    kept = {name: value for name, value in document.items() if name not in ("num_labels", "problem_type")}
    return kept | {"id2label": {str(number): label for number, label in enumerate(labels)},
                   "label2id": {label: number for number, label in enumerate(labels)}}


def published_config(wanted: Wanted, document: dict[str, Any], where: str) -> tuple[str, c.Transformer] | None:
    """Return the family's own class with such a head, and its tree; None where the family publishes none."""
    layout = LAYOUTS.get(str(document.get("model_type")))
    if layout is None:
        return None
    found = [name for name in classes_with(layout, document, wanted.kind, where)
             if not wanted.labels or names_labels(layout, name)]
    if not found:
        return None
    return found[0], published_tree(layout.spelled(layout, document), document, found[0], where)


def names_labels(layout: Layout, published: str) -> bool:
    """Say whether a class has labels with names; BERT's next-sentence classifier, for one, has none."""
    return any(key.foreign == "id2label" for key in layout.classes[published].keys)


def own_config(config: c.Transformer, wanted: Wanted, tokenizer: Tokenizer) -> c.Transformer:
    """Return a body under a head of ours; an encoder-decoder that is not to write keeps its encoder alone."""
    changes: dict[str, Any] = {"default_target": None} if wanted.kind != "language" else {}
    if config.encoder is not None and wanted.kind != "language":
        changes |= {"decoder": None, "decoder_embed": None}
    vocab = max(config.embed.vocab, tokenizer.vocab_size)
    changes["embed"] = config.embed.model_copy(update={"vocab": vocab})
    body = config.model_copy(update={**changes, "head": None})
    changed = seen_whole(body.model_copy(update={"head": wanted.generic(body, tokenizer)}), tokenizer)
    return changed if reads_pooled(changed) else changed.model_copy(update={"pooler": None})


def seen_whole(config: c.Transformer, tokenizer: Tokenizer) -> c.Transformer:
    """Return a tree with the global tokens that its head needs, where they are left to the batch.

    A task's batches name none, and without one no vector would be of the whole text.
    """
    tokens = global_tokens(config.head, tokenizer)

    def named(part: Config) -> Config:
        left = isinstance(part, c.Global) and isinstance(part.otherwise, c.NoTokens)
        return part.model_copy(update={"otherwise": tokens}) if left else part

    return config if tokens is None else rewritten(config, named)


def global_tokens(head: c.Head | None, tokenizer: Tokenizer) -> c.GlobalTokens | None:
    """Return the tokens that see all under a head: the first, or a question's where separators tell it; None for none.

    Source: Beltagy et al. 2020, §3.1, arXiv:2004.05150; there all of a choice's tokens are global, here the first.
    """
    match head:
        case c.ClassificationHead() | c.EmbeddingHead() | c.ChoiceHead():
            return c.FirstToken()
        case c.SpanHead():
            separator = tokenizer.sep_id
            told = separator is not None and tokenizer.encode("a", pair="a").count(separator) == SEPARATORS
            return c.BeforeSeparator(token=separator) if told and separator is not None else c.FirstToken()
    return None


def trimmed(other: Transformer, config: c.Transformer) -> tuple[str, ...]:
    """Take off a model what the task's model has no place for, and return the names of its parameters."""
    before = [name for name, _ in other.named_parameters()]
    other.head = None
    take_decoder_off(other, config)
    after = {name for name, _ in other.named_parameters()}
    return tuple(name for name in before if name not in after)
