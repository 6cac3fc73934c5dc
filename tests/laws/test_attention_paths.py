"""The two ways through attention, fused and step by step with weights, are one function, also in training."""

from __future__ import annotations

import pytest
import torch
from tests.laws.zoo import attentions, everything, longest, scrambled, tokens, without_dropout
from tests.tolerances import MODEL, assert_close

from saucier import config as c
from saucier.config.questions import counts_repeats
from saucier.model import Transformer
from saucier.parts.output import Output

MODELS = everything()


def run(model: Transformer, *, weights: bool) -> Output:
    """Run on two rows, one of them padded; an encoder-decoder gets them on both sides."""
    ids = tokens(model.config, 2, longest(model.config))
    mask = torch.ones_like(ids)
    mask[1, -1] = 0  # little enough padding for rows not to be packed
    target = {"decoder_input_ids": ids.flip(1)} if model.config.encoder and model.config.decoder else {}
    return model(ids, mask, **target, output_attentions=weights,
                 output_hidden_states=weights)  # type: ignore[no-any-return]


@pytest.mark.sampled
@pytest.mark.parametrize("name", MODELS)
def test_returning_weights_changes_nothing(name: str) -> None:
    """Logits and hidden vectors are the same whether or not the weights are asked for."""
    model = scrambled(MODELS[name])
    plain, told = run(model, weights=False), run(model, weights=True)
    real = slice(None, -1)  # the padded position of row 1 is nobody's business
    assert_close(told.last_hidden_state[:, real], plain.last_hidden_state[:, real])
    assert plain.attentions is None
    assert plain.decoder_attentions is None


@pytest.mark.sampled
@pytest.mark.parametrize("name", MODELS)
def test_weights_are_weights(name: str) -> None:
    """One tensor for each attention; they are not negative, sum to one, and are zero on padding."""
    model = scrambled(MODELS[name])
    output = run(model, weights=True)
    groups = [output.attentions, output.encoder_attentions, output.decoder_attentions, output.cross_attentions]
    found = [weights for group in groups for weights in group or ()]
    stacks = [stack for stack in (model.config.encoder, model.config.decoder) if stack]
    inner = [residual.inner for stack in stacks for block in stack.blocks() for residual in block.sublayers]
    recurrent = [part for part in inner if isinstance(part, c.Recurrent) and part.attention]
    expected = sum("attention" in part.kind for part in inner) + len(recurrent)
    assert len(found) == expected
    local = any(part.attention.kind == "luong" and part.attention.reach.kind != "global" for part in recurrent)
    once = [not counts_repeats(attention.visibility) for attention in attentions(model.config)] + [not local]
    signed = any(isinstance(one.kernel, c.Nystrom) for one in attentions(model.config))  # products with an inverse
    for weights in found:
        assert signed or (weights >= 0).all()
        elsewhere = 0 if output.global_attentions is None else 1  # the weights of the first token, which is global
        if all(once) and not signed:  # the weight of a key that counts several times is that of one of them
            rows = weights[0, :, elsewhere:].sum(-1)
            assert_close(rows, rows.new_ones(rows.shape))
    padded = [*(output.encoder_attentions or output.attentions or ()), *(output.cross_attentions or ())]
    length = longest(model.config)  # the weights of sliding windows stand by distance, not by key
    # Where a batch may hide keys from single queries, what is padded or hidden still sees itself.
    itself = any(c.hides_keys(residual.inner.visibility) for stack in stacks for block in stack.blocks()
                 for residual in block.sublayers if isinstance(residual.inner, c.SelfAttention))
    assert all(not weights[1, :, :-1 if itself else None, -1].any() for weights in padded
               if weights.shape[-1] == length)


@pytest.mark.sampled
@pytest.mark.parametrize("name", MODELS)
def test_hidden_states_run_from_embedding_to_output(name: str) -> None:
    """One more hidden state than blocks; the first is the embedding, the last is the output.

    Of two streams the second alone is recorded, and their norm is not; a mix of the encoder's is its output.
    """
    model = scrambled(MODELS[name])
    output = run(model, weights=True)
    two = model.config.encoder is not None and model.config.decoder is not None
    states = output.decoder_hidden_states if two else output.hidden_states
    stack = model.config.decoder or model.config.encoder
    assert states is not None
    assert stack is not None
    ends = isinstance(stack.layers, c.Funnel)  # its pooled vectors are shown too, before they are repeated
    assert len(states) == len(stack.blocks()) + 1 + ends
    if stack.residual.kind == "one":
        assert torch.equal(states[-1], output.last_hidden_state)
    if two:
        assert output.encoder_hidden_states is not None
        states = output.encoder_hidden_states
        assert torch.equal(states[-1] if model.mix is None else model.mix(states), output.encoder_last_hidden_state)


@pytest.mark.sampled
@pytest.mark.parametrize("name", MODELS)
def test_both_paths_have_the_same_gradients(name: str) -> None:
    """In training mode, without dropout, each path gives every parameter the same gradient."""
    model = scrambled(without_dropout(MODELS[name])).train()
    first, second = gradients(model, weights=False), gradients(model, weights=True)
    assert first.keys() == second.keys()
    for key, expected in first.items():
        scale = max(1.0, float(expected.abs().max()))
        assert_close(second[key] / scale, expected / scale, MODEL, key)


def gradients(model: Transformer, *, weights: bool) -> dict[str, torch.Tensor]:
    """Return the gradients of a fixed projection of the real positions' hidden vectors."""
    model.zero_grad()
    states = run(model, weights=weights).last_hidden_state[:, :-1]
    (states * torch.randn(states.shape, generator=torch.Generator().manual_seed(1))).sum().backward()
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}
