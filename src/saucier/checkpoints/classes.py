"""Published classes as entries of the families' tables: what each keeps of the tree, its head's weight names and
fields.
"""

from __future__ import annotations

from collections.abc import Callable

from saucier import config as c
from saucier.checkpoints.fields import ACTIVATIONS, Document, Key, is_count
from saucier.checkpoints.layout import Keep, Published
from saucier.checkpoints.weight_names import Rule, Twins
from saucier.config.questions import reads_pooled
from saucier.errors import InputError


def count_labels(document: Document, count: int = 2) -> range:
    """Return one place for each label of a config that does not name them; `count` where it does not count them."""
    said = document.get("num_labels", count)
    said = count if said is None else said
    if not is_count(said):
        raise InputError(f"num_labels {str(said)[:40]} is no number of labels", where="config.json",
                         remedy="copy the config again")
    return range(said)


LABELS = Key("id2label", ("head.classes",), default=count_labels, ours=len, instead=("num_labels",),
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


WHOLE = Published(keep_all)
BARE = Published(keep_body, base="", optional=("pooler",))
ENCODER_ALONE = Published(keep_encoder)


def language_rules(dense: str, norm: str, output: str, *more: Rule,
                   bias: str | None = None) -> Callable[[c.Transformer], tuple[Rule, ...]]:
    """Return the names of a language head's maps, and those of what the class has next to it.

    `bias`: where the output bias stands outside the output map; an output map that is not tied holds a copy of it.
    """
    def named(tree: c.Transformer) -> tuple[Rule, ...]:
        ours = "head" if isinstance(tree.head, c.LanguageHead) else "head.language"
        has_two = isinstance(tree.head, c.EmbeddingHead)  # REALM's files hold the bias of the head once, too
        untied = tree.language_head is not None and not tree.language_head.tied and not has_two
        if bias is None:
            last = Rule(f"{ours}.bias", f"{output}.bias")
        elif untied:
            last = Rule(f"{ours}.bias", (f"{output}.bias", bias), Twins())
        else:
            last = Rule(f"{ours}.bias", bias)
        return (Rule(f"{ours}.transform.dense.{{p}}", f"{dense}.{{p}}"), last,
                Rule(f"{ours}.transform.norm.{{p}}", f"{norm}.{{p}}"),
                Rule(f"{ours}.weight", f"{output}.weight"), *more)

    return named


def fixed_key(field: str, value: bool) -> Key:
    """Return the key of a field of which a class takes one value only: the reference refuses the other, too."""
    return Key(field, (), names={value: value}, default=False, found=lambda tree: value)


HeadMaker = c.Head | Callable[[c.Transformer, Document], c.Head]
"""A head, or what makes one of the family's tree and the config."""


def with_head(head: HeadMaker) -> Keep:
    """Put another head on the body; the pooler stays only where the head reads it."""
    def keep(tree: c.Transformer, document: Document) -> c.Transformer:
        made = head(tree, document) if callable(head) else head
        changed = tree.model_copy(update={"head": made})
        return changed if reads_pooled(changed) else changed.model_copy(update={"pooler": None})

    return keep


def head_class(head: HeadMaker, output: str = "classifier", *, dense: str | None = None, norm: str | None = None,
               keys: tuple[Key, ...] = (LABELS,)) -> Published:
    """Return a class with a head of one output map, by the published names of its maps.

    `keys` in addition to the head's own; a head that has no labels of its own (spans, choices) gives none.
    """
    rules = [Rule("head.output.{p}", output + ".{p}")]
    if dense:
        rules.append(Rule("head.transform.dense.{p}", dense + ".{p}"))
    if norm:
        rules.append(Rule("head.transform.norm.{p}", norm + ".{p}"))
    return Published(with_head(head), tuple(rules), keys)


SPANS = head_class(c.SpanHead(), "qa_outputs", keys=())
LAST_TOKEN = head_class(c.ClassificationHead(pick=c.LastToken(), bias=False), "score", keys=(LABELS, PADDING))
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
        f"{name}ForSequenceClassification": LAST_TOKEN,
        f"{name}ForTokenClassification": head_class(c.TokenHead(), tokens, keys=(LABELS, dropped)),
        f"{name}ForQuestionAnswering": SPANS,
        f"{name}Model": BARE,
    }


