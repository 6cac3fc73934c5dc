"""BERT: an encoder with post-norm, learned positions and segments, trained on masked words and sentence pairs."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.choices import DROPOUT, LABELS, TIED, bare, keep_all, keep_language, labelling, language
from saucier.checkpoints.keys import Layout, Published
from saucier.checkpoints.rules import Rule, Rules
from saucier.families import lineage


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
) -> c.Transformer:
    """BERT with both pretraining heads. Source: Devlin et al. 2019, §3, arXiv:1810.04805."""
    norm = c.LayerNorm(eps=1e-12)
    attention = c.SelfAttention(projection=c.Projection(heads=heads), kernel=c.Softmax(dropout=dropout))
    feed_forward = c.FeedForward(hidden=hidden or 4 * dim, activation="gelu")
    residuals = tuple(c.PostNorm(inner=inner, norm=norm, dropout=dropout) for inner in (attention, feed_forward))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, positions=c.Learned(length=length), norm=norm, dropout=dropout,
                          segments=c.SegmentTable(count=segments) if segments else None),
        encoder=c.Stack(layers=c.Repeat(block=c.Block(sublayers=residuals), times=layers)),
        pooler=c.Pooler(),
        head=c.PretrainingHead(language=c.LanguageHead(bias=True, transform=c.Transform(norm=norm))),
    )


HEAD = "head.language.transform"
KEYS = (
    *lineage.SIZES,
    lineage.SEGMENTS,
    lineage.DROPOUT,
    lineage.SEES_PAST_ONLY,
    lineage.POSITIONS,
    lineage.CROSSED,
    lineage.activation(f"{HEAD}.activation"),
    lineage.norms(f"{HEAD}.norm.eps"),
)


def weights(tree: c.Transformer) -> Rules:
    """The names of BERT's body."""
    return lineage.body(tree, copies=("cls.predictions.decoder.{p}",))


words = language("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.decoder",
                 bias="cls.predictions.bias")
SENTENCE = "cls.seq_relationship"


def both(tree: c.Transformer) -> tuple[Rule, ...]:
    """The names of the two pretraining heads."""
    return (*words(tree), Rule("head.sentence.{p}", SENTENCE + ".{p}"))


CLASSES = {
    "BertForPreTraining": Published(keep_all, both, (TIED,)),
    "BertForMaskedLM": Published(keep_language, words, (TIED,)),
    "BertLMHeadModel": Published(keep_language, words, (TIED,)),
    "BertForNextSentencePrediction": labelling(c.ClassificationHead(), SENTENCE, keys=()),
    "BertForSequenceClassification": labelling(c.ClassificationHead(), keys=(LABELS, DROPOUT)),
    "BertForTokenClassification": labelling(c.TokenHead(), keys=(LABELS, DROPOUT)),
    "BertForQuestionAnswering": labelling(c.SpanHead(), "qa_outputs", keys=()),
    "BertForMultipleChoice": labelling(c.ChoiceHead(), keys=(DROPOUT,)),
    "BertModel": bare,
}
BERT_LAYOUT = Layout(
    "bert",
    lineage.positioned(bert),
    KEYS,
    weights,
    CLASSES,
    "bert.",
    free=frozenset({"tie_word_embeddings"}),
    settle=lineage.settle,
    restore=lineage.restore,
)
