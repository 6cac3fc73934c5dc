"""BigBird: BERT for long texts, whose positions see a window of blocks, the blocks at both ends, and random ones."""

from __future__ import annotations

from dataclasses import replace

from saucier import config as c
from saucier.checkpoints.choices import DROPOUT, LABELS, bare, labelling, whole
from saucier.checkpoints.keys import ACTIVATIONS, Document, Key, Layout, Published
from saucier.checkpoints.rules import Concat, Rule, Rules
from saucier.checkpoints.sides import as_decoder, as_encoder
from saucier.config.visibility import terms_of
from saucier.families.bert import bert


def blocks(size: int, drawn: int, length: int) -> c.Visibility:
    """Return what a BigBird of at most `length` positions sees; all, as long as the blocks could not leave gaps.

    Source: Zaheer et al. 2020, §2 and appendix D, arXiv:2007.14062; the limit is that of its code release.
    """
    pattern: c.Visibility = c.BlockWindow(size=size) | c.GlobalBlocks(size=size)
    if drawn:
        pattern = pattern + c.RandomBlocks(size=size, count=drawn, length=length)
    return c.Beyond(length=(5 + 2 * drawn) * size, inner=pattern)


def big_bird(dim: int = 768, layers: int = 12, *, heads: int = 12, vocab: int = 50358, length: int = 4096,
             hidden: int | None = None, dropout: float = 0.1, visibility: c.Visibility | None = None) -> c.Transformer:
    """BigBird with both pretraining heads; `visibility` None is blocks of 64, of which 3 are drawn.

    Source: Zaheer et al. 2020, appendix E.1, arXiv:2007.14062. The published code drops embeddings before their norm,
    and no attention weights in long inputs; here dropout stands where BERT has it.
    """
    tree = bert(dim, layers, heads=heads, vocab=vocab, length=length, hidden=hidden, dropout=dropout)
    return seeing(tree, visibility or blocks(64, 3, length))


def seeing(tree: c.Transformer, visibility: c.Visibility) -> c.Transformer:
    """Return an encoder of equal blocks with another visibility, and the activation of BigBird."""
    attention, feed_forward = tree.encoder.blocks()[0].sublayers  # type: ignore[union-attr]  # a family of encoders
    changed = c.Block(sublayers=(
        attention.model_copy(update={"inner": attention.inner.model_copy(update={"visibility": visibility})}),
        feed_forward.model_copy(update={"inner": feed_forward.inner.model_copy(update={"activation": "gelu_tanh"})})))
    stack = c.Stack(layers=c.Repeat(block=changed, times=len(tree.encoder.blocks())))  # type: ignore[union-attr]
    return tree.model_copy(update={"encoder": stack})


def from_fields(dim: int, *, sparse: bool, block: int, drawn: int, length: int, scaled: bool) -> c.Transformer:
    """The family by its published fields."""
    tree = big_bird(dim, length=length, visibility=blocks(block, drawn, length) if sparse else c.Full())
    return tree.model_copy(update={"embed": tree.embed.model_copy(update={"scale": dim**0.5 if scaled else 1.0})})


def seen(tree: c.Transformer) -> list[c.Visibility]:
    """Return the visibility of a tree's blocks with everything in it."""
    stack = tree.encoder or tree.decoder
    assert stack is not None, "a family of one stack"
    attention = stack.blocks()[0].sublayers[0].inner
    return terms_of(attention.visibility) if isinstance(attention, c.SelfAttention) else []


def block_size(tree: c.Transformer) -> int | None:
    """Return the positions in a block, where there are blocks."""
    return next((term.size for term in seen(tree) if isinstance(term, c.BlockWindow)), None)


def random_blocks(tree: c.Transformer) -> int | None:
    """Return how many blocks are drawn, where there are blocks."""
    count = next((term.count for term in seen(tree) if isinstance(term, c.RandomBlocks)), 0)
    return count if block_size(tree) else None


