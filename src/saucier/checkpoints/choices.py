"""What published classes make of a family's tree: the ready-made entries of the families' tables of classes."""

from __future__ import annotations

from collections.abc import Callable

from saucier import config as c
from saucier.checkpoints.common_fields import is_count
from saucier.checkpoints.keys import Document, Keep, Key, Published
from saucier.checkpoints.rules import Rule, Twins
from saucier.config.asked import reads_pooled
from saucier.errors import InputError


def counted(document: Document, count: int = 2) -> range:
    """Return one place for each label of a config that does not name them; `count` where it does not count them."""
    said = document.get("num_labels", count)
    said = count if said is None else said
    if not is_count(said):
        raise InputError(f"num_labels {str(said)[:40]} is no number of labels", where="config.json",
                         remedy="copy the config again")
    return range(said)


LABELS = Key("id2label", ("head.classes",), default=counted, ours=len, instead=("num_labels",),
             theirs=lambda classes: {str(number): f"LABEL_{number}" for number in range(classes)})
"""The number of labels, which published configs give by their names."""
DROPOUT = Key("classifier_dropout", ("head.dropout",),
              default=lambda document: document.get("hidden_dropout_prob") or 0.0)
"""BERT's way to name the dropout before the output map."""
TIED = Key("tie_word_embeddings", ("head.tied", "head.language.tied"), default=True)
"""Whether the output matrix is the token table; a key of the classes that have one."""

PADDING = Key("pad_token_id", ("head.pick.padding",), nullable=True)
"""The padding token, of a head that reads the last token before it."""


def keep_all(tree: c.Transformer, document: Document) -> c.Transformer:
    """Everything that the family's function gives."""
    return tree


def keep_body(tree: c.Transformer, document: Document) -> c.Transformer:
    """The body alone, its pooler included."""
    return tree.model_copy(update={"head": None})


def keep_encoder(tree: c.Transformer, document: Document) -> c.Transformer:
    """The encoder of an encoder-decoder."""
    return tree.model_copy(update={"head": None, "decoder": None, "decoder_embed": None})


def keep_language(tree: c.Transformer, document: Document) -> c.Transformer:
    """The language head without a sentence classifier and what only it reads."""
    return tree.model_copy(update={"head": tree.language_head, "pooler": None})


whole = Published(keep_all)
bare = Published(keep_body, base="", optional=("pooler",))
encoder_alone = Published(keep_encoder)


def language(dense: str, norm: str, output: str, *, bias: str | None = None) -> Callable[[c.Transformer],
                                                                                     tuple[Rule, ...]]:
    """Return the names of a language head's maps.

    `bias`: where the output bias stands outside the output map; an output map that is not tied holds a copy of it.
    """
    def named(tree: c.Transformer) -> tuple[Rule, ...]:
        ours = "head" if isinstance(tree.head, c.LanguageHead) else "head.language"
        beside = isinstance(tree.head, c.EmbeddingHead)  # REALM's files hold the bias of the head beside once
        untied = tree.language_head is not None and not tree.language_head.tied and not beside
        if bias is None:
            last = Rule(f"{ours}.bias", f"{output}.bias")
        elif untied:
            last = Rule(f"{ours}.bias", (f"{output}.bias", bias), Twins())
        else:
            last = Rule(f"{ours}.bias", bias)
        return (Rule(f"{ours}.transform.dense.{{p}}", f"{dense}.{{p}}"), last,
                Rule(f"{ours}.transform.norm.{{p}}", f"{norm}.{{p}}"), Rule(f"{ours}.weight", f"{output}.weight"))

    return named


def only(field: str, value: bool) -> Key:
    """Return the key of a field of which a class takes one value only: the reference refuses the other, too."""
    return Key(field, (), names={value: value}, default=False, found=lambda tree: value)


Making = c.Head | Callable[[c.Transformer, Document], c.Head]
"""A head, or what makes one of the family's tree and the config."""


def with_head(head: Making) -> Keep:
    """Put another head on the body; the pooler stays only where the head reads it."""
    def keep(tree: c.Transformer, document: Document) -> c.Transformer:
        made = head(tree, document) if callable(head) else head
        changed = tree.model_copy(update={"head": made})
        return changed if reads_pooled(changed) else changed.model_copy(update={"pooler": None})

    return keep


def labelling(head: Making, output: str = "classifier", *, dense: str | None = None, norm: str | None = None,
              keys: tuple[Key, ...] = (LABELS,)) -> Published:
    """Return a class with a head of one output map, by the published names of its maps.

    `keys` beside the head's own; a head that has no labels of its own (spans, choices) gives none.
    """
    rules = [Rule("head.output.{p}", output + ".{p}")]
    if dense:
        rules.append(Rule("head.transform.dense.{p}", dense + ".{p}"))
    if norm:
        rules.append(Rule("head.transform.norm.{p}", norm + ".{p}"))
    return Published(with_head(head), tuple(rules), keys)


SPANS = labelling(c.SpanHead(), "qa_outputs", keys=())
last_token = labelling(c.ClassificationHead(pick=c.LastToken(), bias=False), "score", keys=(LABELS, PADDING))
"""A decoder that labels texts by their last token."""
OUTPUT = (Rule("head.weight", "lm_head.weight"),)
"""The usual name of a decoder's output matrix."""


def decoder_classes(name: str, *, language: str = "ForCausalLM", output: tuple[Rule, ...] = OUTPUT,
                    tokens: str = "classifier", dropout: float | Callable[[Document], float] = 0.1,
                    ) -> dict[str, Published]:
    """Return the usual classes of a decoder; `tokens` is what the map that labels them is called."""
    dropped = Key("classifier_dropout", ("head.dropout",), default=dropout)
    return {
        f"{name}{language}": Published(keep_all, output),
        f"{name}ForSequenceClassification": last_token,
        f"{name}ForTokenClassification": labelling(c.TokenHead(), tokens, keys=(LABELS, dropped)),
        f"{name}ForQuestionAnswering": SPANS,
        f"{name}Model": bare,
    }


def encoder_classes(name: str, words: Callable[[c.Transformer], tuple[Rule, ...]], text: Published, *,
                    dropout: Key, keep: Keep = keep_language) -> dict[str, Published]:
    """Return the usual classes of an encoder: names of its language head, the class that labels texts, a dropout."""
    return {
        f"{name}ForMaskedLM": Published(keep, words, (TIED,)),
        f"{name}ForSequenceClassification": text,
        f"{name}ForTokenClassification": labelling(c.TokenHead(), keys=(LABELS, dropout)),
        f"{name}ForQuestionAnswering": SPANS,
        f"{name}ForMultipleChoice": labelling(c.ChoiceHead(), keys=(dropout,)),
        f"{name}Model": bare,
    }


def without(classes: dict[str, Published], *ends: str) -> dict[str, Published]:
    """Return the classes that are published: those whose names have none of these ends."""
    return {name: published for name, published in classes.items() if not name.endswith(ends)}


SUMMARY_FIELDS = frozenset({"summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels",
                            "summary_first_dropout"})
"""Fields of heads that compare texts, which configs carry without a class that reads them."""
