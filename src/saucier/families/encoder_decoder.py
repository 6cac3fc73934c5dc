"""Encoder-decoders of a published encoder and a published decoder, each under its own fields and names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from saucier import config as c
from saucier.checkpoints.classes import add_cross_attention, as_decoder, has_cross_attention, move_to_encoder
from saucier.checkpoints.fields import NEUTRAL, OLDER_GENERATION, Document, Key, look_up, put
from saucier.checkpoints.layout import Layout, Published
from saucier.checkpoints.weight_names import Rule, Rules
from saucier.errors import InputError
from saucier.families.albert import ALBERT_LAYOUT
from saucier.families.bert import BERT_GENERATION_LAYOUT, BERT_LAYOUT, bert
from saucier.families.big_bird import BIG_BIRD_LAYOUT
from saucier.families.deberta import DEBERTA_LAYOUT, DEBERTA_V2_LAYOUT
from saucier.families.distilbert import DISTILBERT_LAYOUT
from saucier.families.electra import ELECTRA_LAYOUT
from saucier.families.gpt2 import GPT2_LAYOUT
from saucier.families.longformer import LONGFORMER_LAYOUT
from saucier.families.mobilebert import MOBILEBERT_LAYOUT
from saucier.families.modernbert import MODERNBERT_LAYOUT
from saucier.families.mpnet import MPNET_LAYOUT
from saucier.families.roberta import CAMEMBERT_LAYOUT, ROBERTA_LAYOUT, XLM_ROBERTA_LAYOUT
from saucier.families.roformer import ROFORMER_LAYOUT
from saucier.families.xlm import XLM_LAYOUT

ENCODERS: dict[str, tuple[Layout, str]] = {layout.model_type: (layout, name) for layout, name in (
    (BERT_LAYOUT, "BertModel"), (BERT_GENERATION_LAYOUT, "BertGenerationEncoder"), (ROBERTA_LAYOUT, "RobertaModel"),
    (XLM_ROBERTA_LAYOUT, "XLMRobertaModel"), (CAMEMBERT_LAYOUT, "CamembertModel"), (ELECTRA_LAYOUT, "ElectraModel"),
    (DISTILBERT_LAYOUT, "DistilBertModel"), (LONGFORMER_LAYOUT, "LongformerModel"), (ALBERT_LAYOUT, "AlbertModel"),
    (BIG_BIRD_LAYOUT, "BigBirdModel"), (ROFORMER_LAYOUT, "RoFormerModel"), (MPNET_LAYOUT, "MPNetModel"),
    (DEBERTA_LAYOUT, "DebertaModel"), (DEBERTA_V2_LAYOUT, "DebertaV2Model"), (MOBILEBERT_LAYOUT, "MobileBertModel"),
    (MODERNBERT_LAYOUT, "ModernBertModel"), (XLM_LAYOUT, "XLMModel"))}
"""Layout and class of what may be the encoder of a pair, by its `model_type`."""
DECODERS: dict[str, tuple[Layout, str]] = {layout.model_type: (layout, name) for layout, name in (
    (BERT_LAYOUT, "BertLMHeadModel"), (BERT_GENERATION_LAYOUT, "BertGenerationDecoder"),
    (ROBERTA_LAYOUT, "RobertaForCausalLM"), (XLM_ROBERTA_LAYOUT, "XLMRobertaForCausalLM"),
    (CAMEMBERT_LAYOUT, "CamembertForCausalLM"), (ELECTRA_LAYOUT, "ElectraForCausalLM"),
    (ROFORMER_LAYOUT, "RoFormerForCausalLM"), (GPT2_LAYOUT, "GPT2LMHeadModel"))}
"""Likewise for the decoder, of the families that have cross-attention."""


Parts = Mapping[str, tuple[Layout, str]]


def join_sides(encoder: c.Transformer, decoder: c.Transformer) -> c.Transformer:
    """Put an encoder and a decoder that reads one together. Raises `InputError` for parts that do not fit."""
    if encoder.encoder is None or decoder.decoder is None:
        raise InputError("the encoder sees only the past, or the decoder sees the future", where="decoder.is_decoder",
                         remedy="use is_decoder: false in the encoder and true in the decoder")
    return decoder.model_copy(update={"embed": encoder.embed, "encoder": encoder.encoder, "pooler": encoder.pooler,
                                      "decoder_embed": decoder.embed,
                                      "encoder_dim": None if encoder.dim == decoder.dim else encoder.dim})


def take_encoder(tree: c.Transformer) -> c.Transformer:
    """Return the encoder of a pair alone."""
    return tree.model_copy(update={"dim": tree.reader_dim, "encoder_dim": None, "decoder": None, "decoder_embed": None,
                                   "head": None})


def take_decoder(tree: c.Transformer) -> c.Transformer:
    """Return the decoder of a pair alone."""
    return tree.model_copy(update={"encoder": None, "embed": tree.output_embed, "decoder_embed": None, "pooler": None,
                                   "encoder_dim": None})


def choose_part(side: str, nested: Any, parts: Parts) -> tuple[Layout, str]:
    """Return layout and class of one side's config. Raises `InputError` for a family that is no part of a pair."""
    model_type = nested.get("model_type") if isinstance(nested, Mapping) else None
    if not isinstance(model_type, str) or model_type not in parts:
        raise InputError(f"{side} of model_type {model_type!r} cannot be expressed", where=side,
                         remedy=f"known: {', '.join(parts)}")
    layout, name = parts[model_type]
    return layout.choose_layout(layout, nested), name


