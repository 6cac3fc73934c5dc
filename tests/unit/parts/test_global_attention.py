"""Sliding windows with global tokens, against the definition pair by pair in float64."""

from __future__ import annotations

import pytest
import torch
from tests.laws import zoo
from tests.tolerances import PART, assert_close
from torch import Tensor

from saucier import config as c
from saucier.errors import InputError
from saucier.model import Transformer
from saucier.parts.attention import SelfAttention

LENGTH, REACH, DIM, HEADS = 11, 2, 12, 3
VISIBILITY = c.Window(REACH + 1) | c.Global()
ATTENTION = c.SelfAttention(projection=c.Projection(heads=HEADS), visibility=VISIBILITY, global_maps=c.GlobalMaps())


def first_attention(model: Transformer) -> SelfAttention:
    """Return the attention of the first block."""
    assert model.encoder is not None
    return model.encoder.blocks[0]["attention"].inner


def naive(part: SelfAttention, x: Tensor, named: list[int], real: int) -> tuple[Tensor, Tensor]:
    """One row by the words of the paper (§3.1): each query on its own. Shapes: x [L, D] -> [L, D], [H, L, L]."""
    def maps(linear: torch.nn.Linear) -> list[Tensor]:
        made = x @ linear.weight.T + linear.bias
        return [piece.view(len(x), HEADS, -1) for piece in made.chunk(3, dim=-1)]

    near, far = maps(part.qkv), maps(part.global_qkv)
    rows, weights = torch.zeros_like(x), torch.zeros(HEADS, len(x), len(x), dtype=x.dtype)
    for query in range(real):
        keys = [key for key in range(real) if query in named or key in named or abs(key - query) <= REACH]
        queries, all_keys, values = far if query in named else near
        for head in range(HEADS):
            scores = torch.stack([queries[query, head] @ all_keys[key, head] for key in keys]) / (DIM // HEADS) ** 0.5
            share = scores.softmax(0)
            weights[head, query, keys] = share
            rows[query, head * (DIM // HEADS):][:DIM // HEADS] = share @ values[keys, head]
    return rows @ part.out.weight.T + part.out.bias, weights


@pytest.mark.parametrize("real", [LENGTH, LENGTH - 3])
@pytest.mark.parametrize("named", [[], [0], [1, 5, 6]])
def test_global_tokens_by_definition(named: list[int], real: int) -> None:
    """Outputs, and the published form of the weights, of a row whose other row has one global token more."""
    model = zoo.scrambled(zoo.encoder(ATTENTION, layers=1).model_copy(update={"dim": DIM})).double()
    seen: dict[str, Tensor] = {}
    part = first_attention(model)
    part.register_forward_hook(lambda module, given, made: seen.update(x=given[0], made=made))
    ids = zoo.tokens(model.config, 2, LENGTH)
    mask = (torch.arange(LENGTH) < torch.tensor([[real], [LENGTH]])).long()
    chosen = torch.zeros(2, LENGTH, dtype=torch.long)
    chosen[0, named], chosen[1, [*named, 9]] = 1, 1
    output = model(ids, mask, global_attention_mask=chosen, output_attentions=True)
    rows, weights = naive(part, seen["x"][0], named, real)
    assert_close(seen["made"][0, :real], rows[:real], 1e-12)
    local, far = output.attentions[0][0], output.global_attentions[0][0]
    most, padded = len(named) + 1, -(-LENGTH // (2 * REACH)) * 2 * REACH
    assert local.shape == (HEADS, LENGTH, most + 2 * REACH + 1)
    assert far.shape == (HEADS, padded, most)
    assert_close(far[:, :LENGTH, :len(named)], weights[:, named].transpose(1, 2), 1e-12)
    assert_close(far[:, :, len(named)], torch.full((HEADS, padded), 1 / padded, dtype=torch.float64), 1e-12)
    for query in range(real):
        if query in named:
            assert not local[:, query].any()
            continue
        assert_close(local[:, query, :len(named)], weights[:, query, named], 1e-12)
        for step in range(-REACH, REACH + 1):
            key = query + step
            wanted = weights[:, query, key] if 0 <= key < LENGTH and key not in named else torch.zeros(HEADS).double()
            assert_close(local[:, query, most + REACH + step], wanted, 1e-12)
    assert not local[:, real:].any()


def test_a_batch_without_global_tokens_is_a_sliding_window() -> None:
    """The maps for global tokens then do nothing, and are not recorded."""
    model = zoo.scrambled(zoo.encoder(ATTENTION))
    plain = ATTENTION.model_copy(update={"visibility": c.Window(REACH + 1), "global_maps": None})
    other = zoo.scrambled(zoo.encoder(plain))
    other.load_state_dict({key: value for key, value in model.state_dict().items() if "global" not in key})
    ids = zoo.tokens(model.config, 2, LENGTH)
    output = model(ids, output_attentions=True)
    assert output.global_attentions is None
    assert output.attentions[0].shape[-1] == 2 * REACH + 1
    assert_close(output.last_hidden_state, other(ids).last_hidden_state, PART)


def test_tokens_are_found_by_the_separators() -> None:
    """Question tokens stand before the first of three separators, the text's behind the second."""
    ids = torch.tensor([[9, 8, 2, 2, 7, 6, 5, 2], [9, 2, 2, 4, 7, 6, 5, 2]])
    masks = {c.AtSeparator(kind="before_separator", token=2): [[1, 1, 0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0]],
             c.AtSeparator(kind="after_separator", token=2): [[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1, 1]],
             c.AtMostFirst(kind="first_token"): [[1, 0, 0, 0, 0, 0, 0, 0]] * 2}
    for tokens, mask in masks.items():
        visibility = c.Window(2) | c.Global(otherwise=tokens)
        model = zoo.scrambled(zoo.encoder(ATTENTION.model_copy(update={"visibility": visibility})))
        found = model(ids).last_hidden_state
        assert_close(found, model(ids, global_attention_mask=torch.tensor(mask)).last_hidden_state)
        assert not torch.allclose(found, model(ids, global_attention_mask=torch.zeros_like(ids)).last_hidden_state)


def test_what_cannot_be_found_is_refused() -> None:
    """Rows with two separators, masks of another length, models without global tokens."""
    visibility = c.Window(2) | c.Global(otherwise=c.AtSeparator(kind="before_separator", token=2))
    model = zoo.scrambled(zoo.encoder(ATTENTION.model_copy(update={"visibility": visibility})))
    ids = torch.tensor([[9, 8, 2, 7, 2]])
    with pytest.raises(InputError, match="separators"):
        model(ids)
    with pytest.raises(InputError, match="global_attention_mask"):
        model(ids, global_attention_mask=torch.ones(1, 4, dtype=torch.long))
    with pytest.raises(InputError, match="no global tokens"):
        zoo.scrambled(zoo.family("bert"))(ids, global_attention_mask=torch.ones_like(ids))


def test_maps_without_global_tokens_are_refused() -> None:
    """And in a decoder, and beside positions in the attention."""
    cases = (zoo.encoder(ATTENTION.model_copy(update={"visibility": c.Window(3)})), zoo.decoder(ATTENTION),
             zoo.encoder(ATTENTION.model_copy(update={"positions": c.Rotary()})))
    for config in cases:
        with pytest.raises(InputError, match="global_maps"):
            c.check(config)


@pytest.mark.parametrize("shape", [(3, LENGTH), (LENGTH,), (2, 1, LENGTH)])
def test_a_mask_of_other_rows_is_refused(shape: tuple[int, ...]) -> None:
    """Every row of tokens has its row of the mask, or all have the same one."""
    model = zoo.scrambled(zoo.encoder(ATTENTION, layers=1).model_copy(update={"dim": DIM}))
    ids, chosen = zoo.tokens(model.config, 2, LENGTH), torch.zeros(1, LENGTH, dtype=torch.long)
    chosen[:, 3] = 1
    once, twice = (model(ids, global_attention_mask=one).last_hidden_state for one in (chosen, chosen.expand(2, -1)))
    assert_close(once, twice, PART)
    with pytest.raises(InputError, match=r"global_attention_mask: shape .* does not go with input_ids of \[2, 11\]"):
        model(ids, global_attention_mask=torch.zeros(shape, dtype=torch.long))
