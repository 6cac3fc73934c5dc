"""Reformer's published fields and weight names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from saucier import config as c
from saucier.checkpoints.choices import LABELS, bare, labelling, whole
from saucier.checkpoints.keys import ACTIVATIONS, Document, Key, Layout, Published
from saucier.checkpoints.rules import Concat, Rule, Rules
from saucier.families.reformer import from_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Axis:
    """A table [rows, width] that is published with a dimension of 1 at `place`."""

    place: int

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Take the dimension away."""
        return tensors[0].squeeze(self.place)

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Put it back."""
        return [tensor.unsqueeze(self.place)]


def stack_of(tree: c.Transformer) -> c.Stack:
    """Return the one stack of a Reformer."""
    stack = tree.decoder or tree.encoder
    assert stack is not None, "check() refuses a model without stacks"
    return stack


def attentions(tree: c.Transformer) -> list[c.SelfAttention]:
    """Return the attention of every layer."""
    inner = [block.sublayers[0].inner for block in stack_of(tree).blocks()]
    return [part for part in inner if isinstance(part, c.SelfAttention)]


def kind_of(attention: c.SelfAttention) -> str:
    """Return the published name of what a layer attends by."""
    return "lsh" if isinstance(attention.kernel, c.Hashing) else "local"


def kernel(tree: c.Transformer, kind: str) -> Any:
    """Return the kernel of the layers of a kind; None where there are none."""
    return next((part.kernel for part in attentions(tree) if kind_of(part) == kind), None)


def chunks(kind: str, field: str) -> Callable[[c.Transformer], Any]:
    """Return what finds a field of the chunks of a kind."""
    def found(tree: c.Transformer) -> Any:
        used = kernel(tree, kind)
        return getattr(used.chunks if isinstance(used, c.Hashing) else used, field, None)

    return found


def hashing(field: str) -> Callable[[c.Transformer], Any]:
    """Return what finds a field of the layers that hash."""
    return lambda tree: getattr(kernel(tree, "lsh"), field, None)


def positions(field: str, kind: type[c.Config]) -> Callable[[c.Transformer], Any]:
    """Return what finds a field of positions of a kind."""
    return lambda tree: getattr(tree.embed.positions, field) if isinstance(tree.embed.positions, kind) else None


def feed_forward(tree: c.Transformer) -> c.FeedForward:
    """Return the feed-forward of the first layer."""
    found = stack_of(tree).blocks()[0].sublayers[1].inner
    assert isinstance(found, c.FeedForward), "as the family's function says"
    return found


def buckets(tree: c.Transformer) -> Any:
    """Return the factors of the number of buckets; None where they follow from the length."""
    found = getattr(kernel(tree, "lsh"), "buckets", None)
    return found.factors if isinstance(found, c.FixedBuckets) else None


def longest(tree: c.Transformer) -> int | None:
    """Return the longest input, where it changes a number."""
    found = getattr(kernel(tree, "lsh"), "buckets", None)
    places = tree.embed.positions
    return found.longest if isinstance(found, c.BucketsByLength) else (
        places.length if isinstance(places, c.Learned) else None)


def number_or_list(factors: tuple[int, ...]) -> Any:
    """One factor is published as a number."""
    return factors[0] if len(factors) == 1 else list(factors)


def factors_of(value: Any) -> tuple[int, ...] | None:
    """The factors of a number of buckets, or of a list of them."""
    return None if value is None else (value,) if isinstance(value, int) else tuple(value)


CHUNKS = tuple(
    Key(name, (), argument=f"{kind}_{field}", default=default, found=chunks(kind, of))
    for kind, fields in (("local", {"local_attn_chunk_length": ("length", "length", 64),
                                    "local_num_chunks_before": ("before", "before", 1),
                                    "local_num_chunks_after": ("after", "after", 0),
                                    "local_attention_probs_dropout_prob": ("dropout", "dropout", 0.05)}),
                         ("lsh", {"lsh_attn_chunk_length": ("length", "length", 64),
                                  "lsh_num_chunks_before": ("before", "before", 1),
                                  "lsh_num_chunks_after": ("after", "after", 0),
                                  "lsh_attention_probs_dropout_prob": ("dropout", "dropout", 0.0)}))
    for name, (field, of, default) in fields.items())
KEYS = (
    Key("hidden_size", (), argument="dim", default=256, found=lambda tree: tree.dim),
    Key("attn_layers", (), argument="layers", default=("local", "lsh") * 3, ours=tuple,
        found=lambda tree: [kind_of(part) for part in attentions(tree)]),
    *CHUNKS,
    Key("num_hashes", (), argument="rounds", default=1, found=hashing("rounds")),
    Key("hash_seed", (), argument="seed", nullable=True, found=hashing("seed")),
    Key("num_buckets", (), argument="buckets", nullable=True, ours=factors_of, theirs=number_or_list, found=buckets),
    Key("is_decoder", (), argument="causal", default=False, found=lambda tree: tree.decoder is not None),
    Key("axial_pos_embds", (), argument="axial", default=True,
        found=lambda tree: isinstance(tree.embed.positions, c.Axial)),
    Key("axial_pos_shape", (), argument="shape", default=(64, 64), ours=tuple, theirs=list,
        found=positions("shape", c.Axial)),
    Key("axial_pos_embds_dim", (), argument="widths", default=(64, 192), ours=tuple, theirs=list,
        found=positions("widths", c.Axial)),
    Key("max_position_embeddings", (), argument="length", default=4096, found=longest),
    Key("num_attention_heads", (), argument="heads", default=12,
        found=lambda tree: attentions(tree)[0].projection.heads),
    Key("attention_head_size", (), argument="head_dim", default=64,
        found=lambda tree: attentions(tree)[0].projection.head_dim),
    Key("vocab_size", (), argument="vocab", default=320, found=lambda tree: tree.embed.vocab),
    Key("feed_forward_size", (), argument="hidden", default=512, found=lambda tree: feed_forward(tree).hidden),
    Key("hidden_act", (), argument="activation", default="relu", names=ACTIVATIONS,
        found=lambda tree: feed_forward(tree).activation),
    Key("hidden_dropout_prob", (), argument="dropout", default=0.05, found=lambda tree: tree.embed.dropout),
    Key("layer_norm_eps", (), argument="eps", default=1e-12,
        found=lambda tree: getattr(stack_of(tree).final_norm, "eps", None)),
)


def weights(tree: c.Transformer) -> Rules:
    """The names of Reformer's body; what stands in a layer depends on its kind."""
    stack = "decoder" if tree.decoder else "encoder"
    block, theirs = f"{stack}.blocks.{{i}}.", "@encoder.layers.{i}."
    names = {"attention.norm": "attention.layer_norm", "attention.inner.out": "attention.output.dense",
             "feed_forward.norm": "feed_forward.layer_norm", "feed_forward.inner.up": "feed_forward.dense.dense",
             "feed_forward.inner.down": "feed_forward.output.dense"}
    rules = [Rule(block + ours + ".{p}", theirs + other + ".{p}") for ours, other in names.items()]
    for number, attention in enumerate(attentions(tree)):
        maps = ("query_key", "value") if kind_of(attention) == "lsh" else ("query", "key", "value")
        width = attention.projection.widths(tree.dim)[0]
        rules.append(Rule(f"{stack}.blocks.{number}.attention.inner.qkv.weight", tuple(
            f"@encoder.layers.{number}.attention.self_attention.{name}.weight" for name in maps),
            Concat((width,) * len(maps))))
    places = "@embeddings.position_embeddings"
    return Rules([
        *rules, Rule(f"{stack}.final_norm.{{p}}", "@encoder.layer_norm.{p}"),
        Rule("embed.tokens.weight", "@embeddings.word_embeddings.weight"),
        Rule("embed.positions.weight", f"{places}.embedding.weight"),
        Rule("embed.positions.rows", f"{places}.weights.0", Axis(1)),
        Rule("embed.positions.columns", f"{places}.weights.1", Axis(0)),
    ], carried=["lm_head.bias"] if tree.language_head else [], ignored=[] if tree.language_head else ["lm_head.bias"])


