"""BERT, and BertGeneration: encoders with post-norm and learned positions; the latter has no segments and no pooler,
and may be a decoder that reads an encoder.
"""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.classes import (
    BARE,
    DROPOUT,
    LABELS,
    TIED,
    encoder_classes,
    head_class,
    keep_all,
    keep_language,
    language_rules,
    move_to_decoder,
    move_to_encoder,
)
from saucier.checkpoints.layout import Layout, Published
from saucier.families import bert_lineage


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
    return bert_lineage.encoder(dim, layers, embed, heads=heads, hidden=hidden, pooler=c.Pooler(),
                                head=c.PretrainingHead(language=language))


BERT_LAYOUT = Layout(
    "bert", bert_lineage.positioned(bert),
    keys=bert_lineage.keys(bert_lineage.SEES_PAST_ONLY, bert_lineage.POSITIONS, bert_lineage.CROSSED,
                           transform="head.language.transform"),
    weights=bert_lineage.BERT_BODY,
    classes={
        "BertForPreTraining": Published(keep_all, bert_lineage.BOTH, (TIED,)),
        "BertForNextSentencePrediction": head_class(c.ClassificationHead(), bert_lineage.SENTENCE, keys=()),
        **encoder_classes("Bert", bert_lineage.WORDS, head_class(c.ClassificationHead(), keys=(LABELS, DROPOUT)),
                          dropout=DROPOUT),
        "BertLMHeadModel": Published(keep_language, bert_lineage.WORDS, (TIED,)),
    },
    base="bert.", free=frozenset({"tie_word_embeddings"}), finish=move_to_decoder, undo=move_to_encoder,
)


def bert_generation(dim: int = 1024, layers: int = 24, *, heads: int = 16, vocab: int = 50358, length: int = 512,
                    hidden: int | None = None, dropout: float = 0.1) -> c.Transformer:
    """BertGeneration with its language head, as an encoder.

    Source: Rothe et al. 2020, §2, arXiv:1907.12461, for warm-started pairs of such encoders and decoders.
    """
    tree = bert(dim, layers, heads=heads, vocab=vocab, length=length, hidden=hidden, segments=0, dropout=dropout)
    return tree.model_copy(update={"pooler": None, "head": c.LanguageHead(bias=True)})


BERT_GENERATION_LAYOUT = Layout(
    "bert-generation",
    bert_lineage.positioned(bert_generation),
    bert_lineage.keys(bert_lineage.SEES_PAST_ONLY, bert_lineage.CROSSED, drop=("type_vocab_size",)),
    bert_lineage.ROBERTA_BODY,
    {"BertGenerationEncoder": BARE,
     "BertGenerationDecoder": Published(keep_language, language_rules(
         "lm_head.dense", "lm_head.norm", "lm_head.decoder", bias="lm_head.bias"), (TIED,))},
    "bert.",
    fixed={"position_embedding_type": "absolute"},
    free=frozenset({"tie_word_embeddings"}),
    finish=move_to_decoder,
    undo=move_to_encoder,
)
