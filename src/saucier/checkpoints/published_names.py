"""What a folder in a published layout says before its weights are read: their names, what its class lacks, whether its
output layer is tied, and the defaults of generation. No torch: a source gives tensors of torch, or arrays of numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saucier import config as c
from saucier.checkpoints.fields import GENERATION, OLDER_GENERATION, SPECIAL_IDS, look_up, put
from saucier.checkpoints.layout import Layout, published_tree
from saucier.checkpoints.weight_names import Rule, Rules, Twins
from saucier.config.counting.model import parameters
from saucier.errors import InputError
from saucier.files import read_json

if TYPE_CHECKING:
    from saucier.checkpoints.adapter_folder import Source

BASE = "@"
"""Replaces in rules the prefix that classes with a head put before the body's names."""
LANGUAGE_HEADS = ("head", "head.language")
"""Where a tree may have a language head."""
UNSAID_TOP_K = 50
"""From how many tokens the reference draws where a folder that asks for drawing does not say it."""


@dataclass(frozen=True)
class PublishedNames:
    """The weight names of one published class."""

    layout: Layout
    tree: c.Transformer
    published: str

    @cached_property
    def rules(self) -> Rules:
        """The rules of body and head."""
        return self.layout.rules(self.tree, self.published)

    def present(self, template: str, source: Source, instead: str | None = None) -> str | None:
        """Return the name that is in the file, with one of the prefixes of the body or without it.

        `instead`: another name, of a file that has not the first.
        """
        bases = (self.layout.base_of(self.published), *self.layout.bases)
        names = (one.replace(BASE, base) for one in (template, instead) if one for base in bases)
        return next((name for name in names if name in source), None)

    def spare(self, name: str) -> bool:
        """Say whether an unused tensor may be left: a known copy, or a part of the family that this class has not."""
        short = [BASE + name.removeprefix(base) for base in self.layout.bases if name.startswith(base)]
        return any(self.layout.knows(one, self.tree) for one in (name, *short))


def resolve_names(layout: Layout, document: Mapping[str, Any], published: str, source: Source,
                  where: str) -> PublishedNames:
    """Return the tree of a published config as one of its classes, as far as the files hold weights for it, and the
    names of these.

    Raises `InputError` for a config that makes no model, or one larger than the files.
    """
    layout = layout.choose_layout(layout, document)
    names = PublishedNames(layout, published_tree(layout, document, published, where), published)
    for fit in (drop_empty_slots, untie_as_stored):
        names = replace(names, tree=fit(names, source))
    check_size(names.tree, source, where)
    return names


def check_size(tree: c.Transformer, source: Source, where: str) -> None:
    """Refuse a config that describes far more than the files hold, before anything is allocated for it."""
    try:
        expected = parameters(tree)
    except ArithmeticError as error:
        raise InputError("the config describes a model too large to be counted", where=where,
                         remedy="copy the config again") from error
    if expected > source.size:  # a parameter takes two bytes at least
        raise InputError(f"the config describes {expected:,} parameters, and the files hold {source.size:,} bytes",
                         where=where, remedy="the weights do not belong to this config.json")


def drop_empty_slots(names: PublishedNames, source: Source) -> c.Transformer:
    """Return the tree without the parts that its class need not have and for which the file holds no weights."""
    tree = names.tree
    for slot in names.layout.classes[names.published].optional:
        known = [theirs.format(p=part) for rule in names.rules.rules if rule.ours.startswith(f"{slot}.")
                 for theirs in rule.foreign for part in ("weight", "bias")]
        has_weights = getattr(getattr(tree, slot), "dense", True)
        if has_weights and not any(names.present(name, source) for name in known):
            tree = tree.model_copy(update={slot: None})
    return tree


def untie_as_stored(names: PublishedNames, source: Source) -> c.Transformer:
    """Return the tree with its output layer untied, where the files hold another matrix than the token table."""
    place = next((place for place in LANGUAGE_HEADS if isinstance(look_up(names.tree, place), c.LanguageHead)), None)
    if place is None or not look_up(names.tree, place).tied:
        return names.tree
    untied = names.layout.finish(put(names.tree, {f"{place}.tied": False}))
    own = replace(names, tree=untied)
    target = names.tree.decoder_embed
    embed = "decoder_embed" if target is not None and not target.tied else "embed"
    output = find_stored_name(own, f"{place}.weight", source)
    table = find_stored_name(own, f"{embed}.tokens.weight", source)
    if output is None or table is None or output == table:
        return names.tree
    first, second = source[output], source[table]
    return names.tree if first.shape == second.shape and bool((first == second).all()) else untied


def find_stored_name(names: PublishedNames, ours: str, source: Source) -> str | None:
    """Return the name under which the files hold one of our parameters, or the first part of it."""
    match = names.rules.match(ours)
    return None if match is None else names.present(match.foreign[0], source, match.instead)


def find_stored_names(names: PublishedNames, rule: Rule, source: Source) -> list[str | None]:
    """Return the names under which the files hold what a rule reads, each None where it is missing; of twins the ones
    that are there, if any is.
    """
    found = [names.present(template, source, rule.instead) for template in rule.foreign]
    return [name for name in found if name] if isinstance(rule.operation, Twins) and any(found) else found


def read_generation_defaults(folder: Path, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what generation reads: generation_config.json, or else the config."""
    path = folder / "generation_config.json"
    said = {name: value for name, value in read_json(path).items() if name != "transformers_version"} \
        if path.is_file() else read_config_defaults(document)
    found = {name: value for name, value in said.items() if value is not None}
    return {**found, "top_k": UNSAID_TOP_K} if unlimited_top_k(found) else found


def unlimited_top_k(generation: Mapping[str, Any]) -> dict[str, Any]:
    """Return what says that all tokens are drawn from, where options ask for drawing and name no number of tokens."""
    return {"top_k": 0} if generation.get("do_sample") is True and generation.get("top_k") is None else {}


def read_config_defaults(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what generation reads in a config: its own fields, and what its decoder's config adds."""
    decoder = document.get("decoder")
    inside = decoder if isinstance(decoder, Mapping) else {}
    return {**{name: inside.get(name) for name in (*SPECIAL_IDS, *OLDER_GENERATION)},
            **{name: document[name] for name in (*SPECIAL_IDS, *GENERATION) if document.get(name) is not None}}
