"""What BERT and its descendants share: one shape, one table of fields, one of names, and usual heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from saucier import config as c
from saucier.checkpoints.classes import (
    LABELS,
    add_cross_attention,
    has_cross_attention,
    head_class,
    language_rules,
    repeat_block,
)
from saucier.checkpoints.fields import Key, first_attention, make_keys, put
from saucier.checkpoints.layout import Published
from saucier.checkpoints.weight_names import NameTable, Rule


def encoder(dim: int, layers: int, embed: c.Embedding, *, heads: int, hidden: int | None,
            attention: c.SelfAttention | None = None, **rest: Any) -> c.Transformer:
    """BERT's shape: norms after the residuals, and the embedding's norm and dropout everywhere.

    `attention`: what else its attentions have; `rest`: fields of the model.
    """
    attention = (attention or c.SelfAttention(projection=c.Projection(heads=heads))).model_copy(update={
        "kernel": c.Softmax(dropout=embed.dropout)})
    stack = repeat_block(layers, attention, c.FeedForward(hidden=hidden or 4 * dim), norm=embed.norm,
                         dropout=embed.dropout)
    return c.Transformer(dim=dim, embed=embed, encoder=stack, **rest)


ATTENTION = "encoder.layers.*.sublayers.0"
FIELDS: Mapping[str, tuple[str, Any]] = {
    "hidden_size": ("dim", None), "num_hidden_layers": ("layers", None), "num_attention_heads": ("heads", None),
    "intermediate_size": ("hidden", None), "vocab_size": ("vocab", None), "max_position_embeddings": ("length", None),
    "attention_probs_dropout_prob": ("attention_dropout", 0.1), "type_vocab_size": ("segments", 2),
    "hidden_dropout_prob": ("embed_dropout dropout", 0.1), "hidden_act": ("activation", "gelu"),
    "layer_norm_eps": ("eps", 1e-12),
}


def keys(*own: Key, arguments: tuple[str, ...] = (), drop: tuple[str, ...] = (), transform: str = "",
         normed: str = "", also: Mapping[str, tuple[str, ...]] | None = None,
         **changed: tuple[str, Any]) -> tuple[Key, ...]:
    """Return BERT's keys with those that a family has of its own, in their place where they have the same name.

    `drop`: fields that it has not, `changed`: fields of other places or defaults. `transform`: a transform whose
    activation and norm are the body's; `normed`: a norm that alone is.
    """
    absent = {*drop, *(key.foreign for key in own)}
    more = {**(also or {}), "activation": (f"{transform}.activation",),
            "eps": (f"{transform}.norm.eps", f"{normed}.eps", *(also or {}).get("eps", ()))}
    spelled = {name: found for name, found in {**FIELDS, **changed}.items() if name not in absent}
    return (*make_keys("encoder", spelled, arguments=arguments, also=more), *own)


HEAD_DROPOUTS = ("head.dropout", "head.transform.dropout")
HEAD_DROPOUT = Key("hidden_dropout_prob", HEAD_DROPOUTS, default=0.1)
"""For heads whose dropout is the body's."""
CLASSIFIER = Key("classifier_dropout", HEAD_DROPOUTS, default=lambda document: document.get("hidden_dropout_prob", 0.1))
"""For heads that drop before both of their maps."""
SEES_PAST_ONLY = Key("is_decoder", (f"{ATTENTION}.inner.visibility",), names={False: c.Full(), True: c.Causal()},
                     default=False)
"""Every class of a config that says `is_decoder` sees no later token."""
CROSSED = Key("add_cross_attention", (), argument="crossing", default=False, found=has_cross_attention)
"""Whether a decoder reads an encoder's output. Source: Rothe et al. 2020, §2, arXiv:1907.12461."""


RELATIVE = ("relative_key", "relative_key_query")