BLOCK = "encoder.layers.block.sublayers"
ATTENTION, FEED_FORWARD = f"{BLOCK}.0", f"{BLOCK}.1"
TRANSFORM = "head.language.transform"
DROPOUTS = ("head.dropout", "head.transform.dropout")
ACTIVATION, DEFAULT = "hidden_act", "gelu_new"
KEYS = (
    Key("hidden_size", ("dim",), argument="dim"),
    Key("max_position_embeddings", ("embed.positions.length",), argument="length", default=4096),
    Key("attention_type", (), argument="sparse", names={"block_sparse": True, "original_full": False},
        default="block_sparse", found=lambda tree: block_size(tree) is not None),
    Key("block_size", (), argument="block", default=64, found=block_size),
    Key("num_random_blocks", (), argument="drawn", default=3, found=random_blocks),
    Key("rescale_embeddings", (), argument="scaled", default=False, found=lambda tree: tree.embed.scale != 1.0),
    Key("num_hidden_layers", ("encoder.layers.times",)),
    Key("num_attention_heads", (f"{ATTENTION}.inner.projection.heads",)),
    Key("use_bias", (f"{ATTENTION}.inner.projection.bias",), default=True),
    Key("intermediate_size", (f"{FEED_FORWARD}.inner.hidden",)),
    Key("vocab_size", ("embed.vocab",)),
    Key("type_vocab_size", ("embed.segments.count",), default=2),
    Key(ACTIVATION, (f"{FEED_FORWARD}.inner.activation", f"{TRANSFORM}.activation"), names=ACTIVATIONS,
        default=DEFAULT),
    Key("layer_norm_eps", ("embed.norm.eps", f"{ATTENTION}.norm.eps", f"{FEED_FORWARD}.norm.eps",
                           f"{TRANSFORM}.norm.eps"), default=1e-12),
    Key("hidden_dropout_prob", ("embed.dropout", f"{ATTENTION}.dropout", f"{FEED_FORWARD}.dropout"), default=0.1),
    Key("attention_probs_dropout_prob", (f"{ATTENTION}.inner.kernel.dropout",), default=0.1),
)


def weights(tree: c.Transformer) -> Rules:
    """The names of BigBird's body: BERT's, but for the pooler."""
    embed = {"tokens": "word_embeddings", "positions": "position_embeddings", "segments": "token_type_embeddings"}
    names = {"attention.inner.out": "attention.output.dense", "attention.norm": "attention.output.LayerNorm",
             "feed_forward.inner.up": "intermediate.dense", "feed_forward.inner.down": "output.dense",
             "feed_forward.norm": "output.LayerNorm"}
    block, theirs = f"{'encoder' if tree.encoder else 'decoder'}.blocks.{{i}}.", "@encoder.layer.{i}."
    maps = tuple(f"{theirs}attention.self.{name}.{{p}}" for name in ("query", "key", "value"))
    return Rules([
        *(Rule(f"embed.{ours}.weight", f"@embeddings.{other}.weight") for ours, other in embed.items()),
        Rule("embed.norm.{p}", "@embeddings.LayerNorm.{p}"),
        Rule(block + "attention.inner.qkv.{p}", maps, Concat((tree.dim,) * 3)),
        *(Rule(block + ours + ".{p}", theirs + other + ".{p}") for ours, other in names.items()),
        Rule("pooler.dense.{p}", "@pooler.{p}"),
    ], ignored=["@embeddings.position_ids", "@embeddings.token_type_ids", "cls.predictions.decoder.{p}"])


def words(ours: str) -> tuple[Rule, ...]:
    """The names of the language head, which stands in our tree at `ours`."""
    return (Rule(f"{ours}.transform.dense.{{p}}", "cls.predictions.transform.dense.{p}"),
            Rule(f"{ours}.transform.norm.{{p}}", "cls.predictions.transform.LayerNorm.{p}"),
            Rule(f"{ours}.bias", "cls.predictions.bias"))


