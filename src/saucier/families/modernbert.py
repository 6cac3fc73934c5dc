"""ModernBERT: a pre-norm encoder with rotary positions, gated feed-forwards, and windows in two layers of three."""

from __future__ import annotations

from dataclasses import replace

from saucier import config as c
from saucier.checkpoints.classes import BARE, LABELS, head_class, keep_all, language_rules
from saucier.checkpoints.fields import ACTIVATIONS, Document, Key, join_paths, list_attentions, make_keys, put
from saucier.checkpoints.layout import Layout, Published
from saucier.checkpoints.weight_names import NameTable, Rules
from saucier.families import rope


def modernbert(dim: int = 768, layers: int = 22, *, heads: int = 12, vocab: int = 50368, hidden: int = 1152,
               window: int = 128, every: int = 3, dropout: float = 0.0) -> c.Transformer:
    """ModernBERT, base size by default. Source: Warner et al. 2024, §2.1 and table 4, arXiv:2412.13663.

    Every third layer sees the whole text, the others `window` tokens around each; the embedding's norm is the first
    block's, too.
    """
    kinds = [rope.SLIDING if number % every else rope.FULL for number in range(layers)]
    rotary = {kind: c.Rotary(base=base) for kind, base in rope.BASES.items()}
    tree = from_fields(dim, layers=layers, kinds=kinds, heads=heads, window=window, rotary=rotary, dropout=dropout)
    return put(tree, {"embed.vocab": vocab, f"{FEED_FORWARD}.inner.hidden": hidden})