def position_kind(tree: c.Transformer) -> str:
    """Return what kind of positions an encoder has, in its embedding or in its attention."""
    found = first_attention(tree).positions
    return "absolute" if isinstance(found, c.NoPositions) else found.kind


POSITIONS = Key("position_embedding_type", (), argument="positions", default="absolute", found=position_kind, names={
    one: one for one in ("absolute", *RELATIVE)})
"""Where order enters; the reference library reads the two relative kinds up to its version 4."""


def positioned(family: Callable[[], c.Transformer], scale: float | None = None) -> Callable[..., c.Transformer]:
    """Return the family by its published fields, of which one moves the positions into the attention.

    `scale` is the factor on their scores, where it is not that of the attention.
    """
    def make(positions: Literal["absolute", "relative_key", "relative_key_query"] = "absolute", *,
             crossing: bool = False) -> c.Transformer:
        tree = add_cross_attention(family()) if crossing else family()
        if positions == "absolute":
            return tree
        return put(tree, {"embed.positions": c.NoPositions(),
                          f"{ATTENTION}.inner.positions": c.RelativeVectors(kind=positions, length=1, scale=scale)})

    return make


def pooled(family: Callable[[], c.Transformer]) -> Callable[[], c.Transformer]:
    """Return the family with the pooler that some of its published classes have, though it is not pretrained."""
    return lambda: family().model_copy(update={"pooler": c.Pooler()})


EMBEDDINGS = {"embed.tokens.weight": "@embeddings.word_embeddings.weight",
              "embed.positions.weight": "@embeddings.position_embeddings.weight",
              "embed.segments.weight": "@embeddings.token_type_embeddings.weight",
              "embed.norm.{p}": "@embeddings.LayerNorm.{p}"}
POOLER = {"pooler.dense.{p}": "@pooler.dense.{p}"}
FEED_FORWARD = {"feed_forward.inner.up": "intermediate.dense", "feed_forward.inner.down": "output.dense",
                "feed_forward.norm": "output.LayerNorm"}
BODY = NameTable(
    {**EMBEDDINGS, **POOLER, "embed.project.{p}": "@embeddings_project.{p}"}, "@encoder.layer.{i}.",
    {**FEED_FORWARD, "attention.inner.out": "attention.output.dense", "attention.norm": "attention.output.LayerNorm",
     "attention.inner.positions.weight": "attention.self.distance_embedding.weight",
     "cross.inner.q": "crossattention.self.query", "cross.inner.out": "crossattention.output.dense",
     "cross.norm": "crossattention.output.LayerNorm"},
    {"attention.inner.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
     "cross.inner.kv": ("crossattention.self.key", "crossattention.self.value")},
    ignored=("@embeddings.position_ids", "@embeddings.token_type_ids"))
BERT_BODY, ROBERTA_BODY = (replace(BODY, ignored=(*BODY.ignored, copy))
                           for copy in ("cls.predictions.decoder.{p}", "lm_head.decoder.{p}"))


def words(root: str, *more: Rule) -> Callable[[c.Transformer], tuple[Rule, ...]]:
    """Return the names of BERT's language head below `root`, and of what a class has next to it."""
    return language_rules(f"{root}.transform.dense", f"{root}.transform.LayerNorm", f"{root}.decoder", *more,
                          bias=f"{root}.bias")


WORDS = words("cls.predictions")
SENTENCE = "cls.seq_relationship"
BOTH = words("cls.predictions", Rule("head.sentence.{p}", f"{SENTENCE}.{{p}}"))
"""The names of the two pretraining heads."""
ROBERTA_WORDS = language_rules("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", bias="lm_head.bias")


def labelled_first(activation: c.Activation, *more: Key) -> Published:
    """Return the class that labels texts by their first token, after a dense layer of its own."""
    head = c.ClassificationHead(pick=c.PickVector(kind="first"), transform=c.Transform(activation=activation))
    return head_class(head, "classifier.out_proj", dense="classifier.dense", keys=(LABELS, *more))
