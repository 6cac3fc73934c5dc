"""Encoder-decoders of a published encoder and a published decoder, each under its own fields and names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from saucier import config as c
from saucier.checkpoints.keys import Document, Key, Layout, Published
from saucier.checkpoints.rules import Rule, Rules
from saucier.errors import InputError
from saucier.families.bert import BERT_LAYOUT, bert
from saucier.families.bert_generation import BERT_GENERATION_LAYOUT
from saucier.families.lineage import settle, with_cross
from saucier.families.roberta import CAMEMBERT_LAYOUT, ROBERTA_LAYOUT, XLM_ROBERTA_LAYOUT

PARTS = {layout.model_type: layout for layout in (BERT_LAYOUT, BERT_GENERATION_LAYOUT, ROBERTA_LAYOUT,
                                                  XLM_ROBERTA_LAYOUT, CAMEMBERT_LAYOUT)}
ENCODERS = {"bert": "BertModel", "bert-generation": "BertGenerationEncoder", "roberta": "RobertaModel",
            "xlm-roberta": "XLMRobertaModel", "camembert": "CamembertModel"}
"""The class that stands for the encoder of a pair, by its `model_type`."""
DECODERS = {"bert": "BertLMHeadModel", "bert-generation": "BertGenerationDecoder", "roberta": "RobertaForCausalLM",
            "xlm-roberta": "XLMRobertaForCausalLM", "camembert": "CamembertForCausalLM"}
"""Likewise for the decoder."""


def bert2bert(dim: int = 768, layers: int = 12, *, heads: int = 12, vocab: int = 30522, length: int = 512,
              hidden: int | None = None, dropout: float = 0.1) -> c.Transformer:
    """BERT2BERT: a BERT that reads, and one that writes. Source: Rothe et al. 2020, §2 and §3, arXiv:1907.12461."""
    reads = bert(dim, layers, heads=heads, vocab=vocab, length=length, hidden=hidden, dropout=dropout)
    writes = with_cross(reads).model_copy(update={"pooler": None, "head": reads.language_head})
    assert writes.encoder is not None, "as BERT's function says"
    block = writes.encoder.blocks()[0]
    first = block.sublayers[0]
    causal = first.model_copy(update={"inner": first.inner.model_copy(update={"visibility": c.Causal()})})
    layers_ = c.Repeat(block=c.Block(sublayers=(causal, *block.sublayers[1:])), times=layers)
    return paired(reads, settle(writes.model_copy(update={"encoder": c.Stack(layers=layers_)})))


def paired(encoder: c.Transformer, decoder: c.Transformer) -> c.Transformer:
    """Put an encoder and a decoder that reads one together. Raises `InputError` for parts that do not fit."""
    if encoder.dim != decoder.dim:
        raise InputError(f"an encoder of width {encoder.dim} and a decoder of width {decoder.dim}", where="decoder",
                         remedy="use parts of one width: a map between them cannot be expressed")
    if encoder.encoder is None or decoder.decoder is None:
        raise InputError("the encoder sees only the past, or the decoder sees the future", where="decoder.is_decoder",
                         remedy="use is_decoder: false in the encoder and true in the decoder")
    return decoder.model_copy(update={"embed": encoder.embed, "encoder": encoder.encoder, "pooler": encoder.pooler,
                                      "decoder_embed": decoder.embed})


def reader(tree: c.Transformer) -> c.Transformer:
    """Return the encoder of a pair alone."""
    return tree.model_copy(update={"decoder": None, "decoder_embed": None, "head": None})


def writer(tree: c.Transformer) -> c.Transformer:
    """Return the decoder of a pair alone."""
    return tree.model_copy(update={"encoder": None, "embed": tree.output_embed, "decoder_embed": None, "pooler": None})


def part(side: str, nested: Any, names: Mapping[str, str]) -> tuple[Layout, str]:
    """Return layout and class of one side's config. Raises `InputError` for a family that is no part of a pair."""
    model_type = nested.get("model_type") if isinstance(nested, Mapping) else None
    if not isinstance(model_type, str) or model_type not in names:
        raise InputError(f"{side} of model_type {model_type!r} cannot be expressed", where=side,
                         remedy=f"known: {', '.join(names)}")
    return PARTS[model_type], names[model_type]


def made(side: str, nested: Any, names: Mapping[str, str]) -> c.Transformer:
    """Return the tree of one side's config."""
    layout, name = part(side, nested, names)
    return layout.tree(nested, name, side)


def written(tree: c.Transformer, said: Any, names: Mapping[str, str]) -> dict[str, Any] | None:
    """Return one side's config, in the layout that it had if that still fits; None where no layout fits."""
    had = said if isinstance(said, Mapping) else {}
    if tree.encoder is None and tree.decoder is None:
        return None
    for model_type in sorted(names, key=lambda name: name != had.get("model_type")):
        layout = PARTS[model_type]
        try:
            return layout.document(tree, {**had, "architectures": [names[model_type]]})
        except InputError:
            continue
    return None


def prefixed(rules: Rules, ours: Mapping[str, str], base: str, side: str) -> list[Rule]:
    """Return rules under the names of a pair's side: `ours` says what stands for the beginnings of our names."""
    def theirs(name: str) -> str:
        return side + (name.replace("@", base) if "@" in name else name)

    found = []
    for _, rule in rules.rules:
        first, _, rest = rule.ours.partition(".")
        if first in ours:
            found.append(replace(rule, ours=f"{ours[first]}.{rest}", theirs=tuple(map(theirs, rule.foreign)),
                                 instead=rule.instead and theirs(rule.instead)))
    return found


READS, WRITES = ({name: name for name in ("embed", "encoder", "pooler")},
                 {"embed": "decoder_embed", "decoder": "decoder", "head": "head"})
COPIES = tuple(side + name for side in ("encoder.", "decoder.", "decoder.bert.", "decoder.roberta.")
               for name in ("embeddings.position_ids", "embeddings.token_type_ids"))
OUTPUTS = ("decoder.cls.predictions.decoder.{p}", "decoder.lm_head.decoder.{p}", "decoder.lm_head.bias")


def spelled(layout: Layout, document: Document) -> Layout:
    """Return the layout with the weight names of the two families that a config names."""
    (first, reads), (second, writes) = (part("encoder", document.get("encoder"), ENCODERS),
                                        part("decoder", document.get("decoder"), DECODERS))

    def weights(tree: c.Transformer) -> Rules:
        rules = [*prefixed(first.rules(reader(tree), reads), READS, first.base_of(reads), "encoder."),
                 *prefixed(second.rules(writer(tree), writes), WRITES, second.base_of(writes), "decoder.")]
        return Rules(rules, ignored=(*COPIES, *OUTPUTS))

    return replace(layout, weights=weights)


ENCODER_DECODER_LAYOUT = Layout(
    "encoder-decoder",
    paired,
    (
        Key("encoder", (), argument="encoder", ours=lambda nested: made("encoder", nested, ENCODERS),
            kept=lambda tree, said: written(reader(tree), said, ENCODERS)),
        Key("decoder", (), argument="decoder", ours=lambda nested: made("decoder", nested, DECODERS),
            kept=lambda tree, said: written(writer(tree), said, DECODERS)),
    ),
    lambda tree: Rules([]),
    {"EncoderDecoderModel": Published(lambda tree, document: tree, optional=("pooler",))},
    "",
    fixed={"is_encoder_decoder": True, "tie_encoder_decoder": False},
    free=frozenset({"tie_word_embeddings", "encoder", "decoder"}),
    spelled=spelled,
)
