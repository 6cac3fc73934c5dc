"""What a fine-tuning starts with: a trained model or a recipe, and its body under the head that the task needs.

A published family gets its own class for the task, so that the result can be written in its layout again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import torch

from saucier import config as c
from saucier.adaptation.starting_weights import TransferReport, drop_decoder, initialize_from
from saucier.arguments import format_overrides
from saucier.checkpoints.hub import is_hub_id, resolve_folder
from saucier.checkpoints.layout import Published, find_head_kinds, published_tree
from saucier.checkpoints.published_names import read_generation_defaults
from saucier.config.base import Config, rewrite_config
from saucier.config.questions import reads_pooled
from saucier.config.visibility import SEPARATORS
from saucier.errors import InputError
from saucier.families import LAYOUTS
from saucier.files import is_folder, read_object
from saucier.folders.kinds import find_model_folder
from saucier.folders.load import load, set_token_spellings
from saucier.jobs.finetuning.data import Splits
from saucier.jobs.finetuning.defaults import published_pooling
from saucier.jobs.finetuning.predict import output_names
from saucier.jobs.finetuning.settings import Finetuning, check_model
from saucier.jobs.finetuning.task_folder import read_task_labels
from saucier.model import Transformer, build
from saucier.objectives.base import TokenIds
from saucier.parts.provenance import Origin, Provenance
from saucier.recipes import Recipe
from saucier.recipes.catalogue import recipe
from saucier.tasks.definitions import Texts
from saucier.tasks.task import RequiredHead
from saucier.text.tokenizer.tokenizer import Tokenizer, load_tokenizer
from saucier.text.tokenizer.training import train_tokenizer


@dataclass(frozen=True, slots=True)
class TrainedStart:
    """A model that is there: a folder, a run, or a hub id."""

    place: Path
    """The folder or hub id."""

    @property
    def folder(self) -> Path:
        """The folder of its weights."""
        return find_model_folder(resolve_folder(self.place))

    @property
    def document(self) -> dict[str, Any]:
        """The config in the folder; empty where another one holds it, as for an adapter."""
        return read_object(self.folder / "config.json")

    @property
    def generation_defaults(self) -> dict[str, Any]:
        """How it writes, under the names of `saucier.generate`."""
        return read_generation_defaults(self.folder, read_object(self.folder / "config.json"))

    def tokenizer(self, splits: Splits) -> Tokenizer:
        """Return the one in the folder."""
        return load_tokenizer(self.place)

    def body(self, tokenizer: Tokenizer) -> c.Transformer:
        """Return the config in the folder."""
        from saucier.lens.subject import find_subject

        return find_subject(str(self.folder)).model

    def model(self, tokenizer: Tokenizer) -> Transformer:
        """Load it."""
        return load(self.place, dtype="float32", device="cpu")


@dataclass(frozen=True, slots=True)
class RecipeStart:
    """A recipe: random weights, and a tokenizer that is trained on the texts of the training rows."""

    recipe: Recipe
    seed: int

    place: ClassVar[None] = None
    """A recipe is in no folder."""
    document: ClassVar[dict[str, Any]] = {}
    """Of a published model."""
    generation_defaults: ClassVar[dict[str, Any]] = {}
    """Nothing yet."""

    def tokenizer(self, splits: Splits) -> Tokenizer:
        """Train one on the training rows. Raises `InputError` for a vocabulary that their texts cannot give, or two."""
        if self.recipe.target_tokenizer is not None:
            raise InputError("a fine-tuning trains one tokenizer, and the recipe has two", where="target_tokenizer",
                             remedy="cook the recipe on pairs, and fine-tune the run")
        try:
            return train_tokenizer(self.recipe.tokenizer, list(training_texts(splits, self.recipe.model)))
        except InputError as error:
            raise InputError(error.what, where=f"recipe.{error.where}", remedy=error.remedy) from error

    def body(self, tokenizer: Tokenizer) -> c.Transformer:
        """Return the recipe's model, with as many tokens as the tokenizer has."""
        return self.recipe.model_for(tokenizer.vocab_size)

    def model(self, tokenizer: Tokenizer) -> Transformer:
        """Build it."""
        model = build(self.body(tokenizer), seed=self.seed)
        set_token_spellings(model, tokenizer)
        model.provenance = Provenance(generation=TokenIds.of(tokenizer.target).generation_options)
        return model


