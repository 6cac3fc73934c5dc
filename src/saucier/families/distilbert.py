"""DistilBERT: BERT without segments and pooler, with half the layers, trained to agree with its teacher."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.classes import BARE, LABELS, TIED, WHOLE, head_class, language_rules
from saucier.checkpoints.fields import Key, make_keys
from saucier.checkpoints.layout import Layout, Published
from saucier.checkpoints.weight_names import NameTable


def distilbert(
    dim: int = 768,
    layers: int = 6,
    *,
    heads: int = 12,
    vocab: int = 30522,
    length: int = 512,
    hidden: int | None = None,
    dropout: float = 0.1,
) -> c.Transformer:
    """DistilBERT with its language head. Source: Sanh et al. 2019, §3, arXiv:1910.01108."""
    norm = c.LayerNorm(eps=1e-12)
    attention = c.SelfAttention(projection=c.Projection(heads=heads), kernel=c.Softmax(dropout=dropout))
    feed_forward = c.FeedForward(hidden=hidden or 4 * dim)
    residuals = (c.PostNorm(inner=attention, norm=norm), c.PostNorm(inner=feed_forward, norm=norm, dropout=dropout))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, positions=c.Learned(length=length), norm=norm, dropout=dropout),
        encoder=c.Stack(layers=c.Repeat(block=c.Block(sublayers=residuals), times=layers)),
        head=c.LanguageHead(bias=True, transform=c.Transform(norm=norm)),
    )


def dropped(field: str, default: float) -> Key:
    """The dropout before a head's output map, by its published field."""
    return Key(field, ("head.dropout",), default=default)


FIRST, DENSE = c.PickVector(kind="first"), c.Transform(activation="relu")
DISTILBERT_LAYOUT = Layout(
    "distilbert", distilbert,
    keys=(
        *make_keys("encoder", {
            "dim": ("dim", None), "n_layers": ("layers", None), "n_heads": ("heads", None),
            "hidden_dim": ("hidden", None),
            "vocab_size": ("vocab", None), "max_position_embeddings": ("length", None),
            "activation": ("activation", "gelu"), "attention_dropout": ("attention_dropout", 0.1)},
                   also={"activation": ("head.transform.activation",)}),
        Key("dropout", ("embed.dropout", "encoder.layers.block.sublayers.1.dropout"), default=0.1),
    ),
    weights=NameTable(
        {"embed.tokens.weight": "@embeddings.word_embeddings.weight", "embed.norm.{p}": "@embeddings.LayerNorm.{p}",
         "embed.positions.weight": "@embeddings.position_embeddings.weight"},
        "@transformer.layer.{i}.",
        {"attention.inner.out": "attention.out_lin", "attention.norm": "sa_layer_norm",
         "feed_forward.inner.up": "ffn.lin1", "feed_forward.inner.down": "ffn.lin2",
         "feed_forward.norm": "output_layer_norm"},
        {"attention.inner.qkv": ("attention.q_lin", "attention.k_lin", "attention.v_lin")},
        ignored=("@embeddings.position_ids",),
    ),
    classes={
        "DistilBertForMaskedLM": Published(
            WHOLE.keep, language_rules("vocab_transform", "vocab_layer_norm", "vocab_projector"), (TIED,)),
        "DistilBertForSequenceClassification": head_class(
            c.ClassificationHead(pick=FIRST, transform=DENSE), dense="pre_classifier",
            keys=(LABELS, dropped("seq_classif_dropout", 0.2))),
        "DistilBertForTokenClassification": head_class(c.TokenHead(), keys=(LABELS, dropped("dropout", 0.1))),
        "DistilBertForQuestionAnswering": head_class(c.SpanHead(), "qa_outputs", keys=(dropped("qa_dropout", 0.1),)),
        "DistilBertForMultipleChoice": head_class(
            c.ChoiceHead(pick=FIRST, transform=DENSE), dense="pre_classifier",
            keys=(dropped("seq_classif_dropout", 0.2),)),
        "DistilBertModel": BARE,
    },
    base="distilbert.",
    free=frozenset({"tie_word_embeddings", "seq_classif_dropout", "qa_dropout", "sinusoidal_pos_embds",
                    "tie_weights_"}),
)
"""`sinusoidal_pos_embds` says only how the table of positions began: the file holds it like a trained one."""