def from_fields(dim: int, *, layers: int, kinds: list[str], heads: int, window: int, rotary: dict[str, c.Rotary],
                dropout: float = 0.0) -> c.Transformer:
    """The family by the published fields. Raises `ValueError` where they do not agree on the number of layers."""
    if len(kinds) != layers:
        raise ValueError(f"{len(kinds)} layer types for {layers} layers")
    norm = c.LayerNorm(bias=False)
    projection = c.Projection(heads=heads, bias=False, output_bias=False)
    views = {rope.FULL: c.Full(), rope.SLIDING: c.Window(window // 2 + 1)}

    def block(number: int, kind: str) -> c.Block:
        attention = c.SelfAttention(projection=projection, positions=rotary[kind], visibility=views[kind],
                                    kernel=c.Softmax(dropout=dropout))
        return c.Block(sublayers=(
            c.PreNorm(inner=attention, norm=norm if number else c.Unnormed(kind="identity"), dropout=dropout),
            c.PreNorm(inner=c.GatedFeedForward(hidden=1, activation="gelu", dropout=dropout), norm=norm)))

    blocks = tuple(block(number, kind) for number, kind in enumerate(kinds))
    transform = c.Transform(norm=norm, bias=False)
    return c.Transformer(
        dim=dim, embed=c.Embedding(vocab=1, norm=norm, dropout=dropout),
        encoder=c.Stack(layers=c.Cycle(blocks=blocks, times=1), final_norm=norm),
        head=c.LanguageHead(bias=True, transform=transform), initialization=c.NormalInit(depth_scaled=True))


def default_layer_types(document: Document) -> list[str]:
    """Layers see the whole text in turn, where a config does not list them."""
    every = document.get("global_attn_every_n_layers") or 3
    return [rope.SLIDING if number % every else rope.FULL for number in range(document["num_hidden_layers"])]


ATTENTION, FEED_FORWARD = "encoder.layers.*.sublayers.0", "encoder.layers.*.sublayers.1"
HEAD = "head.transform"
NORMS = (f"{FEED_FORWARD}.norm", f"{ATTENTION}.norm", "encoder.final_norm", "embed.norm", f"{HEAD}.norm")
TRANSFORM = (
    Key("classifier_bias", (f"{HEAD}.bias",), default=False),
    Key("classifier_activation", (f"{HEAD}.activation",), names=ACTIVATIONS, default="gelu"),
    Key("norm_eps", (f"{HEAD}.norm.eps",), default=1e-5), Key("norm_bias", (f"{HEAD}.norm.bias",), default=False),
)
DROPOUT = Key("classifier_dropout", ("head.dropout",), default=0.0)
POOLING = Key("classifier_pooling", ("head.pick",), default="cls",
              names={"cls": c.PickVector(kind="first"), "mean": c.PickVector(kind="mean")})
CHOICE_POOLING = replace(POOLING, names={"cls": c.PickVector(kind="first_unmasked"), "mean": c.PickVector(kind="mean")})
LANGUAGE = (Key("tie_word_embeddings", ("head.tied",), default=True),
            Key("decoder_bias", ("head.bias",), default=True), *TRANSFORM)
NAMES = NameTable(
    {"embed.tokens.weight": "@embeddings.tok_embeddings.weight", "embed.norm.{p}": "@embeddings.norm.{p}",
     "encoder.final_norm.{p}": "@final_norm.{p}"}, "@layers.{i}.",
    {"attention.norm": "attn_norm", "attention.inner.qkv": "attn.Wqkv", "attention.inner.out": "attn.Wo",
     "feed_forward.norm": "mlp_norm", "feed_forward.inner.up": "mlp.Wi", "feed_forward.inner.down": "mlp.Wo"})


def weights(tree: c.Transformer) -> Rules:
    """The names of ModernBERT's body; a file may hold a tied output matrix once more."""
    tied = tree.language_head is not None and tree.language_head.tied
    return replace(NAMES, ignored=("decoder.weight",) if tied else ())(tree)


def classifier(head: c.Head, *keys: Key) -> Published:
    """A class whose output map comes after the same transform as the language head's."""
    head = head.model_copy(update={"transform": c.Transform(norm=c.LayerNorm(bias=False))})
    return head_class(head, dense="head.dense", norm="head.norm", keys=(DROPOUT, *TRANSFORM, *keys))


MODERNBERT_LAYOUT = Layout(
    "modernbert", from_fields,
    keys=(
        *make_keys("encoder", {
            "hidden_size": ("dim", None), "num_attention_heads": ("heads", None), "intermediate_size": ("hidden", None),
            "vocab_size": ("vocab", None), "hidden_activation": ("activation", "gelu"), "norm_eps": ("eps", 1e-5),
            "attention_bias": ("attention_bias", False), "embedding_dropout": ("embed_dropout", 0.0),
            "attention_dropout": ("attention_dropout", 0.0)}, arguments=("dim", "heads"),
                   also={"eps": (f"{HEAD}.norm.eps",), "attention_dropout": (f"{ATTENTION}.dropout",)}),
        Key("num_hidden_layers", (), argument="layers", found=lambda tree: len(list_attentions(tree))),
        Key("layer_types", (), argument="kinds", default=default_layer_types, found=rope.list_layer_types),
        Key("local_attention", (f"{ATTENTION}.inner.visibility.size",), argument="window", default=128,
            theirs=lambda reach: 2 * (reach - 1)),
        Key("rope_parameters", (), argument="rotary", default={}, ours=rope.read_layer_rotary,
            found=rope.write_layer_rotary),
        Key("norm_bias", join_paths(NORMS, "bias"), default=False),
        Key("mlp_bias", (f"{FEED_FORWARD}.inner.bias",), default=False),
        Key("mlp_dropout", (f"{FEED_FORWARD}.inner.dropout",), default=0.0),
    ),
    weights=weights,
    classes={
        "ModernBertForMaskedLM": Published(keep_all, language_rules("head.dense", "head.norm", "decoder"), LANGUAGE),
        "ModernBertForSequenceClassification": classifier(c.ClassificationHead(pick=c.PickVector(kind="first")), LABELS,
                                                          POOLING),
        "ModernBertForTokenClassification": classifier(c.TokenHead(), LABELS),
        "ModernBertForQuestionAnswering": classifier(c.SpanHead()),
        "ModernBertForMultipleChoice": classifier(c.ChoiceHead(), CHOICE_POOLING),
        "ModernBertModel": BARE,
    },
    base="model.", normalize=rope.normalize_layer_rotary, older=rope.OLDER_BASES,
    free=frozenset({
        "max_position_embeddings", "global_attn_every_n_layers", "initializer_cutoff_factor", "sparse_prediction",
        "deterministic_flash_attn", "sparse_pred_ignore_index", "repad_logits_with_grad", "reference_compile",
        "layer_norm_eps", "position_embedding_type", "classifier_pooling", "classifier_bias", "classifier_activation",
        "decoder_bias", "local_attention", "tie_word_embeddings"}),
)
