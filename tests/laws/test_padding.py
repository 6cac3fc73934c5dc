"""Padding changes nothing: a row gives the same numbers alone, padded on either side, and beside other rows."""

from __future__ import annotations

import pytest
import torch
from tests.laws.zoo import (
    decoders,
    encoders,
    everything,
    longest,
    of_any_length,
    of_any_place,
    reads_padding,
    steady,
    tokens,
)
from tests.tolerances import MODEL, assert_close
from torch import Tensor

from saucier import config as c
from saucier.model import Transformer
from saucier.parts import masks

MODELS = everything()
SINGLE = {**decoders(), **encoders()}
ANY_LENGTH = of_any_length(MODELS)
MASKED = [name for name, config in MODELS.items() if not reads_padding(config)]
LEFT = [name for name in of_any_place(MODELS) if name.startswith(("decoder", "encoder"))]


def run(model: Transformer, ids: Tensor, mask: Tensor | None = None, **rest: Tensor) -> Tensor:
    """Return the hidden vectors of a model; an encoder-decoder gets the same rows on both sides."""
    if model.config.encoder and model.config.decoder:
        return hidden(model(ids, mask, decoder_input_ids=ids.flip(1) if mask is None else ids,
                            decoder_attention_mask=mask, **rest))
    return hidden(model(ids, mask, **rest))


def hidden(output: object) -> Tensor:
    """Return the last hidden state, which every model gives."""
    found = output.last_hidden_state  # type: ignore[attr-defined]
    assert isinstance(found, Tensor)
    return found


def alone(model: Transformer, row: Tensor) -> Tensor:
    """Return the hidden vectors of one unpadded row."""
    if model.config.encoder and model.config.decoder:
        return hidden(model(row[None], decoder_input_ids=row[None]))[0]
    return hidden(model(row[None]))[0]


def lengths_for(config: c.Transformer) -> list[int]:
    """Return the lengths of the rows of a batch: full, half, and a single token."""
    full = longest(config)
    return [full, full // 2, 1, full - 1]


def right_mask(lengths: list[int]) -> Tensor:
    """Return the mask of rows that are padded at their end."""
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


@pytest.mark.sampled
@pytest.mark.parametrize("worth", [0.9, 0.0], ids=["packed", "masked"])
@pytest.mark.parametrize("name", ANY_LENGTH)
def test_right_padding_changes_nothing(name: str, worth: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of leaving padding out (rows packed without it, and a mask) give what the row gives alone."""
    monkeypatch.setattr(masks, "MOST_REAL", worth)
    model = steady(MODELS[name])
    lengths = lengths_for(model.config)
    ids, mask = tokens(model.config, len(lengths), max(lengths)), right_mask(lengths)
    found = run(model, ids, mask.long())
    assert found.isfinite().all()
    for row, length in enumerate(lengths):
        assert_close(found[row, :length], alone(model, ids[row, :length]), what=f"row {row}")


@pytest.mark.sampled
@pytest.mark.parametrize("worth", [0.9, 0.0], ids=["packed", "masked"])
@pytest.mark.parametrize("name", MASKED)
def test_what_stands_in_the_padding_does_not_matter(name: str, worth: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other ids under the padding leave the real positions equal to the last bit."""
    monkeypatch.setattr(masks, "MOST_REAL", worth)
    model = steady(MODELS[name])
    lengths = lengths_for(model.config)
    ids, mask = tokens(model.config, len(lengths), max(lengths)), right_mask(lengths)
    other = torch.where(mask, ids, (ids + 1) % model.config.embed.vocab)
    first, second = run(model, ids, mask.long()), run(model, other, mask.long())
    assert torch.equal(first[mask], second[mask])


@pytest.mark.sampled
@pytest.mark.parametrize("name", of_any_place(SINGLE))
def test_left_padding_changes_nothing(name: str) -> None:
    """Rows padded at their start, with positions counted from the first real token, as generation does it."""
    model = steady(SINGLE[name])
    lengths = lengths_for(model.config)
    mask = right_mask(lengths).flip(1)
    ids, places = tokens(model.config, len(lengths), max(lengths)), (mask.long().cumsum(1) - 1).clamp(min=0)
    found = run(model, ids, mask.long(), places=places)
    assert found.isfinite().all()
    for row, length in enumerate(lengths):
        assert_close(found[row, -length:], alone(model, ids[row, -length:]), what=f"row {row}")


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "side"), [(name, "right") for name in ANY_LENGTH] + [(name, "left") for name in LEFT])
def test_padding_leaves_gradients_as_they_are(name: str, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training on padded rows moves every weight as training on the rows alone would, and nothing becomes NaN."""
    monkeypatch.setattr(masks, "MOST_REAL", 0.9 if side == "right" else 0.0)
    model = steady(MODELS[name])
    lengths = lengths_for(model.config)
    mask = right_mask(lengths) if side == "right" else right_mask(lengths).flip(1)
    ids = tokens(model.config, len(lengths), max(lengths))
    places = {} if side == "right" else {"places": (mask.long().cumsum(1) - 1).clamp(min=0)}
    padded = gradients(model, run(model, ids, mask.long(), **places)[mask])
    rows = torch.cat([alone(model, ids[row][mask[row]]) for row in range(len(lengths))])
    for key, expected in gradients(model, rows).items():
        scale = max(1.0, float(expected.abs().max()))
        assert_close(padded[key] / scale, expected / scale, MODEL, what=key)


def gradients(model: Transformer, states: Tensor) -> dict[str, Tensor]:
    """Return the gradient of a fixed random projection of these states [T, D] for every parameter it reaches."""
    weights = torch.randn(states.shape, generator=torch.Generator().manual_seed(1))
    model.zero_grad()
    (states * weights).sum().backward()
    return {key: value.grad.clone() for key, value in model.named_parameters() if value.grad is not None}


@pytest.mark.sampled
@pytest.mark.parametrize("name", MODELS)
def test_a_batch_is_its_rows(name: str) -> None:
    """Rows of a batch do not see each other, and their order is kept."""
    model = steady(MODELS[name])
    ids = tokens(model.config, 3, longest(model.config))
    found = run(model, ids)
    assert_close(run(model, ids[[2, 0, 1]]), found[[2, 0, 1]])
    assert_close(torch.cat([run(model, ids[i:i + 1]) for i in range(3)]), found)


@pytest.mark.sampled
@pytest.mark.parametrize("name", MODELS)
def test_a_row_without_any_real_token_stays_finite(name: str) -> None:
    """A fully masked row gives numbers, never NaN, and leaves its neighbours alone."""
    model = steady(MODELS[name])
    ids = tokens(model.config, 2, 5)
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 0, 0, 0]])
    found = run(model, ids, mask)
    assert found.isfinite().all()
    assert_close(found[0], alone(model, ids[0]))
    assert all(value.isfinite().all() for value in gradients(model, found[0]).values())
