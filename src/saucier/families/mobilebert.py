"""MobileBERT: a deep and narrow BERT, every block inside a bottleneck, with several feed-forwards and plain norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from saucier import config as c
from saucier.checkpoints.choices import LABELS, bare, keep_all, keep_language, labelling
from saucier.checkpoints.keys import ACTIVATIONS, Key, Layout, Published, look_up
from saucier.checkpoints.rules import Concat, Rule, Rules, Transpose
from saucier.families import lineage
from saucier.families.bert import SENTENCE


def mobilebert(
    dim: int = 512,
    layers: int = 24,
    *,
    heads: int = 4,
    vocab: int = 30522,
    length: int = 512,
    narrow: int = 128,
    forwards: int = 4,
    dropout: float = 0.0,
) -> c.Transformer:
    """MobileBERT with both pretraining heads. Source: Sun et al. 2020, §3 and table 1, arXiv:2004.02984.

    `narrow` is the width inside a block and of the token table, a quarter of the feed-forwards'; `forwards` their
    number in a block. The published models are taught by a larger one: a matter of training, not of this tree.
    """
    bottleneck = c.Bottleneck(width=narrow, norm=c.NoNorm(), dropout=dropout)
    forward = c.FeedForward(hidden=4 * narrow, activation="relu")
    block = block_of(bottleneck, c.NoNorm(), heads=heads, forward=forward, forwards=forwards, dropout=dropout)
    norm = c.LayerNorm(eps=1e-12)
    language = c.LanguageHead(bias=True, columns=dim - narrow, transform=c.Transform(activation="relu", norm=norm))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, positions=c.Learned(length=length), segments=c.SegmentTable(), norm=c.NoNorm(),
                          dropout=dropout, projection=c.ProjectTrigram(width=narrow)),
        encoder=c.Stack(layers=c.Repeat(block=block, times=layers)),
        pooler=c.Pooler(), head=c.PretrainingHead(language=language))


def block_of(bottleneck: c.Bottleneck | None, norm: c.Norm, *, heads: int, forward: c.FeedForward, forwards: int,
             dropout: float) -> c.Block:
    """One block; where it is not narrow, dropout stands on its first and last residual."""
    outside = 0.0 if bottleneck else dropout
    attention = c.SelfAttention(projection=c.Projection(heads=heads), kernel=c.Softmax(dropout=0.1))
    return c.Block(bottleneck=bottleneck, sublayers=(
        c.PostNorm(inner=attention, norm=norm, dropout=outside),
        *(c.PostNorm(inner=forward, norm=norm) for _ in range(forwards - 1)),
        c.PostNorm(inner=forward, norm=unset(norm), dropout=outside)))


def unset(norm: c.Norm) -> c.Norm:
    """The norms whose eps the release leaves at its library's default: of the embedding and at the end of a block."""
    return c.LayerNorm() if isinstance(norm, c.LayerNorm) else norm


def from_fields(dim: int, **fields: Any) -> c.Transformer:
    """The family by the published fields that change its shape."""
    norm = c.NoNorm() if fields["norm"] == "no_norm" else c.LayerNorm(eps=fields["eps"])
    narrow, dropout = fields["embedding"], fields["dropout"]
    reads = c.ReadsNarrow() if fields["own"] else c.ReadsShared() if fields["shared"] else c.ReadsWide()
    inside = c.Bottleneck(width=fields["width"], reads=reads, norm=norm, dropout=dropout)
    around = inside if fields["inside"] else None
    forward = c.FeedForward(hidden=fields["hidden"], activation=fields["activation"])
    block = block_of(around, norm, heads=fields["heads"], forward=forward, forwards=fields["forwards"],
                     dropout=dropout)
    wide = c.ProjectTokens(width=narrow) if narrow != dim else None
    tree = mobilebert(dim, narrow=narrow, dropout=dropout)
    embed = tree.embed.model_copy(update={
        "norm": unset(norm), "projection": c.ProjectTrigram(width=narrow) if fields["trigram"] else wide})
    transform = c.Transform(activation=fields["activation"], norm=c.LayerNorm(eps=fields["eps"]))
    language = c.LanguageHead(bias=True, columns=dim - narrow, transform=transform)
    return tree.model_copy(update={
        "head": c.PretrainingHead(language=language), "embed": embed,
        "encoder": c.Stack(layers=c.Repeat(block=block, times=1)),
        "pooler": c.Pooler() if fields["dense"] else c.Pooler(dense=False, activation="identity")})


