"""Published classes as entries of the families' tables: what each keeps of the tree, its head's weight names and
fields; and the shapes of trees that families share: equal blocks, experts in every n-th, an encoder as a decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from saucier import config as c
from saucier.checkpoints.fields import ACTIVATIONS, Document, Key, is_count, look_up, put
from saucier.checkpoints.layout import Keep, Published
from saucier.checkpoints.weight_names import Rule, Twins, module_rules
from saucier.config.blocks import arrange_blocks
from saucier.config.questions import reads_pooled
from saucier.errors import InputError

NormPlacement = type[c.PreNorm] | type[c.PostNorm] | type[c.FromNorm]


def repeat_block(layers: int, *inner: Any, place: NormPlacement = c.PostNorm, norm: c.Norm | None = None,
                 dropout: float = 0.0, ends: float = 0.0, **rest: Any) -> c.Stack:
    """Return a stack of equal blocks, each of these sublayers in residuals of one kind.

    `ends`: the dropout before the first and after the last block; `rest`: further fields of the stack.
    """
    block = c.Block(sublayers=tuple(place(inner=part, norm=norm or c.LayerNorm(), dropout=dropout) for part in inner))
    return c.Stack(layers=c.Repeat(block=block, times=layers), dropout=ends, **rest)


def add_experts(stack: c.Stack, experts: c.Experts, layers: int, step: int) -> c.Stack:
    """Return a stack of `layers` layers, those with experts in their places, in the shortest turn."""
    dense = stack.blocks()[0]
    many = c.Block(sublayers=(*dense.sublayers[:-1], dense.sublayers[-1].model_copy(update={"inner": experts})))
    blocks = [many if step == 1 or (step > 0 and layer % step == 1) else dense for layer in range(layers)]
    return stack.model_copy(update={"layers": arrange_blocks(tuple(blocks))})


def find_expert_step(stack: c.Stack | None) -> int | None:
    """Return after how many layers the next one with experts comes: the inverse of `add_experts`."""
    if stack is None:
        return None
    found = list_expert_layers(stack)
    if len(found) == len(stack.blocks()):
        return 1
    return found[1] - found[0] if len(found) > 1 else len(found) * len(stack.blocks())


def list_expert_layers(stack: c.Stack | None) -> list[int]:
    """Return the numbers of the layers with experts."""
    return [number for number, block in enumerate(stack.blocks() if stack else ())
            if isinstance(block.sublayers[-1].inner, c.Experts)]


def has_cross_attention(tree: c.Transformer) -> bool:
    """Say whether the blocks of a stack read an encoder, too."""
    return any(isinstance(residual.inner, c.CrossAttention) for stack in ("encoder", "decoder")
               for residual in look_up(tree, f"{stack}.layers.block.sublayers") or ())


def add_cross_attention(tree: c.Transformer, stack: str = "encoder") -> c.Transformer:
    """Return a tree whose blocks end with a cross-attention, like their self-attention in all but positions."""
    path = f"{stack}.layers.block.sublayers"
    sublayers = look_up(tree, path)
    inner = c.CrossAttention(projection=sublayers[0].inner.projection, kernel=sublayers[0].inner.kernel)
    return put(tree, {path: (*sublayers, put(sublayers[0], {"inner": inner}))})


def move_to_decoder(tree: c.Transformer) -> c.Transformer:
    """Put an encoder that sees only the past into the decoder's place, where generation and its cache look for it."""
    stack = tree.encoder
    if stack is None or tree.decoder is not None or not all(c.is_causal(one.visibility) for one in stack.attentions()):
        return tree
    return swap_sublayers(tree.model_copy(update={"encoder": None, "decoder": stack}), "decoder")


def move_to_encoder(tree: c.Transformer) -> c.Transformer:
    """The inverse of `move_to_decoder`, and of `as_decoder` as far as keys look."""
    if tree.encoder is not None:
        return tree
    return swap_sublayers(tree.model_copy(update={"encoder": tree.decoder, "decoder": None}), "encoder")


def swap_sublayers(tree: c.Transformer, stack: str) -> c.Transformer:
    """Exchange the second and third sublayer of each block, where there are three."""
    match look_up(tree, f"{stack}.layers.block.sublayers"):
        case (first, second, third):
            return put(tree, {f"{stack}.layers.block.sublayers": (first, third, second)})
        case _:
            return tree


def as_decoder(tree: c.Transformer, document: Document | None = None) -> c.Transformer:
    """The encoder with its language head as a decoder that sees no later token."""
    return move_to_decoder(put(tree, {"encoder.layers.*.sublayers.0.inner.visibility": c.Causal(), "pooler": None,
                                      "head": tree.language_head}))


def shares_table(tree: c.Transformer) -> bool:
    """Say whether both sides read one token table."""
    return tree.decoder_embed is None or tree.decoder_embed.tied


def ties_output(tree: c.Transformer) -> bool:
    """Say whether the output layer is the token table; without one, whether there is one table."""
    return shares_table(tree) if tree.language_head is None else tree.language_head.tied


def decoder_alone(tree: c.Transformer, document: Document) -> c.Transformer:
    """The decoder without cross-attention, with a token table and an output layer of its own."""
    own, _, feed_forward = look_up(tree, "decoder.layers.block.sublayers")
    return put(tree, {
        "decoder.layers.block.sublayers": (own, feed_forward), "encoder": None, "decoder_embed": None,
        "embed": put(tree.output_embed, {"tied": False}), "default_target": None,
        "head": c.LanguageHead(tied=ties_output(tree))})


def both_sides(tree: c.Transformer) -> c.Transformer:
    """The inverse of `decoder_alone`, as far as keys look."""
    match look_up(tree, "decoder.layers.block.sublayers"):
        case (own, *_, feed_forward) if tree.encoder is None:
            return put(tree, {"encoder": tree.decoder, "decoder.layers.block.sublayers": (own, own, feed_forward)})
        case _:
            return tree


PAST = c.Causal()
"""What a decoder's tokens see, where nothing else is said."""


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


def keep_with(values: Mapping[str, Any]) -> Keep:
    """Everything that the family's function gives, with other values at some places of the tree."""
    def keep(tree: c.Transformer, document: Document) -> c.Transformer:
        return put(tree, values)

    return keep


def keep_language(tree: c.Transformer, document: Document) -> c.Transformer:
    """The language head without a sentence classifier and what only it reads."""
    return tree.model_copy(update={"head": tree.language_head, "pooler": None})


WHOLE = Published(keep_all)
BARE = Published(keep_with({"head": None}), base="", optional=("pooler",))
"""The body alone, its pooler included."""
ENCODER_ALONE = Published(keep_with({"head": None, "decoder": None, "decoder_embed": None}))
"""The encoder of an encoder-decoder."""


def language_rules(dense: str, norm: str, output: str, *more: Rule,
                   bias: str | None = None) -> Callable[[c.Transformer], tuple[Rule, ...]]:
    """Return the names of a language head's maps, and those of what the class has next to it.

    `bias`: where the output bias is outside the output map; an output map that is not tied holds a copy of it.
    """
    def named(tree: c.Transformer) -> tuple[Rule, ...]:
        ours = "head" if isinstance(tree.head, c.LanguageHead) else "head.language"
        untied = (tree.language_head is not None and not tree.language_head.tied
                  and not isinstance(tree.head, c.EmbeddingHead))  # REALM's files hold the bias of the head once, too
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
    names = {"output": output, "transform.dense": dense, "transform.norm": norm}
    rules = module_rules("head.", "", {ours: theirs for ours, theirs in names.items() if theirs})
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
