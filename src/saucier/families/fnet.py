"""FNet: a BERT whose attention is a Fourier transform."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.classes import LABELS, TIED, encoder_classes, head_class, keep_all
from saucier.checkpoints.fields import Key
from saucier.checkpoints.layout import Layout, Published
from saucier.checkpoints.weight_names import NameTable
from saucier.families import bert_lineage


def fnet(
    dim: int = 768,
    layers: int = 12,
    *,
    vocab: int = 32000,
    length: int = 512,
    hidden: int | None = None,
    segments: int = 4,
    dropout: float = 0.1,
) -> c.Transformer:
    """FNet with both pretraining heads. Source: Lee-Thorp et al. 2022, §3, arXiv:2105.03824."""
    norm = c.LayerNorm(eps=1e-12)
    mixing = c.PostNorm(inner=c.FourierMixing(), norm=norm)
    forward = c.PostNorm(inner=c.FeedForward(hidden=hidden or 4 * dim, activation="gelu_tanh"), norm=norm,
                         dropout=dropout)
    transform = c.Transform(activation="gelu_tanh", norm=norm)
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, positions=c.Learned(length=length), segments=c.SegmentTable(count=segments),
                          norm=norm, dropout=dropout, projection=c.ProjectNarrow(kind="undropped", width=dim)),
        encoder=c.Stack(layers=c.Repeat(block=c.Block(sublayers=(mixing, forward)), times=layers)),
        pooler=c.Pooler(),
        head=c.PretrainingHead(language=c.LanguageHead(bias=True, transform=transform)))


FNET_LAYOUT = Layout(
    "fnet", fnet,
    keys=bert_lineage.keys(
        Key("hidden_size", ("dim", "embed.projection.width")),
        Key("hidden_dropout_prob", ("encoder.layers.block.sublayers.1.dropout", "embed.dropout"), default=0.1),
        drop=("num_attention_heads", "attention_probs_dropout_prob"), transform="head.language.transform",
        type_vocab_size=("segments", 4), hidden_act=("activation", "gelu_new")),
    weights=NameTable({**bert_lineage.EMBEDDINGS, **bert_lineage.POOLER,
                       "embed.project.{p}": "@embeddings.projection.{p}"}, "@encoder.layer.{i}.",
                      {**bert_lineage.FEED_FORWARD, "fourier.norm": "fourier.output.LayerNorm"},
                      ignored=bert_lineage.BERT_BODY.ignored),
    classes={
        "FNetForPreTraining": Published(keep_all, bert_lineage.BOTH, (TIED,)),
        "FNetForNextSentencePrediction": head_class(c.ClassificationHead(), bert_lineage.SENTENCE, keys=()),
        **encoder_classes("FNet", bert_lineage.WORDS,
                          head_class(c.ClassificationHead(), keys=(LABELS, bert_lineage.HEAD_DROPOUT)),
                          dropout=bert_lineage.HEAD_DROPOUT),
    },
    base="fnet.", fixed={"use_tpu_fourier_optimizations": False},
    free=frozenset({"tie_word_embeddings", "tpu_short_seq_length"}),
)