def block_in(tree: c.Transformer) -> c.Block:
    """Every block."""
    assert tree.encoder is not None, "a MobileBERT is an encoder"
    return tree.encoder.blocks()[0]


def at(path: str, *, otherwise: Any = None) -> Callable[[c.Transformer], Any]:
    """Return what looks into a block."""
    def look(tree: c.Transformer) -> Any:
        found = look_up(block_in(tree), path)
        return otherwise if found is None else found

    return look


def reads(kind: type[c.Config]) -> Callable[[c.Transformer], bool | None]:
    """Return what says whether the attention of a bottleneck reads this; None without a bottleneck."""
    def ask(tree: c.Transformer) -> bool | None:
        around = block_in(tree).bottleneck
        return None if around is None else isinstance(around.reads, kind)

    return ask


def eps(tree: c.Transformer) -> float | None:
    """The eps of the norms, where a norm has one."""
    language = tree.language_head
    norm = language.transform.norm if language and language.transform else block_in(tree).sublayers[0].norm
    return norm.eps if isinstance(norm, c.LayerNorm) else None


KEYS = (
    Key("hidden_size", ("dim",), argument="dim"),
    Key("embedding_size", (), argument="embedding", default=128, found=lambda tree: tree.embed.widths(tree.dim)[0]),
    Key("trigram_input", (), argument="trigram", default=True,
        found=lambda tree: isinstance(tree.embed.projection, c.ProjectTrigram)),
    Key("use_bottleneck", (), argument="inside", default=True,
        found=lambda tree: block_in(tree).bottleneck is not None),
    Key("intra_bottleneck_size", (), argument="width", default=128, found=at("bottleneck.width")),
    Key("use_bottleneck_attention", (), argument="own", default=False, found=reads(c.ReadsNarrow)),
    Key("key_query_shared_bottleneck", (), argument="shared", default=True, found=reads(c.ReadsShared)),
    Key("num_feedforward_networks", (), argument="forwards", default=4,
        found=lambda tree: len(block_in(tree).sublayers) - 1),
    Key("normalization_type", (), argument="norm", default="no_norm", names={"no_norm": "no_norm",
                                                                            "layer_norm": "layer_norm"},
        found=at("sublayers.0.norm.kind")),
    Key("layer_norm_eps", (), argument="eps", default=1e-12, found=eps),
    Key("classifier_activation", (), argument="dense", default=True,
        found=lambda tree: None if tree.pooler is None else tree.pooler.dense),
    Key("num_attention_heads", (), argument="heads", found=at("sublayers.0.inner.projection.heads")),
    Key("intermediate_size", (), argument="hidden", found=at("sublayers.1.inner.hidden")),
    Key("hidden_act", (), argument="activation", names=ACTIVATIONS, default="relu",
        found=at("sublayers.1.inner.activation")),
    Key("hidden_dropout_prob", (), argument="dropout", default=0.0, found=lambda tree: tree.embed.dropout),
    Key("num_hidden_layers", ("encoder.layers.times",)),
    Key("vocab_size", ("embed.vocab",)),
    Key("max_position_embeddings", ("embed.positions.length",)),
    Key("type_vocab_size", ("embed.segments.count",), default=2),
    Key("attention_probs_dropout_prob", ("encoder.layers.block.sublayers.0.inner.kernel.dropout",), default=0.1),
)