Start = TrainedStart | RecipeStart
"""What a fine-tuning begins with."""


def open_start(settings: Finetuning) -> Start:
    """Return what a fine-tuning begins with. Raises `InputError` for what is neither model nor recipe."""
    check_model(settings)
    name = settings.model
    if is_folder(name) or is_hub_id(name):
        return TrainedStart(Path(name))
    length, words = settings.training.length, list(format_overrides(settings.recipe))
    if length is not None and length < recipe(name).training.length:  # so that its model may have as few positions
        words = [f"training.length={length}", *words]
    return RecipeStart(recipe(name, words), settings.training.seed)


PICKS = {
    "pooled": "the first token's vector, through the pooler", "first": "the first token's vector",
    "first_unmasked": "the first token's vector", "last": "the last position's vector",
    "last_token": "the last token's vector", "end_token": "the vector at the end of the text",
    "mean": "the mean of their vectors", "mean_all": "the mean of the vectors of all positions",
    "chosen": "the vector at a chosen position"}
"""How a person is told where a text's vector is taken, by the kind of a pick."""


def describe_pooling(model: Transformer, settings: Finetuning) -> str:
    """Say where a classifier takes the vector of a text, and what says so; nothing of other heads."""
    head = model.config.head
    if not isinstance(head, c.ClassificationHead) or not isinstance(settings.task, Texts):
        return ""
    said, published = settings.task.pick, published_pooling(settings.model)
    classes = model.provenance.document.get("architectures") or ["the model"]
    why = f"as {classes[0]} has it" if said is None else "as task.pick says"
    match published:
        case (c.Pooling(kind="mean"),) if head.pick.kind == "mean":
            why = "as modules.json says"
        case (c.Pooling(kind="cls"),) if head.pick.kind in ("pooled", "first", "first_unmasked"):
            why += ", and modules.json too"
        case (_, *_):
            why += f"; modules.json says {', '.join(one.kind for one in published)}"
    return f"texts are read by {PICKS[head.pick.kind]}, {why}"


def training_texts(splits: Splits, body: c.Transformer) -> Iterator[str]:
    """Yield all that a body reads and writes in the training rows."""
    task = splits.task
    for one in splits.train:
        whole = (*task.surrounding_texts(one, body), *one.texts, *task.target_texts(one))
        yield from (part for part in whole if part)


