"""What BART, mBART, Pegasus, Marian and M2M-100 share: one shape, one table of fields, one of names, one of classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from saucier import config as c
from saucier.checkpoints.classes import (
    BARE,
    LABELS,
    SPANS,
    WHOLE,
    both_sides,
    count_labels,
    decoder_alone,
    head_class,
    repeat_block,
    shares_table,
    ties_output,
)
from saucier.checkpoints.fields import ACTIVATIONS, Key, join_paths, rename_fields
from saucier.checkpoints.layout import Published
from saucier.checkpoints.weight_names import Axis, NameTable, Rule, Rules, Table


def encoder_decoder(dim: int, embed: c.Embedding, *, layers: int, heads: int, hidden: int | None,
                    activation: c.Activation, dropout: float,
                    place: type[c.PreNorm] | type[c.PostNorm]) -> c.Transformer:
    """The Transformer with biases everywhere; norms inside the residuals (`PreNorm`) need one more after each stack.

    Each side has positions and a norm of its own where they are trained; the token table is always one.
    """
    projection, end = c.Projection(heads=heads), c.LayerNorm() if place is c.PreNorm else None
    feed_forward = c.FeedForward(hidden=hidden or 4 * dim, activation=activation)
    trained = embed.norm is not None or isinstance(embed.positions, c.Learned)
    return c.Transformer(
        dim=dim,
        embed=embed,
        encoder=repeat_block(layers, c.SelfAttention(projection=projection), feed_forward, place=place, dropout=dropout,
                             final_norm=end),
        decoder=repeat_block(layers, c.SelfAttention(projection=projection, visibility=c.Causal()),
                             c.CrossAttention(projection=projection), feed_forward, place=place, dropout=dropout,
                             final_norm=end),
        decoder_embed=embed.model_copy(update={"tied": True}) if trained else None,
        head=c.LanguageHead(bias=True),
    )


def from_fields(family: Callable[..., c.Transformer]) -> Callable[..., c.Transformer]:
    """The family by the published fields: `scaled` token vectors, a `tied` output layer, one table on `shared` sides.

    An untied output layer goes with a table of its own on each side, as the published classes have it.
    """
    def tree(dim: int, *, scaled: bool, tied: bool, shared: bool = True) -> c.Transformer:
        made = family(dim)
        embed = made.embed.model_copy(update={"scale": dim**0.5 if scaled else 1.0})
        target = made.decoder_embed and embed.model_copy(update={"tied": True})
        if not (tied and shared):
            target = embed
        head = made.head.model_copy(update={"tied": tied}) if made.head else None
        return made.model_copy(update={"embed": embed, "decoder_embed": target, "head": head})

    return tree


READER, WRITER = "encoder.layers.*.sublayers", "decoder.layers.*.sublayers"
READERS, WRITERS = (f"{READER}.0",), (f"{WRITER}.0", f"{WRITER}.1")
FEED_FORWARDS = (f"{READER}.1", f"{WRITER}.2")
EMBEDS = ("embed", "decoder_embed")


KEYS = (Key("d_model", ("dim",), argument="dim", default=1024),
        Key("encoder_layers", ("encoder.layers.times",), default=12),
        Key("decoder_layers", ("decoder.layers.times",), default=12),
        Key("encoder_attention_heads", join_paths(READERS, "inner.projection.heads"), default=16),
        Key("decoder_attention_heads", join_paths(WRITERS, "inner.projection.heads"), default=16),
        Key("encoder_ffn_dim", (f"{READER}.1.inner.hidden",), default=4096),
        Key("decoder_ffn_dim", (f"{WRITER}.2.inner.hidden",), default=4096),
        Key("vocab_size", join_paths(EMBEDS, "vocab"), default=50265),
        Key("activation_function", join_paths(FEED_FORWARDS, "inner.activation"), names=ACTIVATIONS, default="gelu"),
        Key("dropout", (*join_paths((*READERS, *WRITERS, *FEED_FORWARDS), "dropout"), *join_paths(EMBEDS, "dropout")),
            default=0.1),
        Key("attention_dropout", join_paths((*READERS, *WRITERS), "inner.kernel.dropout"), default=0.0),
        Key("activation_dropout", join_paths(FEED_FORWARDS, "inner.dropout"), default=0.0),
        Key("encoder_layerdrop", ("encoder.layer_drop",), default=0.0, absent=0.0, ours=lambda rate: rate or None),
        Key("decoder_layerdrop", ("decoder.layer_drop",), default=0.0, absent=0.0, ours=lambda rate: rate or None),
        Key("scale_embedding", (), argument="scaled", default=False, found=lambda tree: tree.embed.scale != 1.0),
        Key("tie_word_embeddings", (), argument="tied", default=True, found=ties_output),)
LEARNED = Key("max_position_embeddings", join_paths(EMBEDS, "positions.length"), default=1024,
              ours=lambda rows: rows + 2, theirs=lambda rows: rows - 2)
"""Tables of learned positions have two rows more than positions."""
FIXED = Key("max_position_embeddings", join_paths(EMBEDS, "positions.length"), default=1024)
START = Key("decoder_start_token_id", ("default_target.start",), default=2)
OLDER = {"num_hidden_layers": "encoder_layers"}
"""An older config may say the number of the encoder's layers once more, which then counts."""
newer = partial(rename_fields, older=OLDER)
FREE = frozenset({"init_std", "is_decoder", "is_encoder_decoder",
                  "add_bias_logits", "extra_pos_embeddings", "output_past", "classif_dropout",
                  "force_bos_token_to_be_generated", "save_step"})
