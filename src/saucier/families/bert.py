"""BERT: an encoder with post-norm, learned positions and segments, trained on masked words and sentence pairs."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.choices import DROPOUT, LABELS, TIED, encoder_classes, keep_all, keep_language, labelling
from saucier.checkpoints.keys import Layout, Published
from saucier.checkpoints.rules import Rule
from saucier.checkpoints.sides import restore, settle
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
    embed = c.Embedding(vocab=vocab, positions=c.Learned(length=length), norm=norm, dropout=dropout,
                        segments=c.SegmentTable(count=segments) if segments else None)
    language = c.LanguageHead(bias=True, transform=c.Transform(norm=norm))
    return lineage.encoder(dim, layers, embed, heads=heads, hidden=hidden, pooler=c.Pooler(),
                           head=c.PretrainingHead(language=language))


SENTENCE = "cls.seq_relationship"


def both(tree: c.Transformer) -> tuple[Rule, ...]:
    """The names of the two pretraining heads."""
    return (*lineage.WORDS(tree), Rule("head.sentence.{p}", SENTENCE + ".{p}"))


CLASSES = {
    "BertForPreTraining": Published(keep_all, both, (TIED,)),
    "BertForNextSentencePrediction": labelling(c.ClassificationHead(), SENTENCE, keys=()),
    **encoder_classes("Bert", lineage.WORDS, labelling(c.ClassificationHead(), keys=(LABELS, DROPOUT)),
                      dropout=DROPOUT),
    "BertLMHeadModel": Published(keep_language, lineage.WORDS, (TIED,)),
}
KEYS = lineage.keys(lineage.SEES_PAST_ONLY, lineage.POSITIONS, lineage.CROSSED, transform="head.language.transform")
BERT_LAYOUT = Layout(
    "bert",
    lineage.positioned(bert),
    KEYS,
    lineage.BERT_BODY,
    CLASSES,
    "bert.",
    free=frozenset({"tie_word_embeddings"}),
    settle=settle,
    restore=restore,
)
