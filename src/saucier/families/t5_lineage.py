"""What T5, mT5 and Switch Transformers share: one shape, one table of fields, one of names, one of classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from saucier import config as c
from saucier.checkpoints.classes import (
    BARE,
    ENCODER_ALONE,
    LABELS,
    SPANS,
    WHOLE,
    fixed_key,
    head_class,
    repeat_block,
)
from saucier.checkpoints.fields import ACTIVATIONS, Document, Key, join_paths, look_up
from saucier.checkpoints.layout import Published
from saucier.checkpoints.weight_names import NameTable, Rule, Rules
from saucier.errors import InputError


def encoder_decoder(dim: int, layers: int, feed_forward: c.FeedForward | c.GatedFeedForward, *, heads: int,
                    head_dim: int, vocab: int, dropout: float, head: c.LanguageHead) -> c.Transformer:
    """Pre-norm with RMSNorm, no biases, relative biases that the layers of a stack share, and unscaled scores.

    The scores are not divided by the root of the head's width: the factor is folded into the start values.
    """
    norm, kernel = c.RMSNorm(eps=1e-6), c.Softmax(dropout=dropout)
    projection = c.Projection(heads=heads, head_dim=head_dim, bias=False, output_bias=False, scale=1.0)
    reader = c.SelfAttention(projection=projection, positions=c.T5Bias(), kernel=kernel)
    writer = c.SelfAttention(projection=projection, positions=c.T5Bias(bidirectional=False), visibility=c.Causal(),
                             kernel=kernel)
    stack = partial(repeat_block, layers, place=c.PreNorm, norm=norm, dropout=dropout, final_norm=norm, ends=dropout)
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, dropout=dropout),
        encoder=stack(reader, feed_forward),
        decoder=stack(writer, c.CrossAttention(projection=projection, kernel=kernel), feed_forward),
        head=head,
        initialization=c.FanInInit(),
    )


READER, WRITER = "encoder.layers.*.sublayers", "decoder.layers.*.sublayers"
ATTENTIONS = (f"{READER}.0", f"{WRITER}.0", f"{WRITER}.1")
FEED_FORWARDS = (f"{READER}.1", f"{WRITER}.2")
INNER = tuple(f"{place}.{inner}" for place in FEED_FORWARDS for inner in ("inner", "inner.inner"))
"""Feed-forwards, and those inside experts."""
BIASES = (f"{READER}.0.inner.positions", f"{WRITER}.0.inner.positions")
STACKS = ("encoder", "decoder")


def first_feed_forward(tree: c.Transformer) -> c.FeedForward | c.GatedFeedForward | None:
    """Return the feed-forward of the encoder's first layer, or one of its experts."""
    inner = look_up(tree, f"{READER}.1.inner")
    inner = inner.inner if isinstance(inner, c.Experts) else inner
    return inner if isinstance(inner, c.FeedForward | c.GatedFeedForward) else None


LAYERS = (
    Key("num_layers", ("encoder.layers.times",)),
    Key("num_decoder_layers", ("decoder.layers.times",), default=lambda document: document.get("num_layers")),
)


def keys(*own: Key) -> tuple[Key, ...]:
    """The fields of the lineage, with those in which its families differ."""
    dropped = (*join_paths((*ATTENTIONS, *FEED_FORWARDS, *STACKS), "dropout"),
               *join_paths(ATTENTIONS, "inner.kernel.dropout"), *join_paths(INNER, "dropout"), "embed.dropout",
               "decoder_embed.dropout")
    normed = (*join_paths((*ATTENTIONS, *FEED_FORWARDS), "norm.eps"), *join_paths(STACKS, "final_norm.eps"))
    return (
        Key("d_model", ("dim",), argument="dim"),
        Key("num_heads", join_paths(ATTENTIONS, "inner.projection.heads")),
        Key("d_kv", join_paths(ATTENTIONS, "inner.projection.head_dim"), default=64),
        Key("d_ff", join_paths(INNER, "hidden")),
        Key("vocab_size", ("embed.vocab", "decoder_embed.vocab")),
        Key("relative_attention_num_buckets", join_paths(BIASES, "buckets"), default=32),
        Key("relative_attention_max_distance", join_paths(BIASES, "max_distance"), default=128),
        Key("layer_norm_epsilon", normed, default=1e-6),
        Key("dropout_rate", dropped, default=0.1),
        *own,
    )


TIED = Key("tie_word_embeddings", ("head.tied",), default=True, argument="tied")
FREE = frozenset({"is_decoder", "is_encoder_decoder", "output_past", "n_positions"})
COPIES = ("@encoder.embed_tokens.weight", "@decoder.embed_tokens.weight", "@shared.weight", "lm_head.weight",
          "@decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight")


