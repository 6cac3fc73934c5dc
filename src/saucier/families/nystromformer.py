"""Nyströmformer: a BERT whose attention goes through landmarks."""

from __future__ import annotations

from dataclasses import replace

from saucier import config as c
from saucier.checkpoints.classes import encoder_classes, head_class
from saucier.checkpoints.fields import Key, first_attention, put
from saucier.checkpoints.layout import Layout
from saucier.checkpoints.weight_names import Reshaped, Rule, Rules
from saucier.families import bert_lineage


def nystromformer(dim: int = 768, layers: int = 12, *, heads: int = 12, vocab: int = 30000, length: int = 510,
                  landmarks: int = 64, shared_start: bool = True,
                  dropout: float = 0.1) -> c.Transformer:
    """Nyströmformer with its language head, for texts of up to `length` tokens.

    Source: Xiong et al. 2021, §4.1, arXiv:2102.03902.
    """
    norm = c.LayerNorm(eps=1e-5)
    positions = c.Learned(length=length + 2, places=c.CountedPlaces(kind="in_order", offset=2))
    embed = c.Embedding(vocab=vocab, positions=positions, norm=norm, dropout=dropout, segments=c.SegmentTable(count=2))
    kernel = c.Nystrom(landmarks=landmarks, length=length, shared_start=shared_start)
    head = c.LanguageHead(bias=True, transform=c.Transform(activation="gelu_tanh", norm=norm))
    return put(bert_lineage.encoder(dim, layers, embed, heads=heads, hidden=None, head=head), {
        KERNEL: kernel, "encoder.layers.block.sublayers.1.inner.activation": "gelu_tanh"})


KERNEL = f"{bert_lineage.ATTENTION}.inner.kernel"


def weights(tree: c.Transformer) -> Rules:
    """The names of the body: BERT's, and the filters of the values."""
    kernel, heads = first_attention(tree).kernel, first_attention(tree).projection.heads
    size = kernel.convolution if isinstance(kernel, c.Nystrom) else None
    return replace(bert_lineage.BERT_BODY, more=(Rule(
        "encoder.blocks.{i}.attention.inner.convolution.weight", "@encoder.layer.{i}.attention.self.conv.weight",
        Reshaped((heads, -1), (heads, 1, size or -1, 1))),))(tree)


NYSTROMFORMER_LAYOUT = Layout(
    "nystromformer", nystromformer,
    keys=bert_lineage.keys(
        Key("max_position_embeddings", ("embed.positions.length",), default=510, ours=lambda length: length + 2,
            theirs=lambda length: length - 2),
        Key("num_landmarks", (f"{KERNEL}.landmarks",), default=64),
        Key("segment_means_seq_len", (f"{KERNEL}.length",), default=64),
        Key("conv_kernel_size", (f"{KERNEL}.convolution",), default=65, nullable=True),
        drop=("attention_probs_dropout_prob",), transform="head.transform", hidden_act=("activation", "gelu_new"),
        layer_norm_eps=("eps", 1e-5)),
    weights=weights,
    classes={
        **encoder_classes("Nystromformer", bert_lineage.WORDS,
                          bert_lineage.labelled_first("gelu_tanh", bert_lineage.HEAD_DROPOUT),
                          dropout=bert_lineage.HEAD_DROPOUT),
        "NystromformerForMultipleChoice": head_class(
            c.ChoiceHead(pick=c.PickVector(kind="first"), transform=c.Transform(activation="relu")),
            dense="pre_classifier", keys=()),
    },
    base="nystromformer.", fixed={"inv_coeff_init_option": False},
    free=frozenset({"attention_probs_dropout_prob", "tie_word_embeddings", "add_cross_attention"}),
)
