"""Configs inside a config: an encoder and a decoder that are published in layouts of their own, as one model.

Not here: which layouts may be a part, which the family of pairs says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from saucier import config as c
from saucier.checkpoints.common_fields import NEUTRAL, OLDER_GENERATION
from saucier.checkpoints.keys import Document, Key, Layout
from saucier.checkpoints.rules import Rule, Rules
from saucier.errors import InputError

Parts = Mapping[str, tuple[Layout, str]]


def paired(encoder: c.Transformer, decoder: c.Transformer) -> c.Transformer:
    """Put an encoder and a decoder that reads one together. Raises `InputError` for parts that do not fit."""
    if encoder.encoder is None or decoder.decoder is None:
        raise InputError("the encoder sees only the past, or the decoder sees the future", where="decoder.is_decoder",
                         remedy="use is_decoder: false in the encoder and true in the decoder")
    return decoder.model_copy(update={"embed": encoder.embed, "encoder": encoder.encoder, "pooler": encoder.pooler,
                                      "decoder_embed": decoder.embed,
                                      "encoder_dim": None if encoder.dim == decoder.dim else encoder.dim})


def reader(tree: c.Transformer) -> c.Transformer:
    """Return the encoder of a pair alone."""
    return tree.model_copy(update={"dim": tree.reader_dim, "encoder_dim": None, "decoder": None, "decoder_embed": None,
                                   "head": None})


def writer(tree: c.Transformer) -> c.Transformer:
    """Return the decoder of a pair alone."""
    return tree.model_copy(update={"encoder": None, "embed": tree.output_embed, "decoder_embed": None, "pooler": None,
                                   "encoder_dim": None})


def plain(nested: Document) -> dict[str, Any]:
    """Return a part's config without what older ones say beside."""
    return {name: value for name, value in nested.items()
            if name not in OLDER_GENERATION and not (name in NEUTRAL and value == NEUTRAL[name])}


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


def prefixed(rules: Rules, ours: Mapping[str, str], base: str, side: str) -> Rules:
    """Return the rules of a pair's side under its names; what the pair has not of it, a file may hold beside.

    `ours` says what stands for the beginnings of our names.
    """
    def theirs(name: str) -> str:
        return side + name.replace("@", base)

    found, beside = [], [*map(theirs, rules.spare)]
    for _, rule in rules.rules:
        first, _, rest = rule.ours.partition(".")
        if first not in ours:
            beside += map(theirs, rule.foreign)
        else:
            found.append(replace(rule, ours=f"{ours[first]}.{rest}", theirs=tuple(map(theirs, rule.foreign)),
                                 instead=rule.instead and theirs(rule.instead)))
    return Rules(found, ignored=beside,
                 tables=[replace(table, name=theirs(table.name)) for table in rules.tables])


READS, WRITES = ({name: name for name in ("embed", "encoder", "pooler")},
                 {"embed": "decoder_embed", "decoder": "decoder", "head": "head"})


def pair_names(document: Document, encoders: Parts, decoders: Parts) -> Callable[[c.Transformer], Rules]:
    """Return what gives the weight names of the two families that a config names, for a tree."""
    (first, reads), (second, writes) = (part("encoder", document.get("encoder"), encoders),
                                        part("decoder", document.get("decoder"), decoders))

    def names(tree: c.Transformer) -> Rules:
        sides = (prefixed(first.rules(reader(tree), reads), READS, first.base_of(reads), "encoder."),
                 prefixed(second.rules(writer(tree), writes), WRITES, second.base_of(writes), "decoder."))
        own = [rule for side in sides for _, rule in side.rules]
        return Rules([*own, Rule("bridge.{p}", "enc_to_dec_proj.{p}")], tables=[*sides[0].tables, *sides[1].tables],
                     ignored=[*sides[0].spare, *sides[1].spare])

    return names


def side_key(side: str, parts: Parts, alone: Callable[[c.Transformer], c.Transformer]) -> Key:
    """Return the key of a side's config; `alone` takes it out of a pair."""
    return Key(side, (), argument=side, ours=lambda nested: made(side, nested, parts),
               kept=lambda tree, said: written(alone(tree), said, parts))
