"""Decoding with a cache gives what one pass over the whole sequence gives."""

from __future__ import annotations

import pytest
import torch
from tests.laws.zoo import decoders, longest, of_any_future, of_any_place, pairs, runnable_recipes, scrambled, tokens
from tests.tolerances import assert_close
from torch import Tensor

from saucier import config as c
from saucier.model import Transformer
from saucier.parts.output import Cache
from saucier.recipes import recipe

WITH_RECIPES = {f"recipe-{name}": recipe(name).model for name in runnable_recipes()}
DECODERS = {**decoders(), **{name: config for name, config in WITH_RECIPES.items()
                             if config.decoder and not config.encoder and not config.decoder.memory}}
PAIRS = {name: config for name, config in (pairs() | WITH_RECIPES).items() if config.encoder and config.decoder
         and not isinstance(config.head, c.LengthHead)}  # a text that is written whole is read anew each time
PIECES = {"one by one": [1] * 12, "a prompt, then one by one": [6, 1, 1, 1, 1, 1, 1], "in pieces": [5, 3, 4]}


def pieces(sizes: list[int], length: int) -> list[tuple[int, int]]:
    """Return (start, end) of each piece of a sequence, cut off at its length."""
    ends = [min(sum(sizes[:i + 1]), length) for i in range(len(sizes))]
    return [(start, end) for start, end in zip([0, *ends], ends, strict=False) if end > start]


@pytest.mark.sampled
@pytest.mark.parametrize("sizes", PIECES.values(), ids=PIECES)
@pytest.mark.parametrize("name", of_any_future(DECODERS))
def test_decoder_with_cache_equals_without(name: str, sizes: list[int]) -> None:
    """Token by token, after a prompt, and in pieces of several tokens."""
    model = scrambled(DECODERS[name])
    ids = tokens(model.config, 3, longest(model.config))
    cache = model.new_cache(3, ids.shape[1] + 2)
    with torch.no_grad():
        found = [model(ids[:, start:end], cache=cache).logits for start, end in pieces(sizes, ids.shape[1])]
        assert_close(torch.cat(found, dim=1), model(ids).logits)
    assert cache.length == ids.shape[1]


@pytest.mark.sampled
@pytest.mark.parametrize("name", of_any_place(DECODERS))
def test_left_padded_rows_decode_from_a_cache(name: str) -> None:
    """A padded batch, continued token by token, gives what each row gives alone."""
    model = scrambled(DECODERS[name])
    full = longest(model.config)
    prompts, new = [full - 4, 2, 1], 4
    mask = (torch.arange(full - 4) >= full - 4 - torch.tensor(prompts)[:, None]).long()
    mask = torch.cat([mask, torch.ones(3, new, dtype=torch.long)], dim=1)
    ids, places = tokens(model.config, 3, full), (mask.cumsum(1) - 1).clamp(min=0)
    cache, found = model.new_cache(3, full), []
    with torch.no_grad():
        for start, end in pieces([full - 4, 1, 1, 1, 1], full):
            out = model(ids[:, start:end], mask[:, :end], places=places[:, start:end], cache=cache,
                        last_only=True)
            found.append(out.logits)
        for row, prompt in enumerate(prompts):
            whole = model(ids[row:row + 1, full - new - prompt:]).logits[0, prompt - 1:]
            assert_close(torch.cat([step[row] for step in found]), whole, what=f"row {row}")


@pytest.mark.sampled
@pytest.mark.parametrize("name", PAIRS)
def test_encoder_decoder_with_cache_equals_without(name: str) -> None:
    """The decoder's own keys grow; the encoder's are computed once, from padded sources."""
    model = scrambled(PAIRS[name])
    source, target = tokens(model.config, 3, 7), tokens(model.config, 3, 8, seed=1)
    mask = (torch.arange(7) < torch.tensor([7, 2, 5])[:, None]).long()
    cache, found = model.new_cache(3, 8), []
    with torch.no_grad():
        whole = model(source, mask, decoder_input_ids=target)
        states = whole.encoder_last_hidden_state
        for start, end in pieces([3, 1, 1, 2, 1], 8):
            found.append(model(None, mask, encoder_output=states, decoder_input_ids=target[:, start:end],
                               cache=cache, encoder_states=whole.encoder_states).logits)
            states = torch.full_like(states, float("nan"))  # whoever still reads it will be seen
        assert_close(torch.cat(found, dim=1), whole.logits)


@pytest.mark.sampled
@pytest.mark.parametrize("name", of_any_future({**DECODERS, **PAIRS}))
def test_reordered_cache_continues_the_reordered_rows(name: str) -> None:
    """Beam search: rows are repeated and dropped between steps, also to another number of rows."""
    model = scrambled({**DECODERS, **PAIRS}[name])
    ids, order = tokens(model.config, 3, 6), torch.tensor([2, 2, 0, 1])
    source = tokens(model.config, 3, 5, seed=2) if name in PAIRS else None
    cache = model.new_cache(3, 6)
    with torch.no_grad():
        step(model, ids[:, :5], source, cache)
        cache.reorder(order)
        found = step(model, ids[order][:, 5:], None if source is None else source[order], cache)
        whole = step(model, ids[order], None if source is None else source[order], None)
    assert_close(found[:, -1], whole[:, -1])


def step(model: Transformer, ids: Tensor, source: Tensor | None, cache: Cache | None) -> Tensor:
    """Return the logits of one step of a decoder, with or without an encoder beside it."""
    output = model(ids, cache=cache) if source is None else model(source, decoder_input_ids=ids, cache=cache)
    assert output.logits is not None
    return output.logits  # type: ignore[no-any-return]


@pytest.mark.sampled
@pytest.mark.parametrize("name", DECODERS)
def test_last_only_is_the_last_of_all(name: str) -> None:
    """The head on the last position alone, and no head at all, change nothing else."""
    model = scrambled(DECODERS[name])
    ids = tokens(model.config, 2, 6)
    with torch.no_grad():
        whole, last, none = model(ids), model(ids, last_only=True), model(ids, compute_logits=False)
    assert last.logits.shape[1] == 1
    assert none.logits is None
    assert_close(last.logits, whole.logits[:, -1:])
    assert_close(model.head(none.last_hidden_state), whole.logits)