def encoder_classes(name: str, words: Callable[[c.Transformer], tuple[Rule, ...]], text: Published, *,
                    dropout: Key, keep: Keep = keep_language) -> dict[str, Published]:
    """Return the usual classes of an encoder: names of its language head, the class that labels texts, a dropout."""
    return {
        f"{name}ForMaskedLM": Published(keep, words, (TIED,)),
        f"{name}ForSequenceClassification": text,
        f"{name}ForTokenClassification": head_class(c.TokenHead(), keys=(LABELS, dropout)),
        f"{name}ForQuestionAnswering": SPANS,
        f"{name}ForMultipleChoice": head_class(c.ChoiceHead(), keys=(dropout,)),
        f"{name}Model": BARE,
    }


def drop_classes(classes: dict[str, Published], *ends: str) -> dict[str, Published]:
    """Return the classes that are published: those whose names have none of these ends."""
    return {name: published for name, published in classes.items() if not name.endswith(ends)}


FREE_SUMMARY_FIELDS = frozenset({"summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels",
                                 "summary_first_dropout"})
"""Fields of heads that compare texts, which configs carry without a class that reads them."""

NO_ACTIVATION_NAMES = ("", "linear")
PICKS = {"first": c.PickVector(kind="first"), "last": c.PickVector(kind="last"), "mean": c.PickVector(kind="mean_all"),
         "cls_index": c.PickVector(kind="chosen")}
"""Where the vector is taken; the reference's fifth, `attn`, is not written there either."""
SUMMARY_FIELDS = frozenset({"summary_type", "summary_use_proj", "summary_activation", "summary_first_dropout",
                            "summary_last_dropout"})

TO_LABELS = tuple(Key(name, (), names={True: True}, default=True, found=lambda tree: True)
                  for name in ("summary_use_proj", "summary_proj_to_labels"))
"""Fields of a summary that always has a map, as wide as there are labels."""
NO_ACTIVATION_KEY = Key("summary_activation", (), names=dict.fromkeys(NO_ACTIVATION_NAMES, ""), default="",
                        found=lambda tree: None)
"""The field of a summary whose map is the output."""


def summary_type_key(default: str) -> Key:
    """Return the key of where the vector is taken."""
    return Key("summary_type", ("head.pick",), default=default, names=PICKS)


def summary_class(head: c.ClassificationHead | c.ChoiceHead, output: str = "classifier", *, kind: str,
                  used: bool = True, activation: str, keys: tuple[Key, ...] = ()) -> Published:
    """Return a class whose head reads a summary; `kind`, `used` and `activation` are a family's defaults.

    `keys` in addition to the summary's own.
    """
    def making(tree: c.Transformer, document: Document) -> c.Head:
        """The head with a map. Raises `InputError` for an activation without a map before it."""
        if not document.get("summary_use_proj", used) and document.get("summary_activation",
                                                                       activation) not in NO_ACTIVATION_NAMES:
            raise InputError("summary_use_proj False with a summary_activation cannot be expressed",
                             where="config.json",
                             remedy="the published class with it computes an activation of the bare vector")
        return head.model_copy(update={"transform": c.Transform()})

    return head_class(making, output, dense="sequence_summary.summary", keys=(
        *keys, summary_type_key(kind),
        Key("summary_use_proj", ("head.transform",), default=used, ours=lambda said: c.Transform() if said else None,
            found=lambda tree: getattr(tree.head, "transform", None) is not None),
        Key("summary_activation", ("head.transform.activation",), default=activation, absent="linear",
            names={**ACTIVATIONS, **dict.fromkeys(NO_ACTIVATION_NAMES, "identity")}),
        Key("summary_first_dropout", ("head.transform.dropout",), default=0.0),
        Key("summary_last_dropout", ("head.dropout",), default=0.1)))


def name_null_activation(document: Document) -> Document:
    """Tell "no activation", which a config says by null, from a field that is missing."""
    said = "summary_activation" in document and document["summary_activation"] is None
    return {**document, "summary_activation": "linear"} if said else dict(document)
