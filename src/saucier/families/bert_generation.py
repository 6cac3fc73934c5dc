"""BertGeneration: BERT without segments, pooler and transform, as an encoder or as a decoder that reads one."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.choices import TIED, bare, keep_language, language
from saucier.checkpoints.keys import Layout, Published
from saucier.checkpoints.sides import restore, settle
from saucier.families import lineage
from saucier.families.bert import bert


def bert_generation(dim: int = 1024, layers: int = 24, *, heads: int = 16, vocab: int = 50358, length: int = 512,
                    hidden: int | None = None, dropout: float = 0.1) -> c.Transformer:
    """BertGeneration with its language head, as an encoder.

    Source: Rothe et al. 2020, §2, arXiv:1907.12461, for warm-started pairs of such encoders and decoders.
    """
    tree = bert(dim, layers, heads=heads, vocab=vocab, length=length, hidden=hidden, segments=0, dropout=dropout)
    return tree.model_copy(update={"pooler": None, "head": c.LanguageHead(bias=True)})


words = language("lm_head.dense", "lm_head.norm", "lm_head.decoder", bias="lm_head.bias")
BERT_GENERATION_LAYOUT = Layout(
    "bert-generation",
    lineage.positioned(bert_generation),
    lineage.keys(lineage.SEES_PAST_ONLY, lineage.CROSSED, drop=("type_vocab_size",)),
    lineage.ROBERTA_BODY,
    {"BertGenerationEncoder": bare, "BertGenerationDecoder": Published(keep_language, words, (TIED,))},
    "bert.",
    fixed={"position_embedding_type": "absolute"},
    free=frozenset({"tie_word_embeddings"}),
    settle=settle,
    restore=restore,
)
