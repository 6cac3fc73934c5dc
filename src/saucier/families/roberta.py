"""RoBERTa, and XLM-R and CamemBERT which are the same network: BERT with positions that leave padding out."""

from __future__ import annotations

from collections.abc import Callable

from saucier import config as c
from saucier.checkpoints.classes import (
    TIED,
    encoder_classes,
    head_class,
    keep_language,
    move_to_decoder,
    move_to_encoder,
)
from saucier.checkpoints.fields import Key
from saucier.checkpoints.layout import Layout, Published
from saucier.families import bert_lineage


def roberta(
    dim: int = 768,
    layers: int = 12,
    *,
    heads: int = 12,
    vocab: int = 50265,
    length: int = 514,
    hidden: int | None = None,
    padding: int = 1,
    dropout: float = 0.1,
) -> c.Transformer:
    """RoBERTa with its language head. Source: Liu et al. 2019, §3.1 and appendix A, arXiv:1907.11692.

    `length` rows of positions hold `length` - `padding` - 1 tokens, since counting begins after the padding id.
    """
    norm = c.LayerNorm(eps=1e-5)
    embed = c.Embedding(vocab=vocab, positions=c.Learned(length=length, places=c.SkipPadding(padding=padding)),
                        norm=norm, dropout=dropout, segments=c.SegmentTable(count=1))
    return bert_lineage.encoder(dim, layers, embed, heads=heads, hidden=hidden,
                                head=c.LanguageHead(bias=True, transform=c.Transform(norm=norm)))


def xlm_roberta(dim: int = 768, layers: int = 12, *, heads: int = 12, vocab: int = 250002, length: int = 514,
                hidden: int | None = None, padding: int = 1, dropout: float = 0.1) -> c.Transformer:
    """XLM-R: RoBERTa with the vocabulary of a hundred languages.

    Source: Conneau et al. 2020, §3 and appendix B, arXiv:1911.02116.
    """
    return roberta(dim, layers, heads=heads, vocab=vocab, length=length, hidden=hidden, padding=padding,
                   dropout=dropout)


def camembert(dim: int = 768, layers: int = 12, *, heads: int = 12, vocab: int = 32005, length: int = 514,
              hidden: int | None = None, padding: int = 1, dropout: float = 0.1) -> c.Transformer:
    """CamemBERT: RoBERTa for French. Source: Martin et al. 2020, §4.2, arXiv:1911.03894."""
    return roberta(dim, layers, heads=heads, vocab=vocab, length=length, hidden=hidden, padding=padding,
                   dropout=dropout)


PADDING = Key("pad_token_id", ("embed.positions.places.padding",), default=1)


def layout(model_type: str, family: Callable[[], c.Transformer], name: str) -> Layout:
    """Return the layout of one of the three families."""
    return Layout(
        model_type, bert_lineage.positioned(bert_lineage.pooled(family)),
        keys=bert_lineage.keys(bert_lineage.SEES_PAST_ONLY, bert_lineage.POSITIONS, bert_lineage.CROSSED, PADDING,
                               normed="head.transform.norm"),
        weights=bert_lineage.ROBERTA_BODY,
        classes={
            **encoder_classes(name, bert_lineage.ROBERTA_WORDS,
                              bert_lineage.labelled_first("tanh", bert_lineage.CLASSIFIER),
                              dropout=bert_lineage.CLASSIFIER),
            f"{name}ForCausalLM": Published(keep_language, bert_lineage.ROBERTA_WORDS, (TIED,)),
            f"{name}ForMultipleChoice": head_class(c.ChoiceHead(), keys=(bert_lineage.HEAD_DROPOUT,)),
        },
        base="roberta.", free=frozenset({"tie_word_embeddings"}), finish=move_to_decoder, undo=move_to_encoder)


ROBERTA_LAYOUT = layout("roberta", roberta, "Roberta")
XLM_ROBERTA_LAYOUT = layout("xlm-roberta", xlm_roberta, "XLMRoberta")
CAMEMBERT_LAYOUT = layout("camembert", camembert, "Camembert")
