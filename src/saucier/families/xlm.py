"""XLM: a post-norm encoder over many languages, each with a vector of its own; causal where it writes."""

from __future__ import annotations

from dataclasses import replace

from saucier import config as c
from saucier.checkpoints.classes import (
    BARE,
    FREE_SUMMARY_FIELDS,
    LABELS,
    NO_ACTIVATION_KEY,
    NO_ACTIVATION_NAMES,
    SPANS,
    TIED,
    TO_LABELS,
    head_class,
    keep_all,
    repeat_block,
    summary_type_key,
)
from saucier.checkpoints.fields import ACTIVATIONS, Document, Key, look_up, make_keys, rename_fields
from saucier.checkpoints.layout import Layout, Published
from saucier.checkpoints.weight_names import NameTable, Rule


def xlm(dim: int = 2048, layers: int = 12, *, heads: int = 16, vocab: int = 30145, length: int = 512,
        languages: int = 1, causal: bool = False, dropout: float = 0.1) -> c.Transformer:
    """XLM with its language head. Source: Lample and Conneau 2019, §3 and §5.1, arXiv:1901.07291.

    A feed-forward is four times as wide as the model, as in all published ones.
    """
    norm = c.LayerNorm(eps=1e-12)
    attention = c.SelfAttention(projection=c.Projection(heads=heads), kernel=c.Softmax(dropout=dropout),
                                visibility=c.Causal() if causal else c.Full())
    feed_forward = c.FeedForward(hidden=4 * dim, activation="gelu")
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, positions=c.Learned(length=length), segments=c.TablelessSegments(kind="tokens"),
                          norm=norm, languages=c.LanguageTable(count=languages) if languages > 1 else None,
                          dropout=dropout),
        encoder=repeat_block(layers, attention, feed_forward, norm=norm, dropout=dropout, zero_padding=True),
        head=c.LanguageHead(bias=True, predicts=c.InPlace(mask=5, language=0)),
        initialization=c.NormalInit(std=0.02),
    )


ATTENTION, FEED_FORWARD = "encoder.layers.block.sublayers.0", "encoder.layers.block.sublayers.1"


NAMES = NameTable(
    {"embed.tokens.weight": "@embeddings.weight", "embed.positions.weight": "@position_embeddings.weight",
     "embed.languages.weight": "@lang_embeddings.weight", "embed.norm.{p}": "@layer_norm_emb.{p}"},
    "@",
    {"attention.inner.out": "attentions.{i}.out_lin", "attention.norm": "layer_norm1.{i}",
     "feed_forward.inner.up": "ffns.{i}.lin1", "feed_forward.inner.down": "ffns.{i}.lin2",
     "feed_forward.norm": "layer_norm2.{i}"},
    {"attention.inner.qkv": ("attentions.{i}.q_lin", "attentions.{i}.k_lin", "attentions.{i}.v_lin")},
    ignored=("@position_ids", "pred_layer.proj.weight"),
)
"""Lists of parts of one kind, not a list of layers."""
INDICES = {"n_words": "vocab_size", **{f"{name}_index": f"{name}_token_id" for name in ("pad", "bos", "eos")}}


def unlabelled(document: Document) -> Document:
    """A model without language vectors has them, as far as its numbers go, for one language."""
    rest = {name: value for name, value in rename_fields(document, INDICES).items() if name != "use_lang_emb"}
    return {**rest, "n_langs": 1} if document.get("use_lang_emb") is False else rest


DROPOUT = Key("summary_first_dropout", ("head.dropout",), default=0.1)
XLM_LAYOUT = Layout(
    "xlm", xlm,
    keys=(
        *make_keys("encoder", {
            "emb_dim": ("dim", None), "n_layers": ("layers", None), "n_heads": ("heads", None),
            "vocab_size": ("vocab", None), "max_position_embeddings": ("length", 512), "layer_norm_eps": ("eps", 1e-12),
            "dropout": ("embed_dropout dropout", 0.1), "attention_dropout": ("attention_dropout", 0.1)},
                   arguments=("dim",)),
        Key("pad_token_id", ("embed.padding",), default=2, nullable=True),
        Key("n_langs", ("embed.languages.count",), default=1, argument="languages", absent=1),
        Key("causal", (), names={False: False, True: True}, default=False, argument="causal",
            found=lambda tree: isinstance(look_up(tree, f"{ATTENTION}.inner.visibility"), c.Causal)),
        Key("gelu_activation", (f"{FEED_FORWARD}.inner.activation",), names={True: "gelu", False: "relu"},
            default=True),
    ),
    weights=NAMES,
    classes={
        "XLMWithLMHeadModel": Published(keep_all, (Rule("head.{p}", "pred_layer.proj.{p}"),), (
            Key("mask_token_id", ("head.predicts.mask",), default=0),
            Key("lang_id", ("head.predicts.language",),
                default=lambda document: None if "lang_id" in document else 0), TIED)),
        "XLMForSequenceClassification": head_class(
            c.ClassificationHead(), "sequence_summary.summary",
            keys=(LABELS, summary_type_key("first"), *TO_LABELS, NO_ACTIVATION_KEY, DROPOUT)),
        "XLMForTokenClassification": head_class(c.TokenHead(),
                                                keys=(LABELS, Key("dropout", ("head.dropout",), default=0.1))),
        "XLMForQuestionAnsweringSimple": SPANS,
        "XLMForMultipleChoice": head_class(
            c.ChoiceHead(transform=c.Transform(activation="identity")), "logits_proj", dense="sequence_summary.summary",
            keys=(summary_type_key("first"), *TO_LABELS,
                  replace(LABELS, paths=("head.transform.width",)),
                  Key("summary_activation", ("head.transform.activation",), default="linear",
                      names={**ACTIVATIONS, **dict.fromkeys(NO_ACTIVATION_NAMES, "identity")}),
                  replace(DROPOUT, paths=("head.transform.dropout",)))),
        "XLMModel": BARE,
    },
    base="transformer.", fixed={"asm": False, "is_encoder": True},
    free=FREE_SUMMARY_FIELDS | {
        "tie_word_embeddings", "sinusoidal_embeddings", "embed_init_std", "init_std", "unk_index", "mask_index",
        "start_n_top", "end_n_top", "mask_token_id", "lang_id", "max_vocab", "min_count", "id2lang", "lang2id",
        "same_enc_dec", "share_inout_emb",
    },
    normalize=unlabelled, older={**INDICES, "use_lang_emb": "n_langs"},
)
