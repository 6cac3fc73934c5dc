"""A decoder that uses the weights of the encoder: both have the same blocks, but for what the decoder alone has."""

from __future__ import annotations

from saucier.config.layers import FromNorm, Residual, SelfAttention
from saucier.config.model import Block, Stack, Transformer
from saucier.config.positions import NoPositions
from saucier.config.visibility import Full
from saucier.errors import InputError


def check_tied(config: Transformer) -> None:
    """Raise `InputError` where the stacks have no weights that they could share."""
    if config.encoder and config.encoder.tied:
        raise InputError("the encoder has no weights to be tied to", where="encoder.tied",
                         remedy="use tied: true in the decoder only")
    if config.decoder is None or not config.decoder.tied:
        return
    if config.encoder is None:
        raise InputError("there is no encoder whose weights could be used", where="decoder.tied",
                         remedy="use tied: false, or add an encoder")
    if laid_out(config.encoder) != laid_out(config.decoder):
        raise InputError("the blocks of the stacks are laid out in different ways", where="decoder.tied",
                         remedy="give both stacks the same kind of layers and the same number of them")
    pairs = zip(config.encoder.blocks(), config.decoder.blocks(), strict=True)
    for number, (lender, borrower) in enumerate(dict.fromkeys(pairs)):
        check_blocks(f"decoder.blocks.{number}", lender, borrower)


def laid_out(stack: Stack) -> dict[str, object]:
    """Return how the blocks of a stack stand, without what is in them."""
    plain: dict[str, object] = stack.layers.model_dump(exclude={"block", "blocks"})
    return plain | {"turn": len(stack.blocks())}


def check_blocks(where: str, lender: Block, borrower: Block) -> None:
    """What both blocks have is of the same shape."""
    if lender.bottleneck or borrower.bottleneck:
        raise InputError("blocks with a bottleneck do not share weights between stacks", where=where,
                         remedy="use tied: false")
    own = [plain(one) for one in borrower.sublayers]
    if sum(own.count(plain(one)) for one in lender.sublayers) != len(lender.sublayers):
        raise InputError("the decoder has not just the sublayers of the encoder, each once", where=where,
                         remedy="give it the encoder's with the same widths and norms, and cross_attention beside them")


def plain(residual: Residual) -> Residual | FromNorm:
    """Return a sublayer without what may differ where the weights are the same: who sees whom, positions, dropout."""
    inner = residual.inner
    if isinstance(inner, SelfAttention):
        kernel = inner.kernel.model_copy(update={"dropout": 0.0})
        inner = inner.model_copy(update={"positions": NoPositions(), "visibility": Full(), "kernel": kernel})
    return residual.model_copy(update={"inner": inner, "dropout": 0.0})
