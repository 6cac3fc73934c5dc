"""Which linear maps and parameters of a built model a rewrite changes: by role or by name; and putting modules in
their place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from torch import nn

from saucier.adaptation.tuning import Where
from saucier.errors import InputError, suggest_name
from saucier.expressions import compile_expression
from saucier.model import Transformer
from saucier.parts.attention import CrossAttention, SelfAttention
from saucier.parts.feed_forward import FeedForward, GatedFeedForward
from saucier.parts.hashing import HashedAttention
from saucier.parts.norms import NoNorm


def swap_modules(model: nn.Module, replaced: Mapping[int, nn.Module]) -> None:
    """Put other modules in the place of some, by their ids, wherever these are: stacks may share modules."""
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if child is not None and id(child) in replaced and replaced[id(child)] is not parent:
                parent._modules[name] = replaced[id(child)]


WHOLE = "whole"
ROLES = ("query", "key", "value", "output", "up", "gate", "down", "qkv", "attention", "feed_forward", "linear",
         "tokens")
GROUPS = ("embeddings", "head", "norms", "biases")
"""Terms for parameters that are no linear maps."""


@dataclass(frozen=True, slots=True)
class TargetMap:
    """A linear map, or some rows of a matrix that holds several."""

    module: str
    """Dotted name of the module that holds it."""
    part: str
    """What the rows are; `whole` for all of them."""
    start: int
    """First row."""
    rows: int
    roles: frozenset[str]

    @property
    def name(self) -> str:
        """Dotted name, with the part where it is one of several."""
        return self.module if self.part == WHOLE else f"{self.module}.{self.part}"


def list_targets(model: nn.Module) -> list[TargetMap]:
    """Return every linear map, whole and by parts, and the token table, each once; those outside stacks have no role.
    """
    found = [place for name, module in model.named_modules() for place in list_parts(name, module)]
    named = {place.module for place in found}
    for name, module in model.named_modules():
        if name not in named and is_target(module) and not inside_addition(model, name):
            roles = frozenset(("linear",) if name.startswith(("encoder.", "decoder.")) else ())
            rows: int = module.out_features  # a linear map's
            found.append(TargetMap(name, WHOLE, 0, rows, roles))
    first: dict[int, str] = {}
    for place in found:  # stacks may share maps
        first.setdefault(id(model.get_submodule(place.module)), place.module)
    return [place for place in found if place.module in first.values()]


def is_target(module: nn.Module) -> bool:
    """Say whether a module is a linear map: `nn.Linear`, or what a rewrite put in its place."""
    return isinstance(module, nn.Linear) or (getattr(module, "rewritten", False) and hasattr(module, "out_features"))


def inside_addition(model: nn.Module, name: str) -> bool:
    """Say whether a module was added by a rewrite, or is the map inside a rewrite."""
    parents = [name.rsplit(".", cut)[0] for cut in range(1, name.count(".") + 1)]
    return any(getattr(model.get_submodule(parent), "rewritten", False) for parent in parents)


MAPS: Mapping[type[nn.Module], tuple[str, Mapping[str, Sequence[str]]]] = {
    SelfAttention: ("attention", {"qkv": ("query", "key", "value"), "out": ("output",)}),
    HashedAttention: ("attention", {"qkv": ("query", "value"), "out": ("output",)}),
    CrossAttention: ("attention", {"q": ("query",), "kv": ("key", "value"), "out": ("output",)}),
    GatedFeedForward: ("feed_forward", {"up": ("gate", "up"), "down": ("down",)}),
    FeedForward: ("feed_forward", {"up": ("up",), "down": ("down",)}),
}
"""Module of ours -> what its maps are for, and the roles of the rows of each, in order."""


def list_parts(name: str, module: nn.Module) -> Iterator[TargetMap]:
    """Yield the maps that a module of ours has, with what they are for."""
    group, maps = next((found for kind, found in MAPS.items() if isinstance(module, kind)), ("", {}))
    for attribute, parts in maps.items():
        path, held = f"{name}.{attribute}", getattr(module, attribute)
        if not is_target(held):  # of a bottleneck, which are two maps
            continue
        rows = [held.out_features // len(parts)] * len(parts)
        if isinstance(module, SelfAttention) and attribute == "qkv":
            rows = [module.widths[0], module.widths[1], module.widths[1]]
        if len(parts) > 1:
            yield TargetMap(path, WHOLE, 0, sum(rows), frozenset({attribute} & {"qkv"}))
        for number, part in enumerate(parts):
            yield TargetMap(path, part if len(parts) > 1 else WHOLE, sum(rows[:number]), rows[number],
                            frozenset((part, group, "linear")))
    if isinstance(module, Transformer) and hasattr(module.embed.tokens, "num_embeddings"):
        yield TargetMap("embed.tokens", WHOLE, 0, module.embed.tokens.num_embeddings, frozenset(("tokens",)))


def select_targets(model: nn.Module, where: Where) -> list[TargetMap]:
    """Return the maps that terms mean, in the model's order.

    Raises `InputError` for an unknown role, a term that meets nothing, and a matrix meant both whole and in parts.
    """
    known = list_targets(model)
    chosen: dict[str, TargetMap] = {}
    for term in where:
        target = term.removeprefix("!")
        if is_word(target) and target not in ROLES:
            raise InputError(f"unknown role {target!r}", where="tuning.where", remedy=suggest_name(target, [*ROLES]))
        met = [one for one in known if target in one.roles] if is_word(target) else match_names(known, target)
        if not met:
            roles = [role for role in ROLES if any(role in place.roles for place in known)]
            raise InputError(f"{target!r} meets no map of this model", where="tuning.where",
                             remedy=f"roles: {', '.join(roles)}; names look like {known[1].name}")
        for place in met:
            if term.startswith("!"):
                chosen.pop(place.name, None)
            else:
                chosen[place.name] = place
    if twice := {place.module for place in chosen.values() if place.part == WHOLE} & {
            place.module for place in chosen.values() if place.part != WHOLE}:
        raise InputError(f"{min(twice)} is meant both whole and in parts", where="tuning.where",
                         remedy="name the parts, or the whole matrix")
    if not chosen:
        raise InputError("no map is meant", where="tuning.where", remedy="name a role, such as query")
    return [place for place in known if place.name in chosen]


def is_word(term: str) -> bool:
    """Say whether a term is a plain word, so a role."""
    return re.fullmatch(r"\w+", term) is not None


def match_names(known: Sequence[TargetMap], term: str) -> list[TargetMap]:
    """Return the maps whose name a glob or a regular expression meets; of a matrix met whole, not its parts again."""
    meets = make_matcher(term)
    met = [place for place in known if meets(place.name)]
    whole = {place.module for place in met if place.part == WHOLE}
    return [place for place in met if place.part == WHOLE or place.module not in whole]


def make_matcher(term: str) -> Callable[[str], bool]:
    """Return the test of a glob, or of a regular expression between slashes. Raises `InputError` for a broken one."""
    if not (term.startswith("/") and term.endswith("/") and len(term) > 2):
        return lambda name: fnmatchcase(name, term)
    return compile_expression(term[1:-1], "tuning.where")


def select_parameters(model: nn.Module, where: Where) -> set[str]:
    """Return the names of the parameters that terms mean: of maps by role, of groups, or by globs over their names.

    Raises `InputError` as `select`, and for a part of a matrix, which cannot be split.
    """
    chosen: set[str] = set()
    for term in where:
        met = match_parameters(model, term.removeprefix("!"))
        chosen = chosen - met if term.startswith("!") else chosen | met
    return chosen


def match_parameters(model: nn.Module, term: str) -> set[str]:
    """Return the names of the parameters that one term means."""
    names = [name for name, _ in model.named_parameters()]
    if term in GROUPS:
        return group_targets(model, term)  # a model may lack one: nothing to freeze then
    if not is_word(term):
        meets = make_matcher(term)
        met = {name for name in names if meets(name)}
    else:
        rows: dict[str, int] = {}
        for place in select_targets(model, (term,)):
            rows[place.module] = rows.get(place.module, 0) + place.rows
        for module, count in rows.items():
            if count != model.get_submodule(module).out_features and term != "tokens":
                raise InputError(f"{term} is a part of {module}, which is one matrix", where="tuning.where",
                                 remedy="name the whole matrix, or all of its parts")
        met = {name for name in names if name.rsplit(".", 1)[0] in rows}
    if not met:
        raise InputError(f"{term!r} meets no parameter of this model", where="tuning.where",
                         remedy=f"groups: {', '.join(GROUPS)}; names look like {names[-1]}")
    return met


def group_targets(model: nn.Module, name: str) -> set[str]:
    """Return the names of a group of parameters."""
    names = [one for one, _ in model.named_parameters()]
    match name:
        case "embeddings":
            return {one for one in names if one.startswith(("embed.", "decoder_embed."))}
        case "head":
            return {one for one in names if one.startswith("head.")}
        case "biases":
            return {one for one in names if one.endswith("bias")}
        case _:
            return {f"{module}.{end}" for module, one in model.named_modules()
                    if isinstance(one, nn.LayerNorm | nn.RMSNorm | NoNorm) for end, _ in one.named_parameters()}