def weights(tree: c.Transformer, inner: Callable[[str, str, c.FeedForward | c.GatedFeedForward], list[Rule]]) -> Rules:
    """The names of T5: layers of a block are numbered, and the bias table is in the first block.

    `inner` gives those of the feed-forwards, from the places of a block in both trees and one of them.
    """
    feed_forward = first_feed_forward(tree)
    assert feed_forward is not None, "as the family's function says"
    rules = [Rule("embed.tokens.weight", "@shared.weight", instead="@encoder.embed_tokens.weight")]
    if tree.decoder_embed:
        rules = [Rule(f"{ours}.tokens.weight", f"@{stack}.embed_tokens.weight", instead="@shared.weight")
                 for ours, stack in zip(("embed", "decoder_embed"), STACKS, strict=True)]
    for stack, last in (("encoder", 1), ("decoder", 2)):
        theirs = f"@{stack}.block.{{i}}.layer."
        rules += [
            Rule(f"{stack}.shared.weight", f"@{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"),
            Rule(f"{stack}.final_norm.weight", f"@{stack}.final_layer_norm.weight"),
            *replace(BLOCK, block=theirs).blocks(tree, stack),
            *inner(f"{stack}.blocks.{{i}}.", f"{theirs}{last}.", feed_forward),
        ]
    return Rules(rules, ignored=COPIES)


BLOCK = NameTable(
    {}, "", {"attention.norm.weight": "0.layer_norm.weight", "attention.inner.out.weight": "0.SelfAttention.o.weight",
             "cross.norm.weight": "1.layer_norm.weight", "cross.inner.q.weight": "1.EncDecAttention.q.weight",
             "cross.inner.out.weight": "1.EncDecAttention.o.weight"},
    {"attention.inner.qkv": ("0.SelfAttention.q", "0.SelfAttention.k", "0.SelfAttention.v"),
     "cross.inner.kv": ("1.EncDecAttention.k", "1.EncDecAttention.v")})
"""The names of the maps in a block, after those of their stack."""
HEAD = (Rule("head.weight", "lm_head.weight"),)


def reading_twice(published: Published, base: str) -> Published:
    """A class whose decoder reads the source after the start token, where it is given nothing else."""
    def keep(tree: c.Transformer, document: Document) -> c.Transformer:
        return published.keep(tree.model_copy(update={"default_target": c.ShiftedSource(start=0)}), document)

    return replace(published, keep=keep, base=base, keys=(
        *published.keys, Key("decoder_start_token_id", ("default_target.start",), default=0)))


READS = fixed_key("is_decoder", False)
"""Of an encoder alone; with true the reference would build a decoder's blocks, which have no source to read."""
encoder_model = replace(ENCODER_ALONE, keys=(READS,))


def classes(name: str) -> dict[str, Published]:
    """The published classes of a family."""
    dropout = Key("classifier_dropout", ("head.dropout", "head.transform.dropout"), default=0.0)
    end = Key("eos_token_id", ("head.pick.token",), default=1)
    text = head_class(c.ClassificationHead(pick=c.EndToken(token=1), transform=c.Transform(activation="tanh")),
                      "classification_head.out_proj", dense="classification_head.dense", keys=(LABELS, dropout, end))
    token = head_class(c.TokenHead(), keys=(LABELS, replace(dropout, paths=("head.dropout",)), READS))
    return {
        f"{name}ForConditionalGeneration": Published(WHOLE.keep, HEAD),
        f"{name}Model": BARE,
        f"{name}EncoderModel": encoder_model,
        f"{name}ForSequenceClassification": reading_twice(text, "transformer."),
        f"{name}ForTokenClassification": replace(
            token, keep=lambda tree, document: token.keep(ENCODER_ALONE.keep(tree, document), document),
            base="transformer."),
        f"{name}ForQuestionAnswering": reading_twice(SPANS, ""),
    }


PLAIN_FEED_FORWARD = {name: ("feed_forward", ours) for name, ours in ACTIVATIONS.items()}
GATED_FEED_FORWARD = {"gated-gelu": ("gated_feed_forward", "gelu_tanh")} | {
    f"gated-{name}": ("gated_feed_forward", ours) for name, ours in ACTIVATIONS.items() if name != "gelu"}
"""A gate with GELU has always been its approximation; an exact one cannot be said."""


def find_feed_forward(tree: c.Transformer) -> tuple[str, str] | None:
    """Return kind and activation of a tree's feed-forwards."""
    inner = first_feed_forward(tree)
    return None if inner is None else (inner.kind, inner.activation)


FEED_FORWARD_KEYS = Key("feed_forward_proj", (), names=PLAIN_FEED_FORWARD | GATED_FEED_FORWARD, default="relu",
                        argument="feed_forward", found=find_feed_forward)
OLDER_FEED_FORWARD = dict.fromkeys(("dense_act_fn", "is_gated_act"), "feed_forward_proj")


def read_feed_forward(document: Document, *, usual: str = "relu") -> Document:
    """Return the config with its feed-forward in one field; what is said of its activation and gate counts more."""
    proj = document.get("feed_forward_proj") or usual
    activation = document.get("dense_act_fn", "gelu_new" if proj == "gated-gelu" else str(proj).rpartition("-")[2])
    gated = document.get("is_gated_act", str(proj).startswith("gated-"))
    if gated and activation == "gelu":
        raise InputError("dense_act_fn 'gelu' with is_gated_act cannot be expressed", where="config.json",
                         remedy="a gate's GELU is its approximation: gelu_new")
    rest = {name: value for name, value in document.items() if name not in OLDER_FEED_FORWARD}
    said = OLDER_FEED_FORWARD.keys() & document.keys()
    return {**rest, "feed_forward_proj": f"{'gated-' if gated else ''}{activation}"} if said else rest
