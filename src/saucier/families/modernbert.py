"""ModernBERT: a pre-norm encoder with rotary positions, gated feed-forwards, and windows in two layers of three."""

from __future__ import annotations

from typing import Any

from saucier import config as c
from saucier.checkpoints.choices import LABELS, Making, bare, labelling, whole
from saucier.checkpoints.keys import ACTIVATIONS, Document, Key, Layout, Published
from saucier.checkpoints.rules import Rule, Rules
from saucier.errors import InputError

FULL, SLIDING = "full_attention", "sliding_attention"
BASES = {FULL: 160000.0, SLIDING: 10000.0}


def modernbert(
    dim: int = 768,
    layers: int = 22,
    *,
    heads: int = 12,
    vocab: int = 50368,
    hidden: int = 1152,
    window: int = 128,
    every: int = 3,
    dropout: float = 0.0,
) -> c.Transformer:
    """ModernBERT, base size by default. Source: Warner et al. 2024, §2.1 and table 4, arXiv:2412.13663.

    Every third layer sees the whole text, the others `window` tokens around each; the embedding's norm is the first
    block's, too.
    """
    kinds = [SLIDING if number % every else FULL for number in range(layers)]
    rotary = {kind: c.Rotary(base=base) for kind, base in BASES.items()}
    return encoder(dim, kinds, rotary, heads=heads, vocab=vocab, hidden=hidden, window=window, dropout=dropout)