def build_task_model(other: Transformer, required: RequiredHead, tokenizer: Tokenizer | None, *,
                     start: Path | None = None, seed: int = 0, fresh_head: bool = False, mix: c.LayerMix | None = None,
                     device: torch.device | str = "cpu") -> tuple[Transformer, TransferReport]:
    """Build the model for a task and give it the weights of another; parameters that are new are drawn from `seed`.

    Returns also what of it is new, and what was left out.

    A head of the same kind that the other has is kept, unless `fresh_head`. With a `mix` the head reads all
    layers, for which no family publishes a class; where that is new, so is the head. `start` is where the weights came
    from; None: they were drawn. Without a `tokenizer` the body keeps its vocabulary, and the head must be one that
    its family publishes. Raises `InputError` for a head with other labels, and for a body that the head does not fit.
    """
    where = "model" if start is None else str(start)
    if mix and other.paired:
        raise InputError("a head behind an encoder and a decoder reads the decoder's last layer", where="mix",
                         remedy="leave it out, or give a model of one stack")
    document = published_with_tokenizer(other.provenance.document, other.config, tokenizer)
    other.provenance = replace(other.provenance, document=document)
    trained = () if start is None else read_task_labels(find_model_folder(resolve_folder(start)))
    fits = tokenizer is None or tokenizer.vocab_size <= other.config.input_embed.vocab
    known = labels_of_head(other, required, trained, where) if fits else None
    if known is not None and known != required.labels and not fresh_head:
        raise other_labels_error(known, required.labels, where)
    document = with_labels(document, required.labels)
    if known is not None and not fresh_head and mix in (None, other.config.mix):
        other.provenance = replace(other.provenance, document=document)
        return other.to(device), TransferReport()
    published = None if mix else published_task_config(required, document, where)
    if published is None and tokenizer is None:
        raise InputError("no class of its family has such a head, and one of ours needs the tokenizer", where=where,
                         remedy="put the model's tokenizer into its folder")
    name, config = published or (None, own_task_config(other.config, required, cast(Tokenizer, tokenizer)))
    config = config.model_copy(update={"mix": mix}) if mix else config
    model = build(config, seed=seed, device=device)
    if tokenizer is not None:
        set_token_spellings(model, tokenizer)
    removed = remove_unused_parts(other, config)
    found = initialize_from(model, other)
    model.provenance = replace(
        other.provenance, rewrites=(),
        origin=None if start is None else Origin.of(start, model, (*found.new, *found.wider)),
        document=with_labels({}, required.labels) if name is None else {**document, "architectures": [name]})
    return model, replace(found, left=found.left + removed)


