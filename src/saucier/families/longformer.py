"""Longformer: RoBERTa with a sliding window of its own in every layer, and global tokens with maps of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from saucier import config as c
from saucier.checkpoints.choices import LABELS, TIED, bare, keep_language, labelling, language
from saucier.checkpoints.keys import Document, Key, Layout, Published, put
from saucier.checkpoints.rules import Concat, Rule, Rules
from saucier.families import lineage
from saucier.families.shapes import in_turns


def longformer(
    dim: int = 768,
    layers: int = 12,
    *,
    heads: int = 12,
    vocab: int = 50265,
    length: int = 4098,
    hidden: int | None = None,
    window: int | Sequence[int] = 512,
    dropout: float = 0.1,
) -> c.Transformer:
    """Longformer with its language head. Source: Beltagy et al. 2020, §3 and §5, arXiv:2004.05150.

    `window`: how many neighbours a token sees, half on each side; one number a layer, or one for all.
    """
    norm = c.LayerNorm()

    def block(reach: int) -> c.Block:
        attention = c.SelfAttention(projection=c.Projection(heads=heads), kernel=c.Softmax(dropout=dropout),
                                    visibility=c.Window(reach + 1) | c.Global(), global_maps=c.GlobalMaps())
        feed_forward = c.FeedForward(hidden=hidden or 4 * dim, activation="gelu")
        return c.Block(sublayers=tuple(c.PostNorm(inner=inner, norm=norm, dropout=dropout)
                                       for inner in (attention, feed_forward)))

    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, positions=c.Learned(length=length, places=c.SkipPadding()), norm=norm,
                          dropout=dropout, segments=c.SegmentTable(count=1)),
        encoder=c.Stack(layers=in_turns(tuple(map(block, reaches(window, layers))))),
        pooler=c.Pooler(),
        head=c.LanguageHead(bias=True, transform=c.Transform(norm=norm)),
    )


def reaches(window: int | Sequence[int], layers: int) -> tuple[int, ...]:
    """Return how far each layer's window reaches to a side. Raises `ValueError` for windows that do not fit."""
    widths = (window,) * layers if isinstance(window, int) else tuple(window)
    if not widths or len(widths) != layers or any(width < 2 or width % 2 for width in widths):
        raise ValueError(f"windows {list(widths)} for {layers} layers: one even number for each is needed")
    return tuple(width // 2 for width in widths)


def windows(tree: c.Transformer) -> list[int]:
    """Return the neighbours that each layer of the encoder sees."""
    inner = [block.sublayers[0].inner for block in (tree.encoder.blocks() if tree.encoder else ())]
    found = [c.sliding(part.visibility) if isinstance(part, c.SelfAttention) else None for part in inner]
    return [2 * (reach or 0) for reach in found]


OTHERWISE = "encoder.layers.*.sublayers.0.inner.visibility.terms.1.otherwise"


def anywhere(*keys: Key) -> tuple[Key, ...]:
    """Return the same fields for encoders whose blocks differ."""
    return tuple(replace(key, paths=tuple(path.replace("encoder.layers.block", "encoder.layers.*")
                                          for path in key.paths)) for key in keys)


WINDOW = Key("attention_window", (), argument="window", default=512, found=windows)
KEYS = (
    *anywhere(*(key for key in lineage.SIZES if key.foreign != "num_hidden_layers"), lineage.DROPOUT,
              lineage.activation(), lineage.norms("head.transform.norm.eps")),
    lineage.SEGMENTS,
    Key("num_hidden_layers", (), argument="layers", found=lambda tree: len(windows(tree))),
    WINDOW,
    Key("pad_token_id", ("embed.positions.places.padding",), default=1),
)


def weights(tree: c.Transformer) -> Rules:
    """The names of BERT's body, and of the maps for global tokens."""
    theirs = tuple(f"@encoder.layer.{{i}}.attention.self.{name}_global.{{p}}" for name in ("query", "key", "value"))
    maps = Rule("encoder.blocks.{i}.attention.inner.global_qkv.{p}", theirs, Concat((tree.dim,) * 3))
    return lineage.body(tree, copies=("lm_head.decoder.{p}",)).plus([maps])


words = language("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", bias="lm_head.bias")
SEPARATOR = Key("sep_token_id", (f"{OTHERWISE}.token",), default=2)


def finding(tokens: c.GlobalTokens, published: Published) -> Published:
    """Return a class that makes these tokens global where the batch names none."""
    def keep(tree: c.Transformer, document: Document) -> c.Transformer:
        return published.keep(put(tree, OTHERWISE, tokens), document)

    return Published(keep, published.rules, published.keys)


CLASSES = {
    "LongformerForMaskedLM": Published(keep_language, words, (TIED,)),
    "LongformerForSequenceClassification": finding(c.FirstToken(), labelling(
        c.ClassificationHead(pick=c.First(), transform=c.Transform(activation="tanh")), "classifier.out_proj",
        dense="classifier.dense",
        keys=(LABELS, lineage.HEAD_DROPOUT))),
    "LongformerForTokenClassification": labelling(c.TokenHead(), keys=(LABELS, lineage.HEAD_DROPOUT)),
    "LongformerForQuestionAnswering": finding(c.BeforeSeparator(), labelling(c.SpanHead(), "qa_outputs",
                                                                             keys=(SEPARATOR,))),
    "LongformerForMultipleChoice": finding(c.AfterSeparator(), labelling(
        c.ChoiceHead(), keys=(SEPARATOR, lineage.HEAD_DROPOUT))),
    "LongformerModel": bare,
}
LONGFORMER_LAYOUT = Layout("longformer", longformer, KEYS, weights, CLASSES, "longformer.",
                           free=frozenset({"onnx_export", "tie_word_embeddings"}))