def encoder(dim: int, kinds: list[str], rotary: dict[str, c.Rotary], *, heads: int, vocab: int, hidden: int,
            window: int, dropout: float) -> c.Transformer:
    """The tree whose blocks are of these kinds."""
    norm = c.LayerNorm(bias=False)
    projection = c.Projection(heads=heads, bias=False, output_bias=False)
    views = {FULL: c.Full(), SLIDING: c.Window(window // 2 + 1)}

    def block(number: int, kind: str) -> c.Block:
        attention = c.SelfAttention(projection=projection, positions=rotary[kind], visibility=views[kind],
                                    kernel=c.Softmax(dropout=dropout))
        return c.Block(sublayers=(
            c.PreNorm(inner=attention, norm=norm if number else c.IdentityNorm(), dropout=dropout),
            c.PreNorm(inner=c.GatedFeedForward(hidden=hidden, activation="gelu", dropout=dropout), norm=norm)))

    blocks = tuple(block(number, kind) for number, kind in enumerate(kinds))
    transform = c.Transform(norm=norm, bias=False)
    return c.Transformer(
        dim=dim, embed=c.Embedding(vocab=vocab, norm=norm, dropout=dropout),
        encoder=c.Stack(layers=c.Cycle(blocks=blocks, times=1), final_norm=norm),
        head=c.LanguageHead(bias=True, transform=transform), initialization=c.NormalInit(depth_scaled=True))


def from_fields(dim: int, *, layers: int, kinds: list[str], heads: int, window: int,
                rotary: dict[str, c.Rotary]) -> c.Transformer:
    """The family by the published fields. Raises `ValueError` where they do not agree on the number of layers."""
    if len(kinds) != layers:
        raise ValueError(f"{len(kinds)} layer types for {layers} layers")
    return encoder(dim, kinds, rotary, heads=heads, vocab=1, hidden=1, window=window, dropout=0.0)


def attentions(tree: c.Transformer) -> list[c.SelfAttention]:
    """The self-attention of every block."""
    assert tree.encoder is not None, "a ModernBERT is an encoder"
    found = [residual.inner for block in tree.encoder.blocks() for residual in block.sublayers]
    return [inner for inner in found if isinstance(inner, c.SelfAttention)]


def kinds_of(tree: c.Transformer) -> list[str]:
    """The published names of the layers' kinds."""
    return [SLIDING if isinstance(inner.visibility, c.Window) else FULL for inner in attentions(tree)]


def window_of(tree: c.Transformer) -> int | None:
    """The published width of the window: both sides, without the token itself."""
    return next((2 * (inner.visibility.size - 1) for inner in attentions(tree)
                 if isinstance(inner.visibility, c.Window)), None)


def read_rotary(nested: dict[str, dict[str, Any]]) -> dict[str, c.Rotary]:
    """Return the rotations of each kind of layer. Raises `InputError` for a scaling that is not expressed here."""
    found = {}
    for kind, base in BASES.items():
        given = {"rope_type": "default", "rope_theta": base, **(nested.get(kind) or {})}
        name = given.pop("rope_type")
        if name not in ("default", "linear") or set(given) - {"rope_theta", "factor"}:
            raise InputError(f"rope_parameters {nested[kind]} cannot be expressed", where=f"rope_parameters.{kind}",
                             remedy="rope_type default can, and linear with a factor")
        scaling = c.LinearScaling(factor=given["factor"]) if name == "linear" else c.NoScaling()
        found[kind] = c.Rotary(base=given["rope_theta"], scaling=scaling)
    return found


def write_rotary(tree: c.Transformer) -> dict[str, dict[str, Any]]:
    """The inverse; a kind of layer that the tree has not gets its defaults."""
    found = {kind: {"rope_type": "default", "rope_theta": base} for kind, base in BASES.items()}
    for kind, inner in zip(kinds_of(tree), attentions(tree), strict=True):
        if isinstance(inner.positions, c.Rotary):
            found[kind] = {"rope_type": "default", "rope_theta": inner.positions.base}
            if isinstance(inner.positions.scaling, c.LinearScaling):
                found[kind] |= {"rope_type": "linear", "factor": inner.positions.scaling.factor}
    return found


def one_spelling(document: Document) -> Document:
    """Bring the older flat bases to the newer nested field."""
    nested = {kind: dict(value or {}) for kind, value in (document.get("rope_parameters") or {}).items()}
    for kind, older in ((FULL, "global_rope_theta"), (SLIDING, "local_rope_theta")):
        if document.get(older) is not None:
            nested.setdefault(kind, {}).setdefault("rope_theta", document[older])
    rest = {name: value for name, value in document.items()
            if name not in ("global_rope_theta", "local_rope_theta", "rope_parameters")}
    return {**rest, **({"rope_parameters": nested} if nested else {})}


def default_kinds(document: Document) -> list[str]:
    """Layers see the whole text in turn, where a config does not list them."""
    every = document.get("global_attn_every_n_layers") or 3
    return [SLIDING if number % every else FULL for number in range(document["num_hidden_layers"])]


ATTENTION, FEED_FORWARD = "encoder.layers.*.sublayers.0", "encoder.layers.*.sublayers.1"
PROJECTION, HEAD = f"{ATTENTION}.inner.projection", "head.transform"
NORMS = (f"{FEED_FORWARD}.norm", f"{ATTENTION}.norm", "encoder.final_norm", "embed.norm", f"{HEAD}.norm")
KEYS = (
    Key("hidden_size", ("dim",), argument="dim"),
    Key("num_hidden_layers", (), argument="layers", found=lambda tree: len(attentions(tree))),
    Key("layer_types", (), argument="kinds", default=default_kinds, found=kinds_of),
    Key("num_attention_heads", (f"{PROJECTION}.heads",), argument="heads"),
    Key("local_attention", (), argument="window", default=128, found=window_of),
    Key("rope_parameters", (), argument="rotary", default={}, ours=read_rotary, found=write_rotary),
    Key("intermediate_size", (f"{FEED_FORWARD}.inner.hidden",)),
    Key("vocab_size", ("embed.vocab",)),
    Key("hidden_activation", (f"{FEED_FORWARD}.inner.activation",), names=ACTIVATIONS, default="gelu"),
    Key("norm_eps", tuple(f"{norm}.eps" for norm in NORMS), default=1e-5),
    Key("norm_bias", tuple(f"{norm}.bias" for norm in NORMS), default=False),
    Key("attention_bias", (f"{PROJECTION}.bias", f"{PROJECTION}.output_bias"), default=False),
    Key("mlp_bias", (f"{FEED_FORWARD}.inner.bias",), default=False),
    Key("embedding_dropout", ("embed.dropout",), default=0.0),
    Key("attention_dropout", (f"{ATTENTION}.inner.kernel.dropout", f"{ATTENTION}.dropout"), default=0.0),
    Key("mlp_dropout", (f"{FEED_FORWARD}.inner.dropout",), default=0.0),
)
TRANSFORM = (
    Key("classifier_bias", (f"{HEAD}.bias",), default=False),
    Key("classifier_activation", (f"{HEAD}.activation",), names=ACTIVATIONS, default="gelu"),
    Key("norm_eps", (f"{HEAD}.norm.eps",), default=1e-5),
    Key("norm_bias", (f"{HEAD}.norm.bias",), default=False),
)
DROPOUT = Key("classifier_dropout", ("head.dropout",), default=0.0)
POOLING = Key("classifier_pooling", ("head.pick",), names={"cls": c.First(), "mean": c.Mean()}, default="cls")
CHOICE_POOLING = Key("classifier_pooling", ("head.pick",), names={"cls": c.FirstUnmasked(), "mean": c.Mean()},
                     default="cls")
LANGUAGE = (Key("tie_word_embeddings", ("head.tied",), default=True),
            Key("decoder_bias", ("head.bias",), default=True), *TRANSFORM)


def weights(tree: c.Transformer) -> Rules:
    """The names of ModernBERT's body."""
    names = {"attention.norm": "attn_norm", "attention.inner.qkv": "attn.Wqkv", "attention.inner.out": "attn.Wo",
             "feed_forward.norm": "mlp_norm", "feed_forward.inner.up": "mlp.Wi", "feed_forward.inner.down": "mlp.Wo"}
    return Rules([
        Rule("embed.tokens.weight", "@embeddings.tok_embeddings.weight"),
        Rule("embed.norm.{p}", "@embeddings.norm.{p}"), Rule("encoder.final_norm.{p}", "@final_norm.{p}"),
        *(Rule(f"encoder.blocks.{{i}}.{ours}.{{p}}", f"@layers.{{i}}.{theirs}.{{p}}")
          for ours, theirs in names.items()),
    ], ignored=["decoder.weight"] if tree.language_head and tree.language_head.tied else [])


def classifier(head: Making, *keys: Key) -> Published:
    """A class whose output map stands behind the same transform as the language head's."""
    return labelling(head, dense="head.dense", norm="head.norm", keys=(DROPOUT, *TRANSFORM, *keys))


MADE = c.Transform(norm=c.LayerNorm(bias=False))
MODERNBERT_LAYOUT = Layout(
    "modernbert", from_fields, KEYS, weights, {
        "ModernBertForMaskedLM": Published(whole.keep, (
            Rule("head.transform.dense.{p}", "head.dense.{p}"), Rule("head.transform.norm.{p}", "head.norm.{p}"),
            Rule("head.weight", "decoder.weight"), Rule("head.bias", "decoder.bias")), LANGUAGE),
        "ModernBertForSequenceClassification": classifier(c.ClassificationHead(pick=c.First(), transform=MADE), LABELS,
                                                          POOLING),
        "ModernBertForTokenClassification": classifier(c.TokenHead(transform=MADE), LABELS),
        "ModernBertForQuestionAnswering": classifier(c.SpanHead(transform=MADE)),
        "ModernBertForMultipleChoice": classifier(c.ChoiceHead(transform=MADE), CHOICE_POOLING),
        "ModernBertModel": bare,
    }, "model.", normalize=one_spelling,
    free=frozenset({
        "max_position_embeddings", "global_attn_every_n_layers", "initializer_cutoff_factor", "sparse_prediction",
        "deterministic_flash_attn", "sparse_pred_ignore_index", "repad_logits_with_grad", "reference_compile",
        "layer_norm_eps", "position_embedding_type", "classifier_pooling", "classifier_bias", "classifier_activation",
        "decoder_bias", "local_attention", "tie_word_embeddings"}))