def read_side(side: str, nested: Any, parts: Parts) -> c.Transformer:
    """Return the tree of one side's config, read without what older ones say in addition."""
    layout, name = choose_part(side, nested, parts)
    own = {field: value for field, value in nested.items()
           if field not in OLDER_GENERATION and not (field in NEUTRAL and value == NEUTRAL[field])}
    return layout.tree(own, name, side)


def write_side(tree: c.Transformer, said: Any, parts: Parts) -> dict[str, Any] | None:
    """Return one side's config, in the layout that it had if that still fits; None where no layout fits."""
    had = said if isinstance(said, Mapping) else {}
    if tree.encoder is None and tree.decoder is None:
        return None
    for model_type in sorted(parts, key=lambda name: name != had.get("model_type")):
        layout, name = parts[model_type]
        with suppress(InputError):
            return layout.document(tree, {**had, "architectures": [name]})
    return None


def side_rules(rules: Rules, ours: Mapping[str, str], base: str, side: str) -> Rules:
    """Return the rules of a pair's side under its names; what the pair has not of it, a file may hold in addition.

    `ours`: what replaces the first part of our names.
    """
    def theirs(name: str) -> str:
        return side + name.replace("@", base)

    found, spare = [], [*map(theirs, rules.ignored)]
    for rule in rules.rules:
        first, _, rest = rule.ours.partition(".")
        if first not in ours:
            spare += map(theirs, rule.foreign)
        else:
            found.append(replace(rule, ours=f"{ours[first]}.{rest}", theirs=tuple(map(theirs, rule.foreign)),
                                 instead=rule.instead and theirs(rule.instead)))
    return Rules(found, ignored=spare,
                 tables=[replace(table, name=theirs(table.name)) for table in rules.tables])


READS, WRITES = ({name: name for name in ("embed", "encoder", "pooler")},
                 {"embed": "decoder_embed", "decoder": "decoder", "head": "head"})