"""Fields of training, and of older versions of the classes."""


def fixed(*, learned: bool, pre_norm: bool, normed_embedding: bool) -> dict[str, bool]:
    """Fields of older configs that say what each of these families is."""
    return {"static_position_embeddings": not learned, "normalize_before": pre_norm, "add_final_layer_norm": pre_norm,
            "normalize_embedding": normed_embedding}


def weights(tree: c.Transformer) -> Rules:
    """The names of the body. A decoder alone has no encoder, and no cross-attention, to be filled."""
    rules = [Rule("embed.tokens.weight", "@shared.weight", instead="@encoder.embed_tokens.weight")]
    if tree.encoder is None:
        rules = [Rule("embed.tokens.weight", "@decoder.embed_tokens.weight", instead="@shared.weight")]
    elif not shares_table(tree):
        rules = [Rule(f"{ours}.tokens.weight", f"@{side}.embed_tokens.weight", instead="@shared.weight")
                 for side, ours in zip(("encoder", "decoder"), EMBEDS, strict=True)]
    for side, ours in (("encoder", "embed"), ("decoder", "decoder_embed" if tree.encoder else "embed")):
        if tree.encoder is not None or side == "decoder":
            rules += [Rule(f"{ours}.positions.weight", f"@{side}.embed_positions.weight"),
                      Rule(f"{ours}.norm.{{p}}", f"@{side}.layernorm_embedding.{{p}}")]
        rules.append(Rule(f"{side}.final_norm.{{p}}", f"@{side}.layer_norm.{{p}}"))
        rules += replace(BLOCK, block=f"@{side}.layers.{{i}}.").blocks(tree, side)
    return Rules(rules, ignored=COPIES_AND_UNUSED, tables=tables(tree))


def tables(tree: c.Transformer) -> list[Table]:
    """The fixed positions that published files hold: Marian's and Pegasus's, but not those of M2M-100."""
    positions = tree.embed.positions
    if not isinstance(positions, c.Sinusoidal) or positions.length is None:
        return []
    sides = ("encoder", "decoder") if tree.encoder else ("decoder",)
    return [Table(f"@{side}.embed_positions.weight", positions, tree.dim) for side in sides]


UNUSED = ("embed_tokens.weight", "embed_positions.weight", "embed_positions.weights", "layernorm_embedding.{p}",
          "version")
COPIES_AND_UNUSED = ("@shared.weight", "lm_head.weight", "final_logits_bias",
                     *(f"@{side}.{name}" for side in ("encoder", "decoder") for name in UNUSED))


BLOCK = NameTable(
    {}, "", {
        "attention.inner.out": "self_attn.out_proj", "attention.norm": "self_attn_layer_norm",
        "cross.inner.q": "encoder_attn.q_proj", "cross.inner.out": "encoder_attn.out_proj",
        "cross.norm": "encoder_attn_layer_norm", "feed_forward.inner.up": "fc1", "feed_forward.inner.down": "fc2",
        "feed_forward.norm": "final_layer_norm"},
    {"attention.inner.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
     "cross.inner.kv": ("encoder_attn.k_proj", "encoder_attn.v_proj")})
"""The names of the maps in a block, after those of their stack."""
HEAD = (Rule("head.weight", "lm_head.weight"), Rule("head.bias", "final_logits_bias", Axis(0), absent=0.0))


def classes(name: str, *, writer: str = "ForConditionalGeneration", labels: int = 2) -> dict[str, Published]:
    """The published classes of a family; `labels` is how many a config that names none has."""
    count = replace(LABELS, default=partial(count_labels, count=labels))
    dropout = Key("classifier_dropout", ("head.dropout", "head.transform.dropout"), default=0.0)
    end = Key("eos_token_id", ("head.pick.token",), default=2)
    text = c.ClassificationHead(pick=c.EndToken(token=2), transform=c.Transform(activation="tanh"))
    return {
        f"{name}{writer}": Published(WHOLE.keep, HEAD),
        f"{name}ForSequenceClassification": head_class(text, "classification_head.out_proj",
                                                       dense="classification_head.dense", keys=(count, dropout, end)),
        f"{name}ForQuestionAnswering": SPANS,
        f"{name}ForCausalLM": Published(decoder_alone, HEAD[:1], undo=both_sides),
        f"{name}Model": BARE,
    }
