"""Models without a key-value cache write what one pass over each text so far says."""

from __future__ import annotations

import pytest
import torch
from tests.laws.zoo import family, scrambled, tokens
from torch import Tensor

import saucier
from saucier import InputError
from saucier.model import Transformer


def by_hand(model: Transformer, ids: Tensor, steps: int) -> Tensor:
    """Greedy decoding of an XLM, written down once more: the mask token stands behind the text, in language 0."""
    for _ in range(steps):
        asked = torch.cat([ids, torch.full((len(ids), 1), 5)], dim=1)
        with torch.no_grad():
            logits = model(asked, langs=torch.zeros_like(asked)).logits
        ids = torch.cat([ids, logits[:, -1].argmax(-1, keepdim=True)], dim=1)
    return ids


def test_a_head_that_predicts_in_place_asks_by_a_mask_token() -> None:
    model = scrambled(family("xlm"))
    ids = tokens(model.config, 2, 4)
    assert torch.equal(saucier.generate(model, ids, max_new_tokens=5), by_hand(model, ids, 5))


def test_padded_prompts_write_what_they_write_alone() -> None:
    model = scrambled(family("xlm"))
    ids = tokens(model.config, 2, 6)
    mask = torch.tensor([[0, 0, 0, 1, 1, 1], [1] * 6])
    found = saucier.generate(model, ids, mask, max_new_tokens=4)
    assert torch.equal(found[0, 3:], saucier.generate(model, ids[:1, 3:], max_new_tokens=4)[0])
    assert torch.equal(found[1:], saucier.generate(model, ids[1:], max_new_tokens=4))


def test_beams_follow_their_rows() -> None:
    """As many beams as there are texts of two tokens: the best of all is found."""
    model = scrambled(family("xlm"))
    ids = tokens(model.config, 1, 3)
    found = saucier.generate(model, ids, max_new_tokens=2, num_beams=model.config.embed.vocab)
    texts = torch.cartesian_prod(torch.arange(37), torch.arange(37))
    rows = torch.cat([ids.expand(len(texts), -1), texts], dim=1)
    scores = torch.zeros(len(texts))
    with torch.no_grad():
        for length in (3, 4):
            asked = torch.cat([rows[:, :length], torch.full((len(rows), 1), 5)], dim=1)
            logits = model(asked, langs=torch.zeros_like(asked)).logits[:, -1].log_softmax(-1)
            scores += logits.gather(1, rows[:, length:length + 1])[:, 0]
    assert torch.equal(found[0], rows[scores.argmax()])


def test_a_step_without_a_cache_is_not_compiled() -> None:
    model = scrambled(family("xlm"))
    with pytest.raises(InputError, match="compile"):
        saucier.generate(model, tokens(model.config, 1, 3), compile=True)


def test_an_encoder_that_speaks_of_the_next_token_does_not_write() -> None:
    model = scrambled(family("bert"))
    with pytest.raises(InputError, match="no decoder"):
        saucier.generate(model, tokens(model.config, 1, 3))
