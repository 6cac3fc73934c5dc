"""Encoder-decoders of a published encoder and a published decoder, each under its own fields and names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from saucier import config as c
from saucier.checkpoints.keys import Document, Key, Layout, Published
from saucier.checkpoints.rules import Rule, Rules
from saucier.checkpoints.sides import settle, with_cross
from saucier.errors import InputError
from saucier.families.bert import BERT_LAYOUT, bert
from saucier.families.bert_generation import BERT_GENERATION_LAYOUT
from saucier.families.distilbert import DISTILBERT_LAYOUT
from saucier.families.electra import ELECTRA_LAYOUT
from saucier.families.longformer import LONGFORMER_LAYOUT
from saucier.families.roberta import CAMEMBERT_LAYOUT, ROBERTA_LAYOUT, XLM_ROBERTA_LAYOUT

ENCODERS: dict[str, tuple[Layout, str]] = {layout.model_type: (layout, name) for layout, name in (
    (BERT_LAYOUT, "BertModel"), (BERT_GENERATION_LAYOUT, "BertGenerationEncoder"), (ROBERTA_LAYOUT, "RobertaModel"),
    (XLM_ROBERTA_LAYOUT, "XLMRobertaModel"), (CAMEMBERT_LAYOUT, "CamembertModel"), (ELECTRA_LAYOUT, "ElectraModel"),
    (DISTILBERT_LAYOUT, "DistilBertModel"), (LONGFORMER_LAYOUT, "LongformerModel"))}
"""Layout and class of what may be the encoder of a pair, by its `model_type`."""
DECODERS: dict[str, tuple[Layout, str]] = {layout.model_type: (layout, name) for layout, name in (
    (BERT_LAYOUT, "BertLMHeadModel"), (BERT_GENERATION_LAYOUT, "BertGenerationDecoder"),
    (ROBERTA_LAYOUT, "RobertaForCausalLM"), (XLM_ROBERTA_LAYOUT, "XLMRobertaForCausalLM"),
    (CAMEMBERT_LAYOUT, "CamembertForCausalLM"))}
"""Likewise for the decoder, of the families that have cross-attention."""
Parts = Mapping[str, tuple[Layout, str]]
NEUTRAL = {"is_encoder_decoder": False, "tie_encoder_decoder": False, "torchscript": False, "use_bfloat16": False,
           "pruned_heads": {}, "cross_attention_hidden_size": None}
"""What older configs of a part say beside, and the only value that can be expressed."""
GENERATION = frozenset({
    "bad_words_ids", "begin_suppress_tokens", "diversity_penalty", "do_sample", "early_stopping",
    "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "length_penalty", "max_length", "min_length",
    "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences", "output_scores",
    "remove_invalid_values", "repetition_penalty", "return_dict_in_generate", "suppress_tokens", "temperature",
    "tf_legacy_loss", "top_k", "top_p", "typical_p"})
"""What they say of generation, which concerns the pair and stands in generation_config.json."""


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


def plain(nested: Document) -> dict[str, Any]:
    """Return a part's config without what older ones say beside."""
    return {name: value for name, value in nested.items()
            if name not in GENERATION and not (name in NEUTRAL and value == NEUTRAL[name])}


def part(side: str, nested: Any, parts: Parts) -> tuple[Layout, str]:
    """Return layout and class of one side's config. Raises `InputError` for a family that is no part of a pair."""
    model_type = nested.get("model_type") if isinstance(nested, Mapping) else None
    if not isinstance(model_type, str) or model_type not in parts:
        raise InputError(f"{side} of model_type {model_type!r} cannot be expressed", where=side,
                         remedy=f"known: {', '.join(parts)}")
    layout, name = parts[model_type]
    return layout.spelled(layout, nested), name


def made(side: str, nested: Any, parts: Parts) -> c.Transformer:
    """Return the tree of one side's config."""
    layout, name = part(side, nested, parts)
    return layout.tree(plain(nested), name, side)


def written(tree: c.Transformer, said: Any, parts: Parts) -> dict[str, Any] | None:
    """Return one side's config, in the layout that it had if that still fits; None where no layout fits."""
    had = said if isinstance(said, Mapping) else {}
    if tree.encoder is None and tree.decoder is None:
        return None
    for model_type in sorted(parts, key=lambda name: name != had.get("model_type")):
        layout, name = parts[model_type]
        try:
            return layout.document(tree, {**had, "architectures": [name]})
        except InputError:
            continue
    return None


def prefixed(rules: Rules, ours: Mapping[str, str], base: str, side: str) -> tuple[list[Rule], list[str]]:
    """Return rules, and names of what a file may hold beside, under the names of a pair's side.

    `ours` says what stands for the beginnings of our names.
    """
    def theirs(name: str) -> str:
        return side + name.replace("@", base)

    found = []
    for _, rule in rules.rules:
        first, _, rest = rule.ours.partition(".")
        if first in ours:
            found.append(replace(rule, ours=f"{ours[first]}.{rest}", theirs=tuple(map(theirs, rule.foreign)),
                                 instead=rule.instead and theirs(rule.instead)))
    return found, [theirs(name) for name in rules.spare]


READS, WRITES = ({name: name for name in ("embed", "encoder", "pooler")},
                 {"embed": "decoder_embed", "decoder": "decoder", "head": "head"})


def spelled(layout: Layout, document: Document) -> Layout:
    """Return the layout with the weight names of the two families that a config names."""
    (first, reads), (second, writes) = (part("encoder", document.get("encoder"), ENCODERS),
                                        part("decoder", document.get("decoder"), DECODERS))

    def weights(tree: c.Transformer) -> Rules:
        found = (prefixed(first.rules(reader(tree), reads), READS, first.base_of(reads), "encoder."),
                 prefixed(second.rules(writer(tree), writes), WRITES, second.base_of(writes), "decoder."))
        (own, beside), (others, also) = found
        return Rules([*own, *others], ignored=[*beside, *also])

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
