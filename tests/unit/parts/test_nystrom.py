"""Nyströmformer's kernel: exact where landmarks suffice, near to exact elsewhere, learning, and what it refuses."""

from __future__ import annotations

import pytest
import torch

from saucier import InputError
from saucier import config as c
from saucier.diagnosis.scope import batch_reason
from saucier.families.nystromformer import nystromformer
from saucier.model import build

LENGTH = 24


def small(**changes: object) -> c.Transformer:
    config = nystromformer(16, 2, heads=2, vocab=30, length=LENGTH, landmarks=6, dropout=0.0)
    attention = config.encoder.attentions()[0]  # type: ignore[union-attr]
    kernel = attention.kernel.model_copy(update={"shared_start": False, **changes})
    block = config.encoder.layers.block  # type: ignore[union-attr]
    first = block.sublayers[0].model_copy(update={"inner": attention.model_copy(update={"kernel": kernel})})
    layers = c.Repeat(block=block.model_copy(update={"sublayers": (first, *block.sublayers[1:])}), times=2)
    return config.model_copy(update={"encoder": config.encoder.model_copy(update={"layers": layers})})  # type: ignore[union-attr]


def run(config: c.Transformer, ids: torch.Tensor, **inputs: torch.Tensor) -> torch.Tensor:
    model = build(config, seed=3).double().eval()
    hidden: torch.Tensor = model(ids, **inputs).last_hidden_state
    return hidden



def ids(rows: int, length: int) -> torch.Tensor:
    return torch.randint(3, 30, (rows, length), generator=torch.Generator().manual_seed(1))


def test_a_text_of_no_more_tokens_than_landmarks_is_exact() -> None:
    text = ids(2, 6)
    exact = run(small(landmarks=LENGTH), text)
    assert torch.allclose(run(small(), text), exact, atol=1e-12)
    beside = torch.cat([text, torch.ones(2, 9, dtype=torch.long)], dim=1)  # short rows next to a long one
    batch = torch.cat([beside, ids(1, 15)])
    mask = torch.ones(3, 15, dtype=torch.long)
    mask[:2, 6:] = 0
    assert torch.allclose(run(small(), batch, attention_mask=mask)[:2, :6], exact, atol=1e-12)


def test_more_steps_bring_the_inverse_nearer() -> None:
    """Where landmarks are as many as segments of equal tokens, nothing is lost but what the inverse lacks."""
    text = ids(1, 6).repeat_interleave(4, dim=1)
    exact, near, far = (run(small(iterations=steps, landmarks=count, convolution=None), text)
                        for steps, count in ((6, LENGTH), (40, 6), (1, 6)))
    assert (near - exact).abs().max() < (far - exact).abs().max()


def test_a_factor_shared_by_the_batch_is_named() -> None:
    assert batch_reason(small()) is None
    assert "one factor for a whole batch" in str(batch_reason(small(shared_start=True)))


def test_the_filters_learn() -> None:
    model = build(small(), seed=1)
    model(ids(2, 9)).logits.square().mean().backward()
    filters = {name: one for name, one in model.named_parameters() if "convolution" in name}
    assert len(filters) == 2 and all(one.grad.abs().sum() > 0 for one in filters.values())  # type: ignore[union-attr]


@pytest.mark.parametrize(("changes", "place"), [({"convolution": 4}, "kernel.convolution")])
def test_what_it_refuses(changes: dict[str, int], place: str) -> None:
    with pytest.raises(InputError, match=place):
        c.check(small(**changes))
    hidden = c.SelfAttention(projection=c.Projection(heads=2, kv_heads=1), kernel=c.Nystrom())
    with pytest.raises(InputError, match="keys and values for every head"):
        hidden.kernel.check("x", hidden, 16)