def weights(tree: c.Transformer) -> Rules:
    """The names of MobileBERT's body."""
    block = block_in(tree)
    inside = "inside." if block.bottleneck else ""
    ours, theirs = f"encoder.blocks.{{i}}.{inside}", "@encoder.layer.{i}."
    maps = [f"{theirs}attention.self.{name}.{{p}}" for name in ("query", "key", "value")]
    width = block.width(tree.dim)
    rules = [
        Rule(f"{ours}attention.inner.qkv.{{p}}", tuple(maps), Concat((width,) * 3)),
        Rule(f"{ours}attention.inner.qkv.query_key.{{p}}", tuple(maps[:2]), Concat((width,) * 2)),
        Rule(f"{ours}attention.inner.qkv.value.{{p}}", maps[2]),
        Rule(f"{ours}attention.inner.out.{{p}}", f"{theirs}attention.output.dense.{{p}}"),
        Rule(f"{ours}attention.norm.{{p}}", f"{theirs}attention.output.LayerNorm.{{p}}"),
        *(rule for number in range(len(block.sublayers) - 1)
          for rule in forward_rules(ours, theirs, number, last=number == len(block.sublayers) - 2)),
        *(Rule(f"encoder.blocks.{{i}}.bottleneck.{one}.{{p}}", f"{theirs}{other}.{{p}}")
          for one, other in BOTTLENECK.items()),
    ]
    return Rules([
        *rules, *(Rule(one, other) for one, other in {**lineage.EMBEDDINGS, **lineage.POOLER}.items()),
        Rule("embed.project.{p}", "@embeddings.embedding_transformation.{p}"),
    ], ignored=["@embeddings.position_ids", "cls.predictions.decoder.{p}"])


BOTTLENECK = {
    "down": "bottleneck.input.dense", "down_norm": "bottleneck.input.LayerNorm",
    "attention": "bottleneck.attention.dense", "attention_norm": "bottleneck.attention.LayerNorm",
    "up": "output.bottleneck.dense", "norm": "output.bottleneck.LayerNorm",
}


def forward_rules(ours: str, theirs: str, number: int, *, last: bool) -> list[Rule]:
    """The names of one feed-forward; the last of a block has names of its own."""
    name = f"{ours}feed_forward" + (f"_{number + 1}" if number else "")
    up, down = ("intermediate", "output") if last else (f"ffn.{number}.intermediate", f"ffn.{number}.output")
    return [Rule(f"{name}.inner.up.{{p}}", f"{theirs}{up}.dense.{{p}}"),
            Rule(f"{name}.inner.down.{{p}}", f"{theirs}{down}.dense.{{p}}"),
            Rule(f"{name}.norm.{{p}}", f"{theirs}{down}.LayerNorm.{{p}}")]


def words(tree: c.Transformer) -> tuple[Rule, ...]:
    """The names of the language head: BERT's, and the columns beside the token table's."""
    ours = "head.language" if isinstance(tree.head, c.PretrainingHead) else "head"
    return (*lineage.WORDS(tree), Rule(f"{ours}.columns", "cls.predictions.dense.weight", Transpose()))


def both(tree: c.Transformer) -> tuple[Rule, ...]:
    """The names of the two pretraining heads."""
    return (*words(tree), Rule("head.sentence.{p}", f"{SENTENCE}.{{p}}"))


DROPOUT = Key("classifier_dropout", ("head.dropout",),
              default=lambda document: document.get("hidden_dropout_prob", 0.0))
MOBILEBERT_LAYOUT = Layout(
    "mobilebert", from_fields, KEYS, weights, {
        "MobileBertForPreTraining": Published(keep_all, both),
        "MobileBertForMaskedLM": Published(keep_language, words),
        "MobileBertForNextSentencePrediction": labelling(c.ClassificationHead(), SENTENCE, keys=()),
        "MobileBertForSequenceClassification": labelling(c.ClassificationHead(), keys=(LABELS, DROPOUT)),
        "MobileBertForTokenClassification": labelling(c.TokenHead(), keys=(LABELS, DROPOUT)),
        "MobileBertForQuestionAnswering": labelling(c.SpanHead(), "qa_outputs", keys=()),
        "MobileBertForMultipleChoice": labelling(c.ChoiceHead(), keys=(DROPOUT,)),
        "MobileBertModel": bare,
    }, "mobilebert.", fixed={"tie_word_embeddings": True},
    free=frozenset({"true_hidden_size", "intra_bottleneck_size", "key_query_shared_bottleneck", "layer_norm_eps",
                    "use_bottleneck_attention", "classifier_activation"}))
