"""Trees of published classes whose one stack may be an encoder or a decoder, and how one becomes the other."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.keys import Document, look_up, put


def crossed(tree: c.Transformer) -> bool:
    """Say whether the blocks of a stack read an encoder, too."""
    return any(isinstance(residual.inner, c.CrossAttention) for stack in ("encoder", "decoder")
               for residual in look_up(tree, f"{stack}.layers.block.sublayers") or ())


def with_cross(tree: c.Transformer, stack: str = "encoder") -> c.Transformer:
    """Return a tree whose blocks end with a cross-attention, like their self-attention in all but positions."""
    path = f"{stack}.layers.block.sublayers"
    sublayers = look_up(tree, path)
    inner = c.CrossAttention(projection=sublayers[0].inner.projection, kernel=sublayers[0].inner.kernel)
    made: c.Transformer = put(tree, path, (*sublayers, sublayers[0].model_copy(update={"inner": inner})))
    return made


def settle(tree: c.Transformer) -> c.Transformer:
    """Put an encoder that sees only the past into the decoder's place, where generation and its cache look for it."""
    stack = tree.encoder
    if stack is None or tree.decoder is not None or not sees_past_only(stack):
        return tree
    return turned(tree.model_copy(update={"encoder": None, "decoder": stack}), "decoder")


def restore(tree: c.Transformer) -> c.Transformer:
    """The inverse of `settle`."""
    if tree.encoder is not None:
        return tree
    return turned(tree.model_copy(update={"encoder": tree.decoder, "decoder": None}), "encoder")


def turned(tree: c.Transformer, stack: str) -> c.Transformer:
    """Exchange the second and third sublayer of each block, where there are three."""
    match look_up(tree, f"{stack}.layers.block.sublayers"):
        case (first, second, third):
            return put(tree, f"{stack}.layers.block.sublayers", (first, third, second))  # type: ignore[no-any-return]
        case _:
            return tree


def sees_past_only(stack: c.Stack) -> bool:
    """Say whether no self-attention of a stack sees a later token."""
    return all(c.is_causal(part.visibility) for part in stack.attentions())


def as_decoder(tree: c.Transformer, document: Document) -> c.Transformer:
    """The encoder with its language head as a decoder that sees no later token."""
    seen: c.Transformer = put(tree, "encoder.layers.*.sublayers.0.inner.visibility", c.Causal())
    return seen.model_copy(update={"encoder": None, "decoder": seen.encoder, "pooler": None,
                                   "head": tree.language_head})


def as_encoder(tree: c.Transformer) -> c.Transformer:
    """The inverse of `as_decoder`, as far as keys look."""
    return tree if tree.decoder is None else tree.model_copy(update={"encoder": tree.decoder, "decoder": None})


def one_table(tree: c.Transformer) -> bool:
    """Say whether both sides read one token table."""
    return tree.decoder_embed is None or tree.decoder_embed.tied


def tied_output(tree: c.Transformer) -> bool:
    """Say whether the output layer is the token table; without one, whether there is one table."""
    return one_table(tree) if tree.language_head is None else tree.language_head.tied


def decoder_alone(tree: c.Transformer, document: Document) -> c.Transformer:
    """The decoder without cross-attention, with a token table and an output layer of its own."""
    own, _, feed_forward = look_up(tree, "decoder.layers.block.sublayers")
    embed = (tree.decoder_embed or tree.embed).model_copy(update={"tied": False})
    alone: c.Transformer = put(tree, "decoder.layers.block.sublayers", (own, feed_forward))
    return alone.model_copy(update={"encoder": None, "embed": embed, "decoder_embed": None, "default_target": None,
                                    "head": c.LanguageHead(tied=tied_output(tree))})


def both_sides(tree: c.Transformer) -> c.Transformer:
    """The inverse of `decoder_alone`, as far as keys look."""
    match look_up(tree, "decoder.layers.block.sublayers"):
        case (own, *_, feed_forward) if tree.encoder is None:
            both: c.Transformer = put(tree.model_copy(update={"encoder": tree.decoder}),
                                      "decoder.layers.block.sublayers", (own, own, feed_forward))
            return both
        case _:
            return tree