def name_pair(layout: Layout, document: Document) -> Layout:
    """Return the layout with the weight names of the two families that a config names."""
    first, reads = choose_part("encoder", document.get("encoder"), ENCODERS)
    second, writes = choose_part("decoder", document.get("decoder"), DECODERS)

    def names(tree: c.Transformer) -> Rules:
        sides = (side_rules(first.rules(take_encoder(tree), reads), READS, first.base_of(reads), "encoder."),
                 side_rules(second.rules(take_decoder(tree), writes), WRITES, second.base_of(writes), "decoder."))
        return Rules([*sides[0].rules, *sides[1].rules, Rule("bridge.{p}", "enc_to_dec_proj.{p}")],
                     tables=[*sides[0].tables, *sides[1].tables], ignored=[*sides[0].ignored, *sides[1].ignored])

    return replace(layout, weights=names)


def side_key(side: str, parts: Parts, alone: Callable[[c.Transformer], c.Transformer]) -> Key:
    """Return the key of a side's config; `alone` takes it out of a pair."""
    return Key(side, (), argument=side, ours=lambda nested: read_side(side, nested, parts),
               write_nested=lambda tree, said: write_side(alone(tree), said, parts))


def bert2bert(dim: int = 768, layers: int = 12, *, heads: int = 12, vocab: int = 30522, length: int = 512,
              hidden: int | None = None, dropout: float = 0.1) -> c.Transformer:
    """BERT2BERT: a BERT that reads, and one that writes. Source: Rothe et al. 2020, §2 and §3, arXiv:1907.12461."""
    reads = bert(dim, layers, heads=heads, vocab=vocab, length=length, hidden=hidden, dropout=dropout)
    return join_sides(reads, as_decoder(add_cross_attention(reads)))


ENCODER_DECODER_LAYOUT = Layout(
    "encoder-decoder",
    join_sides,
    (side_key("encoder", ENCODERS, take_encoder), side_key("decoder", DECODERS, take_decoder)),
    lambda tree: Rules([]),
    {"EncoderDecoderModel": Published(lambda tree, document: tree, optional=("pooler",))},
    "",
    fixed={"is_encoder_decoder": True, "tie_encoder_decoder": False},
    free=frozenset({"tie_word_embeddings", "encoder", "decoder"}),
    choose_layout=name_pair,
)


def joined(reads: c.Transformer, writes: c.Transformer, *, shared: bool = False) -> c.Transformer:
    """Make an encoder-decoder of the stack of one model and that of another, so that both can lend it their weights.

    The decoder sees only the past, and each of its blocks gets a cross-attention like its self-attention. `shared`: one
    token table, and one set of weights for what both stacks have (BERTShare).
    Raises `InputError` for a stack that cannot take its side. Source: Rothe et al. 2020, §2 and §3, arXiv:1907.12461.
    """
    if reads.encoder is None or reads.decoder is not None:
        raise InputError("only an encoder reads the source", where="warm_start.encoder",
                         remedy="give a model like BERT, or null for random weights")
    if reads.dim != writes.dim:
        raise InputError(f"an encoder of width {reads.dim} and a decoder of width {writes.dim}", where="warm_start",
                         remedy="use parts of one width: a map between them would have no weights to start from")
    pair = join_sides(put(reads, {"head": None, "pooler": None}), written_by(writes))
    return put(pair, {"decoder_embed": None, "decoder.tied": True}) if shared else pair


def written_by(tree: c.Transformer) -> c.Transformer:
    """Return the decoder that a model's one stack becomes. Raises `InputError` for one that cannot."""
    if tree.encoder is not None and tree.decoder is not None:
        raise InputError("an encoder-decoder is whole already", where="warm_start.decoder",
                         remedy="go on from it with --from, or give a model of one stack")
    alone = move_to_encoder(tree)
    sublayers = look_up(alone, "encoder.layers.block.sublayers")
    if not sublayers or not isinstance(sublayers[0].inner, c.SelfAttention):
        raise InputError("its blocks do not all begin with the same self-attention", where="warm_start.decoder",
                         remedy="give a model like BERT or GPT-2")
    head = tree.language_head or c.LanguageHead(bias=True)
    crossing = alone if has_cross_attention(alone) else add_cross_attention(alone)
    return as_decoder(put(crossing, {"head": head}))
