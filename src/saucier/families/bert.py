"""BERT: an encoder with post-norm, learned positions and segments, trained on masked words and sentence pairs."""

from __future__ import annotations

from saucier.checkpoints.choices import bare, language_only, whole
from saucier.checkpoints.keys import ACTIVATIONS, Key, Layout
from saucier.checkpoints.rules import Concat, Rule, Rules
from saucier.config import (
    Block,
    Embedding,
    FeedForward,
    HeadTransform,
    LanguageHead,
    LayerNorm,
    Learned,
    Pooler,
    PostNorm,
    PretrainingHead,
    Projection,
    Repeat,
    SelfAttention,
    Softmax,
    Stack,
    Transformer,
)


def bert(
    dim: int = 768,
    layers: int = 12,
    *,
    heads: int = 12,
    vocab: int = 30522,
    length: int = 512,
    hidden: int | None = None,
    segments: int = 2,
    dropout: float = 0.1,
) -> Transformer:
    """BERT with both pretraining heads. Source: Devlin et al. 2019, §3, arXiv:1810.04805."""
    norm = LayerNorm(eps=1e-12)
    attention = SelfAttention(projection=Projection(heads=heads), kernel=Softmax(dropout=dropout))
    feed_forward = FeedForward(hidden=hidden or 4 * dim, activation="gelu")
    residuals = tuple(PostNorm(inner=inner, norm=norm, dropout=dropout) for inner in (attention, feed_forward))
    return Transformer(
        dim=dim,
        embed=Embedding(vocab=vocab, positions=Learned(length=length), segments=segments, norm=norm, dropout=dropout),
        encoder=Stack(layers=Repeat(block=Block(sublayers=residuals), times=layers)),
        pooler=Pooler(),
        head=PretrainingHead(language=LanguageHead(bias=True, transform=HeadTransform(activation="gelu", norm=norm))),
    )


ATTENTION, FEED_FORWARD = "encoder.layers.block.sublayers.0", "encoder.layers.block.sublayers.1"
HEAD = "head.language.transform"
KEYS = (
    Key("hidden_size", ("dim",)),
    Key("num_hidden_layers", ("encoder.layers.times",)),
    Key("num_attention_heads", (f"{ATTENTION}.inner.projection.heads",)),
    Key("intermediate_size", (f"{FEED_FORWARD}.inner.hidden",)),
    Key("vocab_size", ("embed.vocab",)),
    Key("max_position_embeddings", ("embed.positions.length",)),
    Key("type_vocab_size", ("embed.segments",), default=2),
    Key("hidden_act", (f"{FEED_FORWARD}.inner.activation", f"{HEAD}.activation"), names=ACTIVATIONS, default="gelu"),
    Key(
        "layer_norm_eps",
        ("embed.norm.eps", f"{ATTENTION}.norm.eps", f"{FEED_FORWARD}.norm.eps", f"{HEAD}.norm.eps"),
        default=1e-12,
    ),
    Key("hidden_dropout_prob", ("embed.dropout", f"{ATTENTION}.dropout", f"{FEED_FORWARD}.dropout"), default=0.1),
    Key("attention_probs_dropout_prob", (f"{ATTENTION}.inner.kernel.dropout",), default=0.1),
)


def weights(tree: Transformer) -> Rules:
    """The names of BERT; the sentence classifier and the language head stand beside the body."""
    names = {
        "attention.inner.out": "attention.output.dense",
        "attention.norm": "attention.output.LayerNorm",
        "feed_forward.inner.up": "intermediate.dense",
        "feed_forward.inner.down": "output.dense",
        "feed_forward.norm": "output.LayerNorm",
    }
    embed = {"tokens": "word_embeddings", "positions": "position_embeddings", "segments": "token_type_embeddings"}
    language = "head" if isinstance(tree.head, LanguageHead) else "head.language"
    block, theirs = "encoder.blocks.{i}.", "@encoder.layer.{i}."
    return Rules(
        [
            *(Rule(f"embed.{ours}.weight", f"@embeddings.{other}.weight") for ours, other in embed.items()),
            Rule("embed.norm.{p}", "@embeddings.LayerNorm.{p}"),
            Rule(
                block + "attention.inner.qkv.{p}",
                tuple(f"{theirs}attention.self.{name}.{{p}}" for name in ("query", "key", "value")),
                Concat((tree.dim,) * 3),
            ),
            *(Rule(block + ours + ".{p}", theirs + other + ".{p}") for ours, other in names.items()),
            Rule("pooler.dense.{p}", "@pooler.dense.{p}"),
            Rule(f"{language}.transform.dense.{{p}}", "cls.predictions.transform.dense.{p}"),
            Rule(f"{language}.transform.norm.{{p}}", "cls.predictions.transform.LayerNorm.{p}"),
            Rule(f"{language}.bias", "cls.predictions.bias"),
            Rule("head.sentence.{p}", "cls.seq_relationship.{p}"),
        ],
        ignored=["@embeddings.position_ids", "cls.predictions.decoder.{p}"],
    )


BERT_LAYOUT = Layout(
    "bert",
    bert,
    KEYS,
    weights,
    {"BertForPreTraining": whole, "BertForMaskedLM": language_only, "BertModel": bare},
    "bert.",
    fixed={
        "tie_word_embeddings": True,
        "add_cross_attention": False,
        "is_decoder": False,
        "position_embedding_type": "absolute",
    },
)