def keep_language(tree: c.Transformer, document: Document) -> c.Transformer:
    """The language head; the pooler stays, as published files hold it."""
    return tree.model_copy(update={"head": tree.language_head})


def keep_pooler(published: Published) -> Published:
    """Leave the pooler on the body, as published files hold it, also where the head does not read it."""
    def keep(tree: c.Transformer, document: Document) -> c.Transformer:
        return published.keep(tree, document).model_copy(update={"pooler": tree.pooler})

    return replace(published, keep=keep)


def with_questions(tree: c.Transformer, document: Document) -> c.Transformer:
    """The head for answers; the segments tell question and text apart."""
    assert isinstance(tree.embed.segments, c.SegmentTable), "as the family's function says"
    segments = tree.embed.segments.model_copy(update={"otherwise": c.AfterToken(token=0)})
    embed = tree.embed.model_copy(update={"segments": segments})
    return tree.model_copy(update={"embed": embed, "pooler": None, "head": c.QuestionSpanHead(hidden=1, separator=0)})


def only(value: bool) -> Key:
    """A body sees later tokens unless its class writes text."""
    return Key("is_decoder", (), names={value: value}, default=False, found=lambda tree: value)


def activation(*paths: str) -> Key:
    """The body's activation, where the head has it too."""
    return Key(ACTIVATION, paths, names=ACTIVATIONS, default=DEFAULT)


FULL_ONLY = Key("attention_type", (), names={"original_full": False}, default="block_sparse", found=lambda tree: False)
"""The reference's blocks see later tokens also where text is written: only full attention can be read as a writer."""
BODY_DROPOUT = Key("hidden_dropout_prob", ("head.dropout",), default=0.1)
CLASSIFIER = c.ClassificationHead(pick=c.First(), transform=c.Transform())
CLASSES = {
    "BigBirdForPreTraining": Published(
        whole.keep, (*words("head.language"), Rule("head.sentence.{p}", "cls.seq_relationship.{p}")), (only(False),)),
    "BigBirdForMaskedLM": Published(keep_language, words("head"), (only(False),)),
    "BigBirdForCausalLM": keep_pooler(Published(as_decoder, words("head"), (only(True), FULL_ONLY),
                                                restore=as_encoder)),
    "BigBirdForSequenceClassification": keep_pooler(labelling(
        CLASSIFIER, "classifier.out_proj", dense="classifier.dense", keys=(
            only(False), LABELS, activation("head.transform.activation"), replace(DROPOUT, paths=DROPOUTS)))),
    "BigBirdForTokenClassification": keep_pooler(labelling(c.TokenHead(), keys=(only(False), LABELS, DROPOUT))),
    "BigBirdForMultipleChoice": labelling(c.ChoiceHead(), keys=(only(False), BODY_DROPOUT)),
    "BigBirdForQuestionAnswering": Published(with_questions, (
        Rule("head.up.{p}", "qa_classifier.intermediate.dense.{p}"),
        Rule("head.down.{p}", "qa_classifier.output.dense.{p}"),
        Rule("head.norm.{p}", "qa_classifier.output.LayerNorm.{p}"),
        Rule("head.output.{p}", "qa_classifier.qa_outputs.{p}"),
    ), (only(False), Key("sep_token_id", ("head.separator", "embed.segments.otherwise.token"), default=66),
        Key("intermediate_size", ("head.hidden",)), Key("layer_norm_eps", ("head.norm.eps",), default=1e-12),
        activation("head.activation"), BODY_DROPOUT)),
    "BigBirdModel": replace(bare, keys=(only(False),)),
}
BIG_BIRD_LAYOUT = Layout(
    "big_bird", from_fields, KEYS, weights, CLASSES, "bert.",
    fixed={"tie_word_embeddings": True, "add_cross_attention": False},
    free=frozenset({"is_decoder", "block_size", "num_random_blocks"}),
)
