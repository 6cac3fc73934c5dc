"""BigBird: BERT for long texts, whose positions see a window of blocks, the blocks at both ends, and random ones."""

from __future__ import annotations

from dataclasses import replace

from saucier import config as c
from saucier.checkpoints.classes import (
    DROPOUT,
    TIED,
    as_decoder,
    encoder_classes,
    fixed_key,
    head_class,
    keep_all,
    keep_language,
    keep_with,
    move_to_encoder,
)
from saucier.checkpoints.fields import ACTIVATIONS, Document, Key, first_attention, put
from saucier.checkpoints.layout import Layout, Published
from saucier.checkpoints.weight_names import Rule
from saucier.config.questions import list_terms
from saucier.config.visibility import build_bigbird_visibility
from saucier.families import bert_lineage
from saucier.families.bert import bert


def big_bird(dim: int = 768, layers: int = 12, *, heads: int = 12, vocab: int = 50358, length: int = 4096,
             hidden: int | None = None, dropout: float = 0.1, visibility: c.Visibility | None = None) -> c.Transformer:
    """BigBird with both pretraining heads; `visibility` None is blocks of 64, of which 3 are drawn.

    Source: Zaheer et al. 2020, appendix E.1, arXiv:2007.14062. The published code drops embeddings before their norm,
    and no attention weights in long inputs; here dropout is where BERT has it.
    """
    tree = bert(dim, layers, heads=heads, vocab=vocab, length=length, hidden=hidden, dropout=dropout)
    return put(tree, {f"{BLOCK}.0.inner.visibility": visibility or build_bigbird_visibility(64, 3, length),
                      f"{BLOCK}.1.inner.activation": "gelu_tanh"})


def from_fields(dim: int, *, sparse: bool, block: int, drawn: int, length: int, scaled: bool) -> c.Transformer:
    """The family by its published fields."""
    tree = big_bird(dim, length=length, visibility=build_bigbird_visibility(block, drawn, length) if sparse
                    else c.Full())
    return put(tree, {"embed.scale": dim**0.5 if scaled else 1.0})


def drawn_blocks(tree: c.Transformer) -> int | None:
    """Return how many blocks are drawn, where there are blocks."""
    terms = list_terms(first_attention(tree).visibility)
    count = next((term.count for term in terms if isinstance(term, c.RandomBlocks)), 0)
    return count if any(isinstance(term, c.BlockWindow) for term in terms) else None


def block_size(tree: c.Transformer) -> int | None:
    """Return the positions in a block, where there are blocks."""
    return next((term.size for term in list_terms(first_attention(tree).visibility)
                 if isinstance(term, c.BlockWindow)), None)


BLOCK = "encoder.layers.block.sublayers"


def keep_pooler(published: Published) -> Published:
    """Leave the pooler on the body, as published files hold it, also where the head does not read it."""
    def keep(tree: c.Transformer, document: Document) -> c.Transformer:
        return published.keep(tree, document).model_copy(update={"pooler": tree.pooler})

    return replace(published, keep=keep)


with_questions = keep_with({"embed.segments.otherwise": c.AfterToken(token=0), "pooler": None,
                            "head": c.QuestionSpanHead(hidden=1, separator=0)})
"""Puts the head for answers on; the segments distinguish question and text."""


def activation(*paths: str) -> Key:
    """The body's activation, where the head has it too."""
    return Key("hidden_act", paths, names=ACTIVATIONS, default="gelu_new")


FULL_ONLY = replace(fixed_key("attention_type", False), names={"original_full": False}, default="block_sparse")
"""The reference's blocks see later tokens also where text is written: only full attention can be read as a writer."""
READS, WRITES = fixed_key("is_decoder", False), fixed_key("is_decoder", True)
ANSWER_RULES = tuple(Rule(f"head.{ours}.{{p}}", f"qa_classifier.{theirs}.{{p}}") for ours, theirs in (
    ("up", "intermediate.dense"), ("down", "output.dense"), ("norm", "output.LayerNorm"), ("output", "qa_outputs")))
USUAL = {name: replace(published, keys=(READS, *published.keys))
         for name, published in encoder_classes("BigBird", bert_lineage.WORDS, bert_lineage.labelled_first(
             "gelu", activation("head.transform.activation"), replace(DROPOUT, paths=bert_lineage.HEAD_DROPOUTS)),
                                                dropout=DROPOUT, keep=keep_all).items()}
BIG_BIRD_LAYOUT = Layout(
    "big_bird", from_fields,
    keys=bert_lineage.keys(
        Key("attention_type", (), argument="sparse", names={"block_sparse": True, "original_full": False},
            default="block_sparse", found=lambda tree: block_size(tree) is not None),
        Key("block_size", (), argument="block", default=64, found=block_size),
        Key("num_random_blocks", (), argument="drawn", default=3, found=drawn_blocks),
        Key("rescale_embeddings", (), argument="scaled", default=False, found=lambda tree: tree.embed.scale != 1.0),
        Key("use_bias", (f"{BLOCK}.0.inner.projection.bias",), default=True),
        arguments=("dim", "length"), transform="head.language.transform",
        max_position_embeddings=("length", 4096), hidden_act=("activation", "gelu_new")),
    weights=replace(bert_lineage.BERT_BODY, outside={**bert_lineage.EMBEDDINGS, "pooler.dense.{p}": "@pooler.{p}"}),
    classes={"BigBirdForPreTraining": Published(keep_all, bert_lineage.BOTH, (READS, TIED)),
             **{name: keep_pooler(published) for name, published in USUAL.items()},
             "BigBirdForMaskedLM": keep_pooler(Published(keep_language, bert_lineage.WORDS, (READS, TIED))),
             "BigBirdForCausalLM": keep_pooler(Published(
                 as_decoder, bert_lineage.WORDS, (WRITES, FULL_ONLY, TIED), undo=move_to_encoder)),
             "BigBirdForMultipleChoice": head_class(c.ChoiceHead(), keys=(READS, bert_lineage.HEAD_DROPOUT)),
             "BigBirdForQuestionAnswering": Published(with_questions, ANSWER_RULES, (
                 READS, Key("sep_token_id", ("head.separator", "embed.segments.otherwise.token"), default=66),
                 Key("intermediate_size", ("head.hidden",)), Key("layer_norm_eps", ("head.norm.eps",), default=1e-12),
                 activation("head.activation"), bert_lineage.HEAD_DROPOUT)),
             "BigBirdModel": USUAL["BigBirdModel"]},
    base="bert.", fixed={"add_cross_attention": False},
    free=frozenset({"tie_word_embeddings", "position_embedding_type", "is_decoder", "block_size", "num_random_blocks"}),
)
"""The published cross-attention reads the keys of the self-attention from the cache too: it is refused."""
