"""FNet: a BERT whose attention is a Fourier transform."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.choices import LABELS, TIED, bare, keep_all, keep_language, labelling
from saucier.checkpoints.keys import Key, Layout, Published
from saucier.checkpoints.rules import Rule, Rules
from saucier.families import lineage
from saucier.families.bert import SENTENCE, both, words


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
                          norm=norm, dropout=dropout, projection=c.ProjectUndropped(width=dim)),
        encoder=c.Stack(layers=c.Repeat(block=c.Block(sublayers=(mixing, forward)), times=layers)),
        pooler=c.Pooler(),
        head=c.PretrainingHead(language=c.LanguageHead(bias=True, transform=transform)))


HEAD = "head.language.transform"
SIZES = ("num_hidden_layers", "intermediate_size", "vocab_size", "max_position_embeddings")
KEYS = (
    *(key for key in lineage.SIZES if key.foreign in SIZES),
    Key("hidden_size", ("dim", "embed.projection.width")),
    Key("type_vocab_size", ("embed.segments.count",), default=4),
    Key("hidden_dropout_prob", (f"{lineage.FEED_FORWARD}.dropout", "embed.dropout"), default=0.1),
    lineage.activation(f"{HEAD}.activation"),
    lineage.norms(f"{HEAD}.norm.eps"),
)
NAMES = {
    "fourier.norm": "fourier.output.LayerNorm", "feed_forward.inner.up": "intermediate.dense",
    "feed_forward.inner.down": "output.dense", "feed_forward.norm": "output.LayerNorm",
}


def weights(tree: c.Transformer) -> Rules:
    """The names of FNet's body."""
    return Rules([
        *(Rule(f"embed.{ours}.weight", f"@embeddings.{theirs}.weight") for ours, theirs in lineage.EMBEDDINGS.items()),
        Rule("embed.norm.{p}", "@embeddings.LayerNorm.{p}"), Rule("embed.project.{p}", "@embeddings.projection.{p}"),
        *(Rule(f"encoder.blocks.{{i}}.{ours}.{{p}}", f"@encoder.layer.{{i}}.{theirs}.{{p}}")
          for ours, theirs in NAMES.items()),
        Rule("pooler.dense.{p}", "@pooler.dense.{p}"),
    ], ignored=["@embeddings.position_ids", "@embeddings.token_type_ids", "cls.predictions.decoder.{p}"])


FNET_LAYOUT = Layout(
    "fnet", fnet, KEYS, weights, {
        "FNetForPreTraining": Published(keep_all, both, (TIED,)),
        "FNetForMaskedLM": Published(keep_language, words, (TIED,)),
        "FNetForNextSentencePrediction": labelling(c.ClassificationHead(), SENTENCE, keys=()),
        "FNetForSequenceClassification": labelling(c.ClassificationHead(), keys=(LABELS, lineage.HEAD_DROPOUT)),
        "FNetForTokenClassification": labelling(c.TokenHead(), keys=(LABELS, lineage.HEAD_DROPOUT)),
        "FNetForQuestionAnswering": labelling(c.SpanHead(), "qa_outputs", keys=()),
        "FNetForMultipleChoice": labelling(c.ChoiceHead(), keys=(lineage.HEAD_DROPOUT,)),
        "FNetModel": bare,
    }, "fnet.", fixed={"use_tpu_fourier_optimizations": False},
    free=frozenset({"tie_word_embeddings", "tpu_short_seq_length"}))