def classifier(tree: c.Transformer, document: Document) -> c.ClassificationHead:
    """The head for labels: a dense layer from the two streams to one, and the labels."""
    return c.ClassificationHead(pick=c.First(), transform=c.Transform(width=tree.dim, activation="tanh"))


def only(value: bool) -> Key:
    """The reference refuses the class for a body that sees otherwise."""
    return Key("is_decoder", (), names={value: value}, default=False, found=lambda tree: value)


DROPOUT = Key("classifier_dropout", ("head.dropout", "head.transform.dropout"),
              default=lambda document: document.get("hidden_dropout_prob", 0.05))
OUTPUT = (Rule("head.weight", "lm_head.decoder.weight"),)
REFORMER_LAYOUT = Layout(
    "reformer", from_fields, KEYS, weights,
    {
        "ReformerModelWithLMHead": Published(whole.keep, OUTPUT, (only(True),)),
        "ReformerForMaskedLM": Published(whole.keep, OUTPUT, (only(False),)),
        "ReformerForSequenceClassification": labelling(classifier, "classifier.out_proj", dense="classifier.dense",
                                                       keys=(LABELS, DROPOUT)),
        "ReformerForQuestionAnswering": labelling(c.SpanHead(), "qa_outputs", keys=()),
        "ReformerModel": replace(bare, optional=()),
    },
    "reformer.",
    free=frozenset({
        "num_hidden_layers", "axial_norm_std", "chunk_size_lm_head", "tie_word_embeddings", "max_position_embeddings",
        "axial_pos_shape", "axial_pos_embds_dim", "num_buckets", "num_hashes", "hash_seed",
        *(key.foreign for key in CHUNKS),
    }),
)
"""A tied output is published too, and changes nothing: the reference has no table of that width to tie it to."""
