"""MPNet: BERT with relative biases that all layers share, trained on masked and permuted words at once."""

from __future__ import annotations

from dataclasses import replace

from saucier import config as c
from saucier.checkpoints.classes import encoder_classes
from saucier.checkpoints.fields import Key
from saucier.checkpoints.layout import Layout
from saucier.checkpoints.weight_names import FirstRows, Rule
from saucier.families import bert_lineage


def mpnet(
    dim: int = 768,
    layers: int = 12,
    *,
    heads: int = 12,
    vocab: int = 30527,
    length: int = 514,
    hidden: int | None = None,
    dropout: float = 0.1,
) -> c.Transformer:
    """MPNet with its language head. Source: Song et al. 2020, §2.2 and appendix A, arXiv:2004.09297.

    Positions skip padding (id 1), as in RoBERTa: `length` rows hold `length` - 2 tokens.
    """
    norm = c.LayerNorm(eps=1e-5)
    embed = c.Embedding(vocab=vocab, positions=c.Learned(length=length, places=c.SkipPadding(padding=1)), norm=norm,
                        dropout=dropout)
    attention = c.SelfAttention(projection=c.Projection(heads=heads),
                                positions=c.T5Bias(buckets=BUCKETS, max_distance=128))
    return bert_lineage.encoder(dim, layers, embed, heads=heads, hidden=hidden, attention=attention,
                                head=c.LanguageHead(bias=True, transform=c.Transform(norm=norm)))


def read_buckets(rows: int) -> int:
    """Return the buckets of a table. Raises `ValueError` for fewer rows: the reference looks up 32 in any table."""
    if rows < BUCKETS:
        raise ValueError(rows)
    return BUCKETS


BUCKETS = 32
MPNET_LAYOUT = Layout(
    "mpnet", bert_lineage.pooled(mpnet),
    keys=bert_lineage.keys(
        Key("relative_attention_num_buckets", (), default=BUCKETS, ours=read_buckets, found=lambda tree: BUCKETS),
        drop=("type_vocab_size",), normed="head.transform.norm"),
    weights=replace(bert_lineage.BODY,
                    outside={**{ours: theirs for ours, theirs in bert_lineage.EMBEDDINGS.items()
                                if "segments" not in ours}, **bert_lineage.POOLER},
                    inside={**bert_lineage.FEED_FORWARD, "attention.inner.out": "attention.attn.o",
                            "attention.norm": "attention.LayerNorm"},
                    maps={"attention.inner.qkv": ("attention.attn.q", "attention.attn.k", "attention.attn.v")},
                    more=(Rule("encoder.shared.weight", "@encoder.relative_attention_bias.weight",
                               FirstRows(BUCKETS)),),
                    ignored=("@embeddings.position_ids", "lm_head.decoder.{p}")),
    classes=encoder_classes("MPNet", bert_lineage.ROBERTA_WORDS,
                            bert_lineage.labelled_first("tanh", bert_lineage.HEAD_DROPOUT),
                            dropout=bert_lineage.HEAD_DROPOUT),
    base="mpnet.", free=frozenset({"tie_word_embeddings"}),
)
"""The published computation has 32 buckets, whatever the field says: further rows of the table are never read."""