def published_with_tokenizer(document: Mapping[str, Any], config: c.Transformer,
                             tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Return a published config that knows the tokenizer's new tokens and its padding; empty where there is none."""
    if not document or tokenizer is None:
        return dict(document)
    more = {"vocab_size": tokenizer.vocab_size} if tokenizer.vocab_size > config.embed.vocab else {}
    if document.get("pad_token_id") is None and tokenizer.pad_id is not None:
        more["pad_token_id"] = tokenizer.pad_id
    return {**document, **more}


def labels_of_head(other: Transformer, required: RequiredHead, learned: tuple[str, ...] = (),
                   where: str = "model") -> tuple[str, ...] | None:
    """Return the labels of a head of the required kind that a model has already; None where it has none.

    `learned`: the labels of the task that it was trained on, for a model whose config has no names.
    """
    head = other.config.head
    if head is not None and head.kind in required.holders:
        return required.labels
    if head is None or head.kind != required.kind or required.pick is not None:
        return None
    classes = getattr(head, "classes", None)
    if classes is None:
        return required.labels
    names = output_names(other, classes, where)
    if names != tuple(f"LABEL_{number}" for number in range(len(names))):  # those of a config without names
        return names
    if learned and len(learned) == classes:
        return learned
    return required.labels if len(required.labels) == classes else names


def name_labels(model: Transformer, folder: Path) -> None:
    """Give a model the names of its outputs that its folder has, where there are as many."""
    labels = read_task_labels(folder)
    if labels and len(labels) == getattr(model.config.head, "classes", None):
        model.provenance = replace(model.provenance, document=with_labels(model.provenance.document, labels))


def other_labels_error(known: tuple[str, ...], required: tuple[str, ...], where: str) -> InputError:
    """Return the error for a head that knows other labels."""
    def listed(labels: tuple[str, ...]) -> str:
        return f"{len(labels)} labels ({', '.join(labels[:4])}{', ...' if len(labels) > 4 else ''})"

    return InputError(f"its head knows {listed(known)}, and the data have {listed(required)}", where=where,
                      remedy="begin with a new head: fresh_head=true, or give task.labels in the head's order")


def with_labels(document: Mapping[str, Any], labels: tuple[str, ...]) -> dict[str, Any]:
    """Return a published config with other labels; the labels alone where there is none."""
    if not labels:
        return dict(document)
    kept = {name: value for name, value in document.items() if name not in ("num_labels", "problem_type")}
    return kept | {"id2label": {str(number): label for number, label in enumerate(labels)},
                   "label2id": {label: number for number, label in enumerate(labels)}}


def published_task_config(required: RequiredHead, document: dict[str, Any], where: str) -> tuple[str,
                                                                                               c.Transformer] | None:
    """Return the family's own class with such a head, and its tree; None where the family publishes none.

    Labels need a class that names them: BERT's next-sentence classifier, for one, does not.
    """
    layout = LAYOUTS.get(str(document.get("model_type")))
    if layout is None:
        return None
    found = [name for name, kind in find_head_kinds(layout, document, where).items() if kind == required.kind
             and (not required.labels or any(key.foreign == "id2label" for key in layout.classes[name].keys))]
    if not found:
        return None
    if required.pick is not None:
        said = spell_pick(layout.classes[found[0]], required.pick)
        if said is None:
            return None
        document |= said
    return found[0], published_tree(layout.choose_layout(layout, document), document, found[0], where)


def spell_pick(published: Published, pick: c.Pick) -> dict[str, Any] | None:
    """Return the field of a published class by which its head takes a vector there; None where it has none such."""
    return next(({key.foreign: theirs} for key in published.keys if key.paths == ("head.pick",)
                 for theirs, ours in key.names.items() if ours == pick), None)


def own_task_config(config: c.Transformer, required: RequiredHead, tokenizer: Tokenizer) -> c.Transformer:
    """Return a body under a head of ours; an encoder-decoder that is not to write keeps its encoder alone."""
    changes: dict[str, Any] = {"default_target": None} if required.kind != "language" else {}
    if config.encoder is not None and required.kind != "language":
        changes |= {"decoder": None, "decoder_embed": None}
    vocab = max(config.embed.vocab, tokenizer.vocab_size)
    changes["embed"] = config.embed.model_copy(update={"vocab": vocab})
    body = config.model_copy(update={**changes, "head": None})
    changed = add_global_tokens(body.model_copy(update={"head": required.make(body, tokenizer)}), tokenizer)
    return changed if reads_pooled(changed) else changed.model_copy(update={"pooler": None})


def add_global_tokens(config: c.Transformer, tokenizer: Tokenizer) -> c.Transformer:
    """Return a tree with the global tokens that its head needs, where they are left to the batch.

    A task's batches name none, and without one no vector would be of the whole text.
    """
    tokens = global_tokens(config.head, tokenizer)

    def named(part: Config) -> Config:
        left = isinstance(part, c.Global) and part.otherwise.kind == "no_tokens"
        return part.model_copy(update={"otherwise": tokens}) if left else part

    return config if tokens is None else rewrite_config(config, named)


def global_tokens(head: c.Head | None, tokenizer: Tokenizer) -> c.GlobalTokens | None:
    """Return the tokens that see all under a head: the first, or a question's where separators mark it; None for none.

    Source: Beltagy et al. 2020, §3.1, arXiv:2004.05150; there all of a choice's tokens are global, here the first.
    """
    match head:
        case c.SpanHead() | c.JointSpanHead() if tokenizer.sep_id is not None \
                and tokenizer.encode("a", pair="a").count(tokenizer.sep_id) == SEPARATORS:
            return c.AtSeparator(kind="before_separator", token=tokenizer.sep_id)
        case c.SpanHead() | c.JointSpanHead() | c.ClassificationHead() | c.EmbeddingHead() | c.ChoiceHead():
            return c.AtMostFirst(kind="first_token")
    return None


def remove_unused_parts(other: Transformer, config: c.Transformer) -> tuple[str, ...]:
    """Take off a model what the task's model has no place for, and return the names of its parameters."""
    before = [name for name, _ in other.named_parameters()]
    other.head = None
    drop_decoder(other, config)
    after = {name for name, _ in other.named_parameters()}
    return tuple(name for name in before if name not in after)
