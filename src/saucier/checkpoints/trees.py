"""Config trees of published classes: stacks of equal blocks or with experts in every n-th, an encoder as a
decoder and back, and two models as one encoder-decoder.

Not here: which layouts may be half of a pair; `families.encoder_decoder` says that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from saucier import config as c
from saucier.checkpoints.fields import NEUTRAL, OLDER_GENERATION, Document, Key, look_up, put
from saucier.checkpoints.layout import Layout
from saucier.checkpoints.weight_names import Rule, Rules
from saucier.config.blocks import arrange_blocks
from saucier.errors import InputError

NormPlacement = type[c.PreNorm] | type[c.PostNorm] | type[c.FromNorm]


def repeat_block(layers: int, *inner: Any, place: NormPlacement = c.PostNorm, norm: c.Norm | None = None,
                 dropout: float = 0.0, **rest: Any) -> c.Stack:
    """Return a stack of equal blocks, each of these sublayers in residuals of one kind; `rest`: fields of the stack."""
    block = c.Block(sublayers=tuple(place(inner=part, norm=norm or c.LayerNorm(), dropout=dropout) for part in inner))
    return c.Stack(layers=c.Repeat(block=block, times=layers), **rest)


def add_experts(stack: c.Stack, experts: c.Experts, layers: int, step: int) -> c.Stack:
    """Return a stack of `layers` layers, those with experts in their places, in the shortest turn."""
    dense = stack.blocks()[0]
    many = c.Block(sublayers=(*dense.sublayers[:-1], dense.sublayers[-1].model_copy(update={"inner": experts})))
    blocks = [many if step == 1 or (step > 0 and layer % step == 1) else dense for layer in range(layers)]
    return stack.model_copy(update={"layers": arrange_blocks(tuple(blocks))})


def find_expert_step(stack: c.Stack | None) -> int | None:
    """Return how many layers lie between those with experts: the inverse of `add_experts`."""
    if stack is None:
        return None
    found = list_expert_layers(stack)
    if len(found) == len(stack.blocks()):
        return 1
    return found[1] - found[0] if len(found) > 1 else len(found) * len(stack.blocks())


def list_expert_layers(stack: c.Stack | None) -> list[int]:
    """Return the numbers of the layers with experts."""
    blocks = stack.blocks() if stack else []
    return [number for number, block in enumerate(blocks) if isinstance(block.sublayers[-1].inner, c.Experts)]


def has_cross_attention(tree: c.Transformer) -> bool:
    """Say whether the blocks of a stack read an encoder, too."""
    return any(isinstance(residual.inner, c.CrossAttention) for stack in ("encoder", "decoder")
               for residual in look_up(tree, f"{stack}.layers.block.sublayers") or ())


def add_cross_attention(tree: c.Transformer, stack: str = "encoder") -> c.Transformer:
    """Return a tree whose blocks end with a cross-attention, like their self-attention in all but positions."""
    path = f"{stack}.layers.block.sublayers"
    sublayers = look_up(tree, path)
    inner = c.CrossAttention(projection=sublayers[0].inner.projection, kernel=sublayers[0].inner.kernel)
    return put(tree, {path: (*sublayers, put(sublayers[0], {"inner": inner}))})


def move_to_decoder(tree: c.Transformer) -> c.Transformer:
    """Put an encoder that sees only the past into the decoder's place, where generation and its cache look for it."""
    stack = tree.encoder
    if stack is None or tree.decoder is not None or not all(c.is_causal(one.visibility) for one in stack.attentions()):
        return tree
    return swap_sublayers(tree.model_copy(update={"encoder": None, "decoder": stack}), "decoder")


def move_to_encoder(tree: c.Transformer) -> c.Transformer:
    """The inverse of `move_to_decoder`, and of `as_decoder` as far as keys look."""
    if tree.encoder is not None:
        return tree
    return swap_sublayers(tree.model_copy(update={"encoder": tree.decoder, "decoder": None}), "encoder")


def swap_sublayers(tree: c.Transformer, stack: str) -> c.Transformer:
    """Exchange the second and third sublayer of each block, where there are three."""
    match look_up(tree, f"{stack}.layers.block.sublayers"):
        case (first, second, third):
            return put(tree, {f"{stack}.layers.block.sublayers": (first, third, second)})
        case _:
            return tree


def as_decoder(tree: c.Transformer, document: Document | None = None) -> c.Transformer:
    """The encoder with its language head as a decoder that sees no later token."""
    return move_to_decoder(put(tree, {"encoder.layers.*.sublayers.0.inner.visibility": c.Causal(), "pooler": None,
                                      "head": tree.language_head}))


def shares_table(tree: c.Transformer) -> bool:
    """Say whether both sides read one token table."""
    return tree.decoder_embed is None or tree.decoder_embed.tied


def ties_output(tree: c.Transformer) -> bool:
    """Say whether the output layer is the token table; without one, whether there is one table."""
    return shares_table(tree) if tree.language_head is None else tree.language_head.tied


def decoder_alone(tree: c.Transformer, document: Document) -> c.Transformer:
    """The decoder without cross-attention, with a token table and an output layer of its own."""
    own, _, feed_forward = look_up(tree, "decoder.layers.block.sublayers")
    return put(tree, {
        "decoder.layers.block.sublayers": (own, feed_forward), "encoder": None, "decoder_embed": None,
        "embed": put(tree.output_embed, {"tied": False}), "default_target": None,
        "head": c.LanguageHead(tied=ties_output(tree))})


def both_sides(tree: c.Transformer) -> c.Transformer:
    """The inverse of `decoder_alone`, as far as keys look."""
    match look_up(tree, "decoder.layers.block.sublayers"):
        case (own, *_, feed_forward) if tree.encoder is None:
            return put(tree, {"encoder": tree.decoder, "decoder.layers.block.sublayers": (own, own, feed_forward)})
        case _:
            return tree


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

    `ours` says what stands for the beginnings of our names.
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


def make_pair_rules(document: Document, encoders: Parts, decoders: Parts) -> Callable[[c.Transformer], Rules]:
    """Return what gives the weight names of the two families that a config names, for a tree."""
    (first, reads), (second, writes) = (choose_part("encoder", document.get("encoder"), encoders),
                                        choose_part("decoder", document.get("decoder"), decoders))

    def names(tree: c.Transformer) -> Rules:
        sides = (side_rules(first.rules(take_encoder(tree), reads), READS, first.base_of(reads), "encoder."),
                 side_rules(second.rules(take_decoder(tree), writes), WRITES, second.base_of(writes), "decoder."))
        return Rules([*sides[0].rules, *sides[1].rules, Rule("bridge.{p}", "enc_to_dec_proj.{p}")],
                     tables=[*sides[0].tables, *sides[1].tables], ignored=[*sides[0].ignored, *sides[1].ignored])

    return names


def side_key(side: str, parts: Parts, alone: Callable[[c.Transformer], c.Transformer]) -> Key:
    """Return the key of a side's config; `alone` takes it out of a pair."""
    return Key(side, (), argument=side, ours=lambda nested: read_side(side, nested, parts),
               write_nested=lambda tree, said: write_side(alone(tree), said, parts))
